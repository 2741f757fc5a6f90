//! Share of a program's stacks that reach the function where its thread begins, at the default
//! settings. `benches/stacks.rs` measures perf's share for the same programs.
//!
//! Error rate of a test: at most ten rows of five recordings, each refused with a chance of 1e-8 if
//! its share is at the bound; 5e-7 together.
//!
//! Cases that take long or need much (Java, tokio, a machine that compiles) are in
//! `benches/stacks.rs`.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::common;
use crate::common::pprof::Sample;
use crate::common::unprivileged::{can_drop_rights, open_dir, unprivileged};
use crate::common::whole::{self, Share};
use crate::common::{
    Build, Pprof, Prof, Verdict, decide, most_by_chance, needs, read, system, target, targets,
    temp_dir,
};

/// Records a program, prints its row, and fails when fewer stacks are whole than `at_least`
/// percent, in as many recordings as decide it.
#[track_caller]
fn row(name: &str, at_least: f64, program: &Path, args: &[&str]) -> Pprof {
    row_at(name, 999, at_least, program, args)
}

/// As [`row`], at a rate.
#[track_caller]
fn row_at(name: &str, hertz: u32, at_least: f64, program: &Path, args: &[&str]) -> Pprof {
    row_by(&format!("record -F {hertz}"), name, at_least, program, args)
}

/// As [`row`], recorded by a command of prof.
#[track_caller]
fn row_by(record: &str, name: &str, at_least: f64, program: &Path, args: &[&str]) -> Pprof {
    let draw = |(all, last): &mut (Share, Option<Pprof>)| {
        let (p, share) = recorded_by(record, name, 200, program, args);
        all.whole += share.whole;
        all.all += share.all;
        for (end, n) in share.others {
            *all.others.entry(end).or_default() += n;
        }
        let line = format!("whole stacks: {name:<22} {:7.3} % of {}\n", all.percent(), all.all);
        // Not eprintln: the test harness would capture that.
        std::io::stderr().write_all(line.as_bytes()).ok();
        *last = Some(p);
    };
    // A share that is right on average is a bit less in every second recording.
    let judge = |(all, _): &(Share, Option<Pprof>)| {
        let most = most_by_chance((100.0 - at_least) / 100.0 * all.all as f64);
        match (all.all - all.whole) as u64 {
            _ if all.percent() >= at_least => Verdict::Accepted,
            others if others <= most => Verdict::Open,
            _ => {
                println!("{name}: {:?}", all.others);
                Verdict::Refused
            }
        }
    };
    decide(name, draw, judge).1.expect("a recording")
}

/// A recording of a program at 999 Hz, and the share of its stacks that are whole; a few dozen are
/// enough for a wide bound.
#[track_caller]
fn recorded(name: &str, program: &Path, args: &[&str]) -> (Pprof, Share) {
    recorded_by("record -F 999", name, 30, program, args)
}

/// As [`recorded`], by a command of prof, with so many stacks at least.
#[track_caller]
fn recorded_by(
    record: &str,
    name: &str,
    at_least: i64,
    program: &Path,
    args: &[&str],
) -> (Pprof, Share) {
    let dir = temp_dir();
    let mut prof = Prof::new(&dir, record).target(program, "");
    prof.command.args(args);
    let out = prof.run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let share = whole::of_profile(&p, |_| true);
    assert!(share.all >= at_least, "{name}: {} user stacks\n{}", share.all, out.stderr);
    (p, share)
}

fn built(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    common::targets::built(name, source, "g++", flags)
}

const CPP: &[&str] = &["-O2", "-fomit-frame-pointer", "-pthread"];

