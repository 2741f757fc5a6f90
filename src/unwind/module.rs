//! One image's unwinder, and the rule caches that all images share.

use std::ops::Range;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{Error, ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};

use crate::process::elf::Section;
use crate::process::image::{Bytes, Loaded};
use crate::sampler::record::Regs;

/// Rule caches; images and pages are spread over them. One has 509 entries and takes 33 KiB.
const CACHES: usize = 64;

/// What one step up a stack gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The return address; the registers are the caller's.
    Caller(u64),
    /// The frame is a signal's: the code at this address was interrupted.
    Interrupted(u64),
    /// This frame is the thread's entry.
    End,
    /// Memory at this address would be needed and is not there.
    Unreadable(u64),
    /// The rule leads nowhere.
    Failed,
}

/// Bytes of a section, which keep the file mapped.
#[derive(Clone)]
pub struct SectionBytes {
    bytes: Arc<Bytes>,
    range: Range<usize>,
}

impl std::ops::Deref for SectionBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

/// Unwind rules that were looked up before; framehop tells the images apart in them.
pub struct RuleCaches([Option<Box<CacheX86_64>>; CACHES]);

impl Default for RuleCaches {
    fn default() -> Self {
        RuleCaches([const { None }; CACHES])
    }
}

impl RuleCaches {
    /// The cache for a page of an image.
    pub fn of(&mut self, image: u32, address: u64) -> &mut CacheX86_64 {
        let slot = ((address >> 12) as usize).wrapping_add(image as usize * 7) % CACHES;
        self.0[slot].get_or_insert_with(|| Box::new(CacheX86_64::new()))
    }
}

/// Unwinds through one image, in the address space that its file states.
pub struct ModuleUnwinder {
    unwinder: UnwinderX86_64<SectionBytes>,
    /// Where signal handlers return to, if this is the C library or a static program.
    sigreturn: Option<u64>,
}

/// `mov $15, %rax; syscall`: what signal handlers return to (`rt_sigreturn`).
const SIGRETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// Largest `.text` that is searched for it.
const MAX_SEARCHED: usize = 16 << 20;

/// Offsets from the stack pointer at [`SIGRETURN`], where a `struct ucontext` lies
/// (`asm/ucontext.h`, `asm/sigcontext.h`).
const UCONTEXT_RBP: u64 = 120;
const UCONTEXT_RSP: u64 = 160;
const UCONTEXT_RIP: u64 = 168;

impl ModuleUnwinder {
    /// An unwinder for an image; builds an index when the file has none.
    pub fn new(path: &str, loaded: &Loaded) -> ModuleUnwinder {
        let elf = &loaded.elf;
        let bytes =
            |s: &Section| SectionBytes { bytes: loaded.bytes.clone(), range: s.range.clone() };
        let debug_frame = elf.debug_frame.as_ref().map(|data| SectionBytes {
            bytes: Arc::new(Bytes::Memory(data.clone())),
            range: 0..data.len(),
        });
        let info = ExplicitModuleSectionInfo {
            base_svma: elf.base,
            text_svma: svma(&elf.text),
            text: None,
            stubs_svma: None,
            stub_helper_svma: None,
            got_svma: svma(&elf.got),
            unwind_info: None,
            eh_frame_svma: svma(&elf.eh_frame),
            eh_frame: elf.eh_frame.as_ref().map(bytes),
            eh_frame_hdr_svma: svma(&elf.eh_frame_hdr),
            eh_frame_hdr: elf.eh_frame_hdr.as_ref().map(bytes),
            debug_frame,
            text_segment_svma: None,
            text_segment: None,
        };
        let mut unwinder = UnwinderX86_64::new();
        unwinder.add_module(Module::new(String::new(), elf.base..u64::MAX, elf.base, info));
        ModuleUnwinder { unwinder, sigreturn: sigreturn(path, loaded) }
    }

