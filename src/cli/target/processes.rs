//! `-p`: processes by ID and by name.

use std::str::FromStr;

use sys::process_names::{self, NamedProcess};
use sys::{Error, printed, suggest, users};

use super::TargetArgs;
use crate::cli::summary::Verbosity;
use crate::sampler::{self, Living};

/// Most processes or names in a line for the user.
const SHOWN: usize = 8;

/// A value of `-p`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessArg {
    /// The process of this ID.
    Pid(i32),
    /// All processes of this name.
    Name(String),
}

impl FromStr for ProcessArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ProcessArg, &'static str> {
        let text = text.trim();
        let is_number = text.strip_prefix('-').unwrap_or(text).bytes().all(|b| b.is_ascii_digit());
        match (text.parse(), is_number) {
            _ if text.is_empty() => Err("a PID or a name of processes is missing"),
            (Ok(pid), true) => Ok(ProcessArg::Pid(pid)),
            (Err(_), true) => Err("no PID is so large"),
            (_, false) => Ok(ProcessArg::Name(text.to_owned())),
        }
    }
}

impl std::fmt::Display for ProcessArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProcessArg::Pid(pid) => write!(f, "{pid}"),
            ProcessArg::Name(name) => f.write_str(name),
        }
    }
}

/// Parses a value of `-t`.
pub fn parse_tid(text: &str) -> Result<i32, &'static str> {
    text.trim().parse().map_err(|_| "a TID is a number; -p takes names of processes")
}

/// Processes or threads that were found, and what the user is to know about them.
#[derive(Debug, Default)]
pub struct Found {
    /// Their IDs, without duplicates: those that were named first come first.
    pub ids: Vec<i32>,
    /// Lines for the user.
    pub lines: Vec<String>,
}

impl Found {
    /// The processes that `-p` names, whether they live or not.
    ///
    /// # Errors
    ///
    /// No process has any of the names.
    pub fn named(given: &[ProcessArg]) -> Result<Found, Error> {
        let mut found = Found::default();
        let has_names = given.iter().any(|arg| matches!(arg, ProcessArg::Name(_)));
        let running = if has_names { process_names::running() } else { Vec::new() };
        let mut missing = Vec::new();
        for arg in given {
            match arg {
                ProcessArg::Pid(pid) => found.ids.push(*pid),
                ProcessArg::Name(name) => {
                    let called: Vec<&NamedProcess> =
                        running.iter().filter(|process| process.is_called(name)).collect();
                    if called.is_empty() {
                        missing.push(unknown(name, &running));
                    } else {
                        found.lines.push(format!("-p {name}: {}", listed(&called)));
                    }
                    found.ids.extend(called.iter().map(|process| process.pid));
                }
            }
        }
        if found.ids.is_empty() && !missing.is_empty() {
            return Err(Error::failed(missing.swap_remove(0)));
        }
        found.lines.extend(missing);
        found.remove_duplicates();
        Ok(found)
    }

    /// The processes that `-p` names and that can be recorded.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn processes(given: &[ProcessArg]) -> Result<Found, Error> {
        let named = Found::named(given)?;
        let living = sampler::living_processes(&named.ids)?;
        Ok(named.without_missing(living, "process", "processes"))
    }

    /// The threads that `-t` names and that can be recorded, which must be of one of the processes
    /// `pids`, if any are given.
    ///
    /// # Errors
    ///
    /// There is none, or one belongs to another process.
    pub fn threads(tids: &[i32], pids: &[i32]) -> Result<Found, Error> {
        let mut named = Found { ids: tids.to_vec(), lines: Vec::new() };
        named.remove_duplicates();
        let living = sampler::living_threads(&named.ids, pids)?;
        Ok(named.without_missing(living, "thread", "threads"))
    }

    /// The processes of a user.
    ///
    /// # Errors
    ///
    /// The user is unknown, or has no process.
    pub fn for_user(user: &str) -> Result<Found, Error> {
        let id = users::id(user)?;
        let running = process_names::running();
        let processes: Vec<&NamedProcess> = running.iter().filter(|p| p.user == id).collect();
        if processes.is_empty() {
            return Err(Error::failed(format!("user '{user}' has no process; nothing to record")));
        }
        let ids = processes.iter().map(|process| process.pid).collect();
        Ok(Found { ids, lines: vec![format!("-u {user}: {}", listed(&processes))] })
    }

    fn without_missing(mut self, living: Living, kind: &str, kinds: &str) -> Found {
        let Living { ids, left_out } = living;
        self.ids = ids;
        let others = match self.ids.len() {
            1 => "recording the other one".to_owned(),
            n => format!("recording the other {n}"),
        };
        let (wrong, ended): (Vec<_>, Vec<_>) =
            left_out.into_iter().partition(|(_, why)| why.kind() == sys::ErrorKind::Usage);
        let ended: Vec<String> = ended.iter().map(|(id, _)| id.to_string()).collect();
        let line = match ended.as_slice() {
            [] => None,
            [id] => Some(format!("{kind} {id} has ended or never was: {others}")),
            ids => Some(format!("{kinds} {} have ended or never were: {others}", bounded(ids))),
        };
        self.lines.extend(line);
        self.lines.extend(wrong.into_iter().take(SHOWN).map(|(_, why)| format!("{why}; {others}")));
        self
    }

    fn remove_duplicates(&mut self) {
        let mut seen = rustc_hash::FxHashSet::default();
        self.ids.retain(|&id| seen.insert(id));
    }
}

