//! The interactive views of `prof report`, in a real terminal: keys go into tmux, screens come out.
//!
//! Screens that are compared as a whole lie in `tests/it/screens/`; `UPDATE_SCREENS=1` replaces
//! them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common;
use crate::common::views;
use crate::common::{needs, temp_dir, until};

/// A shell in a terminal.
pub struct Terminal {
    pub dir: tempfile::TempDir,
    socket: PathBuf,
}

impl Terminal {
    /// A terminal of this size with the known profile in `known.pb.gz`; `variables` are set in it.
    pub fn start(width: u32, height: u32, variables: &[&str]) -> Terminal {
        let dir = temp_dir();
        views::known(&dir);
        let socket = dir.path().join("tmux");
        let terminal = Terminal { dir, socket };
        let mut shell = vec!["env", "PS1=$ ", "ENV=", "LANG=C.UTF-8"];
        shell.extend(variables);
        shell.extend(["sh", "-i"]);
        let mut command = terminal.tmux();
        command.args(["-f", "/dev/null", "new-session", "-d"]);
        command.args(["-x", &width.to_string(), "-y", &height.to_string()]);
        command.args(shell).current_dir(terminal.dir.path());
        assert!(command.status().unwrap().success(), "{command:?}");
        terminal.wait_for("$");
        terminal
    }

    fn tmux(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(&self.socket).env("LANG", "C.UTF-8");
        command.env("PATH", path_with_prof());
        command
    }

