//! The heap: allocations of programs, and the memory that is in use at the end.

use std::path::Path;

use crate::common;
use crate::common::statistics::assert_estimate;
use crate::common::system::needs_root;
use crate::common::targets::built;
use crate::common::unprivileged::{can_drop_rights, open_dir, unprivileged};
use crate::common::{Build, Pprof, Prof, go, needs, read, skip, target, temp_dir};

const MIB: i64 = 1 << 20;

/// Records `heap MODE`.
#[track_caller]
fn record(dir: &Path, args: &str, mode: &str) -> Pprof {
    Prof::new(dir, args).target(target("heap", Build::C), mode).run().ok();
    read(dir.join("profile.pb.gz"))
}

#[test]
fn allocations_and_memory_in_use_are_exact() {
    let dir = temp_dir();
    let p = record(dir.path(), "record -T heap --heap-interval 1K", "steps");
    let types = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"];
    let units = ["count", "bytes", "count", "bytes"];
    let expected = types.iter().zip(units).map(|(t, u)| ((*t).to_owned(), u.to_owned()));
    assert_eq!(p.sample_types, expected.collect::<Vec<_>>());
    assert_eq!(p.heap_below("breathes"), [10, 10 * MIB, 0, 0]);
    assert_eq!(p.heap_below("keeps_one"), [1, MIB, 1, MIB]);
    assert_eq!(p.period, 1024);
    // The allocating function is the innermost frame, and the stack goes up to the beginning.
    let sample = p.samples.iter().find(|s| p.frames(s).contains(&"breathes")).unwrap();
    let frames = p.frames(sample);
    assert_eq!((frames[0], *frames.last().unwrap()), ("breathes", "_start"));
    if needs(&["go"]) {
        let file = dir.path().join("profile.pb.gz");
        let top = go::top(&file, "inuse_space", "B");
        assert_eq!(top["keeps_one"], (MIB, MIB));
        let top = go::top(&file, "alloc_objects", "count");
        assert_eq!(top["breathes"], (10, 10));
        let default = go::pprof(&["-top"], &file).text();
        assert!(default.contains("Type: inuse_space"), "{default}");
    }
}

/// Samples represent the allocations that were not sampled, of any size. They are few enough for
/// none to be missing, no matter how long prof has to wait for a CPU.
#[test]
fn estimates_are_right_on_average() {
    let dir = temp_dir();
    let p = record(dir.path(), "record -T heap --heap-interval 16K", "small");
    let bytes = p.sum_below("many_small", "alloc_space");
    assert_estimate(bytes, (0..300_000).map(|_| 48), 16384.0);
    let objects = p.sum_below("many_small", "alloc_objects");
    assert!((objects * 48 - bytes).abs() <= 48, "{objects} objects, {bytes} bytes");
    assert_eq!(p.sum_below("many_small", "inuse_space"), 0);
    let p = record(dir.path(), "record -T heap --heap-interval 32K", "sizes");
    let interval = 32768.0;
    let medium = || (0..2000).map(|_| 5000);
    let grows = || (1..=500).map(|i| i * 1000);
    let aligned = || (0..40).map(|_| 1 << 20);
    assert_estimate(p.sum_below("medium_kept", "alloc_space"), medium(), interval);
    assert_estimate(p.sum_below("medium_kept", "inuse_space"), medium(), interval);
    assert_estimate(p.sum_below("grows", "alloc_space"), grows(), interval);
    assert_estimate(p.sum_below("aligned", "alloc_space"), aligned(), interval);
    // Freed memory is not in use, and moved memory is once.
    assert_eq!(p.sum_below("grows", "inuse_space"), 500_000);
    assert_eq!(p.sum_below("aligned", "inuse_space"), 0);
    assert_eq!(p.heap_below("refused"), [0; 4]);
    // With the default interval, rare samples represent more.
    let p = record(dir.path(), "record -T alloc", "sizes");
    assert_eq!(p.sample_types.len(), 2);
    assert_estimate(p.sum_below("grows", "alloc_space"), grows(), 524_288.0);
    assert_estimate(p.sum_below("aligned", "alloc_space"), aligned(), 524_288.0);
}

