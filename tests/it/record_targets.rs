//! Targets of a recording: processes, threads, trees, CPUs, cgroups, the whole machine.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::common;
use crate::common::system::{self, Cgroup};
use crate::common::{
    Build, Pprof, Prof, Running, assert_share, read, skip, target, temp_dir, until,
};

fn known() -> Running {
    Running::start(Command::new(target("known", Build::C)).arg("0"))
}

fn family(children: u32) -> (Running, Vec<String>) {
    let mut command = Command::new(target("family", Build::C));
    Running::start(command.arg(children.to_string())).wait_for("ready")
}

fn threads(count: u32, life_ms: u32, busy_us: u32) -> Running {
    let mut command = Command::new(target("threads", Build::C));
    command.args([count, life_ms, 0, busy_us].map(|n| n.to_string()));
    Running::start(&mut command).wait_for("ready").0
}

/// IDs of the current threads of a process.
fn tids(pid: i32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.flatten().map(|t| t.file_name().into_string().unwrap()).collect()
}

/// Waits until a process has used this CPU time; returns what it has used.
fn runs_for(running: &Running, seconds: f64) -> f64 {
    let before = system::cpu_seconds(running.pid());
    system::until_has_run(running.pid(), seconds);
    system::cpu_seconds(running.pid()) - before
}

/// Fails unless a process has the CPU time in a recording that it used in the meantime; it begins
/// before and ends after that, and the kernel's count has a resolution of 10 ms.
#[track_caller]
fn assert_all_time(p: &Pprof, pid: &str, used: f64) {
    let cpu = p.column("cpu");
    let of_it = p.samples.iter().filter(|s| s.labels.get("pid").is_some_and(|p| p == pid));
    let seen = of_it.map(|s| s.values[cpu]).sum::<i64>() as f64 / 1e9;
    assert!((0.9 * used..1.1 * used + 0.2).contains(&seen), "{seen} s of {used} s");
}

#[test]
fn several_processes_are_recorded_together() {
    let dir = temp_dir();
    let (a, b, c) = (known(), known(), known());
    let list = format!("{},{}", a.pid(), b.pid());
    let out = Prof::new(&dir, "record -F 999 -d 2s -p").arg(list);
    out.arg("-p").arg(c.pid().to_string()).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let pids = [a.pid(), b.pid(), c.pid()].map(|p| p.to_string());
    let pids: std::collections::BTreeSet<&str> = pids.iter().map(String::as_str).collect();
    assert_eq!(p.label_values("pid"), pids);
    assert_eq!(p.label_values("process"), ["known"].into());
}

#[test]
fn labels_name_process_and_thread() {
    let dir = temp_dir();
    let threads = threads(3, 0, 20000);
    Prof::new(&dir, "record -F 999 -d 1s -p").arg(threads.pid().to_string()).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    for s in &p.samples {
        assert_eq!(s.labels["pid"], threads.pid().to_string());
        assert_eq!(s.labels["process"], "threads");
    }
    let workers = ["worker-0", "worker-1", "worker-2"];
    for worker in workers {
        assert!(p.label_values("thread").contains(worker), "{:?}", p.label_values("thread"));
    }
    let seen = p.label_values("tid");
    let all = tids(threads.pid());
    assert!(seen.len() >= 3 && seen.iter().all(|t| all.iter().any(|a| a == t)), "{seen:?}");
}

#[test]
fn the_main_binary_comes_first_with_its_build_id() {
    let dir = temp_dir();
    let program = target("known", Build::C);
    Prof::new(&dir, "record -F 999").target(&program, "1").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let main = &p.mappings[0];
    assert_eq!(main.file, program.display().to_string());
    assert!(main.has_functions && main.start < main.limit);
    let mut readelf = Command::new("readelf");
    readelf.arg("-n").arg(&program);
    let notes = common::run::run(readelf).ok().text();
    let id = notes.lines().find_map(|l| l.trim().strip_prefix("Build ID: ")).unwrap();
    assert_eq!(main.build_id, id);
}

#[test]
fn a_parent_that_only_waits_gets_advice_about_tree() {
    let dir = temp_dir();
    let (family, _) = family(2);
    let pid = family.pid().to_string();
    Prof::new(&dir, "record -F 999 -d 1s -p").arg(pid).run().ok().says(&["--tree"]);
}

#[test]
fn a_tree_includes_existing_children() {
    let dir = temp_dir();
    let (family, children) = family(3);
    let pid = family.pid().to_string();
    let out = Prof::new(&dir, "record -F 999 -d 2s --tree -p").arg(pid).run().ok();
    assert!(!out.stderr.contains("--tree"), "{}", out.stderr);
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.self_share("child_work") > 90.0);
    assert_eq!(p.label_values("pid"), children.iter().map(String::as_str).collect());
}

