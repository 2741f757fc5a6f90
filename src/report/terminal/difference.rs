//! The difference of the profile to others.

use std::sync::Arc;

use super::model::{Context, reason};
use crate::report::diff::frame_name;
use profile::Profile;
use view::query::{AddedFilter, Query, Rows, Shown};
use view::{Compared, Diff, DiffName, DiffRow, Difference, Part, Renamed};

/// The profiles that the profile is compared with.
#[derive(Clone, Debug, Default)]
pub struct Base {
    /// The recordings before.
    pub before: Vec<Arc<Profile>>,
    /// The recordings after, if they are several, which the profile is the sum of; else it is the
    /// only one.
    pub after: Vec<Arc<Profile>>,
    /// Their files.
    pub files: [Vec<String>; 2],
    /// The main binaries that are compared as one.
    pub renamed: Option<Renamed>,
}

/// The index of a sample type of the profile in each of the parts that are compared. The profile may
/// be the sum of several parts, with fewer types than each.
fn types_of_parts(
    profile: &Profile,
    parts: &[&Profile],
    index: usize,
) -> Result<Vec<usize>, String> {
    let all: Vec<&Profile> = [profile].into_iter().chain(parts.iter().copied()).collect();
    match Diff::common_type(&all, 0, index) {
        Ok(mut types) => Ok(types.split_off(1)),
        Err(_) => Err("not all profiles have this sample type".to_owned()),
    }
}

/// The difference that a query shows. Fails with one line.
pub fn compare(context: &Context, query: &Query) -> Result<Difference, String> {
    let base = context.base.as_deref().ok_or("nothing to compare with: prof diff BASE FILE")?;
    let only = [context.profile.clone()];
    let after = if base.after.is_empty() { &only } else { base.after.as_slice() };
    let profiles: Vec<&Profile> =
        base.before.iter().chain(after).map(|profile| &**profile).collect();
    let types = types_of_parts(&context.profile, &profiles, query.type_index)?;
    let parts = |side: &[Arc<Profile>], types: &[usize]| -> Result<Vec<Part>, String> {
        let query = |&type_index| Query { type_index, ..query.clone() };
        let typed = side.iter().zip(types);
        typed.map(|(profile, index)| context.part_of(profile, &query(index))).collect()
    };
    let (types_before, types_after) = types.split_at(base.before.len());
    let (before, after) = (parts(&base.before, types_before)?, parts(after, types_after)?);
    let compared = Compared { types, renamed: base.renamed.clone(), before, after };
    view::compare(&compared, query, &context.cancel).map_err(|error| reason(&error))
}

/// A difference in the order of a page.
pub struct DiffTable {
    /// The difference.
    pub diff: Diff,
    /// What its rows are.
    pub kind: Rows,
    /// The files before and after.
    pub files: [Vec<String>; 2],
    /// The filters that nothing in the profiles meets.
    pub unmatched: Vec<AddedFilter>,
}

impl DiffTable {
    /// The difference that a query shows. Fails with one line.
    pub fn new(context: &Context, query: &Query, rows: &Rows) -> Result<DiffTable, String> {
        let Difference { mut diff, unmatched, .. } = compare(context, query)?;
        if let Shown::Diff { values, order, .. } = query.shown {
            diff.reorder(values, order);
        }
        let files = context.base.as_ref().map(|base| base.files.clone()).unwrap_or_default();
        Ok(DiffTable { diff, kind: rows.clone(), files, unmatched })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::terminal::model::{Model, compute};
    use view::query::{Column, Order, Values};
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
        let parts = [&*two, &*swapped];
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
