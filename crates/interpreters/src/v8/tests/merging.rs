use super::*;
use crate::merge::{Merge, NativeFrame, NativeStack, Place};
use crate::v8::frames::place;

/// The native stack that has a frame for each frame pointer of the copy, as code without unwind
/// information has, with two functions of C++ inside and one around.
fn native(v8: &V8, copies: &[WalkCopy]) -> NativeStack {
    let walk = &v8.walks()[1];
    let first = copies[1].first;
    let mut ends = vec![first - 128, first - 64];
    for frame in copies[1].frames(walk) {
        ends.push(frame.address + 16);
        // The outermost call from C++.
        if [2, 4].contains(&frame.word(place::CONTEXT)) && frame.word(place::EXIT) == 0 {
            break;
        }
    }
    ends.push(ends[ends.len() - 1] + 100);
    let starts = [first - 256].into_iter().chain(ends.iter().copied());
    let frame = |(start, end): (u64, &u64)| NativeFrame {
        address: 0x40_0000,
        stack: start..*end,
        is_run_time: false,
    };
    let frames = starts.zip(&ends).map(frame).collect();
    NativeStack { frames, is_complete: true, code: None }
}

#[test]
fn functions_are_in_the_places_of_their_frames_and_others_of_v8_are_hidden() {
    for image in &IMAGES {
        let memory = image.memory();
        let v8 = V8::of_recorded(&memory).unwrap();
        for (pointer, shape, _) in image.threads() {
            let copies = copies(&v8, pointer, &memory);
            let native = native(&v8, &copies);
            let user = frames(&v8, &copies).1;
            let Merge::Stack { places, unmatched: 0 } =
                v8.merge(copied(&copies), &native, &mut Vec::new())
            else {
                panic!("{} {shape}", image.version)
            };
            let shown: Vec<Place> = places
                .iter()
                .filter(|place| !matches!(place, Place::Evaluation(_)))
                .copied()
                .collect();
            let mut expected = vec![Place::Native(0), Place::Native(1)];
            expected.extend((0..user.len()).map(Place::User));
            expected.push(Place::Native(native.frames.len() - 1));
            assert_eq!(shown, expected, "{} {shape}", image.version);
            assert_eq!(places.len(), native.frames.len() + user.len());
        }
    }
}

#[test]
fn callers_beyond_a_truncated_native_stack_are_kept() {
    for image in &IMAGES {
        let memory = image.memory();
        let v8 = V8::of_recorded(&memory).unwrap();
        let copies = copies(&v8, image.thread("main"), &memory);
        let mut native = native(&v8, &copies);
        native.is_complete = false;
        native.frames.truncate(2);
        let user = frames(&v8, &copies).1.len();
        let Merge::Stack { places, .. } = v8.merge(copied(&copies), &native, &mut Vec::new())
        else {
            panic!()
        };
        let mut expected = vec![Place::Native(0), Place::Native(1), Place::Truncated];
        expected.extend((0..user).map(Place::User));
        assert_eq!(places, expected, "{}", image.version);
    }
}

#[test]
fn a_native_stack_of_another_thread_does_not_match() {
    for image in &IMAGES {
        let memory = image.memory();
        let v8 = V8::of_recorded(&memory).unwrap();
        let own = copies(&v8, image.thread("main"), &memory);
        let other = native(&v8, &copies(&v8, image.thread("worker"), &memory));
        assert_eq!(
            v8.merge(copied(&own), &other, &mut Vec::new()),
            Merge::Mismatch,
            "{}",
            image.version
        );
    }
}

#[test]
fn frames_that_are_not_all_copied_end_the_stack() {
    for image in &IMAGES {
        let memory = image.memory();
        let mut v8 = V8::of_recorded(&memory).unwrap();
        let native = native(&v8, &copies(&v8, image.thread("main"), &memory));
        v8.set_most(6);
        let copies = copies(&v8, image.thread("main"), &memory);
        let Merge::Stack { places, .. } = v8.merge(copied(&copies), &native, &mut Vec::new())
        else {
            panic!()
        };
        let user = places.iter().filter(|place| matches!(place, Place::User(_))).count();
        assert_eq!((user, places.last()), (5, Some(&Place::Truncated)), "{}", image.version);
    }
}
