//! Injects a library into a running process, and calls its functions there, by `ptrace(2)`.
//!
//! One thread is borrowed for a few milliseconds, at a point where no system call of it is
//! interrupted ([`stops`]) and where it holds none of the locks that `dlopen` takes ([`judge`]);
//! all others keep running. No code of the target is changed. On any failure the thread returns to
//! its original code; if prof dies, it does so by itself ([`frame`]).

mod find;
pub(crate) mod frame;
mod judge;
mod locks;
mod objects;
mod refuse;
mod stops;
pub(crate) mod trace;
mod visit;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use find::Finder;
pub use refuse::is_unconfined;
use stops::StoppedThread;
pub use stops::{Near, StopEvents, StopPrograms};
pub use visit::Visit;

use crate::arch;
use sys::maps::parse_line;
use sys::{Error, ThreadId};

/// Time limit of the search for a thread.
const PATIENCE: Duration = Duration::from_secs(5);

/// Duration of one round, in a thread of prof's that ends with it.
const ROUND: Duration = Duration::from_millis(50);

/// Longest time for which a thread may have been stopped before it is used; above, it is released
/// again. The work takes a few milliseconds, and 50 ms in all is the limit.
const LONG: Duration = Duration::from_millis(20);

/// A library to inject.
#[derive(Clone, Copy, Debug)]
pub struct InjectedLibrary<'a> {
    /// Its name, as shown in the target's `/proc/PID/maps` (followed by a number).
    pub name: &'a str,
    /// The file.
    pub bytes: &'a [u8],
}

/// A library in a process.
pub struct Injection<'a> {
    finder: Finder,
    pid: i32,
    library: InjectedLibrary<'a>,
    /// Its name in the target, different for each build.
    file_name: String,
    /// Address of its mapping.
    base: u64,
    /// It was there before, perhaps from a recording that was aborted.
    pub was_there: bool,
    /// Longest time that a thread was borrowed, without its waits for a CPU.
    pub stood_still: Duration,
}

impl<'a> Injection<'a> {
    /// Injects the library into a process and, in the same visit, lets `then` call its functions.
    ///
    /// # Errors
    ///
    /// One line that states the obstacle; the target continues unchanged.
    pub fn new(
        pid: i32,
        library: InjectedLibrary<'a>,
        events: &'static dyn StopEvents,
        then: impl FnOnce(&mut Inside<'_, '_>) -> Result<(), Error> + Send,
    ) -> Result<Injection<'a>, Error> {
        arch::check_support()?;
        let finder = Finder::new(pid, events)?;
        let mut hasher = DefaultHasher::new();
        library.bytes.hash(&mut hasher);
        let file_name = format!("{}-{:016x}", library.name, hasher.finish());
        let base = find(pid, &file_name).unwrap_or(0);
        let mut injection = Injection {
            finder,
            pid,
            library,
            file_name,
            base,
            was_there: base != 0,
            stood_still: Duration::ZERO,
        };
        injection.borrow(None, |inside| {
            if inside.base == 0 {
                inside.load()?;
            }
            then(inside)
        })?;
        Ok(injection)
    }

    /// Borrows a thread, if one is found in time (`None`: the usual time).
    ///
    /// # Errors
    ///
    /// As [`Injection::new`].
    pub fn borrow(
        &mut self,
        patience: Option<Duration>,
        then: impl FnOnce(&mut Inside<'_, '_>) -> Result<(), Error> + Send,
    ) -> Result<(), Error> {
        let began = Instant::now();
        let patience = patience.unwrap_or(PATIENCE);
        // Time in which prof itself, or the whole machine, was suspended does not count.
        let mut rounds = patience.as_millis() / ROUND.as_millis() / 5;
        let mut then = Some(then);
        self.finder.begin();
        let done = loop {
            // Threads that it traces without having stopped them are released when it ends.
            let round = || {
                trace::take_precedence();
                self.round(Instant::now() + ROUND, &mut then)
            };
            let done = std::thread::scope(|scope| scope.spawn(round).join());
            match done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                Ok(false) if began.elapsed() > patience && rounds == 0 => {
                    break Err(self.finder.none_found(patience));
                }
                Ok(false) => rounds = rounds.saturating_sub(1),
                done => break done.map(|_| ()),
            }
        };
        self.finder.end();
        done
    }

    /// Borrows a thread, if one is found before `until`; the calling thread has to end afterwards.
    fn round<F>(&mut self, until: Instant, then: &mut Option<F>) -> Result<bool, Error>
    where
        F: FnOnce(&mut Inside<'_, '_>) -> Result<(), Error>,
    {
        let signal = self.finder.signal();
        let Some(stopped) = self.finder.stop_one(until)? else { return Ok(false) };
        let StoppedThread { tracee, since, waited } = stopped;
        let pid = self.pid;
        let thread = ThreadId { pid, tid: tracee.tid };
        let stands = || {
            let waits = stops::schedstat(thread).map_or(0, |now| now.waited.saturating_sub(waited));
            since.elapsed().saturating_sub(Duration::from_nanos(waits))
        };
        let memory = &self.finder.memory;
        let objects = &self.finder.objects;
        let visit = Visit::begin(pid, tracee, signal, memory, objects)?;
        let library = self.library;
        let base = self.base;
        let file_name = &self.file_name;
        let dlopen = objects.dlopen();
        let mut inside = Inside { visit, pid, library, file_name, base, dlopen };
        let done = if stands() > LONG { None } else { then.take().map(|then| then(&mut inside)) };
        self.base = inside.base;
        let ended = inside.visit.end();
        self.stood_still = self.stood_still.max(stands());
        match done {
            Some(done) => done.and(ended).map(|()| true),
            None => ended.map(|()| false),
        }
    }
}