    pub fn output(&self, args: &[&str]) -> String {
        let out = self.tmux().args(args).output().unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Presses keys, by tmux's names.
    pub fn keys(&self, keys: &[&str]) {
        self.output(&[&["send-keys"], keys].concat());
    }

    /// Types a command into the shell.
    pub fn run(&self, command: &str) {
        self.output(&["send-keys", "-l", "--", command]);
        self.keys(&["Enter"]);
    }

    /// Writes the view to a file with the key `w`; returns its path.
    #[track_caller]
    pub fn export(&self, name: &str) -> PathBuf {
        self.keys(&["w"]);
        self.wait_for("write to");
        self.run(name);
        self.wait_for(&format!("wrote {name}"));
        self.dir.path().join(name)
    }

    /// The lines on the screen.
    pub fn screen(&self) -> String {
        let text = self.output(&["capture-pane", "-p"]);
        text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// Waits until a text is on the screen.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text));
    }

    #[track_caller]
    pub fn wait_until(&self, what: &str, mut holds: impl FnMut(&str) -> bool) {
        let held = common::holds(|| holds(&self.screen()));
        assert!(held, "never came: {what:?}; on the screen:\n{}", self.screen());
    }

    /// Waits until the screen has changed a number of times.
    #[track_caller]
    pub fn changes(&self, times: usize) {
        let (mut last, mut changes) = (self.screen(), 0);
        self.wait_until("other screens", |screen| {
            changes += usize::from(screen != last);
            last = screen.to_owned();
            changes >= times
        });
    }

    /// Waits until several screens in a row are the same, and returns them.
    #[track_caller]
    pub fn settled(&self) -> String {
        let (mut last, mut same) = (self.screen(), 0);
        self.wait_until("an unchanged screen", |screen| {
            same = if screen == last { same + 1 } else { 0 };
            last = screen.to_owned();
            same == 20
        });
        last
    }

    /// Waits for the screen in a file of `tests/it/screens/`.
    #[track_caller]
    pub fn shows(&self, name: &str) {
        let path = format!("{}/tests/it/screens/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_SCREENS").is_some() {
            std::fs::write(&path, self.settled()).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap();
        self.wait_until(&expected, |screen| screen == expected);
    }

    /// Fails unless the terminal is as the shell expects it.
    #[track_caller]
    pub fn is_restored(&self) {
        // The shell is in the foreground: no other program takes what is typed.
        let state = "#{pane_current_command} #{alternate_on}#{cursor_flag}#{mouse_any_flag}";
        until(|| self.output(&["display-message", "-p", state]).trim() == "sh 010");
        self.run("clear; stty -a | tr ';' '\\n' | grep -c -w -e -icanon -e -echo -e -isig");
        self.wait_until("0 flags", |screen| {
            let mut lines = screen.lines().rev().filter(|line| !line.trim().is_empty());
            lines.next().is_some_and(|line| line.starts_with('$'))
                && lines.next().is_some_and(|line| line == "0")
        });
    }

    /// The process id of prof.
    pub fn prof(&self) -> i32 {
        let shell = self.output(&["display-message", "-p", "#{pane_pid}"]);
        let path = format!("/proc/{0}/task/{0}/children", shell.trim());
        let children = std::fs::read_to_string(path).unwrap();
        children.split_whitespace().next().expect("prof runs").parse().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.output(&["kill-server"]);
    }
}

/// `$PATH` with the built prof in front.
fn path_with_prof() -> String {
    let prof = Path::new(env!("CARGO_BIN_EXE_prof")).parent().unwrap();
    format!("{}:{}", prof.display(), std::env::var("PATH").unwrap())
}

#[test]
fn each_view_is_drawn() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(80, 12, &[]);
    terminal.run("prof report known.pb.gz");
    terminal.shows("functions");
    for (key, screen) in [
        ("s", "functions-by-total"),
        ("t", "call-tree"),
        ("r", "callers"),
        ("F", "flame-graph"),
        ("5", "lines"),
        ("6", "binaries"),
        ("9", "files"),
        ("X", "states"),
        ("?", "help"),
    ] {
        terminal.keys(&[key]);
        terminal.shows(screen);
    }
    terminal.keys(&["j", "j", "G"]);
    terminal.wait_for("this help, quit");
    terminal.keys(&["?"]);
    terminal.shows("states");
    terminal.keys(&["q"]);
    terminal.wait_for("$ prof report known.pb.gz");
    terminal.is_restored();
}

#[test]
fn a_function_is_found_filtered_and_left_again() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(80, 12, &[]);
    terminal.run("prof report known.pb.gz");
    terminal.wait_for("bar  (known)");
    terminal.keys(&["/", "f", "o", "o", "2"]);
    terminal.wait_for(" /foo2");
    terminal.keys(&["Enter", "+"]);
    terminal.wait_for("filters: focus=^foo2$");
    terminal.shows("focused");
    terminal.keys(&["t"]);
    terminal.wait_for("call tree");
    terminal.wait_for("filters: focus=^foo2$");
    terminal.keys(&["u"]);
    terminal.wait_until("no filter", |screen| !screen.contains("filters:"));
    terminal.keys(&["[", "[", "["]);
    terminal.wait_for("functions  cpu  9.00 s");
    let svg = std::fs::read_to_string(terminal.export("out.svg")).unwrap();
    assert!(svg.starts_with("<?xml") && svg.contains("foo2"));
    terminal.keys(&["q"]);
    terminal.is_restored();
}

#[test]
fn a_function_leads_to_its_source_its_sandwich_and_back() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(80, 18, &[]);
    let source: String = (1..=30).map(|line| format!("\tline {line};\n")).collect();
    std::fs::write(terminal.dir.path().join("known.c"), source).unwrap();
    terminal.run("prof report known.pb.gz");
    terminal.wait_for("foo2  (known)");
    terminal.keys(&["j", "j", "j", "Enter"]);
    terminal.shows("menu");
    terminal.keys(&["S"]);
    terminal.shows("sandwich");
    terminal.keys(&["a"]);
    terminal.shows("source");
    terminal.keys(&["a"]);
    terminal.wait_for("note: no instructions of /usr/bin/known");
    // Back at the function, whose menu is also opened by a second click.
    terminal.keys(&["BSpace", "BSpace"]);
    terminal.wait_for("functions  cpu  9.00 s");
    terminal.keys(&["m", "j", "j", "Enter"]);
    terminal.shows("sandwich");
    for (name, begin) in [("below.svg", "<?xml"), ("below.json", "{")] {
        let text = std::fs::read_to_string(terminal.export(name)).unwrap();
        // What the function calls, without its callers.
        assert!(text.starts_with(begin) && text.contains("bar"), "{name}: {text}");
        assert!(!text.contains("foo1"), "{name}");
    }
    terminal.keys(&["BSpace", "L"]);
    terminal.shows("rows-menu");
    terminal.keys(&["6"]);
    terminal.wait_for("binaries");
    terminal.keys(&["q"]);
    terminal.is_restored();
}

