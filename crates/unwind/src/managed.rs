//! Frames of code that a run-time system has made and describes, as HotSpot does.

use std::ops::Range;
use std::sync::Arc;

use super::arch;
use super::code::Leads;
use super::module::{self, Step};
use super::walk::Walk;
use super::{AddressKind, Frame, ProcessAddress, Unwinder};
use sys::image::Images;
use sys::record::Regs;

/// What run-time systems state of the code that they make.
pub trait ManagedCode: Send + Sync {
    /// How a frame in memory without a file leads to its caller's.
    fn shape(&self, at: ManagedAddress) -> ManagedShape;

    /// True if a word is the address of a method; `None`: memory has to be read for that.
    fn is_method(&self, at: ManagedAddress, word: u64) -> Option<bool>;
}

/// The address of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagedAddress {
    /// The process.
    pub pid: i32,
    /// Instruction pointer or return address.
    pub address: u64,
    /// Kind of the address.
    pub kind: AddressKind,
    /// Memory of the process may be read.
    pub may_read: bool,
    /// It is in memory that processes share (`/dev/zero`).
    pub is_shared: bool,
}

/// How a frame leads to its caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagedShape {
    /// No run-time system has made its code.
    Foreign,
    /// Memory has to be read.
    Unread,
    /// The code may have been replaced since the sample.
    Unknown,
    /// It has this size in bytes: the return address is below the caller's stack pointer, and the
    /// caller's frame pointer below that.
    Sized(u32),
    /// The frame pointer leads to the caller's.
    Linked,
    /// It executes bytecode: the frame pointer leads to the return address and the caller's frame
    /// pointer.
    Interpreted {
        /// Distance below the frame pointer of the caller's stack pointer.
        sender: u64,
        /// Distance below the frame pointer of the method's address.
        method: u64,
    },
    /// A function has jumped to it, and it has that function's frame.
    Jumped {
        /// An address of the function, whose frame is complete there.
        from: u64,
    },
    /// It has pushed a few words, and returns to an address in this range.
    Called {
        /// Addresses.
        from: Range<u64>,
    },
    /// Of an adapter, which moves the return address: by its instructions and registers.
    Adapter(ManagedBytes),
    /// By its instructions.
    Code(ManagedBytes),
}

/// Machine code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedBytes {
    /// Instructions.
    pub bytes: Arc<[u8]>,
    /// The address of the first one.
    pub start: u64,
    /// The instructions with a complete frame, and its size in bytes, but where they remove it; `None`:
    /// it is code without frames of a known size, which may jump to other code as a call does.
    pub body: Option<(Range<u64>, u32)>,
}

/// The caller of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftAdapter {
    /// The return address; `None`: at the stack pointer.
    pub ip: Option<u64>,
    /// The stack pointer.
    pub sp: u64,
}

impl Unwinder {
    /// From now on, requests frames of run-time code.
    pub fn set_managed_code(&mut self, code: Arc<dyn ManagedCode>) {
        self.managed = Some(code);
    }

    /// Registers in the frames of the last stack that was walked, the innermost first. Frames that only
    /// frame pointers have led to, which are the outermost ones, have none.
    pub fn registers(&self) -> impl Iterator<Item = Regs> + '_ {
        let steps = self.memo.last_steps().iter().rev().take(self.walked);
        steps.map(|step| step.regs)
    }

    /// One step up from code that a run-time system describes; `None`: none does.
    pub(super) fn by_managed_code(
        &mut self,
        walk: &Walk<'_>,
        frame: Frame,
        regs: &mut Regs,
        images: &mut Images,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Option<Step> {
        let managed = self.managed.clone()?;
        let path = frame.place.image().map(|image| &*images.get(image).path);
        let at = ManagedAddress {
            pid: walk.thread.pid,
            address: frame.address.0,
            kind: frame.kind,
            may_read: !self.rules.is_closed(),
            is_shared: path.is_some_and(|path| path.starts_with("/dev/zero")),
        };
        let shape = managed.shape(at);
        self.is_managed = shape != ManagedShape::Foreign;
        let mut lacks = || {
            self.rules.lacks();
            Some(Step::Failed)
        };
        let rule = match shape {
            ManagedShape::Foreign => return None,
            ManagedShape::Unread => return lacks(),
            ManagedShape::Unknown => return Some(Step::Failed),
            ManagedShape::Jumped { from } => {
                regs.ip = from;
                return Some(Step::Caller(from));
            }
            ManagedShape::Called { from } => {
                let leads = |ip| {
                    let leads = self.leads(walk.process(), frame, ProcessAddress(ip), images);
                    leads != Leads::Elsewhere
                };
                let step = called_step(&from, regs, read, leads);
                self.is_managed = step.is_some();
                return step;
            }
            ManagedShape::Sized(size) => arch::sized_frame(size),
            ManagedShape::Linked => arch::linked_frame(),
            ManagedShape::Interpreted { .. } if regs.bp == 0 => return Some(Step::NeedsPointer),
            ManagedShape::Interpreted { sender, method } => {
                // It decides whether there is a frame, but not on its caller.
                let word = regs.bp.checked_sub(method).map(|slot| walk.read(slot));
                let Some(Ok(word)) = word else { return Some(Step::Failed) };
                return match managed.is_method(at, word) {
                    None => lacks(),
                    Some(false) => Some(Step::Failed),
                    Some(true) => Some(interpreted_step(sender, regs, read)),
                };
            }
            ManagedShape::Adapter(code) => {
                let all = walk.all.in_dwarf_order().filter(|_| !frame.kind.is_return());
                let left = all.and_then(|all| arch::leave_adapter(&code, at.address, &all));
                let Some(left) = left else { return Some(Step::Failed) };
                let ip = match left.ip {
                    Some(ip) => ip,
                    None => match read(regs.sp) {
                        Ok(ip) => ip,
                        Err(()) => return Some(Step::Unreadable(regs.sp)),
                    },
                };
                if left.sp <= regs.sp || ip == 0 {
                    return Some(Step::Failed);
                }
                *regs = Regs { ip, sp: left.sp, ..*regs };
                return Some(Step::Caller(ip));
            }
            ManagedShape::Code(code) => arch::managed_rule(&code, at.address, frame.kind),
        };
        Some(rule.map_or(Step::Failed, |rule| module::by_rule(rule, frame.kind, regs, read)))
    }
}

