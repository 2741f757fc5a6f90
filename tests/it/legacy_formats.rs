//! Profiles of gperftools, jemalloc, Go (`debug=1`) and Java, compared with `go tool pprof` and
//! `jeprof` value for value.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use profile::{LabelValue, LocationId, Profile};

use crate::common::run::run;
use crate::common::{Build, Prof, go, needs, skip, target, temp_dir};

/// The files of pprof's own tests.
const TESTDATA: &str = "/usr/share/gocode/src/github.com/google/pprof/profile/testdata";

/// Text of `go tool pprof -raw`.
fn raw(file: &Path) -> String {
    go::pprof(&["-symbolize=none", "-raw"], file).text()
}

/// Whether a library to preload is there.
fn has_library(name: &str) -> bool {
    let has = Path::new("/usr/lib/x86_64-linux-gnu").join(name).exists();
    if !has {
        skip(&format!("{name} is not installed"));
    }
    has
}

#[test]
fn files_of_pprofs_tests_are_read_as_by_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let Ok(files) = std::fs::read_dir(TESTDATA) else {
        return skip("golang-github-google-pprof-dev is not installed");
    };
    let dir = temp_dir();
    let mut compared = 0;
    for path in files.map(|file| file.unwrap().path()) {
        if path.extension().is_some_and(|extension| extension == "string") {
            continue;
        }
        Prof::new(&dir, "export -o out.pb.gz").arg(&path).run().ok();
        let exported = dir.path().join("out.pb.gz");
        assert_eq!(raw(&exported), raw(&path), "{}", path.display());
        std::fs::remove_file(exported).unwrap();
        compared += 1;
    }
    assert!(compared >= 14, "only {compared} files");
}

/// The values of each stack with its numeric labels, where each frame has its address and mapping.
fn content(profile: &Profile) -> BTreeMap<String, Vec<i64>> {
    let frame = |location: &LocationId| {
        let location = &profile.locations[location.0 as usize];
        let mapping = location.mapping.map(|mapping| &profile.mappings[mapping.0 as usize]);
        let place = mapping.map(|m| {
            (m.start, m.limit, m.file_offset, profile.str(m.file), profile.str(m.build_id))
        });
        format!("{:x} {place:?}", location.address)
    };
    let mut all: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (row, sample) in profile.samples.iter().enumerate() {
        let values = profile.values_of(row);
        if values.iter().all(|&value| value == 0) {
            continue;
        }
        let frames: Vec<_> = profile.stacks.get(sample.stack).iter().map(frame).collect();
        let labels = profile.labels.get(sample.labels).iter();
        let numbers: Vec<_> = labels
            .filter_map(|label| match label.value {
                LabelValue::Num { value, .. } => Some((profile.str(label.key), value)),
                LabelValue::Str(_) => None,
            })
            .collect();
        let sums = all.entry(format!("{frames:?} {numbers:?}")).or_default();
        sums.resize(values.len(), 0);
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    all
}

fn types(profile: &Profile) -> Vec<String> {
    let types = profile.sample_types.iter().chain([&profile.period_type]);
    types.map(|t| format!("{} {}", profile.str(t.kind), profile.str(t.unit))).collect()
}

/// Compares what prof reads of a file with what pprof does. Estimates may differ in the last digits:
/// exp is exact to them, and differs between machines.
fn assert_same(file: &Path) -> Profile {
    let converted = file.with_extension("pb.gz");
    let output = format!("-output={}", converted.display());
    go::pprof(&["-symbolize=none", "-proto", &output], file);
    let theirs = formats::read_file(&converted).unwrap();
    let ours = formats::read_file(file).unwrap();
    assert_eq!(types(&ours), types(&theirs), "{}", file.display());
    assert_eq!(
        (ours.period, ours.duration_nanos, ours.str(ours.drop_frames)),
        (theirs.period, theirs.duration_nanos, theirs.str(theirs.drop_frames))
    );
    let (our_stacks, their_stacks) = (content(&ours), content(&theirs));
    assert!(!their_stacks.is_empty(), "{}", file.display());
    assert!(our_stacks.keys().eq(their_stacks.keys()), "{our_stacks:#?}\n{their_stacks:#?}");
    for (stack, theirs) in &their_stacks {
        for (ours, theirs) in our_stacks[stack].iter().zip(theirs) {
            let tolerance = 1 + theirs.unsigned_abs() / 1_000_000_000;
            assert!(ours.abs_diff(*theirs) <= tolerance, "{ours}, not {theirs}: {stack}");
        }
    }
    ours
}

#[test]
fn profiles_of_gperftools_are_read_as_by_pprof() {
    if !needs(&["gcc", "go"]) || !has_library("libprofiler.so.0") {
        return;
    }
    let dir = temp_dir();
    let program = target("allocates", Build::CFramePointers);
    let mut cpu = Command::new(&program);
    cpu.env("LD_PRELOAD", "libprofiler.so.0").env("CPUPROFILE", dir.path().join("cpu"));
    run(cpu).ok();
    let cpu = assert_same(&dir.path().join("cpu"));
    let main = cpu.str(cpu.mappings[0].file);
    assert!(main.ends_with("/allocates"), "{main}");

    let mut heap = Command::new(&program);
    heap.env("LD_PRELOAD", "libtcmalloc.so.4").env("HEAPPROFILE", dir.path().join("heap"));
    run(heap).ok();
    let heap = assert_same(&dir.path().join("heap.0001.heap"));
    assert_eq!(heap.default_type_index(), 3);
    assert!(heap.total(2) > 29_000, "{}", heap.total(2));
    let report = Prof::new(&dir, "report heap.0001.heap").run().ok().text();
    assert!(report.contains("Type: inuse_space [bytes]"), "{report}");
}

#[test]
fn texts_of_go_have_the_values_of_pprof_and_names() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let mut program = Command::new(target("texts", Build::Go));
    program.arg(dir.path());
    run(program).ok();
    for name in ["heap", "allocs", "mutex", "block", "goroutine"] {
        assert_same(&dir.path().join(format!("{name}.txt")));
    }
    // pprof refuses threads without a stack.
    let threads = formats::read_file(&dir.path().join("threadcreate.txt")).unwrap();
    assert!(threads.total(0) > 0);

    let report = |args: &str| Prof::new(&dir, args).run().ok().text();
    let heap = report("report heap.txt -n 0");
    assert!(heap.contains("main.(*box[...]).fill") && !heap.contains("0x"), "{heap}");
    assert!(report("report heap.txt --granularity lines").contains("texts.go:21"));
    for (file, name) in [("mutex", "sync.(*Mutex).Unlock"), ("block", "main.contend")] {
        assert!(report(&format!("report {file}.txt -n 0")).contains(name), "{file}");
    }
    let workers = report("export goroutine.txt --to collapsed --tagfocus kind=ü");
    assert!(workers.contains("runtime.goexit;runtime/pprof.Do;main.main.func2;"), "{workers}");
    assert!(workers.trim_end().ends_with(" 3"), "{workers}");
}

