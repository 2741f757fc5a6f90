//! A separate process for parsers of foreign files.
//!
//! Libraries that read debug information take as much memory and time as a file makes them. In a
//! process with limits that costs no more than the names of that file: the process is ended when it
//! exceeds its memory or its time, the cause is recorded, and a new one continues with the next
//! file. It receives open files and can request further ones by name, which are opened here (see
//! [`Opener`]). Each thread that symbolizes has one such process, which it reuses for all
//! files.

mod child;
mod wire;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::SymbolOptions;
use super::encoded_frames::{EncodedFrames, NO_KEY, Resolved};
use super::opener::{DirectOpener, Opener};
use super::pace;
use super::source::Layer;
pub use child::run_if_started;
use profile::Cause;
use sys::cpu_allowance::Deferrable;
use sys::{os, procfs};
use wire::{Inbox, Message, MessageKind};

/// CPU time for the names of one file, and for each GiB of the file in addition.
const CPU_TIME: Duration = Duration::from_secs(30);
const CPU_TIME_PER_GIB: Duration = Duration::from_secs(30);

/// Wall-clock limit as a multiple of the CPU time: a busy machine gives it little.
const PATIENCE: u32 = 10;

/// CPU time for a second attempt, with only the symbol table.
const CPU_TIME_OF_SYMBOLS: Duration = Duration::from_secs(10);

/// Interval of checks for deadline and interruption.
const NOTICE: Duration = Duration::from_millis(50);

/// Interval of checks whether prof has used the CPU time that it allows itself.
const ALLOWANCE_CHECK: Duration = Duration::from_millis(1);

/// Most and least memory of a worker, in bytes.
const MAX_MEMORY: u64 = 2 << 30;
const MIN_MEMORY: u64 = 256 << 20;

/// Most files that a worker may request at a time.
const MAX_OPENED: usize = 1 << 14;

/// Limits of the workers of one symbolization.
#[derive(Clone, Copy, Debug)]
pub struct WorkerLimits {
    /// Memory of each, in bytes.
    memory: u64,
    /// Number of workers, so that all together leave half of the machine's memory to others.
    pub count: usize,
    /// Deadline of all work.
    until: Instant,
}

impl WorkerLimits {
    /// Limits that this machine allows now.
    pub fn for_this_machine(until: Instant) -> WorkerLimits {
        let available = procfs::available_memory().unwrap_or(MAX_MEMORY * 4);
        let memory = (available / 4).clamp(MIN_MEMORY, MAX_MEMORY);
        let count = (available / 2 / memory).max(1) as usize;
        WorkerLimits { memory, count, until }
    }
}

/// A thread's worker, which is started on first use.
pub struct Worker {
    limits: WorkerLimits,
    running: Option<Running>,
}

struct Running {
    pid: i32,
    /// `None` once it was ended.
    child: Option<Child>,
    socket: UnixStream,
    inbox: Inbox,
    /// Its CPU time that was added to prof's own.
    counted: Duration,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

impl Worker {
    /// Without a running process.
    pub fn new(limits: WorkerLimits) -> Worker {
        Worker { limits, running: None }
    }

    /// Does the same as [`super::elf::resolve`].
    ///
    /// # Errors
    ///
    /// Causes of missing names, including those of the worker.
    pub fn resolve(
        &mut self,
        layers: &[Layer],
        addresses: &[u64],
        options: &SymbolOptions,
        opener: &DirectOpener,
        done: &dyn Fn(usize),
    ) -> Result<Resolved, Cause> {
        let size: u64 = layers.iter().filter_map(|l| Some(l.file.metadata().ok()?.len())).sum();
        let gib = u32::try_from(size >> 30).unwrap_or(u32::MAX);
        let cpu_time = CPU_TIME + CPU_TIME_PER_GIB.saturating_mul(gib);
        let mut reported = 0;
        let mut report = |n: usize| {
            let n = n.min(addresses.len() - reported);
            reported += n;
            done(n);
        };
        let request = Request { layers, addresses, options, opener };
        let mut resolved = self.request(request, cpu_time, &mut report);
        let debug_info = layers.iter().any(|layer| layer.debug_info);
        if let Err(why @ (Cause::TooLong(_) | Cause::TooMuchMemory(_) | Cause::Crashed)) = &resolved
            && debug_info
        {
            // The symbol table may still be intact.
            let plain: Vec<Layer> =
                layers.iter().map(|l| Layer { debug_info: false, ..l.clone() }).collect();
            let request = Request { layers: &plain, ..request };
            if let Ok(by_symbols) = self.request(request, CPU_TIME_OF_SYMBOLS, &mut report) {
                resolved = Ok(by_symbols.marked_incomplete(why.clone()));
            }
        }
        report(addresses.len());
        resolved
    }

    fn request(
        &mut self,
        request: Request<'_>,
        cpu_time: Duration,
        report: &mut dyn FnMut(usize),
    ) -> Result<Resolved, Cause> {
        let running = match &mut self.running {
            Some(running) => running,
            none => none
                .insert(Running::start(self.limits).map_err(|e| Cause::NoWorker(e.to_string()))?),
        };
        let until = self.limits.until;
        let end = until.min(Instant::now() + cpu_time * PATIENCE);
        let deadline = Deadline { end, cpu_time, until };
        let resolved = running.request(request, deadline, report);
        running.add_to_allowance(request.options);
        if matches!(&resolved, Err(Ended::Stopped(_) | Ended::Died)) {
            let running = self.running.take();
            return Err(match resolved {
                Err(Ended::Stopped(why)) => why,
                _ => running.map_or(Cause::Crashed, |running| running.why_dead(self.limits.memory)),
            });
        }
        resolved.map_err(|ended| match ended {
            Ended::Failed(why) => why,
            Ended::Stopped(_) | Ended::Died => Cause::Crashed,
        })
    }
}

/// Addresses in files, and the way to open further ones.
#[derive(Clone, Copy)]
struct Request<'a> {
    layers: &'a [Layer],
    addresses: &'a [u64],
    options: &'a SymbolOptions,
    opener: &'a DirectOpener,
}

