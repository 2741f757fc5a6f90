//! The command line itself: help, completions, the man page, wrong usage.

use std::process::{Command, Stdio};

use clap::CommandFactory;
use prof::cli::Cli;

use crate::common;
use crate::common::system::needs_root;
use crate::common::{Prof, Running, needs, read, temp_dir};

/// The names of all subcommands that are not hidden, from their definition.
fn subcommands() -> Vec<String> {
    let cli = Cli::command();
    let shown = cli.get_subcommands().filter(|command| !command.is_hide_set());
    shown.map(|command| command.get_name().to_owned()).collect()
}

#[test]
fn help_names_every_subcommand() {
    let dir = temp_dir();
    let text = Prof::new(&dir, "--help").run().ok().text();
    // In the list, each begins a line.
    let listed = |name: &String| text.lines().any(|l| l.split_whitespace().next() == Some(name));
    for name in subcommands() {
        assert!(listed(&name), "{name} is not in: {text}");
        for help in ["-h", "--help"] {
            let text = Prof::new(&dir, &name).arg(help).run().ok().text();
            assert!(text.contains("\nExamples:\n"), "prof {name} {help}: {text}");
        }
    }
}

/// Options without a heading are in the first part, before those of all headings.
#[test]
fn help_lists_each_option_under_its_heading() {
    let dir = temp_dir();
    let cases = [
        ("record", "Heap (with -T heap or -T alloc):", "--leaks"),
        ("record", "Output:", "--quiet"),
        ("flame", "Symbols:", "--no-cache"),
        ("flame", "Filters:", "--focus"),
        ("flame", "Symbols:", "--demangle"),
        ("flame", "View:", "--type"),
        ("flame", "Drawing:", "--inverted"),
        ("flame", "Output:", "--folded"),
        ("annotate", "View:", "--asm"),
        ("annotate", "Source:", "--source-path"),
        ("report", "Filters:", "--focus"),
        ("report", "Symbols:", "--demangle"),
        ("report", "View:", "--type"),
        ("report", "View:", "--nodecount"),
        ("report", "View:", "--percent-limit"),
        ("threads", "Target:", "-a, --all-cpus"),
    ];
    for (command, heading, option) in cases {
        let text = Prof::new(&dir, command).arg("-h").run().ok().text();
        let mut parts = text.split("\n\n");
        let part = parts.find(|part| part.starts_with(heading)).expect(heading);
        assert!(part.contains(option), "{option} is not in: {part}");
        assert_eq!(text.matches(&format!("\n{heading}\n")).count(), 1, "{text}");
    }
}

/// Help, manual and completions of `prof top` have none of the options that it refuses.
#[test]
fn prof_top_lists_what_it_takes() {
    let dir = temp_dir();
    let text = |args: &str| Prof::new(&dir, args).run().ok().text();
    let page = text("man top").replace("\\-", "-");
    for (what, text) in [("-h", text("top -h")), ("--help", text("top --help")), ("man", page)] {
        let refused = ["--timestamps", "--max-samples", "--time ", "--snapshots", "--leaks"];
        for option in refused.into_iter().chain(["Heap", "HEAP", "default: 10s"]) {
            assert!(!text.contains(option), "{option} is in {what}: {text}");
        }
        let mut words = text.split(|c: char| !c.is_alphanumeric());
        assert!(words.all(|word| word != "alloc"), "alloc is in {what}: {text}");
        let own = ["until you quit", "default: 99 or less"];
        for option in ["--off-cpu", "--duration", "syscalls", "--focus"].into_iter().chain(own) {
            assert!(text.contains(option), "{option} is not in {what}: {text}");
        }
    }
    let script = text("completions bash");
    let of = |command: &str| {
        let start = script.find(&format!("\n        prof__subcmd__{command})\n")).unwrap();
        script[start..].lines().nth(2).unwrap().to_owned()
    };
    let (top, record) = (of("top"), of("record"));
    for option in ["--timestamps", "--max-samples", "--snapshots", "--leaks"] {
        assert!(record.contains(option) && !top.contains(option), "{option}: {top}");
    }
    assert!(top.contains("--off-cpu") && !top.contains("--noinlines"), "{top}");
}