#[test]
fn children_born_later_are_recorded() {
    let dir = temp_dir();
    let known = target("known", Build::C);
    let script = format!("read line; {} 1 >&2; echo done; sleep 60", known.display());
    let mut shell = Command::new("sh");
    let mut shell = Running::start(shell.args(["-c", &script]).stdin(Stdio::piped()));
    let prof = Prof::new(&dir, "record -F 999 -d 1h -p").arg(shell.pid().to_string());
    let prof = prof.start().sampling();
    writeln!(shell.stdin()).unwrap();
    let _shell = shell.wait_for("done");
    prof.signal(libc::SIGINT);
    prof.finish().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.total_share("bar") > 40.0, "{:?}", p.label_values("process"));
    assert!(p.label_share("process", "known") > 90.0);
}

#[test]
fn no_inherit_leaves_children_out() {
    let dir = temp_dir();
    let forker = target("forker", Build::C);
    Prof::new(&dir, "record -F 999 --no-inherit").target(forker, "200 1 2000").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.total_share("child_work"), 0.0);
}

#[test]
fn one_thread_is_recorded_alone() {
    let dir = temp_dir();
    let threads = threads(4, 0, 20000);
    let tid = tids(threads.pid()).into_iter().max().unwrap();
    Prof::new(&dir, "record -F 999 -d 1s -t").arg(&tid).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.label_values("tid"), [tid.as_str()].into());
}

/// 500 threads that live for a second each: those that exist at the attach, and those that start
/// later, are in the recording, with the CPU time that the kernel reports for them.
#[test]
fn the_cpu_time_of_500_short_lived_threads_is_recorded() {
    let dir = temp_dir();
    let threads = threads(500, 1000, 80);
    let pid = threads.pid();
    let prof = Prof::new(&dir, "record -e cpu-clock -F 999 -d 1h -p").arg(pid.to_string());
    let prof = prof.start().sampling();
    let early = system::cpu_seconds(pid);
    let mut existed = BTreeSet::new();
    until(|| {
        existed.extend(tids(pid));
        existed.len() > 2000
    });
    let used = system::cpu_seconds(pid) - early;
    prof.signal(libc::SIGINT);
    prof.finish().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let seen = p.total(p.column("cpu")) as f64 / 1e9;
    assert!((0.8..1.2).contains(&(seen / used)), "{seen:.3} s of {used:.3}: {:?}", p.comments);
    assert!(p.label_values("tid").len() > 700, "{} threads", p.label_values("tid").len());
    assert!(p.total_share("thread_work") > 30.0);
    assert_eq!(p.figure("lost"), 0, "{:?}", p.comments);
    let named = p.share(|s| s.labels.get("thread").is_some_and(|t| t.starts_with("worker-")));
    assert!(named > 60.0, "only {named} % of the samples have their thread's name");
}

#[test]
fn threads_of_a_process_with_2000_are_recorded() {
    let dir = temp_dir();
    let threads = threads(2000, 0, 15);
    let pid = threads.pid().to_string();
    Prof::new(&dir, "record -F 999 -d 3s -p").arg(pid).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.label_values("tid").len() > 500, "{} threads", p.label_values("tid").len());
    assert!(p.total_share("thread_work") > 20.0);
}

/// All threads are sampled: each thread that is busy for the whole window has samples.
#[test]
fn no_thread_is_missed_when_attaching() {
    let dir = temp_dir();
    let threads = threads(100, 0, 1000);
    Prof::new(&dir, "record -F 999 -d 5s -p").arg(threads.pid().to_string()).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let workers = p.label_values("thread").iter().filter(|t| t.starts_with("worker-")).count();
    assert_eq!(workers, 100);
}

#[test]
fn thousands_of_forks_are_recorded_without_loss() {
    let dir = temp_dir();
    let forker = target("forker", Build::C);
    let out = Prof::new(&dir, "record -F 4999").target(forker, "5000 4 400").run().ok();
    assert_eq!(out.text(), "5000\n");
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.total_share("child_work") > 20.0, "{}", p.total_share("child_work"));
    assert!(p.label_values("pid").len() > 1000, "{}", p.label_values("pid").len());
    assert_eq!(p.figure("lost"), 0, "{:?}", p.comments);
}

#[test]
fn a_deep_recursion_is_truncated_and_counted() {
    let dir = temp_dir();
    let recurse = target("recurse", Build::C);
    Prof::new(&dir, "record -F 999 -g dwarf,8192").target(&recurse, "10000 1").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_share("bottom self", p.self_share("bottom"), 100.0, 5.0);
    let (cut, all) = (p.figure("truncated"), p.figure("samples"));
    // In a second of CPU time; the start of the program is not deep.
    assert!(all > 700 && cut * 999 > all * 900, "{:?}", p.comments);
}

