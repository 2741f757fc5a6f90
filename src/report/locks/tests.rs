use super::*;
use profile::{Builder, Column, Mapping};

const LOCK: Option<WaitRule> = Some(WaitRule::Lock("mutex"));

fn waits(name: &str) -> Option<WaitRule> {
    rules::find(name, LockRole::Waits)
}

#[test]
fn functions_of_libraries_have_rules() {
    for name in ["__GI___lll_lock_wait", "___pthread_mutex_lock", "__pthread_mutex_cond_lock"] {
        assert_eq!(waits(name), LOCK, "{name}");
    }
    assert_eq!(waits("std::sys::sync::mutex::futex::Mutex::lock_contended"), LOCK);
    assert_eq!(waits("<std::sys::sync::mutex::futex::Mutex>::lock_contended"), LOCK);
    assert_eq!(waits("core::ops::function::FnOnce::call_once"), None);
    assert_eq!(waits("parking_lot::raw_mutex::RawMutex::lock_slow"), LOCK);
    assert_eq!(waits("runtime.lock2"), LOCK);
    assert_eq!(waits("__pthread_rwlock_rdlock_full64"), Some(WaitRule::Lock("rwlock")));
    let other = |name| match waits(name) {
        Some(WaitRule::Other(what)) => what,
        rule => panic!("{name}: {rule:?}"),
    };
    assert_eq!(waits("g_mutex_lock_slowpath"), LOCK);
    assert_eq!(other("g_cond_wait_until"), "condition variables");
    assert_eq!(other("tbb::detail::r1::rml::private_worker::run"), "parked threads");
    assert_eq!(other("___pthread_cond_wait"), "condition variables");
    assert_eq!(other("__pthread_clockjoin_ex"), "joins");
    assert_eq!(other("runtime.notesleep"), "parked threads");
    assert_eq!(other("<std::thread::thread::Thread>::park_timeout"), "parked threads");
    assert_eq!(
        other("<std::sync::mpmc::list::Channel<Condvar::X>>::recv::{closure#1}"),
        "channels"
    );
    // parking_lot's own parker decides nothing; another one does.
    assert_eq!(waits("<parking_lot_core::thread_parker::imp::ThreadParker as X>::park"), None);
    assert_eq!(other("<std::sys::sync::thread_parking::futex::Parker>::park"), "parked threads");
    assert_eq!(other("parking_lot::condvar::Condvar::wait_until_internal"), "condition variables");
    assert_eq!(waits("work::<fn(u8) -> Condvar::X>::all"), None);
    for name in ["syscall", "futex_wait", "__futex_abstimed_wait_common64", "main", "", "_"] {
        assert_eq!(waits(name), None, "{name}");
    }
    // The releasing function is not the waiting one.
    assert_eq!(rules::find("__GI___pthread_mutex_unlock_usercnt", LockRole::Releases), LOCK);
    assert_eq!(waits("__new_sem_post"), None);
}

/// A profile of undecided waits with these stacks, innermost function first; each of 1 wait and 10
/// ns.
fn profile(stacks: &[&[&str]]) -> Profile {
    let mut builder = Builder::new(&[("contentions", "count"), ("delay", "nanoseconds")]);
    let strings = &mut builder.profile.strings;
    let label = Label {
        key: strings.intern("kind"),
        value: LabelValue::Str(strings.intern(label::UNKNOWN_WAIT)),
    };
    let labels = builder.profile.labels.intern(&[label]);
    for stack in stacks {
        let stack: Vec<_> = stack.iter().map(|name| builder.named_location(name)).collect();
        builder.add(&stack, labels, 0, &[(Column(0), 1), (Column(1), 10)]);
    }
    builder.finish(None)
}

fn kinds(profile: &Profile) -> Vec<&str> {
    let key = profile.strings.find("kind").unwrap();
    let kind = |sample: &SampleRow| match profile.labels.value(sample.labels, key) {
        Some(LabelValue::Str(kind)) => profile.str(kind),
        other => panic!("{other:?}"),
    };
    profile.samples.iter().map(kind).collect()
}

