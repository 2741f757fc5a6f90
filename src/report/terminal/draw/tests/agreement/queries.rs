//! Profiles, and queries of them.

use super::super::{hostile, views};
use super::*;
use profile::{LabelSetId, label};
use view::View;
use view::query::{CONDITIONS, Column as ByColumn, PercentOf, ShownUnit, Statistic, ValueOptions};
use view::testing::{functions, odd_names, phases};

/// A small generator of numbers: the same in each run.
pub struct Random(pub u64);

impl Random {
    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }

    fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// Random stacks with recursions, inlined functions, lines and losses.
fn random_profile(seed: u64) -> Profile {
    let mut random = Random(seed);
    let types = [("samples", "count"), ("cpu", "nanoseconds"), ("space", "bytes")];
    let mut b = Builder::new(&types);
    let names: Vec<String> = (0..12).map(|i| format!("function_{i}")).collect();
    let files = ["a.c", "src/b.rs", ""];
    let locations: Vec<_> = (0..40u64)
        .map(|address| {
            let inlined = 1 + random.below(3);
            let lines: Vec<(&str, &str, i64)> = (0..inlined)
                .map(|_| {
                    let name = names[random.below(names.len())].as_str();
                    (name, files[random.below(3)], random.below(9) as i64)
                })
                .collect();
            functions(&mut b, None, 0x1000 + address, &lines)
        })
        .collect();
    for _ in 0..200 {
        let depth = random.below(8);
        let stack: Vec<_> = (0..depth).map(|_| locations[random.below(40)]).collect();
        let value = random.below(1_000_000) as i64 - if random.chance(9) { 900_000 } else { 0 };
        let values = [(Column(1), value * 1000), (Column(2), value)];
        b.add(&stack, LabelSetId::EMPTY, 1 + random.below(3) as u32, &values);
    }
    b.finish(None)
}

/// All profiles.
pub fn profiles() -> Vec<Arc<Profile>> {
    let known = [
        answers(),
        phases(),
        frames_profile(),
        processes(),
        states(),
        snapshot(),
        odd_names(),
        hostile(),
    ];
    known.into_iter().chain([1, 2, 3].map(random_profile)).map(Arc::new).collect()
}

/// The views of a profile that have an answer, but for its stacks by thread, which have no numbers.
pub fn queries(profile: &Profile) -> Vec<Query> {
    let has_answer =
        |shown: &Shown| !matches!(shown, Shown::Diff { .. } | Shown::DiffFlame(_) | Shown::Threads);
    let shown = views();
    let mut queries: Vec<Query> = shown.into_iter().filter(has_answer).map(Query::new).collect();
    for column in [ByColumn::SelfValue, ByColumn::Total, ByColumn::Name] {
        for reversed in [false, true] {
            let order = Order { column, reversed };
            for rows in [Rows::Functions, Rows::Lines, Rows::Files, Rows::Binaries] {
                queries.push(Query::new(Shown::Table(Table::new(rows, order))));
            }
            queries.push(Query::new(Shown::States(order)));
        }
    }
    for name in names(profile).into_iter().take(5) {
        queries.push(Query::new(Shown::Sandwich(name.clone())));
        queries.push(Query::new(Shown::Peek(view::query::exactly(&name))));
        queries.push(Query::new(Shown::Source(ShownSource::lines(name.clone()))));
        queries.push(Query::new(Shown::Source(ShownSource::assembly(name))));
    }
    for file in profile.functions.iter().map(|function| profile.str(function.filename)).take(3) {
        queries.push(Query::new(Shown::Source(ShownSource::lines(file.to_owned()))));
    }
    queries
}

/// Names of functions of a profile, and one that it does not have.
fn names(profile: &Profile) -> Vec<String> {
    let functions = profile.functions.iter().map(|function| profile.str(function.name).to_owned());
    let mut names: Vec<String> = functions.filter(|name| is_plain(name)).collect();
    names.push("no_such_function".to_owned());
    names
}

/// Any query.
pub fn random_query(random: &mut Random, profile: &Profile) -> Query {
    let all = queries(profile);
    let mut query = all[random.below(all.len())].clone();
    query.type_index = random.below(profile.sample_types.len());
    query.collapses_recursion = random.chance(3);
    query.folds_inlined = random.chance(3);
    for _ in 0..random.below(4) {
        let condition = CONDITIONS[random.below(CONDITIONS.len())];
        let is_possible = condition != Condition::Time || !profile.times.is_empty();
        if is_possible {
            let values = values(profile, condition);
            let value = values[random.below(values.len())].clone();
            query.filters.push(AddedFilter { condition, value });
        }
    }
    query
}

/// Any options of values.
pub fn random_values(random: &mut Random) -> ValueOptions {
    let units = ["ns", "us", "ms", "s", "hrs", "min", "B", "kB", "MB", "none"];
    ValueOptions {
        percent_of: if random.chance(2) { PercentOf::Kept } else { PercentOf::Total },
        statistic: if random.chance(4) { Statistic::Mean } else { Statistic::Sum },
        divide_by: [1.0, 1.0, 3.0, 0.25, 1e9][random.below(5)],
        unit: ShownUnit::parse(units[random.below(units.len())]),
    }
}

/// Values of a condition that select something of the profile, and one that does not.
fn values(profile: &Profile, condition: Condition) -> Vec<String> {
    let labels = || {
        let keys = profile.labels.keys().into_iter().map(|key| profile.str(key).to_owned());
        let none = "no_such_label".to_owned();
        keys.filter(|key| is_plain(key)).chain([none]).collect()
    };
    let of_labels = |key: &str| {
        let view = View::new(profile, 0, Granularity::NONE);
        let values = view.label_values(key).into_iter().map(|(value, _)| value);
        let none = "none".to_owned();
        values.filter(|value| is_plain(value)).chain([none]).collect()
    };
    match condition {
        Condition::Time => vec!["10%..60%".to_owned(), "1s..".to_owned()],
        Condition::Process => of_labels(label::PROCESS),
        Condition::Thread => of_labels(label::THREAD),
        Condition::Binary => vec!["app".to_owned(), "libx".to_owned()],
        Condition::TagRoot | Condition::TagLeaf | Condition::TagShow | Condition::TagHide => {
            labels()
        }
        Condition::TagFocus | Condition::TagIgnore => of_labels(label::PROCESS),
        _ => names(profile),
    }
}
