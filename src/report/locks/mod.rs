//! Classifies waits by the functions on their stacks, once these are symbolized: lock waits or
//! others.
//!
//! To the kernel, waiting for a mutex and waiting for work look alike. The innermost listed
//! function ([`view::lock_functions`]) decides; a condition variable within a virtual machine's lock
//! counts as that lock. Waits for anything but locks are removed from the profile and counted in a comment;
//! undecided waits keep the kind `unknown`, and are classified again when more functions are named.

use rustc_hash::FxHashMap;

use profile::{
    FunctionId, Label, LabelSetId, LabelValue, Language, Line, LocationId, Profile, SampleRow,
    StackId, StrId, TimesId, comment, label,
};
use view::lock_functions::{self as rules, LockRole, WaitRule};

/// Number of functions that are searched, from the innermost on: those of a lock's implementation.
const DEPTH: usize = 24;

/// Result of the classification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockWaits {
    /// Removed waits by kind, with their number and total time (in nanoseconds).
    pub left_out: Vec<(&'static str, i64, i64)>,
    /// Number and total time of undecided waits.
    pub unknown: (i64, i64),
}

/// Classifies the undecided waits of a profile that have names.
pub fn classify(profile: &mut Profile) -> LockWaits {
    let mut waits = LockWaits::default();
    let Some(columns) = WaitColumns::find(profile) else { return waits };
    let mut classifier =
        Classifier { profile, rules: FxHashMap::default(), decided_rules: FxHashMap::default() };
    let width = classifier.profile.sample_types.len();
    let samples = std::mem::take(&mut classifier.profile.samples);
    let values = std::mem::take(&mut classifier.profile.values);
    let mut kept: Vec<SampleRow> = Vec::with_capacity(samples.len());
    let mut kept_values: Vec<i64> = Vec::with_capacity(values.len());
    let mut changed: FxHashMap<(StackId, LabelSetId), usize> = FxHashMap::default();
    for (sample, row) in samples.iter().zip(values.chunks_exact(width.max(1))) {
        let Some(place) = columns.provisional(classifier.profile, sample.labels) else {
            kept.push(*sample);
            kept_values.extend(row);
            continue;
        };
        let role = columns.role(row);
        let kind = match classifier.rule(sample.stack, role) {
            Some(WaitRule::Other(what)) => {
                if role == LockRole::Waits {
                    waits.leave_out(what, row[columns.count], row[columns.delay]);
                }
                continue;
            }
            Some(WaitRule::Lock(kind)) => kind,
            None => {
                waits.unknown.0 += row[columns.count];
                waits.unknown.1 += row[columns.delay];
                kept.push(*sample);
                kept_values.extend(row);
                continue;
            }
        };
        let labels = relabel(classifier.profile, sample.labels, place, kind);
        if sample.times != TimesId::NONE {
            kept.push(SampleRow { labels, ..*sample });
            kept_values.extend(row);
            continue;
        }
        // Waits of different kinds may be equal now.
        let at = *changed.entry((sample.stack, labels)).or_insert(kept.len());
        if at == kept.len() {
            kept.push(SampleRow { labels, ..*sample });
            kept_values.extend(row);
        } else {
            let sum = &mut kept_values[at * width..(at + 1) * width];
            sum.iter_mut().zip(row).for_each(|(sum, v)| *sum = sum.saturating_add(*v));
        }
    }
    (profile.samples, profile.values) = (kept, kept_values);
    waits.comment(profile);
    waits
}

impl LockWaits {
    fn leave_out(&mut self, what: &'static str, count: i64, delay: i64) {
        match self.left_out.iter_mut().find(|(other, ..)| *other == what) {
            Some(entry) => (entry.1, entry.2) = (entry.1 + count, entry.2 + delay),
            None => self.left_out.push((what, count, delay)),
        }
    }

    /// Counts the removed waits in the profile's comments.
    fn comment(&self, profile: &mut Profile) {
        for (what, count, _) in &self.left_out {
            let name = format!("{}: {what}: ", comment::WAITS_LEFT_OUT);
            let before = |id: &StrId| profile.str(*id).strip_prefix(&name)?.parse::<i64>().ok();
            let mut comments = profile.comments.iter().enumerate();
            let existing = comments.find_map(|(i, id)| Some((i, before(id)?)));
            let sum = existing.map_or(0, |(_, n)| n).saturating_add(*count);
            let comment = profile.strings.intern(&format!("{name}{sum}"));
            match existing {
                Some((at, _)) => profile.comments[at] = comment,
                None => profile.comments.push(comment),
            }
        }
    }

    /// Sentences for the user.
    pub fn sentences(&self) -> Vec<String> {
        let seconds = |nanos: i64| nanos as f64 / 1e9;
        let mut sentences = Vec::new();
        if !self.left_out.is_empty() {
            let list: Vec<String> = self
                .left_out
                .iter()
                .map(|&(what, n, nanos)| format!("{n} at {what} ({:.3} s)", seconds(nanos)))
                .collect();
            sentences
                .push(format!("waits that are not contention are left out: {}", list.join(", ")));
        }
        if self.unknown.0 > 0 {
            sentences.push(format!(
                "{} waits ({:.3} s) may be for locks or not: no function on their stacks decides \
                 (label kind={}; {} if the value waited for is that of a mutex)",
                self.unknown.0,
                seconds(self.unknown.1),
                label::UNKNOWN_WAIT,
                label::LIKELY_MUTEX
            ));
        }
        sentences
    }
}