#[test]
fn filters_are_typed_and_removed_one_by_one() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(80, 12, &[]);
    terminal.run("prof report known.pb.gz");
    terminal.wait_for("bar  (known)");
    terminal.keys(&["&"]);
    terminal.output(&["send-keys", "-l", "--", "(foo"]);
    terminal.wait_for("filter (Tab: next): focus=(foo   unclosed group");
    terminal.keys(&["Enter"]);
    terminal.output(&["send-keys", "-l", "--", "1)"]);
    terminal.keys(&["Enter"]);
    terminal.wait_for(" filters: focus=(foo1)");
    terminal.keys(&["&", "Tab"]);
    terminal.output(&["send-keys", "-l", "--", "bar"]);
    terminal.wait_for("ignore=bar");
    terminal.keys(&["Enter"]);
    terminal.wait_for("functions  cpu  1.50 s of 9.00 s (16.7%)");
    terminal.keys(&["U"]);
    terminal.shows("filters-menu");
    terminal.keys(&["1"]);
    terminal.wait_for("functions  cpu  4.00 s of 9.00 s");
    assert!(terminal.screen().contains(" filters: ignore=bar\n"));
    terminal.keys(&["R"]);
    terminal.wait_for("▴self");
    terminal.keys(&[">"]);
    terminal.wait_for("▾total ");
    terminal.keys(&["q"]);
    terminal.is_restored();
}

#[test]
fn a_difference_is_shown_and_exported() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(100, 14, &[]);
    let dir = terminal.dir.path();
    terminal.run("prof report --ignore foo2 known.pb.gz -o after.pb.gz; clear");
    until(|| dir.join("after.pb.gz").exists());
    terminal.run("prof report --diff known.pb.gz after.pb.gz");
    terminal.shows("difference");
    terminal.keys(&["o", "<"]);
    terminal.shows("difference-of-totals");
    for (name, begin) in [
        ("diff.svg", "<?xml"),
        ("diff.json", "{\"version\":1,\"type\":"),
        ("diff.txt", "Before: known.pb.gz"),
        ("graph.dot", "digraph"),
    ] {
        let text = std::fs::read_to_string(terminal.export(name)).unwrap();
        assert!(text.starts_with(begin), "{name}: {text}");
    }
    terminal.keys(&["q"]);
    terminal.is_restored();
    terminal.run("clear; prof diff known.pb.gz after.pb.gz");
    terminal.shows("difference");
    terminal.keys(&["q"]);
    terminal.is_restored();
    terminal.run("clear; prof diff --stdio known.pb.gz after.pb.gz");
    terminal.wait_for("Changed by more than sampling error");
    terminal.is_restored();
}

#[test]
fn keys_are_read_from_the_terminal_while_the_profile_comes_from_a_pipe() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(80, 12, &[]);
    for command in ["prof report known.pb.gz < /dev/null", "cat known.pb.gz | prof report -"] {
        terminal.run(&format!("clear; {command}"));
        terminal.wait_for("bar  (known)");
        terminal.keys(&["t"]);
        terminal.wait_for("call tree");
        terminal.keys(&["q"]);
        terminal.is_restored();
    }
}

