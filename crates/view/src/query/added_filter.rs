//! Filters one by one, as they are typed: `focus=REGEX`.

use std::fmt;

use regex::Regex;

use crate::{Condition, Filter, Selector, TagError, TagMatch, TimeRange};

/// A filter that was added: one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedFilter {
    /// Its condition.
    pub condition: Condition,
    /// The text of the condition, such as a regular expression.
    pub value: String,
}

/// All conditions, in the order in which they are offered.
pub const CONDITIONS: [Condition; 16] = [
    Condition::Focus,
    Condition::Ignore,
    Condition::Hide,
    Condition::Show,
    Condition::ShowFrom,
    Condition::PruneFrom,
    Condition::TagFocus,
    Condition::TagIgnore,
    Condition::TagShow,
    Condition::TagHide,
    Condition::TagRoot,
    Condition::TagLeaf,
    Condition::Process,
    Condition::Thread,
    Condition::Binary,
    Condition::Time,
];

impl AddedFilter {
    /// The filter that the user typed: `CONDITION=VALUE`, with pprof's spelling of conditions, too.
    pub fn parse(text: &str) -> Result<AddedFilter, String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err("CONDITION=VALUE, such as focus=REGEX".to_owned());
        };
        let wanted = name.trim().replace('_', "-");
        let condition = CONDITIONS.into_iter().find(|condition| condition.name() == wanted);
        let Some(condition) = condition else {
            return Err(format!("no condition {:?}; Tab shows them", name.trim()));
        };
        if value.is_empty() {
            return Err("no value yet".to_owned());
        }
        let added = AddedFilter { condition, value: value.to_owned() };
        added.filter().map_err(|error| error.to_string())?;
        Ok(added)
    }

    /// Its text, as the user would type it.
    pub fn text(&self) -> String {
        format!("{}={}", self.condition.name(), self.value)
    }

    /// The sentence about a filter that nothing in the profile meets.
    pub fn unmatched(&self) -> String {
        format!("{}: {}", self.text(), self.condition.nothing_found())
    }

    /// True if it selects a part of the recording, from which the others select.
    pub fn is_time(&self) -> bool {
        self.condition == Condition::Time
    }

    /// The filter.
    ///
    /// # Errors
    ///
    /// The text is none.
    pub fn filter(&self) -> Result<Filter, FilterError> {
        let mut filter = Filter::default();
        self.add_to(&mut filter)?;
        Ok(filter)
    }

    /// Sets the condition of a filter.
    ///
    /// # Errors
    ///
    /// The text is none. The filter then is as before.
    pub(crate) fn add_to(&self, filter: &mut Filter) -> Result<(), FilterError> {
        let value = &*self.value;
        let regex = || {
            let error = |error| FilterError::NoRegex { text: value.to_owned(), error };
            Regex::new(value).map(Some).map_err(error)
        };
        let tags = || TagMatch::parse(value).map(Some).map_err(FilterError::from);
        let keys = || value.split(',').filter(|key| !key.is_empty()).map(str::to_owned).collect();
        let selector = || Some(Selector::new(value));
        match self.condition {
            Condition::Focus => filter.focus = regex()?,
            Condition::Ignore => filter.ignore = regex()?,
            Condition::Show => filter.show = regex()?,
            Condition::Hide => filter.hide = regex()?,
            Condition::ShowFrom => filter.show_from = regex()?,
            Condition::PruneFrom => filter.prune_from = regex()?,
            Condition::TagFocus => filter.tag_focus = tags()?,
            Condition::TagIgnore => filter.tag_ignore = tags()?,
            Condition::TagShow => filter.tag_show = regex()?,
            Condition::TagHide => filter.tag_hide = regex()?,
            Condition::TagRoot => filter.tag_root = keys(),
            Condition::TagLeaf => filter.tag_leaf = keys(),
            Condition::Thread => filter.thread = selector(),
            Condition::Process => filter.process = selector(),
            Condition::Binary => filter.binary = selector(),
            Condition::Time => {
                filter.time = Some(TimeRange::parse(value).map_err(FilterError::NoRange)?);
            }
        }
        Ok(())
    }
}

/// The reason why a text is no filter.
#[derive(Clone, Debug)]
pub enum FilterError {
    /// It, or a part of it, is no regular expression.
    NoRegex {
        /// The part.
        text: String,
        /// The reason.
        error: regex::Error,
    },
    /// A number of a range of labels is too large; the sentence.
    TooLarge(String),
    /// It is no range of time; the sentence.
    NoRange(String),
}

impl From<TagError> for FilterError {
    fn from(error: TagError) -> FilterError {
        match error {
            TagError::Regex(text, error) => FilterError::NoRegex { text, error },
            error @ TagError::TooLarge(_) => FilterError::TooLarge(error.to_string()),
        }
    }
}

/// One line, without the text.
impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterError::NoRegex { error, .. } => f.write_str(&regex_reason(error)),
            FilterError::TooLarge(reason) | FilterError::NoRange(reason) => f.write_str(reason),
        }
    }
}

/// The reason why a text is no regular expression: the last line of the message.
pub fn regex_reason(error: &regex::Error) -> String {
    let message = error.to_string();
    message.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_filters_are_checked() {
        let parse = |text: &str| AddedFilter::parse(text).map(|added| added.text());
        assert_eq!(parse("focus=^a=b$").unwrap(), "focus=^a=b$");
        assert_eq!(parse("show_from=main").unwrap(), "show-from=main");
        assert_eq!(parse("tagfocus=state=running").unwrap(), "tagfocus=state=running");
        assert_eq!(parse("focus=(").unwrap_err(), "unclosed group");
        assert_eq!(parse("tagfocus=key=(").unwrap_err(), "unclosed group");
        assert_eq!(parse("focs=a").unwrap_err(), "no condition \"focs\"; Tab shows them");
        assert_eq!(parse("focus=").unwrap_err(), "no value yet");
        assert!(parse("focus").is_err());
    }
}
