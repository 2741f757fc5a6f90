//! Programs that were not written for tests: interpreters, a compiler, a server under load.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::common;
use crate::common::system::{has_deep_stacks, needs_root};
use crate::common::{Pprof, Prof, Running, needs, read, system, temp_dir, until};

/// Share of the samples whose user stack begins at the entry of a thread or program.
fn whole_stacks(p: &Pprof) -> f64 {
    const ENTRIES: &[&str] = &[
        "_start",
        "__libc_start_main",
        "__libc_start_call_main",
        "clone",
        "clone3",
        "start_thread",
    ];
    p.share(|s| {
        let frames = p.frames(s);
        frames.last().is_some_and(|f| {
            ENTRIES.iter().any(|e| f.trim_start_matches('_').contains(e.trim_start_matches('_')))
        })
    })
}

fn script(name: &str) -> String {
    common::targets::source(name).display().to_string()
}

#[test]
fn python_is_recorded_in_its_interpreter_loop() {
    if !needs(&["python3"]) {
        return;
    }
    let dir = temp_dir();
    let args = format!("{} 3", script("busy.py"));
    Prof::new(&dir, "record -F 999").target("python3", &args).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    // Of 3 s of CPU time.
    assert!(p.figure("samples") > 2000, "{:?}", p.comments);
    p.assert_nothing_is_missing();
    let eval = p.share(|s| p.frames(s).iter().any(|f| f.starts_with("_PyEval_EvalFrame")));
    assert!(eval > 85.0, "_PyEval_EvalFrame: {eval} %");
    let names = p.label_values("process");
    assert!(names.iter().any(|n| n.starts_with("python")), "{names:?}");
}

#[test]
fn an_attached_python_has_whole_stacks() {
    if !needs(&["python3"]) {
        return;
    }
    let dir = temp_dir();
    let python = Running::start(Command::new("python3").args([&script("busy.py"), "0"]));
    let (python, _) = python.wait_for("ready");
    let pid = python.pid().to_string();
    let prof = Prof::new(&dir, "record -F 999 -d 1h -p").arg(pid).start().sampling();
    system::until_has_run(python.pid(), 1.5);
    prof.signal(libc::SIGINT);
    prof.finish().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.figure("samples") > 1000, "{:?}", p.comments);
    let eval = p.share(|s| p.frames(s).iter().any(|f| f.starts_with("_PyEval_EvalFrame")));
    assert!(eval > 90.0, "_PyEval_EvalFrame: {eval} %");
    assert!(whole_stacks(&p) > 95.0, "whole: {} % {:?}", whole_stacks(&p), p.comments);
}

/// With a perf map the compiled JavaScript has names; node is the most common JIT compiler.
#[test]
fn node_with_a_perf_map_has_names() {
    if !needs(&["node"]) {
        return;
    }
    let dir = temp_dir();
    let args = format!("--perf-basic-prof {} 3", script("busy.js"));
    let out = Prof::new(&dir, "record -F 999").target("node", &args).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    for pid in p.label_values("pid") {
        std::fs::remove_file(Path::new("/tmp").join(format!("perf-{pid}.map"))).ok();
    }
    let hot = p.share(|s| p.frames(s).iter().any(|f| f.contains("hotFunction")));
    assert!(hot > 60.0, "hotFunction: {hot} %\n{}", out.stderr);
    assert!(whole_stacks(&p) > 90.0, "whole: {} % {:?}", whole_stacks(&p), p.comments);
}

#[test]
fn node_without_a_perf_map_has_its_functions_or_gets_advice() {
    if !needs(&["node"]) {
        return;
    }
    let dir = temp_dir();
    let args = format!("{} 2", script("busy.js"));
    // Without copies of stacks, no functions are read.
    let out = Prof::new(&dir, "record -F 999 -g fp").target("node", &args).run().ok();
    out.says(&["code that node made at run time", "start node with --perf-basic-prof"]);
    let out = Prof::new(&dir, "record -F 999").target("node", &args).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    // Of 2 s of CPU time.
    assert!(p.figure("samples") > 1300, "{:?}", p.comments);
    p.assert_nothing_is_missing();
    let inside = p.share(|s| p.frames(s).iter().any(|f| f.starts_with("node::Start")));
    assert!(inside > 70.0, "node::Start: {inside} % {:?}", p.comments);
    if needs_root() && has_deep_stacks() {
        let hot = p.share(|s| p.frames(s).contains(&"hotFunction"));
        assert!(hot > 60.0, "hotFunction: {hot} %\n{}", out.stderr);
    }
}

/// A driver that starts the compiler and the assembler: three programs, one recording.
#[test]
fn all_programs_of_a_compiler_run_are_recorded() {
    let dir = temp_dir();
    let mut text = String::from("#include <stdlib.h>\n");
    for n in 0..4000 {
        text += &format!(
            "int f{n}(int *a, int n) {{ int s = {n}; for (int i = 0; i < n; i++) \
             s += a[i] * (i ^ {n}) + (a[(i + {n}) % n] >> (s & 7)); return s; }}\n"
        );
    }
    std::fs::write(dir.path().join("big.c"), text).unwrap();
    let prof = Prof::new(&dir, "record -F 999").target("gcc", "-O0 -c big.c");
    let mut child = prof.command_with(Stdio::null()).spawn().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(dir.path().join("big.o").exists());
    let p = read(dir.path().join("profile.pb.gz"));
    let [compiler, assembler] = ["cc1", "as"].map(|name| p.label_share("process", name));
    assert!(compiler > 60.0, "{compiler} % {:?}", p.label_values("process"));
    // Without optimization, the assembler has about 5 % of the time; with it, nearly none.
    assert!(assembler > 1.0, "{assembler} % {:?}", p.label_values("process"));
    p.assert_nothing_is_missing();
    assert!(p.mappings.iter().any(|m| m.file.ends_with("/cc1") && !m.build_id.is_empty()));
}

/// A free TCP port; no other process takes it within the next moments.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_loaded_redis_server_has_whole_stacks() {
    if !needs(&["redis-server", "redis-benchmark"]) {
        return;
    }
    let dir = temp_dir();
    let port = free_port().to_string();
    let server = Running::start(
        Command::new("redis-server")
            .args(["--port", &port, "--save", "", "--bind", "127.0.0.1"])
            .current_dir(&dir),
    );
    until(|| std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
    let _load = Running::start(Command::new("redis-benchmark").args([
        "-p",
        &port,
        "-q",
        "-l",
        // Several commands in a packet: otherwise, nearly all of the time is spent in the kernel.
        "-P",
        "32",
        "-t",
        "set,get,lpush",
    ]));
    let pid = server.pid().to_string();
    let prof = Prof::new(&dir, "record -F 999 -d 1h -p").arg(&pid).start().sampling();
    system::until_has_run(server.pid(), 1.5);
    prof.signal(libc::SIGINT);
    prof.finish().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.figure("samples") > 1000, "{:?}", p.comments);
    assert_eq!(p.label_values("pid"), [pid.as_str()].into());
    assert!(p.total_share("aeMain") > 85.0, "aeMain: {} %", p.total_share("aeMain"));
    assert!(p.total_share("processCommand") > 5.0, "{} %", p.total_share("processCommand"));
    assert!(whole_stacks(&p) > 95.0, "whole: {} % {:?}", whole_stacks(&p), p.comments);
    assert!(p.mappings[0].file.contains("redis"), "{:?}", p.mappings[0]);
}
