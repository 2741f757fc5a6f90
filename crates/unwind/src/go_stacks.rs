//! Walks across the two stacks of a thread that runs Go.
//!
//! C and the scheduler run on the thread's own stack, that of `g0`; Go runs on the stack of its
//! goroutine. Where Go calls C (`asmcgocall`) or the scheduler (`systemstack`), it saves its stack
//! pointer, which is where its return address is. Where C calls Go back, `cgocallback` leaves the
//! thread's stack in a frame of the same size as the one that it makes on the goroutine's, and saves
//! the thread's previous stack pointer at the lower end.

use super::arch::SP;
use super::cfi::Rule;
use super::code::Leads;
use super::memo::Reads;
use super::module::{GoRole, Step};
use super::walk::{Walk, module_of};
use super::{Frame, Unwinder};
use sys::ProcessAddress;
use sys::image::Images;
use sys::record::{GoStacks, Regs};

/// One of the two stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stack {
    #[default]
    Thread,
    Goroutine,
}

/// Positions at which a walk goes on when it comes to a switch between the stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GoPositions {
    /// The stack on which the walk is.
    on: Stack,
    /// On the goroutine's stack, if the walk is not there.
    goroutine: Option<u64>,
    /// On the thread's stack, if Go was called back there.
    thread: Option<u64>,
}

impl GoPositions {
    /// Those at a sample.
    pub fn of(stacks: GoStacks<'_>) -> GoPositions {
        let goroutine = stacks.goroutine();
        let on = if goroutine.is_some() { Stack::Thread } else { Stack::Goroutine };
        GoPositions { on, goroutine, thread: stacks.system() }
    }
}

impl Unwinder {
    /// One step up from a function of Go's run-time code that has switched stacks. `None` if the frame
    /// is not one, or its caller's stack is unknown.
    pub(super) fn across_go_stacks(
        &mut self,
        walk: &Walk<'_>,
        frame: Frame,
        regs: &mut Regs,
        images: &mut Images,
        reads: &mut Reads,
    ) -> Option<Step> {
        if walk.stack.rest.go().is_empty() {
            return None;
        }
        let Unwinder { modules, rules, go, .. } = self;
        let (module, at) = module_of(modules, frame, images)?;
        let role = module.go_switch(rules, at)?;
        let rule = rules.rule(module, at);
        let positions = *go;
        let (caller, after) = match (role, positions.on, rule) {
            (GoRole::Leaves, Stack::Thread, Rule::Switched) => {
                let mut both = SAVED
                    .into_iter()
                    .filter_map(|saved| to_goroutine(walk, *regs, positions, saved));
                both.find(|(caller, _)| self.is_called_from(walk, frame, caller.ip, images))?
            }
            (GoRole::CalledBack, Stack::Goroutine, Rule::Offset { register: SP, cfa, .. })
                if frame.kind.is_return() =>
            {
                to_thread(walk, *regs, positions, cfa)?
            }
            (GoRole::Enters, Stack::Thread, Rule::Offset { register: SP, cfa, .. }) => {
                (out_of_go(walk, *regs, cfa)?, positions)
            }
            _ => return None,
        };
        if !self.is_called_from(walk, frame, caller.ip, images) {
            return None;
        }
        // The step depends on more than the memo records.
        reads.void();
        (*regs, self.go) = (caller, after);
        Some(Step::Caller(caller.ip))
    }

