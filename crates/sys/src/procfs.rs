//! Small readers of `/proc`, see `proc(5)`. A process may end at any moment, so absence is an
//! ordinary result.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::container::{self, Container};
use crate::{Error, ThreadId, os};

/// Message for a missing `/proc`, as in a chroot or a minimal container.
pub const NOT_MOUNTED: &str =
    "/proc is not mounted, and prof reads processes there; mount it: mount -t proc proc /proc";

/// Fails if `/proc` is not mounted.
///
/// # Errors
///
/// [`NOT_MOUNTED`].
pub fn check_mounted() -> Result<(), Error> {
    if is_mounted() { Ok(()) } else { Err(Error::failed(NOT_MOUNTED)) }
}

/// True if `/proc` is mounted.
pub fn is_mounted() -> bool {
    std::path::Path::new("/proc/self/stat").exists()
}

/// The address of one of the first symbols of the kernel, such as `_text`. `None`: it is not among
/// them, or `kptr_restrict` hides the addresses.
pub fn kernel_symbol(name: &str) -> Option<u64> {
    /// Variables of each CPU come before the code.
    const LINES: usize = 16_384;
    let file = fs::File::open("/proc/kallsyms").ok()?;
    let lines = BufReader::new(file).lines().take(LINES).map_while(Result::ok);
    let address = |line: String| {
        let mut fields = line.split_ascii_whitespace();
        let address = u64::from_str_radix(fields.next()?, 16).ok()?;
        (fields.nth(1) == Some(name) && address != 0).then_some(address)
    };
    lines.filter_map(address).next()
}

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Name of the (leader) thread, 15 bytes at most.
    pub comm: String,
    /// State letter: `R`, `S`, `D`, `Z`, ….
    pub state: char,
    /// Parent process.
    pub parent: i32,
    /// The kernel's flags of its leader (`PF_*` in `include/linux/sched.h`).
    pub flags: u32,
    /// CPU time in clock ticks (user and system, all threads).
    pub cpu_ticks: u64,
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
}

impl Stat {
    /// True for a thread of the kernel, which has no memory of its own.
    pub fn is_kernel_thread(&self) -> bool {
        /// `PF_KTHREAD`.
        const KERNEL_THREAD: u32 = 0x0020_0000;
        self.flags & KERNEL_THREAD != 0
    }
}

/// Parses `/proc/PID/stat`. The name may hold spaces and parentheses.
pub fn parse_stat(text: &str) -> Option<Stat> {
    let open = text.find('(')?;
    let close = text.rfind(')')?;
    let comm = text.get(open + 1..close)?.to_owned();
    let mut fields = text.get(close + 1..)?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let flags = fields.nth(4)?.parse().ok()?;
    let utime: u64 = fields.nth(4)?.parse().ok()?;
    let stime: u64 = fields.next()?.parse().ok()?;
    let start_ticks = fields.nth(6)?.parse().ok()?;
    let cpu_ticks = utime.saturating_add(stime);
    Some(Stat { comm, state, parent, flags, cpu_ticks, start_ticks })
}

/// `/proc/PID/stat` of a process, if it exists.
pub fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// Start time of a process, if it exists.
pub fn start_time(pid: i32) -> Option<std::time::SystemTime> {
    let ticks = stat(pid)?.start_ticks as f64;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
    let age = uptime - ticks / os::ticks_per_second() as f64;
    let age = std::time::Duration::try_from_secs_f64(age.max(0.0)).ok()?;
    std::time::SystemTime::now().checked_sub(age)
}

/// Number of context switches of a thread, voluntary or not: if it is unchanged, and the thread
/// sleeps now as before, it has not run in between. `None` if the thread has ended.
pub fn switches(thread: ThreadId) -> Option<u64> {
    let ThreadId { pid, tid } = thread;
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    parse_switches(&status)
}

