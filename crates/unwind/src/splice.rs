//! Continues a walk that ended early with the kernel's frame-pointer chain of the same sample.

use super::arch::removed_slot;
use super::code::{Between, Leads};
use super::walk::{Process, Walk, module_of};
use super::{ElfPlace, Frame, MAX_FRAMES, Place, Unwinder, locate};
use crate::AddressKind;
use sys::image::Images;
use sys::record::Regs;
use sys::{FileAddress, ProcessAddress};

/// Number of last frames that are compared: frames of the walk beyond the common frame are dropped,
/// and only a few may be.
const LOOK_BACK: usize = 4;

/// The frame from which the chain goes on.
#[derive(Clone, Copy)]
struct Inner {
    frame: Frame,
    /// The frame that it has called; `None` for the innermost frame.
    callee: Option<Frame>,
}

impl Inner {
    /// The outer frame of a link, from which the chain goes on.
    fn after(self, link: Link) -> Inner {
        Inner { frame: link.next, callee: link.skipped.or(Some(self.frame)) }
    }
}

/// Frames to which a return address of the chain leads.
#[derive(Clone, Copy)]
struct Link {
    /// A frame that the chain skips.
    skipped: Option<Frame>,
    /// The frame of the address.
    next: Frame,
}

impl Unwinder {
    /// Continues an incomplete stack from a return address that both have at the same position in
    /// the stack (a recursion repeats its return addresses). Returns false if they have none in
    /// common or the chain adds nothing.
    pub(super) fn splice(
        &mut self,
        walk: &Walk<'_>,
        regs: Regs,
        frames: &mut Vec<Frame>,
        images: &mut Images,
    ) -> bool {
        if walk.chain.first() != Some(&regs.ip) {
            return false;
        }
        let kept = frames.len();
        for i in (kept.saturating_sub(LOOK_BACK)..kept).rev() {
            let Some(j) = self.in_chain(walk, regs, frames, i) else { continue };
            let process = walk.process();
            let mut inner = Inner { frame: frames[i], callee: i.checked_sub(1).map(|i| frames[i]) };
            for &address in &walk.chain[j + 1..] {
                // Code without frame pointers leaves any value in the register.
                if !self.keeps_pointer(inner.frame, images) {
                    break;
                }
                let link = self.link(process, inner, ProcessAddress(address), images);
                let Some(link) = link else { break };
                frames.extend(link.skipped);
                frames.push(link.next);
                if self.is_outermost(link.next, images) {
                    break;
                }
                inner = inner.after(link);
            }
            if i + 1 + (frames.len() - kept) <= kept {
                frames.truncate(kept);
                return false;
            }
            frames.drain(i + 1..kept);
            self.walked = i + 1;
            return true;
        }
        false
    }

    /// Frames after a frame in the kernel's chain, whose next return address is given.
    fn link(
        &mut self,
        process: Process<'_>,
        inner: Inner,
        address: ProcessAddress,
        images: &mut Images,
    ) -> Option<Link> {
        let Process { pid, regions } = process;
        let next = locate(pid, regions, images, address, AddressKind::Return)?;
        if self.is_outermost(next, images) {
            return Some(Link { skipped: None, next });
        }
        let skipped = match self.leads(process, inner.frame, address, images) {
            Leads::Elsewhere => Some(self.skipped_frame(inner, next, images)?),
            _ => None,
        };
        Some(Link { skipped, next })
    }