/// Programs of all kinds, from the command line to the file, among whatever else the machine does.
/// That their stacks are exact is `every_instruction`'s: here, their shares have wide bounds.
#[test]
fn most_stacks_of_a_recording_are_whole() {
    const MOST: f64 = 90.0;
    let cpp = target("stacks", Build::Cpp);
    let modes = ["inlined", "deep", "exceptions", "copies", "aligned"];
    for mode in modes {
        let (p, share) = recorded_by("record -F 999", mode, 100, &cpp, &[mode, "0.3"]);
        assert!(share.percent() > MOST, "{mode}: {share:#?}");
        let deepest = p.samples.iter().map(|s| s.locations.len()).max().unwrap();
        // The program works at each depth up to 1,000 for the same time: that none of 100 samples is
        // in the deepest fifth has a chance of 2e-10.
        assert!(mode != "deep" || deepest > 800, "{deepest} frames");
    }
    let flags = ["-O2", "-fomit-frame-pointer", "-shared", "-fPIC"];
    let plugin = built("plugin.so", "plugin.cpp", &flags).display().to_string();
    let (p, share) = recorded("plugin", &cpp, &["plugin", "0.3", &plugin]);
    assert!(share.percent() > MOST && p.total_share("plugin_work") > 50.0, "{share:#?}");
    for (name, flag) in [("stacks-static", "-static"), ("stacks-static-pie", "-static-pie")] {
        let program = built(name, "stacks.cpp", &[CPP, &[flag, "-DWITHOUT_PLUGINS"]].concat());
        let (_, share) = recorded(name, &program, &["copies", "0.3"]);
        assert!(share.percent() > MOST, "{name}: {share:#?}");
    }
    let (_, share) = recorded("Rust", &target("stacks", Build::Rust), &["0.3"]);
    assert!(share.percent() > MOST, "Rust: {share:#?}");
}

/// The same of programs that were not written for tests.
#[test]
fn most_stacks_of_openssl_and_python_are_whole() {
    const MOST: f64 = 90.0;
    if !needs(&["openssl", "python3"]) {
        return;
    }
    let openssl = ["speed", "-seconds", "1", "rsa2048", "ecdsap256"];
    let script = common::targets::source("extensions.py").display().to_string();
    for (program, args) in
        [("openssl", &openssl[..]), ("/usr/bin/python3", &[script.as_str(), "1"][..])]
    {
        let (_, share) = recorded(program, Path::new(program), args);
        assert!(share.percent() > MOST, "{program}: {share:#?}");
    }
}

/// More stack than the kernel copies: the size of the copy depends on the rate. A copy is cut if
/// prof cannot keep up.
#[test]
fn stacks_of_more_than_64_kib_are_mostly_whole() {
    const OFTEN_ENOUGH: f64 = 75.0;
    if !common::system::has_deep_stacks() {
        return;
    }
    let program = target("large_frames", Build::C);
    for (name, rate, depth, bytes, seconds) in [
        ("1.3 MB of stack", 99, 2400, "540", "2.5"),
        ("1.3 MB of large frames", 99, 310, "4200", "2.5"),
        ("220 KB of stack", 999, 400, "540", "1"),
    ] {
        let args = [&depth.to_string(), bytes, "0", seconds];
        let p = row_at(name, rate, OFTEN_ENOUGH, &program, &args);
        let deepest = p.samples.iter().map(|s| s.locations.len()).max().unwrap();
        assert!(deepest > depth, "{name}: {deepest} frames");
    }
    let args = ["1000", "540", "500", "1.2"];
    row_at("busy all along 540 KB", 499, OFTEN_ENOUGH, &program, &args);
}