fn parse_switches(status: &str) -> Option<u64> {
    let count = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    let voluntary = count("voluntary_ctxt_switches:")?;
    Some(voluntary.wrapping_add(count("nonvoluntary_ctxt_switches:")?))
}

/// Point at which a thread that does not run entered the kernel; both are 0 for a kernel thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asleep {
    /// Number of the system call; `None` for other entries, such as a page fault.
    pub call: Option<u64>,
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
}

/// Point at which a sleeping thread entered the kernel; `None` if it runs (`proc(5)`,
/// `/proc/PID/syscall`).
///
/// # Errors
///
/// It has ended, or this user may not trace the process.
pub fn asleep_at(thread: ThreadId) -> io::Result<Option<Asleep>> {
    let ThreadId { pid, tid } = thread;
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"))?;
    Ok(parse_syscall(&text))
}

fn parse_syscall(text: &str) -> Option<Asleep> {
    let mut from_the_end = text.split_ascii_whitespace().rev();
    let mut word = || u64::from_str_radix(from_the_end.next()?.strip_prefix("0x")?, 16).ok();
    let ip = word()?;
    let sp = word()?;
    let call = text.split_ascii_whitespace().next()?.parse().ok();
    Some(Asleep { call, ip, sp })
}

/// Kernel functions that a thread sleeps in, innermost first (`/proc/PID/stack`); empty without
/// permission.
pub fn kernel_stack(thread: ThreadId) -> Vec<String> {
    let ThreadId { pid, tid } = thread;
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stack"));
    parse_kernel_stack(&text.unwrap_or_default())
}