#[test]
fn the_innermost_function_decides_and_other_waits_are_counted() {
    let mut p = profile(&[
        &["futex_wait", "__lll_lock_wait", "pthread_mutex_lock", "work", "main"],
        &["futex", "pthread_cond_wait", "idle", "main"],
        // The mutex of a condition variable, after a signal.
        &["futex_wait", "__lll_lock_wait", "__pthread_mutex_cond_lock", "pthread_cond_wait"],
        &["pthread_cond_wait", "PlatformEvent::park", "ObjectMonitor::EnterI", "Monitor::enter"],
        &["pthread_cond_wait", "PlatformEvent::park", "ObjectMonitor::wait"],
        &["__new_sem_wait_slow64", "PosixSemaphore::wait", "GangWorker::loop"],
        &["__new_sem_wait_slow64", "enough_room", "main"],
        &["syscall", "own_lock", "main"],
    ]);
    let waits = classify(&mut p);
    assert_eq!(waits.left_out, [("condition variables", 2, 20), ("parked threads", 1, 10)]);
    assert_eq!(waits.unknown, (1, 10));
    assert_eq!(kinds(&p), ["mutex", "mutex", "monitor", "semaphore", "unknown"]);
    assert_eq!((p.total(0), p.total(1)), (5, 50));
    assert!(p.comments.iter().any(|&c| p.str(c) == "waits-left-out: condition variables: 2"));
    // A second run changes nothing.
    assert_eq!(classify(&mut p).left_out, []);
    assert_eq!((kinds(&p).len(), p.comments.len()), (5, 2));
    let sentences = waits.sentences().join("\n");
    assert!(
        sentences.contains("2 at condition variables") && sentences.contains("1 waits"),
        "{sentences}"
    );
}

/// A stripped Python has no names of the functions that take its global lock.
#[test]
fn a_condition_variable_of_python_is_its_global_lock() {
    let mut builder = Builder::new(&[("contentions", "count"), ("delay", "nanoseconds")]);
    let strings = &mut builder.profile.strings;
    let label = Label {
        key: strings.intern("kind"),
        value: LabelValue::Str(strings.intern(label::UNKNOWN_WAIT)),
    };
    let labels = builder.profile.labels.intern(&[label]);
    let [python, module] = [0, 1].map(|_| Some(builder.add_mapping(Default::default())));
    let waits = builder.named_location("pthread_cond_timedwait");
    let common = builder.named_location("__pthread_cond_wait_common");
    let restores = builder.named_location_in("PyEval_RestoreThread", python);
    let calls = builder.named_location_in("_PyEval_EvalFrameDefault", python);
    let other = builder.named_location_in("PyObject_Vectorcall", python);
    let file = builder.profile.strings.intern(Language::Python.mapping());
    let functions = Some(builder.add_mapping(Mapping { file, ..Mapping::default() }));
    let function = builder.named_location_in("Worker.run", functions);
    let [first, second, modules] =
        [(1, python), (2, python), (3, module)].map(|(at, mapping)| builder.location(mapping, at));
    for (stack, delay) in [
        (vec![common, waits, first, second, restores, calls], 1),
        (vec![waits, first, calls], 2),
        // A function of its program lies before the frame that executes it.
        (vec![waits, first, function, calls], 64),
        // A module's own, or behind another function.
        (vec![waits, modules, calls], 4),
        (vec![waits, modules, first, calls], 8),
        (vec![waits, first, other, calls], 16),
        (vec![waits, first], 32),
    ] {
        builder.add(&stack, labels, 0, &[(Column(0), 1), (Column(1), delay)]);
    }
    let mut p = builder.finish(None);
    assert_eq!(classify(&mut p).left_out, [("condition variables", 4, 60)]);
    assert_eq!((kinds(&p), p.total(1)), (vec!["gil", "gil", "gil"], 67));
}

/// Go's own profiles have the same sample types.
#[test]
fn profiles_of_others_stay_as_they_are() {
    let mut builder = Builder::new(&[("contentions", "count"), ("delay", "nanoseconds")]);
    let wait = builder.named_location("pthread_cond_wait");
    builder.add(&[wait], LabelSetId::EMPTY, 0, &[(Column(0), 1), (Column(1), 10)]);
    let mut p = builder.finish(None);
    assert_eq!(classify(&mut p), LockWaits::default());
    assert_eq!(p.total(1), 10);
}
