//! Steps up from code without unwind information, or whose unwind information needs more than was
//! copied.

use super::arch::{BP, EXIT, RESULT, SP};
use super::cfi::{KnownRegisters, Rule};
use super::code::{AtReturn, Leads, Proof};
use super::memo::Reads;
use super::module::{self, Fact, FactKind, Step};
use super::walk::{Process, Walk, is_return_probe, loaded, module_of, past_probe};
use super::{Frame, Unwinder, locate};
use crate::{AddressKind, CodeAddress};
use sys::image::{Images, State};
use sys::record::Regs;
use sys::{FileAddress, ProcessAddress};

impl Unwinder {
    /// One step up from code without unwind information (assembly, stubs, other compilers), by its
    /// instructions.
    pub(super) fn by_code(
        &mut self,
        walk: &Walk<'_>,
        frame: Frame,
        regs: &mut Regs,
        images: &mut Images,
        reads: &mut Reads,
    ) -> Step {
        let mut caller = *regs;
        match self.by_paths(walk, frame, &mut caller, images, reads) {
            step @ Step::Caller(_) => {
                *regs = caller;
                step
            }
            Step::End => Step::End,
            step => match self.by_values(walk, frame, regs, images, reads) {
                Step::Uncovered => step,
                found => found,
            },
        }
    }

    /// The same, by what holds on all paths from the function's beginning and to its end.
    fn by_paths(
        &mut self,
        walk: &Walk<'_>,
        frame: Frame,
        regs: &mut Regs,
        images: &mut Images,
        reads: &mut Reads,
    ) -> Step {
        let Some((module, at)) = module_of(&mut self.modules, frame, images) else {
            return Step::Uncovered;
        };
        let Some(found) = module.frame(&mut self.rules, at) else {
            let (image, address) = (module.image(), at.address.0);
            let exits = Fact { image, address, kind: FactKind::Exits };
            let ends = regs.bp == 0
                && frame.kind.is_return()
                && self.rules.fact(exits, |_| ends_the_thread(&frame, images));
            return if ends { Step::End } else { Step::Uncovered };
        };
        if found.proof() == Some(Proof::Maker) {
            // The step depends on more than the memo records.
            reads.void();
            let is_innermost = self.memo.steps().is_empty() && !frame.kind.is_return();
            let all = is_innermost.then(|| walk.all.in_dwarf_order()).flatten();
            match all.map(|all| all[usize::from(RESULT)]) {
                None => return Step::Uncovered,
                Some(0) => return Step::End,
                Some(_) => {}
            }
        }
        if found.needs_pointer()
            && regs.bp == 0
            && let Some(distance) = module.pointer(&mut self.rules, at)
        {
            regs.bp = regs.sp.saturating_add(distance.into());
        }
        let mut registers = KnownRegisters::NONE;
        registers.set(SP, regs.sp);
        registers.set(BP, regs.bp);
        let mut read = |address| walk.read_noted(address, reads);
        let step = match found.step(&mut registers, |register| register == BP, &mut read) {
            Step::NeedsRegisters => {
                reads.void();
                self.step_from_the_leaf(walk, frame, regs, images)
            }
            Step::Caller(ip) => {
                let sp = registers.get(SP).unwrap_or(regs.sp);
                *regs = Regs { ip, sp, bp: registers.get(BP).unwrap_or(0) };
                Step::Caller(ip)
            }
            step => step,
        };
        let step = past_probe(walk, step, *regs, images, reads);
        let Step::Caller(address) = step else { return step };
        if is_return_probe(walk.regions, images, ProcessAddress(address)) {
            return step;
        }
        let Some(proof) = found.proof() else { return Step::End };
        let address = ProcessAddress(address);
        if proof == Proof::Moved && !self.is_at_its_pointer(walk.process(), address, images) {
            return Step::Uncovered;
        }
        match self.leads(walk.process(), frame, address, images) {
            Leads::There => step,
            Leads::Somewhere if proof != Proof::Call => step,
            _ => Step::Uncovered,
        }
    }