#[test]
fn a_typed_text_has_the_keys_of_a_shell_and_help_ends_with_a_click() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(80, 12, &[]);
    terminal.run("prof report known.pb.gz");
    terminal.wait_for("bar  (known)");
    terminal.keys(&["w", "o", "n", "e", "C-u", "t", "o", "o", "C-h", "Left", "w"]);
    terminal.wait_for(".pb.gz): two");
    terminal.keys(&["C-c"]);
    terminal.wait_until("the keys", |screen| screen.contains("? help"));
    terminal.keys(&["?"]);
    terminal.wait_for("j k, arrows");
    // The left button on a row, as xterm reports it.
    terminal.output(&["send-keys", "-l", "--", "\x1b[<0;5;4M"]);
    terminal.wait_until("the table", |screen| {
        screen.contains("bar  (known)") && !screen.contains("j k, arrows")
    });
    terminal.keys(&["q"]);
    terminal.is_restored();
}

#[test]
fn the_terminal_is_restored_after_a_panic() {
    if !needs(&["tmux"]) {
        return;
    }
    // Only builds with debug assertions panic here, as that of the tests.
    for place in ["draw", "work"] {
        let terminal =
            Terminal::start(80, 24, &["RUST_BACKTRACE=0", &format!("PROF_TEST_PANIC={place}")]);
        terminal.run("prof report known.pb.gz; echo exit $?");
        terminal.wait_for("a test wants a panic");
        terminal.wait_for("exit 1");
        terminal.is_restored();
    }
}

#[test]
fn the_terminal_is_restored_after_signals() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(80, 12, &[]);
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        terminal.run("clear; prof report known.pb.gz");
        terminal.wait_for("bar  (known)");
        // SAFETY: kill takes numbers; prof runs until then.
        assert_eq!(unsafe { libc::kill(terminal.prof(), signal) }, 0);
        terminal.wait_until("the shell", |screen| !screen.contains("bar  (known)"));
        terminal.is_restored();
    }
    // ^Z stops it, and fg continues it where it was.
    terminal.run("clear; prof report known.pb.gz");
    terminal.wait_for("bar  (known)");
    terminal.keys(&["t"]);
    terminal.wait_for("call tree");
    terminal.keys(&["C-z"]);
    terminal.wait_for("Stopped");
    terminal.is_restored();
    terminal.run("fg");
    terminal.shows("call-tree");
    terminal.keys(&["q"]);
    terminal.is_restored();
}

/// Fails unless prof ends with its terminal, also where the kernel sends it no SIGHUP.
pub fn ends_with_the_terminal(command: &str, shown: &str) {
    for before in ["", "exec setsid -w "] {
        let terminal = Terminal::start(80, 12, &[]);
        terminal.run(&format!("{before}{command}"));
        terminal.wait_for(shown);
        let prof = format!("/proc/{}", terminal.prof());
        terminal.output(&["kill-server"]);
        until(|| !Path::new(&prof).exists());
    }
}

#[test]
fn a_hang_up_ends_it() {
    if !needs(&["tmux"]) {
        return;
    }
    ends_with_the_terminal("prof report known.pb.gz", "bar  (known)");
}

#[test]
fn a_small_or_simple_terminal_shows_what_it_can() {
    if !needs(&["tmux"]) {
        return;
    }
    let tiny = Terminal::start(20, 5, &[]);
    tiny.run("prof report known.pb.gz");
    tiny.shows("tiny");
    tiny.keys(&["F"]);
    tiny.shows("tiny-flame-graph");
    tiny.keys(&["f"]);
    tiny.shows("tiny");
    tiny.keys(&["Enter"]);
    tiny.shows("tiny-menu");
    // Not at once with the next key, which would be Alt and that key.
    tiny.keys(&["Escape"]);
    tiny.shows("tiny");
    tiny.keys(&["F"]);
    tiny.shows("tiny-flame-graph");
    tiny.output(&["resize-window", "-x", "60", "-y", "8"]);
    tiny.shows("resized-flame-graph");
    let ascii = Terminal::start(80, 12, &["LANG=C", "NO_COLOR=1"]);
    ascii.run("prof report -g known.pb.gz");
    ascii.shows("call-tree-in-ascii");
    let dumb = Terminal::start(80, 40, &["TERM=dumb"]);
    dumb.run("prof report known.pb.gz");
    dumb.wait_for("Showing 4 rows");
    dumb.wait_for("prof: text, because a terminal with TERM=dumb cannot move its cursor");
    dumb.run("clear; prof report --stdio known.pb.gz");
    dumb.wait_for("Showing 4 rows");
}

