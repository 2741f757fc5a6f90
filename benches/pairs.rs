//! The recorder's CPU time for a sample, of this prof and of an earlier one, in pairs.
//!
//! cargo bench --bench pairs -- --before PROF [--pairs 10 --seconds 4 --hz 999]
//!
//! Both attach to the same program by turns. Their CPU time is the scheduler's, without that of
//! their start and their end. The bench has no section in `docs/benchmarks.md`: with `--update` it
//! does nothing.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{
    PROF, claim, flag, has, median, option, running_time, settle, start, target, temp_dir,
};

/// Microseconds for a sample of a program that uses one CPU.
fn cost(prof: &Path, pid: i32, hz: u64, seconds: u64, dir: &Path) -> f64 {
    let mut command = Command::new(prof);
    command.args(["record", "--no-symbolize", "-e", "cpu-clock", "-o"]).arg(dir.join("p.pb.gz"));
    command.args(["-F", &hz.to_string(), "-d", &format!("{}s", seconds + 3)]);
    command.args(["-p", &pid.to_string()]).stdin(Stdio::null()).stderr(Stdio::piped());
    let prof = start(&mut command);
    settle(1500);
    let before = running_time(prof.pid());
    settle(seconds * 1000);
    let used = running_time(prof.pid()) - before;
    let (usage, stderr) = prof.finish();
    assert!(usage.ok, "{command:?}\n{stderr}");
    used as f64 / 1e3 / (seconds * hz) as f64
}

fn main() {
    let before: PathBuf = option("before", PathBuf::from(PROF));
    if flag("update") {
        return println!("pairs has no section in docs/benchmarks.md");
    }
    let pairs: usize = option("pairs", 10);
    let hz: u64 = option("hz", 999);
    let seconds: u64 = option("seconds", 4);
    let dir = temp_dir();
    let known = target("known.c", "gcc", &["-O2", "-fomit-frame-pointer", "-pthread"]);
    let mut programs: Vec<(&str, Vec<String>)> =
        vec![("C", vec![known.display().to_string(), "3600".to_owned()])];
    let others: [(&str, &[&str]); 2] = [
        ("python3", &["-c", "import json\nwhile 1: json.dumps(list(range(300)), indent=1)"]),
        ("openssl", &["speed", "-seconds", "3600", "rsa2048"]),
    ];
    for (program, args) in others.into_iter().filter(|(program, _)| has(program)) {
        let words = std::iter::once(&program).chain(args).map(|word| (*word).to_owned());
        programs.push((program, words.collect()));
    }
    println!("CPU time for a sample at {hz} Hz, medians of {pairs} pairs");
    for (name, words) in programs {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        let target = start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        settle(500);
        let mut old = Vec::new();
        let mut new = Vec::new();
        for _ in 0..pairs {
            old.push(cost(&before, target.pid(), hz, seconds, dir.path()));
            new.push(cost(Path::new(PROF), target.pid(), hz, seconds, dir.path()));
        }
        target.signal(libc::SIGKILL);
        let old = median(old);
        let new = median(new);
        println!("{name:8} before {old:.2} us, now {new:.2} us");
        claim(new <= 1.1 * old, &format!("{name}: at most 10 % more"));
    }
}
