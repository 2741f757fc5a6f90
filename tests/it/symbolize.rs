//! `prof symbolize` on recordings that have only addresses.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::common;
use crate::common::{
    Build, Prof, machine, needs, target, temp_dir, unnamed, until_file_times_advance, write,
};
use object::{Object, ObjectSymbol};
use profile::Profile;

/// The program with known answers, built once: these tests run in parallel.
fn known() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    machine::share();
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
    common::copy_program(known(), &program);
    let file = dir.path().join("profile.pb.gz");
    write(&recording(&program, &["main"]), &file);
    std::fs::remove_file(&program).unwrap();
    Prof::new(&dir, "symbolize").run().ok().says(&["program", "the file is not there"]);
    common::copy_program(target("known", Build::CFramePointers), &program);
    Prof::new(&dir, "symbolize").run().ok().says(&["another build than the recorded one"]);
    assert_eq!(names(&file), Vec::<String>::new());
}

/// Without a build ID, only the times of a file show that it is the recorded one; a file of the
/// same name shows nothing.
#[test]
fn a_binary_without_build_id_gives_names_only_while_it_is_untouched() {
    let dir = temp_dir();
    let source = common::targets::source("known.c");
    let flags = ["-O1", "-g", "-Wl,--build-id=none"];
    let built = common::targets::built("known-no-id", source.to_str().unwrap(), "cc", &flags);
    let program = dir.path().join("program");
    common::copy_program(built, &program);
    let file = dir.path().join("profile.pb.gz");
    let recorded = || {
        let mut p = recording(&program, &["main"]);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        (p.time_nanos, p.duration_nanos) = (now.as_nanos() as i64, 1);
        write(&p, &file);
    };
    // Times of files lag by a tick of the kernel's clock.
    until_file_times_advance();
    recorded();
    Prof::new(&dir, "symbolize").run().ok();
    assert_eq!(names(&file), ["main"]);
    recorded();
    // An older file takes its place.
    let older = dir.path().join("older");
    common::copy_program(known(), &older);
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
    std::fs::File::open(&older).unwrap().set_modified(long_ago).unwrap();
    std::fs::rename(&older, &program).unwrap();
    Prof::new(&dir, "symbolize").run().ok().says(&["changed or replaced since"]);
    assert_eq!(names(&file), Vec::<String>::new());
    std::fs::create_dir(dir.path().join("symbols")).unwrap();
    std::fs::rename(&program, dir.path().join("symbols/program")).unwrap();
    Prof::new(&dir, "symbolize --symbol-path symbols").run().ok().says(&["not there"]);
    assert_eq!(names(&file), Vec::<String>::new());
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let dir = temp_dir();
    Prof::new(&dir, "symbolize none.pb.gz").run().refused(1, &["none.pb.gz"]);
    let file = dir.path().join("profile.pb.gz");
    write(&recording(&known(), &["main"]), &file);
    Prof::new(&dir, "symbolize -o no/such/directory").run().refused(1, &["no/such/directory"]);
    std::fs::write(&file, "no profile").unwrap();
    Prof::new(&dir, "symbolize").run().refused(1, &["profile.pb.gz"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"no profile");
    assert_eq!(Prof::new(&dir, "symbolize -j 0").run().code(), 2);
}

/// The recording is over and waits for a debuginfod server that never answers: an interrupt ends
/// the wait, not prof.
#[test]
fn an_interrupt_ends_the_wait_for_debuginfod_and_keeps_the_recording() {
    let dir = temp_dir();
    let program = dir.path().join("program");
    common::copy_program(known(), &program);
    assert!(Command::new("strip").arg(&program).status().unwrap().success());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let recording = Prof::new(&dir, "record -F 999")
        .env("DEBUGINFOD_TIMEOUT", "170")
        .env("XDG_CACHE_HOME", dir.path())
        .args(&format!("--debuginfod={url}"))
        .target(&program, "1")
        .start();
    let (_connection, _) = silent.accept().unwrap();
    recording.signal(libc::SIGINT);
    let out = recording.finish().ok().says(&["interrupted", &url]);
    let p = common::read(dir.path().join("profile.pb.gz"));
    assert!(p.figure("samples") > 20, "{}", out.stderr);
}
