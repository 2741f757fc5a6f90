//! Filters by labels: `tagfocus`, `tagignore`, `tagshow`, `taghide`.

use std::fmt;

use profile::{Label, LabelSetId, LabelValue, Profile, StrId};
use regex::Regex;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{edit, units};

/// A condition on the labels of a sample: regular expressions, or a range of numbers.
#[derive(Clone, Debug)]
pub struct TagMatch {
    text: String,
    /// The key, if only this label is meant.
    key: Option<String>,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Range(Range),
    Texts(Vec<Regex>),
}

/// An interval of numbers with a unit.
#[derive(Clone, Debug)]
struct Range {
    low: Option<f64>,
    high: Option<f64>,
    unit: String,
}

/// Error of parsing a [`TagMatch`].
#[derive(Clone, Debug)]
pub enum TagError {
    /// A part of it is not a regular expression.
    Regex(String, regex::Error),
    /// A number beyond 64 bits.
    TooLarge(String),
}

impl fmt::Display for TagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TagError::Regex(text, error) => {
                write!(f, "{text:?} is not a regular expression: {error}")
            }
            TagError::TooLarge(number) => write!(f, "{number} is beyond 64 bits"),
        }
    }
}

impl std::error::Error for TagError {}

impl TagMatch {
    /// Parses `KEY=CONDITION` or `CONDITION`, which is a range as `1kb:2mb`, `:10ms`, `5s:` or
    /// `32kb`, or regular expressions, separated by commas.
    ///
    /// # Errors
    ///
    /// One is not a regular expression, or a number is too large.
    pub fn parse(text: &str) -> Result<TagMatch, TagError> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => (Some(key.to_owned()), value),
            Some((_, value)) => (None, value),
            None => (None, text),
        };
        let test = match Range::parse(value)? {
            Some(range) => Test::Range(range),
            None => {
                let regex = |part: &str| {
                    Regex::new(part).map_err(|error| TagError::Regex(part.to_owned(), error))
                };
                Test::Texts(value.split(',').map(regex).collect::<Result<_, _>>()?)
            }
        };
        Ok(TagMatch { text: text.to_owned(), key, test })
    }

    /// The text that was parsed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// For each set of labels, whether it matches.
    pub(super) fn label_sets(&self, profile: &Profile, units: &LabelUnits) -> Vec<bool> {
        let sets = (0..profile.labels.len() as u32).map(LabelSetId);
        let key = match &self.key {
            None => None,
            Some(key) => match profile.strings.find(key) {
                Some(key) => Some(key),
                None => return sets.map(|_| false).collect(),
            },
        };
        sets.map(|set| self.matches(profile, units, key, profile.labels.get(set))).collect()
    }

    fn matches(
        &self,
        profile: &Profile,
        units: &LabelUnits,
        key: Option<StrId>,
        labels: &[Label],
    ) -> bool {
        let with_key = || labels.iter().filter(|label| key.is_none_or(|key| key == label.key));
        match &self.test {
            Test::Range(range) => with_key().any(|label| match label.value {
                LabelValue::Num { value, .. } => {
                    range.contains(value, units.unit(profile, label.key))
                }
                LabelValue::Str(_) => false,
            }),
            // Without a key, each expression has to match one of the labels, as `key:value`.
            Test::Texts(regexes) if key.is_none() => regexes.iter().all(|regex| {
                texts(profile, labels)
                    .any(|(key, text)| regex.is_match(&format!("{}:{text}", profile.str(key))))
            }),
            Test::Texts(regexes) => {
                let mut texts = texts(profile, labels).filter(|(k, _)| Some(*k) == key);
                texts.any(|(_, text)| regexes.iter().any(|regex| regex.is_match(text)))
            }
        }
    }
}

/// Keys and values of labels that are texts.
fn texts<'p>(
    profile: &'p Profile,
    labels: &'p [Label],
) -> impl Iterator<Item = (StrId, &'p str)> + 'p {
    labels.iter().filter_map(|label| match label.value {
        LabelValue::Str(text) => Some((label.key, profile.str(text))),
        LabelValue::Num { .. } => None,
    })
}

/// A number at the begin of a text, with its unit.
struct Number<'t> {
    value: i64,
    unit: &'t str,
    rest: &'t str,
}

