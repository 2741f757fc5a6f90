//! Memory that was never freed, and the part of it to which no pointer leads when its process
//! exits.

use std::path::{Path, PathBuf};

use crate::common;
use crate::common::statistics::assert_estimate;
use crate::common::system::needs_root;
use crate::common::targets::built;
use crate::common::{Build, Output, Pprof, Prof, go, needs, read, skip, target, temp_dir};

const ALL: &str = "record -T heap --leaks --heap-interval 1";

/// The program whose blocks have this size.
fn program(size: u32) -> PathBuf {
    let size_is = format!("-DSIZE={size}");
    let flags = ["-O2", "-fno-optimize-sibling-calls", "-pthread", &size_is];
    built(&format!("leaks_{size}"), "leaks.c", "gcc", &flags)
}

/// Records `leaks_SIZE MODE`.
#[track_caller]
fn record(dir: &Path, args: &str, size: u32, mode: &str) -> (Output, Pprof) {
    let out = Prof::new(dir, args).target(program(size), mode).run();
    let out = out.exits(if mode == "killed" { 128 + 9 } else { 0 });
    (out, read(dir.join("profile.pb.gz")))
}

/// Leaked objects with this function among their frames, and with this value of the label `leak`.
fn leaked(p: &Pprof, function: &str, label: &str) -> i64 {
    let column = p.column("leaked_objects");
    let with = p.samples.iter().filter(|s| p.frames(s).contains(&function));
    let with = with.filter(|s| s.labels.get("leak").is_some_and(|l| l == label));
    with.map(|s| s.values[column]).sum()
}

/// Fails unless each function leaked this number of objects, of those that were in use.
#[track_caller]
fn assert_leaks(p: &Pprof, label: &str, expected: &[(&str, i64, i64)]) {
    for &(function, lost, in_use) in expected {
        let got = (leaked(p, function, label), p.sum_below(function, "inuse_objects"));
        assert_eq!(got, (lost, in_use), "{function}, {label}");
        assert_eq!(p.sum_below(function, "leaked_objects"), lost, "{function}");
    }
}

/// The blocks that `leaks all` leaves: function, lost, in use.
const LEFT: [(&str, i64, i64); 11] = [
    ("lost_alone", 10, 10),
    ("lost_chain", 6, 6),
    ("lost_circle", 2, 2),
    ("lost_inside", 12, 12),
    ("lost_inside_small", 5, 5),
    ("kept_by_global", 0, 8),
    ("kept_inside", 0, 1),
    ("kept_behind_small", 0, 2),
    ("kept_by_mapping", 0, 1),
    ("freed", 0, 0),
    ("freed_late", 0, 0),
];

/// Small blocks, those of a page, and those that the C library maps by themselves.
#[test]
fn memory_without_a_pointer_to_it_is_leaked() {
    let dir = temp_dir();
    for size in [64, 4096, 1 << 20] {
        let (out, p) = record(dir.path(), ALL, size, "all");
        assert_leaks(&p, "lost", &LEFT);
        let bytes = i64::from(size);
        assert_eq!(p.sum_below("lost_chain", "leaked_space"), 6 * bytes);
        out.says(&["not counted as leaks", "in 12 objects"]);
        let kinds: Vec<_> = p.sample_types.iter().map(|(k, u)| (k.as_str(), u.as_str())).collect();
        assert_eq!(kinds[4..], [("leaked_objects", "count"), ("leaked_space", "bytes")]);
        let file = dir.path().join("profile.pb.gz");
        if needs(&["go"]) {
            let top = go::top(&file, "leaked_space", "B");
            assert_eq!(top["lost_inside"].1, 12 * bytes);
            assert!(!top.contains_key("kept_by_global"), "{top:?}");
        }
    }
    let report = Prof::new(&dir, "report --type leaked_space").run().ok().text();
    assert!(report.contains("lost_alone") && !report.contains("kept_inside"), "{report}");
    // As part of a profile of allocations only.
    let (_, p) = record(dir.path(), "record -T alloc --leaks --heap-interval 1", 64, "all");
    assert_eq!((p.sample_types.len(), leaked(&p, "lost_alone", "lost")), (4, 10));
}

/// Most are not sampled: pointers from one to the other are followed nevertheless.
#[test]
fn pointers_in_unsampled_blocks_are_followed() {
    let dir = temp_dir();
    let interval = "record -T heap --leaks --heap-interval 4K";
    let (_, p) = record(dir.path(), interval, 64, "many");
    let lost = p.sum_below("lost_many", "leaked_space");
    assert_estimate(lost, (0..30_000).map(|_| 64), 4096.0);
    assert_estimate(p.sum_below("kept_many", "inuse_space"), (0..30_000).map(|_| 64), 4096.0);
    assert_eq!(p.sum_below("kept_many", "leaked_space"), 0);
}