/// A step out of a frame of bytecode, in which the caller's stack pointer is `sender` below the frame
/// pointer.
fn interpreted_step(
    sender: u64,
    regs: &mut Regs,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Step {
    let Regs { sp, bp, .. } = *regs;
    let Some(slot) = bp.checked_sub(sender) else {
        return Step::Failed;
    };
    let (Ok(sender), Ok(link), Ok(ip)) = (read(slot), read(bp), read(bp.wrapping_add(8))) else {
        return Step::Unreadable(bp.wrapping_add(8));
    };
    // Arguments and local variables are between the frame and the caller's, or behind that: a method
    // handle removes its own argument.
    if bp < sp || sender <= bp || ip == 0 {
        return Step::Failed;
    }
    *regs = Regs { ip, sp: sender, bp: link };
    Step::Caller(ip)
}

/// A step out of a frame of a few words below the return address, which is in a range, behind a call
/// that leads to the frame; `None`: there is none.
fn called_step(
    from: &Range<u64>,
    regs: &mut Regs,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
    mut leads: impl FnMut(u64) -> bool,
) -> Option<Step> {
    const MOST_WORDS: u64 = 8;
    for word in 0..MOST_WORDS {
        let slot = regs.sp.saturating_add(8 * word);
        let Ok(ip) = read(slot) else { return Some(Step::Unreadable(slot)) };
        if from.contains(&ip) && leads(ip) {
            *regs = Regs { ip, sp: slot.saturating_add(8), ..*regs };
            return Some(Step::Caller(ip));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_pushed_registers_leads_to_the_code_that_called_it() {
        let from = 0x5000..0x6000;
        let step = |words: &[u64]| {
            let mut regs = Regs { ip: 1, sp: 0x1000, bp: 9 };
            let mut read =
                |address: u64| words.get((address as usize - 0x1000) / 8).copied().ok_or(());
            (called_step(&from, &mut regs, &mut read, |ip| ip != 0x5020), regs)
        };
        let caller = Regs { ip: 0x5008, sp: 0x1020, bp: 9 };
        let found = step(&[0x4fff, 0x5020, 0x6000, 0x5008, 0x5010]);
        assert_eq!(found, (Some(Step::Caller(0x5008)), caller));
        assert_eq!(step(&[7; 8]).0, None);
        assert_eq!(step(&[7; 3]).0, Some(Step::Unreadable(0x1018)));
    }

    #[test]
    fn a_frame_of_bytecode_leads_to_its_sender() {
        let bp = 0x1000;
        let step = |sender: u64, ip: u64, sp: u64| {
            let mut regs = Regs { ip: 1, sp, bp };
            let mut read = |address: u64| match address {
                0xff8 => Ok(sender),
                0x1000 => Ok(0x2000),
                0x1008 => Ok(ip),
                _ => Err(()),
            };
            (interpreted_step(8, &mut regs, &mut read), regs)
        };
        let caller = Regs { ip: 7, sp: 0x1040, bp: 0x2000 };
        assert_eq!(step(0x1040, 7, 0xf00), (Step::Caller(7), caller));
        // The sender is below the frame, there is no caller, and the frame is below the stack pointer.
        for (sender, ip, sp) in
            [(0x1000, 7, 0xf00), (0xff0, 7, 0xf00), (0x1040, 0, 0xf00), (0x1040, 7, 0x1008)]
        {
            assert_eq!(step(sender, ip, sp).0, Step::Failed);
        }
    }
}