/// The total of jeprof.
fn jeprof(option: &str, program: &Path, file: &Path) -> f64 {
    let mut command = Command::new("jeprof");
    command.args(["--text", "--show_bytes", option]).arg(program).arg(file);
    let text = run(command).ok().text();
    let total = text.lines().find_map(|line| line.strip_prefix("Total: "));
    total.unwrap().split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn profiles_of_jemalloc_have_the_values_of_jeprof() {
    if !needs(&["gcc", "jeprof"]) || !has_library("libjemalloc.so.2") {
        return;
    }
    let program = target("allocates", Build::CFramePointers);
    for accumulates in [false, true] {
        let dir = temp_dir();
        let prefix = dir.path().join("heap");
        let conf = format!(
            "prof:true,prof_final:true,lg_prof_sample:12,prof_accum:{accumulates},prof_prefix:{}",
            prefix.display()
        );
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", "libjemalloc.so.2").env("MALLOC_CONF", conf);
        run(command).ok();
        let file = std::fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
        let profile = formats::read_file(&file).unwrap();
        let kinds: Vec<_> = profile.sample_types.iter().map(|t| profile.str(t.kind)).collect();
        let all = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"];
        assert_eq!(kinds, all[if accumulates { 0 } else { 2 }..]);
        for (column, kind) in kinds.iter().enumerate() {
            let theirs = jeprof(&format!("--{kind}"), &program, &file);
            let ours = profile.total(column) as f64;
            let rounding = profile.samples.len() as f64;
            assert!((ours - theirs).abs() <= rounding, "{kind}: {ours}, not {theirs}");
        }
        let threads = Prof::new(&dir, "export --to collapsed --tagroot thread").arg(&file);
        let threads = threads.run().ok().text();
        assert!(threads.lines().any(|line| line.starts_with("t1;")), "{threads}");
    }
}
