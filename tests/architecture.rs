//! The rules of `ARCHITECTURE.md` that can be checked in the source itself.

#[path = "architecture/circles.rs"]
mod circles;
#[path = "architecture/ports.rs"]
mod ports;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use regex::Regex;

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

/// All of prof's source but the preloaded library, which is loaded into other programs, and but
/// files of unit tests.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut directories = vec![root.join("src")];
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        directories.push(entry.unwrap().path().join("src"));
    }
    let found = sources_below(directories);
    assert!(found.len() > 200, "only {} files were found", found.len());
    found
}

/// The source in these directories but files of unit tests.
fn sources_below(mut directories: Vec<PathBuf>) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
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
    found
}

/// The sleeps of the integration tests, by file: one polls conditions, all others have a comment.
const SLEEPS: [(&str, usize); 4] = [
    ("tests/it/common/conditions.rs", 1),
    // perf is run again after a while.
    ("tests/it/common/run.rs", 1),
    // The moment of a kill or an end is what is tried.
    ("tests/it/inject.rs", 4),
    // The length of a stop is what is measured.
    ("tests/it/lock.rs", 1),
];

/// A test that sleeps guesses when something will have happened: `common::until` waits for it.
#[test]
fn tests_wait_for_conditions() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let mut found = BTreeMap::new();
    for source in sources_below(vec![directory]) {
        let sleeps = ["thread::sleep(", "libc::usleep(", "libc::nanosleep("];
        let count = source.code().filter(|line| sleeps.iter().any(|s| line.contains(s))).count();
        if count > 0 {
            found.insert(source.path, count);
        }
    }
    let listed: BTreeMap<String, usize> = SLEEPS.map(|(path, n)| (path.to_owned(), n)).into();
    assert_eq!(found, listed, "sleeps by file");
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

/// Files that open others by name without `sys::foreign`, and the owners of these names.
const OPENS: &[(&str, &str)] = &[
    ("crates/formats/src/file.rs", "the user's: a profile to read"),
    ("src/cli/output", "the user's: a profile to write"),
    ("src/cli/output.rs", "the user's: a profile to write"),
    ("crates/heap/src/inject/refuse.rs", "the kernel's, below /proc"),
    ("crates/sys/src/foreign.rs", "the module that checks"),
    ("src/sampler/probe_definitions.rs", "the kernel's, in tracefs"),
    ("crates/heap/src/program.rs", "the user's: whether a command has other rights"),
    ("src/sampler/doctor.rs", "root's, in /etc"),
    ("src/sampler/cgroup.rs", "the kernel's, in a cgroup"),
    ("src/sampler/events/pmu.rs", "the kernel's, in sysfs"),
    ("src/sampler/permissions/facts.rs", "the kernel's, in tracefs"),
    ("src/sampler/target.rs", "the kernel's, in a cgroup"),
    ("src/sampler/tracefs.rs", "the kernel's, in tracefs"),
    ("src/sampler/tracepoint.rs", "the kernel's, in tracefs"),
    ("crates/symbols/src/kernel.rs", "the kernel's, in sysfs"),
    ("crates/symbols/src/private.rs", "in a directory that only the user can change"),
    ("src/report/advice/packages.rs", "root's, in /etc"),
    ("src/report/terminal/new_file.rs", "the user's: a new file to write"),
    ("src/cli/report/interactive.rs", "the terminal of the session"),
];

/// A file that a target, a profile or a binary names must not be opened in any other way. An entry
/// of the list states the owner of the names.
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
    /// Profiles are bytes; the command gets the descriptor itself; the interactive views draw.
    const BYTES: [&str; 3] =
        ["src/cli/output.rs", "src/sampler/command.rs", "src/report/terminal/screen.rs"];
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

/// A binding or a field has the name of what it is, not `of` or `one`.
#[test]
fn bindings_are_nouns() {
    let string = Regex::new(r#""(?:[^"\\]|\\.)*""#).unwrap();
    let bindings = [
        r"\blet (?:mut )?(?:of|one|at_last|its_\w+|of_\w+)\b",
        r"(?:^|[(,|&] ?|mut )(?:of|one|at_last|its_\w+)(?:[,|):]|$)",
        r"^(?:pub )?(?:of|one|its_\w+): [A-Z&]",
    ];
    let binding = Regex::new(&bindings.join("|")).unwrap();
    let found = offences(|_, line| {
        let code = string.replace_all(line.trim(), "\"\"");
        // The rest of a string in several lines.
        let is_text = code.matches('"').count() % 2 == 1 || code.ends_with('\\');
        !is_text && binding.is_match(&code)
    });
    assert!(found.is_empty(), "give these bindings a noun:\n{}", found.join("\n"));
}

/// Files outside of `crates/heap/preload` that may use `unsafe`.
const UNSAFE: &[&str] = &[
    "crates/heap/src/exits.rs",
    "crates/heap/src/inject/objects.rs",
    "crates/heap/src/inject/trace.rs",
    "crates/heap/src/lib.rs",
    "crates/heap/src/ring.rs",
    "crates/heap/src/ring/copied.rs",
    "crates/heap/src/ring/memory.rs",
    "crates/sys/src/image.rs",
    "crates/sys/src/mmap.rs",
    "crates/sys/src/os.rs",
    "crates/sys/src/os/files.rs",
    "crates/sys/src/os/helper_process.rs",
    "crates/sys/src/os/precedence.rs",
    "src/sampler/arch/x86_64.rs",
    "src/sampler/attach.rs",
    "src/sampler/bpf/deep.rs",
    "src/sampler/bpf/deep/ring.rs",
    "src/sampler/bpf/filter.rs",
    "src/sampler/bpf/stop.rs",
    "src/sampler/bpf/syscall.rs",
    "src/sampler/command.rs",
    "src/sampler/events/probe.rs",
    "src/sampler/permissions/probe.rs",
    "src/sampler/ring.rs",
    "src/sampler/stops.rs",
];

/// The lint `unsafe_code` is denied for the workspace; these files allow it.
#[test]
fn only_the_listed_files_allow_unsafe_code() {
    let mut allow: Vec<String> = sources()
        .into_iter()
        .filter(|source| source.text.contains("allow(unsafe_code"))
        .map(|source| source.path)
        .collect();
    allow.sort();
    assert_eq!(allow, UNSAFE);
}

/// The table of `ARCHITECTURE.md`: each part with the parts that it uses.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let text = include_str!("../ARCHITECTURE.md");
    let rows = text.lines().filter(|l| l.starts_with("| `crates/") || l.starts_with("| `src/"));
    let quoted = |text: &str| -> BTreeSet<String> {
        text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let part = quoted(cells[0]).pop_first().unwrap();
        (part, quoted(cells[cells.len() - 1]))
    })
    .collect()
}

