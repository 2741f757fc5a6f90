//! The value of `-g`: an order, or perf's list such as `graph,0.5,caller`.

use view::Direction;

/// What a value of `-g` selects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CallGraph {
    /// The order of a call tree; `None`: a table.
    pub(super) direction: Option<Direction>,
    /// Rows below this percentage are left out.
    pub(super) percent_limit: Option<f64>,
    /// The number of rows.
    pub(super) rows: Option<usize>,
}

/// Words of perf that are the default of prof, or that prof does not distinguish.
const WITHOUT_EFFECT: [&str; 4] = ["graph", "fractal", "function", "percent"];

/// Words of perf that prof has elsewhere, with the options that select the same.
const ELSEWHERE: [(&str, &str); 9] = [
    ("callers", "callee prints the callers of each function"),
    ("callees", "caller, the default, prints the callees of the outermost callers"),
    ("flat", "--traces prints the stacks one by one"),
    ("folded", "prof flame --folded writes folded stacks"),
    ("address", "--granularity addresses distinguishes addresses"),
    ("srcline", "--lines distinguishes source lines"),
    ("branch", "prof records no branches"),
    ("period", "call trees have the values in addition to percentages"),
    ("count", "--type samples shows the numbers of samples"),
];

impl CallGraph {
    /// The tree of `-g` without a value.
    pub(super) const DEFAULT: CallGraph =
        CallGraph { direction: Some(Direction::Callees), percent_limit: None, rows: None };

    /// What the text selects; `None`: it is no value of `-g`, but the name of a file.
    ///
    /// # Errors
    ///
    /// prof selects one of the words of perf with another option.
    pub(super) fn parse(text: &str) -> Option<Result<CallGraph, String>> {
        let mut found = CallGraph::DEFAULT;
        let mut elsewhere = None;
        for word in text.split(',') {
            let option = ELSEWHERE.iter().find(|(name, _)| *name == word);
            match word {
                "caller" => found.direction = Some(Direction::Callees),
                "callee" => found.direction = Some(Direction::Callers),
                "none" => found.direction = None,
                _ if WITHOUT_EFFECT.contains(&word) => {}
                _ if option.is_some() => elsewhere = elsewhere.or(option),
                _ => found.add_limit(word)?,
            }
        }
        Some(match elsewhere {
            Some((word, instead)) => Err(format!("-g {text}: not {word}: {instead}")),
            None => Ok(found),
        })
    }

    /// True if it limits the rows, as text has them.
    pub(super) fn has_limit(&self) -> bool {
        self.percent_limit.is_some() || self.rows.is_some()
    }

    /// Adds perf's first number, which is a percentage, or its second, which is a number of rows.
    /// `None`: the word is neither.
    fn add_limit(&mut self, word: &str) -> Option<()> {
        if self.percent_limit.is_none() {
            self.percent_limit = Some(super::percent(word).ok()?);
        } else if self.rows.is_none() {
            self.rows = Some(word.parse().ok()?);
        } else {
            return None;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Option<Direction>, Option<f64>, Option<usize>) {
        let found = CallGraph::parse(text).expect(text).expect(text);
        (found.direction, found.percent_limit, found.rows)
    }

    #[test]
    fn lists_of_perf_are_values() {
        let [callers, callees] = [Some(Direction::Callers), Some(Direction::Callees)];
        for (text, expected) in [
            ("callee", (callers, None, None)),
            ("caller", (callees, None, None)),
            ("none", (None, None, None)),
            ("callee,0.5", (callers, Some(0.5), None)),
            ("0.5,callee", (callers, Some(0.5), None)),
            ("graph,0.5,callee", (callers, Some(0.5), None)),
            ("graph,2,20,caller,function,percent", (callees, Some(2.0), Some(20))),
            ("fractal,5%", (callees, Some(5.0), None)),
            ("1", (callees, Some(1.0), None)),
        ] {
            assert_eq!(parsed(text), expected, "{text}");
        }
    }

    #[test]
    fn other_texts_are_files() {
        for text in ["a.pb.gz", "-", "caller,a.pb", "101", "graph,1,2,3", "", "Caller", "caller,"] {
            assert_eq!(CallGraph::parse(text), None, "{text}");
        }
    }

    #[test]
    fn words_that_prof_has_elsewhere_name_the_option() {
        let error = |text| CallGraph::parse(text).unwrap().unwrap_err();
        assert_eq!(
            error("folded,0.5,caller"),
            "-g folded,0.5,caller: not folded: prof flame --folded writes folded stacks"
        );
        assert!(error("graph,0.5,caller,address").contains("--granularity addresses"));
    }
}