    /// One step up from `address` (in the image's own address space).
    pub fn step(
        &self,
        cache: &mut CacheX86_64,
        address: u64,
        is_return: bool,
        regs: &mut Regs,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Step {
        // The two instructions themselves may be running, too.
        let after = |start: u64| address.wrapping_sub(start) <= SIGRETURN.len() as u64;
        if self.sigreturn.is_some_and(|s| s == address || (!is_return && after(s))) {
            return interrupted(regs, read);
        }
        let frame = match FrameAddress::from_return_address(address).filter(|_| is_return) {
            Some(frame) => frame,
            None => FrameAddress::from_instruction_pointer(address),
        };
        let mut unwound = UnwindRegsX86_64::new(regs.ip, regs.sp, regs.bp);
        let caller = self.unwinder.unwind_frame(frame, &mut unwound, cache, read);
        *regs = Regs { ip: unwound.ip(), sp: unwound.sp(), bp: unwound.bp() };
        match caller {
            Ok(Some(address)) => Step::Caller(address),
            Ok(None) => Step::End,
            Err(Error::CouldNotReadStack(address)) => Step::Unreadable(address),
            Err(_) => Step::Failed,
        }
    }
}

/// framehop cannot evaluate the unwind information of signal frames, which reads memory.
fn interrupted(regs: &mut Regs, read: &mut impl FnMut(u64) -> Result<u64, ()>) -> Step {
    let mut at = |offset: u64| read(regs.sp.wrapping_add(offset));
    match (at(UCONTEXT_RIP), at(UCONTEXT_RSP), at(UCONTEXT_RBP)) {
        (Ok(ip), Ok(sp), Ok(bp)) => {
            *regs = Regs { ip, sp, bp };
            Step::Interrupted(ip)
        }
        _ => Step::Unreadable(regs.sp.wrapping_add(UCONTEXT_RIP)),
    }
}

fn sigreturn(path: &str, loaded: &Loaded) -> Option<u64> {
    let text = loaded.elf.text.as_ref()?;
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_libc = ["libc.", "libc-", "libpthread", "ld-musl"].iter().any(|l| name.starts_with(l));
    let is_static = !loaded.elf.has_interpreter && loaded.elf.entry != 0;
    if !(is_libc || is_static) || text.range.len() > MAX_SEARCHED {
        return None;
    }
    let bytes = loaded.bytes.get(text.range.clone())?;
    let at = bytes.windows(SIGRETURN.len()).position(|w| w == SIGRETURN)?;
    Some(text.address + at as u64)
}

fn svma(section: &Option<Section>) -> Option<Range<u64>> {
    let s = section.as_ref()?;
    Some(s.address..s.address.checked_add(s.range.len() as u64)?)
}

/// One step along frame pointers, for code without unwind information.
pub fn frame_pointer_step(regs: &mut Regs, read: &mut impl FnMut(u64) -> Result<u64, ()>) -> Step {
    let bp = regs.bp;
    if bp == 0 {
        return Step::End;
    }
    let Some(sp) = bp.checked_add(16).filter(|&sp| sp > regs.sp) else { return Step::Failed };
    let (Ok(caller_bp), Ok(address)) = (read(bp), read(bp + 8)) else {
        return Step::Unreadable(bp + 8);
    };
    if address == 0 {
        return Step::End;
    }
    *regs = Regs { ip: address, sp, bp: caller_bp };
    Step::Caller(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_frame_leads_to_what_was_interrupted() {
        let mut stack = [0u64; 32];
        stack[15..=21].copy_from_slice(&[7, 0, 0, 0, 0, 0x9000, 0x1234]);
        let mut read = |a: u64| stack.get((a.wrapping_sub(0x100) / 8) as usize).copied().ok_or(());
        let mut regs = Regs { ip: 1, sp: 0x100, bp: 1 };
        assert_eq!(interrupted(&mut regs, &mut read), Step::Interrupted(0x1234));
        assert_eq!(regs, Regs { ip: 0x1234, sp: 0x9000, bp: 7 });
    }

    #[test]
    fn frame_pointers_are_followed_upwards_only() {
        let stack = [0x120u64, 0x1111, 0, 0, 0, 0x2222];
        let mut read = |a: u64| stack.get((a.wrapping_sub(0x100) / 8) as usize).copied().ok_or(());
        let mut regs = Regs { ip: 0, sp: 0x100, bp: 0x100 };
        assert_eq!(frame_pointer_step(&mut regs, &mut read), Step::Caller(0x1111));
        assert_eq!((regs.sp, regs.bp), (0x110, 0x120));
        assert_eq!(frame_pointer_step(&mut regs, &mut read), Step::Caller(0x2222));
        assert_eq!(frame_pointer_step(&mut regs, &mut read), Step::End);
        let mut backwards = Regs { ip: 0, sp: 0x200, bp: 0x100 };
        assert_eq!(frame_pointer_step(&mut backwards, &mut read), Step::Failed);
        let mut outside = Regs { ip: 0, sp: 0x100, bp: 0x900 };
        assert_eq!(frame_pointer_step(&mut outside, &mut read), Step::Unreadable(0x908));
    }
}