/// The copied part of a stack is limited, and so are the frames that are shown.
#[test]
fn truncated_stacks_have_a_reason_and_advice() {
    let dir = temp_dir();
    let by_dwarf = target("large_frames", Build::C);
    let by_pointers = target("large_frames", Build::CFramePointers);
    let largest = "(prof doctor, deep stacks)";
    for (options, depth, why, advice) in [
        ("-F 4999 -g dwarf,1024", 300, "dump smaller than 65528 bytes ", "-g dwarf,65528"),
        ("-F 4999 -g dwarf,65528", 1000, "dump too small ", largest),
        // A number of frames that can all be copied at this rate.
        ("-F 99", 9000, "too deep ", "user stacks truncated"),
        ("-F 999 -g fp", 300, "deeper than kernel.perf_event_max_stack ", "max_stack=1024"),
    ] {
        let program = if options.ends_with("fp") { &by_pointers } else { &by_dwarf };
        let args = match depth {
            9000 => format!("{depth} 60 0 0.5"),
            _ => format!("{depth} 540 0 0.2"),
        };
        let out = Prof::new(&dir, &format!("record {options}")).target(program, &args).run().ok();
        out.says(&[why, advice]);
    }
}

#[test]
fn node_stacks_with_a_perf_map_are_whole() {
    if !needs(&["node"]) {
        return;
    }
    let script = common::targets::source("busy.js").display().to_string();
    let p = row("node", 99.5, Path::new("node"), &["--perf-basic-prof", &script, "2"]);
    for pid in p.label_values("pid") {
        std::fs::remove_file(format!("/tmp/perf-{pid}.map")).ok();
    }
}

#[test]
fn go_stacks_with_cgo_are_whole() {
    if !needs(&["go", "gcc"]) {
        return;
    }
    // See below.
    let p = row("Go with cgo", 98.0, &target("stacks", Build::Go), &["3"]);
    assert!(p.total_share("c_work") > 3.0);
}

/// C that Go has called back runs on the thread's stack, Go on the goroutine's: both are copied.
#[test]
fn go_stacks_with_callbacks_from_c_are_whole() {
    if !needs(&["go", "gcc"]) || !common::system::has_deep_stacks() {
        return;
    }
    let stripped = targets::built("callbacks", "callbacks.go", "go", &["build", "-ldflags=-s -w"]);
    for (program, depth) in [(&target("callbacks", Build::Go), "0"), (&stripped, "2")] {
        let p = row("Go called back from C", 96.0, program, &["2", depth]);
        let round = ["main.goCallback", "crosscall2", "goCallback", "runtime.cgocall"];
        let rounds = 1 + depth.parse::<usize>().unwrap();
        let mut seen = 0;
        for frames in p.samples.iter().map(|s| p.user_frames(s)) {
            let is_whole = frames.last().is_some_and(|f| f.starts_with("runtime.goexit"));
            if !is_whole || !frames.contains(&"main.goWork") {
                continue;
            }
            // Each time that Go is called back, there is C between Go and Go.
            let of =
                |name: &str| frames.iter().filter(|f| f.trim_end_matches(".abi0") == name).count();
            let counts = round.map(of);
            assert!((1..=rounds).contains(&counts[0]), "{frames:?}");
            assert_eq!(counts, [counts[0]; 4], "{frames:?}");
            assert_eq!(of("main.goOuter"), 1, "{frames:?}");
            seen += 1;
        }
        assert!(seen > 0, "no stack with Go that was called back");
    }
}

/// Code that a signal has interrupted is shown with the line of the interrupted instruction, not of
/// the one before.
#[test]
fn a_load_that_panics_in_go_has_its_own_line() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let program = target("panics", Build::Go);
    Prof::new(&dir, "record -F 999").target(program, "1").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let source = std::fs::read_to_string(targets::source("panics.go")).unwrap();
    let line = 1 + source.lines().position(|line| line.contains("// the load")).unwrap() as i64;
    let mut seen = 0;
    for sample in &p.samples {
        let frames = p.frames(sample);
        let Some(at) = frames.iter().position(|&f| f == "runtime.sigpanic") else { continue };
        if frames.get(at + 1) == Some(&"main.faulty") {
            let location =
                sample.locations.iter().position(|l| p.lines[l].contains(&"main.faulty".into()));
            assert_eq!(p.sources[&sample.locations[location.unwrap()]].1, line);
            seen += 1;
        }
    }
    assert!(seen > 0, "no sample on top of a panic");
}