#[test]
fn wrong_usage_exits_with_2() {
    let dir = temp_dir();
    for args in ["", "no-such-command", "record --no-such-option", "report --no-such-option"] {
        let out = Prof::new(&dir, args).run();
        assert_eq!(out.code(), 2, "prof {args}: {}", out.stderr);
        assert!(out.stdout.is_empty(), "prof {args}: {}", out.text());
        assert!(!out.stderr.is_empty());
    }
}

#[test]
fn help_works_as_a_subcommand() {
    let dir = temp_dir();
    let text = |args: &str| Prof::new(&dir, args).run().ok().text();
    assert_eq!(text("help record"), text("record --help"));
}

#[test]
fn negative_values_are_refused_as_values_and_not_as_options() {
    let dir = temp_dir();
    let refused = |args: &str, code, word: &str| Prof::new(&dir, args).run().refused(code, &[word]);
    for option in ["-d", "-D", "-F", "-c"] {
        refused(&format!("record {option} -1 -- true"), 2, "invalid value '-1'");
    }
    refused("record -p -1", 1, "no process -1");
    refused("record -t -1", 1, "no thread -1");
    refused("report -n -1", 2, "0 shows all");
    refused("report --percent-limit -1", 2, "from 0 to 100");
    refused("flame --min-width -1", 2, "from 0 to 100");
}

/// Feeds a script to a shell that only parses it.
fn parse(shell: &str, option: &str, script: &str) {
    let dir = temp_dir();
    let path = dir.path().join("script");
    std::fs::write(&path, script).unwrap();
    let mut command = Command::new(shell);
    command.arg(option).arg(&path).stdin(Stdio::null());
    let out = common::run::run(command).ok();
    assert!(out.stderr.is_empty(), "{shell}: {}", out.stderr);
}

#[test]
fn bash_parses_and_uses_its_completions() {
    if !needs(&["bash"]) {
        return;
    }
    let dir = temp_dir();
    let script = Prof::new(&dir, "completions bash").run().ok().text();
    parse("bash", "-n", &script);
    let path = dir.path().join("prof.bash");
    std::fs::write(&path, script).unwrap();
    let line = format!(
        "source {}; COMP_WORDS=(prof re); COMP_CWORD=1; _prof prof re prof; echo ${{COMPREPLY[@]}}",
        path.display()
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &line]).stdin(Stdio::null());
    assert_eq!(common::run::run(bash).ok().text().trim(), "record report");
}

#[test]
fn zsh_parses_its_completions() {
    let dir = temp_dir();
    let script = Prof::new(&dir, "completions zsh").run().ok().text();
    assert!(script.starts_with("#compdef prof"));
    if needs(&["zsh"]) {
        parse("zsh", "-n", &script);
    }
}

#[test]
fn fish_parses_its_completions() {
    let dir = temp_dir();
    let script = Prof::new(&dir, "completions fish").run().ok().text();
    assert!(script.contains("complete -c prof"));
    if needs(&["fish"]) {
        parse("fish", "-n", &script);
    }
}

