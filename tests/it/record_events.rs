//! Triggers of samples: rates, periods, events, several events at once.

use std::ops::Range;

use crate::common;
use crate::common::system::stolen_seconds;
use crate::common::{Build, Pprof, Prof, assert_share, read, system, target, temp_dir};

/// A recording of a program that is busy.
struct Recorded {
    p: Pprof,
    stderr: String,
    /// CPU time that it used, in seconds, as it printed.
    used: f64,
    /// Seconds that other virtual machines had.
    stolen: f64,
}

impl Recorded {
    /// Seconds of CPU time that the samples may have. Before the program begins, and behind its
    /// last clock, there is a bit more; the event's clock goes on where the thread's own stands
    /// still, and its timer is late then.
    fn seconds(&self) -> Range<f64> {
        0.93 * self.used - self.stolen..1.08 * self.used + self.stolen
    }

    /// Fails unless there are that many samples in a second of CPU time.
    #[track_caller]
    fn assert_rate(&self, hertz: f64) {
        let (n, seconds) = (self.p.figure("samples") as f64, self.seconds());
        // One more or less at the beginning and the end.
        let expected = seconds.start * hertz - 2.0..seconds.end * hertz + 2.0;
        assert!(expected.contains(&n), "{n} of {expected:?}: {:?}", self.p.comments);
    }

    /// Fails unless the samples have the CPU time that was used.
    #[track_caller]
    fn assert_cpu(&self) {
        let seconds = self.p.total(self.p.column("cpu")) as f64 * 1e-9;
        assert!(self.seconds().contains(&seconds), "{seconds} s of {:?}", self.seconds());
    }
}

fn record(options: &str, seconds: &str) -> Recorded {
    let dir = temp_dir();
    let stolen = stolen_seconds();
    let prof = Prof::new(&dir, "record").args(options).target(target("known", Build::C), seconds);
    let out = prof.run().ok();
    let stolen = stolen_seconds() - stolen;
    let p = read(dir.path().join("profile.pb.gz"));
    let used = out.text().lines().last().and_then(|line| line.parse().ok());
    Recorded { p, used: used.expect("CPU time"), stolen, stderr: out.stderr }
}

fn refused(options: &str, code: i32, words: &[&str]) {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record").args(options).target("true", "").run();
    assert_eq!(out.code(), code, "{}", out.stderr);
    for word in words {
        assert!(out.stderr.contains(word), "{word:?} is not in: {}", out.stderr);
    }
    assert!(!out.stderr.contains("panicked") && out.stderr.lines().count() <= 6, "{}", out.stderr);
    assert!(!dir.path().join("profile.pb.gz").exists(), "a file was written");
}

#[test]
fn the_default_is_99_hz_and_the_event_is_named() {
    let recorded = record("", "2");
    assert_eq!(recorded.p.sample_types[1].0, "cpu");
    let notes = recorded.stderr.matches("sampling cpu-clock instead of cycles").count();
    match notes {
        1 => recorded.assert_rate(99.0),
        // The kernel approaches the rate of `cycles` by the periods that it chooses.
        0 => {
            let (n, seconds) = (recorded.p.figure("samples") as f64, recorded.seconds());
            assert!((75.0 * seconds.start..130.0 * seconds.end).contains(&n), "{n} samples");
            let pmus = std::fs::read_dir("/sys/bus/event_source/devices").unwrap();
            let names = pmus.map(|pmu| pmu.unwrap().file_name().into_string().unwrap());
            let counts = |name: &String| name == "cpu" || name.starts_with("armv8");
            assert!(names.into_iter().any(|name| counts(&name)), "{}", recorded.stderr);
        }
        _ => panic!("{}", recorded.stderr),
    }
}

/// With a rare event: a clock at 100 kHz can take all the time of a virtual machine.
#[test]
fn a_rate_beyond_the_limit_is_lowered_with_a_note() {
    let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap();
    let dir = temp_dir();
    let run = |rate: &str| {
        let prof = Prof::new(&dir, "record -e page-faults -F").arg(rate);
        prof.target(target("exits", Build::C), "0 100").run().ok()
    };
    let out = run("max");
    assert!(!out.stderr.contains("limit"), "{}", out.stderr);
    run("9000000").says(&["9000000", "limit", limit.trim()]);
}

