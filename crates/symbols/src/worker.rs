//! A process of its own for what parsers do with the files of strangers.
//!
//! Libraries that read debug information allocate what a file tells them to and take as long as a
//! file makes them. In a process with limits that costs no more than the names of that file: it is
//! ended when it exceeds its memory or its time, the reason is kept, and a new one goes on with the
//! next file. It is handed open files and can ask for further ones by name, which are opened here
//! (see [`sys::foreign`]). Each thread that symbolizes has one such process, and keeps it
//! from one file to the next.

mod child;
mod wire;

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Options;
use super::answers::Answers;
use super::source::Layer;
pub use child::{open, run_if_started};
use profile::Cause;
use sys::os;
use sys::{foreign, procfs};
use wire::{Inbox, Kind, Message};

/// CPU time that the names of one file may take, and so much more for each GiB of the file.
const CPU_TIME: Duration = Duration::from_secs(30);
const CPU_TIME_PER_GIB: Duration = Duration::from_secs(30);

/// How many times as long it may take by the clock: a busy machine gives it little CPU time.
const PATIENCE: u32 = 10;

/// CPU time for a second attempt, with the symbol table alone.
const CPU_TIME_OF_SYMBOLS: Duration = Duration::from_secs(10);

/// How often it is looked whether time is over, or nobody waits any more.
const NOTICE: Duration = Duration::from_millis(50);

/// Memory that a worker may have at most and gets at least, in bytes.
const MAX_MEMORY: u64 = 2 << 30;
const MIN_MEMORY: u64 = 256 << 20;

/// Most files that a worker may ask for in one question.
const MAX_OPENED: usize = 1 << 14;

/// What the workers of one symbolization may have.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Memory of each, in bytes.
    memory: u64,
    /// How many there may be, so that all together leave half of the machine's memory to others.
    pub count: usize,
    /// When all has to be done.
    until: Instant,
}

impl Limits {
    /// What this machine allows now.
    pub fn of_this_machine(until: Instant) -> Limits {
        let available = procfs::available_memory().unwrap_or(MAX_MEMORY * 4);
        let memory = (available / 4).clamp(MIN_MEMORY, MAX_MEMORY);
        let count = (available / 2 / memory).max(1) as usize;
        Limits { memory, count, until }
    }
}

/// A thread's worker, which is started when it is needed.
pub struct Worker {
    limits: Limits,
    running: Option<Running>,
}

struct Running {
    child: Child,
    socket: UnixStream,
    inbox: Inbox,
}

