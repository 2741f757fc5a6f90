//! Groups of events: counted together, attributed to the stack of the one that is sampled.

use std::path::Path;

use crate::common::system::{needs_root, skip_hardware, stolen_seconds};
use crate::common::{Build, Pprof, Prof, go, needs, read, target, temp_dir};

const PAGES: i64 = 100_000;

/// A kernel that counts each thread of a group by itself (Linux 6.13).
fn inherits() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|n| n.trim().parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(13))
}

fn record(dir: &Path, options: &str) -> Pprof {
    let prof = Prof::new(dir, "record").args(options);
    prof.target(target("groups", Build::C), &PAGES.to_string()).run().ok();
    read(dir.join("profile.pb.gz"))
}

/// The sum of a sample type in stacks through a function.
fn through(p: &Pprof, kind: &str, function: &str) -> f64 {
    let column = p.column(kind);
    let in_it = p.samples.iter().filter(|s| p.frames(s).contains(&function));
    in_it.map(|s| s.values[column]).sum::<i64>() as f64
}

#[test]
fn counts_belong_to_the_stack_that_is_sampled() {
    let dir = temp_dir();
    let stolen = stolen_seconds();
    let p = record(dir.path(), "-F 999 -e {cpu-clock,page-faults}");
    let stolen = stolen_seconds() - stolen;
    let kinds: Vec<&str> = p.sample_types.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["samples", "cpu", "page-faults"]);
    if !inherits() {
        return skip_hardware("the kernel counts no thread of a group by itself (Linux 6.13)");
    }
    let faults = p.total(p.column("page-faults"));
    // Those of the program's start are added.
    assert!((3 * PAGES..3 * PAGES + 3000).contains(&faults), "{faults}");
    let (touches, spins) =
        (through(&p, "page-faults", "touches"), through(&p, "page-faults", "spins"));
    // The first sample of the second function has the last faults of the first: many, if another
    // virtual machine had the CPU in between.
    let in_touches = through(&p, "cpu", "touches") / 1e9;
    let moved = stolen / in_touches;
    assert!(touches > (0.93 - moved) * faults as f64, "{touches} of {faults}");
    assert!(spins < (0.05 + moved) * faults as f64, "{spins} of {faults}");
    let cpu = through(&p, "cpu", "spins") / 1e9;
    // The event's clock goes on where the thread's own stands still.
    assert!((0.85..1.2 + stolen).contains(&cpu), "{cpu} s of three times 0.3 s, {stolen} s stolen");
}

/// A counter of the CPU that needs no interrupts: it runs with time, under any load.
#[test]
fn a_counter_that_cannot_be_sampled_is_counted_with_one_that_can() {
    let tsc = "/sys/bus/event_source/devices/msr/events/tsc";
    if !Path::new(tsc).exists() {
        return skip_hardware("the CPU has no counter of cycles without interrupts");
    }
    if !needs_root() {
        return;
    }
    let dir = temp_dir();
    let p = record(dir.path(), "-F 999 -e {cpu-clock,msr/tsc/}");
    let of = |function: &str| through(&p, "msr/tsc/", function) / through(&p, "cpu", function);
    let (touches, spins) = (of("touches"), of("spins"));
    assert!((0.3..6.0).contains(&spins), "{spins} GHz");
    assert!((0.9..1.1).contains(&(touches / spins)), "{touches} and {spins} GHz");
}

/// The column of the report is the quotient of the values that the file has.
#[test]
fn ratios_are_a_column_of_the_report() {
    let dir = temp_dir();
    let p = record(dir.path(), "-F 999 -e {cpu-clock,page-faults}");
    let report = |args: &str| Prof::new(&dir, "report --ratio page-faults/cpu").args(args).run();
    let text = report("-n 0").ok().text();
    assert!(text.contains("page-faults/cpu"), "{text}");
    for group in ["function", "binary", "process"] {
        let json = report(&format!("--json --sort {group}")).ok().text();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["ratio"], "page-faults/cpu");
        let rows = json["rows"].as_array().unwrap();
        if group == "process" {
            let (faults, cpu) = (p.total(p.column("page-faults")), p.total(p.column("cpu")));
            let all: f64 = rows.iter().map(|r| r["total_ratio"].as_f64().unwrap_or(0.0)).sum();
            let want = faults as f64 / cpu as f64;
            assert!(rows.len() > 1 || (all - want).abs() < 1e-9 * want, "{all}, {want}: {json}");
        }
        if group == "function" {
            let spins = rows.iter().find(|r| r["function"] == "spins").unwrap();
            let want = through(&p, "page-faults", "spins") / through(&p, "cpu", "spins");
            let got = spins["total_ratio"].as_f64().unwrap();
            assert!((got - want).abs() <= 1e-9 + 1e-6 * want, "{got}, {want}: {spins}");
        }
    }
    let out = report("--ratio nosuch/cpu");
    assert_eq!(out.code(), 2, "{}", out.stderr);
    let out = Prof::new(&dir, "report --ratio nosuch/cpu").run();
    out.refused(2, &["'nosuch/cpu'", "samples, cpu, page-faults"]);
}

#[test]
fn go_tool_pprof_shows_the_same_counts() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let p = record(dir.path(), "-F 999 -e {cpu-clock,page-faults}");
    let top = go::top(&dir.path().join("profile.pb.gz"), "page-faults", "count");
    assert_eq!(top["touches"].1 as f64, through(&p, "page-faults", "touches"));
}

#[test]
fn an_invalid_group_is_refused_in_one_line() {
    let dir = temp_dir();
    let refused = |event: &str, code: i32, words: &[&str]| {
        let out = Prof::new(&dir, "record -e").arg(event).target("true", "").run();
        out.refused(code, words);
        assert_eq!(out.stderr.lines().count(), 1, "{}", out.stderr);
    };
    refused("{cpu-clock,page-faults", 2, &["closing brace is missing"]);
    refused("{cpu-clock,nosuch}", 2, &["'nosuch'"]);
    refused("{cpu-clock,{cs}}", 2, &["cannot be in a group"]);
    let out = Prof::new(&dir, "record -e {cycles,instructions}:u").target("true", "").run();
    if !out.status.success() {
        out.refused(1, &["'cycles:u' does not exist on this machine"]);
    }
}
