//! What a written file lacks of a profile.

use std::collections::BTreeSet;

use profile::{LabelSetId, Profile, StrId, label};

use crate::samples::samples_column;
use crate::{Format, WriteOptions};

/// The sample types that a format holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldTypes {
    /// All.
    All,
    /// The chosen one.
    Chosen,
    /// The chosen one, and the numbers of samples if that is CPU time.
    ChosenWithSamples,
}

/// The labels that a format holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldLabels {
    /// All.
    All,
    /// Names and numbers of processes and threads.
    Threads,
    /// The names of processes, if there are several.
    Processes,
    /// None.
    None,
}

/// A part of profiles that some formats lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The calls of each sample, from the root to the leaf.
    Stacks,
    /// The times of samples.
    Times,
    /// Numbers of lines.
    Lines,
    /// The binaries of functions.
    Binaries,
}

/// What a format holds of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Its sample types.
    pub sample_types: HeldTypes,
    /// The labels of its samples.
    pub labels: HeldLabels,
    /// What the format lacks in addition.
    pub lacks: &'static [Part],
}

impl Contents {
    /// All of a profile.
    pub const ALL: Contents =
        Contents { sample_types: HeldTypes::All, labels: HeldLabels::All, lacks: &[] };
}

/// What a profile has and a file in some format lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Names of sample types with values.
    pub sample_types: Vec<String>,
    /// Keys of labels.
    pub labels: Vec<String>,
    /// Other parts.
    pub parts: Vec<Part>,
}

impl LeftOut {
    /// What a file of `format` lacks of a profile that is written with `options`.
    pub fn new(profile: &Profile, format: &dyn Format, options: &WriteOptions) -> LeftOut {
        let Contents { sample_types, labels, lacks } = format.contents();
        LeftOut {
            sample_types: types(profile, sample_types, options.type_index),
            labels: labels_beyond(profile, labels),
            parts: lacks.iter().copied().filter(|&part| has(profile, part)).collect(),
        }
    }

    /// True if the file has all of the profile.
    pub fn is_nothing(&self) -> bool {
        self.sample_types.is_empty() && self.labels.is_empty() && self.parts.is_empty()
    }
}

fn types(profile: &Profile, held: HeldTypes, chosen: usize) -> Vec<String> {
    let is_cpu = profile.sample_types.get(chosen).is_some_and(|chosen| {
        (profile.str(chosen.kind), profile.str(chosen.unit)) == ("cpu", "nanoseconds")
    });
    let samples = samples_column(profile);
    let is_held = |column: usize| match held {
        HeldTypes::All => true,
        HeldTypes::Chosen => column == chosen,
        HeldTypes::ChosenWithSamples => column == chosen || is_cpu && Some(column) == samples,
    };
    let has_values =
        |column: usize| (0..profile.samples.len()).any(|row| profile.values_of(row)[column] != 0);
    let names = profile.type_names().into_iter().enumerate();
    let lacking = names.filter(|(column, _)| !is_held(*column) && has_values(*column));
    lacking.map(|(_, name)| name.to_string()).collect()
}

fn labels_beyond(profile: &Profile, held: HeldLabels) -> Vec<String> {
    if held == HeldLabels::All {
        return Vec::new();
    }
    let sets: BTreeSet<u32> = profile.samples.iter().map(|sample| sample.labels.0).collect();
    let all = || sets.iter().flat_map(|&set| profile.labels.get(LabelSetId(set)));
    let keys: BTreeSet<StrId> = all().map(|label| label.key).collect();
    let process = profile.strings.find(label::PROCESS);
    let mut processes = all().filter(|label| Some(label.key) == process).map(|label| label.value);
    let first = processes.next();
    let has_processes = processes.any(|value| Some(value) != first);
    let is_held = |key: &str| match held {
        HeldLabels::All => true,
        HeldLabels::Threads => {
            [label::PID, label::TID, label::PROCESS, label::THREAD].contains(&key)
        }
        HeldLabels::Processes => key == label::PROCESS && has_processes,
        HeldLabels::None => false,
    };
    let mut lacking: Vec<String> = keys
        .into_iter()
        .map(|key| profile.str(key))
        .filter(|key| !is_held(key))
        .map(str::to_owned)
        .collect();
    lacking.sort_unstable();
    lacking
}

fn has(profile: &Profile, part: Part) -> bool {
    let stacks = || profile.samples.iter().map(|sample| profile.stacks.get(sample.stack));
    match part {
        Part::Stacks => stacks().any(|stack| stack.len() > 1),
        Part::Times => profile.times.lists() > 0,
        Part::Lines => profile.lines.iter().any(|line| line.line > 0),
        Part::Binaries => {
            let has_file = |id: profile::MappingId| {
                let mapping = &profile.mappings[id.0 as usize];
                mapping.file != StrId::EMPTY
            };
            profile.locations.iter().any(|location| location.mapping.is_some_and(has_file))
        }
    }
}

#[cfg(test)]
mod tests {
    use profile::{Builder, Column, Label, LabelValue};

    use super::*;
    use crate::FORMATS;

    /// A profile of two processes with two sample types and a state.
    fn two_types() -> Profile {
        let mut builder = Builder::new(&[("cpu", "nanoseconds"), ("samples", "count")]);
        let stack = ["work", "main"].map(|name| builder.named_location(name));
        for process in ["a", "b"] {
            let labels =
                [(label::PROCESS, process), (label::STATE, "running")].map(|(key, text)| {
                    let [key, text] = [key, text].map(|s| builder.profile.strings.intern(s));
                    Label { key, value: LabelValue::Str(text) }
                });
            let labels = builder.profile.labels.intern(&labels);
            builder.add(&stack, labels, 0, &[(Column(0), 1_000_000), (Column(1), 1)]);
        }
        builder.finish(None)
    }

    fn left_out(profile: &Profile, format: &str, type_index: usize) -> LeftOut {
        let format = FORMATS.iter().find(|known| known.name() == format).unwrap();
        LeftOut::new(profile, *format, &WriteOptions { type_index })
    }

    #[test]
    fn a_format_lacks_types_and_labels() {
        let profile = two_types();
        let names = |names: &[&str]| names.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let lacking = |types: &[&str], labels: &[&str], parts: &[Part]| LeftOut {
            sample_types: names(types),
            labels: names(labels),
            parts: parts.to_vec(),
        };
        let found = |format, type_index| left_out(&profile, format, type_index);
        assert_eq!(found("collapsed", 0), lacking(&["samples"], &["state"], &[]));
        assert_eq!(found("collapsed", 1), lacking(&["cpu"], &["state"], &[]));
        assert_eq!(found("speedscope", 0), lacking(&[], &["state"], &[]));
        assert_eq!(found("firefox", 0), lacking(&[], &["state"], &[]));
        assert_eq!(found("firefox", 1), lacking(&["cpu"], &["state"], &[]));
        assert_eq!(found("perf-script", 0), lacking(&[], &["state"], &[]));
        assert_eq!(found("callgrind", 0), lacking(&[], &["process", "state"], &[Part::Stacks]));
        for format in ["otlp", "otlp-json", "pprof"] {
            assert!(found(format, 0).is_nothing(), "{format}");
        }
    }
}
