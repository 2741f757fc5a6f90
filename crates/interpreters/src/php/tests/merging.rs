use super::*;
use crate::merge::{Merge, NativeFrame, NativeStack, Place};

/// The native stack by gdb, and the names of its functions. It ends at the root of a fiber.
fn native(image: &Image) -> (NativeStack, Vec<&'static str>) {
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let mut lines = image.native.lines();
    let mut start = hex(lines.next().unwrap().rsplit(' ').next().unwrap());
    let (mut frames, mut names) = (Vec::new(), Vec::new());
    for line in lines {
        let [address, size, name] = line.split(' ').collect::<Vec<_>>()[..] else { panic!() };
        let end = start + size.parse::<u64>().unwrap();
        frames.push(NativeFrame { address: hex(address), stack: start..end, is_run_time: false });
        names.push(name);
        start = end;
        if name == "make_fcontext" {
            break;
        }
    }
    (NativeStack { frames, is_complete: true, code: None }, names)
}

/// Merged places, as texts: the user's functions, and native ones that have a name.
fn texts(image: &Image, native: &NativeStack, names: &[&str]) -> Option<Vec<String>> {
    merged(&image.php(), &image.memory(), native, names)
}

fn merged(
    php: &Php,
    memory: &Recorded,
    native: &NativeStack,
    names: &[&str],
) -> Option<Vec<String>> {
    let copies = copies(php, memory);
    let user = lines(php, &frames(php, &copies).1, memory);
    let Merge::Stack { places, .. } = php.merge(copied(&copies), native, &mut Vec::new()) else {
        return None;
    };
    let text = |place: &Place| match place {
        Place::Native(frame) => format!("native {}", names[*frame]),
        Place::User(frame) => {
            user[*frame].split(['\t', '\\']).take(2).collect::<Vec<_>>().join(" ")
        }
        Place::Evaluation(_) => "evaluation".to_owned(),
        Place::Truncated => "truncated".to_owned(),
    };
    let is_shown = |text: &String| {
        let inner = ["call_function", "execute_ex", "evaluation", "truncated"];
        !text.starts_with("native") || inner.iter().any(|name| text.ends_with(name))
    };
    Some(places.iter().map(text).filter(is_shown).collect())
}

#[test]
fn every_evaluation_has_its_frames() {
    for image in &IMAGES {
        let php = image.php();
        let copies = copies(&php, &image.memory());
        let (native, names) = native(image);
        let Merge::Stack { places, unmatched } =
            php.merge(copied(&copies), &native, &mut Vec::new())
        else {
            panic!("{}", image.shape)
        };
        let count = |wanted: fn(&Place) -> bool| places.iter().filter(|p| wanted(p)).count();
        let evaluations = names.iter().filter(|name| **name == "execute_ex").count();
        let user = image.expected().len();
        assert_eq!(count(|place| matches!(place, Place::User(_))), user, "{}", image.shape);
        let matched = count(|place| matches!(place, Place::Evaluation(_)));
        assert_eq!(matched + unmatched, evaluations, "{}", image.shape);
        // `leave` has left its function.
        let leaving = usize::from(image.shape == "destruction");
        assert_eq!(unmatched, leaving, "{}", image.shape);
        let is_cut = usize::from(image.shape == "fiber");
        assert_eq!(places.len(), native.frames.len() + user + is_cut, "{}", image.shape);
    }
}

#[test]
fn functions_of_an_evaluation_that_leaves_its_own_are_not_taken_for_its() {
    let image = &IMAGES[DESTRUCTION];
    let (native, names) = native(image);
    let expected = [
        "sleep ",
        "Known wait",
        "Known Ended::__destruct",
        "evaluation",
        "native zend_call_function",
        "native execute_ex",
        "native zend_call_function",
        "array_map ",
        "Known {closure}",
        "{main} ",
        "evaluation",
    ];
    // The function has no frame any more, but its evaluation goes on.
    let merged = texts(image, &native, &names).unwrap();
    let shown: Vec<&str> = merged.iter().map(String::as_str).collect();
    assert_eq!(shown.len(), expected.len(), "{shown:?}");
    for (shown, expected) in shown.iter().zip(expected) {
        assert!(shown.starts_with(expected.trim_end()), "{shown} {expected}");
    }
}

