//! Output files of a recording, and the files that are left after a failed write.

use std::fs::OpenOptions;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common;
use crate::common::system::SmallDisk;
use crate::common::{
    Build, Pprof, Prof, Running, needs, read, skip, system, target, temp_dir, until,
};

fn names(dir: impl AsRef<Path>) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Records `touch RAN`: without the file RAN, the output was refused before the COMMAND ran.
fn refused_before_the_command_runs(output: &str) {
    let dir = temp_dir();
    std::fs::create_dir(dir.path().join("directory")).unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let prof = Prof::new(&dir, "record -o").arg(output);
    let out = prof.target("touch", "RAN").run();
    out.refused(1, &[output]);
    assert_eq!(names(&dir), ["directory", "file"], "{}", out.stderr);
}

#[test]
fn a_missing_output_directory_is_refused_before_the_command_runs() {
    refused_before_the_command_runs("no/such/directory/x.pb.gz");
}

#[test]
fn an_output_in_proc_is_refused() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -o /proc/x.pb.gz").target("true", "").run();
    out.refused(1, &["no file can be created in /proc"]);
}

#[test]
fn an_output_that_is_a_directory_is_refused_before_the_command_runs() {
    refused_before_the_command_runs("directory");
}

#[test]
fn an_output_below_a_file_is_refused_before_the_command_runs() {
    refused_before_the_command_runs("file/x.pb.gz");
}

#[test]
fn an_output_on_a_read_only_file_system_is_refused_before_the_command_runs() {
    refused_before_the_command_runs("/proc/sys/kernel/x.pb.gz");
}

#[test]
fn an_output_directory_without_permission_is_refused() {
    if !system::needs_root() || !common::needs(&["setpriv"]) {
        return;
    }
    let dir = temp_dir();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
    let prof = dir.path().join("prof");
    common::copy_program(env!("CARGO_BIN_EXE_prof"), &prof);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(prof);
    command.args(["record", "--", "true"]).current_dir(&dir);
    Prof { command }.run().refused(1, &["profile.pb.gz"]);
    assert_eq!(names(&dir), ["prof"]);
}

/// The disk is full when the profile is written: the old file stays whole, nothing else is left.
#[test]
fn a_full_disk_leaves_the_old_file_whole() {
    if !system::needs_root() {
        return;
    }
    let dir = temp_dir();
    let Some(disk) = SmallDisk::mount(dir.path().join("disk"), 64) else {
        return skip("no tmpfs can be mounted");
    };
    let file = disk.path.join("profile.pb.gz");
    Prof::new(&disk.path, "record -F 99").target(target("exits", Build::C), "0 200").run().ok();
    let old = std::fs::read(&file).unwrap();
    Pprof::decode(&old);
    // Fills the rest of the disk; the part that fits stays.
    std::fs::write(disk.path.join("filler"), vec![0u8; 64 << 10]).unwrap_err();
    let out =
        Prof::new(&disk.path, "record -F 999").target(target("recurse", Build::C), "10 0.3").run();
    out.refused(1, &["profile.pb.gz"]);
    assert!(out.stderr.contains("space"), "{}", out.stderr);
    assert_eq!(std::fs::read(&file).unwrap(), old, "the old file is not whole");
    assert_eq!(names(&disk.path), ["filler", "profile.pb.gz"]);
}

/// The kernel's signal for it ends programs that do not expect it; the COMMAND still gets it.
#[test]
fn a_limit_of_file_sizes_is_reported_as_a_full_disk_is() {
    let dir = temp_dir();
    std::fs::write(dir.path().join("profile.pb.gz"), "old").unwrap();
    let script = "ulimit -f 2; exec \"$0\" record -F 999 -- \"$@\"";
    let run = |words: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, env!("CARGO_BIN_EXE_prof")]).args(words);
        shell.current_dir(&dir).output().unwrap()
    };
    let command = copied_to_a_long_path(&target("recurse", Build::C), dir.path());
    let out = run(&[command.to_str().unwrap(), "10", "0.3"]);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot write profile.pb.gz: it would exceed"), "{stderr}");
    assert_eq!(std::fs::read(dir.path().join("profile.pb.gz")).unwrap(), b"old");
    assert_eq!(names(&dir), ["profile.pb.gz", "programs"]);
    // 128 + SIGXFSZ.
    let out = run(&["sh", "-c", "yes > big; echo ended by $?"]);
    assert!(String::from_utf8_lossy(&out.stdout).contains("ended by 153"), "{out:?}");
}

