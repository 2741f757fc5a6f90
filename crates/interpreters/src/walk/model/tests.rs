use super::super::Block;
use super::*;
use crate::memory::Recorded;

const THREAD: Thread = Thread { pointer: 0x7000, frame: 0x1000, is_first: false };

fn memory(words: &[(u64, u64)]) -> Recorded {
    let mut memory = Recorded::default();
    for (address, word) in words {
        memory.insert(*address, &word.to_le_bytes());
    }
    memory
}

/// Frames of 16 bytes: the caller's, and a pointer to a word.
fn list(starts: Vec<Start>, path: Vec<i32>) -> WalkDescriptor {
    WalkDescriptor {
        starts,
        path,
        block: Block { lo: 0, size: 16 },
        behind: vec![Behind { pointer: 8, block: Block { lo: -8, size: 8 } }],
        next: Next::Pointer { at: 0 },
        most: 10,
        code: None,
    }
}

fn three_frames() -> Recorded {
    memory(&[
        (0x1000, 0x2000),
        (0x1008, 0x9008),
        (0x2000, 0x3000),
        (0x2008, 0),
        (0x3000, 0),
        (0x3008, 0x9008),
        (0x9000, 77),
    ])
}

#[test]
fn a_list_is_copied_with_what_is_behind_its_pointers() {
    let walk = list(vec![Start::FramePointer], Vec::new());
    assert!(walk.is_valid());
    let copy = run(&walk, THREAD, &three_frames());
    assert_eq!((copy.status, copy.object, copy.first), (Status::Complete, 0x1000, 0x1000));
    let frames: Vec<(u64, u64)> = copy.frames(&walk).map(|f| (f.address, f.word(16))).collect();
    assert_eq!(frames, [(0x1000, 77), (0x2000, 0), (0x3000, 77)]);
}

#[test]
fn a_pointer_that_was_copied_behind_another_one_is_followed() {
    let mut walk = list(vec![Start::FramePointer], Vec::new());
    // The word at 0x9000 is at place 16 of the copy; its own are behind it.
    walk.behind.push(Behind { pointer: 16, block: Block { lo: 1, size: 8 } });
    walk.behind.push(Behind { pointer: 24, block: Block { lo: 0, size: 8 } });
    assert!(walk.is_valid());
    let mut memory = three_frames();
    memory.insert(78, &0x500_u64.to_le_bytes());
    memory.insert(0x500, &9_u64.to_le_bytes());
    let copy = run(&walk, THREAD, &memory);
    assert_eq!(copy.status, Status::Complete);
    let frames: Vec<[u64; 3]> =
        copy.frames(&walk).map(|f| [16, 24, 32].map(|at| f.word(at))).collect();
    assert_eq!(frames, [[77, 0x500, 9], [0, 0, 0], [77, 0x500, 9]]);
    // A pointer that is copied after it.
    walk.behind[1].pointer = 24;
    assert!(!walk.is_valid());
}

#[test]
fn a_start_counts_if_its_object_belongs_to_the_thread() {
    let shared = Start::Shared { pointer: 0x100, key: 8 };
    let own = Start::ThreadPointer { path: vec![16, 0] };
    let walk = list(vec![shared, own], vec![0]);
    let first = |words: &[(u64, u64)]| {
        let copy = run(&walk, THREAD, &memory(words));
        (copy.status, copy.object, copy.first)
    };
    // The thread's own, by a path: 0x7010 -> 0x50 -> 0x60, whose first frame is at 0x70.
    let own = [(0x7010, 0x50), (0x50, 0x60), (0x60, 0x70), (0x70, 0), (0x78, 0)];
    let with = |more: &[(u64, u64)]| first(&[&own[..], more].concat());
    let shared = [(0x200, 0x300), (0x300, 0), (0x308, 0)];
    let with_key = |key| with(&[&shared[..], &[(0x100, 0x200), (0x208, key)]].concat());
    assert_eq!(with_key(0x7000), (Status::Complete, 0x200, 0x300));
    assert_eq!(with_key(0x8000), (Status::Complete, 0x60, 0x70));
    assert_eq!(with(&[(0x100, 0)]), (Status::Complete, 0x60, 0x70));
    assert_eq!(first(&[(0x100, 0), (0x7010, 0)]), (Status::Nothing, 0, 0));
    assert_eq!(with(&[]), (Status::Fault, 0, 0));
}

