//! Code made at run time: perf maps and jitdump files, of real compilers and of one with known
//! answers (tests/targets/jit.c).

use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::common;
use crate::common::pprof::Sample;
use crate::common::run::Running;
use crate::common::system::needs_root;
use crate::common::{
    Build, Pprof, Prof, assert_share, needs, read, target, temp_dir, until_file_times_advance,
};

/// Removes the perf maps of all processes of a recording.
fn remove_maps(p: &Pprof) {
    for pid in p.label_values("pid") {
        std::fs::remove_file(Path::new("/tmp").join(format!("perf-{pid}.map"))).ok();
    }
}

/// Records `jit MODE MS` in `dir`.
#[track_caller]
fn record(dir: &Path, mode: &str, ms: u32) -> (Pprof, String) {
    let program = target("jit", Build::CFramePointers);
    let out = Prof::new(dir, "record -F 999").target(program, &format!("{mode} {ms}")).run().ok();
    let p = read(dir.join("profile.pb.gz"));
    remove_maps(&p);
    assert!(p.figure("samples") > 200, "{:?}", p.comments);
    (p, out.stderr)
}

/// Source lines of the samples whose leaf is this function.
fn lines(p: &Pprof, function: &str) -> Vec<(String, i64)> {
    let leaves = p.samples.iter().filter(|s| p.frames(s).first() == Some(&function));
    leaves.map(|s| p.sources[&s.locations[0]].clone()).collect()
}

#[test]
fn a_perf_map_names_code_whenever_it_is_written() {
    for mode in ["map", "late"] {
        let dir = temp_dir();
        let (p, messages) = record(dir.path(), mode, 500);
        assert!(p.user_share("jitted") > 90.0, "{mode}: {}\n{messages}", p.user_share("jitted"));
        assert!(p.mappings.iter().any(|m| m.file.starts_with("/tmp/perf-")), "{:?}", p.mappings);
    }
}

#[test]
fn python_perf_maps_give_python_names() {
    let dir = temp_dir();
    let (p, _) = record(dir.path(), "python", 500);
    assert!(p.user_share("py::hot:/app/hot.py") > 90.0);
    let svg = Prof::new(&dir, "flame").run().ok().text();
    assert!(svg.contains("py::hot"), "{svg}");
    assert!(svg.contains("Python"), "the legend names the language: {svg}");
}

#[test]
fn stacks_go_through_trampolines_without_frame_pointers() {
    let dir = temp_dir();
    let program = target("trampolines", Build::C);
    Prof::new(&dir, "record -F 999").target(program, "500").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    remove_maps(&p);
    let whole = ["inner", "py::middle:/app/a.py", "middle", "py::outer:/app/a.py", "outer", "main"];
    let is_whole = |s: &Sample| {
        let frames = p.user_frames(s);
        let inner = frames.iter().position(|&f| f == "inner");
        inner.is_some_and(|inner| frames[inner..].starts_with(&whole))
    };
    assert!(p.share(is_whole) > 95.0, "{}: {:?}", p.share(is_whole), p.comments);
    assert_eq!(p.total_share("[truncated: run-time code without frame pointers]"), 0.0);
}

/// Each of the two functions has its own time, though they lie at the same addresses; the time
/// around the change is attributed to neither rather than to the wrong one.
#[test]
fn reused_addresses_are_distinguished_by_time() {
    let dir = temp_dir();
    let (p, messages) = record(dir.path(), "reuse-map", 1000);
    let (a, b) = (p.user_share("phase_a"), p.user_share("phase_b"));
    // The samples of one poll have no name: those that are read at once, of a fifth of a second, or
    // of more on a busy machine.
    assert!((22.0..36.0).contains(&a) && (50.0..72.0).contains(&b), "{a} % {b} %\n{messages}");
    let dir = temp_dir();
    let (p, messages) = record(dir.path(), "reuse-dump", 60);
    let (a, b) = (p.user_share("phase_a"), p.user_share("phase_b"));
    assert!(a + b > 95.0, "{a} % {b} %\n{messages}");
    assert_share("phase_a", a, 33.3, 5.0);
    assert_share("phase_b", b, 66.7, 5.0);
}

#[test]
fn a_jitdump_has_source_lines() {
    let dir = temp_dir();
    let (p, messages) = record(dir.path(), "lines", 500);
    assert!(p.user_share("jitted") > 90.0, "{}\n{messages}", p.user_share("jitted"));
    let found = lines(&p, "jitted");
    let right = found.iter().filter(|l| **l == ("/src/jit.src".to_owned(), 8)).count();
    assert!(
        right > 0
            && found.iter().all(|(file, line)| file == "/src/jit.src" && [7, 8].contains(line)),
        "{found:?}"
    );
    assert!(p.mappings.iter().any(|m| m.file.ends_with(".dump")), "{:?}", p.mappings);
}