#[test]
fn a_period_of_a_clock_is_kept() {
    // Every 2 ms of CPU time.
    let recorded = record("-e cpu-clock -c 2000000", "2");
    recorded.assert_rate(500.0);
    assert_eq!(recorded.p.period, 2_000_000);
    recorded.assert_cpu();
}

#[test]
fn period_1_records_every_page_fault() {
    if !common::needs(&["python3"]) {
        return;
    }
    let dir = temp_dir();
    let script = "x = bytearray(64 << 20)";
    let prof = Prof::new(&dir, "record -e page-faults -c 1").target("python3", "-c").arg(script);
    prof.run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.sample_types[1], ("page-faults".into(), "count".into()));
    // 64 MiB are 16,384 pages, or 32 huge ones.
    let faults = p.total(p.column("page-faults"));
    assert!((32..60_000).contains(&faults), "{faults}");
    assert_eq!(faults, p.total(p.column("samples")));
}

/// If the kernel chooses the period, the periods of the samples add up to many times the true
/// count.
#[test]
fn values_equal_the_counts_of_the_kernel() {
    let dir = temp_dir();
    for rate in ["29", "99", "999"] {
        let prof = Prof::new(&dir, "record -e page-faults -F").arg(rate);
        // Enough for more than five samples at each rate.
        prof.target(target("faults", Build::C), "1800000").run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        let faults = p.total(p.column("page-faults"));
        // The faults of the start are added.
        assert!((1_800_000..1_802_000).contains(&faults), "-F {rate}: {faults}");
        assert!(p.figure("samples") > 5, "{:?}", p.comments);
    }
}

/// A ring buffer that is found in use is replaced while its CPU is sampled: neither the samples nor
/// the mappings of programs that start in the meantime are lost, and no sample is counted twice.
#[test]
fn nothing_is_lost_while_rings_are_replaced() {
    let dir = temp_dir();
    let known = target("known", Build::C);
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8; do {0} 0.2 & {0} 0.2; wait; done; times",
        known.display()
    );
    let mut prof = Prof::new(&dir, "record -F 999 -e cpu-clock -g dwarf,65528").target("sh", "");
    prof.command.args(["-c", &script]);
    // CPU time of the shell, and then of its children: `0m3.210000s 0m0.020000s`.
    let stolen = stolen_seconds();
    let times = prof.run().ok().text();
    let stolen = stolen_seconds() - stolen;
    let seconds = |time: &str| {
        let (minutes, seconds) = time.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let children = times.lines().last().unwrap_or_else(|| panic!("{times}"));
    let used: f64 = children.split(' ').filter_map(seconds).sum();
    let p = read(dir.path().join("profile.pb.gz"));
    let cpu = p.column("cpu");
    let in_main = p.samples.iter().filter(|s| p.frames(s).contains(&"main"));
    let named: i64 = in_main.map(|s| s.values[cpu]).sum();
    let seconds = named as f64 * 1e-9;
    // The start of a program is outside of main.
    let expected = 0.92 * used - stolen..1.03 * used + stolen;
    assert!(expected.contains(&seconds), "{seconds} s of {used} s, {stolen} s stolen");
    assert!(used > 3.0, "{used} s of 16 times 0.2 s");
    assert_eq!(p.figure("lost"), 0, "{:?}", p.comments);
}

#[test]
fn context_switches_of_a_sleeper_are_counted() {
    let dir = temp_dir();
    let mut prof = Prof::new(&dir, "record -e context-switches -c 1").target("sh", "");
    prof.command.args(["-c", "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.01; done"]);
    prof.run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.total(p.column("context-switches")) >= 20, "{:?}", p.comments);
}

