//! The stack at each instruction, by prof's unwinder, against the calls that the program has made:
//! exact, and the same in each run.
//!
//! An instruction at which it cannot be known has a reason. Each test lists the reasons, and the
//! binaries that have such code. A live recording of the same programs is in `whole_stacks`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use unwind::StackEnd;

use crate::common::stepped::{Begin, Steps};
use crate::common::targets::built;
use crate::common::{Build, needs, skip, target, targets};

/// A part of a program, from an instruction on.
struct Part<'a> {
    program: &'a Path,
    args: &'a [&'a str],
    /// Libraries that are there from the beginning.
    preload: &'a str,
    begin: Begin<'a>,
    steps: usize,
    /// Number of calls of a function that are run instruction by instruction.
    calls: u32,
}

/// The stacks of a part of a program; all of them are right as far as they go.
#[derive(Default, Debug)]
struct Stacks {
    /// Number of stacks.
    all: usize,
    /// Reasons why stacks end, with the binaries of their innermost frames.
    cut: BTreeSet<(String, String)>,
    /// Number of these stacks.
    cuts: usize,
    /// Binaries of the innermost frames.
    files: BTreeSet<String>,
    /// Number of frames of the deepest one.
    deepest: usize,
}

/// The steps of a part of a program.
const STEPS: usize = 30_000;

