//! Callers are those that the code has: each direct call on a stack leads to the frame inside it.
//! Above all in code that has no unwind information. `every_instruction` has some of the same programs
//! exactly; the recordings of these are short.

use std::path::Path;

use crate::common;
use crate::common::{Build, Pprof, Prof, edges, needs, read, target, temp_dir, whole};

/// Records a program; its edges have to be right, and at least that percentage of its stacks whole.
#[track_caller]
fn row(name: &str, at_least: f64, program: &Path, args: &str) -> (Pprof, edges::Edges) {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -F 999").target(program, args).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let edges = edges::assert_right(name, &p);
    let share = whole::of_profile(&p, |_| true);
    println!("{name}: {:.2} % of {} whole", share.percent(), share.all);
    if at_least > 0.0 {
        assert!(share.all >= 100, "{name}: {} stacks\n{}", share.all, out.stderr);
        // Whatever their number: those that are not whole say so.
        let is_marked = |end: &&String| end.starts_with("[truncated: ");
        let unmarked: Vec<_> = share.others.keys().filter(|end| !is_marked(end)).collect();
        assert!(unmarked.is_empty(), "{name}: {unmarked:#?}");
    }
    assert!(edges.right > 100, "{name}: {edges:?}");
    assert!(
        share.percent() >= at_least,
        "{name}: {:.2} % are whole: {:#?}\n{}",
        share.percent(),
        share.others,
        out.stderr
    );
    (p, edges)
}

/// A tool rather than a test: `PROF_EDGES=FILE cargo test --test it prof_edges -- --ignored`.
#[test]
#[ignore = "checks the recording that PROF_EDGES names"]
fn the_recording_of_prof_edges_has_no_wrong_edge() {
    let p = read(std::env::var_os("PROF_EDGES").expect("PROF_EDGES names a recording"));
    let edges = edges::check(&p);
    println!("{edges:#?}\n{:#?}", whole::of_profile(&p, |_| true));
    assert_eq!(edges.wrong(), 0);
}

#[test]
fn callers_are_right_with_unwind_information() {
    row("C++", 99.0, &target("stacks", Build::Cpp), "inlined 1");
}

/// While libgcc returns to a handler, its frame leads to the handler's caller: no stack shows that.
/// (Handlers that gcc puts into cold parts have no caller in the code, and rightly have a caller.)
#[test]
fn callers_are_right_while_exceptions_are_thrown() {
    const MARK: &str = "[truncated: exception being delivered]";
    let dir = temp_dir();
    let program = target("stacks", Build::Cpp);
    Prof::new(&dir, "record -F 999").target(&program, "storm 3").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let mut edges = edges::check(&p);
    edges.wrong.retain(|(callee, _), _| callee.contains("(libgcc_s"));
    assert!(edges.wrong.is_empty(), "{:#?}", edges.wrong);
    let share = whole::of_profile(&p, |_| true);
    println!("storm: {:.2} % of {} whole", share.percent(), share.all);
    let mut marked = 0;
    for sample in &p.samples {
        let frames = p.user_frames(sample);
        if frames.last() == Some(&MARK) {
            assert!(frames.iter().any(|f| f.starts_with("_Unwind_")), "{frames:?}");
            marked += sample.values[0] as u64;
        }
    }
    // The time that libgcc needs to replace its frame depends on the CPU: 2 % of the time of this
    // program on one, 5 % on another, of which most is one `rep movs`. All else is whole.
    let marked = 100.0 * marked as f64 / share.all as f64;
    assert!(share.all > 1000 && share.percent() + marked >= 99.0, "{marked:.2} % {share:#?}");
    assert!((0.1..8.0).contains(&marked), "{marked:.2} % of such moments");
}

/// The checker finds errors: reversed stacks are full of impossible edges.
#[test]
fn the_checker_finds_wrong_edges() {
    let (mut p, _) = row("recursion", 99.0, &target("stacks", Build::Cpp), "deep 0.5");
    p.samples.iter_mut().for_each(|sample| sample.locations.reverse());
    assert!(edges::check(&p).wrong() > 0);
}

