//! Parts of sentences and commands that several entries of the table have, or that depend on a
//! fact.

/// Capabilities for events on other processes.
pub const PROFILER: &str = "cap_perfmon,cap_sys_ptrace";

/// In addition, for the files of tracefs, which are readable by root only, whatever
/// `perf_event_paranoid` is.
pub const TRACEPOINTS: &str = "cap_perfmon,cap_sys_ptrace,cap_dac_read_search";

/// Capabilities for events and BPF programs.
pub const PROGRAMS: &str = "cap_bpf,cap_perfmon,cap_sys_ptrace";

/// The replacement of BPF programs.
pub const EVENTS_INSTEAD: &str = "events report each of them instead, which costs more";

/// The meaning of a level of `perf_event_paranoid` for users without privileges.
pub fn paranoid(level: i32) -> &'static str {
    match level {
        ..=-1 => "which allows everything",
        0 => "which allows all but raw tracepoints",
        1 => "which allows your own processes with kernel frames, not the whole machine",
        2 => "which allows your own processes without kernel frames",
        // Only the kernels of Debian, Ubuntu and Android distinguish these from 2.
        3.. => "which allows your own processes without kernel frames, or nothing at all",
    }
}

/// A command of root's.
pub fn command(sudo: bool, command: &str) -> String {
    format!("{}{command}", if sudo { "sudo " } else { "" })
}

/// The command that gives these capabilities to a program.
pub fn setcap(capabilities: &str, program: &str, sudo: bool) -> String {
    command(sudo, &format!("setcap {capabilities}=ep {}", shell_word(program)))
}

/// A path, quoted for a shell if necessary.
fn shell_word(path: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if path.chars().all(safe) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

/// The limits of open files, and the number of threads for which they suffice.
pub fn file_limit(hard: Option<u64>, soft: Option<u64>, threads: Option<u64>) -> String {
    let shown = |n: Option<u64>| n.map_or("unlimited".to_owned(), |n| n.to_string());
    let [hard, soft, threads] = [hard, soft, threads].map(shown);
    format!("limit {hard} (now {soft}): enough for processes of {threads} threads")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_survives_a_shell() {
        assert_eq!(
            setcap(PROFILER, "/a b/it's/prof", false),
            r"setcap cap_perfmon,cap_sys_ptrace=ep '/a b/it'\''s/prof'"
        );
    }
}
