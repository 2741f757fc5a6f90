//! One recording, several readers: prof's own views, go's pprof, protoc and the tests' decoder
//! agree to the last digit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::common;
use crate::common::{Build, Pprof, Prof, go, machine, needs, read, target, temp_dir, write};
use profile::LocationId;

/// A recording with inlined functions, kernel frames, several threads and processes.
fn recording() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    machine::share();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("agreement");
        std::fs::create_dir_all(&dir).unwrap();
        let script = format!(
            "{} 1 & {} 2 0 1 2000 & {} 400 4 500; wait",
            target("known", Build::Rust).display(),
            target("threads", Build::CDebug).display(),
            target("forker", Build::CDebug).display()
        );
        let mut prof = Prof::new(&dir, "record -F 1999 -e cpu-clock,page-faults").target("sh", "");
        prof.command.arg("-c").arg(script);
        prof.run().ok();
        dir.join("profile.pb.gz")
    })
}

/// Function → (self, total) of one column.
type Table = BTreeMap<String, (i64, i64)>;

/// The table by the tests' own decoder; a function counts once in a stack.
fn table(p: &Pprof, column: usize) -> Table {
    let mut table = Table::new();
    for s in &p.samples {
        let frames = p.frames(s);
        let value = s.values[column];
        if let Some(leaf) = frames.first() {
            table.entry(leaf.to_string()).or_default().0 += value;
        }
        for function in frames.iter().collect::<std::collections::BTreeSet<_>>() {
            table.entry(function.to_string()).or_default().1 += value;
        }
    }
    table.retain(|name, values| *values != (0, 0) && name != "[?]");
    table
}

fn report_json(file: &Path, options: &str) -> serde_json::Value {
    let dir = temp_dir();
    let out = Prof::new(&dir, "report --json").args(options).arg(file).run().ok();
    serde_json::from_str(&out.text()).unwrap()
}

/// The table as `prof report --json` gives it: rows of one function in several binaries are one.
fn report_table(file: &Path, kind: &str) -> (Table, i64) {
    let json = report_json(file, &format!("-n 0 --type {kind}"));
    let mut table = Table::new();
    for row in json["rows"].as_array().unwrap() {
        let Some(name) = row["function"].as_str() else { continue };
        let values = table.entry(name.to_string()).or_default();
        values.0 += row["self"].as_i64().unwrap();
        values.1 += row["total"].as_i64().unwrap();
    }
    table.retain(|_, values| *values != (0, 0));
    (table, json["total"].as_i64().unwrap())
}

#[test]
fn report_agrees_with_the_file() {
    let p = read(recording());
    for kind in ["samples", "cpu", "page-faults"] {
        let column = p.column(kind);
        let (rows, total) = report_table(recording(), kind);
        assert_eq!(total, p.total(column), "{kind}");
        assert!(total > 0, "{kind}");
        let want = table(&p, column);
        // A stack can contain a function of one name twice, once for each of two binaries.
        for (name, values) in &want {
            assert_eq!(rows.get(name).map(|v| v.0), Some(values.0), "{kind} {name} self");
            assert!(rows[name].1 >= values.1, "{kind} {name} total");
        }
        let same = want.iter().filter(|(name, v)| rows.get(*name) == Some(v)).count();
        assert!(same * 100 >= want.len() * 97, "{same} of {}", want.len());
    }
}

#[test]
fn go_pprof_top_agrees_with_report() {
    if !needs(&["go"]) {
        return;
    }
    for (kind, unit) in [("samples", "count"), ("cpu", "nanoseconds"), ("page-faults", "count")] {
        let theirs = go::top(recording(), kind, unit);
        let ours = table(&read(recording()), read(recording()).column(kind));
        assert!(theirs.len() > 10);
        for (name, values) in &ours {
            let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(theirs.get(&name), Some(values), "{kind} {name}");
        }
    }
}

#[test]
fn go_pprof_reads_without_a_warning() {
    if !needs(&["go"]) {
        return;
    }
    for mode in ["-top", "-raw", "-traces", "-peek=bar", "-tags"] {
        let out = go::pprof(&[mode], recording());
        let words = out.stderr.trim();
        assert!(words.is_empty(), "{mode}: {words}");
        assert!(!out.stdout.is_empty(), "{mode}");
    }
}