    /// The step from a function of Go's run-time code that has no caller on this stack.
    ///
    /// The scheduler has given up the goroutine that has called it, which may run elsewhere. A
    /// goroutine whose stack grows waits for it, and its saved registers lead on.
    pub(super) fn beyond_go_stack(
        &mut self,
        walk: &Walk<'_>,
        frame: Frame,
        regs: &mut Regs,
        images: &mut Images,
        reads: &mut Reads,
    ) -> Step {
        let Unwinder { modules, rules, .. } = self;
        let Some((module, at)) = module_of(modules, frame, images) else { return Step::NoCaller };
        if module.has_go_role(rules, at, GoRole::Parks) {
            return Step::End;
        }
        if !module.has_go_role(rules, at, GoRole::Grows) {
            return Step::NoCaller;
        }
        // The step depends on more than the memo records.
        reads.void();
        if self.schedules(images) {
            return Step::End;
        }
        let stacks = walk.stack.rest.go();
        let resumed = stacks.goroutine().zip(stacks.resumed());
        let Some((sp, ip)) = resumed.filter(|_| self.go.on == Stack::Thread) else {
            return Step::NoCaller;
        };
        if self.leads(walk.process(), frame, ProcessAddress(ip), images) != Leads::There {
            return Step::NoCaller;
        }
        *regs = Regs { ip, sp, ..*regs };
        self.go = GoPositions { on: Stack::Goroutine, goroutine: None, ..self.go };
        Step::Caller(ip)
    }

    /// True if one of the frames so far is of the scheduler: the thread's goroutine is another one.
    fn schedules(&mut self, images: &Images) -> bool {
        /// The scheduler's own stack is small.
        const MOST: usize = 64;
        let Unwinder { modules, rules, memo, .. } = self;
        memo.steps().iter().rev().take(MOST).any(|step| {
            module_of(modules, step.frame, images)
                .is_some_and(|(m, at)| m.has_go_role(rules, at, GoRole::Schedules))
        })
    }

    /// True if the call before an address may lead to this frame's function.
    fn is_called_from(
        &mut self,
        walk: &Walk<'_>,
        frame: Frame,
        address: u64,
        images: &mut Images,
    ) -> bool {
        let address = ProcessAddress(address);
        self.leads(walk.process(), frame, address, images) != Leads::Elsewhere
    }
}

/// Bytes between the saved stack pointer of a goroutine and the return address of the function that
/// saved it: since Go 1.21, that has pushed the frame pointer before.
const SAVED: [u64; 2] = [0, 8];

/// From the function that has left the goroutine's stack: its return address is where the goroutine's
/// stack pointer was, behind this many saved bytes.
fn to_goroutine(
    walk: &Walk<'_>,
    regs: Regs,
    positions: GoPositions,
    saved: u64,
) -> Option<(Regs, GoPositions)> {
    let slot = positions.goroutine?.checked_add(saved)?;
    let ip = walk.read(slot).ok()?;
    let caller = Regs { ip, sp: slot.checked_add(8)?, ..regs };
    Some((caller, GoPositions { on: Stack::Goroutine, goroutine: None, ..positions }))
}

/// From the function that was called on the thread's stack and went on on the goroutine's.
fn to_thread(
    walk: &Walk<'_>,
    regs: Regs,
    positions: GoPositions,
    cfa: i32,
) -> Option<(Regs, GoPositions)> {
    let sp = positions.thread?;
    let end = sp.checked_add_signed(cfa.into())?;
    let word = |below: u64| walk.read(end.checked_sub(below)?).ok();
    let caller = Regs { ip: word(8)?, sp: end, bp: word(16)? };
    let goroutine = regs.sp.checked_add_signed(cfa.into())?;
    let thread = walk.read(sp).ok().filter(|&outer| outer > sp);
    Some((caller, GoPositions { on: Stack::Thread, goroutine: Some(goroutine), thread }))
}

