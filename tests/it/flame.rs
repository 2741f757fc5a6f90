//! `prof flame` on pprof files.

use std::collections::BTreeMap;
use std::path::Path;

use profile::{Builder, Column, LabelSetId, LocationId};

use crate::common::views::{self, HALF};
use crate::common::{Prof, needs, temp_dir};
use quick_xml::events::Event;

/// Name, start and end (in the profile's unit) of every box of an SVG, which must be well-formed.
fn boxes(svg: &str) -> Vec<(String, i64, i64)> {
    let mut reader = quick_xml::Reader::from_str(svg);
    let (mut out, mut text, mut open) = (Vec::new(), String::new(), 0);
    loop {
        match reader.read_event().expect("well-formed XML") {
            Event::Eof => break,
            Event::Start(_) => {
                open += 1;
                text.clear();
            }
            Event::Text(t) => text.push_str(&t.decode().unwrap()),
            Event::GeneralRef(r) => text.push(match &*r.decode().unwrap() {
                "lt" => '<',
                "gt" => '>',
                "amp" => '&',
                other => panic!("&{other};"),
            }),
            Event::End(e) => {
                open -= 1;
                // The document has a title, too.
                if e.name().as_ref() == b"title" && open > 1 {
                    out.push((text.rsplit_once(" (").unwrap().0.to_string(), 0, 0));
                }
            }
            Event::Empty(e) => {
                let number = |name: &str| -> Option<i64> {
                    let a = e.try_get_attribute(name).unwrap()?;
                    Some(std::str::from_utf8(&a.value).unwrap().parse().unwrap())
                };
                if let (Some(x), Some(width)) = (number("fg:x"), number("fg:w")) {
                    let last = out.last_mut().expect("a title before the box");
                    (last.1, last.2) = (x, x + width);
                }
            }
            _ => {}
        }
    }
    assert_eq!(open, 0, "unclosed elements");
    out
}

/// Total of each name: boxes of a recursion lie above each other and count once.
fn sums(svg: &str) -> BTreeMap<String, i64> {
    let mut boxes = boxes(svg);
    boxes.sort();
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    let mut reached = i64::MIN;
    let mut last = String::new();
    for (name, start, end) in boxes {
        if name != last {
            reached = i64::MIN;
        }
        *sums.entry(name.clone()).or_default() += (end - start.max(reached)).max(0);
        reached = reached.max(end);
        last = name;
    }
    sums
}

fn flame(dir: impl AsRef<Path>, args: &str) -> String {
    Prof::new(dir, "flame").args(args).run().ok().text()
}

#[test]
fn boxes_have_the_known_values() {
    let dir = temp_dir();
    views::known(&dir);
    let svg = flame(&dir, "known.pb.gz");
    let expected = [("all", 18), ("main", 18), ("foo1", 8), ("foo2", 6), ("bar", 10)];
    let expected = expected.map(|(n, halves)| (n.to_string(), halves * HALF)).into();
    assert_eq!(sums(&svg), expected);
    assert!(svg.contains("<title>foo1 (cpu 4.00 s, 44.44%, self 1.50 s, known)</title>"));
    assert!(svg.contains(">known: cpu, 9.00 s</text>"));
    assert!(svg.contains(">18 samples</text>"), "the subtitle");
    let counted = flame(&dir, "known.pb.gz --type samples --title Hello --width 900");
    assert!(counted.contains("<title>foo1 (samples 8, 44.44%, self 3, known)</title>"));
    assert!(counted.contains(">Hello</text>") && counted.contains("width=\"900\""));
    let reversed = sums(&flame(&dir, "known.pb.gz --reverse --flame"));
    assert_eq!(reversed["bar"], 10 * HALF);
    assert_eq!(reversed["main"], 18 * HALF);
}

#[test]
fn report_and_flame_graph_agree() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    views::go_profiles(&dir);
    for (file, kind) in [("cpu.pb.gz", "cpu"), ("heap.pb.gz", "alloc_space")] {
        let args = format!("{file} --type {kind}");
        let drawn = sums(&flame(&dir, &format!("{args} --min-width 0")));
        let json = Prof::new(&dir, "report --json").args(&args).run().ok();
        let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        let mut expected: BTreeMap<String, i64> = BTreeMap::new();
        for row in value["rows"].as_array().unwrap() {
            let name = row["function"].as_str().unwrap().to_string();
            *expected.entry(name).or_default() += row["total"].as_i64().unwrap();
        }
        assert!(expected.len() > 5, "{file}: {expected:?}");
        expected.insert("all".to_string(), value["total"].as_i64().unwrap());
        assert_eq!(drawn, expected, "{file}");
    }
}

