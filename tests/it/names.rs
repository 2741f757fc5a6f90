//! Names of code that is gone, moved or hidden when the recording ends: of deleted and replaced
//! binaries, of other mount namespaces, of processes that live for milliseconds, of the kernel; and
//! of containers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common;
use crate::common::machine::Sysctl;
use crate::common::system::{self, Cgroup, needs_root};
use crate::common::{
    Build, Pprof, Prof, ProfRecording, Running, assert_share, needs, read, skip, target, temp_dir,
};

/// Records a shell script in `dir`.
#[track_caller]
fn record(dir: &Path, script: &str) -> (Pprof, String) {
    let out = Prof::new(dir, "record -F 999 -- sh -c").arg(script).run().ok();
    (read(dir.join("profile.pb.gz")), out.stderr)
}

fn known() -> PathBuf {
    target("known", Build::CDebug)
}

/// Checks that the functions of `known` have their shares: all of them have names, the right ones.
#[track_caller]
fn assert_known(p: &Pprof, messages: &str) {
    let of_known = |s: &common::pprof::Sample| {
        s.labels.get("process").is_some_and(|name| name.starts_with("known"))
    };
    let all = p.share(of_known);
    let part = |function: &str| {
        let leaf = |s: &common::pprof::Sample| p.user_frames(s).first() == Some(&function);
        100.0 * p.share(|s| of_known(s) && leaf(s)) / all
    };
    assert!(all > 50.0, "{all} %: {messages}\n{:?}", p.mappings);
    assert_share("bar", part("bar"), 55.6, 10.0);
    assert_share("main", part("main"), 22.2, 8.0);
}

#[test]
fn a_binary_deleted_while_recording_has_names() {
    let dir = temp_dir();
    let known = known().display().to_string();
    let script =
        format!("cp {known} known-x; ./known-x 1 & sleep 0.2; rm known-x; wait; sleep 0.4");
    let (p, messages) = record(dir.path(), &script);
    assert_known(&p, &messages);
}

/// More files than may be open at once, by the soft limit, which prof raises, or by the hard one;
/// the command keeps its own.
#[test]
fn programs_beyond_the_limit_of_open_files_have_names() {
    for limit in ["-Sn 40", "-n 72"] {
        let dir = temp_dir();
        let known = known().display().to_string();
        let script = format!(
            "for i in $(seq 80); do cp {known} known-$i; done; ulimit -n\n\
             for i in $(seq 80); do ./known-$i 0.01; done > /dev/null"
        );
        let limited = format!("ulimit {limit}; exec \"$@\"");
        let mut shell = Command::new("sh");
        shell.args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_prof"), "record", "-F", "999"]);
        shell.args(["--", "sh", "-c", &script]).current_dir(&dir);
        let out = common::run::run(shell).ok();
        assert_eq!(Some(out.text().trim()), limit.split(' ').next_back());
        let p = read(dir.path().join("profile.pb.gz"));
        assert_known(&p, &out.stderr);
    }
}

/// A replaced binary has the names of its own build when the recording ends.
#[test]
fn a_binary_replaced_while_recording_has_its_own_names() {
    let dir = temp_dir();
    let (known, other) = (known(), target("exits", Build::C));
    let script = format!(
        "cp {} known-x; ./known-x 1 & sleep 0.2; cp {} y; mv y known-x; wait; sleep 0.4",
        known.display(),
        other.display()
    );
    let (p, messages) = record(dir.path(), &script);
    assert_known(&p, &messages);
    assert_eq!(p.total_share("before_exit"), 0.0);
}

/// Without a build ID, only its time of change distinguishes the file from the recorded one.
#[test]
fn an_overwritten_binary_gives_no_names() {
    let dir = temp_dir();
    let source = common::targets::source("known.c");
    let flags = ["-O2", "-g", "-Wl,--build-id=none", "-o", "known-x"];
    let mut gcc = Command::new("gcc");
    common::run::run({
        gcc.current_dir(&dir).args(flags).arg(&source);
        gcc
    })
    .ok();
    let script =
        format!("./known-x 0.5; cat {} > known-x; sleep 0.4", target("exits", Build::C).display());
    let (p, messages) = record(dir.path(), &script);
    let of_known = p.label_share("process", "known-x");
    assert!(of_known > 50.0, "{of_known} % {messages}");
    assert_eq!(p.total_share("before_exit") + p.total_share("bar"), 0.0);
    assert!(messages.contains("changed or replaced since it was recorded"), "{messages}");
    // The same in a later symbolization of a recording without names.
    let script = "cp known-x old; gcc -O2 -g -Wl,--build-id=none -o known-y \
                  \"$SOURCE\" && ./known-y 0.5";
    let mut prof = Prof::new(&dir, "record -F 999 --no-symbolize -- sh -c").arg(script);
    prof.command.env("SOURCE", &source);
    prof.run().ok();
    common::copy_program(known(), dir.path().join("known-y"));
    Prof::new(&dir, "symbolize").run().ok().says(&["changed or replaced since it was recorded"]);
    assert_eq!(read(dir.path().join("profile.pb.gz")).total_share("bar"), 0.0);
}

