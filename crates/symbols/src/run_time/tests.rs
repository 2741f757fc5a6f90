use std::io::Write;
use std::sync::atomic::AtomicU64;

use super::*;
use sys::jit::jitdump::writer::{self, load, moved};

fn map_file(text: &str) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn span(first: u64, last: u64) -> Span {
    Span { first, last }
}

/// Names (or `?`) of addresses that were sampled then, and the report.
fn resolve(sources: Sources, requested: &[(u64, Span)]) -> (Vec<String>, Report) {
    let mut code = RunTime::new(Arc::new(sources));
    let numbers: Vec<u64> = requested.iter().map(|&(a, span)| code.add(a, span)).collect();
    let resolved = code.resolve(&numbers, true, &AtomicU64::new(u64::MAX));
    let names = (0..numbers.len()).map(|i| match resolved.get(i) {
        [frame] if frame.line > 0 => {
            let text = |id| resolved.strings.get(id);
            format!("{} {}:{}", text(frame.name), text(frame.file), frame.line)
        }
        [frame] => resolved.strings.get(frame.name).to_owned(),
        _ => "?".to_owned(),
    });
    (names.collect(), code.report())
}

fn resolve_map(text: &str, marks: &[SizeMark], requested: &[(u64, Span)]) -> (Vec<String>, Report) {
    let sources = Sources { map: Some(map_file(text)), marks: marks.into(), ..Sources::default() };
    resolve(sources, requested)
}

fn resolve_dump(parts: &[Vec<u8>], requested: &[(u64, Span)]) -> (Vec<String>, Report) {
    let parts = [&[writer::header(0)], parts].concat();
    resolve(Sources { dump: Some(writer::file(&parts)), ..Sources::default() }, requested)
}

#[test]
fn without_times_the_last_of_overlapping_entries_counts() {
    let text = "1000 100 old\n1040 20 new\n0f80 90 before\n5000 10 a\n5000 10 b\nnonsense\n";
    let at = [0xf7f, 0xf80, 0x100f, 0x1010, 0x1040, 0x105f, 0x1060, 0x1100, 0x5000];
    let (names, report) = resolve_map(text, &[], &at.map(|a| (a, Span::END)));
    assert_eq!(names, ["?", "before", "before", "old", "new", "new", "old", "?", "b"]);
    assert_eq!((report.bad_lines, report.reused), (1, 0));
    // With unknown times, an address with two names gets none.
    let (names, report) = resolve_map(text, &[], &at.map(|a| (a, Span::UNKNOWN)));
    assert_eq!(names, ["?", "before", "?", "old", "?", "?", "old", "?", "?"]);
    assert_eq!(report.reused, 4);
}

#[test]
fn results_equal_a_search_from_the_end() {
    let mut seed = 7u64;
    let mut random = move |n: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % n
    };
    let entries: Vec<(u64, u64)> = (0..200).map(|_| (random(500), 1 + random(60))).collect();
    let text: String =
        entries.iter().enumerate().map(|(i, (s, n))| format!("{s:x} {n:x} f{i}\n")).collect();
    let requested: Vec<(u64, Span)> = (0..600).map(|a| (a, Span::END)).collect();
    let (names, _) = resolve_map(&text, &[], &requested);
    for (address, name) in (0..600).zip(names) {
        let expected = entries.iter().rposition(|&(s, n)| address >= s && address < s + n);
        let expected = expected.map_or("?".to_owned(), |i| format!("f{i}"));
        assert_eq!(name, expected, "{address:#x}");
    }
}

#[test]
fn a_perf_map_that_grew_is_read_by_time() {
    let old = "1000 10 old\n";
    let new = "1000 10 new\n1000 10 newer\n";
    let late = "2000 10 late\n";
    let size = |parts: &[&str]| parts.iter().map(|p| p.len() as u64).sum();
    let marks = [
        SizeMark { size: size(&[old]), by: 10, seen: 100 },
        SizeMark { size: size(&[old, new]), by: 150, seen: 200 },
        SizeMark { size: size(&[old, new, late]), by: 900, seen: 1000 },
    ];
    let requested = [
        (0x1000, span(20, 90)),   // before the new ones
        (0x1001, span(160, 170)), // after them
        (0x1002, span(90, 160)),  // both
        (0x1003, span(5, 90)),    // may predate the first entry
        (0x2000, span(20, 90)),   // named later, as Java does at its end
        (0x3000, span(20, 90)),
    ];
    let (names, report) = resolve_map(&[old, new, late].concat(), &marks, &requested);
    assert_eq!(names, ["old", "newer", "?", "old", "late", "?"]);
    assert_eq!(report.reused, 1);
}

#[test]
fn the_work_for_a_perf_map_is_bounded() {
    let line = "0 7fffffff everything\n";
    let requested: Vec<(u64, Span)> = (0..20_000).map(|a| (a, Span::END)).collect();
    let (_, report) = resolve_map(&line.repeat(10_000), &[], &requested);
    assert!(matches!(report.error, Some(Cause::Damaged(_))), "{report:?}");
    let sparse = tempfile::tempfile().unwrap();
    sparse.set_len(5 << 30).unwrap();
    let sources = Sources { map: Some(sparse), ..Sources::default() };
    let (names, report) = resolve(sources, &[(1, Span::END)]);
    assert_eq!(names, ["?"]);
    assert!(report.error.unwrap().to_string().contains("1 GiB"));
}