/// Each row of "Samples:" in `-raw` is one sample with its values and locations.
#[test]
fn go_pprof_raw_holds_the_same_samples() {
    if !needs(&["go"]) {
        return;
    }
    let p = read(recording());
    let text = go::pprof(&["-raw"], recording()).text();
    let mut lines = text.lines().skip_while(|l| !l.starts_with("Samples:")).skip(1);
    let types = lines.next().unwrap();
    let want: Vec<String> = p.sample_types.iter().map(|(k, u)| format!("{k}/{u}")).collect();
    let types: Vec<&str> = types.split_whitespace().map(|t| t.trim_end_matches("[dflt]")).collect();
    assert_eq!(types, want);
    let mut theirs = Vec::new();
    for line in lines.take_while(|l| !l.starts_with("Locations")) {
        let Some((values, _)) = line.split_once(": ") else { continue };
        let values: Option<Vec<i64>> = values.split_whitespace().map(|v| v.parse().ok()).collect();
        theirs.extend(values.filter(|v| v.len() == p.sample_types.len()));
    }
    let mut ours: Vec<Vec<i64>> = p.samples.iter().map(|s| s.values.clone()).collect();
    theirs.sort();
    ours.sort();
    assert!(theirs == ours, "{} samples against {}", theirs.len(), ours.len());
    let locations = text.lines().filter(|l| l.contains(": 0x")).count();
    assert!(locations >= p.lines.len() / 2, "{locations} of {}", p.lines.len());
}

#[test]
fn protoc_finds_no_unknown_field() {
    if !needs(&["protoc"]) {
        return;
    }
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    if !proto.join("profile.proto").exists() {
        return common::skip("tests/data/profile.proto does not exist");
    }
    let mut raw = Vec::new();
    let gz = std::fs::File::open(recording()).unwrap();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(gz), &mut raw).unwrap();
    let dir = temp_dir();
    let file = dir.path().join("raw");
    std::fs::write(&file, raw).unwrap();
    let mut protoc = Command::new("protoc");
    protoc.arg("--decode=perftools.profiles.Profile").arg("-I").arg(&proto);
    protoc.arg("profile.proto").stdin(Stdio::from(std::fs::File::open(&file).unwrap()));
    let text = common::run::run(protoc).ok().text();
    // protoc prints a known field by its name, an unknown one by its number.
    let unknown = |l: &&str| l.trim_start().starts_with(|c: char| c.is_ascii_digit());
    assert_eq!(text.lines().find(unknown), None);
    let samples = text.lines().filter(|l| *l == "sample {").count();
    assert_eq!(samples, read(recording()).samples.len());
}

/// Folded stacks, summed by function, are the report's totals.
#[test]
fn the_flame_graph_agrees_with_the_report() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "flame --folded --root none --type cpu").arg(recording()).run().ok();
    let mut folded = Table::new();
    let mut sum = 0;
    for line in out.text().lines() {
        let (stack, value) = line.rsplit_once(' ').unwrap();
        let value: i64 = value.parse().unwrap();
        sum += value;
        let frames: Vec<&str> = stack.split(';').collect();
        folded.entry(frames.last().unwrap().to_string()).or_default().0 += value;
        for frame in frames.iter().collect::<std::collections::BTreeSet<_>>() {
            folded.entry(frame.to_string()).or_default().1 += value;
        }
    }
    let (report, total) = report_table(recording(), "cpu");
    assert_eq!(sum, total);
    for name in ["main", "thread_work", "child_work", "known::bar", "known::foo1"] {
        let find = |t: &Table| {
            t.iter().filter(|(n, _)| n.as_str() == name).map(|(_, v)| *v).next().unwrap_or_default()
        };
        assert_eq!(find(&folded), find(&report), "{name}");
        assert!(find(&folded).1 > 0, "{name} is in neither");
    }
}

#[test]
fn the_text_report_shows_what_the_json_holds() {
    let dir = temp_dir();
    let text = Prof::new(&dir, "report --type cpu").arg(recording()).run().ok().text();
    let json = report_json(recording(), "--type cpu");
    let first = json["rows"][0]["function"].as_str().unwrap().to_string();
    assert!(text.contains(&first), "{first} is not in:\n{text}");
}

