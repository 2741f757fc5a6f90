//! The search for the interpreter of a process that has executed an interpreter's file.
//!
//! Its files are read once. Its structures are checked at samples until they pass: a process that
//! starts has not all of them yet, and one that runs changes them in the middle of the reading. The
//! search never waits in between, since samples of all processes wait for the thread that does it.

use std::sync::Arc;
use std::time::Duration;

use super::budgeted::BudgetedMemory;
use super::codes::BUDGET;
use interpreters::{
    Candidate, Interpreter, MappedFiles, Memory, Process, ReadError, Refusal, Runtime,
};
use sys::os;
use sys::procfs;

/// Nanoseconds between two looks at a process at least, and at most.
const SHORTEST_PAUSE: u64 = 5_000_000;
/// See [`SHORTEST_PAUSE`].
const LONGEST_PAUSE: u64 = 5_000_000_000;

/// A process that runs no code of its interpreter yet is looked at again after this part of the time
/// since the first look: it is recognized that much later than it could be, at most.
const PART: u64 = 16;

/// A process whose structures are not as expected is refused after this time, in nanoseconds, and this
/// number of looks.
const SETTLED: u64 = 1_000_000_000;
/// See [`SETTLED`].
const LOOKS: u32 = 16;

/// Checks of a look. A process that runs on another CPU has gone on in the meantime.
const TRIES: usize = 4;

/// Most checks with pauses in between.
const PATIENT_TRIES: usize = 64;
/// A thread that waits for a CPU in the middle of a call is there for some milliseconds.
const PAUSE: Duration = Duration::from_millis(1);

/// Whether a look may wait for the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patience {
    /// There are other looks.
    #[default]
    Immediate,
    /// This is the only one, and nothing waits for it.
    Waits,
}

/// What a look has found.
pub enum Found {
    /// The interpreter.
    Runtime(Arc<dyn Runtime>),
    /// Nothing yet.
    Nothing,
    /// It is not supported.
    Refused(Refusal),
}

/// A process whose interpreter is not recognized yet.
pub struct Search {
    pid: i32,
    /// Which one it seems to be.
    interpreter: Interpreter,
    /// It among the files of the process, once these are read.
    candidate: Option<Box<dyn Candidate>>,
    /// It was not among them.
    is_missing: bool,
    /// Time of the first look, in nanoseconds of the monotonic clock as all times here.
    begun: u64,
    /// It is looked at again at a sample from this time on.
    next: u64,
    odd: Oddness,
    memory: BudgetedMemory,
}

/// How long structures are not as expected.
#[derive(Clone, Copy, Debug, Default)]
struct Oddness {
    since: Option<u64>,
    looks: u32,
}

impl Oddness {
    /// One more look with that result. True if it will not change after this number of looks.
    fn is_settled(&mut self, time: u64, looks: u32) -> bool {
        self.looks += 1;
        let since = *self.since.get_or_insert(time);
        self.looks >= looks && time.saturating_sub(since) >= SETTLED
    }
}

impl Search {
    /// The search in a process at which no look was taken.
    pub fn new(pid: i32, interpreter: Interpreter) -> Search {
        let begun = os::monotonic_nanos();
        Search {
            pid,
            interpreter,
            candidate: None,
            is_missing: false,
            begun,
            next: begun,
            odd: Oddness::default(),
            memory: BudgetedMemory::new(pid, BUDGET),
        }
    }

    /// Continues with another interpreter that the process has.
    pub fn turn_to(&mut self, interpreter: Interpreter) {
        if self.interpreter != interpreter {
            self.interpreter = interpreter;
            self.candidate = None;
        }
    }

    /// True if the process is to be looked at, at a sample of this time. Samples of before the last look
    /// are no reason: they have no copies.
    pub fn is_due(&self, time: u64) -> bool {
        time >= self.next
    }

    /// The interpreter that the process seems to have.
    pub fn interpreter(&self) -> Interpreter {
        self.interpreter
    }

    /// True if the files of the process have the interpreter.
    pub fn has_candidate(&self) -> bool {
        self.candidate.is_some()
    }

    /// True if the files of the process were read, and do not have the interpreter.
    pub fn has_no_candidate(&self) -> bool {
        self.is_missing
    }

    /// Looks at the process: reads its files, or its memory.
    pub fn look(&mut self, patience: Patience) -> Found {
        self.look_at(os::monotonic_nanos(), patience)
    }

    fn look_at(&mut self, time: u64, patience: Patience) -> Found {
        self.memory.refill(time);
        let result = self.runtime(patience);
        // To read files takes longer than a check, and is repeated after twice the time.
        let (part, looks) = if self.has_candidate() { (PART, LOOKS) } else { (1, 1) };
        let since_begin = time.saturating_sub(self.begun);
        let mut pause = (since_begin / part).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        let found = match result {
            Ok(runtime) => Found::Runtime(runtime),
            Err(Refusal::Layout(_)) if !self.odd.is_settled(time, looks) => {
                pause = if self.has_candidate() { SHORTEST_PAUSE } else { pause };
                Found::Nothing
            }
            Err(Refusal::NotRunning) => {
                self.odd = Oddness::default();
                Found::Nothing
            }
            Err(Refusal::Memory(_)) => Found::Nothing,
            Err(refusal) => Found::Refused(refusal),
        };
        self.next = time + pause;
        found
    }

