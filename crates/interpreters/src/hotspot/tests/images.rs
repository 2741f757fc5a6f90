use super::*;
use crate::ReadError;
use crate::hotspot::heap::CodeHeap;
use crate::hotspot::layout::Stated;
use crate::hotspot::{Address, FrameShape, Registers, Times};

#[test]
fn methods_and_lines_are_those_that_the_program_states() {
    for image in &IMAGES {
        let memory = image.memory();
        let hotspot = HotSpot::of_recorded(&memory).unwrap();
        assert!(hotspot.version().starts_with("HotSpot "));
        let mut found = Vec::new();
        for frame in hotspot.last_frames(&memory).unwrap() {
            let keys = hotspot.walk(frame, &memory).expect("all frames");
            found.push(lines(&hotspot, &keys, &memory));
        }
        let expected = stacks(image.stacks);
        assert_eq!(expected.len(), 6);
        for (shape, expected) in expected {
            assert!(
                found.contains(&expected),
                "{} {shape}: {expected:#?} {found:#?}",
                image.version
            );
        }
    }
}

#[test]
fn a_method_that_was_unloaded_has_no_name() {
    let image = &IMAGES[0];
    let mut memory = image.memory();
    let hotspot = HotSpot::of_recorded(&memory).unwrap();
    let keys: Vec<CodeKey> = hotspot
        .last_frames(&memory)
        .unwrap()
        .into_iter()
        .filter_map(|frame| hotspot.walk(frame, &memory))
        .flatten()
        .collect();
    let key = keys[0];
    assert!(matches!(hotspot.name(&key, &memory), Name::Found(_)));
    for word in 0..4 {
        let mut other = key;
        other.identity[word] ^= 8;
        assert_eq!(hotspot.name(&other, &memory), Name::Gone);
    }
    assert_eq!(hotspot.name(&CodeKey { object: 0x1001, ..key }, &memory), Name::Gone);
    assert_eq!(hotspot.name(&CodeKey { object: 0x1000, ..key }, &memory), Name::Gone);
    // Another method at the same place.
    memory.insert(key.object + hotspot.layout.method.constant, &keys[2].identity[0].to_le_bytes());
    assert_eq!(hotspot.name(&key, &memory), Name::Gone);
}

#[test]
fn code_that_was_replaced_is_refused() {
    const SECOND: u64 = 1_000_000_000;
    let image = &IMAGES[0];
    let memory = image.memory();
    let first = HotSpot::of_recorded(&memory).unwrap();
    let frames = first.last_frames(&memory).unwrap();
    // The code around the native method that a thread waits in.
    let is_compiled = |frame: &&crate::hotspot::LastFrame| frame.frame == 0;
    let at = frames.iter().find(is_compiled).expect("a compiled frame").address;
    let at = Address { address: at, is_return: true };
    let is_known = |shape| matches!(shape, FrameShape::Known(_));
    let hotspot = || HotSpot::of_recorded(&memory).unwrap();
    // Read soon after the sample, or too late.
    let read = |sample, now| hotspot().shape(at, Times { sample, now }, Some(&memory));
    assert!(is_known(read(SECOND, SECOND + SECOND / 10)));
    assert_eq!(read(SECOND, 2 * SECOND), FrameShape::Unknown);
    // Seen before and after.
    let known = hotspot();
    assert!(is_known(known.shape(at, Times { sample: SECOND, now: SECOND }, Some(&memory))));
    assert_eq!(known.shape(at, Times { sample: 2 * SECOND, now: 0 }, None), FrameShape::Unread);
    let late = Times { sample: 2 * SECOND, now: 9 * SECOND };
    assert!(is_known(known.shape(at, late, Some(&memory))));
    assert!(is_known(known.shape(at, Times { sample: 8 * SECOND, now: 0 }, None)));
    // Another compilation is in its place.
    let mut other = memory.clone();
    let header = known.state().mirror.block_at(at.address).unwrap() + known.layout.heap.block_size;
    other.insert(header + known.layout.compiled.compile_id, &77_777_u32.to_le_bytes());
    let soon = Times { sample: 9 * SECOND + SECOND / 10, now: 9 * SECOND + SECOND / 5 };
    assert_eq!(known.shape(at, soon, Some(&other)), FrameShape::Unknown);
    let later = Times { sample: 11 * SECOND, now: 11 * SECOND + 1 };
    assert!(is_known(known.shape(at, later, Some(&other))));
    assert_eq!(
        known.shape(at, Times { sample: 9 * SECOND + SECOND / 10, now: 11 * SECOND }, Some(&other)),
        FrameShape::Unknown
    );
}

