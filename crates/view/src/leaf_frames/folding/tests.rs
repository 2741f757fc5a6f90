use super::*;
use crate::query::{self, Order, Query, Rows, Shown, Table};
use crate::testing::{functions as location, mapping};
use crate::{Part, answer};
use profile::{Builder, Column, Label, LabelSetId, LabelValue, MappingId, Truncation};
use std::sync::Arc;

/// A profile of one sample type, with stacks of `k:` kernel functions and others, leaf first. A `+`
/// joins functions of one address.
struct Stacks {
    builder: Builder,
    kernel: MappingId,
    program: MappingId,
    next: u64,
}

impl Stacks {
    fn new(kind: &str) -> Stacks {
        let mut builder = Builder::new(&[(kind, "nanoseconds")]);
        let kernel = mapping(&mut builder, "[kernel.kallsyms]", 0x1000);
        let program = mapping(&mut builder, "/usr/bin/app", 0x20000);
        Stacks { builder, kernel, program, next: 0 }
    }

    fn location(&mut self, name: &str) -> LocationId {
        self.next += 1;
        if name == "[truncated]" {
            return self.builder.truncation(Truncation::NoUnwindInfo);
        }
        let names = name.trim_start_matches("k:").split(" + ");
        let lines: Vec<(&str, &str, i64)> = names.map(|name| (name, "a.c", 1)).collect();
        let (mapping, start) =
            if name.starts_with("k:") { (self.kernel, 0x1000) } else { (self.program, 0x20000) };
        location(&mut self.builder, Some(mapping), start + self.next, &lines)
    }

    fn add(&mut self, stack: &[&str]) {
        let stack: Vec<LocationId> = stack.iter().map(|name| self.location(name)).collect();
        self.builder.add(&stack, LabelSetId::EMPTY, 0, &[(Column(0), 1)]);
    }
}

/// The leaf frames of a sample type of this kind.
fn leaf_frames(kind: &str) -> LeafFrames {
    match kind {
        "wall" => LeafFrames::Scheduler,
        "contentions" | "delay" => LeafFrames::Locks(LockRole::Waits),
        "holder_delay" => LeafFrames::Locks(LockRole::Releases),
        "io_delay" | "io_bytes" => LeafFrames::BlockLayer,
        _ => LeafFrames::Allocator,
    }
}

/// The functions of a stack of a sample type after folding, leaf first.
fn folded(kind: &str, stack: &[&str]) -> Vec<String> {
    let mut stacks = Stacks::new(kind);
    stacks.add(stack);
    let mut profile = stacks.builder.finish(None);
    let leaves = leaf_frames(kind);
    fold_leaf_frames(&mut profile, leaves, &[], &Cancel::default());
    names(&profile, 0)
}

fn names(profile: &Profile, sample: usize) -> Vec<String> {
    let stack = profile.stacks.get(profile.samples[sample].stack);
    let lines = stack.iter().flat_map(|&location| profile.lines_of(location));
    let name = |line: &profile::Line| profile.functions[line.function.0 as usize].name;
    lines.map(|line| profile.str(name(line)).to_owned()).collect()
}

#[test]
fn a_wait_belongs_to_the_function_that_waits() {
    let sleep = ["k:__schedule", "k:schedule", "k:do_nanosleep", "k:hrtimer_nanosleep", "main"];
    assert_eq!(folded("wall", &sleep), ["hrtimer_nanosleep", "main"]);
    let preempted = [
        "k:__schedule",
        "k:schedule",
        "k:irqentry_exit_to_user_mode",
        "k:asm_sysvec_apic_timer_interrupt",
        "work",
        "main",
    ];
    assert_eq!(folded("wall", &preempted), ["work", "main"]);
    // Inlined functions of one address.
    let inlined = ["k:__schedule + schedule", "k:schedule_timeout + pipe_wait", "main"];
    assert_eq!(folded("wall", &inlined), ["pipe_wait", "main"]);
    let interrupted = ["k:__schedule", "k:schedule", "k:do_notify_resume", "k:el0t_64_irq", "work"];
    assert_eq!(folded("wall", &interrupted), ["work"]);
    // The scheduler's own time is that of the scheduler, and so is that of a program's function with
    // such a name, and of one that takes a lock while it runs.
    for stack in [
        ["k:update_curr", "k:schedule", "main"],
        ["schedule", "yield", "main"],
        ["k:mutex_lock", "k:ext4_sync", "main"],
    ] {
        assert_eq!(folded("wall", &stack), stack.map(|name| name.trim_start_matches("k:")));
    }
}

