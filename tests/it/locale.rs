//! The characters of text: those of the locale on a terminal, UTF-8 elsewhere.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::run::run;
use crate::common::{Build, Prof, needs, target, temp_dir};

/// The output of prof on a terminal with this locale.
fn on_terminal(dir: &Path, args: &str, locale: &str) -> String {
    let mut script = Command::new("script");
    let command = format!("{} {args}", env!("CARGO_BIN_EXE_prof"));
    script.args(["-q", "-c", &command, "/dev/null"]).current_dir(dir);
    script.env("LC_ALL", locale).env("TERM", "dumb").env("PROF_CACHE_SIZE", "0");
    script.stdin(Stdio::null());
    run(script).ok().text()
}

#[test]
fn text_on_a_terminal_without_utf8_is_ascii() {
    if !needs(&["script"]) {
        return;
    }
    let dir = temp_dir();
    Prof::new(&dir, "record -F 999 -q").target(target("known", Build::CDebug), "1").run().ok();
    for (args, mark) in [
        ("report -g --stdio", "├─"),
        ("annotate --asm bar", "─"),
        ("diff --stdio profile.pb.gz profile.pb.gz", "→"),
        // A message.
        ("report größe.pb.gz", "ö"),
    ] {
        let [unicode, ascii] = ["C.UTF-8", "C"].map(|locale| on_terminal(dir.path(), args, locale));
        assert!(unicode.contains(mark), "prof {args}: {unicode}");
        assert!(ascii.is_ascii(), "prof {args}: {ascii}");
        // Columns are as wide.
        let widths = |text: &str| text.lines().map(|l| l.chars().count()).collect::<Vec<_>>();
        assert_eq!(widths(&unicode), widths(&ascii), "prof {args}: {unicode}{ascii}");
        // Into a pipe.
        let mut prof = Prof::new(&dir, args);
        prof.command.env("LC_ALL", "C");
        let out = prof.run();
        assert!(format!("{}{}", out.text(), out.stderr).contains(mark), "prof {args}");
    }
}
