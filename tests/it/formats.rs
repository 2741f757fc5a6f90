//! Profiles in other formats than pprof: `prof export`, and all commands on files of other tools.

use std::path::Path;

use crate::common::{Prof, needs, skip, temp_dir};

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
    refused(
        "report perf.data",
        1,
        &["perf.data: not valid perf.data: it is cut off inside its header"],
    );
    refused("report no", 1, &["no: not in a format that prof reads: it looks like text"]);
    refused("export", 2, &["name the format: --to ", "--to collapsed (.folded"]);
    refused("export -o out.txt", 2, &["out.txt: text is written by prof report", ".pb.gz"]);
    refused("export -o x.folded --focus nothing", 1, &["nothing to write"]);
    assert!(!dir.path().join("x.folded").exists());
    Prof::new(&dir, "export --to nonsense").run().exits(2);
}

#[test]
fn an_export_reports_what_its_format_lacks() {
    let dir = temp_dir();
    profile(&dir.path().join("profile.pb.gz"));
    let notes = |args: &str| Prof::new(&dir, "export").args(args).run().ok().stderr;
    let all = notes("--to collapsed");
    let lines: Vec<&str> = all.lines().collect();
    let [line] = *lines else { panic!("{lines:?}") };
    let begin = "prof: left out, as collapsed does not hold them: sample type ";
    assert!(line.starts_with(begin), "{line}");
    assert!(notes("-o all.otlp").lines().count() == 1, "only the size");
    assert_eq!(notes("-q --to collapsed"), "");
    assert_eq!(notes("-q -o all.callgrind"), "");
}

#[test]
fn a_file_that_was_cut_off_is_read_with_a_line() {
    let dir = temp_dir();
    std::fs::write(dir.path().join("cut.folded"), "main;work 12\nmain;id").unwrap();
    let run = |args: &str| Prof::new(&dir, args).run().ok();
    let line = "prof: cut.folded seems incomplete: its last line has no line end\n";
    let report = run("report cut.folded --stdio");
    assert_eq!((report.stderr.as_str(), report.text().contains("work")), (line, true));
    assert_eq!(run("export cut.folded -q -o cut.pb.gz").stderr, "");
    let converted = line.replace("cut.folded", "cut.pb.gz");
    assert_eq!(run("report cut.pb.gz --stdio").stderr, converted);
}

#[test]
fn a_difference_of_conversions_lists_nothing() {
    let dir = temp_dir();
    profile(&dir.path().join("profile.pb.gz"));
    for format in ["otlp", "otlp.json", "perf", "firefox.json", "callgrind"] {
        Prof::new(&dir, &format!("export -q -o all.{format}")).run().ok();
        let diff = Prof::new(&dir, &format!("diff profile.pb.gz all.{format} --json")).run().ok();
        let answer: serde_json::Value = serde_json::from_str(&diff.text()).unwrap();
        let samples = |side: &str| answer[side]["samples"].clone();
        assert_eq!(samples("before"), samples("after"), "{format}");
        let rows = answer["rows"].as_array().unwrap();
        assert!(!rows.is_empty());
        for row in rows {
            assert_eq!(row["self"]["before"], row["self"]["after"], "{format}: {row}");
        }
    }
    // The values of this file are nanoseconds, which are no numbers of samples.
    Prof::new(&dir, "export -q --type cpu -o all.folded").run().ok();
    let diff = Prof::new(&dir, "diff profile.pb.gz all.folded --type cpu").run();
    diff.refused(2, &["all.folded has no sample type \"cpu\"", "in the file: write it with"]);
}

#[test]
fn an_export_replaces_only_files_of_its_format() {
    let dir = temp_dir();
    profile(&dir.path().join("profile.pb.gz"));
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("main.rs", "fn main() {}\n");
    write("empty.folded", "");
    write("old.folded", "main;work 3\n");
    for (name, word) in [
        ("profile.pb.gz", "another format (pprof files)"),
        ("main.rs", "by collapsed stacks: it has another format;"),
    ] {
        let before = std::fs::read(dir.path().join(name)).unwrap();
        let export = Prof::new(&dir, "export --to collapsed -o").args(name).run();
        export.refused(1, &["will not replace", name, word]);
        assert_eq!(std::fs::read(dir.path().join(name)).unwrap(), before);
    }
    for name in ["empty.folded", "old.folded", "old.folded", "new.folded"] {
        Prof::new(&dir, "export --to collapsed -o").args(name).run().ok();
        let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(text.starts_with("a;main"), "{text}");
    }
}

