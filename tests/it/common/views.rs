//! Profiles with known answers for the tests of the views.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use profile::{
    Builder, Column, Function, FunctionId, Label, LabelSetId, LabelValue, Line, LocationId,
    Mapping, MappingId, Profile,
};

use crate::common;

/// Half a second, in which the known answers are counted.
pub const HALF: i64 = 500_000_000;

fn mapping(b: &mut Builder, path: &str) -> MappingId {
    let file = b.profile.strings.intern(path);
    b.add_mapping(Mapping { start: 0x1000, limit: 0x9000, file, ..Mapping::default() })
}

fn location(b: &mut Builder, mapping: MappingId, address: u64, names: &[&str]) -> LocationId {
    let id = b.location(Some(mapping), address);
    let mut lines = Vec::new();
    for name in names {
        let name = b.profile.strings.intern(name);
        let filename = b.profile.strings.intern("known.c");
        let function = FunctionId(b.profile.functions.len() as u32);
        b.profile.functions.push(Function { name, system_name: name, filename, start_line: 1 });
        lines.push(Line { function, line: 7, column: 0 });
    }
    b.profile.set_lines(id, &lines);
    id
}

fn save(profile: &Profile, path: PathBuf) -> PathBuf {
    formats::pprof::write(profile, File::create(&path).unwrap()).unwrap();
    path
}

/// Of 9 s: self bar 5, main 2, foo1 1.5, foo2 0.5; total main 9, foo1 4, foo2 3. bar is inlined
/// into foo2.
pub fn known(dir: impl AsRef<Path>) -> PathBuf {
    let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    let app = mapping(&mut b, "/usr/bin/known");
    let main = location(&mut b, app, 0x1010, &["main"]);
    let foo1 = location(&mut b, app, 0x1020, &["foo1"]);
    let foo2 = location(&mut b, app, 0x1030, &["foo2"]);
    let bar = location(&mut b, app, 0x1040, &["bar"]);
    let inlined = location(&mut b, app, 0x1050, &["bar", "foo2"]);
    let stacks: [(&[LocationId], i64); 5] = [
        (&[main], 4),
        (&[foo1, main], 3),
        (&[foo2, main], 1),
        (&[bar, foo1, main], 5),
        (&[inlined, main], 5),
    ];
    for (stack, halves) in stacks {
        for _ in 0..halves {
            b.add(stack, LabelSetId::EMPTY, 1, &[(Column(1), HALF)]);
        }
    }
    save(&b.finish(None), dir.as_ref().join("known.pb.gz"))
}

/// Two processes, `a;b` (3) and `<c & d>` (1), with functions that have odd names.
pub fn odd(dir: impl AsRef<Path>) -> PathBuf {
    let mut b = Builder::new(&[("samples", "count")]);
    let app = mapping(&mut b, "/usr/bin/odd");
    let one = location(&mut b, app, 0x1010, &["operator; 12"]);
    let two = location(&mut b, app, 0x1020, &["std::map<int, T&>::at(\"x\")"]);
    let key = b.profile.strings.intern("process");
    for (process, stack, n) in [("a;b", vec![one, two], 3), ("<c & d>", vec![two], 1)] {
        let value = LabelValue::Str(b.profile.strings.intern(process));
        let labels = b.profile.labels.intern(&[Label { key, value }]);
        for _ in 0..n {
            b.add(&stack, labels, 1, &[]);
        }
    }
    save(&b.finish(None), dir.as_ref().join("odd.pb.gz"))
}

/// 5 bytes in `main`, -3 in `freed` called by it.
pub fn gains_and_losses(dir: impl AsRef<Path>) -> PathBuf {
    let mut b = Builder::new(&[("space", "bytes")]);
    let app = mapping(&mut b, "/usr/bin/known");
    let main = location(&mut b, app, 0x1010, &["main"]);
    let freed = location(&mut b, app, 0x1020, &["freed"]);
    b.add(&[main], LabelSetId::EMPTY, 0, &[(Column(0), 5)]);
    b.add(&[freed, main], LabelSetId::EMPTY, 0, &[(Column(0), -3)]);
    save(&b.finish(None), dir.as_ref().join("mixed.pb.gz"))
}

/// A profile without samples, but with a sample type.
pub fn empty(dir: impl AsRef<Path>) -> PathBuf {
    let b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    save(&b.finish(None), dir.as_ref().join("empty.pb.gz"))
}

/// Lets a Go program write cpu.pb.gz and heap.pb.gz of itself into `dir`.
pub fn go_profiles(dir: impl AsRef<Path>) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets/profiles.go");
    let binary = dir.as_ref().join("profiles");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&binary).arg(source).stdin(Stdio::null());
    common::run::run(build).ok();
    let mut run = Command::new(binary);
    run.arg(dir.as_ref()).stdin(Stdio::null());
    common::run::run(run).ok();
}

/// The values of [`unscaled`]: of `leaf`, `other` and `main`.
pub const UNSCALED: [i64; 3] = [i64::MIN / 2, 1_234_567_890_123, 5];

/// Functions `leaf` and `other`, called by `main`, in a unit without a scale.
pub fn unscaled() -> Profile {
    let mut b = Builder::new(&[("energy", "microjoules")]);
    let app = mapping(&mut b, "/usr/bin/long");
    let [main, leaf, other] = [(0x1010, "main", 2), (0x1020, "leaf", 4), (0x1030, "other", 6)].map(
        |(address, name, line)| {
            let id = b.location(Some(app), address);
            let name = b.profile.strings.intern(name);
            let filename = b.profile.strings.intern("long.c");
            let function = FunctionId(b.profile.functions.len() as u32);
            let start_line = line - 1;
            b.profile.functions.push(Function { name, system_name: name, filename, start_line });
            b.profile.set_lines(id, &[Line { function, line, column: 0 }]);
            id
        },
    );
    let stacks: [&[LocationId]; 3] = [&[leaf, main], &[other, main], &[main]];
    for (stack, value) in stacks.into_iter().zip(UNSCALED) {
        b.add(stack, LabelSetId::EMPTY, 0, &[(Column(0), value)]);
    }
    b.finish(Some(app))
}