    /// The frame that frame pointers skip: some of Go's functions have no frame (those that switch
    /// stacks), so frame pointers lead from them to the caller of their caller. The call identifies
    /// it; its position is known if it calls the inner function at one place only, or at one place
    /// only with the argument that the inner one called.
    fn skipped_frame(&mut self, inner: Inner, next: Frame, images: &Images) -> Option<Frame> {
        let Inner { frame: inner, callee } = inner;
        let Unwinder { modules, rules, .. } = self;
        let (module, to) = module_of(modules, inner, images)?;
        let inner = inner.place.in_elf()?;
        let caller = next.place.in_elf()?;
        if inner.image != caller.image || !module.is_frameless(rules, to) {
            return None;
        }
        let after = caller.address.plus(next.kind.offset());
        let argument = callee.and_then(|f| f.place.in_elf()).filter(|f| f.image == inner.image);
        let argument = argument.map(|f| f.address.0);
        let found =
            module.between(rules, Between { after: after.0, to: to.address.0, argument })?;
        let address = next.address.plus(found.0.wrapping_sub(after.0));
        let place = ElfPlace { address: FileAddress(found.0.checked_sub(1)?), ..caller };
        (place.segment == inner.segment).then_some(Frame {
            address,
            kind: AddressKind::Return,
            place: Place::Elf(place),
        })
    }

    /// Continues where Go called C: Go's functions call C's on another stack, which its unwind
    /// information does not describe. They all keep frame pointers, which lead to the goroutine's
    /// stack; no copy contains that one, but the kernel has followed them if C left the frame
    /// pointer alone.
    pub(super) fn through_go(
        &mut self,
        walk: &Walk<'_>,
        images: &mut Images,
        frames: &mut Vec<Frame>,
    ) -> bool {
        let Unwinder { modules, rules, .. } = self;
        let mut in_go = |f: &Frame| {
            module_of(modules, *f, images).is_some_and(|(m, at)| m.is_go_code(rules, at))
        };
        let Some(switch) = frames.iter().position(&mut in_go).filter(|&i| i > 0) else {
            return false;
        };
        let Some(&[first, ..]) = self.memo.steps().get(..=switch) else { return false };
        if first.regs.bp != self.memo.steps()[switch].regs.bp {
            return false;
        }
        let process = walk.process();
        let mut inner = Inner { frame: frames[switch], callee: Some(frames[switch - 1]) };
        let mut callers = Vec::new();
        for &address in walk.chain.iter().skip(1).take(MAX_FRAMES) {
            let link = self.link(process, inner, ProcessAddress(address), images);
            let Some(link) = link else { return false };
            callers.extend(link.skipped);
            callers.push(link.next);
            inner = inner.after(link);
            if self.is_outermost(link.next, images) {
                frames.truncate(switch + 1);
                self.walked = switch + 1;
                frames.append(&mut callers);
                return true;
            }
        }
        false
    }

    /// True if the frame pointer of this frame's code leads to its caller.
    fn keeps_pointer(&mut self, frame: Frame, images: &Images) -> bool {
        let Unwinder { modules, rules, .. } = self;
        match module_of(modules, frame, images) {
            Some((module, at)) => module.keeps_pointer(rules, at),
            None => frame.is_run_time_code(),
        }
    }

    /// Position of a frame in the chain: its return address is just below the stack pointer after
    /// its return, and those in the chain are above the frame pointers that lead to them.
    fn in_chain(&self, walk: &Walk<'_>, regs: Regs, frames: &[Frame], i: usize) -> Option<usize> {
        let frame = frames[i];
        if i == 0 {
            // If the walk got further, it has more information about the innermost frame's caller.
            return (frames.len() == 1 && frame.address.0 == regs.ip).then_some(0);
        }
        let steps = self.memo.last_steps();
        if !frame.kind.is_return() || steps.len() != frames.len() {
            return None;
        }
        let slot = removed_slot(steps[steps.len() - 1 - i].regs.sp)?;
        let mut pointer = regs.bp;
        for (j, &address) in walk.chain.iter().enumerate().skip(1) {
            let at = pointer.checked_add(8)?;
            if at > slot || walk.read(at) != Ok(address) {
                return None;
            }
            if at == slot {
                return (address == frame.address.0).then_some(j);
            }
            let next = walk.read(pointer).ok().filter(|&next| next > pointer)?;
            pointer = next;
        }
        None
    }
}
