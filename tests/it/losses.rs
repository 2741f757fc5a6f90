//! Samples that are lost when prof has no time to read, and measures that keep them few.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::common::system::{has_kernel_programs, needs_root};
use crate::common::{Build, Prof, Running, read, skip, target, temp_dir};

/// Processes that use all CPUs, in sessions of their own. They do not outlive the test.
struct Neighbours(Vec<Child>);

impl Neighbours {
    fn start(many: usize) -> Neighbours {
        let start = |_| {
            let mut command = Command::new("setsid");
            command.args(["sh", "-c", "while :; do :; done"]).stdin(Stdio::null());
            // SAFETY: `prctl` may be called between `fork` and `exec`.
            unsafe {
                command.pre_exec(|| {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    Ok(())
                });
            }
            command.spawn().expect("setsid of util-linux")
        };
        Neighbours((0..many).map(start).collect())
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Only root can get priority over all others, and have the kernel drop the samples of others.
fn can_promise() -> bool {
    if needs_root() && !has_kernel_programs() {
        skip("in this kernel, prof cannot drop the samples of other processes");
        return false;
    }
    // SAFETY: geteuid has no conditions.
    unsafe { libc::geteuid() == 0 }
}

/// Attaching to 2,000 threads takes longer than the rings last.
#[test]
fn nothing_is_lost_while_2000_threads_are_attached() {
    if !can_promise() {
        return;
    }
    let dir = temp_dir();
    let threads = target("threads", Build::C);
    let mut command = Command::new(&threads);
    command.args(["2000", "0", "0", "50"]);
    let (running, _) = Running::start(&mut command).wait_for("ready");
    for types in ["cpu", "wall,cpu"] {
        let args = format!("record --no-symbolize -T {types} -F 99 -d 1s -p {}", running.pid());
        Prof::new(&dir, &args).run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        assert_eq!(p.figure("lost"), 0, "{types}: {:?}", p.comments);
        assert!(p.figure("samples") > 0, "{types}: {:?}", p.comments);
    }
}

#[test]
fn other_processes_fill_no_ring() {
    if !can_promise() {
        return;
    }
    let dir = temp_dir();
    let known = target("known", Build::C);
    let _neighbours = Neighbours::start(20);
    for rate in ["99", "999"] {
        let prof = Prof::new(&dir, "record --no-symbolize -e cpu-clock");
        prof.args(&format!("-F {rate}")).target(&known, "0.3").run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        assert_eq!(p.figure("lost"), 0, "{rate} Hz: {:?}", p.comments);
        assert_eq!(p.comment("lost-records"), None, "{rate} Hz: {:?}", p.comments);
        let (sampled, used) = p.pair("covered");
        assert_eq!(sampled, p.total(p.column("cpu")), "{rate} Hz: {:?}", p.comments);
        assert!(used >= 250_000_000, "{rate} Hz: {:?}", p.comments);
    }
}

#[test]
fn nothing_is_lost_in_a_storm_of_forks() {
    if !can_promise() {
        return;
    }
    let dir = temp_dir();
    let prof = Prof::new(&dir, "record -F 99 -e cpu-clock");
    prof.target(target("forker", Build::C), "3000 4 300").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.figure("lost"), 0, "{:?}", p.comments);
    assert_eq!(p.comment("lost-records"), None, "{:?}", p.comments);
    assert!(p.total_share("child_work") > 10.0, "children are sampled: {:?}", p.comments);
}

/// The kernel gives prof a larger ring only when each CPU has left the BPF program that the target
/// runs.
#[test]
fn nothing_is_lost_while_a_ring_is_replaced_next_to_a_bpf_program() {
    if !can_promise() {
        return;
    }
    let dir = temp_dir();
    for _ in 0..6 {
        let prof =
            Prof::new(&dir, "record -F 999 -e cpu-clock").target(target("bpf", Build::C), "200");
        let out = prof.run();
        if out.status.code() == Some(3) {
            return skip("BPF programs cannot be loaded here");
        }
        out.ok();
        let p = read(dir.path().join("profile.pb.gz"));
        assert!(p.figure("samples") > 400, "{:?}", p.comments);
        assert_eq!(p.figure("lost"), 0, "{:?}", p.comments);
    }
}

/// prof stands still for most of the time that the target runs.
#[test]
fn losses_are_reported_as_a_share_of_the_targets_time() {
    let dir = temp_dir();
    let script = format!("{} 3; echo over", target("known", Build::C).display());
    let mut prof = Prof::new(&dir, "record -F 999 -e cpu-clock -g dwarf,65528").target("sh", "");
    prof.command.args(["-c", &format!("echo begins; {script}")]);
    let (running, _) = prof.start().wait_for("begins");
    running.signal(libc::SIGSTOP);
    let (running, _) = running.wait_for("over");
    running.signal(libc::SIGCONT);
    let out = running.finish().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let (lost, samples) = (p.figure("lost"), p.figure("samples"));
    assert!(lost > samples, "{:?}", p.comments);
    let (sampled, used) = p.pair("covered");
    assert_eq!(sampled, p.total(p.column("cpu")), "{:?}", p.comments);
    // If the kernel counts the target's time, that differs a little from the time that was due.
    let due = sampled as f64 * (lost + samples) as f64 / samples as f64;
    assert!((used as f64 / due - 1.0).abs() < 0.25, "{used} of {due}: {:?}", p.comments);
    // By the target's own clock; other load of the machine may take timers away, but adds none.
    assert!((1.0e9..4.5e9).contains(&(used as f64)), "{:?}", p.comments);
    let share = 100.0 * sampled as f64 / used as f64;
    let words = format!("{lost} samples were lost");
    out.says(&[&words, &format!("the others cover {share:.0} % of the"), "lower -F"]);
}

/// The kernel takes no sample for an event with a BPF program while `bpf(2)` changes a map, and
/// does not count that.
#[test]
fn samples_that_the_kernel_skips_are_reported() {
    if !can_promise() {
        return;
    }
    let dir = temp_dir();
    let maps = target("bpf_maps", Build::C);
    let args = "record --no-symbolize -e cpu-clock -F 4999";
    let out = Prof::new(&dir, args).target(&maps, "1").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let (sampled, used) = p.pair("covered");
    assert!(sampled * 100 < used * 90, "{:?}", p.comments);
    let whole = format!("the samples cover {:.0} % of the", 100.0 * sampled as f64 / used as f64);
    out.says(&[&whole, "while BPF programs or calls of bpf(2) run; -g fp takes the latter"]);
    // Without a program at the event.
    let out = Prof::new(&dir, &format!("{args} -g fp")).target(&maps, "1").run().ok();
    assert!(!out.stderr.contains("bpf(2)"), "{}", out.stderr);
}
