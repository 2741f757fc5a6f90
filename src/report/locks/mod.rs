//! Which waits are waits for locks: told by the functions that wait, once they have names.
//!
//! To the kernel, a thread that waits for a mutex and one that waits for work look alike. The
//! innermost function that is known (`rules`) decides; a condition variable that a virtual
//! machine's lock is made of is that lock. What is no lock is left out of the profile and counted
//! in a comment; what cannot be told stays, as of kind `unknown`, and is asked again when there
//! are more names.

mod rules;

use rustc_hash::FxHashMap;

use profile::{
    FunctionId, Label, LabelSetId, LabelValue, Line, LocationId, Profile, Sample, StackId, StrId,
    comment, label,
};
use rules::{Role, Rule};

/// Functions that are looked at, from the innermost one on: a lock's own.
const DEPTH: usize = 24;

/// What was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockWaits {
    /// What is no lock, with how often and how long (in nanoseconds) it was waited for.
    pub left_out: Vec<(&'static str, i64, i64)>,
    /// How often and how long it was waited for what is not known.
    pub unknown: (i64, i64),
}

/// Tells the waits of a profile apart, as far as they have not been and have names.
pub fn classify(profile: &mut Profile) -> LockWaits {
    let mut waits = LockWaits::default();
    let Some(columns) = Columns::of(profile) else { return waits };
    let mut teller = Teller { profile, rules: FxHashMap::default(), told: FxHashMap::default() };
    let width = teller.profile.sample_types.len();
    let samples = std::mem::take(&mut teller.profile.samples);
    let values = std::mem::take(&mut teller.profile.values);
    let mut kept: Vec<Sample> = Vec::with_capacity(samples.len());
    let mut kept_values: Vec<i64> = Vec::with_capacity(values.len());
    let mut changed: FxHashMap<(StackId, LabelSetId), usize> = FxHashMap::default();
    for (sample, row) in samples.iter().zip(values.chunks_exact(width.max(1))) {
        let Some(place) = columns.provisional(teller.profile, sample.labels) else {
            kept.push(*sample);
            kept_values.extend(row);
            continue;
        };
        let role = columns.role(row);
        let kind = match teller.rule(sample.stack, role) {
            Some(Rule::Other(what)) => {
                if role == Role::Waits {
                    waits.leave_out(what, row[columns.count], row[columns.delay]);
                }
                continue;
            }
            Some(Rule::Lock(kind)) => kind,
            None => {
                waits.unknown.0 += row[columns.count];
                waits.unknown.1 += row[columns.delay];
                kept.push(*sample);
                kept_values.extend(row);
                continue;
            }
        };
        let labels = relabel(teller.profile, sample.labels, place, kind);
        // What had different kinds may be one now.
        let at = *changed.entry((sample.stack, labels)).or_insert(kept.len());
        if at == kept.len() {
            kept.push(Sample { stack: sample.stack, labels });
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
        match self.left_out.iter_mut().find(|(known, ..)| *known == what) {
            Some(known) => (known.1, known.2) = (known.1 + count, known.2 + delay),
            None => self.left_out.push((what, count, delay)),
        }
    }

    /// Counts what was left out in the profile's comments.
    fn comment(&self, profile: &mut Profile) {
        for (what, count, _) in &self.left_out {
            let name = format!("{}: {what}: ", comment::WAITS_LEFT_OUT);
            let before = |id: &StrId| profile.str(*id).strip_prefix(&name)?.parse::<i64>().ok();
            let known = profile.comments.iter().enumerate();
            let known = known.into_iter().find_map(|(i, id)| Some((i, before(id)?)));
            let sum = known.map_or(0, |(_, n)| n).saturating_add(*count);
            let comment = profile.strings.intern(&format!("{name}{sum}"));
            match known {
                Some((at, _)) => profile.comments[at] = comment,
                None => profile.comments.push(comment),
            }
        }
    }

    /// Sentences for the user.
    pub fn sentences(&self) -> Vec<String> {
        let seconds = |nanos: i64| nanos as f64 / 1e9;
        let mut said = Vec::new();
        if !self.left_out.is_empty() {
            let list: Vec<String> = self
                .left_out
                .iter()
                .map(|&(what, n, nanos)| format!("{n} at {what} ({:.3} s)", seconds(nanos)))
                .collect();
            said.push(format!("waits that are no contention are left out: {}", list.join(", ")));
        }
        if self.unknown.0 > 0 {
            said.push(format!(
                "{} waits ({:.3} s) may be for locks or not: no function in their stacks tells \
                 (label kind={}; {} where the value waited for is a mutex's)",
                self.unknown.0,
                seconds(self.unknown.1),
                label::UNKNOWN_WAIT,
                label::LIKELY_MUTEX
            ));
        }
        said
    }
}

/// Where the profile has what.
struct Columns {
    count: usize,
    delay: usize,
    holder: Option<usize>,
    kind: StrId,
    /// [`label::UNKNOWN_WAIT`] and [`label::LIKELY_MUTEX`].
    provisional: [Option<StrId>; 2],
}

impl Columns {
    fn of(profile: &Profile) -> Option<Columns> {
        let count = profile.type_index("contentions/count")?;
        let delay = profile.type_index("delay/nanoseconds")?;
        let holder = profile.type_index("holder_contentions/count");
        let provisional =
            [label::UNKNOWN_WAIT, label::LIKELY_MUTEX].map(|text| profile.strings.find(text));
        Some(Columns {
            count,
            delay,
            holder,
            kind: profile.strings.find(label::KIND)?,
            provisional,
        })
    }

    /// Where among the labels the kind is, of what has still to be told.
    fn provisional(&self, profile: &Profile, labels: LabelSetId) -> Option<usize> {
        let is_it = |label: &Label| match label.value {
            LabelValue::Str(value) => {
                label.key == self.kind && self.provisional.contains(&Some(value))
            }
            LabelValue::Num { .. } => false,
        };
        profile.labels.get(labels).iter().position(is_it)
    }

    fn role(&self, row: &[i64]) -> Role {
        let holds = self.holder.is_some_and(|holder| row[holder] != 0);
        if holds && row[self.count] == 0 { Role::LetsGo } else { Role::Waits }
    }
}

fn relabel(profile: &mut Profile, labels: LabelSetId, place: usize, kind: &str) -> LabelSetId {
    let mut set = profile.labels.get(labels).to_vec();
    set[place].value = LabelValue::Str(profile.strings.intern(kind));
    profile.labels.intern(&set)
}

struct Teller<'p> {
    profile: &'p mut Profile,
    rules: FxHashMap<(FunctionId, Role), Found>,
    told: FxHashMap<(StackId, Role), Option<Rule>>,
}

