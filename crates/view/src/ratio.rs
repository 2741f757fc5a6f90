//! Ratios of sample types: for example, cycles per instruction of each row.

use profile::Profile;

/// Values of two sample types in the rows of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// Its title: `CPI`, or `A/B`.
    pub name: String,
    /// Its types.
    pub quotient: Quotient,
    /// Quotient of each row's self values, and of its totals; `None` if the divisor is 0.
    pub rows: Vec<(Option<f64>, Option<f64>)>,
}

/// Sample types of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotient {
    /// Index of the numerator's type.
    pub numerator: usize,
    /// Index of the denominator's type.
    pub denominator: usize,
}

impl Quotient {
    /// Parses `A/B`, by the names of sample types.
    ///
    /// # Errors
    ///
    /// The profile has no such type; the line lists those that it has.
    pub fn parse(profile: &Profile, text: &str) -> Result<Quotient, String> {
        let kinds = || profile.sample_types.iter().map(|t| profile.str(t.kind));
        let index = |name: &str| kinds().position(|kind| kind == name);
        // A name may contain slashes.
        let slashes = text.match_indices('/').map(|(i, _)| (&text[..i], &text[i + 1..]));
        let found = slashes.filter_map(|(a, b)| Some((index(a)?, index(b)?))).next();
        let (numerator, denominator) = found.ok_or_else(|| {
            let all: Vec<&str> = kinds().collect();
            format!("'{text}' is no ratio of two of its types: {}", all.join(", "))
        })?;
        Ok(Quotient { numerator, denominator })
    }

    /// Cycles per instruction, if the profile has both.
    pub fn cpi(profile: &Profile) -> Option<Quotient> {
        let index = |wanted: &str| {
            profile.sample_types.iter().position(|t| {
                // With or without modifiers.
                profile.str(t.kind).split(':').next() == Some(wanted)
            })
        };
        let cycles = index("cycles").or_else(|| index("cpu-cycles"))?;
        Some(Quotient { numerator: cycles, denominator: index("instructions")? })
    }

    /// Its title: `CPI`, or `A/B`.
    pub fn name(self, profile: &Profile) -> String {
        if Quotient::cpi(profile) == Some(self) {
            return "CPI".to_owned();
        }
        let kind = |index: usize| profile.str(profile.sample_types[index].kind);
        format!("{}/{}", kind(self.numerator), kind(self.denominator))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnRequest, Columns, Granularity, TopOptions, View};
    use profile::{Builder, Column, LabelSetId};

    /// `slow` has four cycles an instruction, `fast` half a one; `idle` has no instructions.
    fn counted() -> Profile {
        let types = [("samples", "count"), ("cycles:u", "count"), ("instructions:u", "count")];
        let mut builder = Builder::new(&types);
        let [main, slow, fast, idle] =
            ["main", "slow", "fast", "idle"].map(|name| builder.named_location(name));
        for (leaf, cycles, instructions) in
            [(slow, 4000, 1000), (fast, 500, 1000), (slow, 400, 100), (idle, 7, 0)]
        {
            let values = [(Column(1), cycles), (Column(2), instructions)];
            builder.add_stack(&[main, leaf], None, LabelSetId::EMPTY, 1, &values);
        }
        builder.finish(None)
    }

    #[test]
    fn cycles_per_instruction_of_functions() {
        let p = counted();
        let quotient = Quotient::cpi(&p).unwrap();
        let options = TopOptions::default();
        for type_index in 0..3 {
            let view = View::new(&p, type_index, Granularity::FUNCTION);
            let request = ColumnRequest { quotients: vec![quotient], ..ColumnRequest::default() };
            let (top, columns) = Columns::new(&view, &options, &request);
            let ratio = &columns.ratios[0];
            assert_eq!(ratio.name, "CPI");
            for (row, quotients) in top.rows.iter().zip(&ratio.rows) {
                let want = match &*view.frames.get(row.frame).display(&p) {
                    "slow" => (Some(4.0), Some(4.0)),
                    "fast" => (Some(0.5), Some(0.5)),
                    "idle" => (None, None),
                    _ => (None, Some(4907.0 / 2100.0)),
                };
                assert_eq!(*quotients, want);
            }
        }
    }

    #[test]
    fn ratios_are_named_by_sample_types() {
        let p = counted();
        let both = Quotient::parse(&p, "instructions:u/cycles:u").unwrap();
        assert_eq!((both.numerator, both.denominator), (2, 1));
        let refused = Quotient::parse(&p, "cycles/instructions").unwrap_err();
        assert!(refused.contains("samples, cycles:u, instructions:u"), "{refused}");
        assert!(Quotient::parse(&p, "cycles:u").is_err() && Quotient::parse(&p, "/").is_err());
    }
}
