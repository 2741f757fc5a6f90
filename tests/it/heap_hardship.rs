//! The heap of programs that allocate faster than prof can follow, that are in namespaces of their
//! own, and that attack the memory that they share with prof.

use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::statistics::assert_estimate;
use crate::common::system::needs_root;
use crate::common::targets::built;
use crate::common::{Build, Output, Pprof, Prof, needs, read, target, temp_dir};
use heap::layout;

const MIB: i64 = 1 << 20;

fn bursts() -> PathBuf {
    let flags = ["-O2", "-fno-optimize-sibling-calls", "-fno-builtin", "-pthread"];
    built("bursts", "bursts.c", "gcc", &flags)
}

/// Records `bursts MODE`.
#[track_caller]
fn record(dir: &Path, interval: &str, mode: &str) -> (Output, Pprof) {
    let args = format!("record -T heap --heap-interval {interval}");
    let out = Prof::new(dir, &args).target(bursts(), mode).run().ok();
    (out, read(dir.join("profile.pb.gz")))
}

/// The longest interval of a recording, which prof reports if it was behind: the bounds of estimates
/// follow from it.
fn longest_interval(out: &Output, requested: f64) -> f64 {
    let longest = out.stderr.split_once("a longer interval (up to ").map(|(_, rest)| {
        let (bytes, _) = rest.split_once(' ').expect("a number");
        bytes.parse::<f64>().expect("bytes")
    });
    longest.unwrap_or(requested)
}

/// Allocations before prof's first read are recorded, and so are those after it.
#[test]
fn a_burst_at_the_start_is_recorded_completely() {
    let dir = temp_dir();
    let (out, p) = record(dir.path(), "1", "early");
    assert_eq!(p.sum_below("first", "alloc_space"), 150_000, "{}", out.stderr);
    assert_eq!(p.sum_below("later", "alloc_space"), 40_000_000, "{}", out.stderr);
    assert_eq!(p.sum_below("later", "inuse_objects"), 20_000);
    assert!(out.stderr.contains(" 0 lost"), "{}", out.stderr);
}

/// Some threads allocate as fast as they can and another seldom does: each has its share.
#[test]
fn slow_threads_keep_their_share_during_bursts() {
    let dir = temp_dir();
    for (interval, bytes) in [("64", 64.0), ("2K", 2048.0)] {
        let (out, p) = record(dir.path(), &format!("{interval} -v"), "threads");
        let longest = longest_interval(&out, bytes);
        for (function, count, size) in [("bursts", 8_000_000, 64), ("trickles", 1000, 64_000)] {
            let sizes = std::iter::repeat_n(size, count);
            assert_estimate(p.sum_below(function, "alloc_space"), sizes, longest);
        }
        // All of it was freed, and the end of each sample was recorded.
        for function in ["bursts", "trickles"] {
            assert_eq!(p.sum_below(function, "inuse_objects"), 0, "{function}\n{}", out.stderr);
        }
        assert!(out.stderr.contains(" 0 lost"), "{}", out.stderr);
    }
}

/// More is kept than prof tracks by name: it is sampled less, but counted in full. On a busy machine
/// the interval is longer, and the estimate less exact.
#[test]
fn blocks_beyond_the_table_are_counted_in_full() {
    let dir = temp_dir();
    let (out, p) = record(dir.path(), "1 -v", "keeps");
    let longest = longest_interval(&out, 1.0);
    let sizes = || std::iter::repeat_n(64, 1_000_000);
    assert_estimate(p.sum_below("keeps", "alloc_space"), sizes(), longest);
    assert_estimate(p.sum_below("keeps", "inuse_space"), sizes(), longest);
    assert_estimate(64 * p.sum_below("keeps", "inuse_objects"), sizes(), longest);
    out.says(&["not every allocation was recorded", "each is scaled by its own"]);
}

/// The interval is the default one, or a longer one while prof is behind, which it reports: the
/// bound follows from the longest one.
#[test]
fn a_loop_of_large_allocations_is_estimated_right() {
    let dir = temp_dir();
    let (out, p) = record(dir.path(), "512K -v", "large");
    let longest = longest_interval(&out, 524_288.0);
    assert_estimate(p.sum_below("large", "alloc_space"), (0..100_000).map(|_| 1 << 20), longest);
}

