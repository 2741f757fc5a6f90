//! Parts of a recording while it goes on: what was added to a [`Builder`] since the previous part.
//!
//! A part refers to strings, mappings, locations and labels by the builder's ids, and contains those
//! that no earlier part has. [`Windows`](super::Windows) puts parts together.

use std::io;

use rustc_hash::FxHashMap;

use super::builder::{Builder, frames};
use super::tables::StackTables;
use super::{
    Function, Label, LabelSetId, Location, LocationId, Mapping, MappingId, StackId, StackTable,
    ValueType,
};

/// Counts of what earlier parts contain.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartMarks {
    strings: usize,
    mappings: usize,
    functions: usize,
    locations: usize,
    labels: usize,
}

/// A location of a [`Part`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartLocation {
    /// The location, without lines.
    pub location: Location,
    /// Its function, if it has a name from the beginning.
    pub function: Option<super::FunctionId>,
}

/// The additions to a [`Builder`] since the previous part.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Types of the values.
    pub sample_types: Vec<ValueType>,
    /// The type that is shown by default, or the empty string.
    pub default_sample_type: super::StrId,
    /// Unit of `period`.
    pub period_type: ValueType,
    /// Events between two samples.
    pub period: i64,
    /// New strings.
    pub strings: Vec<String>,
    /// New mappings.
    pub mappings: Vec<Mapping>,
    /// New functions.
    pub functions: Vec<Function>,
    /// New locations.
    pub locations: Vec<PartLocation>,
    /// New label sets.
    pub labels: Vec<Vec<Label>>,
    /// The stacks of `rows`, leaf first.
    pub stacks: StackTable,
    /// Stack and labels of each sum.
    pub rows: Vec<(StackId, LabelSetId)>,
    /// Sums of values, row by row.
    pub values: Vec<i64>,
    /// The main binary.
    pub main: Option<MappingId>,
}

impl Builder {
    /// Takes the stacks and values that were added since the previous part, with the strings,
    /// mappings, locations and labels that are new since `marks`, which are advanced. Locations and
    /// labels keep their ids in the builder; its sums start again at 0.
    ///
    /// The result is an error if spilled data cannot be read back: it is missing in the part.
    pub fn take_part(&mut self, marks: &mut PartMarks) -> (Part, io::Result<()>) {
        let settled = self.settle();
        let StackTables { nodes, rows, values, .. } = std::mem::take(&mut self.tables);
        let mut part = Part { values, ..self.new_since(marks) };
        let mut stack_of: FxHashMap<u32, StackId> = FxHashMap::default();
        for row in &rows {
            let stacks = &mut part.stacks;
            let push = || stacks.push_iter(frames(&nodes, row.node));
            let stack = *stack_of.entry(row.node).or_insert_with(push);
            part.rows.push((stack, row.labels));
        }
        (part, settled)
    }

    /// A part without stacks: what is new since `marks`.
    fn new_since(&self, marks: &mut PartMarks) -> Part {
        let profile = &self.profile;
        let strings = profile.strings.iter_from(marks.strings).map(str::to_owned).collect();
        let location = |id: usize| {
            let Location { mapping, address, is_folded, .. } = profile.locations[id];
            let line = profile.lines_of(LocationId(id as u32)).first();
            PartLocation {
                location: Location { mapping, address, is_folded, ..Location::default() },
                function: line.map(|line| line.function),
            }
        };
        let labels = (marks.labels..profile.labels.len())
            .map(|set| profile.labels.get(LabelSetId(set as u32)).to_vec())
            .collect();
        let part = Part {
            sample_types: profile.sample_types.clone(),
            default_sample_type: profile.default_sample_type,
            period_type: profile.period_type,
            period: profile.period,
            strings,
            mappings: profile.mappings[marks.mappings..].to_vec(),
            functions: profile.functions[marks.functions..].to_vec(),
            locations: (marks.locations..profile.locations.len()).map(location).collect(),
            labels,
            ..Part::default()
        };
        *marks = PartMarks {
            strings: profile.strings.len(),
            mappings: profile.mappings.len(),
            functions: profile.functions.len(),
            locations: profile.locations.len(),
            labels: profile.labels.len(),
        };
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Column;

    #[test]
    fn a_part_has_what_is_new() {
        let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
        let mut marks = PartMarks::default();
        let main = b.location(None, 0x10);
        b.add(&[main], LabelSetId::EMPTY, 1, &[(Column(1), 10)]);
        let (first, settled) = b.take_part(&mut marks);
        assert!(settled.is_ok());
        assert_eq!((first.locations.len(), first.rows.len()), (1, 1));
        assert_eq!(first.values, [1, 10]);
        assert_eq!(first.strings, ["", "samples", "count", "cpu", "nanoseconds"]);
        let leaf = b.named_location("leaf");
        b.add(&[leaf, main], LabelSetId::EMPTY, 1, &[(Column(1), 5)]);
        b.add(&[main], LabelSetId::EMPTY, 1, &[(Column(1), 1)]);
        let (second, _) = b.take_part(&mut marks);
        assert_eq!((second.locations.len(), second.functions.len()), (1, 1));
        assert_eq!(second.strings, ["leaf"]);
        assert_eq!(second.values, [1, 5, 1, 1]);
        assert_eq!(second.stacks.get(second.rows[0].0), [leaf, main]);
        let (third, _) = b.take_part(&mut marks);
        assert!(third.rows.is_empty() && third.values.is_empty() && third.strings.is_empty());
        assert_eq!(b.finish(None).samples.len(), 0);
    }
}
