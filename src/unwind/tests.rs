//! Walks and chains on made-up stacks.

use super::*;
use crate::sampler::record::{AllRegs, Regs};
use proptest::prelude::*;

use crate::process::maps::Region;

fn world() -> (Regions, Images) {
    let (mut regions, mut images) = (Regions::default(), Images::default());
    let image = images.intern(1, "", &[], Default::default());
    regions.insert(Region { start: 0x1000, end: 0x9000, offset: 0, image });
    (regions, images)
}

fn frames(addresses: &[u64]) -> Vec<Frame> {
    let (regions, mut images) = world();
    let frame = |(i, &a)| locate(1, &regions, &mut images, a, i > 0).unwrap();
    addresses.iter().enumerate().map(frame).collect()
}

fn spliced(f: &mut Vec<Frame>, chain: &[u64]) -> bool {
    let (regions, mut images) = world();
    Unwinder::default().splice(1, f, chain, &regions, &mut images)
}

#[test]
fn a_chain_continues_where_dwarf_stops() {
    let mut f = frames(&[0x1100, 0x1200]);
    assert!(spliced(&mut f, &[0x1100, 0x1200, 0x1300, 0x1400]));
    assert_eq!(f, frames(&[0x1100, 0x1200, 0x1300, 0x1400]));
}

#[test]
fn a_chain_through_unmapped_memory_is_cut() {
    let mut f = frames(&[0x1100, 0x1200]);
    assert!(spliced(&mut f, &[0x1200, 0x1300, 0x20, 0x1400]));
    assert_eq!(f, frames(&[0x1100, 0x1200, 0x1300]));
}

#[test]
fn a_chain_that_adds_nothing_is_not_used() {
    for chain in [&[][..], &[0x1200], &[0x1300, 0x1400], &[0x1200, 0x20]] {
        let mut f = frames(&[0x1100, 0x1200]);
        assert!(!spliced(&mut f, chain), "{chain:?}");
        assert_eq!(f, frames(&[0x1100, 0x1200]));
    }
}

#[test]
fn reads_stay_within_the_copy() {
    let bytes = [7u8; 20];
    let s = Stack { start: 0x100, bytes: &bytes, full: true };
    assert!(s.read(0x100).is_ok() && s.read(0x10c).is_ok());
    for outside in [0xff, 0x10d, 0x114, u64::MAX, 0] {
        assert!(s.read(outside).is_err(), "{outside:x}");
    }
    assert!(s.cut_before(0x114) && !s.cut_before(0x100));
}

/// In an epilogue, unwind information still names the slots of registers that were popped. The
/// process's memory is readable there, but no longer what it was.
#[test]
fn memory_below_the_stack_pointer_is_not_asked_for() {
    let (regions, words) = (Regions::default(), [1u64; 16]);
    let at = |i: usize| &raw const words[i] as u64;
    let copy = [2u8; 32];
    let live = RefCell::new(Live::default());
    live.borrow_mut().begin(std::process::id() as i32, 0);
    let stack = Stack { start: at(8), bytes: &copy, full: false };
    let walk = Walk {
        regions: &regions,
        pid: 1,
        tid: 1,
        stack,
        all: AllRegs::default(),
        chain: &[],
        live: &live,
    };
    assert_eq!(walk.read(at(8)), Ok(0x0202_0202_0202_0202));
    assert_eq!(walk.read(at(7)), Err(()));
    assert!(!live.borrow().was_read());
    assert_eq!(walk.read(at(12)), Ok(1));
    assert!(live.borrow().was_read());
}

/// A stack whose frame pointers lead through `callers`, each a return address and the bytes
/// of its frame; in a process whose code is made at run time.
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
    /// Whatever the stack was before, a walk with a memory says what one without says.
    #[test]
    fn what_is_remembered_is_what_would_be_found(
        stacks in prop::collection::vec(
            (prop::collection::vec((0u8..200, 0u8..3), 0..12), 0usize..24, 0i32..3, 0usize..12),
            1..12,
        ),
    ) {
        let (regions, mut images) = world();
        let mut remembering = Unwinder::default();
        let mut before: Vec<(u8, u8)> = Vec::new();
        for (new, cut, tid, shared) in stacks {
            // The outer part is that of the stack before.
            before.truncate(shared);
            before.extend(new);
            let (bytes, regs) = stack_of(&before, if cut < 16 { 0 } else { cut });
            let user = UserStack::Native {
                regs,
                all: AllRegs::default(),
                bytes: &bytes,
                full: cut % 2 == 0,
            };
            let (mut a, mut b) = (Vec::new(), Vec::new());
            let of = (1, tid, 0);
            let x = remembering.unwind(of, &regions, &mut images, user, &[], &mut a);
            let y = Unwinder::default().unwind(of, &regions, &mut images, user, &[], &mut b);
            prop_assert_eq!((x, a), (y, b));
        }
    }
}
