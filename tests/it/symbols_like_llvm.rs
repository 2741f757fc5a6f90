//! Functions, lines and inlined functions of C++ programs are those that `llvm-symbolizer` finds,
//! at each instruction.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::llvm::{Frame, Symbols, instructions, ours, theirs};
use crate::common::{needs, run, targets, temp_dir};

/// The program of this name, built with these flags.
fn program(name: &str, compiler: &str, flags: &str) -> PathBuf {
    let common = ["-std=c++20", "-O2", "-pthread"];
    let flags: Vec<&str> = common.into_iter().chain(flags.split_whitespace()).collect();
    targets::built(name, &format!("cpp/{name}.cpp"), compiler, &flags)
}

/// Fails unless prof and `llvm-symbolizer` agree on each instruction of `program`, or `excused`
/// permits the difference.
#[track_caller]
fn check(program: &Path, excused: impl Fn(&[Frame]) -> bool) {
    let (addresses, symbols) = (instructions(program), Symbols::of(program));
    let (ours, theirs) = (ours(program, &addresses), theirs(program, &addresses));
    let mut different = Vec::new();
    for (i, &address) in addresses.iter().enumerate() {
        if !symbols.agree(&ours[i], &theirs[i]) && !excused(&theirs[i]) {
            different.push((address, &ours[i], &theirs[i]));
        }
    }
    let shown = &different[..different.len().min(3)];
    let (n, all) = (different.len(), addresses.len());
    assert!(
        different.is_empty(),
        "{n} of {all} addresses differ from llvm-symbolizer's: {shown:#x?}"
    );
    let inlined = ours.iter().filter(|frames| frames.len() > 1).count();
    assert!(
        all > 1000 && inlined > all / 5,
        "{inlined} of {all} addresses are in inlined functions"
    );
}

/// As [`check`], for a program in which parts of functions were moved away.
#[track_caller]
fn check_in_parts(program: &Path) {
    assert!(Symbols::of(program).in_parts() > 0, "no function in parts: {}", program.display());
    check(program, |_| false);
}

#[test]
fn containers_built_by_gcc_match_llvm() {
    if needs(&["g++", "llvm-symbolizer"]) {
        check_in_parts(&program("containers", "g++", "-g"));
    }
}

#[test]
fn regular_expressions_with_compressed_dwarf_4_match_llvm() {
    if needs(&["g++", "llvm-symbolizer"]) {
        check_in_parts(&program("expressions", "g++", "-gdwarf-4 -gz"));
    }
}

#[test]
fn coroutines_with_a_section_for_each_function_match_llvm() {
    if needs(&["g++", "llvm-symbolizer"]) {
        let flags = "-g -ffunction-sections -Wl,--gc-sections";
        check_in_parts(&program("coroutines", "g++", flags));
    }
}

#[test]
fn templates_optimized_by_the_linker_match_llvm() {
    if needs(&["g++", "llvm-symbolizer"]) {
        check_in_parts(&program("templates", "g++", "-g -flto"));
    }
}

#[test]
fn threads_with_split_debug_information_match_llvm() {
    if needs(&["g++", "llvm-symbolizer"]) {
        let program = program("threads", "g++", "-g -gsplit-dwarf");
        assert!(Symbols::of(&program).in_parts() > 0);
        // Thunks to virtual functions have lines, but are no functions in debug information. The
        // reader of split debug information gives lines to functions only.
        let is_thunk = |f: &Frame| ["_ZTh", "_ZTv"].iter().any(|kind| f.function.starts_with(kind));
        check(&program, |theirs| theirs.iter().all(is_thunk));
    }
}

#[test]
fn a_separate_debug_file_matches_llvm() {
    if !needs(&["g++", "llvm-symbolizer", "objcopy"]) {
        return;
    }
    let dir = temp_dir();
    let built = program("coroutines", "g++", "-g -gz");
    let objcopy = |args: &[&str]| {
        run::run({
            let mut command = Command::new("objcopy");
            command.args(args).current_dir(dir.path());
            command
        })
        .ok();
    };
    let built = built.to_str().unwrap();
    objcopy(&["--only-keep-debug", built, "program.debug"]);
    // The symbol table stays, as a reference for names.
    objcopy(&["--strip-debug", "--add-gnu-debuglink=program.debug", built, "program"]);
    check_in_parts(&dir.path().join("program"));
}

#[test]
fn programs_built_by_clang_match_llvm() {
    if needs(&["clang++", "llvm-symbolizer"]) {
        check(&program("threads", "clang++", "-g"), |_| false);
        check(&program("expressions", "clang++", "-gdwarf-4 -ffunction-sections"), |_| false);
    }
}
