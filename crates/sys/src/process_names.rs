//! Processes by the names that users have for them, as `pgrep` and `pidof` find them.
//!
//! A process is called NAME if that is one of
//!
//! - its name in the kernel (`comm`, 15 bytes at most),
//! - the base name of its executable,
//! - the base name of its first argument, which is whole where the kernel's name is cut, and another
//!   than the executable's where that is a link,
//! - the base name of the script that its interpreter runs.

use std::fs::{self, File};
use std::io::Read;

use crate::procfs;

/// A process that lives, with its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedProcess {
    /// Its ID.
    pub pid: i32,
    /// Its name in the kernel.
    pub comm: String,
    /// The user whose rights it has (the effective user ID).
    pub user: u32,
    /// All its names, without duplicates.
    names: Vec<String>,
}

impl NamedProcess {
    /// True if the process is called exactly `name`.
    pub fn is_called(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// The names of the process.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    fn read(pid: i32, kind: Relation) -> Option<NamedProcess> {
        let stat = procfs::stat(pid)?;
        if stat.state == 'Z' && procfs::live_thread(pid).is_none() {
            return None;
        }
        let executable = procfs::executable(pid);
        let executable = executable.as_deref().and_then(|path| path.to_str()).map(executable_name);
        let names = match kind {
            Relation::Ancestor => executable.into_iter().map(str::to_owned).collect(),
            Relation::Other => {
                let arguments = read_arguments(pid);
                let mut names = vec![stat.comm.clone()];
                names.extend(executable.map(str::to_owned));
                names.extend(names_in_arguments(&arguments));
                names.retain(|name| !name.is_empty());
                let mut kept = Vec::new();
                names.into_iter().for_each(|name| {
                    if !kept.contains(&name) {
                        kept.push(name);
                    }
                });
                kept
            }
        };
        Some(NamedProcess { pid, comm: stat.comm, user: effective_user(pid)?, names })
    }
}

/// What a process is to prof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    /// It started prof: its arguments are about prof, and only its executable names it.
    Ancestor,
    /// Any other.
    Other,
}

/// All processes that live, by PID, without prof itself.
pub fn running() -> Vec<NamedProcess> {
    let own = std::process::id() as i32;
    let ancestors = ancestors(own);
    let mut pids = procfs::processes();
    pids.sort_unstable();
    pids.retain(|&pid| pid != own);
    let kind = |pid: &i32| {
        if ancestors.contains(pid) { Relation::Ancestor } else { Relation::Other }
    };
    pids.iter().filter_map(|pid| NamedProcess::read(*pid, kind(pid))).collect()
}

/// The processes that started a process, the nearest first.
fn ancestors(pid: i32) -> Vec<i32> {
    /// PIDs that are used again could form a circle.
    const MOST: usize = 256;
    let parent = |pid: &i32| procfs::stat(*pid).map(|stat| stat.parent).filter(|&pid| pid > 0);
    std::iter::successors(parent(&pid), parent).take(MOST).collect()
}

fn effective_user(pid: i32) -> Option<u32> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The first arguments of a process.
fn read_arguments(pid: i32) -> Vec<u8> {
    /// A script comes after a few options of its interpreter.
    const MOST: u64 = 16 << 10;
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/cmdline")) {
        // What was read before an error has names, too.
        let _ = file.take(MOST).read_to_end(&mut bytes);
    }
    bytes
}

/// The name of the program at the target of `/proc/PID/exe`.
fn executable_name(path: &str) -> &str {
    base_name(path.strip_suffix(" (deleted)").unwrap_or(path))
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// The base names of the program and of its script, in the arguments of a process.
fn names_in_arguments(arguments: &[u8]) -> Vec<String> {
    let words: Vec<_> = arguments.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
    let Some(first) = words.first() else { return Vec::new() };
    // A login shell has a dash before its name.
    let program = base_name(first.strip_prefix('-').unwrap_or(first));
    let mut names = vec![program.to_owned()];
    if let Some(interpreter) = interpreter(program) {
        names.extend(script(interpreter, words[1..].iter().map(AsRef::as_ref)).map(str::to_owned));
    }
    names
}

/// The name of a program that runs scripts, without its version; `None` for other programs.
fn interpreter(program: &str) -> Option<&str> {
    const INTERPRETERS: [&str; 18] = [
        "ash", "bash", "bun", "dash", "deno", "fish", "ksh", "lua", "luajit", "node", "nodejs",
        "perl", "php", "python", "ruby", "sh", "tclsh", "zsh",
    ];
    let name = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&name).then_some(name)
}

