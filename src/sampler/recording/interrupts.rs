//! Signals that request an end: while the window is open, the first closes it; afterwards, the
//! first ends symbolization (or the wait for a server), and the next aborts. Signals for a COMMAND
//! are forwarded to it.

use std::io::{self, Write};
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

/// `timeout(1)` and some shells signal a process and then its group, so that one request arrives
/// twice.
const SAME_REQUEST: Duration = Duration::from_millis(300);

/// The state that the signal thread shares with the recording.
#[derive(Default)]
struct SignalState {
    /// The signal that requested the end first; 0: none.
    ending_signal: AtomicI32,
    /// True if the end was requested without a signal.
    is_ended: AtomicBool,
    /// PID of the COMMAND; 0: none.
    child: AtomicI32,
    /// Files to remove on abort.
    temporary: Mutex<Vec<PathBuf>>,
    phase: Mutex<Phase>,
    /// True if symbolization is to stop.
    skip_names: Arc<AtomicBool>,
    /// The file with the recording, without symbols.
    kept: Mutex<Option<PathBuf>>,
    /// Run once at the next request while symbolizing; returns true if that suffices.
    instead: Mutex<Option<Box<dyn FnOnce() -> bool + Send>>>,
}

/// The phase of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Until the window closes.
    #[default]
    Recording,
    /// Symbolization, after the window has closed.
    Naming,
    /// Writing the file, after symbolization.
    Writing,
}

/// Handles signals from its creation until the process ends.
pub struct Interrupts {
    shared: Arc<SignalState>,
    wake: io::PipeReader,
    waker: io::PipeWriter,
    ignored: Vec<i32>,
}

/// Requests the end of a recording without a signal.
pub struct Ender {
    shared: Arc<SignalState>,
    waker: io::PipeWriter,
}

impl Ender {
    /// Closes the window.
    pub fn end(&mut self) {
        self.shared.is_ended.store(true, Ordering::SeqCst);
        // If the pipe is full or closed, the reader is awake already.
        let _ = self.waker.write(&[1]);
    }

    /// PID of the COMMAND, once it has started and until it ends.
    pub fn command(&self) -> Option<i32> {
        Some(self.shared.child.load(Ordering::SeqCst)).filter(|&pid| pid > 0)
    }
}

impl Interrupts {
    /// Installs the handlers. With `command`, signals that a program may use for itself are
    /// forwarded; otherwise, SIGUSR1 and SIGUSR2 request the end, too.
    pub fn install(command: bool) -> io::Result<Interrupts> {
        let ends = [SIGINT, SIGTERM];
        let others = if command {
            &[SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2][..]
        } else {
            &[SIGHUP, SIGUSR1, SIGUSR2]
        };
        // `nohup prof …`, or `nohup` before a COMMAND: both ignore the signal.
        let others = others.iter().copied();
        let caught: Vec<i32> = others.filter(|&s| !os::is_ignored(s)).chain(ends).collect();
        let ignored = ends.into_iter().filter(|&s| os::is_ignored(s)).collect();
        let mut signals = SignalsInfo::<WithOrigin>::new(caught)?;
        let (wake, waker) = io::pipe()?;
        let mut waker_of_signals = waker.try_clone()?;
        let shared = Arc::new(SignalState::default());
        let theirs = shared.clone();
        let begun = Arc::new(Barrier::new(2));
        let beginning = begun.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let mut last: Option<Instant> = None;
            beginning.wait();
            for origin in signals.forever() {
                theirs.pass_on(origin.signal, origin.cause);
                let is_for_command =
                    command && matches!(origin.signal, SIGQUIT | SIGUSR1 | SIGUSR2);
                if is_for_command {
                    continue;
                }
                if last.is_none_or(|last| last.elapsed() > SAME_REQUEST) {
                    last = Some(Instant::now());
                    theirs.request_end(origin.signal);
                }
                // If the pipe is full or closed, the reader is awake already.
                let _ = waker_of_signals.write(&[1]);
            }
        })?;
        // Starting a thread changes the memory map: with mapped ring buffers, it would spin until
        // it gets the lock.
        begun.wait();
        Ok(Interrupts { shared, wake, waker, ignored })
    }

    /// True if an end was requested.
    pub fn stopped(&self) -> bool {
        self.signal().is_some() || self.shared.is_ended.load(Ordering::SeqCst)
    }

    /// A handle that requests the end without a signal.
    ///
    /// # Errors
    ///
    /// There can be no further descriptor.
    pub fn ender(&self) -> io::Result<Ender> {
        Ok(Ender { shared: self.shared.clone(), waker: self.waker.try_clone()? })
    }

    /// The signal that requested the end, if one did.
    pub fn signal(&self) -> Option<i32> {
        Some(self.shared.ending_signal.load(Ordering::SeqCst)).filter(|&signal| signal != 0)
    }

    /// Signals that prof inherited as ignored and that end a recording nevertheless. A COMMAND
    /// ignores them.
    pub fn ignored(&self) -> &[i32] {
        &self.ignored
    }

    /// Forwards signals to this process from now on.
    pub fn set_child(&self, pid: i32) {
        self.shared.child.store(pid, Ordering::SeqCst);
    }

    /// Stops forwarding signals.
    pub fn forget_child(&self) {
        self.set_child(0);
    }

    /// Removes this file when a second signal aborts.
    pub fn remove_when_giving_up(&self, path: PathBuf) {
        if let Ok(mut files) = self.shared.temporary.lock() {
            files.push(path);
        }
    }

    /// The window has closed: the next request ends symbolization.
    pub fn close_window(&self) {
        *self.shared.phase.lock().unwrap_or_else(|e| e.into_inner()) = Phase::Naming;
    }

    /// Symbolization has ended: a repeated request aborts at once.
    pub fn end_naming(&self) {
        *self.shared.phase.lock().unwrap_or_else(|e| e.into_inner()) = Phase::Writing;
    }

    /// Becomes true when symbolization is to stop.
    pub fn skip_names(&self) -> Arc<AtomicBool> {
        self.shared.skip_names.clone()
    }

    /// This file contains the recording, without symbols.
    pub fn kept(&self, file: PathBuf) {
        *self.shared.kept.lock().unwrap_or_else(|e| e.into_inner()) = Some(file);
    }

    /// Runs `action` at the next request while symbolizing; true means that the request is
    /// fulfilled.
    pub fn instead(&self, action: impl FnOnce() -> bool + Send + 'static) {
        if let Ok(mut instead) = self.shared.instead.lock() {
            *instead = Some(Box::new(action));
        }
    }

    /// Becomes readable when an end is requested.
    pub fn fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }
}

impl SignalState {
    fn request_end(&self, signal: i32) {
        let phase = *self.phase.lock().unwrap_or_else(|e| e.into_inner());
        let order = Ordering::SeqCst;
        let stopped = self.ending_signal.compare_exchange(0, signal, order, order).is_err();
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

    /// Signals of the terminal go to the whole foreground process group, including the COMMAND.
    fn pass_on(&self, signal: i32, cause: Cause) {
        let from_terminal = matches!(cause, Cause::Kernel);
        let child = self.child.load(Ordering::SeqCst);
        if child > 0 && !from_terminal {
            // It may have exited in the meantime.
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
