//! Profiles in other formats than pprof: `prof export`, and all commands on files of other tools.

use std::path::Path;

use crate::common::{Prof, temp_dir};

/// Two processes with a function that was inlined, and one without a name.
fn profile(path: &Path) {
    use profile::{Builder, Column, Label, LabelValue};
    let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    let app = view::testing::mapping(&mut b, "/usr/bin/app", 0x1000);
    let lines = [("inner", "/src/in.h", 3), ("work", "/src/app.c", 7)];
    let work = view::testing::functions(&mut b, Some(app), 0x1010, &lines);
    let main = view::testing::functions(&mut b, Some(app), 0x1020, &[("main", "/src/app.c", 9)]);
    let unknown = b.location(Some(app), 0x1030);
    let kernel = b.named_location("read; write");
    let stacks = [(&[work, main][..], "a"), (&[kernel, main], "a"), (&[unknown, main], "b")];
    for (n, (stack, process)) in stacks.into_iter().enumerate() {
        let key = b.profile.strings.intern("process");
        let value = LabelValue::Str(b.profile.strings.intern(process));
        let labels = b.profile.labels.intern(&[Label { key, value }]);
        b.add(stack, labels, n as u32 + 1, &[(Column(1), 1_000_000 * (n as i64 + 1))]);
    }
    let file = std::fs::File::create(path).unwrap();
    formats::pprof::write(&b.finish(Some(app)), file).unwrap();
}

#[test]
fn exported_stacks_are_those_of_flame_folded() {
    let dir = temp_dir();
    profile(&dir.path().join("profile.pb.gz"));
    let export = |args: &str| Prof::new(&dir, "export --to collapsed").args(args).run().ok().text();
    let folded = |args: &str| Prof::new(&dir, "flame --folded").args(args).run().ok().text();
    assert_eq!(
        export(""),
        "a;main;read: write 2000000\na;main;work;inner 1000000\nb;main;app+0x30 3000000\n"
    );
    for args in ["", "--type samples", "--process a", "--no-inlines", "--focus inner"] {
        assert_eq!(export(args), folded(args), "{args}");
    }
}

#[test]
fn collapsed_stacks_are_read_by_all_commands() {
    let dir = temp_dir();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("old.txt", "main;work (a.py:3) 30\nmain 10\n");
    write("new.txt", "main;work (a.py:3) 60\r\nmain 10\r\n");
    let run = |args: &str| Prof::new(&dir, args).run().ok().text();
    let report = run("report old.txt");
    assert!(report.contains("75.00%") && report.contains("work (a.py:3)"), "{report}");
    assert_eq!(run("flame --folded old.txt new.txt"), "main 20\nmain;work (a.py:3) 90\n");
    assert!(run("flame old.txt").contains("<svg"));
    assert!(run("diff old.txt new.txt").contains("work (a.py:3)"));
    run("merge old.txt new.txt -o both.pb.gz");
    assert_eq!(run("export both.pb.gz --to collapsed"), "main 20\nmain;work (a.py:3) 90\n");
    run("export both.pb.gz -o both.folded");
    run("export both.folded -o again.pb.gz");
    let folded = run("flame --folded again.pb.gz");
    assert_eq!(folded, "main 20\nmain;work (a.py:3) 90\n");
    // Symbols would replace the text by a pprof file.
    let refused = Prof::new(&dir, "symbolize both.folded").run();
    refused.refused(1, &["both.folded", "collapsed stacks", "-o"]);
}

#[test]
fn formats_that_cannot_be_read_or_written_are_named() {
    let dir = temp_dir();
    profile(&dir.path().join("profile.pb.gz"));
    std::fs::write(dir.path().join("bad.folded"), "main;work 3\nmain;work\n").unwrap();
    std::fs::write(dir.path().join("perf.data"), "PERFILE2\x68\0\0\0\0").unwrap();
    std::fs::write(dir.path().join("no"), "some text\n").unwrap();
    let refused =
        |args: &str, code, words: &[&str]| Prof::new(&dir, args).run().refused(code, words);
    refused("report bad.folded", 1, &["bad.folded: not valid collapsed stacks: line 2: it has no"]);
    refused("report perf.data", 1, &["not in a format that prof reads: it is perf's perf.data; "]);
    refused("report no", 1, &["no: not in a format that prof reads: it looks like text"]);
    refused("export", 2, &["name the format: --to collapsed (.folded"]);
    refused("export -o out.txt", 2, &["out.txt: the name has no format's ending", ".pb.gz"]);
    refused("export -o x.folded --focus nothing", 1, &["nothing to write"]);
    assert!(!dir.path().join("x.folded").exists());
    Prof::new(&dir, "export --to nonsense").run().exits(2);
}