/// Copies `program` below `dir` to a path of 2,880 random hexadecimal digits: no compression
/// makes a profile that names it smaller than 1,440 bytes, however few stacks it has.
fn copied_to_a_long_path(program: &Path, dir: &Path) -> PathBuf {
    let mut random = [0; 1440];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
    let mut path = dir.join("programs");
    for part in random.chunks(120) {
        path.push(part.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    }
    std::fs::create_dir_all(&path).unwrap();
    path.push("recurse");
    std::fs::copy(program, &path).unwrap();
    path
}

#[test]
fn a_full_device_is_refused_and_not_replaced() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -o /dev/full").target("true", "").run();
    out.refused(1, &["/dev/full"]);
    assert!(Path::new("/dev/full").exists());
}

#[test]
fn an_existing_file_is_replaced_and_keeps_its_mode() {
    let dir = temp_dir();
    let file = dir.path().join("x.pb.gz");
    std::fs::write(&file, "old").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    let record = |busy: &str| {
        Prof::new(&dir, "record -F 999 -o x.pb.gz").target(target("exits", Build::C), busy).run()
    };
    record("0 200").ok();
    assert!(read(&file).total_share("before_exit") > 80.0);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(names(&dir), ["x.old.pb.gz", "x.pb.gz"]);
    assert_eq!(std::fs::read(dir.path().join("x.old.pb.gz")).unwrap(), b"old");
}

#[test]
fn a_recording_without_samples_replaces_one_without_samples_alone() {
    let dir = temp_dir();
    // A sample a second: a short command has none.
    let empty = || Prof::new(&dir, "record -F 1").target("true", "").run().ok();
    let program = target("exits", Build::C);
    empty();
    empty();
    assert_eq!(names(&dir), ["profile.pb.gz"]);
    Prof::new(&dir, "record -F 999").target(&program, "0 200").run().ok();
    let good = std::fs::read(dir.path().join("profile.pb.gz")).unwrap();
    empty().says(&["profile.pb.gz stays", "no samples"]);
    assert_eq!(std::fs::read(dir.path().join("profile.pb.gz")).unwrap(), good);
    assert_eq!(names(&dir), ["profile.pb.gz"]);
    let idle = Running::start(Command::new("sleep").arg("60"));
    let attached = Prof::new(&dir, "record -F 1 -d 200ms -p").arg(idle.pid().to_string()).run();
    attached.exits(1).says(&["profile.pb.gz stays"]);
    // That no event happened is a result.
    Prof::new(&dir, "record -e page-faults:k").target("true", "").run().ok();
    assert_eq!(std::fs::read(dir.path().join("profile.old.pb.gz")).unwrap(), good);
}

#[test]
fn a_profile_on_standard_output_is_whole() {
    let dir = temp_dir();
    let known = Running::start(Command::new(target("known", Build::C)).arg("0"));
    let pid = known.pid().to_string();
    let out = Prof::new(&dir, "record -F 999 -d 1s -o - -p").arg(pid).run().ok();
    assert!(Pprof::decode(&out.stdout).total_share("main") > 95.0);
    assert!(names(&dir).is_empty());
    assert!(out.stderr.contains("samples"), "{}", out.stderr);
}

#[test]
fn output_of_the_command_stays_out_of_a_profile_on_standard_output() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -o -").target("echo", "one two").run().ok();
    Pprof::decode(&out.stdout);
    out.says(&["one two\n", "the command's standard output goes to standard error"]);
    let out = Prof::new(&dir, "record").target("echo", "one two").run().ok();
    assert_eq!(out.text(), "one two\n");
}