#[test]
fn code_that_moves_keeps_its_name() {
    let dir = temp_dir();
    let (p, messages) = record(dir.path(), "move", 300);
    let (moved, other) = (p.user_share("moved"), p.user_share("other"));
    assert!(moved > 65.0 && moved <= 80.0, "moved {moved} %, other {other} %\n{messages}");
    assert_share("other", other, 25.0, 6.0);
}

#[test]
fn truncated_and_garbage_files_are_reported_and_harmless() {
    let dir = temp_dir();
    let (p, _) = record(dir.path(), "cut", 400);
    assert!(p.user_share("jitted") > 90.0);
    let dir = temp_dir();
    let (p, messages) = record(dir.path(), "garbage", 400);
    assert_eq!(p.total_share("jitted"), 0.0);
    assert!(messages.contains("have no function name") && messages.contains(".map"), "{messages}");
    // The number of malformed lines, in the report and in the message of the recording.
    let count = |text: &str| -> usize {
        let at = text.find(" malformed)").expect(text);
        text[..at].rsplit('(').next().unwrap().parse().unwrap()
    };
    let report = Prof::new(&dir, "report --coverage").run().ok().text();
    assert!(report.contains("without names: "), "{report}");
    assert!(count(&report) > 900 && count(&report) == count(&messages), "{report}\n{messages}");
}

/// Valid lines name code, whatever other lines are in the map; the others are counted.
#[test]
fn invalid_lines_are_counted_and_harmless() {
    let dir = temp_dir();
    let (p, messages) = record(dir.path(), "littered", 400);
    assert!(p.user_share("jitted") > 90.0, "{} %\n{messages}", p.user_share("jitted"));
    assert_eq!(p.total_share("huge"), 0.0);
    let report = Prof::new(&dir, "report --coverage").run().ok().text();
    for text in [&messages, &report] {
        assert!(text.contains("bad input: 7 malformed lines in the perf map"), "{text}");
    }
}

#[test]
fn the_later_of_two_lines_for_one_address_counts() {
    let dir = temp_dir();
    let (p, messages) = record(dir.path(), "remade", 1000);
    // The samples around the time when the file was written have no name.
    assert!(p.user_share("jitted") > 80.0, "{} %\n{messages}", p.user_share("jitted"));
    assert_eq!(p.total_share("old"), 0.0);
}

#[test]
fn only_a_regular_file_is_read_as_a_perf_map() {
    let dir = temp_dir();
    let (p, messages) = record(dir.path(), "pipe", 400);
    assert_eq!(p.total_share("jitted"), 0.0);
    let report = Prof::new(&dir, "report --coverage").run().ok().text();
    for text in [&messages, &report] {
        assert!(text.contains("not a regular file"), "{text}");
    }
}

/// Names of a later symbolization come from the files that still exist; ambiguous code has none.
#[test]
fn a_jitdump_names_a_recording_afterwards() {
    let dir = temp_dir();
    let program = target("jit", Build::CFramePointers);
    Prof::new(&dir, "record -F 999 --no-symbolize").target(&program, "lines 300").run().ok();
    assert_eq!(read(dir.path().join("profile.pb.gz")).total_share("jitted"), 0.0);
    Prof::new(&dir, "symbolize").run().ok();
    assert!(read(dir.path().join("profile.pb.gz")).user_share("jitted") > 85.0);
    let dir = temp_dir();
    Prof::new(&dir, "record -F 999 --no-symbolize").target(&program, "reuse-dump 30").run().ok();
    Prof::new(&dir, "symbolize").run().ok().says(&["other code replaced the code"]);
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.user_share("phase_a") + p.user_share("phase_b"), 0.0);
}

/// A perf map is used later only if it cannot belong to another process: it has not changed, or
/// only its own process has written to it.
#[test]
fn a_perf_map_changed_after_its_process_ended_is_not_used() {
    let dir = temp_dir();
    let program = target("jit", Build::CFramePointers);
    let file = dir.path().join("profile.pb.gz");
    let jitted = || read(&file).user_share("jitted");
    let running = Running::start(Command::new(program).args(["map", "20000"]));
    let pid = running.pid();
    let map = format!("/tmp/perf-{pid}.map");
    let record = format!("record -F 999 --no-symbolize -d 300ms -p {pid}");
    Prof::new(&dir, &record).run().ok();
    let mut written = std::fs::OpenOptions::new().append(true).open(&map).unwrap();
    written.write_all(b"10 10 another\n").unwrap();
    Prof::new(&dir, "symbolize").run().ok();
    assert!(jitted() > 90.0, "{}", jitted());
    Prof::new(&dir, &record).run().ok();
    drop(running);
    // A file's times have the resolution of the kernel's tick.
    until_file_times_advance();
    written.write_all(b"20 10 another\n").unwrap();
    Prof::new(&dir, "symbolize").run().ok().says(&["made or changed after the recording"]);
    assert_eq!(jitted(), 0.0);
    std::fs::remove_file(map).unwrap();
}