fn parse_kernel_stack(text: &str) -> Vec<String> {
    // `[<0>] futex_wait_queue+0x6d/0x90`, for a module's function followed by ` [module]`.
    let name = |line: &str| {
        let name = line.split_ascii_whitespace().nth(1)?.split('+').next()?;
        // An address that the kernel could not name is of no use.
        (!name.starts_with("0x")).then(|| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

/// Name of a thread, if it exists.
pub fn comm(thread: ThreadId) -> Option<String> {
    let ThreadId { pid, tid } = thread;
    let bytes = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned())
}

/// The lines of `/proc/PID/maps`; none for a thread of the kernel.
///
/// # Errors
///
/// `NotFound` if the process has ended, or `PermissionDenied`.
pub fn maps(pid: i32) -> io::Result<Vec<u8>> {
    let lines = fs::read(format!("/proc/{pid}/maps"))?;
    if !lines.is_empty() || stat(pid).is_some_and(|stat| stat.is_kernel_thread()) {
        return Ok(lines);
    }
    let live = live_thread(pid).ok_or(io::ErrorKind::NotFound)?;
    let lines = fs::read(format!("/proc/{live}/maps"))?;
    // It may have ended, too.
    if lines.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(lines) }
}

/// The path of a process's executable, if it can be read.
pub fn executable(pid: i32) -> Option<PathBuf> {
    let path = |id: i32| fs::read_link(format!("/proc/{id}/exe")).ok();
    path(pid).or_else(|| path(live_thread(pid)?))
}

/// Another thread of a process whose leader alone has ended: `/proc/PID` has no memory and no files
/// then, `/proc/TID` of another thread has those of the process.
pub fn live_thread(pid: i32) -> Option<i32> {
    if stat(pid)?.state != 'Z' {
        return None;
    }
    threads(pid).ok()?.into_iter().find(|&tid| tid != pid)
}

/// Threads of a process.
///
/// # Errors
///
/// `NotFound` if the process has ended.
pub fn threads(pid: i32) -> io::Result<Vec<i32>> {
    numbers(&format!("/proc/{pid}/task"))
}

/// Threads of a process, by their numbers in its own PID namespace; empty if it has ended.
pub fn inner_threads(pid: i32) -> Vec<i32> {
    let threads = threads(pid).unwrap_or_default();
    if inner_pid(pid) == Some(pid) {
        return threads;
    }
    let status = |tid: i32| fs::read(format!("/proc/{pid}/task/{tid}/status")).ok();
    threads.into_iter().filter_map(|tid| innermost(&status(tid)?)).collect()
}

/// All processes.
pub fn processes() -> Vec<i32> {
    numbers("/proc").unwrap_or_default()
}

fn numbers(directory: &str) -> io::Result<Vec<i32>> {
    let entries = fs::read_dir(directory)?;
    Ok(entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// PID of a process in its own PID namespace.
pub fn inner_pid(pid: i32) -> Option<i32> {
    innermost(&fs::read(format!("/proc/{pid}/status")).ok()?)
}

/// The thread of a process with this TID in the process's own PID namespace.
pub fn outer_tid(pid: i32, inner: i32) -> Option<i32> {
    let tids = threads(pid).ok()?;
    let status = |tid| fs::read(format!("/proc/{pid}/task/{tid}/status")).ok();
    let is_it = |tid: &i32| status(*tid).as_deref().and_then(innermost) == Some(inner);
    tids.into_iter().find(is_it)
}

/// The innermost PID in the text of `status`.
fn innermost(status: &[u8]) -> Option<i32> {
    let status = String::from_utf8_lossy(status);
    let line = status.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

/// Process that a thread belongs to, and its user.
pub fn owner(tid: i32) -> Option<(i32, u32)> {
    let status = fs::read(format!("/proc/{tid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name))?;
        line.split_ascii_whitespace().next()
    };
    Some((field("Tgid:")?.parse().ok()?, field("Uid:")?.parse().ok()?))
}

/// All running descendants of these processes, without themselves.
pub fn descendants(roots: &[i32]) -> Vec<i32> {
    // Reading each thread's children costs little if there are few, but a kernel may be built
    // without that file (CONFIG_PROC_CHILDREN); then all processes are searched.
    const MANY_THREADS: usize = 64;
    let mut found: Vec<i32> = roots.to_vec();
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        let tids = threads(pid).unwrap_or_default();
        if tids.len() > MANY_THREADS {
            return descendants_of_all(roots);
        }
        for tid in tids {
            match fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")) {
                Ok(text) => {
                    let children = text.split_ascii_whitespace().filter_map(|n| n.parse().ok());
                    let new: Vec<i32> = children.filter(|pid| !found.contains(pid)).collect();
                    found.extend(new);
                }
                Err(_) if lives(ThreadId { pid, tid }) => return descendants_of_all(roots),
                Err(_) => {}
            }
        }
        next += 1;
    }
    found.split_off(roots.len())
}

fn lives(thread: ThreadId) -> bool {
    let ThreadId { pid, tid } = thread;
    std::path::Path::new(&format!("/proc/{pid}/task/{tid}/stat")).exists()
}

fn descendants_of_all(roots: &[i32]) -> Vec<i32> {
    let parents: Vec<(i32, i32)> =
        processes().into_iter().filter_map(|pid| Some((pid, stat(pid)?.parent))).collect();
    let mut found: Vec<i32> = roots.to_vec();
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        let children = parents.iter().filter(|&&(pid, p)| p == parent && pid != parent);
        let new: Vec<i32> =
            children.map(|&(pid, _)| pid).filter(|pid| !found.contains(pid)).collect();
        found.extend(new);
        next += 1;
    }
    found.split_off(roots.len())
}

/// The cgroup, and its container, if any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// Path (v2) below the cgroup root, without the root itself.
    pub path: Option<String>,
    /// The container, by the v2 path or that of any v1 hierarchy.
    pub container: Option<Container>,
}

/// Parses `/proc/PID/cgroup`.
pub fn parse_cgroup(text: &str) -> Cgroup {
    let mut found = Cgroup::default();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(hierarchy), Some(_), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if hierarchy == "0" && path.len() > 1 {
            found.path = Some(path.to_owned());
        }
        if found.container.is_none() {
            found.container = container::in_path(path);
        }
    }
    found
}

