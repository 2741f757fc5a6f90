//! The heap library in processes of programs that were not written for these tests (`--inject`):
//! they work on without a mistake, while and after they are recorded.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::injected::{endless, maps, samples, wait_for_library};
use crate::common::unprivileged::{can_drop_rights, open_dir};
use crate::common::{Build, Pprof, Prof, Running, needs, read, target, temp_dir, until};

/// A program that prints a line every now and then works on while and after it is recorded, and
/// some of its allocations are recorded.
#[track_caller]
fn works_on(command: &mut Command, lines: usize) -> Pprof {
    let dir = temp_dir();
    let (mut running, _) = Running::start(command).wait_for("1");
    let pid = running.pid();
    let args = format!("record -T heap --inject -d 2s -p {pid} --heap-interval 64K");
    let out = Prof::new(&dir, &args).run().ok().says(&["stays there without effect"]);
    let p = read(dir.path().join("profile.pb.gz"));
    assert!(p.total(p.column("alloc_space")) > 0, "{}", out.stderr);
    let next = format!("{lines}");
    let seen = maps(pid);
    assert!(seen.contains("memfd:prof-heap"), "{seen}");
    // From the beginning on, one after the other.
    let before;
    (running, before) = running.wait_for(&next);
    let expected: Vec<String> = (2..lines).map(|n| n.to_string()).collect();
    assert_eq!(before, expected);
    assert!(running.is_running());
    p
}

#[test]
fn python_works_on_after_an_injection() {
    if !needs(&["python3"]) {
        return;
    }
    let code = "import time\nn = 0\nwhile True:\n n += 1\n print(n, flush=True)\n\
                \x20for i in range(2000): bytearray(10000)\n time.sleep(0.02)";
    works_on(Command::new("python3").args(["-c", code]), 120);
}

#[test]
fn node_works_on_after_an_injection() {
    if !needs(&["node"]) {
        return;
    }
    let code = "let n = 0; setInterval(() => { console.log(String(++n)); \
                for (let i = 0; i < 300; i++) Buffer.alloc(20000); }, 20)";
    works_on(Command::new("node").args(["-e", code]), 120);
}

#[test]
fn java_works_on_after_an_injection() {
    if !needs(&["java", "javac"]) {
        return;
    }
    let classes = target("Allocates", Build::Java);
    works_on(Command::new("java").arg("-cp").arg(classes).arg("Allocates"), 120);
}

#[test]
fn redis_works_on_after_an_injection() {
    if !needs(&["redis-server", "redis-cli"]) {
        return;
    }
    let dir = temp_dir();
    let socket = dir.path().join("socket");
    let mut server = Command::new("redis-server");
    server.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
    let mut server = Running::start(&mut server);
    until(|| socket.exists());
    let redis = |words: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.arg("-s").arg(&socket).args(words).stdin(Stdio::null());
        common::run::run(command).ok().text()
    };
    let prof = endless(&dir, server.pid(), "--heap-interval 64K");
    let prof = wait_for_library(prof, server.pid());
    let fill = "for i = 1, 20000 do redis.call('set', 'key' .. i, string.rep('x', 1000)) end";
    redis(&["eval", fill, "0"]);
    prof.signal(libc::SIGINT);
    prof.finish().ok().says(&["stays there without effect"]);
    let p = read(dir.path().join("profile.pb.gz"));
    // 20 MB, of which one in 64 KiB is sampled.
    let in_use = p.total(p.column("inuse_space"));
    assert!((15_000_000..40_000_000).contains(&in_use), "{in_use}");
    assert_eq!(redis(&["strlen", "key20000"]), "1000\n");
    assert!(server.is_running());
}

/// The server's programs, which are in no directory of `PATH`.
fn postgres(program: &str) -> Option<std::path::PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found = versions.filter_map(|v| Some(v.ok()?.path().join("bin").join(program)));
    found.find(|path| path.exists())
}

/// A backend at work, and the server that starts all backends.
#[test]
fn postgresql_works_on_after_an_injection() {
    if !can_drop_rights() {
        return;
    }
    let (Some(initdb), Some(server)) = (postgres("initdb"), postgres("postgres")) else {
        return common::skip("postgresql is not installed");
    };
    let dir = open_dir();
    // It refuses to run as root.
    let unprivileged = |program: &std::path::Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
        command.current_dir(&dir).stdin(Stdio::null());
        command
    };
    let data = dir.path().join("data");
    let mut make = unprivileged(&initdb);
    make.args(["-U", "prof", "--auth=trust", "-N", "-D"]).arg(&data);
    common::run::run(make).ok();
    let mut serve = unprivileged(&server);
    serve.args(["-h", "", "-F", "-k"]).arg(dir.path()).arg("-D").arg(&data);
    let mut server = Running::start(&mut serve);
    until(|| dir.path().join(".s.PGSQL.5432").exists());
    let psql = || {
        let mut command = Command::new("psql");
        command.args(["-AtqX", "-U", "prof", "-h"]).arg(dir.path()).arg("postgres");
        command
    };
    let answers = || {
        let mut ask = psql();
        ask.args(["-c", "select 6 * 7"]).stdin(Stdio::null());
        common::run::run(ask).status.success()
    };
    until(answers);
    let (theirs, mut words) = std::io::pipe().unwrap();
    let session = Running::start(psql().stdin(Stdio::from(theirs)));
    writeln!(words, "select pg_backend_pid(); select 'there';").unwrap();
    let (mut session, pid) = session.wait_for("there");
    let backend: i32 = pid[0].parse().unwrap();
    for (pid, works) in [(backend, true), (server.pid(), false), (backend, true)] {
        let mut prof = endless(&dir, pid, "--heap-interval 64K");
        // A sleeping process is not stopped: queries keep both of them busy.
        let end = Instant::now() + Duration::from_secs(60);
        while !samples(&prof, pid) {
            assert!(answers());
            if Instant::now() > end || !prof.is_running() {
                panic!("{}", prof.finish().stderr);
            }
            writeln!(words, "select 'awake';").unwrap();
            session = session.wait_for("awake").0;
        }
        let sort = "select count(*) from (select md5(i::text) from generate_series(1, 100000) i \
                    order by 1) sorted; select 'sorted';";
        writeln!(words, "{sort}").unwrap();
        let count;
        (session, count) = session.wait_for("sorted");
        assert_eq!(count, ["100000"]);
        assert!(answers());
        prof.signal(libc::SIGINT);
        // A thread has to run for the library to be taken out of use, too.
        while prof.is_running() {
            assert!(answers());
            writeln!(words, "select 'awake';").unwrap();
            session = session.wait_for("awake").0;
        }
        prof.finish().ok().says(&["stays there without effect"]);
        let p = read(dir.path().join("profile.pb.gz"));
        assert!(!works || p.total(p.column("alloc_space")) > 1 << 20);
    }
    assert!(server.is_running() && answers());
}