/// The base name of the script in the arguments of an interpreter, or of the module in
/// `python3 -m http.server`. `None` if the code itself is an argument.
fn script<'a>(interpreter: &str, mut words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    while let Some(word) = words.next() {
        match (interpreter, word) {
            ("python", "-m") => return words.next().map(base_name),
            ("python", "-X" | "-W") => {
                words.next();
            }
            (_, "-c" | "-") | ("php", "-r") => return None,
            ("python", _) if word.starts_with('-') => {}
            (_, "-e" | "-E" | "-p" | "--eval" | "--print") => return None,
            (_, "-I" | "-O" | "-o" | "-r" | "--require" | "--import" | "--loader") => {
                words.next();
            }
            _ if word.starts_with(['-', '+']) => {}
            _ => return Some(base_name(word)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Vec<String> {
        names_in_arguments(words.join("\0").as_bytes())
    }

    #[test]
    fn arguments_name_the_program_and_its_script() {
        assert_eq!(names(&["/usr/bin/redis-server", "*:6379"]), ["redis-server"]);
        assert_eq!(names(&["-bash"]), ["bash"]);
        assert_eq!(
            names(&["/usr/bin/python3.11", "-u", "/srv/app.py", "x"]),
            ["python3.11", "app.py"]
        );
        assert_eq!(names(&["python3", "-X", "perf", "a b.py"]), ["python3", "a b.py"]);
        assert_eq!(names(&["python3", "-E", "app.py"]), ["python3", "app.py"]);
        assert_eq!(names(&["bash", "-o", "pipefail", "./run"]), ["bash", "run"]);
        assert_eq!(names(&["node", "-r", "x", "/srv/app.js"]), ["node", "app.js"]);
        assert_eq!(names(&["python3", "-m", "http.server"]), ["python3", "http.server"]);
        assert_eq!(names(&["sh", "-c", "prof record -p nginx"]), ["sh"]);
        assert_eq!(names(&["perl", "-e", "nginx"]), ["perl"]);
        assert_eq!(names(&["nginx: worker process"]), ["nginx: worker process"]);
        assert_eq!(names(&["cat", "nginx"]), ["cat"]);
        assert_eq!(names(&[""]), [""]);
    }

    #[test]
    fn an_executable_is_called_as_its_file() {
        assert_eq!(executable_name("/usr/sbin/nginx (deleted)"), "nginx");
        assert_eq!(executable_name("/opt/my app"), "my app");
    }

    #[test]
    fn a_process_has_its_name_and_prof_itself_is_left_out() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id() as i32;
        let all = running();
        let found = all.iter().find(|process| process.pid == pid).unwrap();
        assert!(found.is_called("sleep") && !found.is_called("slee"), "{found:?}");
        let own = std::process::id() as i32;
        assert!(all.iter().all(|process| process.pid != own));
        assert_eq!(found.user, effective_user(own).unwrap());
        child.kill().unwrap();
        // It is a zombie until it is waited for.
        while procfs::stat(pid).is_some_and(|stat| stat.state != 'Z') {}
        assert!(running().iter().all(|process| process.pid != pid));
        child.wait().unwrap();
    }

    #[test]
    fn the_arguments_of_the_processes_that_started_prof_name_nothing() {
        let parent = ancestors(std::process::id() as i32)[0];
        let names = NamedProcess::read(parent, Relation::Ancestor).unwrap().names;
        assert_eq!(names.len(), 1, "{names:?}");
    }
}