/// The stacks of a text of perf script, collapsed by inferno.
fn inferno(text: &[u8]) -> String {
    use inferno::collapse::Collapse;
    let mut out = Vec::new();
    inferno::collapse::perf::Folder::default().collapse(text, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// inferno prints the binary of a function without a name, and the command of the thread as the
/// outermost frame.
fn as_inferno(folded: &str) -> Vec<String> {
    let frame = |frame: &str| match frame.rsplit_once("+0x") {
        Some((binary, _)) => format!("[{}]", binary.trim_matches(['[', ']'])),
        None if frame.starts_with("0x") => "[unknown]".to_owned(),
        None => frame.to_owned(),
    };
    let mut sums = std::collections::BTreeMap::<String, i64>::new();
    for line in folded.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let frames: Vec<_> = stack.split(';').map(frame).collect();
        *sums.entry(frames.join(";")).or_default() += count.parse::<i64>().unwrap();
    }
    sums.into_iter().map(|(stack, count)| format!("{stack} {count}")).collect()
}

#[test]
fn the_text_of_perf_script_collapses_as_with_inferno() {
    if !needs(&["perf"]) {
        return;
    }
    let dir = temp_dir();
    let script = "for ((i = 0; i < 300000; i++)); do :; done";
    let perf = |args: &[&str]| {
        let mut command = std::process::Command::new("perf");
        command.current_dir(&dir).args(args).stdin(std::process::Stdio::null()).output().unwrap()
    };
    let record = [
        "record",
        "-q",
        "-F",
        "499",
        "-g",
        "-e",
        "cpu-clock",
        "-o",
        "perf.data",
        "bash",
        "-c",
        script,
    ];
    // perf cannot read some recordings that were made beside another profiler.
    let texts = (0..10)
        .filter(|_| perf(&record).status.success())
        .map(|_| perf(&["script", "-i", "perf.data"]));
    let text = texts.filter(|out| out.status.success()).map(|out| out.stdout).next();
    let text = text.expect("perf records and prints");
    std::fs::write(dir.path().join("bash.txt"), &text).unwrap();
    let run = |args: &str| Prof::new(&dir, args).run().ok().text();
    let roots = |line: &str| line.split_once(';').map_or("", |(_, rest)| rest).to_owned();
    let expected: Vec<String> = inferno(&text).lines().map(roots).collect();
    assert!(!expected.is_empty());
    let ours = run("export bash.txt --to collapsed");
    assert_eq!(as_inferno(&ours), as_inferno(&expected.join("\n")));
    // What prof writes is the same for inferno.
    run("export bash.txt -o again.perf");
    let again = std::fs::read(dir.path().join("again.perf")).unwrap();
    assert_eq!(as_inferno(&inferno(&again)), as_inferno(&inferno(&text)));
    assert_eq!(run("export again.perf --to collapsed"), run("export bash.txt --to collapsed"));
}

/// The schema is that of npm's package speedscope 1.25.0 (MIT license).
#[test]
fn speedscope_files_meet_their_schema() {
    if !Path::new("/usr/lib/python3/dist-packages/jsonschema").exists() {
        return skip("python3-jsonschema is not installed");
    }
    let dir = temp_dir();
    profile(&dir.path().join("profile.pb.gz"));
    Prof::new(&dir, "export -o out.speedscope.json").run().ok();
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/speedscope-schema.json");
    let script = "import json, sys\nfrom jsonschema import validate\n\
                  validate(*(json.load(open(name)) for name in sys.argv[1:]))";
    let mut python = std::process::Command::new("/usr/bin/python3");
    let out = python.args(["-c", script]).arg(dir.path().join("out.speedscope.json")).arg(schema);
    let out = out.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let folded = |args: &str| Prof::new(&dir, args).run().ok().text();
    for kind in ["cpu", "samples"] {
        assert_eq!(
            folded(&format!("export out.speedscope.json --to collapsed --type {kind}")),
            folded(&format!("export --to collapsed --type {kind}"))
        );
    }
}

/// The values that a file of the Firefox Profiler holds are those of the profile.
#[test]
fn files_of_the_firefox_profiler_are_written_and_read() {
    let dir = temp_dir();
    profile(&dir.path().join("profile.pb.gz"));
    let run = |args: &str| Prof::new(&dir, args).run().ok().text();
    run("export -o out.firefox.json");
    assert_eq!(run("export out.firefox.json --to collapsed"), run("export --to collapsed"));
    for kind in ["cpu", "samples"] {
        let args = format!("export out.firefox.json --to firefox --type {kind}");
        std::fs::write(dir.path().join("again.json"), run(&args)).unwrap();
        assert_eq!(
            run("export again.json --to collapsed"),
            run(&format!("export --to collapsed --type {kind}")),
        );
    }
    let recorded = r#"{"meta":{"version":24,"interval":1},"libs":[],"threads":[]}"#;
    std::fs::write(dir.path().join("recorded.json"), recorded).unwrap();
    let words = ["recorded.json: not valid Firefox Profiler JSON: it is as Firefox recorded it"];
    Prof::new(&dir, "report recorded.json").run().refused(1, &words);
}

/// Addresses of samply are relative to the lowest one of the program, which are not offsets in this
/// one: its code is 2 MiB above the segment before, but follows it in the file.
#[test]
fn addresses_of_images_are_named() {
    if !needs(&["gcc", "readelf"]) {
        return;
    }
    let dir = temp_dir();
    let source =
        "int work(int n) { return n * 7; }\nint main(int n, char **a) { return work(n); }\n";
    std::fs::write(dir.path().join("a.c"), source).unwrap();
    let mut gcc = std::process::Command::new("gcc");
    let flags =
        ["-g", "-no-pie", "-Wl,--section-start=.text=0x600000,--build-id", "-o", "a", "a.c"];
    assert!(gcc.current_dir(&dir).args(flags).status().unwrap().success());
    let readelf = |option: &str| {
        let mut command = std::process::Command::new("readelf");
        let out = command.args([option, "-W", "a"]).current_dir(&dir).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    let symbols = readelf("-s");
    let line = symbols.lines().find(|line| line.ends_with(" work")).unwrap();
    let address = u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
    let notes = readelf("-n");
    let (_, build_id) = notes.split_once("Build ID: ").unwrap();
    let build_id = build_id.lines().next().unwrap();
    let json = |build_id: &str| {
        serde_json::json!({
            "meta": { "preprocessedProfileVersion": 55, "interval": 1 },
            "libs": [{ "name": "a", "path": dir.path().join("a"), "codeId": build_id }],
            "threads": [{
                "name": "a", "pid": "7", "tid": 7,
                "samples": { "stack": [0], "weight": [3], "weightType": "samples", "time": [1] },
                "stackTable": { "prefix": [null], "frame": [0] },
                "frameTable": { "address": [address - 0x400_000], "func": [0] },
                "funcTable": { "name": [0], "resource": [0] },
                "resourceTable": { "lib": [0], "name": [1], "type": [1] },
                "stringArray": [format!("{:#x}", address - 0x400_000), "a"],
            }],
        })
    };
    std::fs::write(dir.path().join("p.json"), json(build_id).to_string()).unwrap();
    let folded = |args: &str| Prof::new(&dir, args).run().ok().text();
    assert_eq!(folded("flame --folded --type samples p.json"), "work 3\n");
    // A pprof file of it has offsets, as prof's own have: names can be looked up again.
    folded("export p.json -o p.pb.gz");
    folded("symbolize --force p.pb.gz -o q.pb.gz");
    assert_eq!(folded("flame --folded --type samples q.pb.gz"), "work 3\n");
    // Of another build, nothing is known, and nothing is guessed.
    std::fs::write(dir.path().join("other.json"), json("0123456789abcdef").to_string()).unwrap();
    let unnamed = folded("flame --folded --type samples other.json");
    assert!(unnamed.starts_with("a+0x") && unnamed.ends_with(" 3\n"), "{unnamed}");
}

#[test]
fn otlp_files_hold_what_pprof_files_hold() {
    let dir = temp_dir();
    profile(&dir.path().join("profile.pb.gz"));
    let run = |args: &str| Prof::new(&dir, args).run().ok().text();
    for format in ["otlp", "otlp.json"] {
        run(&format!("export -o out.{format}"));
        run(&format!("export out.{format} -o again.pb.gz"));
        for args in ["flame --folded", "report --granularity lines -n 0 --type samples"] {
            let text =
                |file: &str| run(&format!("{args} {file}")).replace(&format!("File: {file}"), "");
            assert_eq!(text("again.pb.gz"), text("profile.pb.gz"), "{format}");
        }
    }
    std::fs::write(dir.path().join("x.rs"), "fn main() {}\n").unwrap();
    Prof::new(&dir, "export --to otlp -o x.rs").run().refused(1, &["will not replace"]);
    assert_eq!(std::fs::read(dir.path().join("x.rs")).unwrap(), b"fn main() {}\n");
}

#[test]
fn profiles_of_node_are_read() {
    if !needs(&["node"]) {
        return;
    }
    let dir = temp_dir();
    let script = "function inner(n) { let s = 0; for (let i = 0; i < n; i++) s += Math.sqrt(i); return s }\n\
                  function outer() {\n  const all = [];\n  for (let i = 0; i < 3000; i++)\n\
                  \x20   all.push([inner(20000), new Array(100).fill(i)]);\n  return all;\n}\n\
                  globalThis.kept = outer();\n";
    std::fs::write(dir.path().join("w.js"), script).unwrap();
    let node = |args: &[&str]| {
        let mut command = std::process::Command::new("node");
        assert!(command.current_dir(&dir).args(args).arg("w.js").status().unwrap().success());
    };
    node(&["--cpu-prof", "--cpu-prof-name=w.cpuprofile"]);
    node(&["--heap-prof", "--heap-prof-interval=8192", "--heap-prof-name=w.heapprofile"]);
    let folded = |args: &str| Prof::new(&dir, args).run().ok().text();
    let cpu = folded("export w.cpuprofile --to collapsed");
    let line = cpu.lines().find(|line| line.contains(";outer;inner ")).expect("the calls");
    let nanos: i64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!(nanos > 1_000_000, "{line}");
    let lines = folded("report w.cpuprofile --granularity lines -n 0");
    assert!(lines.contains("w.js:1"), "{lines}");
    let heap = folded("export w.heapprofile --to collapsed");
    assert!(heap.lines().any(|line| line.contains("outer")), "{heap}");
}

/// Own costs by function, without its file and binary, as callgrind_annotate prints them.
fn annotated(dir: &Path, file: &str) -> std::collections::BTreeMap<String, i64> {
    let mut command = std::process::Command::new("callgrind_annotate");
    let out = command.args(["--threshold=100", "--auto=no", file]).current_dir(dir).output();
    let out = out.unwrap();
    assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut sums = std::collections::BTreeMap::new();
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        let parts = line.split_once("%)").and_then(|(cost, rest)| {
            let cost = cost.split_once('(')?.0.trim().replace(',', "").parse::<i64>().ok()?;
            Some((rest.trim().split_once(':')?.1, cost))
        });
        if let Some((function, cost)) = parts {
            let name = function.split(" [").next().unwrap().to_owned();
            *sums.entry(name).or_default() += cost;
        }
    }
    sums
}

#[test]
fn callgrind_files_agree_with_callgrind_annotate() {
    if !needs(&["valgrind", "callgrind_annotate"]) {
        return;
    }
    let dir = temp_dir();
    let mut valgrind = std::process::Command::new("valgrind");
    let args = ["--tool=callgrind", "--callgrind-out-file=out.cg", "--dump-instr=yes"];
    let run =
        valgrind.current_dir(&dir).args(args).args(["--collect-jumps=yes", "sort", "/etc/passwd"]);
    assert!(run.output().unwrap().status.success());
    let theirs = annotated(dir.path(), "out.cg");
    assert!(theirs.len() > 50, "{theirs:?}");
    Prof::new(&dir, "export out.cg -o again.callgrind").run().ok();
    let again = annotated(dir.path(), "again.callgrind");
    for (name, cost) in theirs.iter().filter(|(name, _)| !name.starts_with("0x")) {
        assert_eq!(again.get(name), Some(cost), "{name}");
    }
    let report = Prof::new(&dir, "report out.cg -n 5").run().ok().text();
    assert!(report.contains("Ir"), "{report}");
}
