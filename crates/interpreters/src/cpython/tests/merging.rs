use super::*;
use crate::merge::{Merge, NativeFrame, NativeStack, Place};

/// A native stack by gdb, and the names of its functions.
fn native(image: &Image, pointer: u64) -> (NativeStack, Vec<&'static str>) {
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let head = format!("thread {pointer:x} ");
    let mut lines = image.native.lines().skip_while(|line| !line.starts_with(&head));
    let mut start = hex(&lines.next().unwrap()[head.len()..]);
    let (mut frames, mut names) = (Vec::new(), Vec::new());
    for line in lines.take_while(|line| !line.starts_with("thread ")) {
        let [address, size, name] = line.split(' ').collect::<Vec<_>>()[..] else { panic!() };
        let end = start + size.parse::<u64>().unwrap();
        frames.push(NativeFrame { address: hex(address), stack: start..end, is_run_time: false });
        names.push(name);
        start = end;
    }
    (NativeStack { frames, is_complete: true, code: None }, names)
}

/// The merged stack of a thread, with native frames that have one of these names and the user's.
fn merged(image: &Image, shape: &str, shown: &[&str]) -> Vec<String> {
    let memory = image.memory();
    let cpython = Cpython::of_recorded(&memory).unwrap();
    let pointer = image.thread(shape);
    let copies = copies(&cpython, pointer, &memory);
    let (native, names) = native(image, pointer);
    let user = lines(&cpython, &frames(&cpython, &copies).1, &memory);
    let Merge::Stack { places, unmatched: 0 } =
        cpython.merge(copied(&copies), &native, &mut Vec::new())
    else {
        panic!("{} {shape} does not match", image.version)
    };
    let text = |place: &Place| match place {
        Place::Native(frame) => shown
            .iter()
            .find(|name| names[*frame].starts_with(**name))
            .map(|name| (*name).to_owned()),
        Place::User(frame) => {
            let function = user[*frame].split('\t').next().unwrap();
            Some(function.rsplit('.').next().unwrap().to_owned())
        }
        Place::Evaluation(_) => None,
        Place::Truncated => Some("truncated".to_owned()),
    };
    places.iter().filter_map(text).collect()
}

#[test]
fn every_evaluation_has_its_frames() {
    for image in &IMAGES {
        let memory = image.memory();
        let cpython = Cpython::of_recorded(&memory).unwrap();
        for (pointer, shape, user) in image.threads() {
            let (native, names) = native(image, pointer);
            let copies = copies(&cpython, pointer, &memory);
            let merge = cpython.merge(copied(&copies), &native, &mut Vec::new());
            let Merge::Stack { places, unmatched } = merge else {
                panic!("{} {shape}", image.version);
            };
            let count = |wanted: fn(&Place) -> bool| places.iter().filter(|p| wanted(p)).count();
            let evaluations = names.iter().filter(|name| **name == "_PyEval_EvalFrameDefault");
            assert_eq!(count(|place| matches!(place, Place::Evaluation(_))), evaluations.count());
            assert_eq!(count(|place| matches!(place, Place::User(_))), user.len());
            assert_eq!((unmatched, places.len()), (0, native.frames.len() + user.len()));
        }
    }
}

#[test]
fn native_frames_lie_between_the_functions_that_call_them_and_are_called() {
    for image in &IMAGES {
        let sorted = merged(image, "sorting", &["list_sort"]);
        let mut functions: Vec<&str> = sorted.iter().map(String::as_str).collect();
        // `list_sort` occurs twice where the compiler has split it.
        functions.dedup();
        let expected = ["wait", "<lambda>", "list_sort", "sorting", "start"];
        assert_eq!(functions, expected, "{}", image.version);
        let callback = merged(image, "c_callback", &["__GI___qsort_r"]);
        let mut names: Vec<&str> = callback.iter().map(String::as_str).collect();
        names.dedup();
        let expected = ["wait", "recursion", "<lambda>", "__GI___qsort_r", "c_callback", "start"];
        assert_eq!(names, expected, "{}", image.version);
    }
}