/// Failure of a request.
enum Ended {
    /// The worker reports the cause, and can be reused.
    Failed(Cause),
    /// It has to be ended.
    Stopped(Cause),
    /// It has ended, or sends invalid messages.
    Died,
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Ended {
        Ended::Died
    }
}

/// Deadline of a worker.
#[derive(Clone, Copy)]
struct Deadline {
    end: Instant,
    cpu_time: Duration,
    until: Instant,
}

impl Running {
    fn start(limits: WorkerLimits) -> io::Result<Running> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(NOTICE))?;
        ours.set_write_timeout(Some(CPU_TIME))?;
        let child = Command::new("/proc/self/exe")
            .arg0(child::NAME)
            .arg(limits.memory.to_string())
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pid = child.id() as i32;
        let (inbox, counted) = (Inbox::default(), Duration::ZERO);
        Ok(Running { pid, child: Some(child), socket: ours, inbox, counted })
    }

    fn request(
        &mut self,
        request: Request<'_>,
        mut deadline: Deadline,
        report: &mut dyn FnMut(usize),
    ) -> Result<Resolved, Ended> {
        let Request { layers, addresses, options, opener } = request;
        let interval = options.allowance.as_ref().map_or(NOTICE, |_| ALLOWANCE_CHECK);
        self.socket.set_read_timeout(Some(interval))?;
        let (body, files) = wire::request(layers, addresses, options);
        let pid = self.pid;
        let before = os::cpu_time_of(pid).unwrap_or_default();
        wire::send(&self.socket, MessageKind::Request, &body, &files)?;
        let mut opened = 0;
        let mut incomplete = None;
        let mut checked = Instant::now();
        loop {
            // Time is checked even if messages keep coming.
            if checked.elapsed() >= interval {
                deadline.extend(self.pause(options));
                checked = Instant::now();
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
                MessageKind::Done => {
                    report(wire::BodyReader(&message.body).number().unwrap_or(0) as usize);
                }
                MessageKind::Open if opened < MAX_OPENED => {
                    opened += 1;
                    self.open(&message, opener)?;
                }
                MessageKind::Incomplete => {
                    incomplete = Some(wire::parse_cause(&message.body).ok_or(Ended::Died)?);
                }
                MessageKind::Frames => {
                    let parsed = EncodedFrames::parse(message.body, NO_KEY).ok().flatten();
                    let frames = parsed.filter(|frames| frames.is_answer_to(addresses));
                    return Ok(Resolved { frames: frames.ok_or(Ended::Died)?, incomplete });
                }
                MessageKind::Failure => {
                    return Err(wire::parse_cause(&message.body).map_or(Ended::Died, Ended::Failed));
                }
                _ => return Err(Ended::Died),
            }
        }
    }

    fn open(&self, request: &Message, opener: &DirectOpener) -> io::Result<()> {
        let place = wire::parse_place(&request.body).ok_or(io::ErrorKind::InvalidData)?;
        let file = opener.open(&place).ok();
        let files: Vec<_> = file.iter().map(|file| file.as_raw_fd()).collect();
        wire::send(&self.socket, MessageKind::Opened, &[], &files)
    }

    /// Stops the process while prof has used the CPU time that it allows itself; returns the length
    /// of the pause.
    fn pause(&mut self, options: &SymbolOptions) -> Duration {
        self.add_to_allowance(options);
        if options.allowance.as_ref().is_none_or(|a| a.allows(Deferrable::Names)) {
            return Duration::ZERO;
        }
        let began = Instant::now();
        // It cannot fail: this process is a child that was not waited for.
        os::kill(self.pid, libc::SIGSTOP).ok();
        pace::wait(options);
        os::kill(self.pid, libc::SIGCONT).ok();
        began.elapsed()
    }

    fn add_to_allowance(&mut self, options: &SymbolOptions) {
        if let Some(allowance) = &options.allowance {
            allowance.add(Deferrable::Names, self.count());
        }
    }

    /// Adds its CPU time to prof's own; returns what was not added before.
    fn count(&mut self) -> Duration {
        let used = os::cpu_time_of(self.pid).unwrap_or_default();
        let new = used.saturating_sub(self.counted);
        os::count_as_own(new);
        self.counted += new;
        new
    }

    /// Ends the process and returns its exit code, if it had exited by itself.
    fn end(&mut self) -> Option<i32> {
        self.child.as_ref()?;
        self.count();
        let mut child = self.child.take()?;
        // A process that is exiting keeps its exit code.
        let _ = child.kill();
        child.wait().ok()?.code()
    }

    /// Cause of its unexpected end.
    fn why_dead(mut self, memory: u64) -> Cause {
        match self.end() {
            Some(os::OUT_OF_MEMORY) => Cause::TooMuchMemory(memory >> 20),
            _ => Cause::Crashed,
        }
    }
}

impl Deadline {
    /// A pause does not count.
    fn extend(&mut self, pause: Duration) {
        self.end += pause;
        self.until += pause;
    }

    fn check(self, used: Duration, options: &SymbolOptions) -> Result<(), Cause> {
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