/// Memory to which stacks, registers and variables of running threads point, and memory to which
/// only stacks of ended threads did.
#[test]
fn memory_of_running_threads_is_not_leaked() {
    let dir = temp_dir();
    for size in [64, 1 << 20] {
        let (_, p) = record(dir.path(), ALL, size, "threads");
        let expected = [
            ("lost_alone", 20, 20),
            ("lost_chain", 6, 6),
            ("kept_by_thread", 0, 3),
            ("kept_by_own", 0, 2),
            ("kept_by_register", 0, 2),
        ];
        assert_leaks(&p, "lost", &expected);
        // Memory that the C library and the dynamic linker keep of ended threads is not counted.
        assert_eq!(p.total(p.column("leaked_objects")), 26, "{size}");
    }
}

/// One child exits, one becomes another program.
#[test]
fn leaks_of_children_are_found_and_exec_is_unchecked() {
    let dir = temp_dir();
    let (out, p) = record(dir.path(), ALL, 4096, "children");
    let by_label = |function| ["lost", "unchecked"].map(|label| leaked(&p, function, label));
    assert_eq!(by_label("lost_alone"), [20, 10]);
    assert_eq!(by_label("lost_inside"), [12, 0]);
    assert_eq!(by_label("kept_by_global"), [0, 0]);
    assert_eq!(by_label("kept_inside"), [0, 1]);
    out.says(&["was in use by a process that ended without exit handlers", "in 11 objects"]);
}

/// A process that ends without exit handlers cannot be checked.
#[test]
fn memory_of_a_process_without_exit_handlers_is_unchecked() {
    let dir = temp_dir();
    let unchecked = LEFT.map(|(function, _, in_use)| (function, in_use, in_use));
    for mode in ["_exit", "killed"] {
        let (out, p) = record(dir.path(), ALL, 4096, mode);
        assert_leaks(&p, "unchecked", &unchecked);
        out.says(&["was in use by a process that ended without exit handlers", "in 47 objects"]);
    }
}

#[test]
fn memory_of_a_program_that_goes_on_is_unchecked() {
    let dir = temp_dir();
    let mut prof = Prof::new(&dir, &format!("{ALL} -d 1s"));
    prof.command.env("TMPDIR", dir.path());
    let out = prof.target(program(4096), "long").run().ok();
    let out = out.says(&["was in use by a process that still ran at the end", "in 47 objects"]);
    assert_eq!(leaked(&read(dir.path().join("profile.pb.gz")), "kept_inside", "unchecked"), 1);
    let pid = out.stderr.split("as process ").nth(1).unwrap().split(';').next().unwrap();
    // SAFETY: kill takes two numbers; the process is prof's child, which it named.
    unsafe { libc::kill(pid.parse().unwrap(), libc::SIGKILL) };
}

/// A program that may only exit any more is not killed because of prof.
#[test]
fn a_program_confined_by_seccomp_is_checked_unharmed() {
    let dir = temp_dir();
    let (out, p) = record(dir.path(), ALL, 4096, "confined");
    assert!(!out.stderr.contains("killed"), "{}", out.stderr);
    assert_leaks(&p, "lost", &LEFT[..9]);
}

/// It waits for prof, but for a limited time.
#[test]
fn an_exiting_program_waits_for_prof_a_limited_time() {
    let dir = temp_dir();
    let (out, p) = record(dir.path(), ALL, 4096, "stops");
    let waited: u64 = out.text().trim().parse().unwrap();
    assert!((900..60_000).contains(&waited), "{waited} ms");
    assert_eq!(leaked(&p, "lost_alone", "unchecked"), 10);
    out.says(&["or before the check"]);
}

/// Threads that another process traces cannot be held.
#[test]
fn threads_traced_by_others_are_unchecked() {
    let dir = temp_dir();
    if !needs_root() || !needs(&["strace"]) {
        return;
    }
    let args = "-- strace -f -qq -e trace=none -o /dev/null";
    let prof = Prof::new(&dir, ALL).args(args).arg(program(4096)).arg("threads");
    let out = prof.run().ok();
    out.says(&["could not be checked on exit", "the kernel denies access to its memory"]);
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(leaked(&p, "kept_by_thread", "unchecked"), 3);
}