/// Go's scheduler and garbage collector run on stacks of their own, whose callers are on others:
/// the memory above their frames is stale.
#[test]
fn go_scheduler_stacks_have_no_stale_callers() {
    if !needs(&["go"]) {
        return;
    }
    // A goroutine that was parked may run elsewhere, and its stack be another, while the scheduler
    // runs on the stack of the thread that parked it.
    let p = row("Go, goroutines", 97.0, &target("goroutines", Build::Go), &["2"]);
    // The code that handlers return to has no caller, and lies right behind this function.
    assert_eq!(p.total_share("runtime.cgoSigtramp"), 0.0);
    let plain = |f: &str| f.trim_end_matches(".abi0").to_owned();
    let mut seen = 0;
    for frames in p.samples.iter().map(|s| p.user_frames(s)) {
        let mut outer = frames.iter().rev().map(|f| plain(f)).filter(|f| !f.starts_with('['));
        // The first thread's stack has `newproc` at the place where Go's scheduler begins. A stack
        // that is truncated above `newproc` has what `newproc` really calls.
        if outer.next().is_some_and(|f| f == "runtime.newproc") {
            let callee = outer.next();
            assert!(callee.is_none_or(|f| f.starts_with("runtime.systemstack")), "{frames:?}");
        }
        let switch = |f: String| f == "runtime.mcall" || f == "runtime.systemstack";
        seen += usize::from(outer.any(switch));
    }
    assert!(seen > 20, "{seen} stacks of Go's run-time code");
    // Frame pointers leave out the caller of `systemstack`; prof inserts it.
    let left_out = |callee: &str, caller: &str| {
        callee.starts_with("runtime.systemstack") && !caller.starts_with("runtime.goexit")
    };
    let mut wrong = common::edges::check(&p).wrong;
    wrong.retain(|(callee, caller), _| left_out(callee, caller));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The interrupts of counters come late: those of user code in the kernel, before it has saved the
/// user's registers. What lies in their place is older than the stack.
#[test]
fn registers_that_the_kernel_has_not_saved_give_no_stack() {
    /// A shell that starts programs: many first instructions of the kernel.
    const STARTS: &str = "i=0; while [ $i -lt 400 ]; do /bin/true; i=$((i+1)); done";
    const ARGS: &str = "record -e cycles:u -F 20000";
    let dir = open_dir();
    let script = dir.path().join("starts.sh");
    std::fs::write(&script, STARTS).unwrap();
    let mut recorders = vec![Prof::new(&dir, ARGS)];
    if can_drop_rights() {
        recorders.push(unprivileged(dir.path(), ARGS));
    }
    for prof in recorders {
        let out = prof.target("sh", script.to_str().unwrap()).run();
        if out.stderr.contains("cycles:u") && !out.status.success() {
            return system::skip_hardware("this machine has no hardware counters");
        }
        out.ok();
        let file = dir.path().join("profile.pb.gz");
        let p = read(&file);
        // The next recorder may not write to it.
        std::fs::remove_file(file).unwrap();
        let column = p.column("samples");
        let ends = ["[truncated: bad return address]", "[truncated: no caller on this stack]"];
        let wrong = |s: &Sample| p.user_frames(s).last().is_some_and(|end| ends.contains(end));
        let samples = |s: &Sample| s.values[column];
        let wrong: i64 = p.samples.iter().filter(|s| wrong(s)).map(samples).sum();
        let all = p.total(column);
        // One of 70,000; with old registers, one of 100.
        assert!(all > 1000 && wrong * 1000 <= all, "{wrong} of {all}");
    }
}

/// Of signal handlers, live: `every_instruction` has them exactly. Of `vfork`'s children, which run on
/// their parents' stacks.
#[test]
fn stacks_in_signal_handlers_and_vfork_children_are_whole() {
    let program = target("switches", Build::C);
    // Samples of a clock at 999 Hz pass all phases of the program's timer of 2 ms in a second; those
    // of a counter may stay in step with it.
    let clock = "record -e cpu-clock -F 999";
    let (p, share) = recorded_by(clock, "signal handlers", 30, &program, &["signals", "1"]);
    // The handler's stack continues with the interrupted function.
    let handled = p.total_share("handler_work");
    let through = p.share(|s| {
        let frames = p.user_frames(s);
        frames.contains(&"handler_work") && frames.contains(&"main")
    });
    assert!(share.percent() > 90.0 && handled > 5.0, "{handled} % {share:#?}");
    assert!(handled - through < 1.0, "{handled} % and {through} %");
    // No copy contains the interrupted stack: while the handler runs, the end is marked.
    let (p, _) = recorded("on another stack", &program, &["altstack", "0.5"]);
    for s in p.samples.iter().map(|s| p.user_frames(s)).filter(|f| !f.is_empty()) {
        let last = s[s.len() - 1];
        // The second entry: while the dynamic linker still loads the program.
        let entries = ["_start", "_dl_start_user"];
        let end = "[truncated: signal handler on a stack of its own]";
        // Of counters, whose interrupts come while the kernel saves registers, too.
        let unknown = "[truncated: registers not saved]";
        assert!(entries.contains(&last) || last == end || s == [unknown], "{s:?}");
    }
    let bare = ["-O2", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables", "-pthread"];
    let bare = targets::built("switches_bare", "switches.c", "gcc", &bare);
    let p = row_by(clock, "signal handlers, no tables", 99.0, &bare, &["signals", "1"]);
    assert!(p.total_share("handler_work") > 5.0);
    let p = row("vfork children", 99.9, &program, &["vfork", "1"]);
    assert!(p.total_share("child_work") > 10.0);
}

/// A coroutine's stack has a beginning, but no caller that can be reported.
#[test]
fn coroutine_stacks_are_marked_and_no_caller_is_invented() {
    const MARK: &str = "[truncated: no caller on this stack]";
    let program = target("switches", Build::C);
    for (mode, first) in [("ucontext", "__start_context"), ("coroutine", "bare_coroutine")] {
        let dir = temp_dir();
        let args = format!("{mode} 1");
        let out = Prof::new(&dir, "record -F 999").target(&program, &args).run().ok();
        out.says(&["user stacks truncated", "no caller on this stack"]);
        let p = read(dir.path().join("profile.pb.gz"));
        let inside = |s: &Sample| p.user_frames(s).contains(&"coroutine_work");
        // gcc makes the last call of coroutine_work a jump.
        let marked = p.share(|s| p.user_frames(s).last() == Some(&MARK));
        assert!(marked > 50.0, "{mode}: {marked} % are marked");
        for s in p.samples.iter().filter(|s| p.user_frames(s).last() == Some(&MARK)) {
            let frames = p.user_frames(s);
            let known = ["spin", "coroutine_work", "coroutine", "swapcontext", "switch_stack"];
            if frames == ["swapcontext", MARK] {
                // It is already on the other stack, on which it has not put its return address yet.
                continue;
            }
            let (callers, end) = frames.split_at(frames.len() - 2);
            assert_eq!(end, [first, MARK], "{mode}: {frames:?}");
            assert!(callers.iter().all(|f| known.contains(f)), "{mode}: {frames:?}");
        }
        // The code that switches between stacks has no unwind information at all.
        let switches = |s: &Sample| p.user_frames(s).contains(&"switch_stack");
        for s in p.samples.iter().filter(|s| switches(s)) {
            let last = p.user_frames(s).pop().unwrap();
            assert!(last == "_start" || last.starts_with("[truncated: "), "{mode}: {s:?}");
        }
        let others = whole::of_profile(&p, |s| {
            p.user_frames(s).last() != Some(&MARK) && !inside(s) && !switches(s)
        });
        assert!(others.percent() > 99.0 || others.all < 50, "{mode}: {others:?}");
    }
}
