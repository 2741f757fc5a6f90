use super::*;
use profile::{Builder, LabelSetId, Profile};
use view::testing::{answers, odd_names, processes};
use view::{Cut, Direction, Granularity};

fn folded(p: &Profile, direction: Direction, roots: &[&str]) -> String {
    let mut view = View::new(p, 0, Granularity::SYMBOL);
    let roots: Vec<_> = roots.iter().map(|r| p.strings.find(r).unwrap()).collect();
    let tree = Tree::new(&mut view, direction, &roots, Cut::Nothing);
    let mut out = Vec::new();
    write_tree(&mut out, &view, &tree).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn each_stack_is_a_line_with_its_known_value() {
    assert_eq!(
        folded(&answers(), Direction::Callees, &[]),
        "main 4\nmain;foo1 3\nmain;foo1;bar 5\nmain;foo2 1\nmain;foo2;bar 5\n"
    );
    assert_eq!(
        folded(&answers(), Direction::Callers, &[]),
        "bar;foo1;main 5\nbar;foo2;main 5\nfoo1;main 3\nfoo2;main 1\nmain 4\n"
    );
}

#[test]
fn labels_are_the_lowest_frames() {
    assert_eq!(
        folded(&processes(), Direction::Callees, &["process"]),
        "db;serve;query;query 1\nweb:1;serve 3\n"
    );
}

#[test]
fn odd_names_stay_one_frame() {
    assert_eq!(
        folded(&odd_names(), Direction::Callees, &[]),
        "x_[k];tab new line 7;a b \"c\" 1\n\
         x_[k];tab new line 7;a b \"c\";std::vector<int, a&b>::push(int);operator: 1\n"
    );
    assert_eq!(folded_name(" \n"), "[no name]");
}

fn read_text(text: &str) -> Profile {
    read(&mut text.as_bytes()).unwrap()
}

/// What is written of a profile.
fn written(p: &Profile) -> String {
    let mut out = Vec::new();
    super::write(p, &WriteOptions { type_index: 0 }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn what_is_read_is_written_again() {
    let text = "0x7f12ab 4\n[no name] 1\nmain;a b (x.py:3) 5\nmain;a::b::{{closure}} 2\n\
                main;main;main 1\n";
    assert_eq!(written(&read_text(text)), text);
}

#[test]
fn lines_of_all_tools_are_read() {
    let text =
        "\u{feff}# a comment\r\n\r\nmain;work 3\r\n  main;work   4  \nmain;;x 1\nmain;cut\t2";
    assert_eq!(written(&read_text(text)), "main;[no name];x 1\nmain;cut 2\nmain;work 7\n");
    assert_eq!(written(&read_text("a;b -3\na;b 1\n")), "a;b -2\n");
}

#[test]
fn samples_without_a_stack_are_counted() {
    // Of py-spy 0.4.
    assert_eq!(written(&read_text("main;work 3\n 2\n")), "[no stack] 2\nmain;work 3\n");
    let error = read(&mut &b" 2\n7\n"[..]).unwrap_err().to_string();
    assert!(error.contains("no line up to here has a stack before its count"), "{error}");
}

#[test]
fn counts_with_decimals_are_rounded_and_noted() {
    let p = read_text("a;b 1.5\na;c 2.25\na;d 1e3\n");
    assert_eq!(written(&p), "a;b 2\na;c 2\na;d 1000\n");
    let comments: Vec<_> = p.comments.iter().map(|&c| p.str(c)).collect();
    assert_eq!(comments, ["note: 3 counts with decimals rounded"]);
}

#[test]
fn the_sum_of_counts_with_decimals_is_right() {
    let text: String = (0..100).map(|n| format!("main;f{n} 0.3\n")).collect();
    assert_eq!(read_text(&text).total(0), 30);
    assert_eq!(written(&read_text("main;x 0.4\nmain;y 0.3\n")), "main;y 1\n");
}

#[test]
fn functions_whose_names_begin_with_a_hash_are_no_comments() {
    let text = "# samples: 12\n#comment\n#init;main 5\n#run 2\n";
    assert_eq!(written(&read_text(text)), "#init;main 5\n#run 2\n");
}

#[test]
fn stacks_without_values_or_with_two_are_refused() {
    let error = |text: &str| read(&mut text.as_bytes()).unwrap_err().to_string();
    assert!(error("main;x 0\nmain;y 0\n").ends_with("all counts up to here are 0"));
    assert!(error("main;x 0.1\nmain;y 0.2\n").ends_with("all counts up to here are 0"));
    let differential = error("main;a 10 12\nmain;b 3 0\nmain 1 0\n");
    assert!(differential.contains("differential stacks"), "{differential}");
    // Threads with numbers.
    assert_eq!(written(&read_text("a;pool 1 5\na;b 2\n")), "a;b 2\na;pool 1 5\n");
    assert_eq!(written(&read_text("\n")), "");
}

#[test]
fn a_log_is_no_profile() {
    let log: String = (0..50).map(|n| format!("request took {n}\n")).collect();
    assert!(!Collapsed.detect(format!("{log}done; in 12\n").as_bytes()));
    assert!(Collapsed.detect(b"main;work 30\nmain 10\n"));
}

#[test]
fn first_frames_and_encodings_do_not_prevent_recognition() {
    let long = "x".repeat(HEAD);
    for first in ["<module>", "[unknown]", "{main}", "# a comment\n<module> (a.py:1)", "#init"] {
        assert!(Collapsed.detect(format!("{first};{long}").as_bytes()), "{first}");
    }
    for first in ["<?xml version='1.0'?><a>&lt", "<svg width=\"1\">&lt", "[{\"a\": \"b", "{\n\"a"] {
        assert!(!Collapsed.detect(format!("{first};{long}").as_bytes()), "{first}");
    }
    assert!(Collapsed.detect(b"main;caf\xe9 3\nmain;a 4\nmain;b 4\n"));
}

#[test]
fn annotations_are_binaries_and_inlined_functions() {
    let p = read_text("main;outer;inner_[i];innermost_[i];vfs_read_[k] 1\nrun_[j];x_[0];y_[2] 1\n");
    let stack = |row: usize| p.stacks.get(p.samples[row].stack);
    let names = |location: &LocationId| {
        let name = |line: &Line| p.str(p.functions[line.function.0 as usize].name).to_owned();
        p.lines_of(*location).iter().map(name).collect::<Vec<_>>()
    };
    let binary = |location: &LocationId| {
        let mapping = p.locations[location.0 as usize].mapping;
        mapping.map_or("", |m| p.str(p.mappings[m.0 as usize].file))
    };
    let all: Vec<_> = stack(0).iter().map(names).collect();
    assert_eq!(all, [vec!["vfs_read"], vec!["innermost", "inner", "outer"], vec!["main"]]);
    assert_eq!(binary(&stack(0)[0]), "[kernel.kallsyms]");
    let all: Vec<_> = stack(1).iter().map(names).collect();
    assert_eq!(all, [["y_[2]"], ["x"], ["run"]]);
    assert_eq!(stack(1).iter().map(binary).collect::<Vec<_>>(), ["", "", "[JIT]"]);
}

#[test]
fn wrong_lines_are_named() {
    let error = |text: &str| read(&mut text.as_bytes()).unwrap_err().to_string();
    let start = "not valid collapsed stacks: line 2: it has no ";
    assert_eq!(error("a;b 1\na;c\n"), format!("{start}count at its end: main;work 123"));
    for count in ["x", "nan", "inf", "1e300", "0x10", "99999999999999999999", ".", "1,5"] {
        assert!(error(&format!("a 1\na {count}\n")).starts_with(start), "{count}");
    }
}

#[test]
fn collapsed_stacks_are_recognized() {
    let long = format!("main;{}", "x".repeat(HEAD));
    for text in [
        "main;a;b 10\nmain;c 3\n",
        "<module> (x.py:1);f (x.py:9) 1",
        "main;a b (x.py:3);c 10\nmain;cut o",
        "# comment\r\n\r\njava;Main.run_[j] 10.5\r\n",
        "a;b 1\na;c\na;d 2\n",
        "main 5\nmain;foo 7\nbar 3\nbaz 1\n",
        &long,
    ] {
        assert!(Collapsed.detect(text.as_bytes()), "{text}");
    }
    for text in ["", "main 3\n", "a;b\n", "int a; b;\nf();\n", "1 2 3\n4 5 6\n", "{\"a;b\": 1}"] {
        assert!(!Collapsed.detect(text.as_bytes()), "{text}");
    }
    assert!(!Collapsed.detect(b"\x0a\x04a;b 1\n"));
}

proptest::proptest! {
    #[test]
    fn any_stacks_are_written_as_they_were_read(
        stacks in proptest::collection::vec((proptest::collection::vec("[a-c<> ]{0,3}", 1..5), 1..99i64), 1..20)
    ) {
        let line = |(names, n): &(Vec<String>, i64)| {
            let names: Vec<_> = names.iter().map(|name| folded_name(name)).collect();
            format!("{} {n}\n", names.join(";"))
        };
        let text: String = stacks.iter().map(line).collect();
        let p = read_text(&text);
        let total: i64 = stacks.iter().map(|(_, n)| n).sum();
        proptest::prop_assert_eq!(p.total(0), total);
        let first = written(&p);
        proptest::prop_assert_eq!(written(&read_text(&first)), first);
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,200}") {
        if let Ok(p) = read(&mut text.as_bytes()) {
            written(&p);
        }
    }
}

#[test]
fn written_stacks_are_not_differential() {
    let written = |text: &str| {
        let profile = read(&mut text.as_bytes()).unwrap();
        let mut out = Vec::new();
        let options = WriteOptions { type_index: 0 };
        write(&profile, &options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    // As the leaf of one stack, and of all.
    assert_eq!(written("a;slot 1 5\nb 2\n"), "a;slot 1 5\nb 2\n");
    let mut builder = Builder::new(&[("samples", "count")]);
    let [root, leaf] = ["a", "slot 1"].map(|name| builder.named_location(name));
    builder.add(&[leaf, root], LabelSetId::EMPTY, 1, &[]);
    let mut out = Vec::new();
    write(&builder.finish(None), &WriteOptions { type_index: 0 }, &mut out).unwrap();
    assert_eq!(String::from_utf8_lossy(&out), "a;slot_1 1\n");
    assert!(read(&mut out.as_slice()).is_ok());
}
