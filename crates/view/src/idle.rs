//! Waits of kernel threads for work: each idle one adds the whole time of the recording to the waits
//! of programs.

use profile::{LocationId, Profile, SampleRow, ThreadState, label};

use super::binaries::KernelMappings;
use super::filter::{edit, keep_figures};

/// The outermost functions of kernel threads.
const ENTRIES: [&str; 2] = ["ret_from_fork", "ret_from_fork_asm"];

/// The functions that run threads of the kernel's own. Those that work for a program (io_uring's,
/// vhost's) begin in `ret_from_fork`, too, but not with one of these.
const OWN: [&str; 2] = ["kthread", "kthreadd"];

/// Leaves out the time in which the kernel's own threads sleep. While they wait for a disk or a mutex,
/// they do not sleep: they have another state.
///
/// Returns the sums by sample type of what is left out; none if there is no such time, or if a
/// sample type would have no values.
pub fn leave_out_idle(profile: &mut Profile) -> Vec<i64> {
    let sleeping = sleeping_sets(profile);
    if !sleeping.contains(&true) {
        return Vec::new();
    }
    let kernel = KernelMappings::new(profile);
    // Of stacks that sleep; the others are not looked at.
    let mut kernel_threads: Vec<Option<bool>> = vec![None; profile.stacks.len()];
    for sample in profile.samples.iter().filter(|sample| sleeping[sample.labels.0 as usize]) {
        kernel_threads[sample.stack.0 as usize].get_or_insert_with(|| {
            is_of_kernel_thread(profile, &kernel, profile.stacks.get(sample.stack))
        });
    }
    let is_idle = |sample: SampleRow| {
        sleeping[sample.labels.0 as usize] && kernel_threads[sample.stack.0 as usize] == Some(true)
    };
    let width = profile.sample_types.len().max(1);
    let mut sums = vec![0_i64; width];
    let mut has_others = vec![false; width];
    let mut has_idle = false;
    for (values, &sample) in profile.values.chunks_exact(width).zip(&profile.samples) {
        if is_idle(sample) {
            has_idle = true;
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.saturating_add(*value));
        } else {
            has_others.iter_mut().zip(values).for_each(|(has, value)| *has |= *value != 0);
        }
    }
    let is_all = |(sum, has_others): (&i64, &bool)| *sum != 0 && !has_others;
    if !has_idle || sums.iter().zip(&has_others).any(is_all) {
        return Vec::new();
    }
    keep_figures(profile);
    edit::retain(profile, |sample| !is_idle(sample));
    sums
}

/// For each set of labels, true if it has the state of a sleeping thread.
fn sleeping_sets(profile: &Profile) -> Vec<bool> {
    let key = profile.strings.find(label::STATE);
    let value = profile.strings.find(ThreadState::Sleeping.name());
    let (Some(key), Some(value)) = (key, value) else { return Vec::new() };
    let wanted = profile::LabelValue::Str(value);
    let sets = (0..profile.labels.len() as u32).map(profile::LabelSetId);
    sets.map(|set| profile.labels.value(set, key) == Some(wanted)).collect()
}