impl TargetArgs {
    /// Finds the processes that are named, and leaves out those that have ended. Returns lines for
    /// the user. Called once, before [`TargetArgs::options`].
    ///
    /// # Errors
    ///
    /// None is left.
    pub fn find(&mut self) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        // What is wrong with the other arguments comes first.
        if self.conflict_with(&self.command).is_some() {
            return Ok(lines);
        }
        if !self.processes.is_empty() {
            let found = Found::processes(&self.processes)?;
            self.pids = found.ids;
            lines.extend(found.lines);
        }
        if let Some(user) = &self.user {
            let found = Found::for_user(user)?;
            self.pids = found.ids;
            lines.extend(found.lines);
        }
        if !self.tid.is_empty() {
            let found = Found::threads(&self.tid, &self.pids)?;
            self.tid = found.ids;
            lines.extend(found.lines);
        }
        lines.extend(self.event.pattern_lines());
        Ok(lines)
    }

    /// [`TargetArgs::find`], with its lines on standard error.
    ///
    /// # Errors
    ///
    /// No process is left.
    pub fn find_and_show(&mut self, verbosity: Verbosity) -> anyhow::Result<()> {
        let lines = self.find()?;
        verbosity.show(&lines);
        Ok(())
    }
}

/// `3 processes: 812 (nginx), 813, 814`: a name is in parentheses where it differs from the last.
pub fn listed(processes: &[&NamedProcess]) -> String {
    let mut last = None;
    let item = |process: &&NamedProcess| {
        let NamedProcess { pid, comm, .. } = process;
        let is_same = last.replace(comm.clone()).as_ref() == Some(comm);
        // A name may have line breaks and sequences for terminals.
        if is_same { pid.to_string() } else { format!("{pid} ({})", printed::line(comm)) }
    };
    let items: Vec<String> = processes.iter().map(item).collect();
    match items.as_slice() {
        [only] => format!("process {only}"),
        all => format!("{} processes: {}", all.len(), bounded(all)),
    }
}

/// The first items, and the number of the others.
fn bounded(items: &[String]) -> String {
    let shown = items[..items.len().min(SHOWN)].join(", ");
    match items.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The line for a name that no process has.
fn unknown(name: &str, running: &[NamedProcess]) -> String {
    /// A longer text is no misspelled name.
    const LONGEST: usize = 64;
    const SUGGESTED: usize = 3;
    let short = |name: &&str| name.len() <= LONGEST;
    let names = running.iter().flat_map(NamedProcess::names).filter(short);
    let near = Some(name).filter(short).map(|name| suggest::similar(name, names, SUGGESTED));
    let near: Vec<String> =
        near.into_iter().flatten().map(|near| printed::line(near).into_owned()).collect();
    let suggestion = match near.as_slice() {
        [] => "; 'ps -e' lists all".to_owned(),
        near => format!("; did you mean {}?", near.join(" or ")),
    };
    format!("no process is called '{name}'{suggestion}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_pids_and_other_words_are_names() {
        let parse = |text: &str| text.parse::<ProcessArg>();
        assert_eq!(parse(" 12"), Ok(ProcessArg::Pid(12)));
        assert_eq!(parse("-1"), Ok(ProcessArg::Pid(-1)));
        for name in ["nginx", "my program", "7zip", "+5", "12 34"] {
            assert_eq!(parse(name), Ok(ProcessArg::Name(name.to_owned())));
        }
        for bad in ["", " ", "99999999999", "-"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_tid("7"), Ok(7));
        assert!(parse_tid("nginx").is_err());
    }

    #[test]
    fn processes_that_have_ended_are_named_and_the_others_stay() {
        let pid = std::process::id() as i32;
        let given = [i32::MAX, pid, i32::MAX - 1, pid].map(ProcessArg::Pid);
        let found = Found::processes(&given).unwrap();
        assert_eq!(found.ids, [pid]);
        assert_eq!(
            found.lines,
            ["processes 2147483647, 2147483646 have ended or never were: recording the other one"]
        );
        let found = Found::threads(&[pid, i32::MAX], &[]).unwrap();
        assert_eq!(
            found.lines,
            ["thread 2147483647 has ended or never was: recording the other one"]
        );
    }

    #[test]
    fn lists_are_bounded_and_names_are_clean() {
        let ids: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        assert_eq!(bounded(&ids), "0, 1, 2, 3, 4, 5, 6, 7 and 12 more");
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let running = process_names::running();
        let sleeper = running.iter().find(|p| p.pid == child.id() as i32).unwrap();
        let mut evil = sleeper.clone();
        evil.comm = "a\nb\u{1b}[31m".into();
        let line = listed(&[&evil, &evil]);
        assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
        assert!(line.ends_with(&format!(", {}", evil.pid)), "{line}");
        assert!(unknown("slepe", &running).contains("no process is called 'slepe'"));
        assert!(unknown("sleepp", std::slice::from_ref(sleeper)).contains("did you mean sleep?"));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
