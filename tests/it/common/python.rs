//! Recordings of Python programs, and the functions of their stacks.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::interpreted;
pub use super::interpreted::{Frame, in_order, plain};
use super::pprof::Sample;
use super::system::{has_deep_stacks, needs_root};
use super::{Pprof, Prof, read, skip};

/// CPython versions whose functions are shown: 3.8 to 3.13.
const MINORS: std::ops::RangeInclusive<u32> = 8..=13;

/// Python's functions are in this mapping.
const MAPPING: &str = "[python]";

/// The beginning of the names of functions whose own is unknown.
pub const PLACEHOLDER: &str = "[Python function: ";

/// An installed CPython.
#[derive(Debug, Clone)]
pub struct Python {
    /// Its program.
    pub path: PathBuf,
    /// The 11 of 3.11.
    pub minor: u32,
}

impl Python {
    fn at(path: PathBuf) -> Option<Python> {
        let script = "import sys; print(*sys.version_info[:2])";
        let out = Command::new(&path).args(["-c", script]).output().ok()?;
        let text = String::from_utf8(out.stdout).ok()?;
        let minor = text.trim().strip_prefix("3 ")?.parse().ok()?;
        Some(Python { path, minor })
    }

    /// True if functions have the names of their classes and of enclosing functions (`co_qualname`).
    pub fn has_qualnames(&self) -> bool {
        self.minor >= 11
    }

    /// Records a script (`prof record OPTIONS`), and reads the profile, which has the times of samples.
    #[track_caller]
    pub fn record(&self, dir: &Path, options: &str, script: &str) -> Pprof {
        let file = write_script(dir, script);
        let args = format!("record --timestamps {options}");
        Prof::new(dir, &args).target(&self.path, "").arg(file).run().ok();
        read(dir.join("profile.pb.gz"))
    }
}

/// The name of a script's file.
const SCRIPT: &str = "program.py";

/// Writes a script to record. Returns its path.
pub fn write_script(dir: &Path, script: &str) -> PathBuf {
    let file = dir.join(SCRIPT);
    std::fs::write(&file, script).unwrap();
    file
}

/// The number of the line that contains this text.
#[track_caller]
pub fn line_of(script: &str, text: &str) -> i64 {
    let mut lines = (1..).zip(script.lines()).filter(|(_, line)| line.contains(text));
    let (number, _) = lines.next().unwrap_or_else(|| panic!("no {text} in {script}"));
    assert!(lines.next().is_none(), "{text} is in two lines of {script}");
    number
}

/// The system's Python. `None`, which is reported: there is none, or its functions are not shown.
#[track_caller]
pub fn python() -> Option<Python> {
    if !needs_root() || !has_deep_stacks() {
        return None;
    }
    let found = Python::at("/usr/bin/python3".into()).filter(|it| MINORS.contains(&it.minor));
    if found.is_none() {
        skip("/usr/bin/python3 is not installed, or not 3.8 to 3.13");
    }
    found
}

/// The system's Python, and one of each version of pyenv's. Missing ones are reported.
#[track_caller]
pub fn pythons() -> Vec<Python> {
    let Some(first) = python() else { return Vec::new() };
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let versions = std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    let paths = versions.map(|version| version.path().join("bin/python3"));
    let mut found: Vec<Python> = paths.filter_map(Python::at).collect();
    found.retain(|python| MINORS.contains(&python.minor));
    found.sort_by_key(|python| python.minor);
    found.dedup_by_key(|python| python.minor);
    for minor in MINORS.filter(|minor| *minor != first.minor) {
        if found.iter().all(|python| python.minor != minor) {
            skip(&format!("Python 3.{minor} is not installed in ~/.pyenv/versions"));
        }
    }
    found.insert(0, first);
    found
}

/// True if a location is a Python function's.
pub fn is_python(p: &Pprof, location: &u64) -> bool {
    p.mapping_of.get(location).is_some_and(|&mapping| p.mappings[mapping].file == MAPPING)
}

/// The Python functions of a sample, the innermost first.
pub fn frames<'p>(p: &'p Pprof, sample: &Sample) -> Vec<Frame<'p>> {
    interpreted::frames(p, sample, MAPPING)
}

/// The functions' names of a sample, the innermost first.
pub fn functions<'p>(p: &'p Pprof, sample: &Sample) -> Vec<&'p str> {
    frames(p, sample).iter().map(|frame| frame.function).collect()
}

/// The samples of each process, one for each time, from the first one on that has functions of its
/// script: its interpreter is known then, and has imported its own modules.
pub fn recognized(p: &Pprof) -> Vec<&Sample> {
    let mut kept = Vec::new();
    for pid in p.label_values("pid") {
        let is_script = |frame: &Frame| frame.file.ends_with(SCRIPT);
        let is_unknown = |sample: &&Sample| !frames(p, sample).iter().any(is_script);
        kept.extend(in_order(p, pid).into_iter().skip_while(is_unknown));
    }
    kept
}

/// Fails unless 99 % of the samples, at least, have all Python functions up to this outermost one.
#[track_caller]
pub fn assert_complete(what: &str, p: &Pprof, samples: &[&Sample], outermost: &str) {
    let is_whole = |sample: &&&Sample| functions(p, sample).last() == Some(&outermost);
    let whole = samples.iter().filter(is_whole).count();
    println!("{what}: {whole} of {} samples reach {outermost}", samples.len());
    let other = samples.iter().find(|sample| !is_whole(sample)).map(|other| p.frames(other));
    assert!(
        whole * 100 >= samples.len() * 99,
        "{what}: {whole} of {} samples reach {outermost}; one that does not is {other:?}",
        samples.len()
    );
}
