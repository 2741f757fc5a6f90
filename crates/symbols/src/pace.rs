//! Pauses of a lookup that goes on beside a recording.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::SymbolOptions;
use sys::cpu_allowance::{Deferrable, ThreadTime};

/// Length of a pause.
pub const PAUSE: Duration = Duration::from_millis(200);

/// The work of a thread, which pauses while prof has used the CPU time that it allows itself.
pub struct Pace<'a> {
    options: &'a SymbolOptions,
    time: ThreadTime<'a>,
}

impl<'a> Pace<'a> {
    /// The work of this thread, from now on.
    pub fn begin(options: &'a SymbolOptions) -> Pace<'a> {
        let time = ThreadTime::begin(options.allowance.as_deref(), Deferrable::Names);
        Pace { options, time }
    }

    /// Waits until work may go on, or is to end.
    pub fn wait(&mut self) {
        self.time.add();
        wait(self.options);
    }
}

/// Waits until names may be looked up, or the lookup is to end.
pub fn wait(options: &SymbolOptions) {
    let Some(allowance) = &options.allowance else { return };
    while !allowance.allows(Deferrable::Names) && !options.stop.load(Ordering::Relaxed) {
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use super::*;
    use sys::cpu_allowance::CpuAllowance;
    use sys::os;

    #[test]
    fn a_wait_ends_with_the_recording_or_the_lookup() {
        let allowance = Arc::new(CpuAllowance::default());
        // More than the start may use.
        os::count_as_own(Duration::from_secs(1));
        assert!(!allowance.allows(Deferrable::Names));
        let options =
            SymbolOptions { allowance: Some(allowance.clone()), ..SymbolOptions::default() };
        let waiting = |options: SymbolOptions| {
            let (ended, end) = mpsc::channel();
            let stop = options.stop.clone();
            let thread = thread::spawn(move || {
                Pace::begin(&options).wait();
                // Nothing receives it once the wait was seen.
                ended.send(()).ok();
            });
            assert!(end.try_recv().is_err(), "it waits");
            (stop, thread)
        };
        let (stop, thread) = waiting(SymbolOptions { stop: Arc::default(), ..options.clone() });
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        let (_, thread) = waiting(options);
        allowance.lift();
        thread.join().unwrap();
        Pace::begin(&SymbolOptions::default()).wait();
    }
}
