//! Whether a thread may be borrowed: whether it can hold a lock that `dlopen` needs.
//!
//! Its stack shows it. The dynamic loader, the allocator and the C library hold locks only while a
//! function of theirs is on it. So every function of the C library there must be known to be
//! harmless: a system call that sleeps, what calls back (`qsort`), what started the thread.

use super::objects::{Harmless, Role};
use unwind::StackEnd;

/// A frame, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Code of the program's, or made at run time.
    Program,
    /// Of the dynamic loader's.
    Loader,
    /// Of an allocator's.
    Allocator,
    /// Of the C library's.
    CLibrary(Option<Harmless>),
}

impl Seen {
    /// A frame in an image of this role.
    pub fn of(role: Role, harmless: impl FnOnce() -> Option<Harmless>) -> Seen {
        match role {
            Role::Program => Seen::Program,
            Role::Loader => Seen::Loader,
            Role::Allocator => Seen::Allocator,
            Role::CLibrary => Seen::CLibrary(harmless()),
        }
    }
}

/// What a thread was found in that may hold a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsafe {
    /// The dynamic loader.
    Loader,
    /// The allocator.
    Allocator,
    /// The C library.
    CLibrary,
    /// A system call that could not go on as if nothing had been.
    SystemCall,
    /// The stack could not be followed to its end.
    UnknownStack,
    /// A restartable sequence, or an odd state of its registers.
    Registers,
    /// It is confined by seccomp, as other threads of the process are not.
    Confined,
}

impl Unsafe {
    /// In words: a thread was …
    pub fn place(self) -> &'static str {
        match self {
            Unsafe::Loader => "in the dynamic loader",
            Unsafe::Allocator => "in the allocator",
            Unsafe::CLibrary => "in the C library",
            Unsafe::SystemCall => "in a system call that must not be interrupted",
            Unsafe::UnknownStack => "on a stack that cannot be followed to its end",
            Unsafe::Registers => "in code that must not be interrupted",
            Unsafe::Confined => "confined by seccomp",
        }
    }
}

/// What of the C library starts a thread is on its stack no deeper than so many frames.
const START: usize = 2;

/// Judges a stack (innermost frame first) that ended so; `own_malloc`: the program's own code may be
/// the allocator's.
///
/// # Errors
///
/// Where it is not safe.
pub fn judge(stack: &[Seen], end: StackEnd, own_malloc: bool) -> Result<(), Unsafe> {
    // The callers of code that was made at run time are never the C library's.
    let known = matches!(end, StackEnd::Complete | StackEnd::RuntimeCode);
    if !known || stack.is_empty() {
        return Err(Unsafe::UnknownStack);
    }
    for seen in stack {
        match seen {
            Seen::Loader => return Err(Unsafe::Loader),
            Seen::Allocator => return Err(Unsafe::Allocator),
            _ => {}
        }
    }
    if own_malloc && stack[0] == Seen::Program {
        return Err(Unsafe::Allocator);
    }
    let mut at = 0;
    while at < stack.len() {
        let length = stack[at..].iter().take_while(|s| matches!(s, Seen::CLibrary(_))).count();
        if length > 0 {
            run(&stack[at..at + length], at == 0, at + length == stack.len(), own_malloc)?;
        }
        at += length + 1;
    }
    Ok(())
}

/// Judges functions of the C library that called one another. The outermost is what the program
/// called.
fn run(run: &[Seen], innermost: bool, outermost: bool, own_malloc: bool) -> Result<(), Unsafe> {
    let called = match run.last() {
        Some(Seen::CLibrary(harmless)) => *harmless,
        _ => None,
    };
    let fine = match called {
        Some(Harmless::Sleeps) => innermost,
        // The allocator's own lock, perhaps.
        Some(Harmless::Locks) => innermost && !own_malloc,
        Some(Harmless::Calls) => !innermost,
        Some(Harmless::Starts) => !innermost && run.len() <= START,
        // What starts a thread has no name outside.
        None => outermost && !innermost && run.len() <= START,
    };
    if fine { Ok(()) } else { Err(Unsafe::CLibrary) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: Seen = Seen::Program;
    const C: Seen = Seen::CLibrary(None);
    const SLEEPS: Seen = Seen::CLibrary(Some(Harmless::Sleeps));
    const LOCKS: Seen = Seen::CLibrary(Some(Harmless::Locks));
    const CALLS: Seen = Seen::CLibrary(Some(Harmless::Calls));
    const STARTS: Seen = Seen::CLibrary(Some(Harmless::Starts));

    fn is_safe(stack: &[Seen]) -> bool {
        judge(stack, StackEnd::Complete, false).is_ok()
    }

    #[test]
    fn the_program_s_own_code_is_safe() {
        // main, and a thread.
        assert!(is_safe(&[P, P, C, STARTS, P]));
        assert!(is_safe(&[P, C, C]));
        assert!(is_safe(&[P, C, CALLS, P, C, STARTS, P]));
    }

    #[test]
    fn what_sleeps_is_safe() {
        // pthread_cond_wait, below a function without a name.
        assert!(is_safe(&[C, SLEEPS, P, C, C]));
        assert!(is_safe(&[LOCKS, P, C, STARTS, P]));
        // It is called by something of the C library's.
        assert!(!is_safe(&[SLEEPS, C, P, C, C]));
        assert!(judge(&[LOCKS, P, C, STARTS, P], StackEnd::Complete, true).is_err());
        assert!(judge(&[SLEEPS, P, C, STARTS, P], StackEnd::Complete, true).is_ok());
    }

    #[test]
    fn what_may_hold_a_lock_is_not() {
        // malloc; a destructor called at exit; of a thread; what glibc does on its own.
        assert!(!is_safe(&[C, C, P, C, STARTS, P]));
        assert!(!is_safe(&[P, C, C, C, STARTS, P]));
        assert!(!is_safe(&[P, C, C, C]));
        assert!(!is_safe(&[C, C]));
        assert!(!is_safe(&[SLEEPS, C, C, C]));
        assert!(!is_safe(&[P, Seen::Loader, P, C, STARTS, P]));
        assert!(!is_safe(&[Seen::Allocator, P, C, STARTS, P]));
        // In a signal's handler, above anything.
        assert!(!is_safe(&[P, C, C, P, C, STARTS, P]));
        assert!(!is_safe(&[]));
        assert!(judge(&[P, C, STARTS, P], StackEnd::Complete, true).is_err());
    }

    #[test]
    fn stacks_without_an_end() {
        assert!(judge(&[P, P], StackEnd::RuntimeCode, false).is_ok());
        for end in [StackEnd::NoUnwindInfo, StackEnd::BadReturnAddress, StackEnd::NoCaller] {
            assert_eq!(judge(&[P, P], end, false), Err(Unsafe::UnknownStack));
        }
    }
}