/// Of `/lib64/ld-linux-x86-64.so.2 ./known`, the kernel names the process for the linker.
#[test]
fn a_program_started_by_the_dynamic_linker_has_its_own_name() {
    let linker = "/lib64/ld-linux-x86-64.so.2";
    if !Path::new(linker).exists() {
        return skip("the dynamic linker has another name here");
    }
    let dir = temp_dir();
    let known = known().display().to_string();
    let script = format!("cp {known} known-x; exec {linker} --library-path /lib ./known-x 0.5");
    let (p, messages) = record(dir.path(), &script);
    assert_known(&p, &messages);
    assert!(p.label_share("process", "known-x") > 90.0, "{messages}");
    let text = Prof::new(&dir, "report --stdio").run().ok().text();
    assert!(text.starts_with("File: known-x\n"), "{text}");
    // The same of a process that runs already.
    let mut running = Command::new(linker);
    let running = Running::start(running.arg("./known-x").arg("30").current_dir(&dir));
    let maps = format!("/proc/{}/maps", running.pid());
    while !std::fs::read_to_string(&maps).is_ok_and(|maps| maps.contains("/libc.so")) {
        std::thread::yield_now();
    }
    Prof::new(&dir, &format!("record -F 999 -d 0.5 -p {}", running.pid())).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.label_values("process"), ["known-x"].into());
    let text = Prof::new(&dir, "report --stdio").run().ok().text();
    assert!(text.starts_with("File: known-x\n"), "{text}");
}

