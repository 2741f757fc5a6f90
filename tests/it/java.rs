//! Methods of Java in recordings, without a flag, a perf map or frame pointers.

use crate::common::interpreted;
use crate::common::pprof::Sample;
use crate::common::{Build, Prof, needs, read, target, temp_dir};

const MAPPING: &str = "[java]";

/// `a` calls only `a`, and `b` only `b`. At least this share of the stacks is whole, in percent.
#[track_caller]
fn assert_one_moment(options: &str, complete: usize) {
    if !needs(&["java", "javac"]) {
        return;
    }
    let dir = temp_dir();
    let classes = target("Recursions", Build::Java);
    let classes = classes.to_str().unwrap();
    let arguments = format!("{options} -cp {classes} Recursions 3");
    Prof::new(&dir, "record --timestamps -F 1999").target("java", &arguments).run().ok();
    let profile = read(dir.path().join("profile.pb.gz"));
    let names = |sample: &Sample| -> Vec<String> {
        let frames = interpreted::frames(&profile, sample, MAPPING);
        frames.iter().map(|frame| frame.function.to_owned()).collect()
    };
    let is_main = |name: &String| name == "Recursions.main(String[])";
    let (mut all, mut whole, mut both, mut deep) = (0, 0, 0, 0);
    for sample in &profile.samples {
        let names = names(sample);
        if names.is_empty() {
            continue;
        }
        let count = |name: &str| names.iter().filter(|found| *found == name).count();
        let [a, b] = ["Recursions.a(int)", "Recursions.b(int)"].map(count);
        let is_cut = profile.frames(sample).iter().any(|frame| frame.starts_with("[truncated"));
        let samples = sample.times.len();
        // Before and after that is the loading of classes, whose stacks have to be whole as well.
        let reaches = !is_cut && (a + b == 0 || names.last().is_some_and(is_main));
        all += samples;
        whole += if reaches { samples } else { 0 };
        both += if a > 0 && b > 0 { samples } else { 0 };
        deep += if a.max(b) > 15 { samples } else { 0 };
        // One more: of instructions between calls, HotSpot describes only the next call, which may be of
        // a method that is inlined there.
        assert!(a.max(b) <= 22, "{options}: {a}, {b}: {names:?}");
    }
    println!("{options}: {whole} of {all} samples are whole, {deep} are deep");
    assert_eq!(both, 0, "{options}: of {all}");
    assert!(all > 300 && deep * 4 > all, "{options}: {deep} of {all} are deep");
    assert!(whole * 100 >= all * complete, "{options}: {whole} of {all} are whole");
}

#[test]
fn no_stack_of_java_has_methods_of_two_moments() {
    assert_one_moment("-Xshare:auto", 97);
}

#[test]
fn no_stack_of_interpreted_java_has_methods_of_two_moments() {
    assert_one_moment("-Xint", 97);
}

#[test]
fn no_stack_of_the_first_compiler_has_methods_of_two_moments() {
    assert_one_moment("-XX:TieredStopAtLevel=1", 97);
}

#[test]
fn no_stack_has_methods_of_two_moments_while_code_is_replaced() {
    // What was replaced before it is read ends its stack.
    assert_one_moment("-XX:ReservedCodeCacheSize=4m -XX:+UseCodeCacheFlushing", 90);
}

#[test]
fn methods_have_files_and_lines() {
    if !needs(&["java", "javac"]) {
        return;
    }
    let dir = temp_dir();
    let classes = target("Recursions", Build::Java);
    let arguments = format!("-cp {} Recursions 2", classes.to_str().unwrap());
    Prof::new(&dir, "record -F 999").target("java", &arguments).run().ok();
    let profile = read(dir.path().join("profile.pb.gz"));
    let source =
        std::fs::read_to_string(crate::common::targets::source("Recursions.java")).unwrap();
    let lines_with = |text: &str| -> Vec<i64> {
        let lines = source.lines().zip(1..);
        lines.filter(|(line, _)| line.contains(text)).map(|(_, number)| number).collect()
    };
    let calls = lines_with("return a(depth - 1) + 1");
    let mut found = 0;
    for sample in &profile.samples {
        let frames = interpreted::frames(&profile, sample, MAPPING);
        for pair in frames.windows(2) {
            let are_a = pair.iter().all(|frame| frame.function == "Recursions.a(int)");
            if are_a {
                // The caller is in the line of its call.
                assert_eq!(pair[1].file, "Recursions.java");
                assert!(calls.contains(&pair[1].line), "{pair:?}");
                found += 1;
            }
        }
    }
    assert!(found > 100, "{found} calls");
}
