//! `--when`: the condition that ends a recording, checked on a thread of its own.

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::cli::usage;
use crate::sampler::{Ender, Target};
use messages::Message;
use sys::{os, procfs};

/// Time between two checks, and the least time over which a share is measured.
const INTERVAL: Duration = Duration::from_secs(1);

/// Between two checks there are at least this many times the time that one takes.
const LEAST_REST: u32 = 100;

/// Time between two looks at a command that runs.
const COMMAND_INTERVAL: Duration = Duration::from_millis(20);

/// A value of `--when`.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// A process of the target uses more than this share of one CPU, in percent.
    Cpu {
        /// The share.
        percent: f64,
    },
    /// This command of a shell succeeds.
    Command(String),
}

impl Condition {
    /// Parses `cpu>80%`, or else a command.
    ///
    /// # Errors
    ///
    /// The share is not a number.
    pub fn parse(text: &str) -> Result<Condition, String> {
        let text = text.trim();
        let share = text.strip_prefix("cpu").map(str::trim_start).and_then(|t| t.strip_prefix('>'));
        if let Some(share) = share {
            let share = share.strip_prefix('=').unwrap_or(share);
            let number = share.trim().trim_end_matches('%').trim_end().parse::<f64>();
            return match number {
                Ok(percent) if percent.is_finite() && percent >= 0.0 => {
                    Ok(Condition::Cpu { percent })
                }
                _ => Err("write a share of one CPU, as in cpu>80%".to_owned()),
            };
        }
        if text.is_empty() {
            return Err("give cpu>PERCENT, or a command".to_owned());
        }
        Ok(Condition::Command(text.to_owned()))
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Condition::Cpu { percent } => write!(f, "--when 'cpu>{percent}%'"),
            Condition::Command(command) => {
                write!(f, "--when {}", crate::cli::shell_word(command))
            }
        }
    }
}

/// The outcome of the checks.
enum Checked {
    Held(Option<Busy>),
    NotHeld,
    /// The shell could not run the command.
    CannotRun,
}

/// The process that used the share.
struct Busy {
    pid: i32,
    name: String,
    percent: f64,
}

/// A condition that is checked while recording.
pub struct Watch {
    condition: Condition,
    begin: Sender<()>,
    thread: JoinHandle<Checked>,
}

impl Watch {
    /// Checks nothing until [`Watch::begin`]. To be called before prof takes precedence over other
    /// processes, which a command must not inherit.
    ///
    /// # Errors
    ///
    /// There can be no further thread.
    pub fn new(condition: Condition, target: Target, mut ender: Ender) -> anyhow::Result<Watch> {
        let (begin, begun) = mpsc::channel();
        let checked = condition.clone();
        let thread = thread::Builder::new().name("when".to_owned()).spawn(move || {
            // Without a beginning, there was no recording.
            if begun.recv().is_err() {
                return Checked::NotHeld;
            }
            let outcome = match &checked {
                Condition::Cpu { percent } => watch_shares(*percent, &target, &ender, &begun),
                Condition::Command(command) => watch_command(command, &begun),
            };
            if !matches!(outcome, Checked::NotHeld) {
                ender.end();
            }
            outcome
        })?;
        Ok(Watch { condition, begin, thread })
    }

    /// Sampling has started.
    pub fn begin(&self) {
        // The thread waits for this.
        let _ = self.begin.send(());
    }

    /// The recording has ended. Returns a note about the condition.
    ///
    /// # Errors
    ///
    /// The command could not be run.
    pub fn end(self) -> anyhow::Result<Message> {
        let Watch { condition, begin, thread } = self;
        drop(begin);
        let condition = condition.to_string();
        match thread.join().unwrap_or(Checked::NotHeld) {
            Checked::Held(busy) => Ok(Message::ConditionHeld {
                condition,
                pid: busy.as_ref().map(|busy| busy.pid),
                percent: busy.as_ref().map(|busy| busy.percent.round() as u64),
                process: busy.map(|busy| busy.name),
            }),
            Checked::NotHeld => Ok(Message::ConditionNotHeld { condition }),
            Checked::CannotRun => Err(usage(format!("{condition}: the shell cannot run this"))),
        }
    }
}

/// Waits; true if the recording has ended.
fn ends_within(time: Duration, ended: &Receiver<()>) -> bool {
    let until = Instant::now() + time;
    loop {
        match ended.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => return true,
        }
    }
}

/// CPU time of processes at one moment, in clock ticks, by PID and start time.
struct CpuTimes {
    at: Instant,
    ticks: HashMap<(i32, u64), u64>,
}

impl CpuTimes {
    fn now(pids: &[i32]) -> CpuTimes {
        let at = Instant::now();
        let ticks = pids.iter().filter_map(|&pid| {
            let stat = procfs::stat(pid)?;
            Some(((pid, stat.start_ticks), stat.cpu_ticks))
        });
        CpuTimes { at, ticks: ticks.collect() }
    }