/// Blocks to which pointers from the program's data lead are left out, with any allocator. Blocks
/// to which only an allocator's own memory may point are possibly lost.
#[test]
fn blocks_known_only_to_other_allocators_are_possibly_lost() {
    let directory = Path::new("/usr/lib/x86_64-linux-gnu");
    for library in ["libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let path = directory.join(library);
        if !path.exists() {
            skip(&format!("{library} is not installed"));
            continue;
        }
        let dir = temp_dir();
        let prof = Prof::new(&dir, ALL).env("LD_PRELOAD", &path);
        let out = prof.target(program(4096), "all").run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        for (function, lost, in_use) in LEFT {
            // Only memory that may be an allocator's points to it.
            let known = if function == "kept_by_mapping" { 1 } else { lost };
            let (leaked, kept) = (p.sum_below(function, "leaked_objects"), in_use - lost);
            assert_eq!(leaked, known, "{library}: {function}, {kept} kept\n{}", out.stderr);
        }
        assert_eq!(leaked(&p, "kept_by_mapping", "perhaps"), 1, "{library}");
        out.says(&["may not be lost", "not counted as leaks"]);
    }
}

#[test]
fn leaks_of_cpp_and_rust_programs_are_exact() {
    let dir = temp_dir();
    Prof::new(&dir, ALL).target(target("leaks", Build::Cpp), "").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let expected = [
        ("lost_released", 40, 40),
        ("lost_cycles", 40, 40),
        ("lost_members", 60, 60),
        ("kept_texts", 0, 41),
        // Freed by destructors.
        ("kept_others", 0, 0),
        ("kept_shared", 0, 0),
    ];
    assert_leaks(&p, "lost", &expected);
    Prof::new(&dir, ALL).target(target("leaks", Build::Rust), "").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let name = |function: &str| {
        let all = p.samples.iter().flat_map(|s| p.frames(s));
        let mut named = all.filter(|f| f.contains(&format!("leaks::{function}")));
        named.next().unwrap_or_else(|| panic!("no {function}")).to_owned()
    };
    let of = |function: &str| {
        let name = name(function);
        (leaked(&p, &name, "lost"), p.sum_below(&name, "inuse_objects"))
    };
    assert_eq!(of("lost_cycles"), (40, 40));
    assert_eq!(of("lost_forgotten"), (40, 40));
    assert_eq!(of("kept_leaked"), (0, 21));
    assert_eq!(of("kept_texts"), (0, 21));
    assert_eq!(of("freed").0, 0);
}

/// The result of LeakSanitizer for a program: bytes and blocks; `None`: it is not installed.
fn sanitized(dir: &Path, source: &str, flags: &[&str], mode: &str) -> Option<(i64, i64)> {
    let program = dir.join("sanitized");
    let mut compile = std::process::Command::new("g++");
    let c = if source.ends_with(".c") { "c" } else { "c++" };
    compile.args(["-fsanitize=leak", "-x", c]).args(flags).arg(common::targets::source(source));
    if !compile.arg("-o").arg(&program).output().is_ok_and(|out| out.status.success()) {
        return None;
    }
    let mut run = std::process::Command::new(program);
    let out = run.args(mode.split_whitespace()).output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    let line = text.lines().find(|line| line.starts_with("SUMMARY: LeakSanitizer"));
    let words = line.unwrap_or_default().split_whitespace();
    let numbers: Vec<i64> = words.filter_map(|word| word.parse().ok()).collect();
    let [bytes, blocks] = numbers[..] else { panic!("{text}") };
    Some((bytes, blocks))
}

/// prof reports the same blocks as LeakSanitizer.
#[test]
fn leaks_equal_those_of_leak_sanitizer() {
    if !needs(&["g++"]) {
        return;
    }
    let dir = temp_dir();
    let sizes = ["-DSIZE=64", "-DSIZE=4096", "-DSIZE=1048576"];
    let threads = sizes.map(|size| ("leaks.c", size, "threads"));
    for (source, size, mode) in
        threads.into_iter().chain([("leaks.cpp", "-w", ""), ("leaks_kinds.cpp", "-w", "")])
    {
        let flags = ["-O1", "-fno-optimize-sibling-calls", "-pthread", size];
        let Some(expected) = sanitized(dir.path(), source, &flags, mode) else {
            return skip("LeakSanitizer is not installed");
        };
        let compiler = if source.ends_with(".c") { "gcc" } else { "g++" };
        let name = format!("plain_{}_{size}", source.replace('.', "_"));
        let program = built(&name, source, compiler, &flags);
        let out = Prof::new(&dir, ALL).target(program, mode).run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        let total = |kind: &str| p.total(p.column(kind));
        let got = (total("leaked_space"), total("leaked_objects"));
        assert_eq!(got, expected, "{source} {size} {mode}\n{}", out.stderr);
    }
}

#[test]
fn leaks_without_a_heap_profile_are_refused() {
    let dir = temp_dir();
    let refused = |args: &str, words: &[&str]| Prof::new(&dir, args).run().refused(2, words);
    refused("record -T cpu --leaks -- true", &["--leaks", "-T heap"]);
    refused("record -T heap --leaks --inject -p 1", &["--leaks", "--inject"]);
}
