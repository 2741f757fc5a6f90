//! The tables that `prof report` shows first of each type: leaf frames of the scheduler, of locks, of
//! the block layer and of allocators are folded into their callers.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::system::{child, needs_root, needs_tracefs};
use crate::common::{Build, Prof, Running, skip, target, temp_dir, until};

/// The titles and the cells of the first row of the table that `prof report ARGS` prints.
fn first_row(dir: &Path, args: &str) -> (String, Vec<String>) {
    let text = Prof::new(dir, &format!("report {args}")).run().ok().text();
    let mut lines = text.lines().skip_while(|line| !line.contains(" self%"));
    let titles = lines.next().unwrap_or_else(|| panic!("no table: {text}"));
    let row = lines.next().unwrap_or_else(|| panic!("no row: {text}"));
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    (words(titles).join(" "), words(row))
}

fn report(dir: &Path, args: &str) -> String {
    Prof::new(dir, &format!("report {args}")).run().ok().text()
}

/// The kernel's own name of the place where a thread waits.
fn place_of_wait(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    // Without what the compiler added.
    name.split('.').next().unwrap_or_default().to_owned()
}

#[test]
fn a_wait_is_shown_where_the_kernel_says_that_the_thread_waits() {
    if !needs_root() || !needs_tracefs() {
        return;
    }
    let waits = ["sleep 60", "sleep 60 & wait", "exec 3<>p; read line <&3"];
    for waits in waits {
        let dir = temp_dir();
        let fifo = dir.path().join("p");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let mut shell = Command::new("bash");
        shell.current_dir(&dir).args(["-c", &format!("{waits}; true")]).stdin(Stdio::null());
        let shell = Running::start(&mut shell);
        let pid = match waits {
            "sleep 60" => child(shell.pid()),
            _ => shell.pid(),
        };
        let is_waiting = || !["", "0"].contains(&place_of_wait(pid).as_str());
        until(is_waiting);
        Prof::new(&dir, &format!("record -T wall -d 300ms -p {pid}")).run().ok();
        let (titles, row) = first_row(dir.path(), "");
        let place = place_of_wait(pid);
        assert!(titles.ends_with("state binary function"), "{titles}");
        assert_eq!(row[row.len() - 3], "sleeping", "{waits}: {row:?}");
        assert!(row[row.len() - 1].starts_with(&place), "{waits}: {place}: {row:?}");
    }
}

#[test]
fn all_frames_are_shown_if_requested() {
    if !needs_root() || !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    Prof::new(&dir, "record -T wall").target("sleep", "0.3").run().ok();
    let whole = report(dir.path(), "--all-frames -n 0");
    let folded = report(dir.path(), "-n 0");
    assert!(whole.contains("  schedule\n") && !whole.contains("Left out: "), "{whole}");
    assert!(!folded.contains("  schedule\n"), "{folded}");
    assert!(folded.contains("\nLeft out: leaf frames of the scheduler; "), "{folded}");
    let total = |text: &str| text.lines().find(|l| l.starts_with("Total: ")).map(str::to_owned);
    assert_eq!(total(&whole), total(&folded));
    // A filter finds them, and so does a view of one of them.
    let focused = report(dir.path(), "--focus ^schedule$");
    assert!(focused.contains("hrtimer_nanosleep"), "{focused}");
    let peeked = report(dir.path(), "--peek ^schedule$");
    assert!(peeked.contains("do_nanosleep"), "{peeked}");
    let json = report(dir.path(), "--json");
    assert!(json.contains("\"leaf_frames_left_out\":\"scheduler\""), "{json}");
    // Folded stacks are data for other programs.
    let stacks = Prof::new(&dir, "flame --folded").run().ok().text();
    assert!(stacks.contains(";schedule;"), "{stacks}");
}