/// From the function that C calls first, which saves C's registers: Go's unwind information does not
/// describe where. C's frame pointer is where Go's would be.
fn out_of_go(walk: &Walk<'_>, regs: Regs, cfa: i32) -> Option<Regs> {
    let end = regs.sp.checked_add_signed(cfa.into())?;
    let slot = end.checked_sub(16).filter(|&slot| slot == regs.bp)?;
    let ip = walk.read(end.checked_sub(8)?).ok()?;
    Some(Regs { ip, sp: end, bp: walk.read(slot).ok()? })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::walk::StackCopy;
    use super::*;
    use sys::ThreadId;
    use sys::maps::Regions;
    use sys::record::{AllRegs, Rest};

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Calls `check` with a walk that begins on the stack of `words` at 0x1000, and the other one.
    fn walk(words: &[u64], other: &[u64], check: impl FnOnce(&Walk<'_>)) {
        let (stack, other) = (bytes(words), bytes(other));
        let rest = Rest::default().with_go(GoStacks::new(&other));
        let beyond = Cell::new(false);
        let stack = StackCopy { start: 0x1000, bytes: &stack, full: false, rest, beyond: &beyond };
        let thread = ThreadId::main_thread(1);
        let all = AllRegs::default();
        check(&Walk { regions: &Regions::default(), thread, stack, all, chain: &[] });
    }

    #[test]
    fn a_callback_leads_to_the_thread_s_stack_and_back() {
        // The thread's stack at 0x500: the stack pointer with which it called C before, two words, the
        // frame pointer and return address of `crosscall2`, whose frame begins behind that.
        let other = [0, 0x500, 0, 0x500, 0x5f0, 0, 0, 0x538, 0x77, 1, 2, 0x99, 0x88];
        walk(&[0; 8], &other, |walk| {
            let positions = GoPositions::of(walk.stack.rest.go());
            let regs = Regs { ip: 1, sp: 0x1000, bp: 0 };
            let (caller, positions) = to_thread(walk, regs, positions, 40).unwrap();
            assert_eq!(caller, Regs { ip: 0x77, sp: 0x528, bp: 0x538 });
            let after =
                GoPositions { on: Stack::Thread, goroutine: Some(0x1028), thread: Some(0x5f0) };
            assert_eq!(positions, after);
            let c = out_of_go(walk, caller, 32).unwrap();
            assert_eq!(c, Regs { ip: 0x88, sp: 0x548, bp: 0x99 });
            // Another frame pointer than this function's.
            assert_eq!(out_of_go(walk, Regs { bp: 0x530, ..caller }, 32), None);
            // Nothing is on the goroutine's stack there but 0.
            let (back, positions) = to_goroutine(walk, c, positions, 8).unwrap();
            assert_eq!((back.ip, back.sp), (0, 0x1038));
            assert_eq!((positions.on, positions.goroutine), (Stack::Goroutine, None));
        });
    }

    #[test]
    fn a_walk_on_the_thread_s_stack_goes_on_where_the_goroutine_was_left() {
        walk(&[0; 8], &[0x300, 0x5f0, 0, 0x300, 0x66, 0x77], |walk| {
            let positions = GoPositions::of(walk.stack.rest.go());
            assert_eq!(positions.on, Stack::Thread);
            let regs = Regs { ip: 1, sp: 0x1000, bp: 0 };
            let callers = SAVED.map(|saved| to_goroutine(walk, regs, positions, saved).unwrap().0);
            assert_eq!(callers.map(|c| (c.ip, c.sp)), [(0x66, 0x308), (0x77, 0x310)]);
        });
    }

    #[test]
    fn saved_stack_pointers_that_lead_down_or_nowhere_end_the_walk() {
        // The word at the saved stack pointer is below it.
        walk(&[0; 8], &[0, 0x500, 0, 0x500, 0x4f0, 0, 0, 0x530, 0x77], |walk| {
            let positions = GoPositions::of(walk.stack.rest.go());
            let regs = Regs { ip: 1, sp: 0x1000, bp: 0 };
            let (_, after) = to_thread(walk, regs, positions, 40).unwrap();
            assert_eq!(after.thread, None);
            assert_eq!(to_thread(walk, regs, after, 40), None);
            assert_eq!(to_thread(walk, regs, positions, 48), None);
            let far = GoPositions { goroutine: Some(u64::MAX), thread: Some(u64::MAX), ..after };
            assert_eq!(to_goroutine(walk, regs, far, 8), None);
            assert_eq!(to_thread(walk, regs, far, 40), None);
        });
    }
}