#[test]
fn man_pages_render_without_a_warning() {
    if !needs(&["groff"]) {
        return;
    }
    let dir = temp_dir();
    Prof::new(&dir, "man --output-dir pages/man1").run().ok();
    let pages = dir.path().join("pages/man1");
    assert_eq!(pages.read_dir().unwrap().count(), 1 + subcommands().len());
    let names =
        subcommands().into_iter().map(|name| (format!("prof-{name}"), format!("man {name}")));
    for (name, args) in names.chain([("prof".to_owned(), "man".to_owned())]) {
        let path = pages.join(format!("{name}.1"));
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(page.is_ascii(), "{name}: {page}");
        assert_eq!(Prof::new(&dir, &args).run().ok().text(), page, "prof {args}");
        let mut groff = Command::new("groff");
        groff.args(["-man", "-Tutf8", "-ww"]).arg(&path).stdin(Stdio::null());
        let out = common::run::run(groff).ok();
        assert!(out.stderr.is_empty(), "{name}: {}", out.stderr);
        let page = page.replace("\\-", "-");
        for other in subcommands() {
            assert!(page.contains(&format!("prof-{other}")), "{other} is not in {name}(1): {page}");
        }
    }
    Prof::new(&dir, "man nosuch").run().refused(2, &["no command 'nosuch'"]);
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let dir = temp_dir();
    let mut child =
        Prof::new(&dir, "completions bash").command_with(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

/// The exit code is the command's, as in a shell.
#[test]
fn prof_exits_with_the_code_of_the_command() {
    let dir = temp_dir();
    let codes = [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -KILL $$", 137)];
    for (script, code) in codes {
        let prof = Prof::new(&dir, "record -q").target("sh", "-c").arg(script);
        prof.run().exits(code);
        read(dir.path().join("profile.pb.gz"));
    }
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exit 4";
    let out = Prof::new(&dir, "flame -F 999").target("sh", "-c").arg(script).run().exits(4);
    assert!(out.text().contains("<svg"), "{}", out.stderr);
    // The recording failed, not the command.
    Prof::new(&dir, "record -o no/directory").target("sh", "-c").arg("exit 3").run().exits(1);
}

#[test]
fn exit_codes_are_documented() {
    let dir = temp_dir();
    for args in ["--help", "record --help", "flame --help"] {
        let text = Prof::new(&dir, args).run().ok().text();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("128 + N if signal N ended it"), "prof {args}: {text}");
    }
    let page = Prof::new(&dir, "man").run().ok().text();
    for section in ["EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"] {
        assert!(page.contains(section), "{section} is not in the man page");
    }
}

/// perf's idiom for a duration.
#[test]
fn the_time_of_a_sleep_command_is_the_window() {
    let dir = temp_dir();
    let sleeper = Running::start(Command::new("sleep").arg("60"));
    let pid = sleeper.pid().to_string();
    let prof = Prof::new(&dir, "record -F 99 -g -p").arg(&pid).target("sleep", "0.3");
    prof.run().ok().says(&["as -d 0.3 does"]);
    let nanos = read(dir.path().join("profile.pb.gz")).duration_nanos;
    assert!((300_000_000..60_000_000_000).contains(&nanos), "{nanos}");
    let refused = |args: &str, words: &[&str]| {
        Prof::new(&dir, args).run().refused(2, words);
    };
    let instead = format!("to record for 5 seconds: prof record -p {pid} -d 5s");
    refused(&format!("record -p {pid} -- ls"), &["-p cannot be combined with a COMMAND", &instead]);
    refused("record -a -- make", &["-a cannot be combined with a COMMAND", "record -a -d 5s"]);
    refused("flame -a -- make", &["-a cannot be combined with a COMMAND"]);
    refused("record -a -d 1s -- sleep 5", &["both set the length"]);
    refused(&format!("record -p {pid} ls"), &[&instead]);
    refused("record --timeout 5 -- true", &["-d 5s"]);
}

#[test]
fn tree_needs_a_process() {
    let dir = temp_dir();
    for args in ["record --tree -a", "record --tree -- true", "threads --tree -a"] {
        let out = Prof::new(&dir, args).run();
        assert_eq!(out.code(), 2, "prof {args}: {}", out.stderr);
        assert!(out.stderr.contains("-p"), "prof {args}: {}", out.stderr);
    }
}

#[test]
fn results_that_cannot_be_written_are_a_failure() {
    let dir = temp_dir();
    Prof::new(&dir, "record -q").target("true", "").run().ok();
    for args in ["report", "report --json", "--help", "record --help", "doctor", "man", "list"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Prof::new(&dir, args).command_with(full.into());
        let out = command.stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "prof {args}: {stderr}");
        let line = "prof: cannot write standard output: no space left on the device";
        assert!(stderr.starts_with(line), "prof {args}: {stderr}");
    }
}

/// A shell's `>&-`. Where nothing is to be printed, it does not matter.
#[test]
fn a_closed_standard_output_is_a_failure() {
    let dir = temp_dir();
    Prof::new(&dir, "record -q").target("true", "").run().ok();
    let run = |args: &str| {
        let script = format!("exec \"$0\" {args} >&-");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_prof")]).current_dir(&dir);
        command.output().unwrap()
    };
    for args in ["report --stdio", "report --json", "flame profile.pb.gz", "record -o - -- true"] {
        let out = run(args);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "prof {args}: {stderr}");
        let line = "prof: cannot write standard output: it is closed";
        assert!(stderr.lines().any(|l| l == line), "prof {args}: {stderr}");
    }
    assert!(run("record -q -o other.pb.gz -- true").status.success());
}

