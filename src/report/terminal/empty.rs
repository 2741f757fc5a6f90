//! The reasons why a page is empty, or has one row for everything, and what to do.

use super::model::{Facts, Model};
use super::page::PageState;
use profile::ThreadState;
use view::query::{AddedFilter, Rows};

/// Most sample types that are listed.
const LISTED: usize = 8;

/// The lines of an empty page.
pub fn reasons(page: &PageState) -> Vec<String> {
    let Some(model) = page.model.as_deref() else { return Vec::new() };
    let mut lines = Vec::new();
    let has_filters = !page.query.filters.is_empty();
    match model.facts() {
        Some(facts) if facts.total == 0 && facts.kept == 0 && !has_samples(facts) => {
            lines.push("no samples: the profile contains none".to_owned());
        }
        Some(facts) if has_filters && facts.kept == 0 && facts.total != 0 => {
            lines.push(FILTERED.to_owned());
        }
        Some(facts) if !has_values(facts, page.query.type_index) => {
            lines.extend(without_values(facts, page.query.type_index));
        }
        _ if has_filters => lines.push(FILTERED.to_owned()),
        _ if page.is_difference() => {
            lines.push(
                "no samples: neither side has a value of this sample type; T shows the next one"
                    .to_owned(),
            );
        }
        _ => lines.push("no samples".to_owned()),
    }
    lines.extend(model.unmatched().iter().map(AddedFilter::unmatched));
    lines
}

/// The line about a page that filters have emptied.
const FILTERED: &str = "no samples pass the filters; u removes the last one, U any of them";

/// The line below rows that are one for everything, because samples lack what the page is about.
pub fn note(model: &Model) -> Option<String> {
    match model {
        Model::Table(table) => {
            let Rows::Label(key) = &table.kind else { return None };
            let is_none = |row: &view::Row| {
                table.groups[row.group as usize].first().copied().flatten().is_none()
            };
            if !table.rows.iter().all(is_none) {
                return None;
            }
            let profile = &table.facts.profile;
            let mut keys: Vec<&str> =
                profile.labels.keys().into_iter().map(|key| profile.str(key)).collect();
            keys.sort_unstable();
            keys.dedup();
            Some(match keys.as_slice() {
                [] => format!("no sample has the label {key}: the profile has no labels"),
                keys => {
                    let keys = keys[..keys.len().min(LISTED)].join(", ");
                    format!("no sample has the label {key}; L shows others: {keys}")
                }
            })
        }
        Model::States(threads) => {
            let states = 0..ThreadState::ALL.len();
            let has_state = |state: usize| threads.rows.iter().any(|row| row.by_state[state] != 0);
            let has_none = !threads.has_states || !states.into_iter().any(has_state);
            has_none.then(|| {
                "no sample has a state; prof record -T wall records the states of threads"
                    .to_owned()
            })
        }
        _ => None,
    }
}

/// True if the profile has samples, also such as filters leave out.
fn has_samples(facts: &Facts) -> bool {
    let all =
        facts.profile.unfiltered.as_ref().map_or(facts.profile.samples.len(), |all| all.samples);
    all > 0
}

/// True if a sample that passes the filters has a value of this type.
fn has_values(facts: &Facts, type_index: usize) -> bool {
    let count = facts.profile.sample_types.len().max(1);
    facts.profile.values.chunks(count).any(|values| values.get(type_index).is_some_and(|&v| v != 0))
}

/// The lines about a sample type without values, and which types have some.
fn without_values(facts: &Facts, type_index: usize) -> Vec<String> {
    let profile = &facts.profile;
    let kind =
        |index: usize| profile.sample_types.get(index).map_or("", |kind| profile.str(kind.kind));
    let with = (0..profile.sample_types.len()).filter(|&index| has_values(facts, index));
    let with: Vec<&str> = with.take(LISTED).map(kind).collect();
    let first = format!("no samples have a value of type {}", kind(type_index));
    let second = match with.as_slice() {
        [] => "no sample has a value of any type".to_owned(),
        with => format!("T shows the next type; values have: {}", with.join(", ")),
    };
    vec![first, second]
}