#[test]
fn tables_of_other_columns_and_callers_are_pages() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(100, 16, &[]);
    let ends = |terminal: &Terminal, hint: &str| {
        terminal.wait_for(hint);
        terminal.keys(&["q"]);
        terminal.wait_until("the shell", |screen| screen.trim_end().ends_with('$'));
        terminal.run("clear");
    };
    terminal.run("prof report --type cpu,samples --columns cpu:total,samples:self known.pb.gz");
    terminal.wait_for("cpu: total");
    terminal.wait_for("samples: self");
    ends(&terminal, "f functions");
    terminal.run("prof report --peek foo1 known.pb.gz");
    terminal.wait_for("callers and callees of foo1");
    terminal.wait_for("bar");
    // The page has the filters of the others.
    terminal.keys(&["f"]);
    terminal.wait_for("foo2");
    terminal.keys(&["["]);
    terminal.wait_for("callers and callees of foo1");
    ends(&terminal, "f functions");
    terminal.run("prof report --sort package --ignore bar known.pb.gz");
    terminal.wait_for("packages");
    // The page of the menu, whose rows can be sorted, not one of text.
    terminal.wait_for("▾self");
    terminal.wait_for("ignore=bar");
    ends(&terminal, "Enter menu");
    for option in ["--over 1s", "--time 1s..2s"] {
        terminal.run(&format!("clear; prof report {option} known.pb.gz; echo exit $?"));
        terminal.wait_for("exit 1");
        terminal.wait_for("the profile has no times of samples");
        terminal.is_restored();
    }
}

#[test]
fn a_file_that_cannot_be_read_is_one_line() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(80, 12, &[]);
    terminal.run("prof report none.pb.gz; echo exit $?");
    terminal.wait_for("exit 1");
    let screen = terminal.screen();
    assert!(screen.contains("prof: cannot read none.pb.gz: no such file"), "{screen}");
    terminal.is_restored();
}

/// Writes a profile whose call tree has 900,000 nodes.
fn large(path: &Path) {
    use profile::{Builder, LabelSetId, Limits};

    const FUNCTIONS: u64 = 5000;
    let mut b = Builder::new(&[("samples", "count")]);
    b = b.with_limits(Limits { nodes: 1 << 30, rows: 1 << 30, ..Limits::default() });
    let functions: Vec<_> = (0..FUNCTIONS).map(|i| b.named_location(&format!("f{i}"))).collect();
    let mut number = 1u64;
    for _ in 0..15_000 {
        let frame = |_| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            functions[((number >> 33) % FUNCTIONS) as usize]
        };
        let stack: Vec<_> = (0..60).map(frame).collect();
        b.add(&stack, LabelSetId::EMPTY, 1, &[]);
    }
    formats::pprof::write(&b.finish(None), std::fs::File::create(path).unwrap()).unwrap();
}

#[test]
fn escape_cancels_a_page_and_its_key_computes_it_again() {
    if !needs(&["tmux"]) {
        return;
    }
    let terminal = Terminal::start(80, 12, &[]);
    large(&terminal.dir.path().join("large.pb.gz"));
    terminal.run("prof report large.pb.gz");
    terminal.wait_for("functions  samples");
    terminal.wait_for("f1");
    for key in ["t", "r"] {
        terminal.keys(&[key, "Escape"]);
        terminal.wait_for("canceled; Backspace goes back");
        terminal.keys(&[key]);
        terminal.wait_until("the page", |screen| {
            !screen.contains("canceled") && screen.contains("▸ f")
        });
    }
    // Canceled once more, and left.
    terminal.keys(&["F", "Escape"]);
    terminal.wait_for("canceled; Backspace goes back");
    terminal.keys(&["BSpace"]);
    terminal.wait_for("callers  samples");
    terminal.keys(&["q"]);
    terminal.is_restored();
}