#[test]
fn the_suggested_next_command_works() {
    let dir = temp_dir();
    let record = |file: &str, seconds: &str| {
        let prof = Prof::new(&dir, "record -F 999 -o").arg(file);
        prof.target(target("known", Build::C), seconds).run().ok()
    };
    let next = "next: prof report 'my file.gz', or prof flame 'my file.gz' > out.svg\n";
    record("my file.gz", "0.2").says(&[next]);
    let out = record("/dev/null", "0.2").says(&["wrote /dev/null"]);
    assert!(!out.stderr.contains("next:"), "{}", out.stderr);
    let out = Prof::new(&dir, "record -e cpu-clock -F 1").target("true", "").run().ok();
    assert!(!out.stderr.contains("next:"), "{}", out.stderr);
}

#[test]
fn a_command_that_ends_at_once_gives_a_valid_profile() {
    let dir = temp_dir();
    for _ in 0..10 {
        Prof::new(&dir, "record").target("true", "").run().ok();
        let p = read(dir.path().join("profile.pb.gz"));
        assert!(p.figure("samples") <= 5, "{:?}", p.comments);
    }
}

/// No process ran: the file is valid, and both `prof record` and `prof report` report it.
#[test]
fn an_empty_recording_is_valid_and_reported() {
    let dir = temp_dir();
    let sleeper = Running::start(Command::new("sleep").arg("60"));
    let pid = sleeper.pid().to_string();
    let out = Prof::new(&dir, "record -d 300ms -p").arg(&pid).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.samples.len(), 0);
    assert_eq!(p.sample_types.len(), 2);
    assert!(p.duration_nanos >= 290_000_000);
    let words = out.stderr.to_lowercase();
    assert!(["no sample", "asleep", "idle"].iter().any(|w| words.contains(w)), "{}", out.stderr);
    let report = Prof::new(&dir, "report").run().ok();
    let words = (report.text() + &report.stderr).to_lowercase();
    assert!(words.contains("no sample") || words.contains("empty"), "{words}");
    if common::needs(&["go"]) {
        let file = dir.path().join("profile.pb.gz");
        let mut go = Command::new("go");
        go.args(["tool", "pprof", "-raw"]).arg(file);
        common::run::run(go).ok();
    }
}

#[test]
fn quiet_prints_nothing() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "record -q -e cpu-clock").target("true", "").run().ok();
    assert_eq!(out.stderr, "");
}

/// A recording whose symbolization waits for a debuginfod server that never answers.
struct Waiting {
    dir: tempfile::TempDir,
    prof: Running,
    _connection: TcpStream,
}

impl Waiting {
    fn start(output: &str) -> Waiting {
        let dir = temp_dir();
        let program = dir.path().join("program");
        common::copy_program(target("known", Build::C), &program);
        assert!(Command::new("strip").arg(&program).status().unwrap().success());
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let prof = Prof::new(&dir, "record -F 999 -o")
            .arg(output)
            .env("DEBUGINFOD_TIMEOUT", "170")
            .env("XDG_CACHE_HOME", dir.path().join("cache"))
            .args(&format!("--debuginfod=http://{}", silent.local_addr().unwrap()))
            .target(&program, "1")
            .start();
        let (connection, _) = silent.accept().unwrap();
        Waiting { dir, prof, _connection: connection }
    }
}

#[test]
fn a_recording_is_on_disk_before_it_is_symbolized() {
    if !needs(&["strip"]) {
        return;
    }
    let Waiting { dir, prof, _connection } = Waiting::start("profile.pb.gz");
    let file = dir.path().join("profile.pb.gz");
    assert!(read(&file).figure("samples") > 20);
    prof.signal(libc::SIGKILL);
    prof.finish();
    assert!(read(&file).figure("samples") > 20);
    let left = names(&dir);
    assert!(!left.iter().any(|name| name.starts_with(".prof-")), "{left:?}");
    // The names can be added afterwards.
    Prof::new(&dir, "symbolize").run().ok();
    assert!(!read(&file).samples.is_empty());
}

#[test]
fn an_interrupted_symbolization_loses_nothing_on_standard_output() {
    if !needs(&["strip"]) {
        return;
    }
    let Waiting { prof, _connection, .. } = Waiting::start("-");
    prof.signal(libc::SIGINT);
    let out = prof.finish().ok();
    assert!(Pprof::decode(&out.stdout).figure("samples") > 20, "{}", out.stderr);
}