#[test]
fn a_native_stack_of_another_thread_or_moment_does_not_match() {
    for image in &IMAGES {
        let memory = image.memory();
        let cpython = Cpython::of_recorded(&memory).unwrap();
        let copies = copies(&cpython, image.thread("sorting"), &memory);
        let (other, _) = native(image, image.thread("recursion"));
        assert_eq!(
            cpython.merge(copied(&copies), &other, &mut Vec::new()),
            Merge::Mismatch,
            "{}",
            image.version
        );
        let (mut own, names) = native(image, image.thread("sorting"));
        // The outermost evaluation is missing.
        let outer = names.iter().rposition(|name| *name == "_PyEval_EvalFrameDefault").unwrap();
        own.frames.remove(outer);
        assert_eq!(
            cpython.merge(copied(&copies), &own, &mut Vec::new()),
            Merge::Mismatch,
            "{}",
            image.version
        );
    }
}

#[test]
fn callers_beyond_a_truncated_native_stack_are_kept() {
    for image in &IMAGES[2..] {
        let memory = image.memory();
        let cpython = Cpython::of_recorded(&memory).unwrap();
        let pointer = image.thread("c_callback");
        let copies = copies(&cpython, pointer, &memory);
        let (mut stack, names) = native(image, pointer);
        let qsort = names.iter().position(|name| name.starts_with("__GI___qsort_r")).unwrap();
        stack.frames.truncate(qsort + 1);
        stack.is_complete = false;
        let Merge::Stack { places, .. } = cpython.merge(copied(&copies), &stack, &mut Vec::new())
        else {
            panic!("{}", image.version)
        };
        let user = frames(&cpython, &copies).1.len();
        let expected =
            [Place::Native(qsort), Place::Truncated, Place::User(user - 2), Place::User(user - 1)];
        assert_eq!(places[places.len() - 4..], expected, "{}", image.version);
    }
}

#[test]
fn frames_that_are_not_all_copied_end_the_stack() {
    for image in &IMAGES {
        let memory = image.memory();
        let mut cpython = Cpython::of_recorded(&memory).unwrap();
        cpython.set_most(5);
        let pointer = image.thread("recursion");
        let copies = copies(&cpython, pointer, &memory);
        let (native, _) = native(image, pointer);
        let merge = cpython.merge(copied(&copies), &native, &mut Vec::new());
        let Merge::Stack { places, unmatched } = merge else { panic!("{merge:?}") };
        let user = places.iter().filter(|place| matches!(place, Place::User(_))).count();
        // Up to 3.9, which evaluation has which frame is counted from the outermost.
        let expected = if cpython.offsets.minor <= 9 { 0 } else { 5 };
        assert_eq!((user, places.last()), (expected, Some(&Place::Truncated)), "{}", image.version);
        assert_eq!(unmatched == 0, expected > 0, "{}", image.version);
    }
}

#[test]
fn an_evaluation_that_has_just_begun_has_no_frames_of_its_own() {
    // 3.11 and 3.12 link it before its pointer to a frame is set.
    for image in &IMAGES[3..5] {
        let memory = image.memory();
        let cpython = Cpython::of_recorded(&memory).unwrap();
        let pointer = image.thread("sorting");
        let copies = copies(&cpython, pointer, &memory);
        let (mut native, names) = native(image, pointer);
        let inner = names.iter().position(|name| *name == "_PyEval_EvalFrameDefault").unwrap();
        native.frames.drain(..inner);
        native.frames[0].address = cpython.symbols.evaluation[0].start + 70;
        let Merge::Stack { places, unmatched } =
            cpython.merge(copied(&copies), &native, &mut Vec::new())
        else {
            panic!()
        };
        assert_eq!((places[0], unmatched), (Place::Native(0), 1), "{}", image.version);
        native.frames[0].address += 1000;
        let Merge::Stack { places, unmatched } =
            cpython.merge(copied(&copies), &native, &mut Vec::new())
        else {
            panic!()
        };
        assert_eq!((places[0], unmatched), (Place::User(0), 0), "{}", image.version);
    }
}