#[test]
fn every_allocation_is_counted_at_interval_1() {
    let dir = temp_dir();
    let p = record(dir.path(), "record -T heap --heap-interval 1", "fork");
    assert_eq!(p.heap_below("in_parent"), [16, 16 * MIB, 16, 16 * MIB]);
}

/// A child that frees its parent's memory frees its own copy.
#[test]
fn children_are_counted_apart_and_after_exec() {
    let dir = temp_dir();
    let p = record(dir.path(), "record -T heap --heap-interval 4K", "fork");
    assert_eq!(p.heap_below("in_parent"), [16, 16 * MIB, 16, 16 * MIB]);
    assert_eq!(p.heap_below("in_child"), [8, 8 * MIB, 8, 8 * MIB]);
    assert_eq!(p.heap_below("after_exec"), [4, 4 * MIB, 4, 4 * MIB]);
    let pids = |function: &str| {
        let with = p.samples.iter().filter(|s| p.frames(s).contains(&function));
        with.map(|s| s.labels["pid"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(pids("in_child"), pids("after_exec"));
    assert_ne!(pids("in_child"), pids("in_parent"));
}

#[test]
fn threads_signal_handlers_and_exit_handlers_are_counted() {
    let dir = temp_dir();
    let prof = Prof::new(&dir, "record -T heap --heap-interval 4K");
    let out = prof.target(target("heap", Build::C), "odd").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.heap_below("in_thread"), [32, 32 * MIB, 0, 0]);
    assert_eq!(p.heap_below("ending_thread"), [4, 4 * MIB, 0, 0]);
    assert_eq!(p.heap_below("at_end"), [1, MIB, 0, 0]);
    // One more may come while the program counts them.
    let handled: i64 = out.text().trim().parse().unwrap();
    let [objects, _, in_use, _] = p.heap_below("in_handler");
    assert!((handled..=handled + 1).contains(&objects) && in_use == 0, "{objects} of {handled}");
}

#[track_caller]
fn assert_operators(p: &Pprof) {
    for form in ["by_new", "by_new_array", "by_aligned_new", "by_nothrow_new", "by_vector"] {
        assert_eq!(p.heap_below(form), [8, 8 * MIB, 4, 4 * MIB], "{form}");
        // Not `operator new`.
        let leaves = p.samples.iter().filter(|s| p.frames(s).contains(&form));
        let leaves: Vec<&str> = leaves.map(|s| p.frames(s)[0]).collect();
        assert!(leaves.iter().all(|leaf| *leaf == form), "{leaves:?}");
    }
}

#[test]
fn cpp_operators_are_counted_for_their_caller() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -T heap --heap-interval 4K");
    let out = out.target(target("heap", Build::Cpp), "throw").run().ok();
    assert_eq!(out.text(), "bad_alloc\n");
    assert_operators(&read(dir.path().join("profile.pb.gz")));
}

/// Allocators with operators of their own, linked to the program or preloaded before.
#[test]
fn other_allocators_are_counted_alike() {
    const LIBRARIES: [&str; 3] =
        ["libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc_minimal.so.4"];
    for library in LIBRARIES {
        let Some(path) = find_library(library) else {
            skip(&format!("{library} is not installed"));
            continue;
        };
        let link = format!("-l:{library}");
        let flags = ["-O2", "-pthread", "-Wl,--no-as-needed", &link];
        let program = built(&format!("heap_{}", &library[3..6]), "heap.cpp", "g++", &flags);
        let dir = temp_dir();
        Prof::new(&dir, "record -T heap --heap-interval 4K").target(program, "").run().ok();
        assert_operators(&read(dir.path().join("profile.pb.gz")));
        let prof = Prof::new(&dir, "record -T heap --heap-interval 32K");
        let prof = prof.env("LD_PRELOAD", path);
        prof.target(target("heap", Build::C), "sizes").run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        assert_eq!(p.sum_below("aligned", "alloc_space"), 40 * MIB, "{library}");
        assert_eq!(p.sum_below("aligned", "inuse_space"), 0, "{library}");
        assert_eq!(p.sum_below("grows", "inuse_space"), 500_000, "{library}");
    }
}

fn find_library(name: &str) -> Option<String> {
    let directories = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let paths = directories.map(|directory| format!("{directory}/{name}"));
    paths.into_iter().find(|path| Path::new(path).exists())
}

/// A program without C++ loads a library that brings it along.
#[test]
fn a_library_loaded_with_dlopen_is_counted() {
    let dir = temp_dir();
    let flags = ["-O2", "-shared", "-fPIC"];
    let plugin = built("heap_plugin.so", "heap_plugin.cpp", "g++", &flags);
    let p = record(
        dir.path(),
        "record -T heap --heap-interval 4K",
        &format!("plugin {}", plugin.display()),
    );
    assert_eq!(p.heap_below("allocates"), [8, 8 * MIB, 4, 4 * MIB]);
}

#[test]
fn rust_allocations_are_counted() {
    let dir = temp_dir();
    Prof::new(&dir, "record -T heap --heap-interval 1K")
        .target(target("heap", Build::Rust), "")
        .run()
        .ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let name = |function: &str| {
        let all = p.samples.iter().flat_map(|s| p.frames(s));
        let mut named = all.filter(|f| f.contains(&format!("::{function}")));
        named.next().unwrap_or_else(|| panic!("no {function}")).to_owned()
    };
    assert_eq!(p.sum_below(&name("boxes"), "inuse_space") / MIB, 8);
    assert_eq!(p.heap_below(&name("zeroed")), [8, 8 * MIB, 0, 0]);
    assert_eq!(p.heap_below(&name("grows")), [4, 15 * MIB, 1, 8 * MIB]);
}

#[test]
fn heap_and_cpu_time_are_recorded_together() {
    let dir = temp_dir();
    let p = record(dir.path(), "record -T cpu,heap -F 999 --heap-interval 1K", "steps");
    let kinds: Vec<&str> = p.sample_types.iter().map(|(kind, _)| kind.as_str()).collect();
    let heap = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"];
    assert_eq!((kinds[..2].to_vec(), kinds[2..].to_vec()), (vec!["samples", "cpu"], heap.to_vec()));
    assert_eq!(p.heap_below("breathes"), [10, 10 * MIB, 0, 0]);
    // They are no samples of CPU time.
    let (samples, cpu) = (p.column("samples"), p.column("cpu"));
    assert!(p.samples.iter().all(|s| (s.values[samples] == 0) == (s.values[cpu] == 0)));
    let report = Prof::new(&dir, "report --type inuse_space").run().ok().text();
    assert!(report.contains("keeps_one"), "{report}");
    // Allocations that are larger than the interval by far are sampled in any case.
    let quality = Prof::new(&dir, "report --quality --type alloc_space").run().ok().text();
    let line =
        quality.lines().find(|l| l.ends_with("breathes")).unwrap_or_else(|| panic!("{quality}"));
    let numbers: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(numbers[0].trim_end_matches('%'), numbers[1], "{quality}");
}

#[test]
fn peak_and_temporary_allocations_are_exact() {
    let dir = temp_dir();
    let p = record(dir.path(), "record -T heap --peak --temporary --heap-interval 1K", "peaks");
    let more = |function: &str| {
        let kinds = ["peak_objects", "peak_space", "temporary_objects", "temporary_space"];
        kinds.map(|kind| p.sum_below(function, kind))
    };
    assert_eq!(more("before_the_peak"), [4, 4 * MIB, 0, 0]);
    // The last of them is the first to be freed.
    assert_eq!(more("at_the_peak"), [8, 8 * MIB, 1, MIB]);
    assert_eq!(more("after_the_peak"), [0; 4]);
    assert_eq!(more("breathes"), [0, 0, 1, MIB]);
    assert_eq!(p.heap_below("after_the_peak"), [6, 6 * MIB, 6, 6 * MIB]);
    // As part of a profile of allocations only.
    let p = record(dir.path(), "record -T alloc --peak --heap-interval 1K", "peaks");
    let kinds: Vec<&str> = p.sample_types.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["alloc_objects", "alloc_space", "peak_objects", "peak_space"]);
    assert_eq!(p.sum_below("at_the_peak", "peak_space"), 8 * MIB);
}