/// What is known of a function; of one that is behind a condition variable; behind a semaphore.
type Found = [Option<Rule>; 3];

impl Teller<'_> {
    fn rule(&mut self, stack: StackId, role: Role) -> Option<Rule> {
        if let Some(&told) = self.told.get(&(stack, role)) {
            return told;
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
                [rules::of(name, role), behind(false), behind(true)]
            })
        };
        let lines = |&location: &LocationId| self.profile.lines_of(location).iter();
        let mut lines = stacks.get(stack).iter().flat_map(lines).take(DEPTH);
        let mut decided = lines.by_ref().find_map(|line| found(line)[0]);
        let behind = match decided {
            Some(Rule::Other(_)) => Some(1),
            Some(rules::SEMAPHORE) => Some(2),
            _ => None,
        };
        if let Some(behind) = behind {
            decided = lines.find_map(|line| found(line)[behind]).or(decided);
        }
        if decided == Some(rules::CONDITION) && self.is_nameless_gil(stack, role) {
            decided = Some(rules::GIL);
        }
        self.told.insert((stack, role), decided);
        decided
    }

    /// Functions without names, of one binary, use a condition variable, and the first with a name
    /// is one of that binary's that calls for Python's global lock.
    fn is_nameless_gil(&self, stack: StackId, role: Role) -> bool {
        let profile = &*self.profile;
        let name = |line: &Line| {
            let function = &profile.functions[line.function.0 as usize];
            profile.strings.get(function.name)
        };
        let stack = profile.stacks.get(stack).iter().take(DEPTH);
        let is_condition = |&location: &&LocationId| {
            let lines = profile.lines_of(*location);
            lines.iter().any(|line| rules::of(name(line), role) == Some(rules::CONDITION))
        };
        let behind = stack.skip_while(|l| !is_condition(l)).skip_while(is_condition);
        let mut binary = None;
        for &location in behind {
            let mapping = profile.locations[location.0 as usize].mapping;
            if mapping.is_none() || *binary.get_or_insert(mapping) != mapping {
                return false;
            }
            if let Some(line) = profile.lines_of(location).first() {
                return rules::calls_for_the_gil(name(line));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
