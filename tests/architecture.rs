//! The rules of `ARCHITECTURE.md` that the source itself can be held against.

use std::path::{Path, PathBuf};

/// A source file of prof's: its path below the repository, and its text without unit tests.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// Lines of code, without comments.
    fn code(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter(|line| !line.trim_start().starts_with("//"))
    }
}

/// All of prof's source but the preloaded library, which lives in other people's programs, and but
/// files of unit tests.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut directories = vec![root.join("src")];
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        directories.push(entry.unwrap().path().join("src"));
    }
    let mut found = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("tests") && !path.ends_with("preload") {
                    directories.push(path);
                }
            } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]\nmod ").next().unwrap().to_owned();
                let path = path.strip_prefix(root).unwrap().display().to_string();
                found.push(Source { path, text });
            }
        }
    }
    assert!(found.len() > 200, "only {} files were found", found.len());
    found
}

/// Lines of code that break a rule, each with its file.
fn offences(breaks: impl Fn(&Source, &str) -> bool) -> Vec<String> {
    let all = sources();
    let of_file = |s: &Source| -> Vec<String> {
        let lines = s.code().filter(|line| breaks(s, line));
        lines.map(|line| format!("{}: {}", s.path, line.trim())).collect()
    };
    all.iter().flat_map(of_file).collect()
}

/// Files that open others by name without `sys::foreign`, and whose names these are.
const OPENS: &[(&str, &str)] = &[
    ("crates/formats/src/file.rs", "the user's: a profile to read"),
    ("src/cli/output", "the user's: a profile to write"),
    ("src/cli/output.rs", "the user's: a profile to write"),
    ("crates/heap/src/inject/refuse.rs", "the kernel's, below /proc"),
    ("crates/sys/src/foreign.rs", "the module that checks"),
    ("src/sampler/definitions.rs", "the kernel's, in tracefs"),
    ("crates/heap/src/program.rs", "the user's: whether a command has other rights"),
    ("src/sampler/permissions.rs", "root's, in /etc"),
    ("src/sampler/permissions/facts.rs", "the kernel's, in tracefs"),
    ("src/sampler/target.rs", "the kernel's, in a cgroup"),
    ("src/sampler/tracefs.rs", "the kernel's, in tracefs"),
    ("src/sampler/tracepoint.rs", "the kernel's, in tracefs"),
    ("crates/symbols/src/cache.rs", "in a folder that only the user can change"),
    ("crates/symbols/src/kernel.rs", "the kernel's, in sysfs"),
    ("crates/symbols/src/private.rs", "in a folder that only the user can change"),
    ("src/report/advice/packages.rs", "root's, in /etc"),
];

/// What a target, a profile or a binary names must not be opened in any other way: whoever adds a
/// file to the list says whose the names are.
#[test]
fn files_that_others_name_are_opened_in_one_place() {
    const CALLS: [&str; 5] =
        ["File::open(", "fs::read(", "fs::read_to_string(", "fs::metadata(", "OpenOptions::new()"];
    let found = offences(|source, line| {
        let opens = CALLS.iter().any(|call| line.contains(call));
        // The kernel's own files.
        let kernel = line.contains("\"/proc/") || line.contains("\"/sys/");
        opens && !kernel && !OPENS.iter().any(|(known, _)| source.path.starts_with(known))
    });
    assert!(found.is_empty(), "open these through sys::foreign:\n{}", found.join("\n"));
}

#[test]
fn all_text_is_printed_in_one_place() {
    /// Profiles are bytes; the command gets the descriptor itself.
    const BYTES: [&str; 2] = ["src/cli/output.rs", "src/sampler/command.rs"];
    let found = offences(|source, line| {
        let prints = ["println!(", "print!(", "dbg!("].iter().any(|p| line.contains(p));
        let opens = line.contains("io::stderr()") || line.contains("io::stdout()");
        let allowed = source.path.starts_with("crates/sys/src/printed");
        !allowed && (prints || opens && !BYTES.contains(&&*source.path))
    });
    assert!(found.is_empty(), "print these through sys::printed:\n{}", found.join("\n"));
}

#[test]
fn progress_is_drawn_in_one_place() {
    let found = offences(|source, line| {
        line.contains("indicatif::") && source.path != "src/cli/progress.rs"
    });
    assert!(found.is_empty(), "draw these in cli::progress:\n{}", found.join("\n"));
}
