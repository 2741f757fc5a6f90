//! Stacks of V8's built-in functions, which have no unwind information.

use std::path::Path;

use crate::common::targets::source;
use crate::common::{Prof, needs, read, temp_dir};

/// Some have no frame, move their return address, also by a number that is known at run time only, or
/// remove their callers' arguments in several ways.
#[test]
fn stacks_of_v8_s_builtins_are_whole() {
    if !needs(&["node"]) {
        return;
    }
    let dir = temp_dir();
    let script = source("builtins.js").display().to_string();
    let prof = Prof::new(&dir, "record -F 999").target(Path::new("node"), "--perf-basic-prof");
    prof.arg(&script).arg("2").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    for pid in p.label_values("pid") {
        std::fs::remove_file(format!("/tmp/perf-{pid}.map")).ok();
    }
    let moving = [
        "Builtins_CallVarargs",
        "Builtins_ResumeGeneratorTrampoline",
        "Builtins_Call_ReceiverIsAny",
    ];
    let is_moving = |f: &str| moving.contains(&f) || f.starts_with("Builtins_KeyedLoadIC");
    let is_script = |f: &&&str| f.starts_with("JS:") || f.starts_with("Builtins_");
    let (mut innermost, mut callbacks) = (Shares::default(), Shares::default());
    for frames in p.samples.iter().map(|s| p.user_frames(s)) {
        let is_whole = frames.last() == Some(&"_start");
        if frames.first().is_some_and(|f| is_moving(f)) {
            innermost.add(is_whole, &frames);
            let callers = frames.iter().skip(1).take_while(is_script).count();
            assert!(!is_whole || callers > 2, "{frames:?}");
        }
        if frames.contains(&"Builtins_CallApiCallback") {
            callbacks.add(is_whole, &frames);
        }
    }
    innermost.check("built-in functions");
    callbacks.check("callbacks");
}

/// Stacks, and how many of them are whole.
#[derive(Default)]
struct Shares {
    all: usize,
    whole: usize,
    others: Vec<String>,
}

impl Shares {
    fn add(&mut self, is_whole: bool, frames: &[&str]) {
        self.all += 1;
        self.whole += usize::from(is_whole);
        if !is_whole {
            self.others.push(frames.join(" < "));
        }
    }

    fn check(&self, what: &str) {
        let Shares { all, whole, others } = self;
        println!("{whole} of {all} stacks of {what} are whole");
        assert!(*all > 0 && whole * 10 > all * 9, "{what}: {whole} of {all}: {others:#?}");
    }
}