#[test]
fn a_missing_proc_is_named() {
    if !needs(&["unshare", "umount"]) || !needs_root() {
        return;
    }
    let dir = temp_dir();
    Prof::new(&dir, "record -q").target("true", "").run().ok();
    let run = |args: &str| {
        let script = format!("umount -l /proc; exec \"$0\" {args}");
        let mut command = Command::new("unshare");
        let prof = env!("CARGO_BIN_EXE_prof");
        command.args(["-m", "sh", "-c", &script, prof]).current_dir(&dir).output().unwrap()
    };
    for args in ["record -- true", "top --iterations 1", "threads -p 1", "doctor"] {
        let out = run(args);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "prof {args}: {stderr}");
        assert!(stderr.starts_with("prof: /proc is not mounted"), "prof {args}: {stderr}");
        assert!(stderr.contains("mount -t proc proc /proc"), "prof {args}: {stderr}");
    }
    // A profile can be read without it.
    assert!(run("report --stdio").status.success());
}

/// Names and paths of others are escaped in the terminal and in documents.
#[test]
fn no_escape_sequence_reaches_the_output() {
    let dir = temp_dir();
    let evil = "s\u{1b}[31mY\u{1b}]0;P\u{7}\u{202e}\u{9b}2J\nprof: forged";
    let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let copy = dir.path().join(format!("{evil}2"));
    assert!(Command::new("cp").arg("/bin/sh").arg(&copy).status().unwrap().success());
    let clean = |what: &str, bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let bad = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
        assert!(!text.contains(bad), "{what}: {text:?}");
        assert!(!text.lines().any(|l| l.starts_with("prof: forged")), "{what}: {text}");
    };
    let out = Prof::new(&dir, "record -F 999").target(&copy, "-c").arg(script).run().ok();
    clean("record", out.stderr.as_bytes());
    for args in [
        "report",
        "report --json",
        "report --header",
        "report -g",
        "report --coverage",
        "report --lines --sort binary",
        "flame",
        "flame --folded",
        "symbolize --force",
    ] {
        let out = Prof::new(&dir, args).run().ok();
        clean(args, &out.stdout);
        clean(args, out.stderr.as_bytes());
    }
    let wrong: [&[&str]; 6] = [
        &["report", evil],
        &["report", "--type", evil],
        &["record", "--", evil],
        &["record", evil],
        &["list", evil],
        &[evil],
    ];
    for args in wrong {
        let mut prof = Prof::new(&dir, "");
        prof.command.args(args);
        let out = prof.run();
        assert_ne!(out.code(), 0, "{args:?}");
        clean("an error", out.stderr.as_bytes());
    }
}

/// No progress bar is drawn between its lines.
#[test]
fn a_command_has_the_terminal_to_itself() {
    if !needs(&["script"]) {
        return;
    }
    let dir = temp_dir();
    let lines = "for i in 1 2 3 4; do echo line $i; sleep 0.3; done";
    std::fs::write(dir.path().join("lines.sh"), lines).unwrap();
    let mut script = Command::new("script");
    let command = format!("{} record -- sh lines.sh", env!("CARGO_BIN_EXE_prof"));
    script.args(["-q", "-e", "-c", &command, "/dev/null"]).current_dir(&dir);
    script.env("PROF_CACHE_SIZE", "0").stdin(Stdio::null());
    let text = common::run::run(script).ok().text();
    assert!(text.contains("line 1\r\nline 2\r\nline 3\r\nline 4\r\n"), "{text:?}");
    // A bar has a spinner of Braille patterns.
    let spinner = |c: char| ('\u{2800}'..='\u{28ff}').contains(&c);
    assert!(!text.contains(spinner), "{text:?}");
}
