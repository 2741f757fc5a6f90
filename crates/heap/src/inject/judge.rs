//! Judges whether a thread may be borrowed: whether it can hold a lock that `dlopen` needs.
//!
//! Its stack determines that. The dynamic loader, the allocator and the C library hold locks only
//! while one of their functions is on it. So every function of the C library there must be known to
//! be harmless: a sleeping system call, a function with a callback (`qsort`), the start of a
//! thread.

use super::objects::{Harmless, ObjectRole};
use unwind::StackEnd;

/// Classification of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameClass {
    /// Code of the program, or made at run time.
    Program,
    /// The dynamic loader.
    Loader,
    /// An allocator.
    Allocator,
    /// The C library.
    CLibrary(Option<Harmless>),
}

impl FrameClass {
    /// Class of a frame in an image of this role.
    pub fn for_role(role: ObjectRole, harmless: impl FnOnce() -> Option<Harmless>) -> FrameClass {
        match role {
            ObjectRole::Program => FrameClass::Program,
            ObjectRole::Loader => FrameClass::Loader,
            ObjectRole::Allocator => FrameClass::Allocator,
            ObjectRole::CLibrary => FrameClass::CLibrary(harmless()),
        }
    }
}

/// State of a thread that may hold a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsafe {
    /// The dynamic loader.
    Loader,
    /// The allocator.
    Allocator,
    /// The C library.
    CLibrary,
    /// A system call that could not continue unaffected.
    SystemCall,
    /// The stack could not be unwound to its end.
    UnknownStack,
    /// A restartable sequence, or unusual registers.
    Registers,
    /// It is confined by seccomp, unlike other threads of the process.
    Confined,
}

impl Unsafe {
    /// Description: a thread was …
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

/// Most frames of the C library's code that starts a thread.
const START: usize = 2;

/// Judges a stack (innermost frame first) with this end; `own_malloc`: the program's own code may
/// be the allocator's.
///
/// # Errors
///
/// The state that is not safe.
pub fn judge(stack: &[FrameClass], end: StackEnd, own_malloc: bool) -> Result<(), Unsafe> {
    // The callers of code that was made at run time are never the C library's.
    let is_whole = matches!(end, StackEnd::Complete | StackEnd::RunTimeCode);
    if !is_whole || stack.is_empty() {
        return Err(Unsafe::UnknownStack);
    }
    for seen in stack {
        match seen {
            FrameClass::Loader => return Err(Unsafe::Loader),
            FrameClass::Allocator => return Err(Unsafe::Allocator),
            _ => {}
        }
    }
    if own_malloc && stack[0] == FrameClass::Program {
        return Err(Unsafe::Allocator);
    }
    let mut at = 0;
    while at < stack.len() {
        let length =
            stack[at..].iter().take_while(|s| matches!(s, FrameClass::CLibrary(_))).count();
        if length > 0 {
            let calls = LibraryCalls {
                calls: &stack[at..at + length],
                is_innermost: at == 0,
                is_outermost: at + length == stack.len(),
            };
            if !calls.are_harmless(own_malloc) {
                return Err(Unsafe::CLibrary);
            }
        }
        at += length + 1;
    }
    Ok(())
}

/// Functions of the C library that called one another. The program called the outermost.
struct LibraryCalls<'a> {
    /// Their frames, innermost first.
    calls: &'a [FrameClass],
    /// The innermost of them is that of the stack.
    is_innermost: bool,
    /// The outermost of them is that of the stack.
    is_outermost: bool,
}

impl LibraryCalls<'_> {
    /// True if the thread may be borrowed in them.
    fn are_harmless(&self, own_malloc: bool) -> bool {
        let called = match self.calls.last() {
            Some(FrameClass::CLibrary(harmless)) => *harmless,
            _ => None,
        };
        let is_short = self.calls.len() <= START;
        match called {
            Some(Harmless::Sleeps) => self.is_innermost,
            // Possibly the allocator's own lock.
            Some(Harmless::Locks) => self.is_innermost && !own_malloc,
            Some(Harmless::Calls) => !self.is_innermost,
            Some(Harmless::Starts) => !self.is_innermost && is_short,
            // The code that starts a thread has no exported name.
            None => self.is_outermost && !self.is_innermost && is_short,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: FrameClass = FrameClass::Program;
    const C: FrameClass = FrameClass::CLibrary(None);
    const SLEEPS: FrameClass = FrameClass::CLibrary(Some(Harmless::Sleeps));
    const LOCKS: FrameClass = FrameClass::CLibrary(Some(Harmless::Locks));
    const CALLS: FrameClass = FrameClass::CLibrary(Some(Harmless::Calls));
    const STARTS: FrameClass = FrameClass::CLibrary(Some(Harmless::Starts));

    fn is_safe(stack: &[FrameClass]) -> bool {
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
    fn sleeping_system_calls_are_safe() {
        // pthread_cond_wait, below a function without a name.
        assert!(is_safe(&[C, SLEEPS, P, C, C]));
        assert!(is_safe(&[LOCKS, P, C, STARTS, P]));
        // It is called by other code of the C library.
        assert!(!is_safe(&[SLEEPS, C, P, C, C]));
        assert!(judge(&[LOCKS, P, C, STARTS, P], StackEnd::Complete, true).is_err());
        assert!(judge(&[SLEEPS, P, C, STARTS, P], StackEnd::Complete, true).is_ok());
    }

    #[test]
    fn possible_lock_holders_are_unsafe() {
        // malloc; a destructor called at exit; of a thread; glibc's internal code.
        assert!(!is_safe(&[C, C, P, C, STARTS, P]));
        assert!(!is_safe(&[P, C, C, C, STARTS, P]));
        assert!(!is_safe(&[P, C, C, C]));
        assert!(!is_safe(&[C, C]));
        assert!(!is_safe(&[SLEEPS, C, C, C]));
        assert!(!is_safe(&[P, FrameClass::Loader, P, C, STARTS, P]));
        assert!(!is_safe(&[FrameClass::Allocator, P, C, STARTS, P]));
        // In a signal handler, above anything.
        assert!(!is_safe(&[P, C, C, P, C, STARTS, P]));
        assert!(!is_safe(&[]));
        assert!(judge(&[P, C, STARTS, P], StackEnd::Complete, true).is_err());
    }

    #[test]
    fn incomplete_stacks_are_unsafe() {
        assert!(judge(&[P, P], StackEnd::RunTimeCode, false).is_ok());
        for end in [StackEnd::NoUnwindInfo, StackEnd::BadReturnAddress, StackEnd::NoCaller] {
            assert_eq!(judge(&[P, P], end, false), Err(Unsafe::UnknownStack));
        }
    }
}
