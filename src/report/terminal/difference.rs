//! The difference of the profile to others.

use std::cmp::Ordering;
use std::sync::Arc;

use super::model::Context;
use crate::report::diff::{frame_name, unit_error};
use profile::Profile;
use view::Part;
use view::query::{AddedFilter, Column, Order, Query, Rows, Shown, Values};
use view::{
    Cancel, Change, Diff, DiffBoxes, DiffFrame, DiffName, DiffOptions, DiffRow, DiffTree,
    Direction, Granularity, Renamed, Scale, Siblings, Sort, View,
};

/// The profiles that the profile is compared with, and the way.
#[derive(Clone, Debug, Default)]
pub struct Base {
    /// The recordings before.
    pub before: Vec<Arc<Profile>>,
    /// The recordings after, if they are several, which the profile is the sum of; else it is the
    /// only one.
    pub after: Vec<Arc<Profile>>,
    /// Their files.
    pub files: [Vec<String>; 2],
    /// The unit of comparison.
    pub scale: Scale,
    /// Test for equal values, rather than for the ratio of what did not change.
    pub absolute: bool,
    /// The main binaries that are compared as one.
    pub renamed: Option<Renamed>,
}

/// The index of a sample type of the profile in each of the parts that are compared. The profile may
/// be the sum of several parts, with fewer types than each.
fn types_of_parts(
    profile: &Profile,
    parts: &[Arc<Profile>],
    index: usize,
) -> Result<Vec<usize>, String> {
    let parts = parts.iter().map(|part| &**part);
    let all: Vec<&Profile> = [profile].into_iter().chain(parts).collect();
    match Diff::common_type(&all, 0, index) {
        Ok(mut types) => Ok(types.split_off(1)),
        Err(_) => Err("not all profiles have this sample type".to_owned()),
    }
}

/// The filtered profiles of both sides, those before first.
struct Sides<'b> {
    base: &'b Base,
    parts: Vec<Arc<Profile>>,
    /// The filters that nothing in any of them meets.
    unmatched: Vec<AddedFilter>,
    /// The sample type in each.
    types: Vec<usize>,
    /// The number of those before.
    before: usize,
    cancel: &'b Cancel,
}

impl<'b> Sides<'b> {
    fn new(context: &'b Context, query: &Query) -> Result<Sides<'b>, String> {
        let base = context.base.as_deref().ok_or("nothing to compare with: prof diff BASE FILE")?;
        let only = [context.profile.clone()];
        let after = if base.after.is_empty() { &only } else { base.after.as_slice() };
        let part = |profile: &Arc<Profile>| context.part_of(profile, query);
        let all = base.before.iter().chain(after);
        let found = all.map(part).collect::<Result<Vec<Part>, String>>()?;
        context.check()?;
        let mut unmatched = query.filters.clone();
        unmatched.retain(|added| found.iter().all(|part| part.unmatched.contains(added)));
        let parts: Vec<Arc<Profile>> = found.into_iter().map(|part| part.profile).collect();
        let before = base.before.len();
        let types = types_of_parts(&context.profile, &parts, query.type_index)?;
        Ok(Sides { base, parts, unmatched, types, before, cancel: &context.cancel })
    }

    fn views(&self, granularity: Granularity) -> Vec<View<'_>> {
        let pairs = self.parts.iter().zip(&self.types);
        pairs
            .map(|(profile, &index)| View::cancelable(profile, index, granularity, self.cancel))
            .collect()
    }

    fn options(&self) -> DiffOptions {
        let Base { scale, absolute, .. } = *self.base;
        let renamed = self.base.renamed.clone();
        DiffOptions { scale, absolute, renamed, ..DiffOptions::default() }
    }

    /// Fails if the samples cannot be compared in the requested unit.
    fn check(&self, diff: &Diff) -> Result<(), String> {
        match unit_error(diff, self.base.scale) {
            Some(error) => Err(error.to_owned()),
            None => Ok(()),
        }
    }
}

/// A difference in the order of a page.
pub struct Difference {
    /// The difference.
    pub diff: Diff,
    /// What its rows are.
    pub kind: Rows,
    /// The files before and after.
    pub files: [Vec<String>; 2],
    /// The filters that nothing in the profiles meets.
    pub unmatched: Vec<AddedFilter>,
}

/// A difference of samples, and its differential flame graph.
pub struct FlameDifference {
    /// The difference.
    pub diff: Diff,
    /// The boxes.
    pub boxes: DiffBoxes,
    /// The filters that nothing in the profiles meets.
    pub unmatched: Vec<AddedFilter>,
}

