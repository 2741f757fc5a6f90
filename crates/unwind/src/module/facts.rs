//! Cached facts about addresses, for which a file would have to be read again.

use rustc_hash::FxHashMap;

/// Most cached facts; one takes 32 bytes.
const MAX_FACTS: usize = 1 << 15;

/// A fact about an address in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fact {
    /// The image's number.
    pub image: u32,
    /// The address as the file states it.
    pub address: u64,
    /// What holds there or not.
    pub kind: FactKind,
}

/// Kind of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FactKind {
    /// `.eh_frame` covers the address.
    InEhFrame,
    /// The unwind information for the address cannot be read.
    Damaged,
    /// A function begins at the address, and none ends there.
    BeginsAlone,
    /// The code of the file takes the address, and no call is before it.
    Stored,
    /// The code at the address is the system call `exit`.
    Exits,
    /// The code is of a function of Go's run-time code with this role.
    Go(GoRole),
}

/// Role of a function of Go's run-time code whose caller is not where it usually is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoRole {
    /// It leaves the goroutine's stack.
    Leaves,
    /// It leaves the goroutine's stack for good: what it calls on the thread's stack gives the
    /// goroutine up, and never returns. As in Go's own stack traces, nothing has called it.
    Parks,
    /// It leaves the stack of a goroutine that needs a larger one, and resumes the goroutine by what
    /// it has saved, without returning.
    Grows,
    /// It gives up the thread's goroutine, and resumes another one.
    Schedules,
    /// It leaves the thread's stack to call Go from C.
    CalledBack,
    /// It is called by C, and calls [`GoRole::CalledBack`].
    Enters,
    /// A signal's handler has made interrupted code call it, at any instruction.
    Interrupts,
}

impl GoRole {
    /// Those of functions that switch stacks.
    pub const SWITCHES: [GoRole; 3] = [GoRole::Leaves, GoRole::CalledBack, GoRole::Enters];

    /// The names of the functions in Go's own table.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            GoRole::Leaves => &["runtime.asmcgocall", "runtime.systemstack"],
            GoRole::Parks => &["runtime.mcall"],
            GoRole::Grows => &["runtime.morestack"],
            GoRole::Schedules => &[
                "runtime.schedule",
                "runtime.goschedImpl",
                "runtime.gopreempt_m",
                "runtime.preemptPark",
            ],
            GoRole::CalledBack => &["runtime.cgocallback"],
            GoRole::Enters => &["crosscall2"],
            GoRole::Interrupts => &["runtime.asyncPreempt", "runtime.sigpanic"],
        }
    }
}

/// Cached facts.
#[derive(Default)]
pub struct FactCache(FxHashMap<Fact, bool>);

impl FactCache {
    /// True or false if it is known.
    pub fn get(&self, fact: Fact) -> Option<bool> {
        self.0.get(&fact).copied()
    }

    /// Adds a fact.
    pub fn insert(&mut self, fact: Fact, holds: bool) {
        if self.0.len() >= MAX_FACTS {
            self.0.clear();
        }
        self.0.insert(fact, holds);
    }
}
