//! Filters, `-o` and `prof merge`, compared with `go tool pprof`.

mod generated;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::pprof::Pprof;
use crate::common::run::run;
use crate::common::views;
use crate::common::{Prof, needs, read, temp_dir};
use formats::pprof;
use generated::{Kind, built};
use profile::{Builder, Column};

/// The filters that are compared, for a profile of this kind.
fn filters(kind: Kind) -> Vec<&'static str> {
    let mut all = vec![
        "",
        "focus=line2001",
        "focus=file3000|line1",
        "focus=library",
        "focus=^$",
        "ignore=line3002",
        "ignore=testbinary",
        "hide=line300[12]",
        "hide=library",
        "hide=file3000",
        "show=line3",
        "show=library",
        "show=line2|anonymous",
        "show_from=line3001",
        "show_from=testbinary",
        "show_from=operator",
        "prune_from=line3001",
        "prune_from=^run$|operator",
        "prune_from=namespace\\)::run$",
        "tagfocus=tag1",
        "tagfocus=key1=tag1,tag2",
        "tagfocus=key1:tag1,key2:tag1",
        "tagignore=tag0",
        "tagignore=key2=tag",
        "tagshow=1|by",
        "taghide=key",
        "tagshow=key taghide=2",
        "tagroot=key1",
        "tagleaf=key1,key2",
        "tagroot=key2,key1 tagleaf=nothing focus=tag1",
        "focus=line2 ignore=line3002 hide=line2000",
        "hide=line3000 show=line show_from=line3",
        "show_from=line3 prune_from=line3001 hide=line3002",
        "focus=line1 tagfocus=tag1 tagignore=tag2 taghide=key1",
        "ignore=operator show=line|T tagroot=key1 prune_from=line3000",
        "hide=.",
    ];
    if let Kind::Heap = kind {
        all.extend([
            "tagfocus=1kb:64kb",
            "tagfocus=:8kb",
            "tagfocus=256kb:",
            "tagfocus=bytes=4096b",
            "tagignore=request=1kb:1mb",
            "tagfocus=arena=8mb:16mb",
            "tagfocus=7",
            "tagroot=bytes",
            "tagleaf=request,arena tagignore=bytes=:4kb focus=line",
        ]);
    }
    all
}

fn go(arguments: impl Fn(&mut Command)) -> String {
    let mut command = Command::new("go");
    command.args(["tool", "pprof", "-symbolize=none"]).stdin(Stdio::null());
    arguments(&mut command);
    run(command).ok().text()
}

/// The options of a filter, for `prof`.
fn own(filter: &str) -> impl Iterator<Item = String> + '_ {
    filter.split_whitespace().map(|word| format!("--{}", word.replacen("_from", "-from", 1)))
}

/// Samples by stack and labels. Those of pprof without a value or a stack are left out, and frames
/// of a missing label have no name.
fn samples(p: &Pprof) -> BTreeMap<String, Vec<i64>> {
    let mut all: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for sample in &p.samples {
        let frame = |location: &u64| {
            let names: Vec<&str> = p.lines[location]
                .iter()
                .map(|name| if name.starts_with("[no ") { "" } else { name })
                .collect();
            let binary = p.mapping_of.get(location).map_or("", |&i| p.mappings[i].file.as_str());
            let source = p.sources.get(location);
            format!("{} {binary} {:#x} {source:?}", names.join("+"), p.addresses[location])
        };
        let stack: Vec<String> = sample.locations.iter().map(frame).collect();
        if stack.is_empty() || sample.values.iter().all(|&v| v == 0) {
            continue;
        }
        let key = format!("{} {:?}", stack.join(" < "), sample.labels);
        let sums = all.entry(key).or_insert_with(|| vec![0; sample.values.len()]);
        sums.iter_mut().zip(&sample.values).for_each(|(sum, value)| *sum += value);
    }
    all
}

fn check_files(dir: &Path, file: &Path, filters: &[&str]) {
    for filter in filters {
        let theirs = dir.join("theirs.pb.gz");
        go(|command| {
            let mut output = std::ffi::OsString::from("-output=");
            output.push(&theirs);
            command.arg("-proto").arg(output);
            command.args(filter.split_whitespace().map(|word| format!("-{word}"))).arg(file);
        });
        let mut prof = Prof::new(dir, "report -o ours.pb.gz").arg(file);
        for option in own(filter) {
            prof = prof.arg(option);
        }
        prof.run().ok();
        let theirs = samples(&read(theirs));
        let ours = samples(&read(dir.join("ours.pb.gz")));
        assert_eq!(ours, theirs, "{filter} {}", file.display());
    }
}

#[test]
fn filtered_files_equal_those_of_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    for kind in [Kind::Cpu, Kind::Heap, Kind::Contention] {
        let file = built(dir.path(), kind);
        check_files(dir.path(), &file, &filters(kind));
    }
}

/// Values by the name of a row: self, total, number of rows.
type Rows = BTreeMap<String, (i64, i64, usize)>;

