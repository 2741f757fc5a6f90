//! Signals that ask for an end: while the window is open, the first closes it; afterwards, the
//! first ends the look-up of names (or only the waiting for a server, if that is what it does), and
//! the next gives up. What is meant for a COMMAND is passed on to it.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

use sys::os;
use sys::printed::Stderr;

/// `timeout(1)` and some shells signal a process and then its group, so that one wish for an end
/// arrives twice.
const SAME_WISH: Duration = Duration::from_millis(300);

/// The state that the signal thread shares with the recording.
#[derive(Default)]
struct SignalState {
    /// An end was asked for.
    stop: AtomicBool,
    /// The COMMAND; 0: none.
    child: AtomicI32,
    /// Files that are removed when giving up.
    temporary: Mutex<Vec<PathBuf>>,
    phase: Mutex<Phase>,
    /// Names are not to be looked up any longer.
    skip_names: Arc<AtomicBool>,
    /// The file that has the recording, without names.
    kept: Mutex<Option<PathBuf>>,
    /// Done once at the next wish for an end while names are looked up; whether that is enough.
    instead: Mutex<Option<Box<dyn FnOnce() -> bool + Send>>>,
}

/// How far prof is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Until the window closes.
    #[default]
    Recording,
    /// The window has closed.
    Naming,
    /// Names were looked up; what is left is to write.
    Writing,
}

/// Handles signals from its creation on, for the rest of the process's life.
pub struct Interrupts {
    shared: Arc<SignalState>,
    wake: io::PipeReader,
    ignored: Vec<i32>,
}

impl Interrupts {
    /// Installs the handlers. With `command`, signals that a program may use for itself are
    /// caught too, to be passed on.
    pub fn install(command: bool) -> io::Result<Interrupts> {
        let (more, ends) = ([SIGQUIT, SIGUSR1, SIGUSR2], [SIGINT, SIGTERM]);
        let passed_on = if command { &more[..] } else { &[] };
        // `nohup prof …`, or `nohup` before a COMMAND: it is to be ignored by both.
        let others = [SIGHUP].into_iter().chain(passed_on.iter().copied());
        let caught: Vec<i32> = others.filter(|&s| !os::is_ignored(s)).chain(ends).collect();
        let ignored = ends.into_iter().filter(|&s| os::is_ignored(s)).collect();
        let mut signals = SignalsInfo::<WithOrigin>::new(caught)?;
        let (wake, mut waker) = io::pipe()?;
        let shared = Arc::new(SignalState::default());
        let theirs = shared.clone();
        let begun = Arc::new(Barrier::new(2));
        let beginning = begun.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let mut last: Option<Instant> = None;
            beginning.wait();
            for origin in signals.forever() {
                theirs.pass_on(origin.signal, origin.cause);
                if !matches!(origin.signal, SIGINT | SIGTERM | SIGHUP) {
                    continue;
                }
                if last.is_none_or(|last| last.elapsed() > SAME_WISH) {
                    last = Some(Instant::now());
                    theirs.wish(origin.signal);
                }
                // A full or closed pipe has woken the reader already.
                let _ = waker.write(&[1]);
            }
        })?;
        // A thread that begins changes the memory map: while the ring buffers are mapped, it
        // would spin for that.
        begun.wait();
        Ok(Interrupts { shared, wake, ignored })
    }

    /// An end was asked for.
    pub fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::SeqCst)
    }

    /// Signals that whoever started prof let it ignore, and that end a recording all the same. A
    /// COMMAND ignores them.
    pub fn ignored(&self) -> &[i32] {
        &self.ignored
    }

    /// Signals are passed on to this process from now on.
    pub fn set_child(&self, pid: i32) {
        self.shared.child.store(pid, Ordering::SeqCst);
    }

    /// Signals are not passed on any more.
    pub fn forget_child(&self) {
        self.set_child(0);
    }

    /// This file is removed when a second signal gives up.
    pub fn remove_when_giving_up(&self, path: PathBuf) {
        if let Ok(mut files) = self.shared.temporary.lock() {
            files.push(path);
        }
    }

    /// The window has closed: the next wish for an end is about names.
    pub fn close_window(&self) {
        *self.shared.phase.lock().unwrap_or_else(|e| e.into_inner()) = Phase::Naming;
    }

    /// Names were looked up: who asked for an end before and asks again is not kept waiting.
    pub fn end_naming(&self) {
        *self.shared.phase.lock().unwrap_or_else(|e| e.into_inner()) = Phase::Writing;
    }

    /// Becomes true when names are not to be looked up any longer.
    pub fn skip_names(&self) -> Arc<AtomicBool> {
        self.shared.skip_names.clone()
    }

    /// This file has the recording, without names.
    pub fn kept(&self, file: PathBuf) {
        *self.shared.kept.lock().unwrap_or_else(|e| e.into_inner()) = Some(file);
    }

    /// The next wish for an end while names are looked up is met by doing this, if it returns
    /// true.
    pub fn instead(&self, action: impl FnOnce() -> bool + Send + 'static) {
        if let Ok(mut instead) = self.shared.instead.lock() {
            *instead = Some(Box::new(action));
        }
    }

    /// Becomes readable when an end is asked for.
    pub fn fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// Waits for an end to be asked for.
    pub fn wait(&mut self) {
        // An error means that the signal thread is gone, which it never is.
        let _ = self.wake.read(&mut [0]);
    }
}

impl SignalState {
    fn wish(&self, signal: i32) {
        let phase = *self.phase.lock().unwrap_or_else(|e| e.into_inner());
        let stopped = self.stop.swap(true, Ordering::SeqCst);
        if phase != Phase::Naming {
            if stopped {
                self.give_up(signal);
            }
            return;
        }
        let instead = self.instead.lock().ok().and_then(|mut instead| instead.take());
        if instead.is_some_and(|action| action()) {
            return;
        }
        if self.skip_names.swap(true, Ordering::SeqCst) {
            self.give_up(signal);
        }
    }

    /// What the terminal sends goes to the whole foreground group, the COMMAND included.
    fn pass_on(&self, signal: i32, cause: Cause) {
        let from_terminal = matches!(cause, Cause::Kernel);
        let child = self.child.load(Ordering::SeqCst);
        if child > 0 && !from_terminal {
            // It may have ended just now.
            let _ = os::kill(child, signal);
        }
    }

    fn give_up(&self, signal: i32) -> ! {
        if let Ok(files) = self.temporary.lock() {
            files.iter().for_each(|f| drop(std::fs::remove_file(f)));
        }
        let kept = self.kept.lock().ok().and_then(|kept| kept.clone());
        let what = match kept {
            None => "nothing was written".to_owned(),
            Some(file) => format!("{} has no names", file.display()),
        };
        Stderr::start_line();
        Stderr::line(&format!("prof: interrupted again: gave up, {what}"));
        std::process::exit(128 + signal)
    }
}
