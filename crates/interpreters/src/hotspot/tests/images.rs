use super::*;

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
    use crate::hotspot::{Address, FrameShape, Times};
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
    let soon = Times { sample: 9 * SECOND + 1, now: 9 * SECOND + 2 };
    assert_eq!(known.shape(at, soon, Some(&other)), FrameShape::Unknown);
    let later = Times { sample: 11 * SECOND, now: 11 * SECOND + 1 };
    assert!(is_known(known.shape(at, later, Some(&other))));
    assert_eq!(
        known.shape(at, Times { sample: 9 * SECOND + 1, now: 11 * SECOND }, Some(&other)),
        FrameShape::Unknown
    );
}