#[test]
fn anonymous_mappings_count_only_with_heap_mmap() {
    let dir = temp_dir();
    let p = record(dir.path(), "record -T heap --heap-mmap --heap-interval 1K", "maps");
    assert_eq!(p.heap_below("maps"), [8, 8 * MIB, 4, 4 * MIB]);
    let p = record(dir.path(), "record -T heap --heap-interval 1K", "maps");
    assert_eq!(p.heap_below("maps"), [0; 4]);
}

/// A program that may only write and exit any more is not killed because of prof.
#[test]
fn a_program_confined_by_seccomp_is_not_killed() {
    let dir = temp_dir();
    let prof = Prof::new(&dir, "record -T heap --heap-interval 1K");
    let out = prof.target(target("heap", Build::C), "confined").run().ok();
    assert_eq!(out.text(), "confined\n");
    assert!(!out.stderr.contains("killed"), "{}", out.stderr);
    assert_eq!(read(dir.path().join("profile.pb.gz")).heap_below("confined"), [8, 8 * MIB, 0, 0]);
}

/// A stack that the program made itself ends where nothing can be read.
#[test]
fn allocations_on_a_coroutine_stack_are_counted() {
    let dir = temp_dir();
    let p = record(dir.path(), "record -T heap --heap-interval 1K", "coroutine");
    assert_eq!(p.heap_below("on_small_stack"), [7, 7 * MIB, 0, 0]);
}