    /// One step up from the innermost frame, whose code moves the return address by a number that is
    /// known at run time only. It is executed to where it leaves its function.
    fn by_values(
        &mut self,
        walk: &Walk<'_>,
        frame: Frame,
        regs: &mut Regs,
        images: &mut Images,
        reads: &mut Reads,
    ) -> Step {
        let is_innermost = self.memo.steps().is_empty() && !frame.kind.is_return();
        let Some(all) = is_innermost.then(|| walk.all.in_dwarf_order()).flatten() else {
            return Step::Uncovered;
        };
        let Unwinder { modules, rules, .. } = self;
        let left = module_of(modules, frame, images).and_then(|(module, at)| {
            module.leave(rules, at.address, all, &|address| walk.read(address))
        });
        let Some(AtReturn { ip, slot, bp }) = left else { return Step::Uncovered };
        // The step depends on more than the memo records.
        reads.void();
        let address = ProcessAddress(ip);
        if self.leads(walk.process(), frame, address, images) == Leads::Elsewhere
            || !self.is_at_its_pointer(walk.process(), address, images)
        {
            return Step::Uncovered;
        }
        // Only that its stack pointer is not below this is known.
        *regs = Regs { ip, sp: regs.sp.max(slot).saturating_add(8), bp };
        Step::Caller(ip)
    }

    /// True if the frame of the code at a return address is found by its frame pointer alone.
    fn is_at_its_pointer(
        &mut self,
        process: Process<'_>,
        address: ProcessAddress,
        images: &mut Images,
    ) -> bool {
        let Process { pid, regions } = process;
        let Some(frame) = locate(pid, regions, images, address, AddressKind::Return) else {
            return false;
        };
        let Unwinder { modules, rules, .. } = self;
        match module_of(modules, frame, images) {
            Some((module, at)) => module.keeps_pointer(rules, at),
            None => frame.is_run_time_code() && self.run_time_rule(process, frame).is_none(),
        }
    }

    /// A step whose rule reads the word `slot` below the stack pointer, which no copy of the stack
    /// has: the code may have saved the value elsewhere.
    pub(super) fn by_moved(
        &mut self,
        walk: &Walk<'_>,
        frame: Frame,
        slot: u64,
        regs: &mut Regs,
        images: &mut Images,
        reads: &mut Reads,
    ) -> Step {
        let Unwinder { modules, rules, .. } = self;
        let Some((module, at)) = module_of(modules, frame, images) else {
            return Step::Unreadable(slot);
        };
        let moved = module.moved(rules, at.address);
        let Some((place, word)) = moved.and_then(|m| m.word(regs.sp, |a| walk.read(a))) else {
            return Step::Unreadable(slot);
        };
        *reads = Reads::default();
        let mut read = |a| {
            let (address, word) = if a == slot { (place, Ok(word)) } else { (a, walk.read(a)) };
            reads.note(address, word);
            word
        };
        let mut caller = *regs;
        let at = CodeAddress { kind: AddressKind::Instruction, ..at };
        let step = module.step(rules, at, &mut caller, &mut read);
        let Step::Caller(address) = step else { return step };
        if self.leads(walk.process(), frame, ProcessAddress(address), images) == Leads::Elsewhere {
            return Step::Unreadable(slot);
        }
        *regs = caller;
        step
    }

    /// A step whose rule needs the frame pointer, which is unknown: the code may show how far above
    /// the stack pointer it is.
    pub(super) fn by_found_pointer(
        &mut self,
        walk: &Walk<'_>,
        frame: Frame,
        regs: &mut Regs,
        images: &mut Images,
        reads: &mut Reads,
    ) -> Step {
        let Unwinder { modules, rules, .. } = self;
        let found = module_of(modules, frame, images)
            .and_then(|(module, at)| Some((module, at, module.pointer(rules, at)?)));
        let Some((module, at, distance)) = found else { return Step::NeedsPointer };
        let mut caller = Regs { bp: regs.sp.saturating_add(distance.into()), ..*regs };
        let mut read = |address| walk.read_noted(address, reads);
        let step = module.step(rules, at, &mut caller, &mut read);
        let step = past_probe(walk, step, caller, images, reads);
        let Step::Caller(address) = step else {
            return if step == Step::NeedsRegisters { Step::NeedsPointer } else { step };
        };
        let address = ProcessAddress(address);
        if !is_return_probe(walk.regions, images, address)
            && self.leads(walk.process(), frame, address, images) == Leads::Elsewhere
        {
            return Step::NeedsPointer;
        }
        *regs = caller;
        step
    }