/// The parts of the stack that functions use for themselves contain return addresses of others,
/// which resemble callers.
#[test]
fn stale_return_addresses_are_no_callers() {
    let (p, _) = row("stale words", 99.0, &target("stale", Build::C), "0.5");
    for name in ["small", "large", "saves", "aligns"] {
        let caller = format!("calls_{name}");
        let mut seen = 0;
        for frames in p.samples.iter().map(|s| p.user_frames(s)) {
            if frames.first() != Some(&name) {
                continue;
            }
            // A counter's interrupt may come while the kernel switches threads: then the memory is
            // another process's, and there is no word that could be taken for a caller.
            if frames[1..] == ["[truncated: no user memory]"] {
                continue;
            }
            assert_eq!(frames.get(1..3), Some(&[caller.as_str(), "main"][..]), "{frames:?}");
            seen += 1;
        }
        assert!(seen > 0, "no sample in {name}");
    }
}

/// Its frame pointer is zero, and words lie between the stack pointer and the return address.
#[test]
fn callers_are_right_in_assembly_without_unwind_information() {
    row("assembly", 99.0, &target("uncovered", Build::C), "0.5");
}

const WITHOUT: [&str; 4] =
    ["-O2", "-pthread", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];

/// `shapes.c` as this compiler makes it with these flags.
fn shapes(compiler: &str, flags: &[&str]) -> std::path::PathBuf {
    common::targets::built("shapes", "shapes.c", compiler, flags)
}

#[test]
fn callers_are_right_without_unwind_information() {
    let program = shapes("gcc", &WITHOUT);
    row("without tables", 99.0, &program, "0.5");
    row("without tables, a thread", 99.0, &program, "0.5 thread");
}

#[test]
fn callers_are_right_with_frame_pointers_only() {
    let flags = [&WITHOUT[..], &["-fno-omit-frame-pointer"]].concat();
    row("frame pointers", 99.0, &shapes("gcc", &flags), "0.5");
}

#[test]
fn callers_are_right_with_musl() {
    if !needs(&["musl-gcc"]) {
        return;
    }
    let fixed = shapes("musl-gcc", &["-O2", "-static"]);
    row("musl, static", 99.0, &fixed, "0.5");
    row("musl, static, a thread", 99.0, &fixed, "0.5 thread");
    // Its C library is stripped: its functions begin at the targets of calls and at the addresses
    // that are taken.
    let (p, _) = row("musl, dynamic", 0.0, &shapes("musl-gcc", &["-O2"]), "1.5 thread");
    assert_ends("musl, dynamic", 97.0, &p);
}

/// Fails unless at least that percentage of the stacks is not marked as truncated; for binaries
/// from which the names of entries are stripped.
#[track_caller]
fn assert_ends(name: &str, at_least: f64, p: &Pprof) {
    let cut = |f: &&str| f.starts_with("[truncated: ");
    let ends = p.share(|s| !p.user_frames(s).last().is_some_and(cut));
    println!("{name}: {ends:.2} % are not truncated");
    assert!(ends >= at_least, "{name}: {ends:.2} % are not truncated");
}

/// `clone3` returns twice: to its caller, and at the beginning of the new thread.
#[test]
fn stacks_through_clone_reach_main_or_are_marked() {
    let (p, _) = row("makes threads", 97.0, &target("makes_threads", Build::C), "2");
    let makes = |s: &common::pprof::Sample| {
        let frames = p.user_frames(s);
        frames.contains(&"pthread_create") || frames.iter().any(|f| f.contains("clone_internal"))
    };
    for frames in p.samples.iter().filter(|s| makes(s)).map(|s| p.user_frames(s)) {
        let end = frames.last().unwrap();
        assert!(frames.contains(&"main") || end.starts_with("[truncated: "), "{frames:?}");
    }
}

/// Without symbols, only calls show the beginnings of functions: stacks end sooner, rightly.
#[test]
fn callers_are_right_in_stripped_code() {
    let flags = [&WITHOUT[..], &["-s"]].concat();
    row("stripped, without tables", 97.0, &shapes("gcc", &flags), "1.5 thread");
    if needs(&["musl-gcc"]) {
        let program = shapes("musl-gcc", &["-O2", "-static", "-s"]);
        row("musl, stripped", 0.0, &program, "1.5 thread");
    }
}

/// If stacks are not whole, the advice names the remedy.
#[test]
fn advice_names_the_compiler_flag() {
    let dir = temp_dir();
    // A jump through a register, before which anything may have been done to the stack.
    let program = target("lost", Build::C);
    let out = Prof::new(&dir, "record -F 999").target(&program, "0.5").run().ok();
    out.says(&[
        "no unwind information for this address ",
        "-fasynchronous-unwind-tables",
        " part ",
    ]);
}
