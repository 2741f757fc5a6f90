//! Memory that is not what Ruby makes.

use proptest::prelude::*;

use super::*;
use crate::memory::Counted;
use crate::merge::{NativeFrame, NativeStack};
use crate::ruby::ClassNames;

/// The most that one name may read.
const MOST_BYTES: usize = 400 << 10;
const MOST_CALLS: usize = 120;

#[test]
fn a_cycle_of_tags_ends_at_the_limit() {
    let mut memory = memory();
    let ruby = Ruby::of_recorded(&memory).unwrap();
    let pointer = thread("blocks");
    let first = copies(&ruby, pointer, &memory)[1].first;
    memory.insert(first + u64::from(ruby.offsets.tag_previous()), &first.to_le_bytes());
    let counted = Counted::new(&memory);
    let copies = copies(&ruby, pointer, &counted);
    assert_eq!(copies[1].status, crate::walk::Status::TooMany);
    assert!(counted.calls.get() < 2 * 1024 + 200);
    let native = NativeStack { frames: Vec::new(), is_complete: true, code: None };
    assert_eq!(
        ruby.merge(copied(&copies), &native, &mut Vec::new()),
        crate::merge::Merge::Mismatch
    );
}

#[test]
fn a_stack_without_an_end_is_read_up_to_the_limit() {
    let original = memory();
    let ruby = Ruby::of_recorded(&original).unwrap();
    let pointer = thread("blocks");
    let context = copies(&ruby, pointer, &original)[0].object;
    for size in [0, 1, u64::MAX, 1 << 60] {
        let mut memory = original.clone();
        memory.insert(context + u64::from(ruby.offsets.context_size), &size.to_le_bytes());
        let counted = Counted::new(&memory);
        let copies = copies(&ruby, pointer, &counted);
        assert_eq!(copies[0].status, crate::walk::Status::Fault);
        // Beyond the root is nothing of this stack.
        let (end, frames) = frames(&ruby, &copies);
        assert!(matches!(end, ChainEnd::Fault | ChainEnd::Damaged), "{end:?} {}", frames.len());
        assert!(counted.calls.get() < 200);
    }
}

#[test]
fn lengths_of_the_process_bound_no_read() {
    let original = memory();
    let ruby = Ruby::of_recorded(&original).unwrap();
    let user = frames(&ruby, &copies(&ruby, thread("sorting"), &original)).1;
    let (function, code) = (user[3].code, user[2].code);
    assert!(function.identity[0] == 0 && code.identity[0] != 0);
    let body = code.identity[0];
    let word = |address: u64| (&original as &dyn Memory).word(address).unwrap();
    let offsets = &ruby.offsets;
    let label = word(body + u64::from(offsets.body_label));
    let names = ruby.symbols.names.unwrap() + u64::from(offsets.symbols.unwrap().names);
    let class = word(ruby.symbols.object_class);
    let Some(ClassNames::Variables { extension, variables }) = offsets.class else { panic!() };
    let table = word(word(class + u64::from(extension)) + u64::from(variables));
    let places = [
        body + u64::from(offsets.body_size),
        body + u64::from(offsets.body_line_count),
        label,
        label + 16,
        word(names) + 16,
        table + 40,
        table + 32,
    ];
    for place in places {
        for size in [u64::MAX, 1 << 40, 1 << 20, 0x2000 | 5, 5000] {
            let mut memory = original.clone();
            memory.insert(place, &size.to_le_bytes());
            for key in [function, code] {
                let counted = Counted::new(&memory);
                if let Name::Found(code) = ruby.name(&key, &counted) {
                    assert!(code.function.len() < 3000 && code.lines.len() <= MOST_BYTES);
                }
                assert!(counted.bytes.get() < MOST_BYTES && counted.calls.get() < MOST_CALLS);
            }
        }
    }
}

#[test]
fn bytes_that_are_no_frames_give_none() {
    let memory = memory();
    let ruby = Ruby::of_recorded(&memory).unwrap();
    let copies = copies(&ruby, thread("sorting"), &memory);
    let size = ruby.walks()[0].frame_size();
    let layout = &ruby.layout;
    // Frame 2 is a block: its code is no pointer; its flags are not those of a frame.
    for (place, word) in
        [(layout.code, 5), (layout.body, 7), (layout.flags, 0), (layout.flags, 1 << 40)]
    {
        let mut copies = copies.clone();
        let at = 2 * size + place;
        copies[0].bytes[at..at + 8].copy_from_slice(&u64::to_le_bytes(word));
        let (end, frames) = frames(&ruby, &copies);
        assert_eq!((end, frames.len()), (ChainEnd::Damaged, 0));
    }
    // The root is missing.
    let mut copies = copies.clone();
    let end = copies[0].bytes.len() - size;
    copies[0].bytes.truncate(end);
    assert_eq!(frames(&ruby, &copies).0, ChainEnd::Damaged);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn any_memory_is_read_within_bounds(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0..8_u32), 1..60),
    ) {
        let mut memory = memory();
        let addresses = memory.words();
        for (at, word, kept) in changes {
            // Pointers into the image, small numbers and anything.
            let word = match kept {
                0 => word,
                1 => word % 300,
                2 => 0,
                _ => addresses[word as usize % addresses.len()],
            };
            memory.insert(*at.get(&addresses), &word.to_le_bytes());
        }
        let counted = Counted::new(&memory);
        let mut names = 0;
        let threads = stacks(STACKS);
        if let Ok(ruby) = Ruby::of_recorded(&memory) {
            let _ = ruby.check(&[1, 2, 3], &memory);
            for (pointer, ..) in &threads {
                let copies = copies(&ruby, *pointer, &counted);
                let user = frames(&ruby, &copies).1;
                let user = &user[..user.len().min(20)];
                names += user.len();
                lines(&ruby, user, &counted);
                let frame = |i: u64| NativeFrame {
                    address: ruby.symbols.evaluation[0].start + 500,
                    stack: pointer - 4096 * (40 - i)..pointer - 4096 * (39 - i),
                    is_run_time: i % 5 == 1,
                };
                let native = NativeStack { frames: (0..40_u64).map(frame).collect(), is_complete: true, code: None };
                let _ = ruby.merge(copied(&copies), &native, &mut Vec::new());
            }
        }
        prop_assert!(counted.calls.get() < threads.len() * 6 * 1024 + names * MOST_CALLS);
        prop_assert!(counted.bytes.get() < threads.len() * (300 << 10) + names * MOST_BYTES);
    }
}
