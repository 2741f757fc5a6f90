use super::*;
use crate::WriteOptions;
use crate::assembly::{AddedSample, Assembly, ColumnValue};
use profile::{LabelSetId, Line, LocationId};
use proptest::prelude::*;
use view::testing::answers;

fn read(text: &str) -> Result<Profile, String> {
    Callgrind.read(&mut text.as_bytes()).map_err(|error| error.to_string())
}

fn written(p: &Profile) -> String {
    let mut out = Vec::new();
    write::write(p, &WriteOptions { type_index: 0 }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Each sample as its stack, the root first, with its values.
fn content(p: &Profile) -> Vec<String> {
    let name = |&location: &LocationId| {
        let at = &p.locations[location.0 as usize];
        let binary = at.mapping.map_or("", |m| p.str(p.mappings[m.0 as usize].file));
        let name = |line: &Line| {
            let function = &p.functions[line.function.0 as usize];
            format!("{}@{}:{}", p.str(function.name), p.str(function.filename), line.line)
        };
        let names: Vec<_> = p.lines_of(location).iter().rev().map(name).collect();
        format!("{binary} {}", names.join(";"))
    };
    let row = |row: usize| {
        let stack = p.stacks.get(p.samples[row].stack).iter().rev();
        format!("{} {:?}", stack.map(name).collect::<Vec<_>>().join(";"), p.values_of(row))
    };
    let mut rows: Vec<String> = (0..p.samples.len()).map(row).collect();
    rows.sort();
    rows
}

const TEXT: &str = "# callgrind format\nversion: 1\ncreator: callgrind-3.19.0\npid: 7\n\
    cmd: ./a b\npart: 1\n\ndesc: I1 cache: \npositions: line\nevents: Ir Dr\nsummary: 100 10\n\n\
    ob=(1) /bin/a\nfl=(1) a.c\nfn=(1) main\n5 10 1\ncfn=(2) work\ncalls=3 20\n+2 60\n* 4\n\
    fi=(2) in.h\n3 6\nfe=(1)\n-1 1\ncob=(2) /lib/c.so\ncfi=(3) ???\ncfn=(3) (below main)\n\
    calls=1 0\n6 19 9\n\nfn=(2)\n20 60\njfi=(4) d.c\njump=2 +1\n*\nfi=(4)\nfe=(1)\n\nob=(2)\nfl=(3)\nfn=(3)\n0 19 9\ntotals: 100 10\n";

#[test]
fn the_first_event_of_a_file_of_cachegrind_is_shown() {
    let text = "desc: I1 cache: 32768 B, 64 B, 8-way\ncmd: ./a\nevents: Ir DLmw\nfl=a.c\nfn=main\n\
        3 7 2\nsummary: 7 2\n";
    assert!(Callgrind.detect(text.as_bytes()));
    let p = read(text).unwrap();
    assert_eq!((p.type_names(), p.default_type_index()), (vec!["Ir".into(), "DLmw".into()], 0));
    let units: Vec<_> = p.sample_types.iter().map(|t| p.str(t.unit)).collect();
    assert_eq!((units, p.total(0), p.total(1)), (vec!["count", "count"], 7, 2));
    // The order of a file of prof's is that of the profile, which shows the last by default.
    let own = read(&format!("version: 1\ncreator: prof\n{text}")).unwrap();
    assert_eq!(own.default_type_index(), 1);
}

#[test]
fn costs_and_calls_are_read() {
    let p = read(TEXT).unwrap();
    assert_eq!(p.type_names(), ["Ir", "Dr"]);
    assert_eq!([p.total(0), p.total(1)], [100, 10]);
    let expected = [
        "/bin/a main@a.c:2 [1, 0]",
        "/bin/a main@a.c:5 [10, 1]",
        "/bin/a main@a.c:6;/lib/c.so (below main)@:0 [19, 9]",
        "/bin/a main@a.c:7 [4, 0]",
        "/bin/a main@a.c:7;/bin/a work@a.c:20 [60, 0]",
        "/bin/a main@in.h:3 [6, 0]",
    ];
    assert_eq!(content(&p), expected);
    let comments: Vec<_> = p.comments.iter().map(|&c| p.str(c)).collect();
    assert_eq!(comments, ["command: ./a b", profile::comment::ESTIMATED_STACKS]);
}

#[test]
fn costs_are_divided_among_callers_and_recursion_ends() {
    let p = read(
        "events: Ir\nfn=main\n1 0\ncfn=a\ncalls=1 1\n1 75\ncfn=b\ncalls=1 1\n2 25\n\
         fn=a\n1 0\ncfn=work\ncalls=1 1\n1 75\nfn=b\n1 0\ncfn=work\ncalls=1 1\n1 25\n\
         fn=work\n9 100\ncfn=work\ncalls=1 1\n8 50\ncfn=a\ncalls=1 1\n8 1\n",
    )
    .unwrap();
    assert_eq!(content(&p), [" main@:1; a@:1; work@:9 [75]", " main@:2; b@:1; work@:9 [25]"]);
}

#[test]
fn all_sample_types_are_written_with_units() {
    let before = answers();
    let text = written(&before);
    assert!(Callgrind.detect(text.as_bytes()), "{text}");
    assert!(
        text.contains("desc: Unit of cpu: nanoseconds\npositions: line\nevents: samples cpu\n"),
        "{text}"
    );
    assert!(text.contains("summary: 18 9000000000\n"), "{text}");
    let after = read(&text).unwrap();
    let units: Vec<_> = after.sample_types.iter().map(|t| after.str(t.unit)).collect();
    assert_eq!(units, ["count", "nanoseconds"]);
    assert_eq!(content(&after), content(&before));
}

#[test]
fn wrong_lines_are_named() {
    for (text, what) in [
        ("events: Ir\n1 2\n", "line 2: costs of no function: fn= comes first"),
        ("events: Ir\nfn=a\n1 2 3\n", "line 3: there are more costs than events"),
        ("events: Ir\nfn=a\n+x 2\n", "line 3: no position: +x"),
        ("events: Ir\nfn=a\n1 x\n", "line 3: no cost: x"),
        ("events: Ir\nfn=(1)\n", "line 2: name number 1 is used before it is defined"),
        ("events: Ir\nfn=a\ncalls=1 1\n1 1\n", "line 4: a call of no function: cfn= comes first"),
        ("events: Ir\nevents: Dr\n", "line 2: a part has other events than the first"),
        ("positions: x\n", "line 1: a position has an unknown part x"),
        ("what\n", "line 1: it is neither KEY: VALUE nor KEY=NAME nor costs"),
        ("version: 1\n", "it names no events"),
    ] {
        let error = read(text).unwrap_err();
        assert_eq!(error, format!("not valid callgrind file: {what}"));
    }
}

#[test]
fn parts_of_a_file_are_added_up() {
    let part = |names: [&str; 2], cost: u32| {
        let [file, function] = names;
        format!(
            "\npid: 1\ncmd: ./a\npart: 1\npositions: line\nevents: Ir Dr\nsummary: {cost}\n\n\
             {file}\n{function}\n+3 {cost}\ncfn=x\ncalls=1 1\n"
        )
    };
    let first = part(["fl=(1) a.c", "fn=(1) main"], 5);
    let p = read(&format!("version: 1\n{first}{}", part(["fl=(1)", "fn=(1)"], 6))).unwrap();
    assert_eq!(
        (p.type_names(), content(&p)),
        (vec!["Ir".to_owned(), "Dr".to_owned()], vec![" main@a.c:3 [11, 0]".to_owned()])
    );
    let comments: Vec<_> = p.comments.iter().map(|&c| p.str(c)).collect();
    assert_eq!(comments, ["command: ./a"]);
}

#[test]
fn callgrind_files_are_recognized() {
    for text in [
        TEXT,
        "version: 1\ncreator: callgrind-3.19\n",
        "desc: I1 cache: 32768 B\ncmd: ./a\nevents: Ir\nfl=a.c\n",
    ] {
        assert!(Callgrind.detect(text.as_bytes()), "{text}");
    }
    for text in ["", "events: Ir\n", "desc: --massif\ncmd: ./a\ntime_unit: i\n"] {
        assert!(!Callgrind.detect(text.as_bytes()), "{text}");
    }
}

/// Each function calls each that follows: 2^40 paths lead to the last.
#[test]
fn the_number_of_paths_is_bounded() {
    use std::fmt::Write;
    let mut text = "events: Ir\n".to_owned();
    for caller in 0..40 {
        writeln!(text, "fn=f{caller}\n1 1").unwrap();
        for callee in caller + 1..40 {
            writeln!(text, "cfn=f{callee}\ncalls=1 1\n{callee} 1000000").unwrap();
        }
    }
    text += "fn=f39\n1 1000000000\n";
    let p = read(&text).unwrap();
    assert_eq!(p.total(0), 1_000_000_040);
    assert!(p.samples.len() <= 40_000, "{}", p.samples.len());
}

/// The last function of a chain, in which each of two functions calls both that follow: 2^levels
/// paths lead to it. A cost of it is as large as another is negative.
fn diamonds(levels: usize) -> String {
    let mut text =
        "events: Mem\nfn=other\n1 -1000000000000000\nfn=leaf\n1 1000000000000000\n".to_owned();
    for level in 1..levels {
        let below = level - 1;
        let callees = match level {
            1 => vec!["leaf".to_owned()],
            _ => vec![format!("a{below}"), format!("b{below}")],
        };
        for side in ["a", "b"] {
            text += &format!("fn={side}{level}\n");
            for callee in &callees {
                text += &format!("cfn={callee}\ncalls=1 1\n1 1\n");
            }
        }
    }
    text
}

#[test]
fn negative_costs_do_not_unbound_the_number_of_paths() {
    let p = read(&diamonds(48)).unwrap();
    assert_eq!(p.total(0), 0);
    assert!(p.samples.len() <= 20_001, "{}", p.samples.len());
}

/// Each of 200 events has 2^14 paths, which are more than the file may have.
#[test]
fn costs_beyond_the_most_paths_have_the_most_expensive_callers() {
    let names: Vec<String> = (0..200).map(|event| format!("e{event}")).collect();
    let costs = |cost: &str| vec![cost; 200].join(" ");
    let text = diamonds(15)
        .replace("events: Mem", &format!("events: {}", names.join(" ")))
        .replace("\n1 -1000000000000000", &format!("\n1 {}", costs("-7")))
        .replace("\n1 1000000000000000", &format!("\n1 {}", costs("1000000")))
        .replace("\n1 1\n", &format!("\n1 {}\n", costs("1")));
    let p = read(&text).unwrap();
    assert!((0..200).all(|event| p.total(event) == 999_993));
    let comment = p.comments.iter().map(|&c| p.str(c)).find(|c| c.contains(" of e199 "));
    let end = " of e199 has the most expensive callers only: too many paths lead to it";
    assert!(comment.is_some_and(|c| c.starts_with("note: ") && c.ends_with(end)), "{comment:?}");
    assert!(p.samples.len() < 110_000, "{}", p.samples.len());
}

proptest! {
    /// A function has a single caller: its stacks are those of the calls.
    #[test]
    fn what_both_formats_hold_survives(
        samples in proptest::collection::vec(
            (proptest::collection::vec(0..3usize, 1..6), 1..99i64, 1..99i64, 1..4i64),
            1..20,
        )
    ) {
        let mut all = Assembly::new(&[("samples", "count"), ("alloc_space", "bytes")]);
        for (path, first, second, line) in samples {
            let mut stack = Vec::new();
            for depth in (1..=path.len()).rev() {
                let name = format!("f{:?}", &path[..depth]);
                let function = all.function(&name, "a.c", 0);
                // A call is always from the same line.
                let line = if depth == path.len() { line } else { 7 };
                let mapping = Some(all.mapping("/bin/a"));
                stack.push(all.location(mapping, 0, &[Line { function, line, column: 0 }]));
            }
            let value = |column, value| ColumnValue { column, value };
            let values = [value(0, first), value(1, second)];
            let labels = LabelSetId::EMPTY;
            all.add(AddedSample { stack: &stack, labels, values: &values, time: None });
        }
        let before = all.finish();
        prop_assert_eq!(content(&read(&written(&before)).unwrap()), content(&before));
    }

    #[test]
    fn any_text_is_read_or_refused(
        text in "(events: a b\n|fn=[a-c]\n|cfn=[a-c]\n|calls=1 1\n|[+-]?[0-9]{1,2} [0-9]{1,3}\n|[ -~]{0,9}\n){0,30}"
    ) {
        if let Ok(p) = read(&text) {
            written(&p);
        }
    }
}
