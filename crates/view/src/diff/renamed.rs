//! A program that has another name after than before.

use std::borrow::BorrowMut;
use std::collections::BTreeSet;

use crate::{base_name, is_kernel};
use profile::{LabelSetId, LabelValue, Profile, StrId, label};

/// The names of a program's main binary, without directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// In the recordings before.
    pub before: String,
    /// In those after.
    pub after: String,
}

impl Renamed {
    /// Gives the main binary of the profiles before the name of that after if both are one program:
    /// if all profiles of a side have the same main binary, none of the other side has it, and each
    /// is of one program. Test and benchmark binaries of Rust have a hash of the build in their
    /// names.
    ///
    /// A recording of several programs has the busiest one as its main binary, which another one of
    /// the same machine may be later. Its samples have several values of the label `process`.
    pub fn unite<P: BorrowMut<Profile>>(before: &mut [P], after: &[P]) -> Option<Renamed> {
        let renamed = Renamed { before: common_main(before)?, after: common_main(after)? };
        let has = |profiles: &[P], name: &str| {
            profiles.iter().any(|profile| has_binary(profile.borrow(), name))
        };
        if has(after, &renamed.before) || has(before, &renamed.after) {
            return None;
        }
        if !before.iter().chain(after).all(|profile| is_of_one_program(profile.borrow())) {
            return None;
        }
        let path = main_binary(after.first()?.borrow()).to_owned();
        for profile in before {
            rename(profile.borrow_mut(), &renamed.before, &path);
        }
        Some(renamed)
    }
}

/// Path of the main binary, which is the first mapping by the convention of pprof.
fn main_binary(profile: &Profile) -> &str {
    profile.mappings.first().map_or("", |mapping| profile.str(mapping.file))
}

/// Name of the main binary that all profiles have.
fn common_main<P: BorrowMut<Profile>>(profiles: &[P]) -> Option<String> {
    let mut paths = profiles.iter().map(|profile| main_binary(profile.borrow()));
    let first = paths.next()?;
    let name = base_name(first);
    let is_program = !name.is_empty() && !name.starts_with('[') && !is_kernel(first);
    (is_program && paths.all(|path| base_name(path) == name)).then(|| name.to_owned())
}

fn has_binary(profile: &Profile, name: &str) -> bool {
    profile.mappings.iter().any(|mapping| base_name(profile.str(mapping.file)) == name)
}

/// True if the samples have one name of a process, or none, as in files of others.
fn is_of_one_program(profile: &Profile) -> bool {
    let Some(key) = profile.strings.find(label::PROCESS) else { return true };
    let sets: BTreeSet<LabelSetId> = profile.samples.iter().map(|sample| sample.labels).collect();
    let value = |set: LabelSetId| profile.labels.value(set, key);
    let names: BTreeSet<LabelValue> = sets.into_iter().filter_map(value).collect();
    names.len() <= 1
}

/// Gives the binary `name` another path.
fn rename(profile: &mut Profile, name: &str, path: &str) {
    let is_it = |file: StrId| base_name(profile.strings.get(file)) == name;
    let found: Vec<usize> =
        (0..profile.mappings.len()).filter(|&i| is_it(profile.mappings[i].file)).collect();
    let path = profile.strings.intern(path);
    for i in found {
        profile.mappings[i].file = path;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{functions, mapping};
    use crate::{Diff, DiffOptions, Granularity, View};
    use profile::{Builder, Label};

    /// A recording of `work` in `main`, and of `copy` in another binary, one sample of each process.
    fn recording(main: &str, other: &str, processes: &[&str]) -> Profile {
        let mut b = Builder::new(&[("samples", "count")]);
        let main = mapping(&mut b, main, 0x1000);
        let other = mapping(&mut b, other, 0x20000);
        let work = functions(&mut b, Some(main), 0x1000, &[("work", "", 0)]);
        let copy = functions(&mut b, Some(other), 0x20000, &[("copy", "", 0)]);
        let key = b.profile.strings.intern(label::PROCESS);
        for name in processes {
            let value = LabelValue::Str(b.profile.strings.intern(name));
            let labels = b.profile.labels.intern(&[Label { key, value }]);
            b.add(&[copy, work], labels, 3, &[]);
        }
        b.finish(Some(main))
    }

    fn renamed(mut before: Vec<Profile>, after: &[Profile]) -> Option<(String, String)> {
        let renamed = Renamed::unite(&mut before, after);
        renamed.map(|Renamed { before, after }| (before, after))
    }

    #[test]
    fn a_program_with_another_name_is_compared_by_its_functions() {
        let mut before = [recording("/target/inl-1f", "/lib/libc.so.6", &["inl-1f"])];
        let after = [recording("/target/inl-2e", "/usr/lib/libc.so.6", &["inl-2e"])];
        let found = Renamed::unite(&mut before, &after);
        let expected = Renamed { before: "inl-1f".to_owned(), after: "inl-2e".to_owned() };
        assert_eq!(found, Some(expected.clone()));
        let view = |p| View::new(p, 0, Granularity::FUNCTION);
        let options = DiffOptions { renamed: found, ..DiffOptions::default() };
        let diff = Diff::new(&[view(&before[0])], &[view(&after[0])], &options);
        assert_eq!(diff.renamed, Some(expected));
        let rows: Vec<_> = diff
            .rows
            .iter()
            .map(|row| {
                let frame = &diff.frames[row.frame as usize];
                (&*frame.binary, &*frame.name, row.total.before, row.total.after)
            })
            .collect();
        assert_eq!(rows, [("libc.so.6", "copy", 3.0, 3.0), ("inl-2e", "work", 3.0, 3.0)]);
    }

    #[test]
    fn another_program_is_not_another_name() {
        let one = |main: &str| recording(main, "/lib/libc.so.6", &["p"]);
        let unite = |before: &[Profile], after: &[Profile]| renamed(before.to_vec(), after);
        assert_eq!(unite(&[one("/a")], &[one("/b")]), Some(("a".to_owned(), "b".to_owned())));
        assert_eq!(unite(&[one("/a"), one("/x/a")], &[one("/b")]).map(|r| r.1), Some("b".into()));
        // The same name, in another directory.
        assert_eq!(unite(&[one("/x/a")], &[one("/y/a")]), None);
        // Several main binaries on a side.
        assert_eq!(unite(&[one("/a"), one("/c")], &[one("/b")]), None);
        // The other side has the binary, too.
        let both = recording("/b", "/lib/a", &["p"]);
        assert_eq!(unite(&[one("/a")], std::slice::from_ref(&both)), None);
        assert_eq!(unite(&[both], &[one("/a")]), None);
        // Recordings of several programs, or of the kernel.
        let machine = recording("/chrome", "/lib/libc.so.6", &["chrome", "nginx"]);
        assert_eq!(unite(std::slice::from_ref(&machine), &[one("/firefox")]), None);
        assert_eq!(unite(&[one("/firefox")], &[machine]), None);
        assert_eq!(unite(&[one("[kernel.kallsyms]")], &[one("/b")]), None);
        assert_eq!(unite(&[], &[one("/b")]), None);
        assert_eq!(unite(&[Profile::default()], &[one("/b")]), None);
        // Files of others have no names of processes.
        let go = recording("/a", "/lib/libc.so.6", &[]);
        assert!(unite(&[go], &[one("/b")]).is_some());
    }
}
