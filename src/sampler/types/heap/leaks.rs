//! Leaks: memory that was never freed when its process ended, unless pointers led to it when the
//! process exited.

use rustc_hash::FxHashMap;

use super::exits::ExitFindings;
use super::model::{AllocationSite, HeapSum, Live};
use heap::leaks::Verdict;
use messages::{Amount, Message, UncheckedLeaks};
use profile::{Builder, Column, Label, LabelSetId, LabelValue, StackId, StackTable};

/// The label of listed memory.
const LABEL: &str = profile::label::LEAK;

/// The kinds of listed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Leak {
    /// No pointer led to it.
    Lost,
    /// Pointers led to it only from memory that may not be in use.
    PossiblyLost,
    /// It was not checked.
    Unchecked,
}

impl Leak {
    /// The label's value.
    fn name(self) -> &'static str {
        match self {
            Leak::Lost => "lost",
            Leak::PossiblyLost => "perhaps",
            Leak::Unchecked => "unchecked",
        }
    }
}

/// The leaks of a recording.
#[derive(Default)]
pub struct Leaks {
    /// Results of processes that have called `exit` and still exist.
    results: FxHashMap<i32, ExitFindings>,
    by_row: FxHashMap<(u32, Leak), HeapSum>,
    reachable: HeapSum,
    possibly_lost: HeapSum,
    /// Number of unchecked processes and their memory, by reason.
    unchecked: FxHashMap<UncheckedLeaks, (u64, HeapSum)>,
}

impl Leaks {
    /// Stores the result of a process that exits.
    pub fn exits(&mut self, pid: i32, results: ExitFindings) {
        self.results.insert(pid, results);
    }

    /// Adds the memory that a process had in use (`left`, by ID, each with the number of
    /// allocations it represents) when it ended, or when the recording did and it was `running`.
    pub fn ended(&mut self, pid: i32, running: bool, left: &[(u64, Live, f64)]) {
        let results = self.results.remove(&pid);
        let why = match &results {
            Some(Err(why)) => UncheckedLeaks::Failed(why.clone()),
            None if running => UncheckedLeaks::Running,
            // Allocated after the check.
            _ => UncheckedLeaks::Ended,
        };
        let mut unchecked = HeapSum::default();
        for &(id, Live { row, size, .. }, weight) in left {
            let verdict = results.as_ref().and_then(|results| results.as_ref().ok()?.get(&id));
            let leak = match verdict {
                Some(Verdict::Reachable) => {
                    self.reachable.add(size, weight);
                    continue;
                }
                Some(Verdict::PossiblyLost) => {
                    self.possibly_lost.add(size, weight);
                    Leak::PossiblyLost
                }
                Some(Verdict::Lost) => Leak::Lost,
                None => {
                    unchecked.add(size, weight);
                    Leak::Unchecked
                }
            };
            self.by_row.entry((row, leak)).or_default().add(size, weight);
        }
        if unchecked != HeapSum::default() {
            let (processes, sum) = self.unchecked.entry(why).or_default();
            (*processes, *sum) = (*processes + 1, sum.and(unchecked));
        }
    }

    /// Writes all leaks to the profile, to this column and the next one; returns notes for the
    /// user.
    pub fn finish(
        &mut self,
        first: Column,
        rows: &[AllocationSite],
        stacks: &StackTable,
        builder: &mut Builder,
    ) -> Vec<Message> {
        let notes = self.notes();
        let mut all: Vec<((u32, Leak), HeapSum)> =
            std::mem::take(&mut self.by_row).into_iter().collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        for ((row, leak), HeapSum { objects, bytes }) in all {
            let labels = labelled(builder, rows[row as usize].labels, leak);
            let second = Column(first.0 + 1);
            let values = [(first, objects.round() as i64), (second, bytes.round() as i64)];
            builder.add_stack(stacks.get(StackId(row)), None, labels, 0, &values);
        }
        notes
    }

    fn notes(&self) -> Vec<Message> {
        let mut notes = Vec::new();
        if self.reachable.objects > 0.0 {
            notes.push(Message::Reachable { amount: amount(self.reachable) });
        }
        if self.possibly_lost.objects > 0.0 {
            notes.push(Message::PossiblyLost { amount: amount(self.possibly_lost) });
        }
        let mut unchecked: Vec<_> = self.unchecked.iter().collect();
        unchecked.sort_unstable_by_key(|(why, _)| *why);
        notes.extend(unchecked.into_iter().map(|(why, &(processes, sum))| {
            Message::LeaksUnchecked { why: why.clone(), processes, amount: amount(sum) }
        }));
        notes
    }
}

/// These labels, with the kind of leak.
fn labelled(builder: &mut Builder, labels: LabelSetId, leak: Leak) -> LabelSetId {
    let profile = &mut builder.profile;
    let mut set = profile.labels.get(labels).to_vec();
    let key = profile.strings.intern(LABEL);
    set.push(Label { key, value: LabelValue::Str(profile.strings.intern(leak.name())) });
    profile.labels.intern(&set)
}

/// The amount as text.
fn amount(HeapSum { objects, bytes }: HeapSum) -> Amount {
    Amount { objects, bytes }
}