impl Difference {
    /// The difference that a query shows. Fails with one line.
    pub fn new(context: &Context, query: &Query, rows: &Rows) -> Result<Difference, String> {
        let sides = Sides::new(context, query)?;
        let views = sides.views(query.shown.granularity());
        let (before, after) = views.split_at(sides.before);
        let labels = rows.labels().to_vec();
        let sort = match query.shown {
            Shown::Diff { values: Values::Total, .. } => Sort::Total,
            _ => Sort::SelfValue,
        };
        let mut diff = Diff::new(before, after, &DiffOptions { sort, labels, ..sides.options() });
        sides.check(&diff)?;
        if let Shown::Diff { values, order, .. } = query.shown {
            sort_rows(&mut diff, values, order);
        }
        let (files, unmatched) = (sides.base.files.clone(), sides.unmatched.clone());
        Ok(Difference { diff, kind: rows.clone(), files, unmatched })
    }

    /// The difference of the samples and its differential flame graph, without boxes that are
    /// narrower than `min_width` percent of the whole.
    pub fn flame(
        context: &Context,
        query: &Query,
        min_width: f64,
    ) -> Result<FlameDifference, String> {
        let sides = Sides::new(context, query)?;
        let mut views = sides.views(Granularity::FUNCTION);
        for view in &mut views {
            view.leave_out_negative();
        }
        let (before, after) = views.split_at_mut(sides.before);
        let tree = DiffTree::new(before, after, Direction::Callees, &[]);
        context.check()?;
        let diff = Diff::new(before, after, &sides.options());
        sides.check(&diff)?;
        let boxes = DiffBoxes::new(&diff, tree, Siblings::Name, min_width);
        Ok(FlameDifference { diff, boxes, unmatched: sides.unmatched.clone() })
    }

    /// The compared values of a row.
    pub fn change(row: &DiffRow, values: Values) -> &Change {
        match values {
            Values::Own => &row.itself,
            Values::Total => &row.total,
        }
    }

    /// The name of a row.
    pub fn name(&self, row: usize) -> String {
        let row = &self.diff.rows[row];
        let frame = &self.diff.frames[row.frame as usize];
        match &self.kind {
            Rows::Binaries | Rows::Label(_) if self.label(row).is_some() => {
                self.label(row).unwrap_or_default().to_owned()
            }
            Rows::Label(key) => format!("[no {key}]"),
            Rows::Binaries if frame.binary.is_empty() => "[unknown]".to_owned(),
            Rows::Binaries => frame.binary.to_string(),
            Rows::Functions | Rows::Lines | Rows::Files | Rows::Packages | Rows::Groups(_) => {
                match frame.kind {
                    DiffName::Unnamed if !frame.binary.is_empty() => {
                        format!("{} of {}", frame_name(frame), frame.binary)
                    }
                    _ => frame_name(frame),
                }
            }
        }
    }

    /// The binary of a function, which distinguishes it from others of its name.
    pub fn binary(&self, row: usize) -> Option<&str> {
        let frame = &self.diff.frames[self.diff.rows[row].frame as usize];
        let is_function = self.kind == Rows::Functions && frame.kind == DiffName::Function;
        (is_function && !frame.binary.is_empty()).then_some(&*frame.binary)
    }

    /// The value of a row's label.
    pub fn label(&self, row: &DiffRow) -> Option<&str> {
        self.diff.groups[row.group as usize].first()?.as_deref()
    }

    /// The function of a row.
    pub fn function(&self, row: usize) -> Option<&str> {
        let frame = &self.diff.frames[self.diff.rows.get(row)?.frame as usize];
        (frame.kind == DiffName::Function).then_some(&*frame.name)
    }
}

/// Sorts the rows. Those of the model are in the order of their changes, as they are printed.
fn sort_rows(diff: &mut Diff, values: Values, order: Order) {
    let frames = std::mem::take(&mut diff.frames);
    if order.column != Column::Change {
        sort_by_column(diff, &frames, values, order.column);
    }
    if order.reversed {
        diff.rows.reverse();
    }
    diff.frames = frames;
}