#[test]
fn processes_are_roots_and_special_characters_are_escaped() {
    let dir = temp_dir();
    views::odd(&dir);
    let expected = [
        ("all", 4),
        ("a;b", 3),
        ("<c & d>", 1),
        ("operator; 12", 3),
        ("std::map<int, T&>::at(\"x\")", 4),
    ];
    let mut expected: BTreeMap<_, _> = expected.map(|(n, v)| (n.to_string(), v)).into();
    let svg = flame(&dir, "odd.pb.gz");
    assert_eq!(sums(&svg), expected);
    assert!(svg.contains(">operator; 12</text>"));
    expected.remove("a;b");
    expected.remove("<c & d>");
    assert_eq!(sums(&flame(&dir, "odd.pb.gz --root none")), expected);
    let folded = flame(&dir, "odd.pb.gz --folded --root process");
    assert_eq!(
        folded,
        "<c & d>;std::map<int, T&>::at(\"x\") 1\n\
         a:b;std::map<int, T&>::at(\"x\");operator: 12 3\n"
    );
    Prof::new(&dir, "flame odd.pb.gz --root planet").run().refused(1, &["planet"]);
}

#[test]
fn every_colour_scheme_draws_a_different_picture() {
    let dir = temp_dir();
    views::known(&dir);
    let mut seen = std::collections::BTreeSet::new();
    for scheme in ["language", "package", "kernel", "self", "total"] {
        let svg = flame(&dir, &format!("known.pb.gz --colors {scheme}"));
        assert_eq!(sums(&svg)["all"], 18 * HALF);
        seen.insert(svg);
    }
    assert_eq!(seen.len(), 5, "schemes differ");
}

#[test]
fn output_goes_to_a_file() {
    let dir = temp_dir();
    views::known(&dir);
    let out = Prof::new(&dir, "flame known.pb.gz -o out.svg").run().ok();
    assert!(out.stdout.is_empty());
    let svg = std::fs::read_to_string(dir.path().join("out.svg")).unwrap();
    assert_eq!(sums(&svg)["all"], 18 * HALF);
    Prof::new(&dir, "flame known.pb.gz -o no/such/out.svg").run().refused(1, &["no/such/out.svg"]);
    // Only a file is replaced by a file.
    Prof::new(&dir, "flame known.pb.gz -o /dev/null").run().ok();
    use std::os::unix::fs::FileTypeExt;
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
}

#[test]
fn negative_values_are_left_out_and_counted() {
    let dir = temp_dir();
    views::gains_and_losses(&dir);
    let out = Prof::new(&dir, "flame mixed.pb.gz").run().ok();
    let expected = [("all", 5), ("main", 5)].map(|(n, v)| (n.to_string(), v)).into();
    assert_eq!(sums(&out.text()), expected);
    out.says(&["prof: 1 sample with a negative value is left out"]);
    let out = Prof::new(&dir, "flame mixed.pb.gz --focus freed").run();
    out.refused(1, &["values of type space are negative or zero"]);
}

#[test]
fn nothing_to_draw_is_an_error() {
    let dir = temp_dir();
    views::known(&dir);
    views::empty(&dir);
    Prof::new(&dir, "flame empty.pb.gz").run().refused(1, &["nothing to draw", "no samples"]);
    Prof::new(&dir, "flame known.pb.gz --focus x{9}").run().refused(1, &["passes the filter"]);
    Prof::new(&dir, "flame known.pb.gz --focus [").run().refused(2, &["--focus"]);
    let out = Prof::new(&dir, "flame missing.pb.gz -o out.svg").run();
    out.refused(1, &["missing.pb.gz"]);
    assert!(!dir.path().join("out.svg").exists());
}

#[test]
fn a_picture_of_another_kind_is_refused_with_the_way_to_get_it() {
    let dir = temp_dir();
    views::known(dir.path());
    let way = ["out.png: prof draws SVG: -o out.svg", "rsvg-convert -f png out.svg -o out.png"];
    Prof::new(&dir, "flame known.pb.gz -o out.png").run().refused(2, &way);
    // Before a recording.
    Prof::new(&dir, "flame -o out.png -- touch ran").run().refused(2, &way);
    let way = ["-o out.dot", "dot -Tpdf out.dot -o out.pdf"];
    Prof::new(&dir, "graph known.pb.gz -o out.pdf").run().refused(2, &way);
    for name in ["out.png", "out.pdf", "ran"] {
        assert!(!dir.path().join(name).exists(), "{name}");
    }
    Prof::new(&dir, "flame known.pb.gz --json -o out.png").run().ok();
}

