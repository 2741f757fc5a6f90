//! Searching, in steps that are short enough for the next key to be answered at once.

use std::time::{Duration, Instant};

use regex::{Regex, RegexBuilder};

use view::query::regex_reason;

/// Time that is searched before keys are read again.
const STEP: Duration = Duration::from_millis(10);

/// Texts that are compared before the time is read again.
const BATCH: usize = 256;

/// Order of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the end, then from the beginning.
    Forward,
    /// To the beginning, then from the end.
    Backward,
}

/// A search through the texts of a page.
pub struct Search {
    /// The regular expression.
    pub regex: Regex,
    way: Way,
    next: usize,
    left: usize,
}

/// The state of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Not finished.
    Searching,
    /// This text matches.
    Found(usize),
    /// None matches.
    Nothing,
}

/// A regular expression as the user types it: without upper-case letters, it ignores case.
pub fn pattern(text: &str) -> Result<Regex, String> {
    let ignores_case = !text.chars().any(char::is_uppercase);
    RegexBuilder::new(text)
        .case_insensitive(ignores_case)
        .size_limit(1 << 20)
        .build()
        .map_err(|error| regex_reason(&error))
}

impl Search {
    /// A search from text number `start` of `count`, which is the first that is compared.
    pub fn new(regex: Regex, start: usize, count: usize, way: Way) -> Search {
        Search { regex, way, next: start, left: count }
    }

    /// Searches for a short time.
    pub fn step<'t>(
        &mut self,
        count: usize,
        text: impl Fn(usize) -> std::borrow::Cow<'t, str>,
    ) -> Progress {
        let end = Instant::now() + STEP;
        while self.left > 0 && count > 0 {
            for _ in 0..BATCH.min(self.left) {
                let at = self.next % count;
                self.left -= 1;
                self.next = match self.way {
                    Way::Forward => (at + 1) % count,
                    Way::Backward => at.checked_sub(1).unwrap_or(count - 1),
                };
                if self.regex.is_match(&text(at)) {
                    self.left = 0;
                    return Progress::Found(at);
                }
            }
            if Instant::now() > end && self.left > 0 {
                return Progress::Searching;
            }
        }
        // Also where a newer page has no texts any more.
        self.left = 0;
        Progress::Nothing
    }

    /// True while it is not finished.
    pub fn is_running(&self) -> bool {
        self.left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(texts: &[&str], pattern: &str, start: usize, way: Way) -> Progress {
        let regex = super::pattern(pattern).unwrap();
        let mut search = Search::new(regex, start, texts.len(), way);
        search.step(texts.len(), |i| texts[i].into())
    }

    #[test]
    fn searches_wrap_around() {
        let texts = ["main", "Alpha", "beta", "alpha"];
        assert_eq!(find(&texts, "alpha", 0, Way::Forward), Progress::Found(1));
        assert_eq!(find(&texts, "alpha", 2, Way::Forward), Progress::Found(3));
        assert_eq!(find(&texts, "main", 1, Way::Forward), Progress::Found(0));
        assert_eq!(find(&texts, "main", 3, Way::Backward), Progress::Found(0));
        assert_eq!(find(&texts, "beta", 0, Way::Backward), Progress::Found(2));
        assert_eq!(find(&texts, "Alpha", 2, Way::Forward), Progress::Found(1));
        assert_eq!(find(&texts, "gamma", 2, Way::Forward), Progress::Nothing);
        assert_eq!(find(&[], "gamma", 0, Way::Forward), Progress::Nothing);
    }

    #[test]
    fn a_search_ends_with_the_texts() {
        let mut search = Search::new(pattern("gamma").unwrap(), 0, 4, Way::Forward);
        assert_eq!(search.step(0, |_| "".into()), Progress::Nothing);
        assert!(!search.is_running());
    }

    #[test]
    fn a_wrong_expression_is_one_line() {
        assert_eq!(pattern("(").unwrap_err(), "unclosed group");
    }
}