/// Dependencies between the packages of the workspace, by the names of their directories.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let directory = |package: &serde_json::Value| {
        let below = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
        let manifest = Path::new(package["manifest_path"].as_str()?);
        let directory = manifest.strip_prefix(below).ok()?.parent()?;
        Some(directory.to_str()?.to_owned())
    };
    let named = |package: &serde_json::Value| {
        Some((package["name"].as_str()?.to_owned(), directory(package)?))
    };
    let own: BTreeMap<String, String> = packages.iter().filter_map(named).collect();
    let uses = |package: &serde_json::Value| -> BTreeSet<String> {
        let all = package["dependencies"].as_array().unwrap();
        let normal = all.iter().filter(|d| d["kind"].is_null());
        normal.filter_map(|d| own.get(d["name"].as_str().unwrap()).cloned()).collect()
    };
    packages.iter().filter_map(|p| Some((directory(p)?, uses(p)))).collect()
}

#[test]
fn crates_depend_on_each_other_as_documented() {
    let table = table();
    let documented: BTreeMap<String, BTreeSet<String>> = table
        .iter()
        .filter_map(|(part, uses)| Some((part.strip_prefix("crates/")?.to_owned(), uses.clone())))
        .collect();
    assert_eq!(dependencies(), documented);
}

/// The features of regex-syntax, which decide what an expression can be, in these kinds of dependencies.
fn features_of_expressions(kinds: &str) -> BTreeSet<String> {
    let tree = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--package", "prof", "--invert", "regex-syntax"])
        .args(["--edges", kinds, "--prefix", "none"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8(tree.stdout).unwrap();
    let features = text.lines().filter_map(|line| line.strip_prefix("regex-syntax feature "));
    features.map(|line| line.split('"').nth(1).unwrap().to_owned()).collect()
}

/// Tests must not accept an expression of Go's that the release refuses: development dependencies
/// (proptest) add features.
#[test]
fn expressions_of_the_release_are_those_of_go() {
    let release = features_of_expressions("features,normal");
    let needed = ["std", "unicode-case", "unicode-gencat", "unicode-perl", "unicode-script"];
    assert_eq!(release, needed.map(str::to_owned).into());
    // Properties that Go's expressions have no names for.
    let further = ["default", "unicode", "unicode-age", "unicode-bool", "unicode-segment"];
    let of_tests = features_of_expressions("features");
    let only_in_tests: Vec<&str> = of_tests.difference(&release).map(|f| &**f).collect();
    assert_eq!(only_in_tests, further);
}

/// Whether code names a part by its path: `part::…`, or `crate::part::…` for one below `src/`.
fn names_part(text: &str, path: &str) -> bool {
    text.match_indices(path).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
    })
}

#[test]
fn rooms_import_each_other_as_documented() {
    let table = table();
    let crates = dependencies();
    let rooms: Vec<&str> = table.keys().filter_map(|part| part.strip_prefix("src/")).collect();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources() {
        let Some(room) = source.path.strip_prefix("src/").and_then(|p| p.split_once('/')) else {
            continue;
        };
        let code: String = source.code().map(|line| format!("{line}\n")).collect();
        let uses = found.entry(format!("src/{}", room.0)).or_default();
        // A room may have modules with names of crates: `use heap::…` below its `mod heap`.
        let own = |name: &str| code.contains(&format!("mod {name};"));
        let others = rooms.iter().filter(|r| names_part(&code, &format!("crate::{r}::")));
        uses.extend(others.filter(|r| **r != room.0).map(|r| (*r).to_owned()));
        let of_crates = crates.keys().filter(|c| {
            names_part(&code, &format!("::{c}::"))
                || !own(c) && names_part(&code, &format!("{c}::"))
        });
        uses.extend(of_crates.cloned());
    }
    for (part, uses) in &table {
        if part.starts_with("src/") && part != "src/cli" {
            assert_eq!(found.get(part), Some(uses), "{part}");
        }
    }
}
