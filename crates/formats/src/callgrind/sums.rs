//! The sums of costs that a file states, and those of its lines.

/// The sentence about lines whose sum is less than the stated one.
const LESS: &str = "the costs of its lines are less than its sums";

/// The sentence about a file of valgrind without sums, which end it.
const NONE: &str = "the sums at its end are missing";

/// Sums of one part of a file after the other.
#[derive(Default)]
pub(super) struct Sums {
    /// Of the lines of the current part.
    own: Vec<i64>,
    /// Those that the part states.
    stated: Option<Vec<i64>>,
    /// Whether they are those of `totals:`, which come before those of `summary:`.
    has_totals: bool,
    /// Whether the file is valgrind's.
    pub is_valgrind: bool,
    missing: Option<&'static str>,
}

impl Sums {
    /// Adds the own costs of a line.
    pub(super) fn add(&mut self, costs: &[i64]) {
        self.own.resize(costs.len().max(self.own.len()), 0);
        for (sum, cost) in self.own.iter_mut().zip(costs) {
            *sum = sum.saturating_add(*cost);
        }
    }

    /// Takes the sums of a `totals:` or `summary:` line.
    pub(super) fn state(&mut self, key: &str, costs: &str) {
        let is_totals = key == "totals";
        if is_totals || !self.has_totals {
            self.has_totals = is_totals;
            let costs = costs.split_whitespace().map_while(|word| word.parse().ok());
            self.stated = Some(costs.take(super::parse::EVENTS).collect());
        }
    }

    /// Ends a part.
    pub(super) fn end_part(&mut self) {
        let own = std::mem::take(&mut self.own);
        self.has_totals = false;
        let why = match self.stated.take() {
            Some(stated) => {
                let sum = |event: usize| own.get(event).copied().unwrap_or(0);
                let is_less = stated.iter().enumerate().any(|(event, cost)| sum(event) < *cost);
                is_less.then_some(LESS)
            }
            None => self.is_valgrind.then_some(NONE),
        };
        self.missing = self.missing.or(why);
    }

    /// The sentence about costs that are missing, if some are; after the last part.
    pub(super) fn missing(&self) -> Option<&'static str> {
        self.missing
    }
}