/// Columns and labels of lock waits in the profile.
struct WaitColumns {
    count: usize,
    delay: usize,
    holder: Option<usize>,
    kind: StrId,
    /// Ids of [`label::UNKNOWN_WAIT`] and [`label::LIKELY_MUTEX`].
    provisional: [Option<StrId>; 2],
}

impl WaitColumns {
    fn find(profile: &Profile) -> Option<WaitColumns> {
        let count = profile.type_index("contentions/count")?;
        let delay = profile.type_index("delay/nanoseconds")?;
        let holder = profile.type_index("holder_contentions/count");
        let provisional =
            [label::UNKNOWN_WAIT, label::LIKELY_MUTEX].map(|text| profile.strings.find(text));
        Some(WaitColumns {
            count,
            delay,
            holder,
            kind: profile.strings.find(label::KIND)?,
            provisional,
        })
    }

    /// Index of the label with the kind, for undecided waits.
    fn provisional(&self, profile: &Profile, labels: LabelSetId) -> Option<usize> {
        let is_it = |label: &Label| match label.value {
            LabelValue::Str(value) => {
                label.key == self.kind && self.provisional.contains(&Some(value))
            }
            LabelValue::Num { .. } => false,
        };
        profile.labels.get(labels).iter().position(is_it)
    }

    fn role(&self, row: &[i64]) -> LockRole {
        let holds = self.holder.is_some_and(|holder| row[holder] != 0);
        if holds && row[self.count] == 0 { LockRole::Releases } else { LockRole::Waits }
    }
}

fn relabel(profile: &mut Profile, labels: LabelSetId, place: usize, kind: &str) -> LabelSetId {
    let mut set = profile.labels.get(labels).to_vec();
    set[place].value = LabelValue::Str(profile.strings.intern(kind));
    profile.labels.intern(&set)
}

struct Classifier<'p> {
    profile: &'p mut Profile,
    rules: FxHashMap<(FunctionId, LockRole), FunctionRules>,
    decided_rules: FxHashMap<(StackId, LockRole), Option<WaitRule>>,
}

/// Rules for a function: on its own; behind a condition variable; behind a semaphore.
type FunctionRules = [Option<WaitRule>; 3];

impl Classifier<'_> {
    fn rule(&mut self, stack: StackId, role: LockRole) -> Option<WaitRule> {
        if let Some(&rule) = self.decided_rules.get(&(stack, role)) {
            return rule;
        }
        let Profile { stacks, functions, strings, .. } = &*self.profile;
        let rules = &mut self.rules;
        let mut found = |line: &Line| {
            *rules.entry((line.function, role)).or_insert_with(|| {
                let function = &functions[line.function.0 as usize];
                let name = strings.get(match function.name {
                    StrId::EMPTY => function.system_name,
                    name => name,
                });
                let behind = |semaphore| rules::behind(name, role, semaphore);
                [rules::find(name, role), behind(false), behind(true)]
            })
        };
        let lines = |&location: &LocationId| self.profile.lines_of(location).iter();
        let native = stacks.get(stack).iter().filter(|id| is_native(self.profile, **id));
        let mut lines = native.flat_map(lines).take(DEPTH);
        let mut decided = lines.by_ref().find_map(|line| found(line)[0]);
        let behind = match decided {
            Some(WaitRule::Other(_)) => Some(1),
            Some(rules::SEMAPHORE) => Some(2),
            _ => None,
        };
        if let Some(behind) = behind {
            decided = lines.find_map(|line| found(line)[behind]).or(decided);
        }
        if decided == Some(rules::CONDITION) && self.is_unnamed_gil(stack, role) {
            decided = Some(rules::GIL);
        }
        self.decided_rules.insert((stack, role), decided);
        decided
    }

    /// True if functions without names, of one binary, use a condition variable, and the first one
    /// with a name is of that binary and requests Python's global lock.
    fn is_unnamed_gil(&self, stack: StackId, role: LockRole) -> bool {
        let profile = &*self.profile;
        let name = |line: &Line| {
            let function = &profile.functions[line.function.0 as usize];
            profile.strings.get(function.name)
        };
        let stack =
            profile.stacks.get(stack).iter().filter(|id| is_native(profile, **id)).take(DEPTH);
        let is_condition = |&location: &&LocationId| {
            let lines = profile.lines_of(*location);
            lines.iter().any(|line| rules::find(name(line), role) == Some(rules::CONDITION))
        };
        let behind = stack.skip_while(|l| !is_condition(l)).skip_while(is_condition);
        let mut binary = None;
        for &location in behind {
            let mapping = profile.locations[location.0 as usize].mapping;
            if mapping.is_none() || *binary.get_or_insert(mapping) != mapping {
                return false;
            }
            if let Some(line) = profile.lines_of(location).first() {
                return rules::requests_the_gil(name(line));
            }
        }
        false
    }
}

/// False for functions of interpreted programs: native ones wait for locks.
fn is_native(profile: &Profile, location: LocationId) -> bool {
    let mapping = profile.locations[location.0 as usize].mapping;
    let mapping = mapping.and_then(|mapping| profile.mappings.get(mapping.0 as usize));
    mapping.is_none_or(|mapping| Language::in_mapping(profile, mapping).is_none())
}

#[cfg(test)]
mod tests;