#[test]
fn no_stack_loses_its_last_frame() {
    assert_eq!(folded("wall", &["k:__schedule", "k:schedule"]), ["schedule"]);
    assert_eq!(folded("alloc_space", &["malloc"]), ["malloc"]);
    // What was not recorded is no caller.
    let cut = ["malloc", "xmalloc", "[truncated]"];
    let kept = folded("alloc_space", &cut);
    assert_eq!(kept[0], "xmalloc");
    assert_eq!(kept.len(), 2);
}

#[test]
fn a_lock_belongs_to_its_caller() {
    let wait = ["k:__schedule", "k:futex_do_wait", "k:do_futex", "k:__x64_sys_futex"];
    let entry = ["k:do_syscall_64", "k:entry_SYSCALL_64_after_hwframe"];
    let within = |rest: &[&str]| folded("delay", &[&wait[..], &entry[..], rest].concat());
    let mutex = ["__lll_lock_wait", "pthread_mutex_lock", "std::mutex::lock()", "push", "main"];
    assert_eq!(within(&mutex), ["push", "main"]);
    // A lock that is made of a condition variable, and one that is made of a semaphore.
    let gil = ["futex_abstimed_wait", "pthread_cond_timedwait", "take_gil", "PyEval_RestoreThread"];
    assert_eq!(within(&gil), ["PyEval_RestoreThread"]);
    let python = ["do_futex_wait", "__new_sem_wait_slow64", "PyThread_acquire_lock_timed", "lock"];
    assert_eq!(within(&python), ["lock"]);
    let rust = [
        "syscall",
        "std::sys::pal::unix::futex::futex_wait",
        "std::sys::sync::mutex::futex::Mutex::lock_contended",
        "std::sync::poison::mutex::Mutex<T>::lock",
        "take",
    ];
    assert_eq!(within(&rust), ["take"]);
    // Nothing on the stack decides, and no lock further out does.
    for stack in [
        ["syscall", "my_lock", "insert", "main._omp_fn.0", "gomp_thread_start"],
        ["syscall", "my_lock", "load", "std::sync::once::Once::call_once", "main"],
        ["futex_wait", "crypto::nonce::Sequence::advance", "seal", "run", "main"],
        ["pthread_cond_wait", "wait_for_work", "a", "b", "main"],
    ] {
        assert_eq!(within(&stack), stack);
    }
    // A lock of the kernel.
    let rwsem =
        ["k:__schedule", "k:rwsem_down_read_slowpath", "k:down_read", "k:do_user_addr_fault"];
    assert_eq!(folded("contentions", &rwsem), ["do_user_addr_fault"]);
    let spin = ["k:__pv_queued_spin_lock_slowpath", "k:_raw_spin_lock", "k:tick_update", "main"];
    assert_eq!(folded("contentions", &spin), ["tick_update", "main"]);
}

#[test]
fn a_request_belongs_to_the_caller_of_the_block_layer() {
    let write = [
        "k:blk_mq_start_request",
        "k:virtblk_prep_rq.isra.0",
        "k:virtio_queue_rq",
        "k:of_some_driver",
        "k:blk_mq_dispatch_rq_list",
        "k:blk_finish_plug",
        "k:ext4_do_writepages",
        "fsync",
    ];
    assert_eq!(folded("io_delay", &write), ["ext4_do_writepages", "fsync"]);
    // A thread that goes to sleep issues what it has collected.
    let sleeping = [
        "k:blk_mq_start_request",
        "k:__blk_flush_plug",
        "k:schedule",
        "k:io_schedule",
        "k:bit_wait_io",
        "k:__wait_on_bit",
        "k:jbd2_journal_commit_transaction",
        "k:kthread",
    ];
    assert_eq!(folded("io_delay", &sleeping)[0], "jbd2_journal_commit_transaction");
    // A file on a file system in a file.
    let nested =
        ["k:blk_mq_submit_bio", "k:ext4_read", "k:vfs_read", "k:f", "k:g", "k:h", "k:bio_x"];
    assert_eq!(folded("io_bytes", &nested)[0], "ext4_read");
}