/// The part beyond the kernel's copy is copied by a program in the kernel at the same moment.
#[test]
fn a_stack_deeper_than_its_copy_is_whole() {
    if !system::has_deep_stacks() {
        return;
    }
    let dir = temp_dir();
    let recurse = target("recurse", Build::C);
    Prof::new(&dir, "record -F 499 -g dwarf,2048").target(&recurse, "1000 3").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let whole = p.share(|s| {
        p.frames(s).iter().filter(|f| **f == "recurse").count() == 1000
            && p.frames(s).last().is_some_and(|f| *f == "_start")
    });
    assert!(whole > 95.0, "{whole} %: {:?}", p.comments);
    let (deep, all) = (p.figure("deep-stacks"), p.figure("samples"));
    assert!(all > 1000 && deep * 3 > all * 2, "{:?}", p.comments);
}

#[test]
fn a_shallow_recursion_is_whole() {
    let dir = temp_dir();
    let recurse = target("recurse", Build::C);
    Prof::new(&dir, "record -F 999").target(&recurse, "1000 1").run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    let whole = p.share(|s| {
        p.frames(s).iter().filter(|f| **f == "recurse").count() == 1000
            && p.frames(s).contains(&"main")
    });
    assert!(whole > 95.0, "{whole} %: {:?}", p.comments);
}

#[test]
fn the_whole_machine_is_recorded_without_idle_time() {
    if !system::needs_root() {
        return;
    }
    let dir = temp_dir();
    let known = known();
    let prof = Prof::new(&dir, "record -e cpu-clock -a -F 499 -d 1h").start().sampling();
    let used = runs_for(&known, 1.5);
    prof.signal(libc::SIGINT);
    let out = prof.finish().ok();
    // The clock of a CPU also runs while the CPU idles: no samples are missed then.
    assert!(!out.stderr.contains("the samples cover"), "{}", out.stderr);
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.comment("covered").is_some(), "{:?}", p.comments);
    let pid = known.pid().to_string();
    let of_known = p.label_share("pid", &pid);
    assert_all_time(&p, &pid, used);
    let inside = p.share(|s| {
        s.labels.get("pid") == Some(&pid) && p.frames(s).last().is_some_and(|f| *f == "_start")
    });
    assert!(inside > 0.95 * of_known, "{inside} % whole of {of_known} %");
    // Idle time gives no samples: the sum is never more than the CPUs' time.
    let cpus = std::thread::available_parallelism().unwrap().get() as f64;
    let used = p.total(p.column("cpu")) as f64 / p.duration_nanos as f64;
    assert!(used < cpus * 1.1, "{used} CPUs used of {cpus}");
    assert!(!p.frames(&p.samples[0]).is_empty());
}

#[test]
fn only_the_selected_cpus_are_recorded() {
    if !system::needs_root() {
        return;
    }
    let dir = temp_dir();
    let mut taskset = Command::new("taskset");
    let known = Running::start(taskset.args(["-c", "0"]).arg(target("known", Build::C)).arg("0"));
    let pid = known.pid().to_string();
    let prof = Prof::new(&dir, "record -C 0 -e cpu-clock -F 999 -d 1h -o on.pb.gz");
    let prof = prof.start().sampling();
    let used = runs_for(&known, 0.5);
    prof.signal(libc::SIGINT);
    prof.finish().ok();
    assert_all_time(&read(dir.path().join("on.pb.gz")), &pid, used);
    if std::thread::available_parallelism().unwrap().get() > 1 {
        Prof::new(&dir, "record -C 1 -F 999 -d 1s -o off.pb.gz").run().ok();
        assert_eq!(read(dir.path().join("off.pb.gz")).label_share("pid", &pid), 0.0);
    } else {
        system::skip_hardware("there is only one CPU");
    }
}

#[test]
fn only_processes_of_the_cgroup_are_recorded() {
    if !system::needs_root() {
        return;
    }
    let Some(group) = Cgroup::new("busy") else { return skip("no cgroup v2 can be made") };
    let dir = temp_dir();
    let (inside, outside) = (known(), known());
    group.add(inside.pid());
    Prof::new(&dir, "record -F 999 -d 2s -G").arg(&group.path).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_eq!(p.label_values("pid"), [inside.pid().to_string().as_str()].into());
    let name = group.path.file_name().unwrap().to_str().unwrap();
    let groups = p.label_values("cgroup");
    assert!(groups.iter().any(|g| g.ends_with(name)), "{groups:?}");
    drop((inside, outside));
}
