//! Block I/O and system calls: counts, durations, and their callers.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::pprof::Sample;
use crate::common::recorders::{ProfRecording, Waiting};
use crate::common::system::{needs_tracefs, stolen_seconds, until_has_run};
use crate::common::waits::label;
use crate::common::{Build, Pprof, Prof, Running, go, needs, read, skip, target, temp_dir};

fn sum(p: &Pprof, kind: &str, keep: impl Fn(&Sample) -> bool) -> i64 {
    let column = p.column(kind);
    p.samples.iter().filter(|s| keep(s)).map(|s| s.values[column]).sum()
}

/// Seconds that the program prints at its end.
fn printed(text: &str) -> Vec<f64> {
    let last = text.lines().last().unwrap_or_default();
    last.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

/// How often a test reads, and how much: each read is one request, and takes long enough for its
/// delay to be most of what the kernel counts.
const READS: i64 = 60;
const BYTES: i64 = 512 << 10;

/// A block device for one test, removed when dropped.
struct Loop {
    device: PathBuf,
}

impl Loop {
    /// `None` if there is no device, or its requests cannot be recorded, which is reported.
    #[track_caller]
    fn new(dir: &Path) -> Option<Loop> {
        if !needs_tracefs() || !needs(&["losetup"]) {
            return None;
        }
        let file = dir.join("disk");
        std::fs::write(&file, vec![7; (READS * BYTES) as usize]).unwrap();
        let out = Command::new("losetup").args(["-f", "--show"]).arg(&file).output().unwrap();
        if !out.status.success() {
            skip(&format!("no loop device: {}", String::from_utf8_lossy(&out.stderr)));
            return None;
        }
        Some(Loop { device: String::from_utf8(out.stdout).unwrap().trim().into() })
    }

    /// Seconds that its reads have taken so far, as the block layer counts them
    /// (`Documentation/block/stat.rst`).
    fn read_seconds(&self) -> f64 {
        let stat = Path::new("/sys/block").join(self.name()).join("stat");
        let text = std::fs::read_to_string(stat).unwrap();
        text.split_whitespace().nth(3).unwrap().parse::<f64>().unwrap() / 1e3
    }

    fn name(&self) -> &str {
        self.device.file_name().unwrap().to_str().unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        Command::new("losetup").arg("-d").arg(&self.device).status().ok();
    }
}

/// The times in which a device's requests are made.
struct Requests {
    count: i64,
    kernel: f64,
    stolen: f64,
}

impl Requests {
    fn of(disk: &Loop, count: i64) -> Requests {
        Requests { count, kernel: disk.read_seconds(), stolen: stolen_seconds() }
    }

    /// Their delay is part of the block layer's own count, which begins when a request is
    /// allocated, before it is issued, and ends when its completion is accounted, after the event:
    /// the events' own handlers, which walk stacks, run in between (10 µs a request were measured,
    /// for requests of any size), and another virtual machine may have the CPU. Both ends of the
    /// kernel's count are rounded to 1 ms. The program waited longer, by the way to the driver and
    /// back.
    #[track_caller]
    fn assert_delay(self, disk: &Loop, delay: f64, program: f64) {
        let kernel = disk.read_seconds() - self.kernel;
        let stolen = stolen_seconds() - self.stolen;
        let times = format!("{delay} s, the kernel: {kernel} s, {stolen} s stolen");
        assert!(delay < program, "{delay} s of {program} s");
        assert!(delay < kernel + 0.001, "{times}");
        let around = self.count as f64 * 40e-6;
        assert!(delay > 0.9 * kernel - 0.001 - around - stolen, "{times}");
    }
}

#[test]
fn block_requests_are_counted_by_their_issuer() {
    let dir = temp_dir();
    let Some(disk) = Loop::new(dir.path()) else { return };
    let program = target("calls", Build::C);
    let args = format!("{} {BYTES} {READS}", disk.device.display());
    let requests = Requests::of(&disk, READS);
    let out = Prof::new(&dir, "record -T io").target(&program, &args).run().ok();
    let file = dir.path().join("profile.pb.gz");
    let p = read(&file);
    let ours = |s: &Sample| p.frames(s).contains(&"fetch") && label(s, "device") == disk.name();
    assert_eq!(sum(&p, "io_requests", ours), READS, "{}", out.stderr);
    assert_eq!(sum(&p, "io_bytes", ours), READS * BYTES);
    assert_eq!(sum(&p, "io_bytes", |s| ours(s) && label(s, "rw") == "read"), READS * BYTES);
    let (delay, whole) = (sum(&p, "io_delay", ours) as f64 / 1e9, printed(&out.text())[0]);
    requests.assert_delay(&disk, delay, whole);
    let text = Prof::new(&dir, "report --sort device,rw --type io_bytes").run().ok().text();
    assert!(text.contains(disk.name()) && text.contains("read"), "{text}");
    if needs(&["go"]) {
        assert_eq!(go::top(&file, "io_bytes", "bytes")["fetch"].1, READS * BYTES);
        assert_eq!(go::top(&file, "io_requests", "count")["fetch"].1, READS);
    }
}

/// Requests of a process that runs already are counted from the attach on.
#[test]
fn block_requests_of_a_running_process_are_counted() {
    let dir = temp_dir();
    let Some(disk) = Loop::new(dir.path()) else { return };
    let program = target("calls", Build::C);
    let (bytes, reads) = (BYTES.to_string(), READS.to_string());
    let args = [disk.device.to_str().unwrap(), &bytes, &reads, "wait"];
    let waiting = Waiting::start(Command::new(program).args(args));
    let args = format!("-T io,syscalls -p {}", waiting.pid());
    let recording = ProfRecording::start(dir.path(), "p.pb.gz", &args);
    let requests = Requests::of(&disk, READS);
    let out = waiting.work();
    let p = recording.finish();
    let ours = |s: &Sample| p.frames(s).contains(&"fetch") && label(s, "device") == disk.name();
    assert_eq!(sum(&p, "io_requests", ours), READS);
    assert_eq!(sum(&p, "io_bytes", |s| ours(s) && label(s, "rw") == "read"), READS * BYTES);
    let (delay, whole) = (sum(&p, "io_delay", ours) as f64 / 1e9, printed(&out.text())[0]);
    requests.assert_delay(&disk, delay, whole);
    let calls = |s: &Sample| p.frames(s).contains(&"fetch") && label(s, "syscall") == "pread64";
    assert_eq!(sum(&p, "syscalls", calls), READS);
}

/// Requests complete on any CPU that receives the device's interrupt; with CPU time, of the whole
/// machine.
#[test]
fn block_requests_of_the_whole_machine_are_attributed_to_processes() {
    let dir = temp_dir();
    let Some(disk) = Loop::new(dir.path()) else { return };
    let recording = Prof::new(&dir, "record -a -T io,cpu -d 1h").start().sampling();
    let args = [disk.device.to_str().unwrap(), "65536", "100"];
    let out = Command::new(target("calls", Build::C)).args(args).output().unwrap();
    assert!(out.status.success());
    // About 20 samples.
    let busy = Running::start(Command::new(target("known", Build::C)).arg("0"));
    until_has_run(busy.pid(), 0.2);
    recording.signal(libc::SIGINT);
    recording.finish().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let ours = |s: &Sample| label(s, "process") == "calls" && label(s, "device") == disk.name();
    assert_eq!(sum(&p, "io_requests", ours), 100);
    assert_eq!(sum(&p, "io_bytes", ours), 100 << 16);
    assert!(sum(&p, "cpu", |_| true) > 0);
    // A request is not a sample of time.
    assert_eq!(sum(&p, "samples", |s| !label(s, "device").is_empty()), 0);
}

#[test]
fn system_calls_are_counted_by_name_and_stack() {
    if !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    std::fs::write(dir.path().join("file"), vec![7; 1 << 20]).unwrap();
    let program = target("calls", Build::C);
    let out = Prof::new(&dir, "record -T syscalls").target(&program, "file 4096 250").run().ok();
    let file = dir.path().join("profile.pb.gz");
    let p = read(&file);
    let of = |function: &'static str, name: &'static str| {
        let p = &p;
        move |s: &Sample| p.frames(s).contains(&function) && label(s, "syscall") == name
    };
    assert_eq!(sum(&p, "syscalls", of("fetch", "pread64")), 250, "{}", out.stderr);
    assert_eq!(sum(&p, "syscalls", of("ask", "getppid")), 250, "{}", out.stderr);
    assert_eq!(sum(&p, "syscalls", of("doze", "clock_nanosleep")), 20, "{}", out.stderr);
    let all = printed(&out.text());
    let seconds = |function, name| sum(&p, "syscall_time", of(function, name)) as f64 / 1e9;
    let (fetched, dozed) = (seconds("fetch", "pread64"), seconds("doze", "clock_nanosleep"));
    // Most of a read is in the kernel, so none is much shorter than the fastest that the program
    // measured.
    let least = 0.5 * 250.0 * all[3];
    assert!((least..all[0]).contains(&fetched), "{fetched} s of {least} to {} s", all[0]);
    // 20 times 5 ms at least, by the kernel's contract.
    assert!((0.1..all[2]).contains(&dozed), "{dozed} s of 0.1 to {} s", all[2]);
    let text = Prof::new(&dir, "report --sort syscall --type syscalls").run().ok().text();
    assert!(text.contains("getppid") && text.contains("250"), "{text}");
    if needs(&["go"]) {
        assert_eq!(go::top(&file, "syscalls", "count")["ask"].1, 250);
    }
}

/// Frequent calls are counted instead of recorded one by one.
#[test]
fn frequent_system_calls_are_sampled_and_extrapolated() {
    if !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    let program = target("contended", Build::C);
    let out = Prof::new(&dir, "record -T syscalls").target(program, "calls 200000").run().ok();
    let out = out.says(&["only some of the", "were sampled", "0 lost"]);
    let p = read(dir.path().join("profile.pb.gz"));
    let calls = |s: &Sample| label(s, "syscall") == "getppid";
    assert_eq!(sum(&p, "syscalls", calls), 200_000, "{}", out.stderr);
    let known = |s: &Sample| calls(s) && p.frames(s).contains(&"main");
    assert_eq!(sum(&p, "syscalls", known), 200_000, "{}", out.stderr);
}