/// Processes have other numbers there, another `/proc`, or have no view of prof's at all.
#[test]
fn a_command_in_its_own_namespaces_is_recorded() {
    if !needs_root() || !needs(&["unshare"]) {
        return;
    }
    let dir = temp_dir();
    let clock = "-T -f --monotonic 86400";
    for how in ["-p -f", "-p -f --mount-proc", "-U -r -p -f --mount-proc", "-m", clock] {
        let args = format!("record -T heap --heap-interval 1K -- unshare {how}");
        let prof = Prof::new(&dir, &args).arg(target("heap", Build::C)).arg("fork");
        let out = prof.run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        for (function, count) in [("in_parent", 16), ("in_child", 8), ("after_exec", 4)] {
            let all = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"];
            let got = all.map(|kind| p.sum_below(function, kind));
            let want = [count, count * MIB, count, count * MIB];
            assert_eq!(got, want, "{how}: {function}\n{}", out.stderr);
        }
        let whole = p.samples.iter().filter(|s| p.frames(s).contains(&"in_child"));
        assert!(whole.clone().count() > 0);
        assert!(whole.into_iter().all(|s| p.frames(s).last() == Some(&"_start")), "{how}");
    }
    let args = "record -T heap --leaks --heap-interval 1 -- unshare -p -f --mount-proc";
    let flags = ["-O2", "-fno-optimize-sibling-calls", "-pthread", "-DSIZE=4096"];
    let leaks = built("leaks_4096", "leaks.c", "gcc", &flags);
    Prof::new(&dir, args).arg(leaks).arg("all").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.sum_below("lost_alone", "leaked_objects"), 10);
    assert_eq!(p.sum_below("kept_by_global", "leaked_objects"), 0);
}

/// Programs without the library are counted.
#[test]
fn programs_without_the_library_are_counted() {
    let dir = temp_dir();
    let heap = target("heap", Build::C);
    let script = "\"$0\" steps; env -i \"$0\" steps; env -i \"$0\" steps";
    let prof = Prof::new(&dir, "record -T heap --heap-interval 1K -- sh -c").arg(script).arg(&heap);
    let out = prof.run().ok().says(&["2 of 6 programs that the command started"]);
    assert!(!out.stderr.contains("too little"), "{}", out.stderr);
    let all = "env -i \"$0\" steps";
    let prof = Prof::new(&dir, "record -T heap --heap-interval 1G -- sh -c").arg(all).arg(&heap);
    prof.run().ok().says(&["no allocation was sampled", "was not loaded into"]);
}

fn hostile() -> PathBuf {
    let macros = [
        ("NEXT", offset_of!(layout::Header, stacks)),
        ("FREES_NEXT", offset_of!(layout::Header, frees)),
        ("WORDS", layout::WORDS_AT),
        ("FREES_AT", layout::FREES_AT),
        ("FREES", layout::FREES),
        ("RING", layout::RING_AT),
        ("GRANULES", layout::GRANULES as usize),
    ];
    let macros = macros.map(|(name, value)| format!("-D{name}={value}ull"));
    let mut flags = vec!["-O1", "-fno-builtin", "-w"];
    flags.extend(macros.iter().map(String::as_str));
    built("hostile_ring", "hostile_ring.c", "gcc", &flags)
}

/// prof ends in time, does not crash, and keeps its earlier records.
#[test]
fn attacks_on_the_shared_memory_keep_what_was_recorded() {
    let dir = temp_dir();
    for mode in ["lost", "frees", "endless", "random"] {
        let began = Instant::now();
        let out = Prof::new(&dir, "record -T heap --heap-interval 1").target(hostile(), mode).run();
        let out = out.ok();
        assert!(began.elapsed() < Duration::from_secs(100), "{mode}: {:?}", began.elapsed());
        let p = read(dir.path().join("profile.pb.gz"));
        assert_eq!(p.sum_below("honest", "alloc_space"), 100 * MIB, "{mode}: {}", out.stderr);
        if mode != "endless" {
            out.says(&["the heap's profile ends early", "damaged"]);
        }
    }
}

/// No process can truncate the memory.
#[test]
fn the_shared_memory_cannot_be_truncated() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -T heap --heap-interval 1").target(hostile(), "cut").run();
    let out = out.ok();
    assert!(out.text().lines().count() >= 1, "{}", out.text());
    assert!(out.text().lines().all(|line| line == "-1"), "{}", out.text());
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.sum_below("honest", "alloc_space"), 100 * MIB);
}

/// A record with a process that has nothing to do with the recording is not counted.
#[test]
fn allocations_of_other_processes_cannot_be_forged() {
    let dir = temp_dir();
    let own = std::process::id().to_string();
    let prof = Prof::new(&dir, "record -T heap --heap-interval 1");
    let out = prof.target(hostile(), &format!("others {own}")).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(!p.label_values("pid").contains(own.as_str()), "{}", out.stderr);
    assert_eq!(p.sum_below("honest", "alloc_space"), 100 * MIB);
    out.says(&["processes that the kernel did not name"]);
}
