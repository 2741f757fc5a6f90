//! Values with times: the profiles of a file have one sample type each, a sample of a recording has
//! values of several.

use profile::{LabelSetId, StackId};

use super::{CHECKED, Content};
use crate::assembly::{Assembly, ColumnValue, InternedSample};
use crate::error::ReadError;

/// A value at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Observation {
    pub stack: StackId,
    pub labels: LabelSetId,
    /// In microseconds since the start of the recording.
    pub time: u64,
    pub value: ColumnValue,
}

/// All values with times of a file.
#[derive(Default)]
pub(super) struct Observations(Vec<Observation>);

impl Observations {
    pub(super) fn add(&mut self, observation: Observation) {
        self.0.push(observation);
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.0.len() * size_of::<Observation>()) as u64
    }

    /// Adds them as samples: the first value of each type that a stack has at a time is one sample,
    /// and so are the second ones.
    pub(super) fn add_to(
        &mut self,
        all: &mut Assembly,
        content: &Content,
    ) -> Result<(), ReadError> {
        let bytes = self.bytes();
        self.0.sort_unstable();
        let same = |a: &Observation, b: &Observation| {
            (a.stack, a.labels, a.time) == (b.stack, b.labels, b.time)
        };
        let mut ordered: Vec<NumberedValue> = Vec::new();
        for (count, samples) in self.0.chunk_by(same).enumerate() {
            if count.is_multiple_of(CHECKED) {
                content.check(all, bytes)?;
            }
            ordered.clear();
            for values in samples.chunk_by(|a, b| a.value.column == b.value.column) {
                let numbered = values.iter().enumerate();
                ordered.extend(
                    numbered.map(|(number, sample)| NumberedValue { number, value: sample.value }),
                );
            }
            ordered.sort_unstable();
            let Observation { stack, labels, time, .. } = samples[0];
            for sample in ordered.chunk_by(|a, b| a.number == b.number) {
                let values: Vec<ColumnValue> = sample.iter().map(|value| value.value).collect();
                let values = &values[..];
                all.add_interned(InternedSample { stack, labels, values, time: Some(time) });
            }
        }
        Ok(())
    }
}

/// A value with its number among those of the same type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct NumberedValue {
    number: usize,
    value: ColumnValue,
}