/// Cgroup of a process.
pub fn cgroup(pid: i32) -> Option<Cgroup> {
    let text = fs::read(format!("/proc/{pid}/cgroup")).ok()?;
    Some(parse_cgroup(&String::from_utf8_lossy(&text)))
}

/// Opens the kernel's list of online CPUs, for repeated reading.
pub fn open_online_cpus() -> Option<fs::File> {
    fs::File::open("/sys/devices/system/cpu/online").ok()
}

/// Reads the present contents of that list.
pub fn read_online_cpus(list: &fs::File) -> Option<Vec<u32>> {
    // A file of sysfs is a page at most.
    let mut text = [0; 4096];
    let read = list.read_at(&mut text, 0).ok()?;
    parse_cpu_list(str::from_utf8(&text[..read]).ok()?.trim()).filter(|cpus| !cpus.is_empty())
}

/// Online CPUs.
pub fn online_cpus() -> Vec<u32> {
    let online = open_online_cpus().and_then(|list| read_online_cpus(&list));
    online.unwrap_or_else(|| vec![0])
}

/// Clock ticks that these CPUs spent on user code, the kernel and interrupts since boot.
pub fn busy_ticks(cpus: &[u32]) -> Option<u64> {
    parse_busy(&fs::read_to_string("/proc/stat").ok()?, cpus)
}

/// The same from the text of `/proc/stat`. `None` if one of them is missing.
fn parse_busy(text: &str, cpus: &[u32]) -> Option<u64> {
    let ticks = |cpu: &u32| {
        let mut fields = text.lines().map(str::split_ascii_whitespace);
        let name = format!("cpu{cpu}");
        let mut fields = fields.find_map(|mut line| (line.next()? == name).then_some(line))?;
        let mut next = || fields.next()?.parse::<u64>().ok();
        let [user, nice, system, _idle, _iowait, irq, softirq] =
            [next()?, next()?, next()?, next()?, next()?, next()?, next()?];
        Some(user + nice + system + irq + softirq)
    };
    cpus.iter().map(ticks).sum()
}

/// Number of CPUs that may ever be online, also as indices.
pub fn possible_cpus() -> usize {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = parse_cpu_list(text.trim()).and_then(|l| l.last().copied());
    last.map_or_else(|| online_cpus().len(), |last| last as usize + 1)
}

/// True if PIDs are the machine's, not a container's (`PROC_PID_INIT_INO` of `linux/proc_ns.h`).
pub fn is_first_pid_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() == "pid:[4026531836]")
}

/// Parses `0,2-5`, sorted and without duplicates. `None` if it is not a list of CPUs.
pub fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    const MAX_CPUS: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let first = number(first)?;
        let last = number(last)?;
        if first > last || last >= MAX_CPUS {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// Name of a block device, for example `vda`.
pub fn block_device(major: u32, minor: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("DEVNAME=")).map(str::to_owned)
}

