//! Copies of the stack, without access to unreadable memory.

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::arch::thread_block;
use crate::sys;

/// Granularity of readable memory.
const PAGE: usize = 4096;

/// Address at which the first thread's stack began, or slightly above; 0: unknown.
static FIRST: AtomicUsize = AtomicUsize::new(0);

/// Most bytes of the first thread's stack. The kernel keeps mappings further away from its end
/// (`mmap_base` in mm/util.c and arch/x86/mm/mmap.c: 128 MiB).
const FIRST_SIZE: usize = 64 << 20;

/// Finds the start of the first thread's stack: only arguments and environment are above it.
pub fn find_first() {
    // Numbers precede and follow the command's name, which may contain anything (proc(5): field 28
    // of /proc/PID/stat; the first one behind the name is field 3).
    let take = |piece: &[u8]| {
        let behind = piece.iter().rposition(|&c| c == b')');
        let fields = piece.get(behind.map_or(piece.len(), |i| i + 2)..).unwrap_or_default();
        let field = fields.split(|&c| c == b' ').nth(28 - 3).unwrap_or_default();
        let digit = |number: usize, c: &u8| {
            number.checked_mul(10)?.checked_add(c.wrapping_sub(b'0').into())
        };
        if let Some(start @ 1..) = field.iter().try_fold(0, digit) {
            FIRST.store(start + 64, Relaxed);
        }
    };
    // SAFETY: the text ends with a NUL.
    unsafe { sys::read_file(c"/proc/self/stat".as_ptr().cast(), take) };
}

/// Number of readable bytes of the stack from `sp` upwards, at most `most`.
///
/// A stack that a program made may end anywhere, so each page is tested, except in known parts:
/// from `known`, which is kept for the thread, to the thread's control block, and all of the first
/// thread's.
pub fn length(sp: usize, most: usize, known: &mut usize) -> usize {
    let (block, first) = (thread_block(), FIRST.load(Relaxed));
    let above = |end: usize, limit: usize| end.checked_sub(sp).filter(|rest| *rest < limit);
    let on_first = above(first, FIRST_SIZE);
    let limit = on_first.or(above(block, most)).map_or(most, |rest| rest.min(most));
    let (end, mut at) = (sp + limit, sp);
    let is_readable = on_first.is_some() || (*known != 0 && (*known..block).contains(&sp));
    if is_readable {
        at = end;
    }
    while at < end {
        if at != sp && !sys::is_readable(at) {
            break;
        }
        at = ((at & !(PAGE - 1)) + PAGE).min(end);
    }
    if at == block && (*known == 0 || sp < *known) {
        *known = sp;
    }
    at - sp
}