fn add(rows: &mut Rows, name: &str, own: i64, total: i64) {
    if own != 0 || total != 0 {
        let row = rows.entry(name.trim().to_owned()).or_default();
        *row = (row.0 + own, row.1 + total, row.2 + 1);
    }
}

fn their_rows(file: &Path, unit: &str, options: &[String]) -> Rows {
    let text = go(|command| {
        command.args(["-top", "-trim=false", &format!("-unit={unit}")]).args(options).arg(file);
    });
    let mut rows = Rows::new();
    let table = text.lines().skip_while(|line| !line.trim_start().starts_with("flat ")).skip(1);
    for line in table {
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |word: &str| {
            let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            digits.parse::<i64>().unwrap_or_else(|_| panic!("{line}"))
        };
        let name = words[5..].join(" ");
        let name = name.trim_end_matches("(inline)").trim_end_matches("(partial-inline)");
        add(&mut rows, name, value(words[0]), value(words[3]));
    }
    rows
}

/// The name of a row as pprof prints it.
fn name_of(row: &serde_json::Value, granularity: &str) -> String {
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let binary = || format!("[{}]", text("binary").rsplit('/').next().unwrap());
    let function = text("function");
    let file = match (text("file"), row["line"].as_i64()) {
        (file, Some(line)) => format!("{file}:{line}"),
        (file, None) => file,
    };
    match granularity {
        "functions" => function,
        "files" if file.is_empty() => "[library.so]".to_owned(),
        "files" => file,
        "addresses" => {
            let address = u64::from_str_radix(&text("address")[2..], 16).unwrap();
            let name = if file.is_empty() { binary() } else { format!("{function} {file}") };
            format!("{address:016x} {name}")
        }
        _ => format!("{function} {file}"),
    }
}

fn our_rows(dir: &Path, file: &Path, granularity: &str, options: &[String]) -> Rows {
    let mut prof = Prof::new(dir, "report --json --granularity").arg(granularity).arg(file);
    for option in options {
        prof = prof.arg(option);
    }
    let json: serde_json::Value = serde_json::from_slice(&prof.run().ok().stdout).unwrap();
    let mut rows = Rows::new();
    for row in json["rows"].as_array().unwrap() {
        let value = |key: &str| row[key].as_i64().unwrap();
        add(&mut rows, &name_of(row, granularity), value("self"), value("total"));
    }
    rows
}

#[test]
fn rows_of_each_granularity_equal_those_of_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    for kind in [Kind::Cpu, Kind::Heap, Kind::Contention] {
        let file = built(dir.path(), kind);
        for granularity in ["functions", "filefunctions", "files", "lines", "addresses"] {
            for filter in ["", "hide=line2 noinlines", "tagfocus=tag1 show_from=line3 noinlines"] {
                let mut theirs: Vec<String> =
                    filter.split_whitespace().map(|word| format!("-{word}")).collect();
                theirs.push(format!("-{granularity}"));
                let ours: Vec<String> = own(filter).collect();
                let theirs = their_rows(&file, kind.unit(), &theirs);
                let mut ours = our_rows(dir.path(), &file, granularity, &ours);
                // pprof has a row for each line in which a function of the file begins, without
                // showing it, so that totals cannot be added up.
                for (name, row) in &theirs {
                    if granularity == "files" && row.2 > 1 {
                        let own = ours.get_mut(name).unwrap();
                        (own.1, own.2) = (row.1, row.2);
                    }
                }
                assert_eq!(ours, theirs, "{kind:?} {granularity} {filter}");
            }
        }
    }
}

#[test]
fn a_recording_is_filtered_as_by_pprof() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let script = "for i in {1..20000}; do x=$((i*2)); done; (for i in {1..20000}; do :; done)";
    Prof::new(&dir, "record -F 999 -- bash -c").arg(script).run().ok();
    let file = dir.path().join("profile.pb.gz");
    let filters = [
        "",
        "focus=execute_command",
        "ignore=libc",
        "hide=bash|libc",
        "show=execute",
        "show_from=execute_command_internal",
        "prune_from=parse_and_execute",
        "tagfocus=process=bash",
        "tagfocus=process:bash,thread:bash",
        "tagfocus=pid=1:",
        "tagignore=bash",
        "tagroot=process,thread tagleaf=tid taghide=.",
        "tagshow=process focus=main",
    ];
    check_files(dir.path(), &file, &filters);
}

#[test]
fn frames_that_a_profile_drops_are_dropped() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let file = built(dir.path(), Kind::Heap);
    let mut profile = formats::read_file(&file).unwrap();
    for (drop, keep) in [("line3001", ""), ("line.*", "line3000"), ("\\(anon.*|line2.*", "")] {
        profile.drop_frames = profile.strings.intern(drop);
        profile.keep_frames = profile.strings.intern(keep);
        pprof::write(&profile, File::create(&file).unwrap()).unwrap();
        check_files(dir.path(), &file, &["", "focus=line", "hide=line3000"]);
        let unit = Kind::Heap.unit();
        let theirs = their_rows(&file, unit, &["-lines".into()]);
        assert_eq!(our_rows(dir.path(), &file, "lines", &[]), theirs, "{drop} {keep}");
    }
}