/// The library in the target, while a thread is borrowed.
pub struct Inside<'a, 'b> {
    /// The borrowed thread.
    pub visit: Visit<'b>,
    pid: i32,
    library: InjectedLibrary<'a>,
    file_name: &'a str,
    base: u64,
    dlopen: Option<u64>,
}

impl Inside<'_, '_> {
    /// Calls a function of the library with up to six numbers.
    ///
    /// # Errors
    ///
    /// No function has that name; the thread does not return from it.
    pub fn call(&mut self, function: &str, arguments: &[u64]) -> Result<u64, Error> {
        let at = objects::exported(self.library.bytes, function)
            .ok_or_else(|| Error::failed(format!("there is no {function} in the library")))?;
        self.visit.call(self.base + at, arguments)
    }

    /// Loads the library.
    fn load(&mut self) -> Result<(), Error> {
        let dlopen = self.dlopen.ok_or_else(|| Error::failed("there is no dlopen in it"))?;
        let (fd, _) = self.visit.memory_file(self.file_name, self.library.bytes)?;
        let path = self.visit.text(&format!("/proc/self/fd/{fd}"))?;
        let handle = self.visit.call(dlopen, &[path, libc::RTLD_NOW as u64]);
        let why = match handle {
            Ok(0) => self.visit.loader_error(),
            _ => None,
        };
        self.visit.close()?;
        handle?;
        if let Some(why) = why {
            return Err(Error::failed(format!("its dlopen refuses: {why}")));
        }
        self.base = find(self.pid, self.file_name).ok_or_else(|| {
            Error::failed(
                "its dlopen reports that the library is loaded, but it is not: perhaps that of \
                 another build of prof is",
            )
        })?;
        Ok(())
    }
}

/// Address at which a process has mapped a memory file of this name.
fn find(pid: i32, file_name: &str) -> Option<u64> {
    let path = format!("/memfd:{file_name}");
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mut lines = maps.lines().filter_map(parse_line);
    lines.find(|l| l.path == path && l.offset == 0).map(|l| l.start)
}
