//! CPU time that `prof top` takes, names included, after its first seconds.
//!
//! cargo bench --bench top [-- --seconds 20 --hz 99]

mod support;

use std::process::{Command, Stdio};

use support::units::percent;
use support::{Figures, claim, option};

/// Clock ticks of a process and of its children that have ended.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
    let field = |i: usize| fields.split(' ').nth(i).and_then(|n| n.parse::<u64>().ok());
    // utime, stime, cutime and cstime: the fields 14 to 17.
    (11..15).filter_map(field).sum()
}

fn main() {
    let seconds: u32 = option("seconds", 20);
    let hz: u32 = option("hz", 99);
    let python = ["-c", "while True: x = sum(range(1000))"];
    let start = |command: &mut Command| {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("it starts")
    };
    let targets = [
        start(Command::new("python3").args(python)),
        start(Command::new("openssl").args(["speed", "-seconds", "600", "sha256"])),
    ];
    let pids = targets.each_ref().map(|target| target.id().to_string()).join(",");
    let mut figures = Figures::new(&["Target", "CPU of prof, in percent of a core"]);
    figures.conditions(&format!(
        "{seconds} s at {hz} Hz, after the first 10 s; python3 and openssl are busy."
    ));
    for (name, arguments) in [("two processes", vec!["-p", &pids]), ("whole machine", vec!["-a"])] {
        let mut command = support::prof();
        command.args(["top", "--batch", "-F", &hz.to_string()]).args(arguments);
        let mut prof = start(&mut command);
        support::settle(10_000);
        let before = ticks(prof.id());
        support::settle(1000 * u64::from(seconds));
        // 100 ticks are a second.
        let used = (ticks(prof.id()) - before) as f64 / f64::from(seconds);
        prof.kill().and_then(|()| prof.wait()).expect("it ends");
        figures.row(name, [percent(used)]);
        claim(used < 1.0, &format!("{name}: {used:.2} % of a core"));
    }
    for mut target in targets {
        target.kill().and_then(|()| target.wait()).expect("it ends");
    }
    figures.publish();
}
