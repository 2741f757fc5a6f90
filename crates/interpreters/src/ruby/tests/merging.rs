use super::*;
use crate::merge::{Merge, NativeFrame, NativeStack, Place};

const EVALUATION: &str = "rb_vm_exec";

/// A native stack by gdb, and the names of its functions.
fn native(pointer: u64) -> (NativeStack, Vec<&'static str>) {
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let head = format!("thread {pointer:x} ");
    let mut lines = NATIVE.lines().skip_while(|line| !line.starts_with(&head));
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

/// A thread of the image.
struct Sample {
    ruby: Ruby,
    memory: Recorded,
    copies: Vec<WalkCopy>,
    native: NativeStack,
    /// Names of native frames.
    names: Vec<&'static str>,
}

impl Sample {
    fn new(shape: &str) -> Sample {
        let memory = memory();
        let ruby = Ruby::of_recorded(&memory).unwrap();
        let copies = copies(&ruby, thread(shape), &memory);
        let (native, names) = native(thread(shape));
        Sample { ruby, memory, copies, native, names }
    }

    /// The user's frames.
    fn user(&self) -> Vec<String> {
        let frames = frames(&self.ruby, &self.copies).1;
        let lines = lines(&self.ruby, &frames, &self.memory);
        lines.iter().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
    }

    fn merge(&self) -> Merge {
        self.ruby.merge(copied(&self.copies), &self.native, &mut Vec::new())
    }

    /// Places, and the number of evaluations without frames.
    fn places(&self) -> (Vec<Place>, usize) {
        match self.merge() {
            Merge::Stack { places, unmatched } => (places, unmatched),
            Merge::Mismatch => panic!("they do not match"),
        }
    }

    /// The merged stack, with native frames that have one of these names.
    fn text(&self, shown: &[&str]) -> Vec<String> {
        let user = self.user();
        let text = |place: &Place| match place {
            Place::Native(frame) => {
                let name = self.names.get(*frame)?;
                shown.contains(name).then(|| (*name).to_owned())
            }
            Place::User(frame) => Some(user[*frame].clone()),
            Place::Evaluation(_) => None,
            Place::Truncated => Some("truncated".to_owned()),
        };
        self.places().0.iter().filter_map(text).collect()
    }

    /// The number of the first native frame with a name.
    fn first(&self, name: &str) -> usize {
        self.names.iter().position(|found| *found == name).unwrap()
    }

    /// Drops innermost control frames.
    fn drop_frames(&mut self, count: usize) {
        let walk = &self.ruby.walks[0];
        self.copies[0].bytes.drain(..count * walk.frame_size());
        self.copies[0].first += count as u64 * u64::from(self.ruby.offsets.frame_size);
    }

    /// Drops innermost native frames.
    fn drop_native(&mut self, count: usize) {
        self.native.frames.drain(..count);
        self.names.drain(..count);
    }
}

#[test]
fn every_evaluation_has_its_frames() {
    for (_, shape, user) in stacks(STACKS) {
        let sample = Sample::new(shape);
        let (places, unmatched) = sample.places();
        let count = |wanted: fn(&Place) -> bool| places.iter().filter(|p| wanted(p)).count();
        let evaluations = sample.names.iter().filter(|name| **name == EVALUATION).count();
        assert!(evaluations > 0);
        assert_eq!(count(|place| matches!(place, Place::Evaluation(_))), evaluations, "{shape}");
        assert_eq!(count(|place| matches!(place, Place::User(_))), user.len(), "{shape}");
        assert_eq!(unmatched, 0, "{shape}");
        assert_eq!(places.len(), sample.native.frames.len() + user.len(), "{shape}");
        let order: Vec<usize> = places
            .iter()
            .filter_map(|place| if let Place::User(frame) = place { Some(*frame) } else { None })
            .collect();
        assert!(order.is_sorted(), "{shape}");
    }
}

#[test]
fn native_frames_lie_between_the_functions_that_call_them_and_are_called() {
    let sorting = Sample::new("sorting").text(&["rb_ary_each", "rb_yield"]);
    let expected = [
        "Thread::Queue#pop",
        "Object#wait",
        "block in Object#sorting",
        "rb_yield",
        "rb_yield",
        "rb_ary_each",
        "Array#each",
        "Enumerable#sort_by",
        "Object#sorting",
        "Method#call",
        "block (2 levels) in <main>",
    ];
    assert_eq!(sorting, expected);
    let functions = ["rb_method_call_with_block_kw", "rb_funcallv", "start_thread"];
    let included = Sample::new("included").text(&functions);
    let expected = [
        "Thread::Queue#pop",
        "Object#wait",
        "block in Comparing#compare",
        "Comparing#<=>",
        "rb_funcallv",
        "Comparable#==",
        "Comparing#compare",
        "Object#included",
        "rb_method_call_with_block_kw",
        "Method#call",
        "block (2 levels) in <main>",
        "start_thread",
    ];
    assert_eq!(included, expected);
}

#[test]
fn c_functions_outside_of_evaluations_are_called_by_the_code_around_them() {
    let sample = Sample::new("enumerator");
    let text = sample.text(&["rb_proc_call_kw", "rb_block_call", "rb_vm_exec"]);
    let expected = [
        "Thread::Queue#pop",
        "Object#wait",
        "block in enumerator",
        "rb_proc_call_kw",
        "rb_block_call",
        "Enumerator::Generator#each",
        "Enumerator#each",
    ];
    assert_eq!(text, expected);
}

#[test]
fn a_native_stack_of_another_thread_or_moment_does_not_match() {
    let mut sample = Sample::new("sorting");
    let own = sample.native.clone();
    sample.native = native(thread("recursion")).0;
    assert_eq!(sample.merge(), Merge::Mismatch);
    // The outermost evaluation is missing.
    sample.native = own;
    let outer = sample.names.iter().rposition(|name| *name == EVALUATION).unwrap();
    sample.native.frames.remove(outer);
    assert_eq!(sample.merge(), Merge::Mismatch);
    // Tags of another context.
    let mut sample = Sample::new("sorting");
    sample.copies[1] = copies(&sample.ruby, thread("blocks"), &sample.memory).remove(1);
    assert_eq!(sample.merge(), Merge::Mismatch);
}

#[test]
fn callers_beyond_a_truncated_native_stack_are_kept() {
    let mut sample = Sample::new("sorting");
    let each = sample.first("rb_ary_each");
    sample.native.frames.truncate(each + 1);
    sample.native.is_complete = false;
    let text = sample.text(&["rb_ary_each"]);
    assert_eq!(text[2..5], ["block in Object#sorting", "rb_ary_each", "truncated"]);
    assert_eq!(text.len(), 10);
}

#[test]
fn frames_that_are_not_all_copied_end_the_stack() {
    let mut sample = Sample::new("blocks");
    sample.ruby.set_most(5);
    sample.copies = copies(&sample.ruby, thread("blocks"), &sample.memory);
    let (places, unmatched) = sample.places();
    assert_eq!((places.last(), unmatched), (Some(&Place::Truncated), 0));
    let evaluation = sample.first(EVALUATION);
    let native: Vec<Place> = (0..evaluation).map(Place::Native).collect();
    assert_eq!(places[..evaluation], native);
    let expected = [
        "Thread::Queue#pop",
        "Object#wait",
        // Their method, which has the class, was not copied.
        "block (2 levels) in blocks",
        "Array#each",
        "block in blocks",
        "truncated",
    ];
    assert_eq!(sample.text(&[]), expected);
    // The innermost evaluation is beyond a truncated native stack.
    sample.native.frames.truncate(3);
    sample.native.is_complete = false;
    let truncated = [&["truncated"], &expected[..]].concat();
    assert_eq!(sample.text(&[]), truncated);
    sample.native.is_complete = true;
    assert_eq!(sample.merge(), Merge::Mismatch);
}

#[test]
fn an_evaluation_that_has_left_its_frames_is_native() {
    let mut sample = Sample::new("blocks");
    // Of the first evaluation are `pop`, `wait` and a block.
    sample.drop_frames(3);
    let (places, unmatched) = sample.places();
    assert_eq!(unmatched, 1);
    let evaluation = sample.first(EVALUATION);
    assert_eq!(places[evaluation], Place::Native(evaluation));
    assert_eq!(sample.text(&["rb_ary_each"])[..2], ["rb_ary_each", "Array#each"]);
}

#[test]
fn a_frame_whose_evaluation_has_not_begun_is_not_shown() {
    let mut sample = Sample::new("blocks");
    sample.drop_frames(2);
    // Its tag, and its native frames.
    sample.drop_native(sample.first("rb_yield"));
    let tag = sample.copies[1].frames(&sample.ruby.walks[1]).nth(1).unwrap().address;
    let inner = sample.copies[1].frames(&sample.ruby.walks[1]);
    let is_inner = |frame: &crate::walk::Frame| frame.address < sample.native.frames[0].stack.start;
    let dropped = inner.take_while(is_inner).count();
    assert!(dropped > 0 && tag > 0);
    let size = sample.ruby.walks[1].frame_size();
    let first = sample.copies[1].frames(&sample.ruby.walks[1]).nth(dropped).unwrap().address;
    sample.copies[1].bytes.drain(..dropped * size);
    sample.copies[1].first = first;
    let text = sample.text(&["rb_yield", "rb_ary_each"]);
    assert_eq!(text[..3], ["rb_yield", "rb_ary_each", "Array#each"]);
    assert_eq!(sample.places().1, 0);
    // With two frames, it has begun: something is wrong.
    let mut sample = Sample::new("blocks");
    sample.copies[1].bytes.drain(..dropped * size);
    sample.copies[1].first = first;
    assert_eq!(sample.merge(), Merge::Mismatch);
}

#[test]
fn an_inner_c_function_is_not_shown_as_caller_of_code_that_may_not_be_its() {
    let mut sample = Sample::new("sorting");
    // As if `each` were called by a C extension, or were one.
    let each = sample.first("rb_ary_each");
    sample.native.frames[each].address = 0x1000;
    let text = sample.text(&["rb_ary_each"]);
    let expected =
        ["block in Object#sorting", "rb_ary_each", "Enumerable#sort_by", "Object#sorting"];
    assert_eq!(text[2..6], expected);
}