/// True if a thread of a process waits for the other end of a FIFO.
fn opens_a_fifo(pid: i32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let place = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("wchan"));
    tasks.map(place).any(|place| place.is_ok_and(|p| p == "fifo_open" || p == "wait_for_partner"))
}

/// A FIFO next to the binary, at the path of its debug information: opening it blocks forever.
#[test]
fn a_hanging_symbolization_ends_with_the_first_interrupt() {
    if !needs(&["mkfifo"]) {
        return;
    }
    let dir = temp_dir();
    let program = dir.path().join("program");
    common::copy_program(target("known", Build::CDebug), &program);
    let fifo = dir.path().join("program.dwp");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let file = dir.path().join("profile.pb.gz");
    let mut prof = Prof::new(&dir, "record -F 999").target(&program, "0.5").start();
    // If it opens the FIFO, it hangs there; if not, it ends by itself.
    let pid = prof.pid();
    until(|| !prof.is_running() || file.exists() && opens_a_fifo(pid));
    if prof.is_running() {
        prof.signal(libc::SIGINT);
    }
    let out = prof.finish().ok();
    assert!(read(&file).figure("samples") > 20, "{}", out.stderr);
}

#[test]
fn unwritable_messages_cost_no_recording() {
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
    for closed in [false, true] {
        let dir = temp_dir();
        let mut prof = Prof::new(&dir, "record -F 999 -e cpu-clock");
        prof = prof.target(target("known", Build::C), "0.2");
        let mut command = prof.command;
        if closed {
            let mut shell = Command::new("sh");
            shell.args(["-c", "exec \"$@\" 2>&-", "sh"]).arg(command.get_program());
            shell.args(command.get_args()).current_dir(&dir);
            command = shell;
        }
        let status = command.stdin(Stdio::null()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(0), "closed: {closed}");
        assert!(read(dir.path().join("profile.pb.gz")).figure("samples") > 20);
    }
}

#[test]
fn only_its_owner_may_read_a_recording() {
    let dir = temp_dir();
    Prof::new(&dir, "record").target("true", "").run().ok();
    let about = std::fs::metadata(dir.path().join("profile.pb.gz")).unwrap();
    assert_eq!(about.mode() & 0o777, 0o600);
}

/// `sudo prof record` and then `prof report`.
#[test]
fn with_sudo_a_recording_belongs_to_the_user_in_their_directory() {
    if !system::needs_root() {
        return;
    }
    let record = |dir: &Path| {
        let prof = Prof::new(dir, "record").env("SUDO_UID", "65534").env("SUDO_GID", "65533");
        prof.target("true", "").run().ok();
        let about = std::fs::metadata(dir.join("profile.pb.gz")).unwrap();
        (about.uid(), about.gid(), about.mode() & 0o777)
    };
    let dir = temp_dir();
    assert_eq!(record(dir.path()), (0, std::fs::metadata(&dir).unwrap().gid(), 0o600));
    let theirs = temp_dir();
    chown(&theirs, Some(65534), Some(65534)).unwrap();
    for _ in 0..2 {
        assert_eq!(record(theirs.path()), (65534, 65533, 0o600));
    }
}

/// As in the kernel with `fs.protected_symlinks`, independent of this machine's setting.
#[test]
fn a_link_of_another_user_in_a_shared_directory_is_not_followed() {
    if !system::needs_root() {
        return;
    }
    let dir = temp_dir();
    let shared = dir.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o1777)).unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    symlink(&secret, shared.join("profile.pb.gz")).unwrap();
    lchown(shared.join("profile.pb.gz"), Some(65534), Some(65534)).unwrap();
    let out = Prof::new(&shared, "record").target("touch", "RAN").run();
    out.refused(1, &["profile.pb.gz", "a symbolic link of another user"]);
    assert_eq!(std::fs::read(&secret).unwrap(), b"secret");
    assert_eq!(names(&shared), ["profile.pb.gz"]);
}
