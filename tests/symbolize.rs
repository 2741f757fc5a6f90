//! `prof symbolize` on recordings that have only addresses.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use common::{Build, Prof, needs, target, temp_dir, unnamed, write};
use object::{Object, ObjectSymbol};
use prof::profile::Profile;

/// The program with known answers, built once: these tests run side by side.
fn known() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| target("known", Build::CDebug)).clone()
}

/// A recording with one sample in each of `functions`, without names.
fn recording(program: &Path, functions: &[&str]) -> Profile {
    let data = std::fs::read(program).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    let address = |name: &&str| elf.symbols().find(|s| s.name() == Ok(name)).unwrap().address();
    unnamed(program, &functions.iter().map(address).collect::<Vec<u64>>())
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = common::read(path).lines.into_values().flatten().collect();
    names.sort();
    names
}

#[test]
fn names_are_written_in_place_and_pprof_reads_them() {
    let dir = temp_dir();
    let program = known();
    let file = dir.path().join("profile.pb.gz");
    write(&recording(&program, &["main", "bar"]), &file);
    assert_eq!(names(&file), Vec::<String>::new());
    Prof::new(&dir, "symbolize").run().ok().says(&["2 of 2 addresses have names now"]);
    assert_eq!(names(&file), ["bar", "main"]);
    let read = common::read(&file);
    assert!(read.sources.values().all(|(file, line)| file.ends_with("known.c") && *line > 0));
    Prof::new(&dir, "symbolize").run().ok().says(&["nothing to do"]);
    if needs(&["go"]) {
        let mut pprof = Command::new("go");
        pprof.args(["tool", "pprof", "-top"]).arg(&file).stdin(Stdio::null());
        let out = common::run::run(pprof).ok();
        assert!(out.text().contains("bar"), "{}", out.text());
        let heard = out.stderr.to_lowercase();
        assert!(!heard.contains("warn") && !heard.contains("fail"), "{}", out.stderr);
    }
}

#[test]
fn another_output_leaves_the_recording_alone() {
    let dir = temp_dir();
    let program = known();
    let file = dir.path().join("profile.pb.gz");
    write(&recording(&program, &["main"]), &file);
    let before = std::fs::read(&file).unwrap();
    Prof::new(&dir, "symbolize -o named.pb.gz").run().ok();
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert_eq!(names(&dir.path().join("named.pb.gz")), ["main"]);
}

#[test]
fn a_replaced_binary_gives_no_names() {
    let dir = temp_dir();
    let program = dir.path().join("program");
    std::fs::copy(known(), &program).unwrap();
    let file = dir.path().join("profile.pb.gz");
    write(&recording(&program, &["main"]), &file);
    std::fs::remove_file(&program).unwrap();
    Prof::new(&dir, "symbolize").run().ok().says(&["program", "the file is not there"]);
    std::fs::copy(target("known", Build::CFramePointers), &program).unwrap();
    Prof::new(&dir, "symbolize").run().ok().says(&["another build than the recorded one"]);
    assert_eq!(names(&file), Vec::<String>::new());
}

#[test]
fn bad_input_is_one_line() {
    let dir = temp_dir();
    Prof::new(&dir, "symbolize none.pb.gz").run().refused(1, &["none.pb.gz"]);
    let file = dir.path().join("profile.pb.gz");
    write(&recording(&known(), &["main"]), &file);
    Prof::new(&dir, "symbolize -o no/such/folder").run().refused(1, &["no/such/folder"]);
    std::fs::write(&file, "no profile").unwrap();
    Prof::new(&dir, "symbolize").run().refused(1, &["profile.pb.gz"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"no profile");
    assert_eq!(Prof::new(&dir, "symbolize -j 0").run().code(), 2);
}