/// (binary, offset) → names of the lines, source of the innermost.
type Named = BTreeMap<(String, u64), (Vec<String>, (String, i64))>;

/// Names from a later symbolization equal those from one at the end of the recording.
#[test]
fn symbolizing_later_gives_the_same_names() {
    let dir = temp_dir();
    let known = target("known", Build::Rust);
    for options in ["-o now.pb.gz", "--no-symbolize -o later.pb.gz"] {
        let out = Prof::new(&dir, "record -F 999").args(options).target(&known, "2").run().ok();
        let without = options.starts_with("--no-symbolize");
        assert_eq!(out.stderr.contains("next: prof symbolize later.pb.gz"), without);
    }
    let nameless = |file: &str| -> u64 {
        let comments = read(dir.path().join(file)).comments;
        let total = comments.iter().find_map(|c| c.strip_prefix("unsymbolized: "));
        total.expect("a total comes first").parse().expect("a number")
    };
    let samples = read(dir.path().join("later.pb.gz")).total(0) as u64;
    assert!(nameless("later.pb.gz") * 2 > samples, "{}", nameless("later.pb.gz"));
    let before = read(dir.path().join("later.pb.gz"));
    assert_eq!(before.self_share("bar"), 0.0);
    assert!(before.mappings.iter().any(|m| !m.build_id.is_empty()));
    Prof::new(&dir, "symbolize later.pb.gz").run().ok();
    assert!(nameless("later.pb.gz") * 10 < samples, "{}", nameless("later.pb.gz"));
    let (now, later) = (read(dir.path().join("now.pb.gz")), read(dir.path().join("later.pb.gz")));
    assert_eq!(before.total(1), later.total(1));
    // The samples that had names at the end of the recording get the same ones again.
    let mut nameless = formats::read_file(&dir.path().join("now.pb.gz")).unwrap();
    for location in 0..nameless.locations.len() {
        nameless.set_lines(LocationId(location as u32), &[]);
    }
    write(&nameless, &dir.path().join("again.pb.gz"));
    assert_eq!(read(dir.path().join("again.pb.gz")).total_share("bar"), 0.0);
    Prof::new(&dir, "symbolize again.pb.gz").run().ok();
    let again = read(dir.path().join("again.pb.gz"));
    for function in ["bar", "foo1", "foo2", "main"] {
        assert!(now.total_share(function) > 0.0, "{function}");
        assert_eq!(now.total_share(function), again.total_share(function), "{function}");
        assert_eq!(now.self_share(function), again.self_share(function), "{function}");
    }
    // The same address has the same name and line in both.
    let by_address = |p: &Pprof| -> Named {
        let locations = p.addresses.iter().filter_map(|(id, address)| {
            let m = &p.mappings[*p.mapping_of.get(id)?];
            let source = p.sources.get(id).cloned().unwrap_or_default();
            Some(((m.file.clone(), address.checked_sub(m.start)?), (p.lines[id].clone(), source)))
        });
        locations.filter(|((file, _), _)| file.ends_with("/known")).collect()
    };
    let (now, later, again) = (by_address(&now), by_address(&later), by_address(&again));
    let shared: Vec<_> = now.keys().filter(|k| later.contains_key(k)).collect();
    assert!(shared.len() > 10, "{} addresses in both", shared.len());
    for key in shared {
        assert_eq!(now[key], later[key], "{key:?}");
    }
    assert_eq!(now, again);
}

#[test]
fn header_prints_the_comments() {
    let dir = temp_dir();
    let text = Prof::new(&dir, "report --header").arg(recording()).run().ok().text();
    for comment in read(recording()).comments.iter().take(4) {
        let value = comment.split_once(": ").unwrap().1;
        assert!(text.contains(value), "{comment} is not in:\n{text}");
    }
}

#[test]
fn two_files_add_up() {
    let file = recording();
    let dir = temp_dir();
    let out = Prof::new(&dir, "report --json --type cpu").arg(file).arg(file).run().ok();
    let twice: serde_json::Value = serde_json::from_str(&out.text()).unwrap();
    let once = report_json(file, "--type cpu");
    assert_eq!(twice["total"].as_i64().unwrap(), 2 * once["total"].as_i64().unwrap());
}
