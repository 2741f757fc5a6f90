//! Where a recording is written, and what is left when that fails.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::system::SmallDisk;
use common::{Build, Pprof, Prof, Running, read, skip, system, target, temp_dir};

fn names(dir: impl AsRef<Path>) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// `touch RAN` as the COMMAND: whether it ran shows when prof found the output out.
fn refused_before_the_command_runs(output: &str) {
    let dir = temp_dir();
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let prof = Prof::new(&dir, "record -o").arg(output);
    let out = prof.target("touch", "RAN").run();
    out.refused(1, &[output]);
    assert_eq!(names(&dir), ["file", "folder"], "{}", out.stderr);
}

#[test]
fn an_output_folder_that_does_not_exist() {
    refused_before_the_command_runs("no/such/folder/x.pb.gz");
}

#[test]
fn an_output_in_a_folder_that_takes_no_files() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -o /proc/x.pb.gz").target("true", "").run();
    out.refused(1, &["/proc takes no new files"]);
}

#[test]
fn an_output_that_is_a_folder() {
    refused_before_the_command_runs("folder");
}

#[test]
fn an_output_below_a_file() {
    refused_before_the_command_runs("file/x.pb.gz");
}

#[test]
fn an_output_on_a_file_system_that_is_read_only() {
    if Path::new("/proc/sys/kernel").is_dir() {
        refused_before_the_command_runs("/proc/sys/kernel/x.pb.gz");
    }
}

#[test]
fn an_output_folder_without_permission() {
    if !system::needs_root() || !common::needs(&["setpriv"]) {
        return;
    }
    let dir = temp_dir();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
    let prof = dir.path().join("prof");
    std::fs::copy(env!("CARGO_BIN_EXE_prof"), &prof).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(prof);
    command.args(["record", "--", "true"]).current_dir(&dir);
    Prof { command }.run().refused(1, &["profile.pb.gz"]);
    assert_eq!(names(&dir), ["prof"]);
}

/// The disk is full when the profile is written: the old file stays whole, nothing else is left.
#[test]
fn a_full_disk() {
    if !system::needs_root() {
        return;
    }
    let dir = temp_dir();
    let Some(disk) = SmallDisk::mount(dir.path().join("disk"), 64) else {
        return skip("no tmpfs can be mounted");
    };
    let file = disk.path.join("profile.pb.gz");
    Prof::new(&disk.path, "record -F 99").target(target("exits", Build::C), "0 200").run().ok();
    let old = std::fs::read(&file).unwrap();
    Pprof::decode(&old);
    // Takes what is left of the disk; the part that fits stays.
    std::fs::write(disk.path.join("filler"), vec![0u8; 64 << 10]).unwrap_err();
    let out =
        Prof::new(&disk.path, "record -F 999").target(target("recurse", Build::C), "10 0.3").run();
    out.refused(1, &["profile.pb.gz"]);
    assert!(out.stderr.contains("space"), "{}", out.stderr);
    assert_eq!(std::fs::read(&file).unwrap(), old, "the old file is not whole");
    assert_eq!(names(&disk.path), ["filler", "profile.pb.gz"]);
}

#[test]
fn a_full_device() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -o /dev/full").target("true", "").run();
    out.refused(1, &["/dev/full"]);
    assert!(Path::new("/dev/full").exists());
}

#[test]
fn an_existing_file_is_replaced_and_keeps_its_mode() {
    let dir = temp_dir();
    let file = dir.path().join("x.pb.gz");
    std::fs::write(&file, "old").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    Prof::new(&dir, "record -o x.pb.gz").target("true", "").run().ok();
    read(&file);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(names(&dir), ["x.pb.gz"]);
}

#[test]
fn to_standard_output() {
    let dir = temp_dir();
    let known = Running::start(Command::new(target("known", Build::C)).arg("0"));
    let pid = known.pid().to_string();
    let out = Prof::new(&dir, "record -F 999 -d 1s -o - -p").arg(pid).run().ok();
    assert!(Pprof::decode(&out.stdout).total_share("main") > 95.0);
    assert!(names(&dir).is_empty());
    assert!(out.stderr.contains("samples"), "{}", out.stderr);
}

#[test]
fn to_standard_output_with_a_command() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -o -").target("echo", "one two").run().ok();
    Pprof::decode(&out.stdout);
    out.says(&["one two\n", "the command's standard output goes to standard error"]);
    let out = Prof::new(&dir, "record").target("echo", "one two").run().ok();
    assert_eq!(out.text(), "one two\n");
}

#[test]
fn the_next_step_is_one_that_works() {
    let dir = temp_dir();
    let record = |file: &str, seconds: &str| {
        let prof = Prof::new(&dir, "record -F 999 -o").arg(file);
        prof.target(target("known", Build::C), seconds).run().ok()
    };
    record("my file.gz", "0.2").says(&["next: prof report 'my file.gz'\n"]);
    let out = record("/dev/null", "0.2").says(&["wrote /dev/null"]);
    assert!(!out.stderr.contains("next:"), "{}", out.stderr);
    let out = Prof::new(&dir, "record -F 1").target("true", "").run().ok();
    assert!(!out.stderr.contains("next:"), "{}", out.stderr);
}

#[test]
fn a_command_that_ends_at_once() {
    let dir = temp_dir();
    for _ in 0..10 {
        Prof::new(&dir, "record").target("true", "").run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        assert!(p.figure("samples") <= 5, "{:?}", p.comments);
    }
}

/// Nothing ran: the file is valid, and both prof's ends say what happened.
#[test]
fn an_empty_recording() {
    let dir = temp_dir();
    let sleeper = Running::start(Command::new("sleep").arg("60"));
    let pid = sleeper.pid().to_string();
    let out = Prof::new(&dir, "record -d 300ms -p").arg(&pid).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.samples.len(), 0);
    assert_eq!(p.sample_types.len(), 2);
    assert!(p.duration_nanos >= 290_000_000);
    let words = out.stderr.to_lowercase();
    assert!(["no sample", "asleep", "idle"].iter().any(|w| words.contains(w)), "{}", out.stderr);
    let report = Prof::new(&dir, "report").run().ok();
    let words = (report.text() + &report.stderr).to_lowercase();
    assert!(words.contains("no sample") || words.contains("empty"), "{words}");
    if common::needs(&["go"]) {
        let file = dir.path().join("profile.pb.gz");
        let mut go = Command::new("go");
        go.args(["tool", "pprof", "-raw"]).arg(file);
        common::run::run(go).ok();
    }
}

#[test]
fn quiet_says_nothing() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -q -e cpu-clock").target("true", "").run().ok();
    assert_eq!(out.stderr, "");
}