#[test]
fn a_jitdump_is_read_by_time() {
    let parts = [
        load(100, 0x1000, 0x10, "first"),
        load(200, 0x1000, 0x10, "_ZN3foo3barEv"),
        load(300, 0x1008, 0x10, "third"),
        load(3_000_000_000, 0x1000, 0x10, "last"),
    ];
    let requested = [
        (0x1000, span(150, 199)),
        (0x1001, span(200, 2_000)),
        (0x1002, span(199, 201)),
        (0x1009, span(250, 260)),
        (0x1009, span(310, 320)),
        (0x1017, span(250, 260)), // an agent that is a little late
        (0x1003, span(50, 60)),
        (0x1004, span(4_000_000_000, 4_000_000_000)),
        (0x1018, span(310, 320)),
    ];
    let (names, report) = resolve_dump(&parts, &requested);
    let expected = ["first", "foo::bar", "?", "foo::bar", "third", "third", "first", "last", "?"];
    assert_eq!(names, expected);
    assert_eq!((report.reused, report.error), (1, None));
    let far = [load(5_000_000_000, 0x1000, 0x10, "much later")];
    assert_eq!(resolve_dump(&far, &[(0x1000, span(1, 2))]).0, ["?"]);
}

#[test]
fn moved_code_keeps_its_name_and_lines() {
    let entries: &[(u64, u32, &[u8])] = &[(0x1000, 3, b"/a.js"), (0x1008, 4, b"\xff")];
    let parts = [
        writer::lines(90, 0x1000, entries),
        load(100, 0x1000, 0x10, "f"),
        moved(200, 0x1000, 0x2000, 0x10),
        load(250, 0x1000, 0x10, "g"),
        moved(300, 0x2000, 0x3000, 0x10),
        moved(400, 0x1000, 0x2000, 0x10),
    ];
    let requested = [
        (0x1009, span(150, 160)),
        (0x2009, span(210, 220)),
        (0x3001, span(310, 320)),
        (0x2009, span(410, 420)),
        (0x2004, span(210, 420)),
    ];
    let (names, report) = resolve_dump(&parts, &requested);
    assert_eq!(names, ["f /a.js:4", "f /a.js:4", "f /a.js:3", "g", "?"]);
    assert_eq!(report.reused, 1);
}

#[test]
fn v8_s_line_addresses_and_freed_names_are_corrected() {
    let entries: &[(u64, u32, &[u8])] = &[
        (0x1040, 3, b"file:///a b.js"),
        (0x1048, 4, b"\xff"),
        (0x104c, 5, b"\x10\xc0\x01"),
        (0x104e, 6, b")m"),
    ];
    let name = "JS:*f /a b.js:7:1";
    let parts = [writer::lines(90, 0x1000, entries), load(100, 0x1000, 0x10, name)];
    let requested = [0x1007, 0x1008, 0x100c, 0x100e].map(|a| (a, span(150, 160)));
    let [first, second] = [3, 4].map(|line| format!("{name} /a b.js:{line}"));
    assert_eq!(resolve_dump(&parts, &requested).0, [&first, &second, name, name]);
}

#[test]
fn errors_of_a_jitdump_are_reported() {
    let whole = [load(1, 0x1000, 0x10, "whole"), load(2, 0x2000, 0x1000, "cut")].concat();
    let requested = [(0x1000, span(5, 6)), (0x2000, span(5, 6))];
    let (names, report) = resolve_dump(&[whole[..200].to_vec()], &requested);
    assert_eq!((names[0].as_str(), report.error), ("whole", Some(Cause::JitdumpCut)));
    let (_, report) = resolve_dump(&[whole, vec![0; 40]], &requested);
    assert!(matches!(report.error, Some(Cause::Damaged(_))));
    for (bytes, cut) in [(&b"JiTD"[..], true), (&[7; 100], false)] {
        let file = writer::file(&[bytes.to_vec()]);
        let (_, report) = resolve(Sources { dump: Some(file), ..Sources::default() }, &requested);
        assert_eq!(report.error == Some(Cause::JitdumpCut), cut, "{report:?}");
        assert!(report.error.is_some());
    }
    // A time stamp of the CPU's counter has no known clock: one name is accepted, two are not.
    let parts = [
        writer::header(1),
        load(1, 0x1000, 0x10, "a"),
        load(2, 0x2000, 0x10, "b"),
        load(3, 0x2000, 0x10, "c"),
    ];
    let sources = Sources { dump: Some(writer::file(&parts)), ..Sources::default() };
    assert_eq!(resolve(sources, &requested).0, ["a", "?"]);
}

#[test]
fn files_are_found_by_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf-7.map");
    assert_eq!(RunTime::open(&path, 0).unwrap_err(), Cause::PerfMapMissing);
    assert!(matches!(RunTime::open(dir.path(), 0), Err(Cause::Unreadable(_))));
    std::fs::write(&path, "1000 10 f\n").unwrap();
    let mut code = RunTime::open(&path, 0).unwrap();
    let number = code.add(0x1000, Span::END);
    assert_eq!(code.resolve(&[number], false, &AtomicU64::new(u64::MAX)).get(0).len(), 1);
    if std::fs::metadata(&path).unwrap().created().is_ok() {
        assert_eq!(RunTime::open(&path, 1).unwrap_err(), Cause::PerfMapNewer);
    }
    assert!(RunTime::open(&path, i64::MAX).is_ok());
}
