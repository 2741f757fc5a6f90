//! prof's memory while it records the whole machine: its size beyond the ring buffers, and whether
//! it grows.
//!
//! cargo bench --bench memory [-- --seconds 600 --hz 999]

mod support;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::units::size;
use support::{Busy, Figures, claim, median, option};

/// Resident bytes of a process, and those of them that are ring buffers.
fn resident(pid: i32) -> Option<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    let total = kib(status.lines().find(|l| l.starts_with("VmRSS:"))?)?;
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).ok()?;
    let mut inside = false;
    let mut rings = 0;
    for line in smaps.lines() {
        if line.contains("perf_event") {
            inside = true;
        } else if inside && line.starts_with("Rss:") {
            rings += kib(line)?;
            inside = false;
        }
    }
    Some((total * 1024, rings * 1024))
}

/// The recorded load: a C++ program, short-lived processes, threads that come and go.
fn load() -> (Busy, Vec<support::Started>) {
    let mut busy = Busy::start(0);
    busy.go();
    let script = "while :; do ls -l /usr/bin >/dev/null; sleep 0.2; done";
    let shell = support::start(Command::new("sh").args(["-c", script]));
    let threads = support::target("threads.c", "gcc", &["-O2", "-pthread"]);
    let mut threads = Command::new(threads);
    let threads = support::start(threads.args(["50", "2000", "0"]).stdout(Stdio::null()));
    (busy, vec![shell, threads])
}

fn main() {
    let seconds: u64 = option("seconds", 600);
    let hz: u32 = option("hz", 999);
    let dir = support::temp_dir();
    let (busy, others) = load();
    let mut command = support::prof();
    command.args(["record", "-v", "-a", "-F", &hz.to_string(), "-d", &format!("{seconds}s")]);
    command.current_dir(&dir).stdin(Stdio::null()).stderr(Stdio::piped());
    println!("prof record -a -F {hz} for {seconds} s");
    let since = Instant::now();
    let prof = support::start(&mut command);
    let mut sizes = Vec::new();
    let mut rings = 0;
    // Symbolization follows the window and is not measured here: the last poll is before the end of
    // the window also when the second of sleep takes longer.
    while since.elapsed() + Duration::from_millis(1500) < Duration::from_secs(seconds) {
        std::thread::sleep(Duration::from_secs(1));
        let Some((total, ring)) = resident(prof.pid()) else { break };
        rings = rings.max(ring);
        sizes.push((total - ring) as f64 / f64::from(1 << 20));
        if sizes.len() % 60 == 0 {
            println!("{:>5} s {:>8.1} MiB", sizes.len(), sizes[sizes.len() - 1]);
        }
    }
    let (usage, stderr) = prof.finish();
    for started in others {
        started.signal(libc::SIGKILL);
        started.finish();
    }
    drop(busy);
    print!("{stderr}");
    let mut figures = Figures::new(&["Measurement", "prof"]);
    let lost = support::lost(&stderr).map_or("?".to_owned(), support::units::count);
    figures.conditions(&format!("`prof record -a -F {hz}` for {seconds} s; {lost} samples lost."));
    report(&mut figures, &sizes, rings, usage);
    figures.publish();
}

fn report(figures: &mut Figures, sizes: &[f64], rings: u64, usage: support::Usage) {
    let mib = f64::from(1 << 20);
    let peak = sizes.iter().copied().fold(0.0, f64::max);
    let quarter = sizes.len() / 4;
    let second = median(sizes[quarter..2 * quarter].to_vec());
    let last = median(sizes[sizes.len() - quarter..].to_vec());
    println!("ring buffers (resident): {:.1} MiB", rings as f64 / mib);
    println!("beyond them: peak {peak:.1} MiB; second quarter {second:.1}, last {last:.1} MiB");
    println!("at the end, with symbolization: peak {:.1} MiB", usage.peak as f64 / mib);
    for (name, bytes) in [
        ("beyond the ring buffers, peak", peak * mib),
        ("beyond the ring buffers, median of the second quarter", second * mib),
        ("beyond the ring buffers, median of the last quarter", last * mib),
        ("peak of all, with symbolization at the end", usage.peak as f64),
    ] {
        figures.row(name, [size(bytes)]);
    }
    claim(usage.ok, "the recording is good");
    claim(peak <= 64.0, "at most 64 MiB beyond the ring buffers");
    claim(last <= second * 1.1 + 1.0, "flat: the last quarter is within 10 % of the second");
}