#[test]
fn a_difference_says_that_the_recordings_are_of_unequal_lengths() {
    let dir = temp_dir();
    let write = |name: &str, seconds: i64| {
        let mut b = Builder::new(&[("samples", "count")]);
        let main = b.named_location("main");
        b.add(&[main], LabelSetId::EMPTY, 1, &[]);
        b.profile.duration_nanos = seconds * 1_000_000_000;
        let file = std::fs::File::create(dir.path().join(name)).unwrap();
        formats::pprof::write(&b.finish(None), file).unwrap();
    };
    write("long.pb.gz", 16);
    write("short.pb.gz", 8);
    let line = "recordings of unequal lengths: 16.00 s before, 8.00 s after";
    let run = |args: &str| Prof::new(&dir, &format!("flame --diff {args} -o out.svg")).run().ok();
    let drawn = || std::fs::read_to_string(dir.path().join("out.svg")).unwrap();
    let out = run("long.pb.gz short.pb.gz");
    assert!(out.stderr.contains(&format!("{line}; --per-second compares")), "{}", out.stderr);
    assert!(drawn().contains(line));
    for equal in ["long.pb.gz long.pb.gz", "long.pb.gz short.pb.gz --per-second"] {
        let out = run(equal);
        assert!(out.stderr.is_empty() && !drawn().contains("unequal"), "{equal}: {}", out.stderr);
    }
}

/// A profile of wide stacks, and of one of 300 frames with a thousandth of the samples.
pub fn with_a_deep_stack(dir: &Path) {
    let mut b = Builder::new(&[("samples", "count")]);
    let mut names: Vec<_> = ["main", "wide", "other"].map(|name| b.named_location(name)).into();
    names.extend((0..300).map(|level| b.named_location(&format!("deep{level}"))));
    let mut add = |stack: &[LocationId], value| {
        b.add_stack(stack, None, LabelSetId::EMPTY, 0, &[(Column(0), value)]);
    };
    add(&[names[0], names[1]], 600);
    add(&[names[0], names[2]], 399);
    let deep = [&names[..1], &names[3..]].concat();
    add(&deep, 1);
    let file = std::fs::File::create(dir.join("deep.pb.gz")).unwrap();
    formats::pprof::write(&b.finish(None), file).unwrap();
}

/// The `y` of the box of a function, or of an element.
fn y_of(svg: &str, start: &str) -> f64 {
    let after = svg.split_once(start).unwrap_or_else(|| panic!("no {start}: {svg}")).1;
    after.split_once(" y=\"").unwrap().1.split_once('"').unwrap().0.parse().unwrap()
}

/// The height that any window has, of 1280×720 too.
const FIRST_SCREEN: f64 = 600.0;

#[test]
fn a_window_shows_the_roots_and_the_widest_boxes_first() {
    let dir = temp_dir();
    with_a_deep_stack(dir.path());
    let options = ["", "--left-heavy", "--icicle", "--diff deep.pb.gz", "--title x --width 900"];
    for options in options {
        let svg = flame(&dir, &format!("deep.pb.gz --min-width 0 {options}"));
        for name in ["all", "main", "wide", "other"] {
            let y = y_of(&svg, &format!("<title>{name} ("));
            assert!(y < FIRST_SCREEN, "{options}: {name} at {y}");
        }
        assert!(y_of(&svg, "<title>deep299 (") > 3000.0, "the height is that of all rows");
        assert!(!svg.contains("window.scrollTo("), "{options}");
    }
    // Roots at the bottom, which the window moves to.
    let svg = flame(&dir, "deep.pb.gz --min-width 0 --flame");
    assert!(y_of(&svg, "<title>main (") > 3000.0);
    assert!(svg.contains("window.scrollTo(0, 1e9);"), "{svg}");
    // Below 300 callers.
    let svg = flame(&dir, "deep.pb.gz --min-width 0 --sandwich deep299");
    let y = y_of(&svg, "<title>deep299 (");
    assert!(y > 3000.0 && svg.contains(&format!("scrollTo(0, {y} - ")), "{y}");
}
