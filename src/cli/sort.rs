//! The words of `--sort`: the order of rows, and what makes them.

use super::usage;
use profile::{Profile, label};
use view::query::Groups;
use view::{Granularity, Sort};

/// One word of `--sort`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SortKey {
    Order(Sort),
    Symbol,
    Binary,
    Line,
    File,
    Package,
    Label(String),
    /// A word that has to be a label of the profile.
    LabelOfProfile(String),
}

/// The keys of `--sort` in addition to the labels of a profile.
const SORT_KEYS: &str =
    "self, total, name, binary (dso), symbol, line, file, package, process (comm)";

pub(super) fn sort_key(word: &str) -> Result<SortKey, String> {
    let by_label = |key: &str| SortKey::Label(key.to_string());
    Ok(match word {
        "self" | "flat" | "overhead" | "period" | "sample" => SortKey::Order(Sort::SelfValue),
        "total" | "cum" | "overhead_children" => SortKey::Order(Sort::Total),
        "name" => SortKey::Order(Sort::Name),
        "symbol" | "sym" | "function" => SortKey::Symbol,
        "binary" | "dso" => SortKey::Binary,
        "line" | "srcline" => SortKey::Line,
        "file" | "srcfile" => SortKey::File,
        "package" | "crate" | "namespace" | "module" => SortKey::Package,
        "process" | "comm" => by_label(label::PROCESS),
        "" => return Err(format!("use {SORT_KEYS}, or a label of the profile")),
        other => match other.strip_prefix("label:") {
            Some(key) if !key.is_empty() => by_label(key),
            Some(_) => return Err("write label:KEY with the key of a label".to_string()),
            None => SortKey::LabelOfProfile(other.to_string()),
        },
    })
}

/// The order and the groups of rows that the words of `--sort` select.
pub(super) struct Grouping {
    /// The rows; their frames agree in nothing without such a word.
    pub groups: Groups,
    /// The order.
    pub order: Sort,
    /// The subset of their labels that have to be labels of the profile.
    pub must_exist: Vec<String>,
}

impl Grouping {
    /// Resolves the words.
    pub fn parse(keys: &[SortKey]) -> Grouping {
        let mut grouping = Grouping {
            groups: Groups { granularity: Granularity::NONE, labels: Vec::new() },
            order: Sort::SelfValue,
            must_exist: Vec::new(),
        };
        let Grouping { groups: Groups { granularity, labels }, order, must_exist } = &mut grouping;
        for key in keys {
            match key {
                SortKey::Order(by) => *order = *by,
                SortKey::Symbol => granularity.function = true,
                SortKey::Binary => granularity.binary = true,
                SortKey::Line => (granularity.function, granularity.line) = (true, true),
                SortKey::File => granularity.file = true,
                SortKey::Package => {
                    *granularity =
                        Granularity { binary: granularity.binary, ..Granularity::PACKAGES }
                }
                SortKey::Label(key) => labels.push(key.clone()),
                SortKey::LabelOfProfile(key) => {
                    labels.push(key.clone());
                    must_exist.push(key.clone());
                }
            }
        }
        grouping
    }

    /// True if a word makes rows.
    pub fn is_grouped(&self) -> bool {
        self.groups.granularity != Granularity::NONE || !self.groups.labels.is_empty()
    }

    /// The rows: those of the words, with the parts of `--granularity`; functions if there are
    /// neither.
    pub fn resolved(&self, requested: Option<Granularity>) -> Groups {
        let Groups { granularity, labels } = self.groups.clone();
        let granularity = match requested {
            Some(parts) => Granularity { binary: granularity.binary || parts.binary, ..parts },
            None if self.is_grouped() => granularity,
            None => Granularity::FUNCTION,
        };
        Groups { granularity, labels }
    }
}

/// Fails if one of `keys` is neither a label of the profile nor one that prof records.
pub(super) fn check_labels(profile: &Profile, keys: &[String]) -> anyhow::Result<()> {
    /// Labels of a profile that an error lists.
    const SHOWN: usize = 20;
    let there = profile.labels.keys();
    let there: Vec<&str> = there.into_iter().map(|key| profile.str(key)).collect();
    let is_label = |key: &str| there.contains(&key) || label::ALL.contains(&key);
    let Some(wrong) = keys.iter().find(|key| !is_label(key)) else { return Ok(()) };
    let labels = match there.as_slice() {
        [] => "this profile has no labels".to_owned(),
        labels => {
            let shown = labels[..labels.len().min(SHOWN)].join(", ");
            format!("the labels of this profile are {shown}")
        }
    };
    Err(usage(format!("--sort {wrong}: no such label; {labels}; other keys: {SORT_KEYS}")))
}