/// One that is killed while it allocates ends the recording like any other.
#[test]
fn a_killed_program_ends_the_recording_normally() {
    let dir = temp_dir();
    let script =
        "timeout -s KILL 0.3 \"$0\" 2000000000 & timeout -s KILL 0.4 \"$0\" 2000000000; wait";
    let mut prof = Prof::new(&dir, "record -T heap --heap-interval 16K -- sh -c");
    prof = prof.arg(script).arg(target("pairs", Build::C));
    prof.run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.sum_below("small", "alloc_space") > 10 * MIB);
}

/// The recording ends before the program does; the program goes on.
#[test]
fn the_program_goes_on_after_the_window() {
    let dir = temp_dir();
    let mut prof = Prof::new(&dir, "record -T heap --heap-interval 1K -D 100 -d 500ms");
    prof.command.env("TMPDIR", dir.path());
    let out = prof.target(target("heap", Build::C), "long").run().ok();
    let out = out.says(&["the library for allocations stays in", "still runs as process"]);
    let p = read(dir.path().join("profile.pb.gz"));
    let [objects, _, in_use, _] = p.heap_below("breathes");
    assert!((5..=26).contains(&objects) && in_use <= 1, "{objects}, {in_use}");
    let pid = out.stderr.split("as process ").nth(1).unwrap().split(';').next().unwrap();
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert!(state.contains("(heap)"), "{state}");
    // SAFETY: kill takes two numbers; the process is prof's child, which it named.
    unsafe { libc::kill(pid.parse().unwrap(), libc::SIGKILL) };
}

