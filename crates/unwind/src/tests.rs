//! Walks and chains on synthetic stacks.

use super::*;
use proptest::prelude::*;
use sys::record::{AllRegs, Chunk, Regs, Rest};

use sys::maps::Region;

fn synthetic_process() -> (Regions, Images) {
    let mut regions = Regions::default();
    let mut images = Images::default();
    let image = images.intern(1, "", &[], Default::default());
    regions.insert(Region { start: 0x1000, end: 0x9000, offset: 0, image, ..Region::default() });
    (regions, images)
}

/// Splices the kernel's chain onto a stack whose frame pointers lead through `callers`, of which
/// the copy contains the first `copied` frames, innermost first.
fn spliced(callers: &[(u8, u8)], copied: usize, chain: &[u64]) -> (StackEnd, Vec<u64>) {
    let (regions, mut images) = synthetic_process();
    let (bytes, regs) = stack_of(callers, 0);
    let size: usize = callers.iter().rev().take(copied).map(|c| usize::from(c.1) * 8 + 16).sum();
    let all = AllRegs::default();
    let full = false;
    let rest = Rest::default();
    let user = UserStack::Native { regs, all, bytes: &bytes[..size], full, rest };
    let mut unwinder = Unwinder::default();
    let mut frames = Vec::new();
    let end =
        unwinder.unwind(ThreadId::main_thread(1), &regions, &mut images, user, chain, &mut frames);
    (end, frames.iter().map(|f| f.address.0).collect())
}

/// Outermost first: return addresses and the words of their frames.
const CALLERS: [(u8, u8); 4] = [(0x40, 0), (0x30, 1), (0x20, 2), (0x12, 0)];

#[test]
fn a_chain_continues_where_the_walk_stops() {
    let chain = [0x1010, 0x1120, 0x1200, 0x1300, 0x1400];
    let (end, frames) = spliced(&CALLERS, 2, &chain);
    assert_eq!((end, frames), (StackEnd::DumpTooSmall, chain.to_vec()));
}

#[test]
fn a_chain_through_unmapped_memory_is_cut() {
    let chain = [0x1010, 0x1120, 0x1200, 0x1300, 0x20, 0x1400];
    assert_eq!(spliced(&CALLERS, 2, &chain).1, chain[..4]);
}

#[test]
fn a_chain_that_adds_nothing_or_is_another_is_not_used() {
    let walked = [0x1010, 0x1120, 0x1200];
    let others = [&[][..], &walked, &[0x1010], &[0x1200, 0x1300], &[0x1010, 0x1200, 0x1300]];
    for chain in others {
        assert_eq!(spliced(&CALLERS, 2, chain).1, walked, "{chain:x?}");
    }
}

/// All return addresses of a recursion are equal: a walk ends at a position in the stack, not at an
/// address.
#[test]
fn a_recursion_keeps_its_depth() {
    let mut callers = vec![(0x40, 0)];
    callers.extend([(0x20, 3); 10]);
    let mut chain = vec![0x1010];
    chain.extend([0x1200; 10]);
    chain.push(0x1400);
    assert_eq!(spliced(&callers, 6, &chain).1, chain);
    // The kernel's chain ended before the walk did.
    assert_eq!(spliced(&callers, 6, &chain[..4]).1, chain[..7]);
}

/// A process with run-time code, and the kernel's code for probes behind it.
fn probed_process() -> (Regions, Images) {
    let (mut regions, mut images) = synthetic_process();
    let image = images.intern(1, "[uprobes]", &[], Default::default());
    regions.insert(Region { start: 0x9000, end: 0xa000, offset: 0, image, ..Region::default() });
    (regions, images)
}

/// The walk from registers up a stack of words from 0x7000 on, some of whose return addresses the
/// kernel has replaced.
fn walked(regs: Regs, words: &[u64], replaced: &[u64]) -> (StackEnd, Vec<u64>) {
    let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let (regions, mut images) = probed_process();
    let (replaced, stack) = (bytes(replaced), bytes(words));
    let bytes = &stack[(regs.sp - 0x7000) as usize..];
    let rest = Rest::default().with_replaced(&replaced);
    let user = UserStack::Native { regs, all: AllRegs::default(), bytes, full: false, rest };
    let mut frames = Vec::new();
    let thread = ThreadId::main_thread(1);
    let mut unwinder = Unwinder::default();
    let end = unwinder.unwind(thread, &regions, &mut images, user, &[], &mut frames);
    // The second time, the last walk is known.
    let again = unwinder.unwind(thread, &regions, &mut images, user, &[], &mut Vec::new());
    assert_eq!(end, again);
    (end, frames.iter().map(|f| f.address.0).collect())
}

#[test]
fn a_replaced_return_address_is_a_reason_unless_the_original_is_known() {
    let regs = Regs { ip: 0x1010, sp: 0x7000, bp: 0x7000 };
    // Frame pointers and return addresses; the second one is replaced.
    let words = [0x7010, 0x1020, 0x7020, 0x9000, 0, 0x1030];
    let (end, frames) = walked(regs, &words, &[]);
    assert_eq!((end, &frames[..]), (StackEnd::ReturnProbe, &[0x1010, 0x1020][..]));
    // Of another word, or unknown.
    for replaced in [[0x7010, 0x1400], [0x7018, 0]] {
        assert_eq!(walked(regs, &words, &replaced), (end, frames.clone()));
    }
    let (end, frames) = walked(regs, &words, &[0x6000, 0x1500, 0x7018, 0x1400]);
    assert_eq!((end, &frames[..3]), (StackEnd::RunTimeCode, &[0x1010, 0x1020, 0x1400][..]));
}