#[test]
fn memory_belongs_to_the_first_function_of_the_program() {
    let string = ["malloc", "operator new(unsigned long)", "std::allocator<int>::allocate", "f"];
    assert_eq!(folded("inuse_space", &string), ["f"]);
    let inlined =
        ["malloc", "alloc::alloc::alloc + alloc::raw_vec::finish_grow + app::push", "main"];
    assert_eq!(folded("alloc_objects", &inlined), ["app::push", "main"]);
    let within = ["parse", "malloc", "main"];
    assert_eq!(folded("inuse_objects", &within), within);
}

/// The same location elsewhere keeps its inlined functions.
#[test]
fn a_location_loses_functions_only_where_it_is_a_leaf() {
    let mut stacks = Stacks::new("alloc_space");
    let [malloc, grow, main] =
        ["malloc", "xmalloc + grow", "main"].map(|name| stacks.location(name));
    let parse = stacks.location("parse");
    stacks.builder.add(&[malloc, grow, main], LabelSetId::EMPTY, 0, &[(Column(0), 1)]);
    stacks.builder.add(&[parse, grow, main], LabelSetId::EMPTY, 0, &[(Column(0), 1)]);
    let mut profile = stacks.builder.finish(None);
    assert!(fold_leaf_frames(&mut profile, LeafFrames::Allocator, &[], &Cancel::default()));
    assert_eq!(names(&profile, 0), ["grow", "main"]);
    assert_eq!(names(&profile, 1), ["parse", "xmalloc", "grow", "main"]);
}

/// The number of samples is what confidence is computed from.
#[test]
fn samples_stay_apart() {
    let mut stacks = Stacks::new("alloc_space");
    let [malloc, calloc, main] = ["malloc", "calloc", "main"].map(|name| stacks.location(name));
    for leaf in [malloc, calloc] {
        stacks.builder.add(&[leaf, main], LabelSetId::EMPTY, 0, &[(Column(0), 1)]);
    }
    let mut profile = stacks.builder.finish(None);
    assert!(fold_leaf_frames(&mut profile, LeafFrames::Allocator, &[], &Cancel::default()));
    assert_eq!((profile.samples.len(), names(&profile, 1)), (2, vec!["main".to_owned()]));
}

/// Go's profiles of contention have the same kinds, and no labels of locks.
#[test]
fn locks_are_those_of_profiles_that_name_them() {
    let stack = ["runtime.unlock", "runtime.chansend", "main.main"];
    let profile = |key: &str| {
        let mut stacks = Stacks::new("delay");
        let locations: Vec<LocationId> = stack.iter().map(|name| stacks.location(name)).collect();
        let strings = &mut stacks.builder.profile.strings;
        let (key, value) = (strings.intern(key), LabelValue::Str(strings.intern("0x1")));
        let labels = stacks.builder.profile.labels.intern(&[Label { key, value }]);
        stacks.builder.add(&locations, labels, 0, &[(Column(0), 1)]);
        stacks.builder.finish(None)
    };
    let waits = LeafFrames::Locks(LockRole::Waits);
    assert_eq!(LeafFrames::for_type(&profile("lock"), 0), Some(waits));
    assert_eq!(LeafFrames::for_type(&profile("bytes"), 0), None);
    assert_eq!(LeafFrames::for_type(&profile("lock"), 1), None);
}

/// Names of a file are hostile.
#[test]
fn a_name_takes_a_time_in_proportion_to_its_length() {
    let name = format!("a::-{}{}", "<".repeat(2_000_000), "a".repeat(2_000_000));
    for kind in ["alloc_space", "delay"] {
        assert_eq!(folded(kind, &[&name, "main"]).len(), 2);
    }
}