fn sort_by_column(diff: &mut Diff, frames: &[DiffFrame], values: Values, column: Column) {
    let change = |row: &DiffRow| *Difference::change(row, values);
    // Numbers that are none are last.
    let largest = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    };
    let groups = &diff.groups;
    let by_name = |a: &DiffRow, b: &DiffRow| {
        let frame = |row: &DiffRow| &frames[row.frame as usize];
        let group = |row: &DiffRow| &groups[row.group as usize];
        frame(a).cmp(frame(b)).then_with(|| group(a).cmp(group(b)))
    };
    diff.rows.sort_by(|a, b| {
        let (left, right) = (change(a), change(b));
        let first = match column {
            Column::Before => largest(Some(left.before), Some(right.before)),
            Column::After => largest(Some(left.after), Some(right.after)),
            Column::Ratio => largest(left.ratio(), right.ratio()),
            Column::Probability => {
                largest(left.adjusted_p.map(|p| -p), right.adjusted_p.map(|p| -p))
            }
            _ => Ordering::Equal,
        };
        first.then_with(|| by_name(a, b))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::terminal::model::{Model, compute};
    use view::testing::{answers, processes};

    fn names(context: &Context, shown: Shown) -> Vec<String> {
        let query = Query::new(shown);
        match compute(context, &query) {
            Ok(Model::Diff(found)) => (0..found.diff.rows.len()).map(|i| found.name(i)).collect(),
            Ok(_) => panic!("a difference"),
            Err(error) => vec![error],
        }
    }

    fn context(before: Profile, after: Profile) -> Context {
        let base = Base { before: vec![Arc::new(before)], ..Base::default() };
        Context { base: Some(Arc::new(base)), ..Context::new(&Arc::new(after)) }
    }

    #[test]
    fn rows_are_sorted_by_each_column() {
        let mut after = answers();
        // foo2 grows from 1 to 3.
        for (sample, value) in after.samples.clone().iter().zip(after.values.chunks_mut(2)) {
            let leaf = after.stacks.get(sample.stack)[0];
            if leaf.0 == 2 {
                value.iter_mut().for_each(|value| *value *= 3);
            }
        }
        let context = context(answers(), after);
        let by = |column: Column, reversed: bool| {
            let order = Order { column, reversed };
            names(&context, Shown::Diff { rows: Rows::Functions, values: Values::Own, order })
        };
        assert_eq!(by(Column::Change, false)[0], "foo2");
        assert_eq!(by(Column::Ratio, false)[0], "foo2");
        assert_eq!(by(Column::Before, false), ["bar", "main", "foo1", "foo2"]);
        assert_eq!(by(Column::Name, false), ["bar", "foo1", "foo2", "main"]);
        assert_eq!(by(Column::Name, true), ["main", "foo2", "foo1", "bar"]);
    }

    #[test]
    fn a_sample_type_is_found_by_its_name() {
        let names = |kinds: &[&str]| -> Arc<Profile> {
            let mut builder = profile::Builder::new(&[]);
            let types = kinds.iter().map(|kind| profile::ValueType {
                kind: builder.profile.strings.intern(kind),
                unit: builder.profile.strings.intern("count"),
            });
            builder.profile.sample_types = types.collect();
            Arc::new(builder.finish(None))
        };
        let [two, swapped] = [["a", "b"], ["b", "a"]].map(|kinds| names(&kinds));
        let parts = [two.clone(), swapped.clone()];
        assert_eq!(types_of_parts(&swapped, &parts, 0), Ok(vec![1, 0]));
        assert_eq!(types_of_parts(&two, &parts, 0), Ok(vec![0, 1]));
        assert_eq!(types_of_parts(&names(&["b"]), &parts, 0), Ok(vec![1, 0]));
        assert!(types_of_parts(&names(&["c"]), &parts, 0).is_err());
    }

    #[test]
    fn functions_of_one_name_have_their_binaries() {
        let context = context(answers(), answers());
        for (rows, binary) in [(Rows::Functions, Some("app")), (Rows::Binaries, None)] {
            let shown = Shown::diff(rows);
            let query = Query::new(shown);
            let Ok(Model::Diff(found)) = compute(&context, &query) else { panic!("a difference") };
            assert_eq!(found.binary(0), binary);
        }
    }

    #[test]
    fn labels_and_binaries_are_compared() {
        let context = context(processes(), processes());
        let label = names(&context, Shown::diff(Rows::Label("process".to_owned())));
        assert_eq!(label, ["db", "web;1"]);
        assert_eq!(names(&context, Shown::diff(Rows::Binaries)), ["app"]);
        let alone = Context::new(&Arc::new(answers()));
        let error = names(&alone, Shown::diff(Rows::Functions));
        assert_eq!(error, ["nothing to compare with: prof diff BASE FILE"]);
    }
}
