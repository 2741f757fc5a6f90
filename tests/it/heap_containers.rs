//! The heap of processes that run already in containers: PID, mount, user and time namespaces of
//! their own, and root directories of their own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::injected::{maps, wait_for_library};
use crate::common::system::needs_root;
use crate::common::targets::built;
use crate::common::{Prof, Running, copy_program, needs, read, run, temp_dir, until};

/// A root directory that has a program, as `/program`, and the libraries that it is linked with.
fn root_with(program: &Path, root: &Path) {
    for dir in ["proc", "old"] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    copy_program(program, root.join("program"));
    let libraries = run::tool("ldd", &[program.as_os_str()]);
    let paths = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    for path in paths {
        let copy = root.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        copy_program(path, copy);
    }
}

/// The one child of a process.
fn child_of(pid: i32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children.ok()?.split_whitespace().next()?.parse().ok()
}

/// A process in a container: `unshare`, its child, and the child's input.
struct Contained {
    unshare: Running,
    pid: i32,
    words: std::process::ChildStdin,
}

impl Contained {
    fn start(how: &str) -> Contained {
        let mut command = Command::new("unshare");
        command.arg("--kill-child").args(how.split(' ')).stdin(Stdio::piped());
        let (mut unshare, _) = Running::start(&mut command).wait_for("ready");
        let (pid, words) = (child_of(unshare.pid()).expect("a child"), unshare.stdin());
        Contained { unshare, pid, words }
    }
}

/// A program with known allocations, and a root directory that has it, as `/program`.
fn program_and_root(dir: &Path) -> (PathBuf, PathBuf) {
    let flags = ["-O2", "-fno-optimize-sibling-calls", "-fno-builtin", "-pthread"];
    let program = built("bursts", "bursts.c", "gcc", &flags);
    let root = dir.join("root");
    root_with(&program, &root);
    (program, root)
}

/// The same stacks, names and sums as outside.
#[test]
fn processes_in_containers_have_the_same_stacks_and_sums() {
    if !needs_root() || !needs(&["unshare", "chroot", "pivot_root", "ldd"]) {
        return;
    }
    let dir = temp_dir();
    let (program, root) = program_and_root(dir.path());
    let (outside, root) = (program.display(), root.display());
    let pivots = dir.path().join("pivots");
    let script = format!(
        "mount --bind {root} {root} && cd {root} && mount -t proc proc proc && pivot_root . old \
         && exec /program asked"
    );
    std::fs::write(&pivots, script).unwrap();
    let ways = [
        format!("-p -f -m --mount-proc {outside} asked"),
        format!("-p -f -m -r --mount-proc {outside} asked"),
        format!("-p -f -m -T --monotonic 86400 --mount-proc {outside} asked"),
        format!("-p -f -m --mount-proc={root}/proc chroot {root} /program asked"),
        format!("-p -f -m sh {}", pivots.display()),
    ];
    for how in ways {
        let mut target = Contained::start(&how);
        let args = format!("record -T heap --heap-interval 1 --inject -d 120s -p {}", target.pid);
        let prof = wait_for_library(Prof::new(&dir, &args).start(), target.pid);
        writeln!(target.words).unwrap();
        target.unshare = target.unshare.wait_for("done").0;
        prof.signal(libc::SIGINT);
        let out = prof.finish().ok().says(&[" 0 lost"]);
        let p = read(dir.path().join("profile.pb.gz"));
        let all = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"];
        let got = all.map(|kind| p.sum_below("first", kind));
        assert_eq!(got, [1500, 150_000, 1500, 150_000], "{how}\n{}", out.stderr);
        let mut of_first = p.samples.iter().filter(|s| p.frames(s).contains(&"first"));
        assert!(of_first.all(|s| {
            let frames = p.frames(s);
            frames[0] == "first" && frames.last() == Some(&"_start")
        }));
        assert!(p.label_values("pid").iter().all(|pid| **pid == target.pid.to_string()));
        // It goes on.
        writeln!(target.words).unwrap();
        target.unshare.wait_for("done");
    }
}

/// The library is a file that the process opens by its own `/proc`.
#[test]
fn a_root_without_proc_is_refused() {
    if !needs_root() || !needs(&["unshare", "chroot", "ldd"]) {
        return;
    }
    let dir = temp_dir();
    let (_, root) = program_and_root(dir.path());
    let target = Contained::start(&format!("-p -f chroot {} /program asked", root.display()));
    let args = format!("record -T heap --inject -d 1s -p {}", target.pid);
    let out = Prof::new(&dir, &args).run();
    out.refused(1, &["continues unchanged", "no /proc"]);
    assert!(!maps(target.pid).contains("prof-heap"));
    until(|| child_of(target.unshare.pid()) == Some(target.pid));
}