    /// One step up from code made at run time: by its instructions if they lead straight to their
    /// return, as in trampolines, else along the frame pointer.
    pub(super) fn by_run_time_code(
        &mut self,
        walk: &Walk<'_>,
        frame: Frame,
        regs: &mut Regs,
        images: &mut Images,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Step {
        if let Some(step) = self.by_managed_code(walk, frame, regs, images, read) {
            return step;
        }
        let mut caller = *regs;
        let step = match self.run_time_rule(walk.process(), frame) {
            Some(rule) => module::by_rule(rule, frame.kind, &mut caller, read),
            None => module::frame_pointer_step(&mut caller, read),
        };
        let Step::Caller(address) = step else { return step };
        if self.leads(walk.process(), frame, ProcessAddress(address), images) == Leads::Elsewhere {
            return Step::Uncovered;
        }
        *regs = caller;
        step
    }

    /// The rule of run-time code by its instructions.
    fn run_time_rule(&mut self, process: Process<'_>, frame: Frame) -> Option<Rule> {
        let Process { pid, regions } = process;
        let region = regions.find(frame.instruction())?;
        if let Some(known) = self.run_time.known(region, frame) {
            return known;
        }
        // Reading is left to the thread that may wait.
        if self.rules.lacks() {
            return None;
        }
        self.run_time.rule(pid, region, frame)
    }

    /// Result of following the call before a return address that no unwind information confirms to
    /// the function of this frame.
    pub(super) fn leads(
        &mut self,
        process: Process<'_>,
        frame: Frame,
        address: ProcessAddress,
        images: &mut Images,
    ) -> Leads {
        let Process { pid, regions } = process;
        let Unwinder { modules, rules, .. } = self;
        let Some(caller) = locate(pid, regions, images, address, AddressKind::Return) else {
            return Leads::Elsewhere;
        };
        let Some((module, at)) = module_of(modules, caller, images) else {
            // Code made at run time has no file; an unreadable file confirms nothing.
            return if caller.is_run_time_code() { Leads::Somewhere } else { Leads::Elsewhere };
        };
        // The kernel wrote it: no call leads to a signal handler.
        if module.is_sigreturn(at) {
            return Leads::Somewhere;
        }
        let to = frame.place.in_elf().filter(|to| caller.place.image() == Some(to.image));
        let to = to.map(|to| to.address.plus(frame.kind.offset()));
        module.leads(rules, at.address, to)
    }
}

/// Offset of a frame's code in its file: for a return address, of the code after the call.
fn code_at(frame: &Frame, images: &Images) -> Option<usize> {
    let place = frame.place.in_elf()?;
    let State::Elf(loaded) = &images.get(place.image).state else { return None };
    let segment = loaded.elf.segments.get(usize::from(place.segment))?;
    let FileAddress(after) = place.address.plus(frame.kind.offset());
    let offset = after.checked_sub(segment.address)?.checked_add(segment.offset)?;
    usize::try_from(offset).ok()
}

/// True if the code after the call is the system call `exit`: the root of a C library's threads
/// (musl's `__clone` has no unwind information).
fn ends_the_thread(frame: &Frame, images: &Images) -> bool {
    const SOON: usize = 16;
    let Some((loaded, offset)) = loaded(frame, images).zip(code_at(frame, images)) else {
        return false;
    };
    let after = loaded.bytes.get(offset..offset.saturating_add(SOON)).unwrap_or_default();
    after.windows(EXIT.len()).any(|code| code == EXIT)
}