#[test]
fn the_kernel_s_code_for_return_probes_leads_to_the_caller() {
    let words = [1, 2, 3, 0x7020, 0, 0x1030];
    // It has pushed three words; the return address was below the fourth.
    for (sp, replaced) in [(0x7000, 0x7010), (0x7008, 0x7010), (0x7018, 0x7010)] {
        let regs = Regs { ip: 0x9004, sp, bp: 0x7018 };
        let (_, frames) = walked(regs, &words, &[replaced, 0x1400]);
        assert_eq!(frames[..2], [0x9004, 0x1400], "{sp:x}");
    }
    let regs = Regs { ip: 0x9004, sp: 0x7000, bp: 0x7018 };
    assert_eq!(walked(regs, &words, &[0x7020, 0x1400]), (StackEnd::ReturnProbe, vec![0x9004]));
}

#[test]
fn reads_stay_within_the_copy() {
    let bytes = [7u8; 20];
    let full = true;
    let rest = Rest::default();
    let beyond = Cell::new(false);
    let s = StackCopy { start: 0x100, bytes: &bytes, full, rest, beyond: &beyond };
    assert!(s.read(0x100).is_ok() && s.read(0x10c).is_ok());
    for outside in [0xff, 0x10d, 0x114, u64::MAX, 0] {
        assert!(s.read(outside).is_err(), "{outside:x}");
    }
    assert!(s.cut_before(0x114) && !s.cut_before(0x100));
}

/// In an epilogue, unwind information still refers to the slots of popped registers.
#[test]
fn memory_below_the_stack_pointer_is_not_read() {
    let bytes = [2u8; 4096];
    let chunks = [Chunk::new(&bytes, 0)];
    let beyond = Cell::new(false);
    let rest = Rest::new(0x1000, &chunks);
    let s = StackCopy { start: 0x1800, bytes: &bytes[..0x100], full: false, rest, beyond: &beyond };
    assert!(s.read(0x17f8).is_err());
    assert!(s.read(0x1800).is_ok() && !beyond.get());
    assert!(s.read(0x1900).is_ok() && beyond.get());
    assert!(s.read(0x2000).is_err());
}

/// The kernel's copy ends at a page that was never written to: the stack continues after it.
#[test]
fn a_short_copy_is_one_with_a_hole() {
    let bytes = [2u8; 320];
    let beyond = Cell::new(false);
    let full = false;
    let rest = Rest::default();
    let s = StackCopy { start: 0x1000, bytes: &bytes, full, rest, beyond: &beyond };
    assert!(s.cut_before(0x1140) && s.cut_before(0x1139) && s.cut_before(0x20000));
    assert!(!s.cut_before(0x1138) && !s.cut_before(0x7000_0000_0000) && !s.cut_before(0x10));
    assert_eq!(s.too_small(), StackEnd::DumpTooSmall);
}

/// A stack whose frame pointers lead through `callers`, each a return address and the bytes of its
/// frame, in a process with code made at run time.
fn stack_of(callers: &[(u8, u8)], cut: usize) -> (Vec<u8>, Regs) {
    const TOP: u64 = 0x7000;
    let size: u64 = callers.iter().map(|c| u64::from(c.1) * 8 + 16).sum();
    let sp = TOP - size;
    let mut bytes = vec![0; size as usize];
    let mut at = TOP;
    let mut saved = 0u64;
    // Outermost first, as a program pushes them.
    for &(ra, locals) in callers {
        at -= 16;
        let i = (at - sp) as usize;
        bytes[i..i + 8].copy_from_slice(&saved.to_le_bytes());
        bytes[i + 8..i + 16].copy_from_slice(&(0x1000 + u64::from(ra) * 16).to_le_bytes());
        saved = at;
        at -= u64::from(locals) * 8;
    }
    bytes.truncate(bytes.len() - cut.min(bytes.len()));
    (bytes, Regs { ip: 0x1010, sp, bp: saved })
}

proptest! {
    /// A walk with a memory equals one without, for any previous stack.
    #[test]
    fn a_reused_walk_equals_a_new_one(
        stacks in prop::collection::vec(
            (
                prop::collection::vec((0u8..200, 0u8..3), 0..12),
                0usize..24,
                0i32..3,
                0usize..12,
                (0usize..300, any::<bool>()),
            ),
            1..12,
        ),
    ) {
        let (regions, mut images) = synthetic_process();
        let mut remembering = Unwinder::default();
        let mut before: Vec<(u8, u8)> = Vec::new();
        for (new, cut, tid, shared, (copied, hole)) in stacks {
            // The outer part is that of the previous stack.
            before.truncate(shared);
            before.extend(new);
            let (bytes, regs) = stack_of(&before, if cut < 16 { 0 } else { cut });
            // For some, the outer part was not in the kernel's copy, or not available at all.
            let (bytes, beyond) = bytes.split_at(copied.min(bytes.len()) & !7);
            let chunks = [Chunk::new(beyond, u8::from(hole))];
            let rest = Rest::new(regs.sp + bytes.len() as u64, &chunks);
            let all = AllRegs::default();
            let full = cut % 2 == 0;
            let user = UserStack::Native { regs, all, bytes, full, rest };
            let mut a = Vec::new();
            let mut b = Vec::new();
            let thread = ThreadId { pid: 1, tid };
            let x = remembering.unwind(thread, &regions, &mut images, user, &[], &mut a);
            let y = Unwinder::default().unwind(thread, &regions, &mut images, user, &[], &mut b);
            prop_assert_eq!((x, a), (y, b));
        }
    }
}