#[test]
fn the_object_of_the_thread_is_found_in_a_list() {
    let start = Start::List { pointer: 0x100, next: 0, key: 8 };
    let walk = list(vec![start], vec![16]);
    let objects = [(0x100, 0x200), (0x200, 0x300), (0x208, 1), (0x300, 0), (0x308, 0x7000)];
    let frame = [(0x310, 0x400), (0x400, 0), (0x408, 0)];
    let copy = run(&walk, THREAD, &memory(&[&objects[..], &frame].concat()));
    assert_eq!((copy.status, copy.object, copy.first), (Status::Complete, 0x300, 0x400));
    let other = Thread { pointer: 5, ..THREAD };
    assert_eq!(run(&walk, other, &memory(&objects)).status, Status::Nothing);
    // A list without an end.
    let cycle = memory(&[(0x100, 0x200), (0x200, 0x200), (0x208, 1)]);
    assert_eq!(run(&walk, THREAD, &cycle).status, Status::Nothing);
}

#[test]
fn an_array_ends_where_its_object_states() {
    let walk = WalkDescriptor {
        starts: vec![Start::ThreadPointer { path: vec![0] }],
        path: vec![16],
        block: Block { lo: 0, size: 8 },
        behind: Vec::new(),
        next: Next::Array { stride: 16, base: 0, count: 8, unit: 8 },
        most: 10,
        code: None,
    };
    let object = [(0x7000, 0x100), (0x100, 0x1000), (0x108, 8), (0x110, 0x1020)];
    let frames = [(0x1020, 1), (0x1030, 2)];
    let copy = run(&walk, THREAD, &memory(&[&object[..], &frames].concat()));
    assert_eq!(copy.status, Status::Complete);
    let frames: Vec<(u64, u64)> = copy.frames(&walk).map(|f| (f.address, f.word(0))).collect();
    assert_eq!(frames, [(0x1020, 1), (0x1030, 2)]);
}

#[test]
fn frames_before_a_fault_are_kept_and_a_cycle_ends() {
    let walk = list(vec![Start::FramePointer], Vec::new());
    let mut words = three_frames();
    words.insert(0x2000, &0x5000_u64.to_le_bytes());
    let copy = run(&walk, THREAD, &words);
    assert_eq!((copy.status, copy.frames(&walk).count()), (Status::Fault, 2));
    words.insert(0x2000, &0x1000_u64.to_le_bytes());
    let copy = run(&walk, THREAD, &words);
    assert_eq!((copy.status, copy.frames(&walk).count()), (Status::TooMany, 10));
}

#[test]
fn an_object_may_be_that_of_the_first_thread() {
    let walk = list(vec![Start::FirstThread { object: 0x1000 }], Vec::new());
    assert_eq!(run(&walk, THREAD, &three_frames()).status, Status::Nothing);
    let first = Thread { is_first: true, ..THREAD };
    let copy = run(&walk, first, &three_frames());
    let count = copy.frames(&walk).count();
    assert_eq!((copy.status, copy.object, count), (Status::Complete, 0x1000, 3));
}

#[test]
fn what_is_behind_a_pointer_may_have_another_one() {
    let block = Block { lo: 0, size: 8 };
    let behind = [8, 16].map(|pointer| Behind { pointer, block }).into();
    let walk = WalkDescriptor { behind, ..list(vec![Start::FramePointer], Vec::new()) };
    assert!(walk.is_valid());
    let last = |words: &[(u64, u64)]| {
        let frame = [(0x1000, 0), (0x1008, 0x9000), (0x9000, 0x9100)];
        let copy = run(&walk, THREAD, &memory(&[&frame[..], words].concat()));
        let frame = copy.frames(&walk).next().unwrap();
        (copy.status, frame.word(16), frame.word(24))
    };
    assert_eq!(last(&[(0x9100, 77)]), (Status::Complete, 0x9100, 77));
    assert_eq!(last(&[]), (Status::Complete, 0x9100, 0));
}

#[test]
fn blocks_that_cannot_be_read_are_limited() {
    let walk = WalkDescriptor { most: 1000, ..list(vec![Start::FramePointer], Vec::new()) };
    let cycle = memory(&[(0x1000, 0x1000), (0x1008, 0x9000)]);
    let copy = run(&walk, THREAD, &cycle);
    assert_eq!((copy.status, copy.frames(&walk).count()), (Status::Fault, MAX_UNREADABLE as usize));
}

#[test]
fn a_descriptor_outside_of_the_limits_is_not_valid() {
    let walk = list(vec![Start::FramePointer], Vec::new());
    let broken: [fn(&mut WalkDescriptor); 7] = [
        |walk| walk.starts.clear(),
        |walk| walk.path = vec![0; 5],
        |walk| walk.block.size = 97,
        |walk| walk.behind[0].pointer = 9,
        |walk| walk.behind.push(Behind { pointer: 17, ..walk.behind[0] }),
        |walk| walk.behind[0].block.size = 169,
        |walk| walk.next = Next::Pointer { at: 15 },
    ];
    for change in broken {
        let mut walk = walk.clone();
        change(&mut walk);
        assert!(!walk.is_valid(), "{walk:?}");
    }
}