/// Only the mount namespace has the debug file, and it is gone when the recording ends.
#[test]
fn debug_files_of_another_mount_namespace_are_found() {
    if !needs(&["unshare", "mount", "objcopy"]) || !needs_root() {
        return;
    }
    let ways = [
        // By build ID.
        "strip -o /mnt/known-x known; id=$(readelf -n known | sed -n 's/ *Build ID: //p')
         mkdir -p /usr/lib/debug/.build-id/${id%${id#??}}
         cp known.debug /usr/lib/debug/.build-id/${id%${id#??}}/${id#??}.debug",
        // By the link in the binary.
        "objcopy --strip-all --add-gnu-debuglink=known.debug known /mnt/known-x
         mkdir /usr/lib/debug/mnt; cp known.debug /usr/lib/debug/mnt/",
        "objcopy --strip-all --add-gnu-debuglink=known.debug known /mnt/known-x
         mkdir /mnt/.debug; cp known.debug /mnt/.debug/",
    ];
    for way in ways {
        let dir = temp_dir();
        let inside = format!(
            "mount -t tmpfs none /mnt; mount -t tmpfs none /usr/lib/debug; {way}; /mnt/known-x 1"
        );
        std::fs::write(dir.path().join("inside"), inside).unwrap();
        let known = known().display().to_string();
        let script = format!(
            "cp {known} known; objcopy --only-keep-debug known known.debug
             unshare --mount sh -e inside; sleep 0.4"
        );
        let (p, messages) = record(dir.path(), &script);
        assert_known(&p, &messages);
        assert!(p.mappings.iter().any(|m| m.file == "/mnt/known-x"), "{:?}", p.mappings);
    }
}

/// Only the mount namespace, or the root directory of the process, has the files with the lines of
/// a program. A link out of that directory leads to no lines.
#[test]
fn split_debug_files_of_a_container_are_found() {
    if !needs(&["unshare", "mount", "chroot", "dwp"]) || !needs_root() {
        return;
    }
    let build =
        "gcc -O2 -static -gdwarf-4 -gsplit-dwarf -o known-x known.c; mkdir -p files root/mnt out";
    let parts = "mv known-x *.dwo files/";
    let package = "dwp -e known-x -o files/known-x.dwp; rm *.dwo; mv known-x files/";
    let link = "dwp -e known-x -o out/known-x.dwp; rm *.dwo; mv known-x files/
                ln -s $PWD/out/known-x.dwp files/";
    let mount =
        "unshare --mount sh -ec 'mount -t tmpfs none /mnt; cp -r files/. /mnt; /mnt/known-x 1'";
    let change_root = "cp -r files/. root/mnt; chroot root /mnt/known-x 1";
    // (the files of the container, how it starts, whether the lines are found)
    let cases = [
        (parts, mount, true),
        (package, mount, true),
        (parts, change_root, true),
        (package, change_root, true),
        (link, change_root, false),
    ];
    for (files, start, found) in cases {
        let dir = temp_dir();
        std::fs::copy(common::targets::source("known.c"), dir.path().join("known.c")).unwrap();
        let script = format!("set -e; {build}\n{files}\n{start}; rm -r files; sleep 0.4");
        let (p, messages) = record(dir.path(), &script);
        assert_known(&p, &messages);
        assert!(p.mappings.iter().any(|m| m.file == "/mnt/known-x"), "{:?}", p.mappings);
        let lines = p.sources.values().any(|(file, line)| file.ends_with("known.c") && *line > 0);
        assert_eq!(lines, found, "{files}; {start}: {messages}");
    }
}

/// The namespace, its file system and its processes are gone when the recording ends.
#[test]
fn a_binary_in_another_mount_namespace_has_names() {
    if !needs(&["unshare", "mount"]) || !needs_root() {
        return;
    }
    let dir = temp_dir();
    let known = known().display().to_string();
    let inside = format!("mount -t tmpfs none /mnt && cp {known} /mnt/known-x && /mnt/known-x 1");
    let (p, messages) = record(dir.path(), &format!("unshare --mount sh -c '{inside}'; sleep 0.4"));
    assert_known(&p, &messages);
    assert!(p.mappings.iter().any(|m| m.file == "/mnt/known-x"), "{:?}", p.mappings);
}

#[test]
fn a_binary_in_a_chroot_has_names() {
    if !needs(&["chroot"]) || !needs_root() {
        return;
    }
    let dir = temp_dir();
    let source = common::targets::source("known.c");
    let mut gcc = Command::new("gcc");
    gcc.current_dir(&dir).args(["-O2", "-static", "-o", "known-x"]).arg(source);
    common::run::run(gcc).ok();
    let (p, messages) = record(
        dir.path(),
        "mkdir root && cp known-x root/ && chroot root /known-x 1; rm -r root; sleep 0.4",
    );
    assert_known(&p, &messages);
    assert!(p.mappings.iter().any(|m| m.file == "/known-x"), "{:?}", p.mappings);
}

/// Shares of the leaves and of the user frames that have names, in samples of processes of this
/// name.
fn named(p: &Pprof, process: &str) -> (f64, f64) {
    let (mut samples, mut leaves, mut all, mut with) = (0, 0, 0, 0);
    for s in p.samples.iter().filter(|s| s.labels.get("process").is_some_and(|n| n == process)) {
        let count = s.values[0];
        let frames = p.frames(s);
        samples += count;
        leaves += if frames.first().is_some_and(|f| *f != "[?]") { count } else { 0 };
        for frame in p.user_frames(s) {
            all += count;
            with += if frame == "[?]" { 0 } else { count };
        }
    }
    assert!(samples > 25, "{samples} samples of {process}: {:?}", p.label_values("process"));
    (100.0 * leaves as f64 / samples as f64, 100.0 * with as f64 / f64::max(all as f64, 1.0))
}

#[test]
fn processes_that_live_for_milliseconds_have_names() {
    if !needs(&["xargs"]) || !needs_root() {
        return;
    }
    let dir = temp_dir();
    let (exits, forker) = (target("exits", Build::CDebug), target("forker", Build::CDebug));
    // Runs until the shell is killed; the processes that it started end by themselves.
    let script = format!(
        "while :; do seq 20 | xargs -n 1 {} 0 12 > /dev/null; {} 40 1 5000 > /dev/null; done",
        exits.display(),
        forker.display()
    );
    let load = Running::start(Command::new("sh").args(["-c", &script]));
    Prof::new(&dir, "record -a -F 999 -d 5s").run().ok();
    drop(load);
    let p = read(dir.path().join("profile.pb.gz"));
    for process in ["exits", "forker"] {
        let (leaves, frames) = named(&p, process);
        assert!(leaves >= 99.0 && frames >= 97.0, "{process}: {leaves} % {frames} %");
    }
}

/// When prof searches for the file, no process that ran it is left, only the shell that started
/// them; and the file has no build ID.
#[test]
fn short_lived_processes_in_another_mount_namespace_have_names() {
    if !needs(&["unshare", "mount"]) || !needs_root() {
        return;
    }
    let dir = temp_dir();
    let mut gcc = Command::new("gcc");
    let source = common::targets::source("exits.c");
    gcc.current_dir(&dir).args(["-O2", "-g", "-Wl,--build-id=none", "-o", "brief"]).arg(source);
    common::run::run(gcc).ok();
    let inside = "mount -t tmpfs none /mnt; cp brief /mnt; \
                  for n in $(seq 30); do /mnt/brief 0 10 > /dev/null; done";
    let (p, messages) = record(dir.path(), &format!("unshare --mount sh -c '{inside}'"));
    let (leaves, frames) = named(&p, "brief");
    assert!(leaves >= 99.0 && frames >= 97.0, "{leaves} % {frames} %\n{messages}");
    assert!(p.mappings.iter().any(|m| m.file == "/mnt/brief"), "{:?}", p.mappings);
}

/// Each program is deleted as soon as it has ended, as by `configure` and test runners.
#[test]
fn programs_deleted_after_each_run_are_never_named_wrongly() {
    let dir = temp_dir();
    let exits = target("exits", Build::CDebug).display().to_string();
    let script = format!("for n in $(seq 60); do cp {exits} x; ./x 0 15 > y; rm x; done");
    let (p, _) = record(dir.path(), &script);
    let mut leaves: BTreeMap<&str, i64> = BTreeMap::new();
    for s in &p.samples {
        let Some(leaf) = s.locations.first() else { continue };
        if p.mapping_of.get(leaf).is_some_and(|&m| p.mappings[m].file.ends_with("/x")) {
            *leaves.entry(p.frames(s)[0]).or_default() += s.values[0];
        }
    }
    let all: i64 = leaves.values().sum();
    let right = ["before_exit", "main", "cpu_ms", "_start", "clock_gettime@plt"];
    let named: i64 = leaves.iter().filter(|(f, _)| right.contains(f)).map(|(_, n)| n).sum();
    assert!(all > 100 && named * 100 >= all * 99, "{leaves:?}");
}

#[test]
fn bpf_programs_have_names_whenever_they_were_loaded() {
    if !needs_root() {
        return;
    }
    let dir = temp_dir();
    let program = target("bpf", Build::C);
    let out = Prof::new(&dir, "record -F 999").target(&program, "400").run();
    if out.status.code() == Some(3) {
        return skip("BPF programs cannot be loaded here");
    }
    let out = out.ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let part = |end: &str| {
        p.share(|s| {
            let named = |f: &&str| f.starts_with("bpf_prog_") && f.ends_with(end);
            p.frames(s).first().is_some_and(named)
        })
    };
    let (first, second) = (part("_first"), part("_second"));
    let mut leaves: BTreeMap<&str, usize> = BTreeMap::new();
    p.samples.iter().for_each(|s| *leaves.entry(p.frames(s)[0]).or_default() += 1);
    assert!(first > 20.0 && second > 40.0, "{first} % {second} %\n{leaves:?}\n{}", out.stderr);
    let ratio = second / first;
    assert!((1.6..2.5).contains(&ratio), "{first} % {second} %\n{leaves:?}\n{}", out.stderr);
    assert!(p.mappings.iter().any(|m| m.file == "[bpf]"), "{:?}", p.mappings);

    let running = Running::start(Command::new(&program).arg("for-ever"));
    let (running, _) = running.wait_for("ready");
    Prof::new(&dir, "record -F 999 -d 1s -p").arg(running.pid().to_string()).run().ok();
    drop(running);
    let p = read(dir.path().join("profile.pb.gz"));
    let named = p.share(|s| p.frames(s).first().is_some_and(|f| f.ends_with("_first")));
    assert!(named > 70.0, "{named} %");
    assert!(p.mappings.iter().any(|m| m.file == "[bpf]"), "{:?}", p.mappings);
    let text = Prof::new(&dir, "report --sort binary").run().ok().text();
    assert!(text.contains("[bpf]"), "{text}");
}

/// The kernel reports a new program to each recording, in records of different sizes.
#[test]
fn bpf_programs_have_names_in_several_recordings_at_once() {
    if !needs_root() {
        return;
    }
    let dir = temp_dir();
    let program = target("bpf", Build::C);
    let begun = ["first", "last"]
        .map(|file| ProfRecording::start(dir.path(), &format!("{file}.pb.gz"), "-a -F 999"));
    let out = Prof::new(&dir, "record -F 999").target(&program, "400").run();
    if out.status.code() == Some(3) {
        return skip("BPF programs cannot be loaded here");
    }
    out.ok();
    let mut profiles = Vec::from(begun.map(ProfRecording::stop));
    profiles.push(read(dir.path().join("profile.pb.gz")));
    for p in &profiles {
        let mut leaves: BTreeMap<&str, i64> = BTreeMap::new();
        let of_target =
            |s: &&common::pprof::Sample| s.labels.get("process").is_some_and(|n| n == "bpf");
        for s in p.samples.iter().filter(of_target) {
            *leaves.entry(p.frames(s)[0]).or_default() += s.values[0];
        }
        let all: i64 = leaves.values().sum();
        let part = |end: &str| {
            let named =
                leaves.iter().filter(|(f, _)| f.starts_with("bpf_prog_") && f.ends_with(end));
            100.0 * named.map(|(_, n)| n).sum::<i64>() as f64 / all as f64
        };
        let (first, second) = (part("_first"), part("_second"));
        assert!(first > 28.0 && second > 60.0, "{first} % {second} % {leaves:?}");
    }
}

#[test]
fn hidden_kernel_addresses_are_reported_and_not_guessed() {
    let Some(_hidden) = Sysctl::set("kernel.kptr_restrict", "2") else { return };
    let dir = temp_dir();
    let program = target("faults", Build::C);
    let out = Prof::new(&dir, "record -F 999").target(program, "3000").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let in_kernel = |s: &common::pprof::Sample| s.locations.first().is_some_and(|l| p.is_kernel(l));
    let share = p.share(in_kernel);
    if share < 1.0 {
        return skip("the kernel is not sampled here");
    }
    assert_eq!(p.share(|s| in_kernel(s) && p.frames(s)[0] != "[?]"), 0.0);
    let out = out.says(&["kallsyms hides its addresses", "prof doctor"]);
    assert!(!out.stderr.contains("panicked"));
}

/// A container as Docker makes it, without the daemon.
struct Container {
    id: String,
    cgroup: PathBuf,
    _parent: Cgroup,
    config: PathBuf,
}

impl Container {
    fn new(name: &str) -> Option<Container> {
        let parent = Cgroup::new("docker")?;
        let id = format!("{:064x}", 0xfeed_0000_0000u64 + u64::from(std::process::id()));
        let cgroup = parent.path.join(format!("docker-{id}.scope"));
        std::fs::create_dir(&cgroup).ok()?;
        let config = Path::new("/var/lib/docker/containers").join(&id);
        std::fs::create_dir_all(&config).ok()?;
        let text = format!(r#"{{"ID":"{id}","Name":"/{name}"}}"#);
        std::fs::write(config.join("config.v2.json"), text).ok()?;
        Some(Container { id, cgroup, _parent: parent, config })
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.config).ok();
        system::remove_cgroup(&self.cgroup);
    }
}

#[test]
fn samples_have_the_name_of_their_container() {
    if !needs_root() {
        return;
    }
    let Some(container) = Container::new("web") else {
        return skip("no cgroup (v2) can be made here");
    };
    let dir = temp_dir();
    let known = known();
    let script = format!(
        "{0} 0.5; echo $$ > {1}/cgroup.procs; exec {0} 1",
        known.display(),
        container.cgroup.display()
    );
    let (p, _) = record(dir.path(), &script);
    assert_eq!(p.label_values("container"), ["web"].into());
    assert_eq!(p.label_values("container_id"), [container.id.as_str()].into());
    assert_share("in the container", p.label_share("container", "web"), 66.7, 8.0);
    let text = Prof::new(&dir, "report --sort container").run().ok().text();
    assert!(text.lines().any(|l| l.contains(" web")), "{text}");
}
