//! Waits of kernel threads for work: each idle one adds the whole time of the recording to the waits
//! of programs.

use profile::{LocationId, Profile, ThreadState, label};

use super::binaries::KernelMappings;
use super::filter::{edit, keep_figures};

/// The outermost functions of kernel threads.
const ENTRIES: [&str; 2] = ["ret_from_fork", "ret_from_fork_asm"];

/// Leaves out the time in which kernel threads sleep. To wait for a disk or a lock, they do not sleep
/// in the way that counts as idle: they have another state.
///
/// Returns the sums by sample type of what is left out; none if there is no such time, or nothing
/// else.
pub fn leave_out_idle(profile: &mut Profile) -> Vec<i64> {
    let sleeping = sleeping_sets(profile);
    if !sleeping.contains(&true) {
        return Vec::new();
    }
    let kernel = KernelMappings::new(profile);
    let mut known: Vec<Option<bool>> = vec![None; profile.stacks.len()];
    let is_idle: Vec<bool> = profile
        .samples
        .iter()
        .map(|sample| {
            sleeping[sample.labels.0 as usize]
                && *known[sample.stack.0 as usize].get_or_insert_with(|| {
                    is_of_kernel_thread(profile, &kernel, profile.stacks.get(sample.stack))
                })
        })
        .collect();
    if !is_idle.contains(&true) || !is_idle.contains(&false) {
        return Vec::new();
    }
    keep_figures(profile);
    let width = profile.sample_types.len().max(1);
    let mut sums = vec![0_i64; width];
    for (values, _) in profile.values.chunks_exact(width).zip(&is_idle).filter(|(_, idle)| **idle) {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.saturating_add(*value));
    }
    edit::retain(profile, |sample| {
        let stack_is_idle = known[sample.stack.0 as usize];
        !(sleeping[sample.labels.0 as usize] && stack_is_idle == Some(true))
    });
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

/// True if a stack has frames of the kernel only, from the entry of a thread on. Frames that are no
/// code, such as values of labels, do not count.
fn is_of_kernel_thread(profile: &Profile, kernel: &KernelMappings, stack: &[LocationId]) -> bool {
    let location = |id: &LocationId| &profile.locations[id.0 as usize];
    let is_code = |id: &&LocationId| location(id).mapping.is_some() || location(id).address != 0;
    let Some(outermost) = stack.iter().rev().find(is_code) else { return false };
    let is_entry = profile.lines_of(*outermost).last().is_some_and(|line| {
        let function = &profile.functions[line.function.0 as usize];
        ENTRIES.contains(&profile.str(function.name))
    });
    is_entry && stack.iter().filter(is_code).all(|id| kernel.has(location(id)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::query::{AddedFilter, Query, Rows, Shown};
    use crate::testing::{functions, mapping};
    use crate::{Cancel, Condition, Direction, answer};
    use profile::{Builder, Column, Label, LabelValue};

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
        for shown in [Shown::table(Rows::Label("state".to_owned())), Shown::Tags] {
            assert_eq!(values(Query::new(shown)), [44, 0, 44]);
        }
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
