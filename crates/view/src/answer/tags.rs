//! The values of all labels.

use serde::Serialize;

use super::{Head, List};
use crate::{TagKey, Tags, View};

/// The values of all labels.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TagsAnswer<'a> {
    /// The members of all answers.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// The keys, in the order of their names.
    pub tags: List<'a, TagAnswer<'a>>,
}

/// The values of the labels with one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TagAnswer<'a> {
    /// The key.
    pub key: &'a str,
    /// Sum over all of its values.
    pub total: i64,
    /// Number of its values before limits.
    pub value_count: usize,
    /// Its values, largest sum first.
    pub values: Vec<TagValueAnswer<'a>>,
}

/// A value of a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TagValueAnswer<'a> {
    /// Its text.
    pub text: &'a str,
    /// The value of the samples that have it.
    pub value: i64,
}

impl<'a> TagsAnswer<'a> {
    /// The labels of a view.
    pub fn new(view: &'a View<'a>, tags: &'a Tags) -> TagsAnswer<'a> {
        let key = move |tag: &'a TagKey| TagAnswer {
            key: view.profile.str(tag.key),
            total: view.shown(tag.total),
            value_count: tag.value_count,
            values: tag
                .values
                .iter()
                .map(|tag| TagValueAnswer { text: &tag.text, value: view.shown(tag.value) })
                .collect(),
        };
        TagsAnswer { head: Head::new(view), tags: List::new(move || tags.keys.iter().map(key)) }
    }
}