/// A process in a PID and mount namespace of its own, gone when the recording ends.
#[test]
fn files_in_a_container_are_found() {
    if !needs(&["unshare", "mount"]) || !needs_root() {
        return;
    }
    let program = target("jit", Build::CFramePointers).display().to_string();
    for mode in ["map", "lines"] {
        let dir = temp_dir();
        // The new /tmp hides the directory of the recording, and possibly the program.
        let inside = format!(
            "exec 3<{program} && mount -t tmpfs none /tmp && cd /tmp && cat <&3 >jit && exec 3<&- \
             && chmod 755 jit && ./jit {mode} 600"
        );
        let script = format!("unshare --pid --fork --mount sh -c '{inside}'; sleep 0.3");
        let prof = Prof::new(&dir, "record -F 999 -- sh -c").arg(script);
        prof.run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        assert!(p.figure("samples") > 200, "{:?}", p.comments);
        let named = p.user_share("jitted");
        assert!(named > 85.0, "{mode}: {named} % {:?}", p.mappings);
    }
}

/// A map that is left from another user or an earlier process names nothing.
#[test]
fn a_perf_map_of_an_earlier_process_is_not_used() {
    if !needs(&["touch"]) {
        return;
    }
    let dir = temp_dir();
    let program = target("jit", Build::CFramePointers);
    // The map that exists before the program begins names everything `wrong`; the program itself
    // writes none.
    let script = format!(
        "echo '0 7fffffffffff wrong' > /tmp/perf-$$.map; touch -d '2 days ago' /tmp/perf-$$.map; \
         exec {} lines 400",
        program.display()
    );
    Prof::new(&dir, "record -F 999 -- sh -c").arg(script).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    remove_maps(&p);
    assert_eq!(p.total_share("wrong"), 0.0);
    assert!(p.user_share("jitted") > 85.0);
}

#[test]
fn node_with_a_jitdump_has_names() {
    if !needs(&["node"]) {
        return;
    }
    let dir = temp_dir();
    let script = common::targets::source("busy.js").display().to_string();
    let args = format!("--perf-prof {script} 2");
    let out = Prof::new(&dir, "record -F 999").target("node", &args).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let hot = p.share(|s| p.frames(s).iter().any(|f| f.contains("hotFunction")));
    assert!(hot > 60.0, "hotFunction: {hot} %\n{}", out.stderr);
    assert!(p.mappings.iter().any(|m| m.file.ends_with(".dump")), "{:?}", p.mappings);
    // Node 20 writes names of files from memory that it has freed; those are not used.
    for (location, names) in &p.lines {
        if names.first().is_some_and(|name| name.contains("hotFunction")) {
            let (file, line) = &p.sources[location];
            assert!(file.is_empty() || file.ends_with("busy.js") && *line > 0, "{file}:{line}");
        }
    }
}

/// Java writes its map when it ends.
#[test]
fn java_with_a_perf_map_has_names() {
    if !needs(&["java", "javac"]) {
        return;
    }
    let dir = temp_dir();
    let source = common::targets::source("Hot.java");
    common::run::tool("javac", &["-d".as_ref(), dir.path().as_ref(), source.as_ref()]);
    let options = "-XX:+PreserveFramePointer -XX:+UnlockDiagnosticVMOptions \
                   -XX:+DumpPerfMapAtExit Hot 2";
    let out = Prof::new(&dir, "record -F 999").target("java", options).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    remove_maps(&p);
    let hot = p.share(|s| p.frames(s).iter().any(|f| f.contains("Hot.hotMethod(int)")));
    assert!(hot > 30.0, "hotMethod: {hot} %\n{}", out.stderr);
    let svg = Prof::new(&dir, "flame").run().ok().text();
    assert!(svg.contains("Java"), "the legend names the language");
}

/// LLVM's interpreter compiles, and Debian's build contains the agent.
#[test]
fn llvm_with_a_jitdump_has_names() {
    if !needs(&["lli"]) {
        return;
    }
    let dir = temp_dir();
    std::fs::write(dir.path().join("hot.ll"), HOT_LL).unwrap();
    let mut prof = Prof::new(&dir, "record -F 999");
    prof.command.env("JITDUMPDIR", dir.path());
    let out = prof.target("lli", "-jit-kind=mcjit hot.ll").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.user_share("hot") > 60.0, "{} %\n{}", p.user_share("hot"), out.stderr);
}

const HOT_LL: &str = "
define i32 @hot(i32 %n) noinline {
entry:
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%i2, %loop]
  %s = phi i32 [0, %entry], [%s2, %loop]
  %r = urem i32 %i, 7
  %s2 = add i32 %s, %r
  %i2 = add i32 %i, 1
  %c = icmp slt i32 %i2, %n
  br i1 %c, label %loop, label %done
done:
  ret i32 %s2
}
define i32 @main() {
entry:
  %h = call i32 @hot(i32 800000000)
  ret i32 0
}
";