#[test]
fn values_of_several_types_fold_what_all_of_them_fold() {
    let mut builder =
        Builder::new(&[("alloc_space", "bytes"), ("alloc_objects", "count"), ("cpu", "")]);
    let [malloc, main] = ["malloc", "main"].map(|name| builder.named_location(name));
    let values = [(Column(0), 8), (Column(1), 1), (Column(2), 5)];
    builder.add(&[malloc, main], LabelSetId::EMPTY, 0, &values);
    let profile = Arc::new(builder.finish(None));
    let folded = |types: &[usize]| {
        let mut table = Table::new(Rows::Functions, Order::by(query::Column::SelfValue));
        table.columns.types = types.to_vec();
        let query = Query { type_index: types[0], ..Query::new(Shown::Table(table)) };
        Part::new(profile.clone(), &query, &Cancel::default()).unwrap().folded
    };
    let mut ratio = Table::new(Rows::Functions, Order::by(query::Column::SelfValue));
    ratio.columns.types = vec![0];
    ratio.columns.quotients = vec![crate::Quotient { numerator: 0, denominator: 2 }];
    let query = Query::new(Shown::Table(ratio));
    assert_eq!(query.naming(&profile).folds, None);
    assert_eq!(folded(&[0, 1]), Some(LeafFrames::Allocator));
    assert_eq!(folded(&[0, 2]), None);
    assert_eq!(folded(&[2, 0]), None);
}

#[test]
fn views_of_a_named_function_have_all_frames() {
    let mut stacks = Stacks::new("wall");
    stacks.add(&["k:__schedule", "k:schedule", "k:pipe_read", "main"]);
    let profile = Arc::new(stacks.builder.finish(None));
    let part = |query: &Query| Part::new(profile.clone(), query, &Cancel::default()).unwrap();
    let table = Query::new(Shown::functions());
    assert_eq!(names(&part(&table).profile, 0), ["pipe_read", "main"]);
    assert_eq!(part(&table).folded, Some(LeafFrames::Scheduler));
    let whole = Query { folds_leaf_frames: false, ..table };
    assert_eq!((names(&part(&whole).profile, 0).len(), part(&whole).folded), (4, None));
    for shown in [Shown::Sandwich("schedule".to_owned()), Shown::Peek("schedule".to_owned())] {
        let query = Query::new(shown);
        assert_eq!(names(&part(&query).profile, 0).len(), 4);
        assert!(answer(profile.clone(), &query, &Cancel::default()).is_ok());
    }
    // Of a profile without such frames, nothing is said to be folded.
    let mut stacks = Stacks::new("wall");
    stacks.add(&["work", "main"]);
    let profile = Arc::new(stacks.builder.finish(None));
    let part = Part::new(profile, &Query::new(Shown::functions()), &Cancel::default()).unwrap();
    assert_eq!(part.folded, None);
}

#[test]
fn frames_of_labels_are_no_leaf_frames() {
    let mut stacks = Stacks::new("wall");
    let key = stacks.builder.profile.strings.intern("state");
    let value = LabelValue::Str(stacks.builder.profile.strings.intern("sleeping"));
    let labels = stacks.builder.profile.labels.intern(&[Label { key, value }]);
    let names = ["k:schedule", "k:pipe_read", "read", "main"];
    let stack: Vec<LocationId> = names.iter().map(|name| stacks.location(name)).collect();
    stacks.builder.add(&stack, labels, 0, &[(Column(0), 1)]);
    let profile = Arc::new(stacks.builder.finish(None));
    let tag = |condition| query::AddedFilter { condition, value: "state,none".to_owned() };
    for (condition, expected) in [
        (crate::Condition::TagLeaf, &["[no none]", "sleeping", "pipe_read", "read", "main"][..]),
        (crate::Condition::TagRoot, &["pipe_read", "read", "main", "[no none]", "sleeping"]),
    ] {
        let query = Query { filters: vec![tag(condition)], ..Query::new(Shown::functions()) };
        let part = Part::new(profile.clone(), &query, &Cancel::default()).unwrap();
        assert_eq!(part.folded, Some(LeafFrames::Scheduler));
        let profile = &*part.profile;
        let stack = profile.stacks.get(profile.samples[0].stack).iter();
        let name = |&id: &LocationId| {
            let line = profile.lines_of(id)[0];
            profile.str(profile.functions[line.function.0 as usize].name)
        };
        assert_eq!(stack.map(name).collect::<Vec<_>>(), expected);
    }
}