#[test]
fn frames_beyond_a_fiber_are_callers_on_another_native_stack() {
    let image = &IMAGES[FIBER];
    let (mut native, names) = native(image);
    let merged = texts(image, &native, &names).unwrap();
    let cut = merged.iter().position(|text| text == "truncated").unwrap();
    assert!(merged[cut + 1].starts_with("Fiber::start"), "{merged:?}");
    assert_eq!(merged[..cut].iter().filter(|text| *text == "evaluation").count(), 2);
    // If the fiber's stack is truncated, its outermost evaluation is not known.
    native.is_complete = false;
    assert_eq!(texts(image, &native, &names), None);
}

/// It has a frame before its evaluation begins.
#[test]
fn a_function_whose_evaluation_has_not_begun_is_not_shown() {
    let image = &IMAGES[CALLS];
    let (mut native, mut names) = native(image);
    let whole = texts(image, &native, &names).unwrap();
    // The innermost evaluation has begun, but for what it calls.
    let (mut memory, php) = (image.memory(), image.php());
    let frames = frames(&php, &copies(&php, &memory)).1;
    let first = frames.iter().find(|frame| frame.is_entry).unwrap().address;
    memory.insert(php.symbols.globals + u64::from(php.offsets.current_frame), &first.to_le_bytes());
    let evaluation = names.iter().position(|name| *name == "execute_ex").unwrap();
    native.frames.drain(..=evaluation);
    names.drain(..=evaluation);
    assert_eq!(names[0], "zend_call_function");
    let outer = whole.iter().position(|text| text == "evaluation").unwrap() + 1;
    assert_eq!(merged(&php, &memory, &native, &names).unwrap(), whole[outer..]);
}

#[test]
fn a_native_stack_of_another_moment_does_not_match() {
    let image = &IMAGES[CALLS];
    let (own, names) = native(image);
    let evaluations: Vec<usize> = (0..names.len()).filter(|i| names[*i] == "execute_ex").collect();
    assert_eq!(evaluations.len(), 5);
    for evaluation in &evaluations {
        let mut native = own.clone();
        native.frames.remove(*evaluation);
        assert_eq!(texts(image, &native, &names), None, "{evaluation}");
    }
    let other = super::merging::native(&IMAGES[FIBER]).0;
    assert_eq!(texts(image, &other, &names), None);
}

#[test]
fn callers_beyond_a_truncated_native_stack_are_kept() {
    let image = &IMAGES[CALLS];
    let (mut native, names) = native(image);
    let user = image.expected().len();
    // Machine code of PHP's compiler has no unwind information: no evaluation is found.
    native.frames.truncate(4);
    native.is_complete = false;
    let merged = texts(image, &native, &names).unwrap();
    assert_eq!((merged.len(), merged[0].as_str()), (user + 1, "truncated"));
    // Of those that were found, all have their frames.
    let (mut native, names) = super::merging::native(image);
    let outer = names.iter().rposition(|name| *name == "zend_call_function").unwrap();
    native.frames.truncate(outer + 2);
    native.is_complete = false;
    let merged = texts(image, &native, &names).unwrap();
    assert_eq!(merged.iter().filter(|text| *text == "evaluation").count(), 4);
    assert!(merged.last().unwrap().starts_with("{main}"));
}

#[test]
fn frames_that_are_not_all_copied_end_the_stack() {
    let image = &IMAGES[CALLS];
    let mut php = image.php();
    php.set_most(5);
    let copies = copies(&php, &image.memory());
    let (native, _) = native(image);
    let Merge::Stack { places, .. } = php.merge(copied(&copies), &native, &mut Vec::new()) else {
        panic!()
    };
    assert_eq!(places.last(), Some(&Place::Truncated));
    assert_eq!(places.iter().filter(|place| matches!(place, Place::User(_))).count(), 5);
}