#[test]
fn merged_files_add_up() {
    let dir = temp_dir();
    let known = views::known(dir.path());
    let once = read(&known);
    Prof::new(&dir, "merge known.pb.gz known.pb.gz -o all.pb.gz").run().ok();
    let twice = read(dir.path().join("all.pb.gz"));
    assert_eq!(twice.total(1), 2 * once.total(1));
    assert_eq!(twice.samples.len(), once.samples.len());
    Prof::new(&dir, "merge all.pb.gz --focus foo2 -o all.pb.gz").run().ok();
    let part = read(dir.path().join("all.pb.gz"));
    assert_eq!(part.total(1), 2 * 6 * views::HALF);
    // What only other samples had is not in the file.
    assert!(!part.lines.values().flatten().any(|name| name == "foo1"), "{:?}", part.lines);
}

#[test]
fn only_profiles_are_replaced() {
    let dir = temp_dir();
    views::known(dir.path());
    std::fs::write(dir.path().join("notes.txt"), "mine\n").unwrap();
    for command in ["merge known.pb.gz -o notes.txt", "report known.pb.gz -o notes.txt"] {
        Prof::new(&dir, command)
            .run()
            .refused(1, &["notes.txt by a profile: it has another format"]);
        assert_eq!(std::fs::read(dir.path().join("notes.txt")).unwrap(), b"mine\n");
    }
    Prof::new(&dir, "report known.pb.gz --focus foo1 -o known.pb.gz").run().ok();
    assert_eq!(read(dir.path().join("known.pb.gz")).total(1), 8 * views::HALF);
    Prof::new(&dir, "report missing.pb.gz -o new.pb.gz").run().exits(1);
    assert!(!dir.path().join("new.pb.gz").exists());
}

#[test]
fn wrong_filters_are_explained() {
    let dir = temp_dir();
    views::known(dir.path());
    for (options, words) in [
        ("--show-from (", "--show-from"),
        ("--tagfocus key=a,[", "--tagfocus"),
        ("--tagignore 1:99999999999999999999kb", "64 bits"),
        ("--taghide *", "--taghide"),
        ("--granularity words", "--granularity"),
    ] {
        let report = Prof::new(&dir, &format!("report known.pb.gz {options}"));
        report.run().refused(2, &[words]);
    }
    Prof::new(&dir, "merge known.pb.gz").run().exits(2);
    let none =
        Prof::new(&dir, "report known.pb.gz --focus nothing --hide x1 --tagroot x2 --thread x3");
    let text = none.run().ok().stderr;
    for line in [
        "prof: --focus nothing: no frame matches",
        "prof: --hide x1: no frame matches",
        "prof: --tagroot x2: no sample has such a label",
        "prof: --thread x3: no thread matches",
    ] {
        assert_eq!(text.matches(line).count(), 1, "{text}");
    }
}

/// Names of 100 KB with control characters, a recursion of 10,000 frames, negative values.
#[test]
fn hostile_profiles_are_filtered() {
    let dir = temp_dir();
    let mut b = Builder::new(&[("x", "count"), ("x", "count")]);
    let long = format!("\x1b[31m{}", "n\u{202e}".repeat(25_000));
    let again = b.named_location(&long);
    let main = b.named_location("main");
    let mut stack = vec![again; 10_000];
    stack.push(main);
    b.add(&stack, profile::LabelSetId::EMPTY, 0, &[(Column(0), 1), (Column(1), -5)]);
    b.add(&[], profile::LabelSetId::EMPTY, 0, &[(Column(0), 1), (Column(1), 3)]);
    let mut hostile = b.finish(None);
    hostile.drop_frames = hostile.strings.intern("(a{1000}){1000}");
    let file = dir.path().join("hostile.pb.gz");
    pprof::write(&hostile, File::create(&file).unwrap()).unwrap();
    views::empty(&dir);
    for file in ["hostile.pb.gz", "empty.pb.gz"] {
        for options in [
            "--show-from n --hide main",
            "--prune-from main --tagroot k --tagleaf k",
            "--ignore main --no-inlines --granularity files",
            "--granularity addresses --json",
            "--tagfocus 1kb --process x --binary y",
        ] {
            let command = format!("report {file} {options}");
            let output = Prof::new(&dir, &command).run().ok();
            assert!(!output.stdout.contains(&0x1b), "{command}");
            if !options.contains("json") {
                Prof::new(&dir, &format!("{command} -o out.pb.gz")).run().ok();
                read(dir.path().join("out.pb.gz"));
            }
        }
    }
    // As it was: only views replace characters.
    Prof::new(&dir, "report hostile.pb.gz -o out.pb.gz --show-from n.n").run().ok();
    let written = read(dir.path().join("out.pb.gz"));
    assert!(written.lines.values().flatten().any(|name| *name == long));
    assert_eq!(written.samples[0].locations.len(), 10_000);
}