impl Drop for Running {
    fn drop(&mut self) {
        os::count_as_own(os::cpu_time_of(self.child.id() as i32).unwrap_or_default());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Worker {
    /// None runs yet.
    pub fn new(limits: Limits) -> Worker {
        Worker { limits, running: None }
    }

    /// Does what [`super::elf::resolve`] does.
    ///
    /// # Errors
    ///
    /// Why there are no names, those included that are the worker's.
    pub fn resolve(
        &mut self,
        layers: &[Layer],
        addresses: &[u64],
        options: &Options,
        done: &dyn Fn(usize),
    ) -> Result<Answers, Cause> {
        let size: u64 = layers.iter().filter_map(|l| Some(l.file.metadata().ok()?.len())).sum();
        let gib = u32::try_from(size >> 30).unwrap_or(u32::MAX);
        let cpu_time = CPU_TIME + CPU_TIME_PER_GIB.saturating_mul(gib);
        let mut told = 0;
        let mut tell = |n: usize| {
            let n = n.min(addresses.len() - told);
            told += n;
            done(n);
        };
        let mut answers = self.ask(layers, addresses, options, cpu_time, &mut tell);
        let debug_info = layers.iter().any(|layer| layer.debug_info);
        if let Err(why @ (Cause::TooLong(_) | Cause::TooMuchMemory(_) | Cause::Crashed)) = &answers
            && debug_info
        {
            // The symbol table may still be good.
            let plain: Vec<Layer> =
                layers.iter().map(|l| Layer { debug_info: false, ..l.clone() }).collect();
            let again = self.ask(&plain, addresses, options, CPU_TIME_OF_SYMBOLS, &mut tell);
            if let Ok(again) = again {
                answers = Ok(again.doubted(why.clone()));
            }
        }
        tell(addresses.len());
        answers
    }

    fn ask(
        &mut self,
        layers: &[Layer],
        addresses: &[u64],
        options: &Options,
        cpu_time: Duration,
        tell: &mut dyn FnMut(usize),
    ) -> Result<Answers, Cause> {
        let running = match &mut self.running {
            Some(running) => running,
            none => none
                .insert(Running::start(self.limits).map_err(|e| Cause::NoWorker(e.to_string()))?),
        };
        let end = self.limits.until.min(Instant::now() + cpu_time * PATIENCE);
        let deadline = Deadline { end, cpu_time, until: self.limits.until };
        let answers = running.ask(layers, addresses, options, deadline, tell);
        if matches!(&answers, Err(Ended::Stopped(_) | Ended::Died)) {
            let running = self.running.take();
            return Err(match answers {
                Err(Ended::Stopped(why)) => why,
                _ => running.map_or(Cause::Crashed, |running| running.why_dead(self.limits.memory)),
            });
        }
        answers.map_err(|ended| match ended {
            Ended::Failed(why) => why,
            Ended::Stopped(_) | Ended::Died => Cause::Crashed,
        })
    }
}

/// How a question ended that has no answers.
enum Ended {
    /// The worker says why, and can be asked again.
    Failed(Cause),
    /// It has to be ended.
    Stopped(Cause),
    /// It has ended, or talks nonsense.
    Died,
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Ended {
        Ended::Died
    }
}

/// When a worker is stopped.
#[derive(Clone, Copy)]
struct Deadline {
    end: Instant,
    cpu_time: Duration,
    until: Instant,
}

impl Running {
    fn start(limits: Limits) -> io::Result<Running> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(NOTICE))?;
        ours.set_write_timeout(Some(CPU_TIME))?;
        let child = Command::new("/proc/self/exe")
            .arg0(child::NAME)
            .arg(limits.memory.to_string())
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Running { child, socket: ours, inbox: Inbox::default() })
    }

    fn ask(
        &mut self,
        layers: &[Layer],
        addresses: &[u64],
        options: &Options,
        deadline: Deadline,
        tell: &mut dyn FnMut(usize),
    ) -> Result<Answers, Ended> {
        let (body, files) = wire::question(layers, addresses, options);
        let pid = self.child.id() as i32;
        let before = os::cpu_time_of(pid).unwrap_or_default();
        wire::send(&self.socket, Kind::Ask, &body, &files)?;
        let mut opened = 0;
        let mut looked = Instant::now();
        loop {
            // However much it has to say, time is looked at.
            if looked.elapsed() >= NOTICE {
                looked = Instant::now();
                let used = os::cpu_time_of(pid).unwrap_or_default().saturating_sub(before);
                deadline.check(used, options).map_err(Ended::Stopped)?;
            }
            let message = match self.inbox.receive(&self.socket) {
                Ok(Some(message)) => message,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Ok(None) | Err(_) => return Err(Ended::Died),
            };
            match message.kind {
                Kind::Done => tell(wire::Reader(&message.body).number().unwrap_or(0) as usize),
                Kind::Open if opened < MAX_OPENED => {
                    opened += 1;
                    self.open(&message)?;
                }
                Kind::Answer => {
                    return wire::answered(&message.body, addresses.len()).ok_or(Ended::Died);
                }
                Kind::Failure => {
                    return Err(wire::failed(&message.body).map_or(Ended::Died, Ended::Failed));
                }
                _ => return Err(Ended::Died),
            }
        }
    }

    fn open(&self, asked: &Message) -> io::Result<()> {
        let file = foreign::open(Path::new(OsStr::from_bytes(&asked.body))).ok();
        let files: Vec<_> = file.iter().map(|file| file.as_raw_fd()).collect();
        wire::send(&self.socket, Kind::Opened, &[], &files)
    }

    /// Why it has ended by itself.
    fn why_dead(mut self, memory: u64) -> Cause {
        let _ = self.child.kill();
        let mut said = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _ = stderr.take(4096).read_to_end(&mut said);
        }
        match String::from_utf8_lossy(&said).contains("memory allocation") {
            true => Cause::TooMuchMemory(memory >> 20),
            false => Cause::Crashed,
        }
    }
}

impl Deadline {
    fn check(self, used: Duration, options: &Options) -> Result<(), Cause> {
        let now = Instant::now();
        if options.stop.load(Ordering::Relaxed) {
            Err(Cause::Interrupted)
        } else if now > self.until {
            Err(Cause::NoTimeLeft)
        } else if used > self.cpu_time || now > self.end {
            Err(Cause::TooLong(self.cpu_time.as_secs()))
        } else {
            Ok(())
        }
    }
}
