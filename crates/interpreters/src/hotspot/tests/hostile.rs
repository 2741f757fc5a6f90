//! Memory that is not what HotSpot makes.

use proptest::prelude::*;

use super::*;
use crate::hotspot::{Address, Registers, Times, check};
use crate::memory::Counted;

/// Reads and bytes that a walk with its names may take: of 4,096 frames each.
const MOST_CALLS: usize = 1 << 20;

#[test]
fn memory_without_hotspot_is_refused() {
    for image in &IMAGES {
        let memory = image.memory();
        let hotspot = HotSpot::of_recorded(&memory).unwrap();
        assert!(check::check(&hotspot, &memory, 1).is_ok(), "{}", image.version);
        let counted = Counted::new(&memory);
        let mut empty = Recorded::default();
        empty.facts.clone_from(&memory.facts);
        assert!(HotSpot::of_recorded(&empty).is_err());
        assert!(check::check(&hotspot, &empty, 1).is_err());
        assert!(check::check(&hotspot, &counted, 1).is_ok());
        assert!(counted.calls.get() < 10_000);
    }
}

#[test]
fn a_segment_map_without_end_is_left() {
    for tag in [0_u8, 1, 2, 254, 255] {
        let image = &IMAGES[0];
        let mut memory = image.memory();
        let hotspot = HotSpot::of_recorded(&memory).unwrap();
        let heap = &hotspot.heaps()[0];
        memory.insert(heap.segments(), &vec![tag; 1 << 20]);
        let counted = Counted::new(&memory);
        let _ = heap.block(heap.range.end - 1, &counted);
        assert!(counted.calls.get() <= 1024, "{tag}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_memory_is_read_within_bounds(
        version in 0..IMAGES.len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0..8_u32), 1..200),
    ) {
        let image = &IMAGES[version];
        let mut memory = image.memory();
        let addresses = memory.words();
        for (at, word, kind) in changes {
            let word = match kind {
                0 => word,
                1 => word % 300,
                2 => 0,
                3 => u64::MAX,
                _ => addresses[word as usize % addresses.len()],
            };
            memory.insert(*at.get(&addresses), &word.to_le_bytes());
        }
        let counted = Counted::new(&memory);
        if let Ok(hotspot) = HotSpot::of_recorded(&memory) {
            let _ = check::check(&hotspot, &counted, 1);
            for frame in hotspot.last_frames(&counted).unwrap_or_default() {
                for key in hotspot.walk(frame, &counted).unwrap_or_default().iter().take(50) {
                    if let Name::Found(code) = hotspot.name(key, &counted) {
                        let _ = code.line(key.position);
                        prop_assert!(code.function.len() < 4096 && code.file.len() < 2048);
                    }
                }
            }
            // Any place in the code is the innermost frame.
            for heap in hotspot.heaps() {
                for step in 0..64 {
                    let address = heap.range.start + step * 4096 + 8;
                    let at = Address { address, is_return: step % 2 == 0 };
                    let times = Times { sample: 1, now: 2 };
                    let _ = hotspot.shape(at, times, Some(&counted));
                    let word = |address| (&counted as &dyn Memory).word(address).ok();
                    let registers = Registers { stack: address, frame: address, bytecode: Some(address) };
                    let _ = hotspot.methods(at, registers, &word, times, Some(&counted));
                }
            }
        }
        prop_assert!(counted.calls.get() < MOST_CALLS);
        prop_assert!(counted.bytes.get() < 1 << 30);
    }
}