impl<'a> Part<'a> {
    fn new(program: &'a Path, args: &'a [&'a str]) -> Part<'a> {
        Part { program, args, preload: "", begin: Begin::Entry, steps: STEPS, calls: 30 }
    }

    /// From `main` on.
    fn of_main(program: &'a Path, args: &'a [&'a str]) -> Part<'a> {
        let file = program.file_name().and_then(|name| name.to_str()).unwrap();
        Part { begin: Begin::Function { file, name: "main", nth: 1 }, ..Part::new(program, args) }
    }

    /// Runs it; fails if a stack has a frame that is not there, or lacks one without a reason.
    #[track_caller]
    fn stacks(&self) -> Stacks {
        let mut command = Command::new(self.program);
        command.args(self.args).env("LD_PRELOAD", self.preload);
        let mut steps = Steps::start(&mut command, self.begin);
        steps.most_calls = self.calls;
        let (mut stacks, mut wrong) = (Stacks::default(), Vec::new());
        let (mut leaves, mut cut) = (BTreeSet::new(), BTreeSet::new());
        steps.run(self.steps, |step| {
            stacks.all += 1;
            stacks.deepest = stacks.deepest.max(step.right.len());
            leaves.insert(step.right[0]);
            if step.is_cut() {
                stacks.cuts += 1;
                cut.insert((format!("{:?}", step.end), step.right[0]));
            } else if !step.is_whole() {
                wrong.push(step);
            }
        });
        if let Some(step) = wrong.first() {
            let named = |all: &[u64]| all.iter().map(|&a| steps.named(a)).collect::<Vec<_>>();
            let (right, frames) = (named(&step.right), named(&step.frames));
            let (n, end) = (wrong.len(), step.end);
            panic!("{n} of {}: {right:#?}, but prof has ({end:?}): {frames:#?}", stacks.all);
        }
        for (end, leaf) in cut {
            stacks.cut.insert((end, steps.file(leaf).to_owned()));
        }
        stacks.files = leaves.iter().map(|&leaf| steps.file(leaf).to_owned()).collect();
        println!("{:?}: {} stacks, {} cut", self.args, stacks.all, stacks.cuts);
        stacks
    }
}

impl Stacks {
    /// Fails unless there are that many, and all of them are whole.
    #[track_caller]
    fn are_whole(&self, at_least: usize) {
        self.are_whole_but(at_least, 0, &[]);
    }

    /// The same, but for `most` stacks in these binaries that end for these reasons.
    #[track_caller]
    fn are_whole_but(&self, at_least: usize, most: usize, listed: &[(StackEnd, &str)]) {
        let is_listed = |(end, file): &&(String, String)| {
            listed.iter().any(|(e, f)| *end == format!("{e:?}") && file == f)
        };
        let others: Vec<_> = self.cut.iter().filter(|cut| !is_listed(cut)).collect();
        assert!(others.is_empty(), "{others:?}");
        assert!(self.cuts <= most, "{} stacks are cut", self.cuts);
        assert!(self.all >= at_least, "{} stacks", self.all);
    }
}

const CPP: &[&str] = &["-O2", "-fomit-frame-pointer", "-pthread"];

#[test]
fn cpp_stacks_with_inlined_functions_are_exact() {
    let program = target("stacks", Build::Cpp);
    Part::of_main(&program, &["inlined", "20"]).stacks().are_whole(8000);
    // What runs before `main` in addition, and its lazy binding.
    Part::new(&program, &["inlined", "20"]).stacks().are_whole(8000);
}

#[test]
fn cpp_stacks_of_deep_recursion_are_exact() {
    let program = target("stacks", Build::Cpp);
    let part = Part { calls: 2000, steps: 2 * STEPS, ..Part::of_main(&program, &["deep", "20"]) };
    let stacks = part.stacks();
    stacks.are_whole(5000);
    assert!(stacks.deepest > 1000, "{} frames", stacks.deepest);
}

#[test]
fn cpp_stacks_in_assembly_copies_are_exact() {
    let stacks = Part::of_main(&target("stacks", Build::Cpp), &["copies", "20"]).stacks();
    stacks.are_whole(8000);
    assert!(stacks.files.contains("libc.so.6"), "{stacks:?}");
}

#[test]
fn cpp_stacks_with_aligned_frames_are_exact() {
    Part::of_main(&target("stacks", Build::Cpp), &["aligned", "20"]).stacks().are_whole(8000);
}

#[test]
fn cpp_stacks_in_plugins_are_exact() {
    let flags = ["-O2", "-fomit-frame-pointer", "-shared", "-fPIC"];
    let plugin = built("plugin.so", "plugin.cpp", "g++", &flags).display().to_string();
    let program = target("stacks", Build::Cpp);
    let args = ["plugin", "20", plugin.as_str()];
    let stacks = Part { steps: 2 * STEPS, ..Part::of_main(&program, &args) }.stacks();
    stacks.are_whole(8000);
    assert!(stacks.files.contains("plugin.so"), "{stacks:?}");
}

#[test]
fn static_cpp_stacks_are_exact() {
    for (name, flag) in [("stacks-static", "-static"), ("stacks-static-pie", "-static-pie")] {
        let program =
            built(name, "stacks.cpp", "g++", &[CPP, &[flag, "-DWITHOUT_PLUGINS"]].concat());
        for mode in ["inlined", "copies", "aligned"] {
            Part::of_main(&program, &[mode, "20"]).stacks().are_whole(3000);
        }
    }
}

/// While libgcc returns to a handler, its frame leads to the handler's caller.
#[test]
fn cpp_stacks_in_exceptions_are_exact_or_marked() {
    let program = target("stacks", Build::Cpp);
    let stacks = Part { steps: 2 * STEPS, ..Part::of_main(&program, &["storm", "20"]) }.stacks();
    let listed = [(StackEnd::ExceptionDelivery, "libgcc_s.so.1")];
    // Of all that are shown, not by time.
    stacks.are_whole_but(20_000, stacks.all / 50, &listed);
    assert!(stacks.cuts > 0, "no exception was delivered");
}

#[test]
fn rust_release_stacks_are_exact() {
    let program = target("stacks", Build::Rust);
    let stacks = Part { steps: 2 * STEPS, ..Part::of_main(&program, &["60"]) }.stacks();
    let listed = [(StackEnd::ExceptionDelivery, "libgcc_s.so.1")];
    stacks.are_whole_but(8000, stacks.all / 50, &listed);
}

/// OpenSSL's assembly uses all forms of unwind information.
#[test]
fn openssl_stacks_in_assembly_are_exact() {
    if !needs(&["openssl"]) {
        return;
    }
    let libcrypto = "libcrypto.so.3";
    for (arguments, name) in [
        (["-bytes", "8192", "-evp", "sha512"].as_slice(), "EVP_DigestUpdate"),
        (["-bytes", "8192", "-evp", "aes-256-gcm"].as_slice(), "EVP_EncryptUpdate"),
        (["-bytes", "8192", "-evp", "chacha20-poly1305"].as_slice(), "EVP_EncryptUpdate"),
        (["rsa2048"].as_slice(), "EVP_PKEY_sign"),
        (["ecdsap256"].as_slice(), "EVP_PKEY_sign"),
    ] {
        let args = [&["speed", "-seconds", "5"], arguments].concat();
        let begin = Begin::Function { file: libcrypto, name, nth: 2 };
        let part = Part { begin, ..Part::new(Path::new("openssl"), &args) };
        let stacks = part.stacks();
        stacks.are_whole(150);
        assert!(stacks.files.contains(libcrypto), "{stacks:?}");
    }
}

/// From Python through its extensions into the libraries behind them.
#[test]
fn python_stacks_with_extensions_are_exact() {
    // Debian's Python, even if another one comes first in PATH.
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        return skip("/usr/bin/python3 is not installed");
    }
    let script = targets::source("extensions.py").display().to_string();
    let args = [script.as_str(), "60"];
    for (file, name) in [("libz.so.1", "deflate"), ("libsqlite3.so.0", "sqlite3_step")] {
        let begin = Begin::Function { file, name, nth: 1 };
        let part = Part { begin, preload: file, ..Part::new(python, &args) };
        part.stacks().are_whole(1000);
    }
}

/// The handler's stack continues with the interrupted function, on the same stack.
#[test]
fn stacks_in_signal_handlers_are_exact_or_marked() {
    let program = target("switches", Build::C);
    Part::new(&program, &["signals", "0.5"]).stacks().are_whole(2000);
    // No copy contains the interrupted stack.
    let stacks = Part::new(&program, &["altstack", "0.5"]).stacks();
    let listed = ["switches", "libc.so.6"].map(|file| (StackEnd::AlternateStack, file));
    stacks.are_whole_but(2000, stacks.all / 10, &listed);
    assert!(stacks.cuts > 0, "no handler has run");
    let bare = ["-O2", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables", "-pthread"];
    let bare = built("switches_bare", "switches.c", "gcc", &bare);
    Part::new(&bare, &["signals", "0.5"]).stacks().are_whole(2000);
}

/// The parts of the stack that functions use for themselves contain return addresses of others,
/// which resemble callers.
#[test]
fn stale_return_addresses_are_no_callers() {
    Part::new(&target("stale", Build::C), &["0.3"]).stacks().are_whole(1500);
}

#[test]
fn stacks_in_assembly_without_unwind_information_are_exact() {
    Part::new(&target("uncovered", Build::C), &["0.3"]).stacks().are_whole(1500);
}

const WITHOUT: [&str; 4] =
    ["-O2", "-pthread", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];

/// `shapes.c` as this compiler makes it with these flags.
fn shapes(compiler: &str, flags: &[&str]) -> PathBuf {
    built("shapes", "shapes.c", compiler, flags)
}

/// The C library's multiplications are assembly, whose unwind information lacks their pushes.
const PRINTS_FLOATS: (StackEnd, &str) = (StackEnd::BadReturnAddress, "libc.so.6");

#[test]
fn stacks_without_unwind_information_are_exact() {
    let pointers = [&WITHOUT[..], &["-fno-omit-frame-pointer"]].concat();
    for flags in [&WITHOUT[..], &pointers] {
        let program = shapes("gcc", flags);
        let stacks = Part { steps: 2 * STEPS, ..Part::new(&program, &["0.3"]) }.stacks();
        stacks.are_whole_but(10_000, stacks.all / 100, &[PRINTS_FLOATS]);
    }
}

#[test]
fn stacks_of_musl_without_unwind_information_are_exact() {
    if !needs(&["musl-gcc"]) {
        return;
    }
    let program = shapes("musl-gcc", &["-O2", "-static"]);
    let stacks = Part { steps: 2 * STEPS, ..Part::new(&program, &["0.3"]) }.stacks();
    stacks.are_whole(8000);
}

/// Without symbols, only calls show the beginnings of functions: stacks end sooner, rightly.
#[test]
fn stacks_in_stripped_code_are_exact_or_marked() {
    let program = shapes("gcc", &[&WITHOUT[..], &["-s"]].concat());
    let stacks = Part { steps: 2 * STEPS, ..Part::new(&program, &["0.3"]) }.stacks();
    let listed =
        [PRINTS_FLOATS, (StackEnd::Uncovered, "shapes"), (StackEnd::NoUnwindInfo, "shapes")];
    stacks.are_whole_but(10_000, stacks.all / 20, &listed);
}
