//! Files and probes that a killed recording leaves behind, and their removal by the next one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common;
use crate::common::system::{child, needs_root};
use crate::common::{Build, Prof, Running, target, temp_dir, until};

fn directories(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.join("libprof_heap.so").exists()).collect()
}

fn killed(prof: Running) {
    prof.signal(libc::SIGKILL);
    prof.finish();
}

/// Makes a file as old as one that was left behind some time ago.
fn grow_old(file: &Path) {
    let an_hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    std::fs::File::open(file).unwrap().set_modified(an_hour_ago).unwrap();
}

/// The directory of the library for a COMMAND stays as long as the prof that has made it lives, or
/// a program has the library; the next recording of any kind removes it then.
#[test]
fn the_library_of_a_killed_recording_is_removed_once_unused() {
    let (dir, tmp) = (temp_dir(), temp_dir());
    let record = |words: &str| Prof::new(&dir, words).env("TMPDIR", tmp.path());
    let heap = || record("record -q -T heap -o heap.pb.gz -- sleep 1000").start();
    let any = || {
        record("record -q -o any.pb.gz -- true").run().ok();
    };
    let (mut first, second) = (heap(), heap());
    let all = || directories(tmp.path());
    until(|| all().len() == 2);
    let has = |directory: &Path| {
        let mapped = |pid: &std::ffi::OsStr| {
            let maps = std::fs::read_to_string(Path::new("/proc").join(pid).join("maps"));
            maps.is_ok_and(|maps| maps.contains(directory.to_str().unwrap()))
        };
        std::fs::read_dir("/proc").unwrap().any(|entry| mapped(&entry.unwrap().file_name()))
    };
    until(|| all().iter().all(|directory| has(directory)));
    all().iter().for_each(|directory| grow_old(&directory.join("libprof_heap.so")));
    // Both live.
    any();
    assert_eq!(all().len(), 2);
    // Programs that start from now on would report an error if the library were gone.
    let commands: Vec<i32> = [&first, &second].iter().map(|prof| child(prof.pid())).collect();
    first.signal(libc::SIGKILL);
    until(|| !first.is_running());
    any();
    assert_eq!(all().len(), 2);
    // SAFETY: kill takes numbers; these are children of profs, which no other process has.
    unsafe { libc::kill(commands[0], libc::SIGKILL) };
    // It had prof's output.
    first.finish();
    until(|| !all().iter().all(|directory| has(directory)));
    any();
    assert_eq!(all().len(), 1);
    // SAFETY: as above.
    unsafe { libc::kill(commands[1], libc::SIGKILL) };
    second.finish();
    assert_eq!(all().len(), 0);
}

/// A probe that a prof has defined stays defined if it is killed, until the next recording of any
/// kind.
#[test]
fn probe_definitions_of_a_killed_recording_are_removed() {
    let list = Path::new("/sys/kernel/tracing/uprobe_events");
    if !needs_root() {
        return;
    }
    let Ok(_) = std::fs::read_to_string(list) else {
        return common::skip("the kernel has no probes");
    };
    let dir = temp_dir();
    let program = target("probes", Build::C);
    let mut busy = Command::new("sleep");
    let sleeps = Running::start(busy.arg("1000"));
    let words =
        format!("record -q -e probe:{}:main -d 100s -p {}", program.display(), sleeps.pid());
    let prof = Prof::new(&dir, &words).start();
    let own = format!("prof_{}_", prof.pid());
    let defined = || std::fs::read_to_string(list).unwrap().contains(&own);
    until(defined);
    let any = || {
        Prof::new(&dir, "record -q -o any.pb.gz -- true").run().ok();
    };
    any();
    assert!(defined(), "it lives");
    killed(prof);
    // The kernel releases it when the last of its events has ended.
    until(|| {
        any();
        !defined()
    });
}
