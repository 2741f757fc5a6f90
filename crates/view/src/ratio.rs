//! Ratios of sample types: for example, cycles per instruction of each row.

use rustc_hash::FxHashMap;

use super::{Granularity, Row, Top, TopOptions, View};
use profile::{LabelValue, Profile};

/// Values of two sample types in the rows of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ratio {
    /// Its title: `CPI`, or `A/B`.
    pub name: String,
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
        let of = |name: &str| kinds().position(|kind| kind == name);
        // A name may contain slashes.
        let slashes = text.match_indices('/').map(|(i, _)| (&text[..i], &text[i + 1..]));
        let found = slashes.filter_map(|(a, b)| Some((of(a)?, of(b)?))).next();
        let (numerator, denominator) = found.ok_or_else(|| {
            let all: Vec<&str> = kinds().collect();
            format!("'{text}' is no ratio of two of its types: {}", all.join(", "))
        })?;
        Ok(Quotient { numerator, denominator })
    }

    /// Cycles per instruction, if the profile has both.
    pub fn cpi(profile: &Profile) -> Option<Quotient> {
        let of = |wanted: &str| {
            profile.sample_types.iter().position(|t| {
                // With or without modifiers.
                profile.str(t.kind).split(':').next() == Some(wanted)
            })
        };
        let cycles = of("cycles").or_else(|| of("cpu-cycles"))?;
        Some(Quotient { numerator: cycles, denominator: of("instructions")? })
    }
}

type RowKey = (u32, Vec<Option<LabelValue>>);

impl Ratio {
    /// The quotient for each of the rows of `top`, a table of the same profile at this granularity.
    pub fn new(
        profile: &Profile,
        quotient: Quotient,
        granularity: Granularity,
        top: &Top,
        options: &TopOptions,
    ) -> Ratio {
        let values = |type_index| -> FxHashMap<RowKey, (i64, i64)> {
            let view = View::new(profile, type_index, granularity);
            let all = TopOptions { labels: options.labels.clone(), ..TopOptions::default() };
            let all = Top::new(&view, &all);
            all.rows.iter().map(|row| (key(&all, row), (row.self_value, row.total))).collect()
        };
        let above = values(quotient.numerator);
        let below = values(quotient.denominator);
        let of = |above: i64, below: i64| (below != 0).then(|| above as f64 / below as f64);
        let rows = top.rows.iter().map(|row| {
            let key = key(top, row);
            let above = above.get(&key);
            let below = below.get(&key);
            let (self_above, all_above) = above.copied().unwrap_or_default();
            let (self_below, all_below) = below.copied().unwrap_or_default();
            (of(self_above, self_below), of(all_above, all_below))
        });
        let kind = |index: usize| profile.str(profile.sample_types[index].kind);
        let name = if Quotient::cpi(profile) == Some(quotient) {
            "CPI".to_owned()
        } else {
            format!("{}/{}", kind(quotient.numerator), kind(quotient.denominator))
        };
        Ratio { name, rows: rows.collect() }
    }
}

fn key(top: &Top, row: &Row) -> RowKey {
    (row.frame, top.groups[row.group as usize].clone())
}

#[cfg(test)]
mod tests {
    use super::*;
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
            builder.add_stack(&[main, leaf], None, LabelSetId::EMPTY, &values);
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
            let top = Top::new(&view, &options);
            let ratio = Ratio::new(&p, quotient, Granularity::FUNCTION, &top, &options);
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