    /// The process that has used most since `before`, with its share of one CPU in percent.
    fn busiest_since(&self, before: &CpuTimes) -> Option<(i32, f64)> {
        let ticks = (self.at - before.at).as_secs_f64() * os::ticks_per_second() as f64;
        let used = self.ticks.iter().map(|(process, now)| {
            let before = before.ticks.get(process).copied().unwrap_or(0);
            (process.0, now.saturating_sub(before))
        });
        let (pid, most) = used.max_by_key(|&(pid, used)| (used, -pid))?;
        Some((pid, 100.0 * most as f64 / ticks.max(1e-9)))
    }
}

/// Checks whether a process of the target uses more than `percent` of a CPU.
fn watch_shares(percent: f64, target: &Target, ender: &Ender, ended: &Receiver<()>) -> Checked {
    let mut before = CpuTimes::now(&processes(target, ender));
    let mut rest = INTERVAL;
    while !ends_within(rest, ended) {
        let began = Instant::now();
        let now = CpuTimes::now(&processes(target, ender));
        if let Some((pid, share)) = now.busiest_since(&before)
            && share > percent
        {
            let name = procfs::stat(pid).map_or_else(|| "?".to_owned(), |stat| stat.comm);
            return Checked::Held(Some(Busy { pid, name, percent: share }));
        }
        before = now;
        rest = INTERVAL.max(began.elapsed() * LEAST_REST);
    }
    Checked::NotHeld
}

/// The processes that are recorded, without prof.
fn processes(target: &Target, ender: &Ender) -> Vec<i32> {
    let roots = match target {
        Target::Command(_) => ender.command().into_iter().collect(),
        Target::Processes { pids, .. } => pids.clone(),
        Target::Threads(tids) => {
            let mut owners: Vec<i32> =
                tids.iter().filter_map(|&tid| Some(procfs::owner(tid)?.0)).collect();
            owners.sort_unstable();
            owners.dedup();
            return owners;
        }
        Target::Everything | Target::Cgroup(_) => {
            let own = std::process::id() as i32;
            let mut all = target.processes(&[]);
            all.retain(|&pid| pid != own);
            return all;
        }
    };
    let mut all = procfs::descendants(&roots);
    all.extend(roots);
    all
}

/// Runs a command again and again until it succeeds.
fn watch_command(command: &str, ended: &Receiver<()>) -> Checked {
    /// Exit codes of a shell that finds no such command, or may not execute it.
    const CANNOT_RUN: [Option<i32>; 2] = [Some(126), Some(127)];
    let mut is_first = true;
    let mut rest = INTERVAL;
    while !ends_within(rest, ended) {
        let began = Instant::now();
        let Ok(mut shell) = shell(command) else { return Checked::CannotRun };
        let status = loop {
            match shell.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if ends_within(COMMAND_INTERVAL, ended) => {
                    end_group(&mut shell);
                    return Checked::NotHeld;
                }
                Ok(None) => {}
                Err(_) => return Checked::CannotRun,
            }
        };
        match status.success() {
            true => return Checked::Held(None),
            false if is_first && CANNOT_RUN.contains(&status.code()) => {
                return Checked::CannotRun;
            }
            false => {}
        }
        is_first = false;
        rest = INTERVAL.saturating_sub(began.elapsed());
    }
    Checked::NotHeld
}

/// Starts a shell with a command, in a process group of its own: Ctrl-C is for prof.
fn shell(command: &str) -> std::io::Result<Child> {
    let null = Stdio::null;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(null()).stdout(null()).stderr(null());
    shell.process_group(0).spawn()
}

/// Ends a shell and what it has started.
fn end_group(shell: &mut Child) {
    // It may have ended.
    let _ = os::kill(-(shell.id() as i32), libc::SIGKILL);
    let _ = shell.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_cpu_is_a_condition_and_anything_else_a_command() {
        for text in ["cpu>80%", "cpu > 80", " cpu>=80 % "] {
            assert_eq!(Condition::parse(text), Ok(Condition::Cpu { percent: 80.0 }), "{text}");
        }
        for command in ["test -e /run/x", "cpu-check", "curl -sf localhost:1", "true"] {
            assert_eq!(Condition::parse(command), Ok(Condition::Command(command.to_owned())));
        }
        for bad in ["", " ", "cpu>", "cpu>x", "cpu>-1", "cpu>80%%x", "cpu>inf"] {
            assert!(Condition::parse(bad).is_err(), "{bad}");
        }
        let shown = Condition::parse("cpu>=12.5").map(|condition| condition.to_string());
        assert_eq!(shown, Ok("--when 'cpu>12.5%'".to_owned()));
    }

    #[test]
    fn the_share_is_that_of_the_busiest_process() {
        let at = Instant::now();
        let times = |seconds, ticks: &[((i32, u64), u64)]| CpuTimes {
            at: at + Duration::from_secs(seconds),
            ticks: ticks.iter().copied().collect(),
        };
        let hz = os::ticks_per_second();
        let before = times(0, &[((1, 5), 100), ((2, 5), 1000 * hz), ((3, 5), 9000 * hz)]);
        // 3 is another process by now, which has just started.
        let after = times(2, &[((1, 5), 100), ((2, 5), 1001 * hz), ((3, 6), hz / 2)]);
        assert_eq!(after.busiest_since(&before), Some((2, 50.0)));
        assert_eq!(times(1, &[]).busiest_since(&before), None);
    }
}