/// Most bytes of prof itself that were resident at a time.
pub fn own_peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Memory that is available without swapping, in bytes.
pub fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// A setting below `/proc/sys`.
pub fn sysctl(name: &str) -> Option<i64> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stat_with_parentheses_in_the_name() {
        let line = "7 (a) (b c) S 1 7 7 0 -1 4194560 1 2 3 4 50 8 0 0 20 0 1 0 100 0 0";
        let s = parse_stat(line).unwrap();
        let comm = "a) (b c".into();
        let cpu_ticks = 58;
        let start_ticks = 100;
        assert!(!s.is_kernel_thread());
        let flags = 4_194_560;
        assert_eq!(s, Stat { comm, state: 'S', parent: 1, flags, cpu_ticks, start_ticks });
    }

    #[test]
    fn idle_and_stolen_time_is_not_busy() {
        let text = "cpu  1 1 1 1\ncpu0 10 20 30 4000 500 6 7 800 10 0\ncpu1 1 1 1 9 9 1 1 9 0 0\n";
        assert_eq!(parse_busy(text, &[0]), Some(73));
        assert_eq!(parse_busy(text, &[0, 1]), Some(78));
        assert_eq!(parse_busy(text, &[2]), None);
        assert_eq!(parse_busy("cpu0 1 2 x\n", &[0]), None);
    }

    #[test]
    fn sleepers_are_where_they_entered_the_kernel() {
        let asleep = parse_syscall("202 0x7f01 0x80 0x0 0x0 0x0 0x0 0x7ffc10 0x7f0020\n");
        assert_eq!(asleep, Some(Asleep { call: Some(202), ip: 0x7f_0020, sp: 0x7f_fc10 }));
        assert_eq!(
            parse_syscall("-1 0x10 0x20\n"),
            Some(Asleep { call: None, ip: 0x20, sp: 0x10 })
        );
        for awake in ["running\n", "", "0x1", "1 2 3"] {
            assert_eq!(parse_syscall(awake), None, "{awake}");
        }
        let stack =
            "[<0>] futex_do_wait+0x38/0x70\n[<0>] nf_hook+0x1/0x2 [nf_tables]\n[<0>] 0xff\n";
        assert_eq!(parse_kernel_stack(stack), ["futex_do_wait", "nf_hook"]);
    }

    #[test]
    fn own_process_is_found() {
        let pid = std::process::id() as i32;
        assert!(threads(pid).unwrap().contains(&pid));
        assert_eq!(owner(pid).unwrap().0, pid);
        assert!(stat(pid).is_some() && comm(ThreadId::main_thread(pid)).is_some());
        let age = start_time(pid).unwrap().elapsed().unwrap_or_default();
        assert!(age < std::time::Duration::from_secs(3600), "{age:?}");
        assert!(descendants(&[stat(pid).unwrap().parent]).contains(&pid));
        assert!(descendants_of_all(&[stat(pid).unwrap().parent]).contains(&pid));
    }

    #[test]
    fn an_ended_process_has_no_mappings() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        while stat(pid).is_some_and(|stat| stat.state != 'Z') {}
        assert_eq!(maps(pid).unwrap_err().kind(), io::ErrorKind::NotFound, "a zombie");
        assert!(live_thread(pid).is_none() && executable(pid).is_none());
        child.wait().unwrap();
        assert_eq!(maps(pid).unwrap_err().kind(), io::ErrorKind::NotFound);
        let kernel =
            processes().into_iter().find(|&pid| stat(pid).is_some_and(|s| s.is_kernel_thread()));
        assert!(kernel.is_none_or(|pid| maps(pid).unwrap().is_empty()));
    }

    #[test]
    fn containers_are_recognized() {
        let id = "0123456789abcdef".repeat(4);
        for path in [
            format!("0::/system.slice/docker-{id}.scope"),
            format!("0::/kubepods.slice/pod1.slice/cri-containerd-{id}.scope"),
            format!("4:memory:/docker/{id}"),
        ] {
            assert_eq!(parse_cgroup(&path).container, Some(Container::Id(id.clone())), "{path}");
        }
        let none = parse_cgroup("0::/\n");
        assert_eq!(none, Cgroup::default());
        assert_eq!(parse_cgroup("0::/a/b\n").path.as_deref(), Some("/a/b"));
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0,2-4,3"), Some(vec![0, 2, 3, 4]));
        for bad in ["", "a", "3-1", "0-", "1,,2", "0-4294967295"] {
            assert_eq!(parse_cpu_list(bad), None, "{bad}");
        }
        assert!(!online_cpus().is_empty());
    }

    proptest! {
        #[test]
        fn parsers_take_any_text(text in "\\PC{0,200}|[0-9() :/\n-]{0,200}") {
            let _ = parse_stat(&text);
            let _ = parse_cgroup(&text);
            let _ = parse_cpu_list(&text);
        }
    }
}
