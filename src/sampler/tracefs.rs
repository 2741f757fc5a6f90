//! Descriptions of tracepoints in tracefs.

use std::fs;
use std::io;
use std::path::PathBuf;

/// Usual mount points of tracefs (`Documentation/trace/ftrace.rst`).
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The mount point of tracefs.
///
/// # Errors
///
/// It is not mounted, or this user may not read it.
pub fn root() -> io::Result<PathBuf> {
    let mut result = Err(io::ErrorKind::NotFound.into());
    for root in ROOTS.map(PathBuf::from) {
        match fs::metadata(root.join("events")) {
            Ok(_) => return Ok(root),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => result = Err(e),
        }
    }
    result
}

/// Names of the fields of the tracepoint `SYSTEM:NAME…`, without those common to all tracepoints.
pub fn fields(name: &str) -> Vec<String> {
    let mut parts = name.split(':');
    let system = parts.next().unwrap_or_default();
    let event = parts.next().unwrap_or_default();
    let files = ROOTS.map(|root| format!("{root}/events/{system}/{event}/format"));
    let text = files.iter().find_map(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    fields_in(&text).map(str::to_owned).collect()
}

/// Names in lines such as `field:char prev_comm[16]; offset:8; …`.
fn fields_in(format: &str) -> impl Iterator<Item = &str> {
    let declarations = format.lines().filter_map(|line| {
        let line = line.trim_start().strip_prefix("field:")?;
        line.split(';').next()
    });
    // The name is the last word; the length of an array follows it.
    let words = declarations.filter_map(|d| d.split([' ', '*']).next_back());
    let names = words.filter_map(|word| word.split('[').next());
    names.filter(|name| !name.is_empty() && !name.starts_with("common_"))
}

/// All tracepoints, `SYSTEM:NAME`, sorted by name.
///
/// # Errors
///
/// Tracefs is not mounted, or this user may not read it.
pub fn tracepoints() -> io::Result<Vec<String>> {
    let text = fs::read_to_string(root()?.join("available_events"))?;
    let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_without_those_of_all() {
        let text = "name: x\nID: 3\nformat:\n\
                    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
                    \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
                    \tfield:unsigned long size;\toffset:24;\tsize:8;\tsigned:0;\n\
                    \tfield:__data_loc char[] name;\toffset:32;\tsize:4;\tsigned:1;\n\
                    \tfield:void *ptr;\toffset:40;\tsize:8;\tsigned:0;\n\
                    print fmt: \"field:%d\"\n";
        assert_eq!(fields_in(text).collect::<Vec<_>>(), ["prev_comm", "size", "name", "ptr"]);
        assert!(fields("no_such:tracepoint").is_empty() && fields("").is_empty());
    }
}