impl Number<'_> {
    /// `None` if the text does not begin with a number.
    fn parse(text: &str) -> Result<Option<Number<'_>>, TagError> {
        let sign = usize::from(text.starts_with(['+', '-']));
        let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Ok(None);
        }
        let (number, rest) = text.split_at(sign + digits);
        let value = number.parse().map_err(|_| TagError::TooLarge(number.to_owned()))?;
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, rest) = rest.split_at(letters);
        Ok(Some(Number { value, unit, rest }))
    }
}

impl Range {
    /// `None` if the text is not a range.
    fn parse(text: &str) -> Result<Option<Range>, TagError> {
        let (open, from) = match text.strip_prefix(':') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let Some(first) = Number::parse(from)? else { return Ok(None) };
        let units::Scaled { value, unit } = units::scale(first.value, first.unit, first.unit);
        let range = |low, high| Ok(Some(Range { low, high, unit: unit.clone() }));
        match (open, first.rest) {
            (true, "") => range(None, Some(value)),
            (true, _) => Ok(None),
            (false, "") => range(Some(value), Some(value)),
            (false, ":") => range(Some(value), None),
            (false, rest) => {
                let Some(rest) = rest.strip_prefix(':') else { return Ok(None) };
                let second = match Number::parse(rest)? {
                    Some(second) if second.rest.is_empty() => second,
                    _ => return Ok(None),
                };
                let high = units::scale(second.value, second.unit, &unit);
                if high.unit != unit {
                    return Ok(None);
                }
                range(Some(value), Some(high.value))
            }
        }
    }

    fn contains(&self, value: i64, unit: &str) -> bool {
        let scaled = units::scale(value, unit, &self.unit);
        scaled.unit == self.unit
            && self.low.is_none_or(|low| scaled.value >= low)
            && self.high.is_none_or(|high| scaled.value <= high)
    }
}

/// The unit of the numbers of each label: the first one in the profile.
pub struct LabelUnits(FxHashMap<StrId, StrId>);

impl LabelUnits {
    /// The unit of the numbers of this label.
    pub fn unit<'p>(&self, profile: &'p Profile, key: StrId) -> &'p str {
        match (self.0.get(&key), profile.str(key)) {
            (Some(&unit), _) => profile.str(unit),
            (None, "alignment" | "request") => "bytes",
            (None, key) => key,
        }
    }
}

/// The units of the labels of all samples.
pub fn label_units(profile: &Profile) -> LabelUnits {
    let mut units = FxHashMap::default();
    let mut seen = FxHashSet::default();
    for sample in profile.samples.iter().filter(|sample| seen.insert(sample.labels)) {
        for label in profile.labels.get(sample.labels) {
            if let LabelValue::Num { unit, .. } = label.value
                && unit != StrId::EMPTY
            {
                units.entry(label.key).or_insert(unit);
            }
        }
    }
    LabelUnits(units)
}

/// Keys that [`retain_keys`] found.
pub struct FoundKeys {
    /// Of a label that `show` matches.
    pub shown: bool,
    /// Of a label that `hide` matches.
    pub hidden: bool,
}

/// Keeps the labels whose keys match `show` and do not match `hide`.
pub fn retain_keys(profile: &mut Profile, show: Option<&Regex>, hide: Option<&Regex>) -> FoundKeys {
    let mut found = FoundKeys { shown: false, hidden: false };
    let keys = profile.labels.keys();
    let removed: FxHashSet<StrId> = keys
        .into_iter()
        .filter(|&key| {
            let key = profile.str(key);
            let is_shown = show.is_none_or(|regex| regex.is_match(key));
            let is_hidden = hide.is_some_and(|regex| regex.is_match(key));
            found.shown |= is_shown;
            found.hidden |= is_hidden;
            !is_shown || is_hidden
        })
        .collect();
    let labels = &mut profile.labels;
    let new: Vec<LabelSetId> = (0..labels.len() as u32)
        .map(|set| {
            let set = labels.get(LabelSetId(set));
            let kept: Vec<Label> =
                set.iter().filter(|label| !removed.contains(&label.key)).copied().collect();
            labels.intern(&kept)
        })
        .collect();
    edit::edit_labels(profile, |labels| new[labels.0 as usize]);
    found
}