/// A heap with methods' code of 1, 2 and 3 segments, at its beginning. `numbers` are those of their
/// compilations; 0: the block is free.
fn small_heap(image: &Image, numbers: [u32; 3]) -> (HotSpot, Recorded) {
    const LOG2_SEGMENT: u32 = 12;
    const SEGMENTS: u64 = 0x70_0000_0000;
    const NAME: u64 = 0x71_0000_0000;
    const GROWN: u64 = 0x72_0000_0000;
    let memory = image.memory();
    let recorded = HotSpot::of_recorded(&memory).unwrap();
    let range = 0x60_0000_0000..0x60_0100_0000;
    let heap = CodeHeap::new(range.clone(), SEGMENTS, LOG2_SEGMENT, GROWN);
    let hotspot = HotSpot::new(recorded.layout, recorded.structs, 1, vec![heap]);
    let mut memory = Recorded::default();
    memory.insert(NAME, b"nmethod\0".as_slice());
    memory.insert(NAME + 8, &[0; 64]);
    memory.insert(GROWN, &(range.start + (7 << LOG2_SEGMENT)).to_le_bytes());
    memory.insert(SEGMENTS, &[0, 0, 1, 0, 1, 2, 0xff]);
    memory.insert(range.start, &vec![0; 7 << LOG2_SEGMENT]);
    let layout = &hotspot.layout;
    let mut block = range.start;
    for (number, segments) in numbers.into_iter().zip(1_u32..) {
        let blob = block + layout.heap.block_size;
        let size = (segments << LOG2_SEGMENT) - layout.heap.block_size as u32;
        memory.insert(block + layout.heap.block_length, &segments.to_le_bytes());
        memory.insert(block + layout.heap.block_used, &[u8::from(number > 0)]);
        memory.insert(blob + layout.blob.name, &NAME.to_le_bytes());
        memory.insert(blob + layout.blob.size, &size.to_le_bytes());
        memory.insert(blob + layout.blob.frame_size, &4_u32.to_le_bytes());
        memory.insert(blob + layout.compiled.compile_id, &number.to_le_bytes());
        let (Stated::Pointer(begin), Stated::Pointer(end)) =
            (layout.blob.code_begin, layout.blob.code_end)
        else {
            panic!("addresses are stated otherwise")
        };
        memory.insert(blob + begin, &(blob + 512).to_le_bytes());
        memory.insert(blob + end, &(blob + u64::from(size)).to_le_bytes());
        block += u64::from(segments) << LOG2_SEGMENT;
    }
    (hotspot, memory)
}

#[test]
fn code_counts_for_earlier_samples_if_nothing_was_freed_so_far() {
    const SECOND: u64 = 1_000_000_000;
    let image = &IMAGES[0];
    let at = |segment: u64| Address {
        address: 0x60_0000_0000 + (segment << 12) + 1024,
        is_return: false,
    };
    let times = |sample| Times { sample, now: 9 * SECOND };
    let is_there = |hotspot: &HotSpot, memory: &Recorded, segment, sample| {
        hotspot.shape(at(segment), times(sample), Some(memory)) != FrameShape::Unknown
    };
    let (hotspot, memory) = small_heap(image, [1, 2, 3]);
    for segment in [0, 2, 5] {
        assert!(is_there(&hotspot, &memory, segment, SECOND), "{segment}");
    }
    // A free block among them.
    let (hotspot, memory) = small_heap(image, [1, 0, 3]);
    assert!(!is_there(&hotspot, &memory, 0, SECOND) && !is_there(&hotspot, &memory, 5, SECOND));
    assert!(is_there(&hotspot, &memory, 5, 9 * SECOND), "read soon after the sample");
    // Another one is in the place of the first.
    let (hotspot, memory) = small_heap(image, [1, 2, 3]);
    hotspot.read_heaps(SECOND, &memory);
    assert!(is_there(&hotspot, &memory, 0, SECOND / 2));
    let (_, memory) = small_heap(image, [4, 2, 3]);
    assert!(!is_there(&hotspot, &memory, 0, 2 * SECOND));
    assert!(is_there(&hotspot, &memory, 2, 2 * SECOND), "it was seen before and after the sample");
}

/// Memory of which this number of reads succeed.
struct Budgeted<'m> {
    memory: &'m Recorded,
    left: std::cell::Cell<usize>,
}

impl Memory for Budgeted<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let left = self.left.get().checked_sub(1).ok_or(ReadError::Budget)?;
        self.left.set(left);
        self.memory.read(address, buffer)
    }
}

#[test]
fn a_heap_that_was_not_read_to_its_end_may_have_free_blocks() {
    const SECOND: u64 = 1_000_000_000;
    let (_, memory) = small_heap(&IMAGES[0], [1, 2, 3]);
    let at = Address { address: 0x60_0000_0000 + 1024, is_return: false };
    let late = Times { sample: SECOND, now: 9 * SECOND };
    let is_there = |reads: usize| {
        let (hotspot, _) = small_heap(&IMAGES[0], [1, 2, 3]);
        hotspot.read_heaps(8 * SECOND, &Budgeted { memory: &memory, left: reads.into() });
        hotspot.shape(at, late, Some(&memory)) != FrameShape::Unknown
    };
    assert!(is_there(1000));
    // The end of what has grown, tags, headers, and the name of each.
    let needed = (0..1000).find(|reads| is_there(*reads)).unwrap();
    assert!((4..20).contains(&needed), "{needed}");
    assert!((0..needed).all(|reads| !is_there(reads)));
}

#[test]
fn a_buffer_that_was_freed_is_not_taken_for_the_method_in_its_place() {
    const SECOND: u64 = 1_000_000_000;
    let (hotspot, memory) = small_heap(&IMAGES[0], [1, 2, 3]);
    let mut before = memory.clone();
    before.insert(0x71_0000_0000, b"C1 temporary CodeBuffer\0".as_slice());
    let at = Address { address: 0x60_0000_0000 + 1024, is_return: false };
    let methods = |memory: &Recorded, sample| {
        let registers = Registers { stack: 0, frame: 0, bytecode: None };
        let times = Times { sample, now: sample + 1 };
        let found = hotspot.methods(at, registers, &|_| None, times, Some(memory));
        found.and_then(|found| found.stub)
    };
    assert_eq!(methods(&before, SECOND).as_deref(), Some("C1 temporary CodeBuffer"));
    let mut after = memory;
    let blob = 0x60_0000_0000 + hotspot.layout.heap.block_size;
    after.insert(blob + hotspot.layout.blob.name, &0x71_0000_0040_u64.to_le_bytes());
    after.insert(0x71_0000_0040, b"nmethod\0".as_slice());
    after.insert(0x71_0000_0048, &[0; 64]);
    assert_eq!(methods(&after, 9 * SECOND), None);
}