/// A thread that may run on only one CPU migrates only by its own calls.
#[test]
fn migrations_are_counted_by_their_stack() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return system::skip_hardware("there is only one CPU");
    }
    let dir = temp_dir();
    for options in ["-c 1", "-F 99"] {
        let prof = Prof::new(&dir, "record -e migrations").args(options);
        let out = prof.target(target("migrates", Build::C), "400").run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        let column = p.column("migrations");
        let of = |function: &str| {
            let in_it = p.samples.iter().filter(|s| p.frames(s).contains(&function));
            in_it.map(|s| s.values[column]).sum::<i64>()
        };
        let all = p.total(column);
        // The kernel may also have migrated it before its own migrations begin.
        assert!((400..410).contains(&all), "{options}: {all}: {}", out.stderr);
        if options == "-c 1" {
            assert_eq!((of("there"), of("back")), (200, 200), "{}", out.stderr);
        }
    }
}

#[test]
fn several_events_have_columns_of_their_own() {
    let recorded = record("-F 999 -e cpu-clock,page-faults -e context-switches", "2");
    recorded.assert_cpu();
    let p = recorded.p;
    let kinds: Vec<&str> = p.sample_types.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["samples", "cpu", "page-faults", "context-switches"]);
    let cpu = p.column("cpu");
    let in_bar: i64 = p
        .samples
        .iter()
        .filter(|s| p.frames(s).first().is_some_and(|f| *f == "bar"))
        .map(|s| s.values[cpu])
        .sum();
    assert_share("bar self", 100.0 * in_bar as f64 / p.total(cpu) as f64, 500.0 / 9.0, 2.5);
}

#[test]
fn the_modifier_u_leaves_out_kernel_frames() {
    let recorded = record("-F 999 -e cpu-clock:u", "1");
    // Some are in the kernel, and not taken.
    let least = 0.8 * 999.0 * recorded.seconds().start;
    assert!(recorded.p.figure("samples") as f64 > least, "{:?}", recorded.p.comments);
    let p = recorded.p;
    let kernel = p.share(|s| {
        s.locations.iter().any(|l| {
            p.mapping_of.get(l).is_some_and(|&m| p.mappings[m].file.starts_with("[kernel"))
        })
    });
    assert_eq!(kernel, 0.0);
}

#[test]
fn a_tracepoint_is_recorded_with_its_stack() {
    if !system::needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    let mut prof = Prof::new(&dir, "record -e sched:sched_switch -c 1").target("sh", "");
    prof.command.args(["-c", "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.01; done"]);
    prof.run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.sample_types[1].0, "sched:sched_switch");
    assert!(p.figure("samples") >= 20, "{:?}", p.comments);
    let switches = p.share(|s| p.frames(s).iter().any(|f| f.contains("schedule")));
    assert!(switches > 80.0, "{switches} % of the stacks go through schedule()");
}

#[test]
fn an_unknown_tracepoint_is_refused() {
    if !system::needs_tracefs() {
        return;
    }
    refused("-e sched:no_such_point", 2, &["sched:no_such_point"]);
}

/// Generic events, events of the kernel and of caches, raw events: each is recorded under its name,
/// or refused in one line.
#[test]
fn hardware_events_are_recorded_or_refused_with_an_alternative() {
    let dir = temp_dir();
    let generic = [
        "cycles",
        "instructions",
        "l1-misses",
        "l2-misses",
        "llc-misses",
        "branch-misses",
        "dtlb-misses",
        "itlb-misses",
        "stalled-cycles",
    ];
    let others = ["cache-misses:u", "ref-cycles:p", "LLC-store-misses", "node-loads", "r01c2"];
    for event in generic.into_iter().chain(others) {
        let out = Prof::new(&dir, "record -o x.pb.gz -e")
            .arg(event)
            .target(target("exits", Build::C), "0 200")
            .run();
        if out.status.success() {
            let p = read(dir.path().join("x.pb.gz"));
            assert_eq!(p.sample_types[1].0, event);
        } else {
            out.refused(1, &[event, "does not exist on this machine", "cpu-clock"]);
            assert_eq!(out.stderr.lines().count(), 1, "{}", out.stderr);
        }
    }
}