/// A command that goes into the background: its allocations until then are recorded, and the
/// process that goes on is named.
#[test]
fn a_daemon_is_named_when_the_command_ends() {
    let dir = temp_dir();
    for mode in ["daemon", "idle_daemon"] {
        let mut prof = Prof::new(&dir, "record -T heap --heap-interval 1K");
        prof.command.env("TMPDIR", dir.path());
        let out = prof.target(target("heap", Build::C), mode).run().ok();
        let out = out.says(&["the recording ended with the command", "(heap), which it started"]);
        let pid = out.stderr.split("--inject -p ").nth(1).unwrap();
        let pid: i32 = pid.lines().next().unwrap().parse().unwrap();
        if mode == "daemon" {
            let p = read(dir.path().join("profile.pb.gz"));
            assert_eq!(p.heap_below("in_parent"), [16, 16 * MIB, 16, 16 * MIB], "{}", out.stderr);
            // The advised command works.
            let args = format!("record -T heap --inject --heap-interval 1K -d 1s -p {pid}");
            Prof::new(&dir, &args).run().ok();
            assert!(
                read(dir.path().join("profile.pb.gz")).sum_below("breathes", "alloc_space") > 0
            );
        } else {
            out.says(&["no allocation was sampled: the command ended before"]);
        }
        // SAFETY: kill takes two numbers; the process is the command's child that prof named.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}

/// Nothing is left behind.
#[test]
fn the_library_file_is_removed() {
    let dir = temp_dir();
    let prof = Prof::new(&dir, "record -T heap").env("TMPDIR", dir.path());
    prof.target(target("heap", Build::C), "steps").run().ok();
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left, [dir.path().join("profile.pb.gz")]);
}

#[test]
fn impossible_heap_options_are_refused_in_one_line() {
    let dir = temp_dir();
    let refused = |args: &str, code, words: &[&str]| {
        Prof::new(&dir, args).run().refused(code, words);
    };
    refused("record -T heap -a", 2, &["-- COMMAND", "-e page-faults"]);
    refused("record -T alloc -a", 2, &["-- COMMAND"]);
    refused("record --heap-interval 1K -- true", 2, &["--heap-interval", "-T heap"]);
    refused("record -T cpu --peak -- true", 2, &["--peak", "-T heap"]);
    refused("record -T heap --heap-interval 0 -- true", 2, &["--heap-interval"]);
    let fixed = built("heap_static", "heap.c", "gcc", &["-O2", "-static", "-w"]);
    let alone = Prof::new(&dir, "record -T heap").target(&fixed, "steps").run();
    alone.refused(1, &["heap_static is linked statically", "page-faults"]);
    // The other types are recorded.
    let both = Prof::new(&dir, "record -T cpu,heap -F 999").target(&fixed, "sizes").run().ok();
    both.says(&["the heap is left out", "linked statically"]);
    assert_eq!(read(dir.path().join("profile.pb.gz")).sample_types.len(), 2);
}

#[test]
fn heap_profiles_need_no_rights() {
    if !can_drop_rights() {
        return;
    }
    let dir = open_dir();
    let copy = |name: &str, mode| {
        let to = dir.path().join(name);
        common::copy_program(target("heap", Build::C), &to);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&to, mode).unwrap();
        to
    };
    let program = copy("heap", 0o755);
    unprivileged(dir.path(), "record -T heap --heap-interval 1K")
        .target(program, "steps")
        .run()
        .ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.heap_below("breathes"), [10, 10 * MIB, 0, 0]);
    let setuid = copy("setuid", 0o4755);
    let out = unprivileged(dir.path(), "record -T heap").target(setuid, "steps").run();
    out.refused(1, &["setuid is setuid", "preloads nothing"]);
}

/// Programs that were not written for this test: an interpreter with an allocator of its own on
/// top.
#[test]
fn python_node_and_shells_are_recorded() {
    let dir = temp_dir();
    if needs(&["python3"]) {
        let script = "x = [bytearray(1 << 20) for _ in range(32)]; import os; os._exit(0)";
        let prof =
            Prof::new(&dir, "record -T heap --heap-interval 64K").args("-- python3 -c").arg(script);
        prof.run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        let bytes = p.total(p.column("inuse_space"));
        assert!(bytes > 30 * MIB && bytes < 60 * MIB, "{bytes}");
    }
    if needs(&["node"]) {
        let script = "const a = []; for (let i = 0; i < 64; i++) a.push(Buffer.alloc(1 << 20)); \
                      console.log(a.length)";
        let prof =
            Prof::new(&dir, "record -T heap --heap-interval 64K").args("-- node -e").arg(script);
        assert_eq!(prof.run().ok().text(), "64\n");
        let p = read(dir.path().join("profile.pb.gz"));
        let bytes = p.total(p.column("alloc_space"));
        assert!(bytes > 60 * MIB, "{bytes}");
    }
    if !needs_root() {
        return;
    }
    let shell = "for i in 1 2 3; do /bin/true; done; python3 -c 'print(1)' | cat";
    let mut prof = Prof::new(&dir, "record -T alloc --heap-interval 64K");
    prof.command.args(["--", "sh", "-c", shell]);
    assert_eq!(prof.run().ok().text(), "1\n");
}