#[test]
fn a_lock_is_shown_with_the_function_that_waits_for_it() {
    if !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    for (program, args, kind) in [
        (target("locks", Build::C), "mutex 20", "mutex"),
        (target("locks", Build::C), "read 20", "rwlock"),
        (target("locks", Build::C), "semaphore 20", "semaphore"),
        (target("locks", Build::Cpp), "mutex 20", "mutex"),
        (target("locks", Build::Rust), "mutex 20", "mutex"),
    ] {
        Prof::new(&dir, "record -T lock").target(&program, args).run().ok();
        let (titles, row) = first_row(dir.path(), "");
        assert!(titles.ends_with("lock kind binary function"), "{titles}");
        let at = |name: &str| row.iter().position(|cell| cell == name);
        let lock = at(kind).unwrap_or_else(|| panic!("{program:?} {args}: {row:?}"));
        assert!(row[lock - 1].starts_with("0x"), "{row:?}");
        // Only the names of Rust have paths here.
        assert!(row.last().unwrap().contains("take"), "{program:?} {args}: {row:?}");
    }
}

#[test]
fn a_request_is_shown_with_its_device_and_process() {
    if !needs_root() || !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    Prof::new(&dir, "record -T io")
        .target("dd", "if=/dev/zero of=written bs=1M count=8 conv=fsync status=none")
        .run()
        .ok();
    let text = report(dir.path(), "");
    if text.contains("No sample has a value") {
        // The directory is in memory.
        skip("no request to a block device");
        return;
    }
    let (titles, row) = first_row(dir.path(), "");
    assert!(titles.ends_with("device process binary function"), "{titles}");
    assert!(row.contains(&"dd".to_owned()), "{row:?}");
    let function = row.last().unwrap();
    let is_below = |start: &&str| function.trim_start_matches('_').starts_with(*start);
    assert!(!["blk_", "submit_bio", "virtio"].iter().any(is_below), "{row:?}");
}

#[test]
fn the_first_requested_type_that_has_values_is_shown() {
    if !needs_root() || !needs_tracefs() {
        return;
    }
    let dir = temp_dir();
    // So that it reads nothing from a disk.
    Command::new("sleep").arg("0").status().unwrap();
    for types in ["wall,lock,io", "lock,wall", "io,lock,wall"] {
        Prof::new(&dir, &format!("record -T {types}")).target("sleep", "0.3").run().ok();
        let text = report(dir.path(), "");
        assert!(text.contains("\nType: wall [nanoseconds]"), "-T {types}: {text}");
    }
    // Of memory that was freed, that which was allocated.
    let source = "#include <stdlib.h>\nint main(void) { free(malloc(100000)); _Exit(0); }\n";
    fs::write(dir.path().join("frees.c"), source).unwrap();
    let mut compiler = Command::new("gcc");
    compiler.current_dir(&dir).args(["-O0", "-fno-builtin", "-o", "frees", "frees.c"]);
    assert!(compiler.status().unwrap().success());
    let program = dir.path().join("frees");
    Prof::new(&dir, "record -T heap --heap-interval 1").target(&program, "").run().ok();
    assert!(report(dir.path(), "").contains("\nType: alloc_space "));
    let program = target("heap", Build::C);
    Prof::new(&dir, "record -T heap --heap-interval 1K").target(&program, "steps").run().ok();
    assert!(report(dir.path(), "").contains("\nType: inuse_space "));
}

#[test]
fn the_processes_of_a_machine_are_in_the_summary() {
    if !needs_root() {
        return;
    }
    let dir = temp_dir();
    let busy = |script: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", script]);
        Running::start(&mut command)
    };
    let _one = busy("while True: pass");
    let mut other = Command::new("sh");
    other.args(["-c", "while :; do :; done"]);
    let _other = Running::start(&mut other);
    let out = Prof::new(&dir, "record -a -d 500ms").run().ok();
    assert!(
        out.stderr.contains("next: prof report --sort process, or prof flame"),
        "{}",
        out.stderr
    );
    let text = report(dir.path(), "");
    let line = text.lines().find(|line| line.starts_with("Processes: ")).expect(&text);
    assert!(line.ends_with(" (--sort process)"), "{line}");
    let shares = line.split(['%', ' ']).filter_map(|word| word.parse::<f64>().ok());
    let shares: Vec<f64> = shares.filter(|share| share.fract() != 0.0).collect();
    assert!(shares.is_sorted_by(|a, b| a >= b), "{line}");
}