/// True if a stack has frames of the kernel only, from the entry of one of its own threads on. Frames
/// that are no code, such as values of labels, do not count.
fn is_of_kernel_thread(profile: &Profile, kernel: &KernelMappings, stack: &[LocationId]) -> bool {
    let location = |id: &LocationId| &profile.locations[id.0 as usize];
    let is_code = |id: &&LocationId| location(id).mapping.is_some() || location(id).address != 0;
    let Some(outermost) = stack.iter().rev().find(is_code) else { return false };
    let is_any = |id: &LocationId, names: &[&str]| {
        profile.lines_of(*id).iter().any(|line| {
            let function = &profile.functions[line.function.0 as usize];
            names.contains(&profile.str(function.name))
        })
    };
    is_any(outermost, &ENTRIES)
        && stack.iter().any(|id| is_any(id, &OWN))
        && stack.iter().filter(is_code).all(|id| kernel.has(location(id)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::query::{AddedFilter, Query, Rows, Shown};
    use crate::testing::{functions, mapping};
    use crate::{Cancel, Condition, Direction, answer};
    use profile::{Builder, Column, Label, LabelValue};

    /// A thread of io_uring waits for the program that has it, and is not idle.
    #[test]
    fn kernel_threads_that_work_for_a_program_stay() {
        let mut b = Builder::new(&[("wall", "nanoseconds")]);
        let kernel = mapping(&mut b, "[kernel.kallsyms]", 0x1000);
        let [key, value] = ["state", "sleeping"].map(|text| b.profile.strings.intern(text));
        let labels = b.profile.labels.intern(&[Label { key, value: LabelValue::Str(value) }]);
        for (at, names) in [
            ["pipe_read", "io_wq_worker", "ret_from_fork"],
            ["worker_thread", "kthread", "ret_from_fork"],
        ]
        .iter()
        .enumerate()
        {
            let mut address = 0x1000 + 16 * at as u64;
            let locations: Vec<LocationId> = names
                .iter()
                .rev()
                .map(|name| {
                    address += 1;
                    functions(&mut b, Some(kernel), address, &[(name, "", 0)])
                })
                .collect();
            b.add_stack(&locations, None, labels, 0, &[(Column(0), 5)]);
        }
        let mut p = b.finish(None);
        assert_eq!(leave_out_idle(&mut p), [5]);
        assert_eq!((p.samples.len(), p.values.as_slice()), (1, &[5][..]));
    }

    /// A recording of a machine: 30 s of idle kernel threads, 5 s of one that waits for a disk and 2 s
    /// of one that runs, 7 s of a program that sleeps.
    fn machine() -> Profile {
        let mut b = Builder::new(&[("samples", "count"), ("wall", "nanoseconds")]);
        let kernel = mapping(&mut b, "[kernel.kallsyms]", 0x1000);
        let program = mapping(&mut b, "/usr/bin/app", 0x20000);
        let mut next = 0;
        let state = b.profile.strings.intern("state");
        for (name, stack, seconds) in [
            ("sleeping", &["schedule", "worker_thread", "kthread", "ret_from_fork"][..], 20),
            ("sleeping", &["schedule", "kthreadd", "ret_from_fork", "ret_from_fork_asm"], 10),
            ("disk", &["io_schedule", "kjournald2", "kthread", "ret_from_fork"], 5),
            ("running", &["process_one_work", "worker_thread", "kthread", "ret_from_fork"], 2),
            ("sleeping", &["schedule", "do_wait", "do_syscall_64", "app:wait", "app:main"], 4),
            ("sleeping", &["schedule", "do_wait", "do_syscall_64", "app:ret_from_fork"], 3),
        ] {
            let value = LabelValue::Str(b.profile.strings.intern(name));
            let labels = b.profile.labels.intern(&[Label { key: state, value }]);
            let locations: Vec<LocationId> = stack
                .iter()
                .map(|name| {
                    next += 1;
                    let (mapping, start, name) = match name.strip_prefix("app:") {
                        Some(name) => (program, 0x20000, name),
                        None => (kernel, 0x1000, *name),
                    };
                    functions(&mut b, Some(mapping), start + next, &[(name, "a.c", 1)])
                })
                .collect();
            b.add(&locations, labels, 0, &[(Column(0), 1), (Column(1), seconds)]);
        }
        b.finish(None)
    }

    /// The value that is kept, the one that is left out, and the total of a view.
    fn values(query: Query) -> [i64; 3] {
        let query = Query { type_index: 1, ..query };
        let answer = answer(Arc::new(machine()), &query, &Cancel::default()).unwrap();
        let view = answer.view();
        [view.kept_total, view.idle, view.total]
    }

    #[test]
    fn idle_kernel_threads_are_left_out_and_counted() {
        let mut profile = machine();
        assert_eq!(leave_out_idle(&mut profile), [2, 30]);
        assert_eq!((profile.samples.len(), profile.total(1)), (4, 14));
        assert_eq!(leave_out_idle(&mut profile), [0; 0]);
    }

    #[test]
    fn views_of_functions_leave_out_idle_kernel_threads() {
        for shown in
            [Shown::functions(), Shown::Tree(Direction::Callers), Shown::flame(Direction::Callees)]
        {
            assert_eq!(values(Query::new(shown.clone())), [14, 30, 44], "{shown:?}");
            let all = Query { folds_leaf_frames: false, ..Query::new(shown) };
            assert_eq!(values(all), [44, 0, 44]);
        }
        let by_state = Shown::table(Rows::Label("state".to_owned()));
        assert_eq!(values(Query::new(by_state)), [14, 30, 44]);
        assert_eq!(values(Query::new(Shown::Tags)), [44, 0, 44]);
    }

    #[test]
    fn frames_of_labels_change_nothing() {
        let tag = |condition| AddedFilter { condition, value: "state".to_owned() };
        let filters = vec![tag(Condition::TagRoot), tag(Condition::TagLeaf)];
        assert_eq!(values(Query { filters, ..Query::new(Shown::functions()) }), [14, 30, 44]);
    }

    #[test]
    fn a_filter_that_selects_nothing_else_shows_idle_kernel_threads() {
        let focus = AddedFilter { condition: Condition::Focus, value: "kthreadd".to_owned() };
        let query = Query { filters: vec![focus], ..Query::new(Shown::functions()) };
        assert_eq!(values(query), [10, 0, 44]);
    }
}