/// Events that cannot be precise are sampled with the precision available; this is reported, also
/// in the file.
#[test]
fn missing_precision_is_reported_and_the_recording_goes_on() {
    let dir = temp_dir();
    let record = |args: &str| {
        let prof = Prof::new(&dir, "record -F 999").args(args);
        prof.target(target("known", Build::C), "0.3").run()
    };
    let lines = |text: &str| text.lines().filter(|l| l.contains("precis")).count();
    let out = record("--precise").ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.total_share("bar") > 40.0, "{}", out.stderr);
    let clock = "sampling cpu-clock instead of cycles, which has no precision";
    let without_counters = out.stderr.contains("no hardware counters");
    if without_counters {
        assert!(out.stderr.contains(clock), "{}", out.stderr);
        assert!(p.comments.iter().any(|c| c.contains(clock)), "{:?}", p.comments);
        // An event that is requested by its name is refused as without the option.
        for args in ["--precise -e cycles", "-e cycles:P"] {
            let out = record(args);
            out.refused(1, &["event 'cycles", "does not exist on this machine", "cpu-clock"]);
            assert_eq!(out.stderr.lines().count(), 1, "{}", out.stderr);
        }
    } else {
        record("-e cycles:P").ok();
    }
    assert!(lines(&out.stderr) <= 1, "{}", out.stderr);
    let out = record("-e cpu-clock:P").ok().says(&["cpu-clock:P is no hardware event"]);
    assert_eq!(lines(&out.stderr), 1, "{}", out.stderr);
    refused("--precise -e page-faults", 2, &["--precise applies to hardware events"]);
    refused("--precise -T wall,cpu", 2, &["--precise applies to hardware events"]);
}

#[test]
fn events_of_a_pmu_are_read_from_sysfs() {
    refused("-e nosuchpmu/cycles/", 2, &["nosuchpmu", "no PMU"]);
    if std::path::Path::new("/sys/bus/event_source/devices/msr/events/tsc").exists() {
        refused("-e msr/nosuch/", 2, &["msr", "'nosuch'"]);
        refused("-e msr/event=x/", 2, &["needs a number in place of 'x'"]);
        // The counter of cycles raises no interrupts.
        refused("-e msr/tsc/", 1, &["msr/tsc/", "without interrupts"]);
    } else {
        system::skip_hardware("the CPU has no counter of cycles without interrupts");
    }
}

#[test]
fn unknown_events_are_refused_with_a_suggestion() {
    refused("-e no-such-event", 2, &["no-such-event"]);
    refused("-e cycels", 2, &["cycels", "cycles"]);
    refused("-e l1-miss", 2, &["l1-miss", "'l1-misses'"]);
    refused("-e cpu-clock:z", 2, &["cpu-clock:z"]);
    refused("-e cpu-clock:uS", 2, &["cpu-clock:uS", "'S' of perf is not supported"]);
}

#[test]
fn invalid_rates_and_windows_are_refused() {
    refused("-F 0", 2, &["--freq", "at least 1"]);
    refused("-F -5", 2, &["-5"]);
    refused("-F often", 2, &["often"]);
    refused("-c 0", 2, &["0"]);
    refused("-F 99 -c 1000", 2, &["cannot be used with"]);
    for window in ["soon", "10x", "-1s", "0", "1e30h", "s"] {
        let dir = temp_dir();
        let out = Prof::new(&dir, "record -p 1").arg(format!("-d={window}")).run();
        assert_eq!(out.code(), 2, "-d {window}: {}", out.stderr);
        assert!(out.stderr.contains(window), "-d {window}: {}", out.stderr);
    }
    refused("-g lbr", 2, &["lbr"]);
    refused("-g dwarf,0", 2, &["0"]);
    refused("-g dwarf,999999", 2, &["999999", "65528"]);
}

#[test]
fn a_window_has_a_unit_or_is_in_seconds() {
    for window in ["50ms", "0.05s", "0.05"] {
        let Recorded { p, used, .. } = record(&format!("-F 999 -e cpu-clock -d {window}"), "0.5");
        assert!(p.duration_nanos >= 50_000_000, "-d {window}: {}", p.duration_nanos);
        // The program goes on behind its end.
        let seconds = p.total(p.column("cpu")) as f64 * 1e-9;
        assert!(seconds < 0.5 * used, "-d {window}: {seconds} s of {used} s");
    }
}