    /// The runtime, if its structures pass a check.
    fn runtime(&mut self, patience: Patience) -> Result<Arc<dyn Runtime>, Refusal> {
        let threads = procfs::inner_threads(self.pid);
        let memory = self.memory.memory();
        if self.candidate.is_none() {
            let files = MappedFiles::open(self.pid).map_err(|_| Refusal::NotRunning)?;
            let process = Process { images: &files.images(), threads: &threads, memory };
            self.candidate = self.interpreter.find(&process)?;
            self.is_missing = self.candidate.is_none();
        }
        let candidate = self.candidate.as_mut().ok_or(Refusal::NotRunning)?;
        checked(&mut **candidate, &threads, memory, patience)
    }
}

/// Checks a candidate until it passes, some times at most.
fn checked(
    candidate: &mut dyn Candidate,
    threads: &[i32],
    memory: &dyn Memory,
    patience: Patience,
) -> Result<Arc<dyn Runtime>, Refusal> {
    let tries = if patience == Patience::Waits { PATIENT_TRIES } else { TRIES };
    let mut odd = None;
    for number in 0..tries {
        if number > 0 && patience == Patience::Waits {
            std::thread::sleep(PAUSE);
        }
        match (candidate.check(threads, memory), odd) {
            (Err(Refusal::Layout(why)), _) => odd = Some(why),
            (Err(Refusal::Memory(ReadError::Budget)), Some(_)) => break,
            (Err(Refusal::NotRunning), _) if number + 1 < TRIES => {}
            (result, _) => return result,
        }
    }
    Err(odd.map_or(Refusal::NotRunning, Refusal::Layout))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const ODD: Refusal = Refusal::Layout("odd");

    /// Fails with this refusal, and counts the checks.
    struct Failing {
        refusal: Refusal,
        checks: Arc<AtomicUsize>,
    }

    impl Candidate for Failing {
        fn check(&mut self, _: &[i32], _: &dyn Memory) -> Result<Arc<dyn Runtime>, Refusal> {
            self.checks.fetch_add(1, Ordering::Relaxed);
            Err(self.refusal.clone())
        }
    }

    /// A search in a process that has no files, which have been read, and the number of its checks.
    fn search(refusal: Refusal) -> (Search, Arc<AtomicUsize>) {
        let checks = Arc::new(AtomicUsize::new(0));
        let candidate = Box::new(Failing { refusal, checks: checks.clone() });
        let mut search = Search::new(i32::MAX, Interpreter::Cpython);
        search.candidate = Some(candidate);
        (search, checks)
    }

    #[test]
    fn files_are_read_once_and_a_look_has_few_checks() {
        for (refusal, checks_of_look) in
            [(ODD, TRIES), (Refusal::NotRunning, TRIES), (ReadError::Ended.into(), 1)]
        {
            let (mut search, checks) = search(refusal);
            for look in 1..=3 {
                let time = search.next;
                // Without a candidate, there would be no checks: the process has no files.
                assert!(matches!(search.look_at(time, Patience::Immediate), Found::Nothing));
                assert_eq!(checks.load(Ordering::Relaxed), look * checks_of_look);
            }
        }
    }

    #[test]
    fn structures_that_are_odd_for_a_second_are_refused() {
        let (mut search, _) = search(ODD);
        let begun = search.begun;
        let found = (0..).find_map(|_| {
            let time = search.next;
            match search.look_at(time, Patience::Immediate) {
                Found::Refused(refusal) => Some((time, refusal)),
                _ => None,
            }
        });
        let (time, refusal) = found.unwrap();
        assert_eq!(refusal, ODD);
        assert!((SETTLED..2 * SETTLED).contains(&(time - begun)), "{}", time - begun);
    }

    #[test]
    fn few_looks_at_a_process_are_no_reason_to_refuse_it() {
        let (mut search, _) = search(ODD);
        let begun = search.begun;
        for look in 1..u64::from(LOOKS) {
            let time = begun + look * 10 * SETTLED;
            assert!(matches!(search.look_at(time, Patience::Immediate), Found::Nothing));
        }
        let time = begun + u64::from(LOOKS) * 10 * SETTLED;
        assert!(matches!(search.look_at(time, Patience::Immediate), Found::Refused(_)));
    }

    #[test]
    fn an_interpreter_that_begins_late_is_looked_at_soon() {
        for refusal in [Refusal::NotRunning, ReadError::Budget.into()] {
            let (mut search, _) = search(refusal);
            let begun = search.begun;
            for _ in 0..100 {
                let time = search.next;
                let _ = search.look_at(time, Patience::Immediate);
                let longest = ((time - begun) / PART).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
                assert_eq!(search.next, time + longest);
                assert!(!search.is_due(time) && search.is_due(search.next));
            }
        }
    }
}
