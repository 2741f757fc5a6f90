//! `tests/classes.txt` and `tests/judge`: which failures of a test are final.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::common::machine::{Class, class_of, classes};
use crate::common::{Output, run::run, temp_dir};

/// A test program's output: one failure, or the end of a program that is killed.
const FIRST: &str = "running 2 tests
test cli::wrong_usage_exits_with_2 ... ok
test NAME ... FAILED

failures:

---- NAME stdout ----
0.42 s of 0.40 s
    indented
stack backtrace:
   0: rust_begin_unwind


failures:
    NAME

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out

error: 1 target failed:
    `-p prof --test it`
";

const SECOND: &str = "running 1 test
0.41 s of 0.40 s
test NAME ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 600 filtered out
";

/// Runs `tests/judge` with a cargo that prints `first`, and a test program that prints `second` with
/// this exit code.
fn judge(first: &str, second: &str, code: i32) -> Output {
    let dir = temp_dir();
    let program = dir.path().join("it");
    let first = format!("     Running tests/it/main.rs ({})\n{first}", program.display());
    for (name, text, code) in [("cargo", &*first, 101), ("it", second, code)] {
        fs::write(dir.path().join(format!("{name}.txt")), text).unwrap();
        let script = format!("#!/bin/sh\ncat '{}/{name}.txt'\nexit {code}\n", dir.path().display());
        fs::write(dir.path().join(name), script).unwrap();
        fs::set_permissions(dir.path().join(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judge");
    let mut judge = Command::new(script);
    judge.env("PATH", path);
    run(judge)
}

/// A test of this class.
fn of_class(class: Class) -> String {
    let entry = classes().into_iter().find(|entry| entry.class == class).unwrap();
    entry.tests.replace('*', "a_test")
}

#[test]
fn a_named_test_that_passes_the_second_run_is_reported() {
    for class in [Class::Machine, Class::Statistical] {
        let name = of_class(class);
        let out = judge(&FIRST.replace("NAME", &name), &SECOND.replace("NAME", &name), 0).ok();
        let text = out.text();
        let table = &text[text.find("SECOND RUNS: 1").unwrap_or_else(|| panic!("{text}"))..];
        let values = ["failed, then passed", "0.42 s of 0.40 s", "0.41 s of 0.40 s"];
        for part in values.into_iter().chain([name.as_str()]) {
            assert!(table.contains(part), "{part}: {table}");
        }
        assert!(!table.contains("rust_begin_unwind"), "{table}");
    }
}

#[test]
fn a_named_test_that_fails_twice_is_a_failure() {
    let name = of_class(Class::Machine);
    let second = FIRST.replace("NAME", &name);
    let out = judge(&second, &second, 101);
    assert!(out.status.code() == Some(101) && out.text().contains("failed, then failed"));
    // A second run that runs no test shows nothing.
    let out = judge(&second, "running 0 tests\n\ntest result: ok. 0 passed; 0 failed\n", 0);
    assert_eq!(out.status.code(), Some(101), "{}", out.text());
}

/// Other virtual machines had the CPUs in the second run: that says nothing about the test, but
/// there may be three of these at most.
#[test]
fn three_tests_may_be_not_measured() {
    let entries = classes().into_iter().filter(|entry| entry.class == Class::Machine);
    let names: Vec<String> = entries.map(|entry| entry.tests.replace('*', "a_test")).collect();
    for (failed, code) in [(1, 0), (3, 0), (4, 101)] {
        let list: String = names[..failed].iter().map(|name| format!("    {name}\n")).collect();
        let first = FIRST.replace("    NAME\n\n", &format!("{list}\n"));
        let first = first.replace("1 failed", &format!("{failed} failed"));
        let lines = |name| format!("NOT MEASURED: {name}: 9.0 % of the time\n");
        let second: String = names[..failed].iter().map(lines).collect();
        let out = judge(&first, &format!("{second}{first}"), 101);
        let text = out.text();
        assert_eq!(out.status.code(), Some(code), "{failed}: {text}{}", out.stderr);
        assert!(text.contains(&format!("NOT MEASURED: {failed}, at most 3")), "{text}");
        assert_eq!(text.matches(": failed, then not measured").count(), failed, "{text}");
    }
    // Of another test.
    let first = FIRST.replace("NAME", &names[0]);
    let second = format!("NOT MEASURED: {}: 9.0 % of the time\n{first}", names[1]);
    assert_eq!(judge(&first, &second, 101).status.code(), Some(101));
}

#[test]
fn every_other_failure_is_final() {
    let name = of_class(Class::Machine);
    let first = FIRST.replace("NAME", &name);
    let two = first.replace(&format!("    {name}\n\n"), &format!("    {name}\n    cli::a\n\n"));
    let two = two.replace("1 failed", "2 failed");
    let cut = first.split("\n\nfailures:\n    ").next().unwrap();
    for (what, first) in [
        ("a hermetic test", FIRST.replace("NAME", "cli::a")),
        ("a hermetic test beside another", two),
        ("a unit test", first.replace("-p prof --test it", "-p prof-sys --lib")),
        ("two programs", first.replace("--test it`", "--test it`\n    `-p prof-sys --lib`")),
        (
            "a program that is killed",
            format!("{cut}\n\nerror: 1 target failed:\n    `-p prof --test it`\n"),
        ),
        ("a list that is not complete", first.replace("1 failed", "2 failed")),
        ("the compiler", "error: could not compile `prof` (lib)\n".to_owned()),
    ] {
        let out = judge(&first, &SECOND.replace("NAME", &name), 0);
        assert_eq!(out.status.code(), Some(101), "{what}: {}", out.text());
        assert!(out.stderr.contains("final"), "{what}: {}", out.stderr);
    }
}

#[test]
fn each_class_has_tests_and_each_statistical_test_an_error_rate() {
    let mut list = Command::new(std::env::current_exe().unwrap());
    list.args(["--list", "--format", "terse"]);
    let list = run(list).ok().text();
    let tests: Vec<&str> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    assert!(tests.len() > 600, "{list}");
    let mut by_class = BTreeMap::new();
    for entry in classes() {
        let found: Vec<&&str> = tests.iter().filter(|test| entry.has(test)).collect();
        assert!(!found.is_empty(), "tests/classes.txt: no test {}", entry.tests);
        if entry.class == Class::Statistical {
            let rate: f64 = entry.reason.parse().expect("an error rate");
            assert!(rate > 0.0 && rate <= 1e-6, "{}: {rate}", entry.tests);
        } else {
            assert!(!entry.reason.is_empty(), "{}: why?", entry.tests);
        }
        for test in found {
            assert_eq!(by_class.insert(*test, entry.class), None, "{test} has two entries");
        }
    }
    assert_eq!(class_of("cli::wrong_usage_exits_with_2"), Class::Hermetic);
}
