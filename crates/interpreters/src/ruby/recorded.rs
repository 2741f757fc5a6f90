//! Ruby of recorded memory: what is known of it from files of its process is kept as facts.

use super::{Ruby, Symbols, check, detect};
use crate::{Recorded, Refusal};

impl Ruby {
    /// What [`Ruby::of_recorded`] needs in addition to memory.
    pub fn facts(&self) -> Vec<(String, String)> {
        let symbols = &self.symbols;
        let number = |number: Option<u64>| number.into_iter().map(|n| n as i64).collect::<Vec<_>>();
        let parts = symbols.evaluation.iter().flat_map(|part| [part.start, part.end]);
        let parts = parts.map(|end| end as i64).collect();
        let facts = [
            ("minor", vec![self.offsets.minor.into()]),
            ("context_path", symbols.context_path.iter().map(|at| i64::from(*at)).collect()),
            ("vm", vec![symbols.vm as i64]),
            ("object_class", vec![symbols.object_class as i64]),
            ("names", number(symbols.names)),
            ("evaluation", parts),
            ("image", vec![symbols.image.start as i64, symbols.image.end as i64]),
            ("thread_number", number(symbols.thread_number.map(u64::from))),
        ];
        let text = |all: Vec<i64>| all.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
        facts.map(|(key, values)| (key.to_owned(), text(values))).into()
    }

    /// Ruby of recorded memory.
    ///
    /// # Errors
    ///
    /// Those of [`Ruby::new`]; the facts are incomplete ([`Refusal::Layout`]).
    pub fn of_recorded(recorded: &Recorded) -> Result<Ruby, Refusal> {
        let numbers = |key: &str| -> Option<Vec<i64>> {
            recorded.fact(key)?.split_whitespace().map(|number| number.parse().ok()).collect()
        };
        let number = |key| numbers(key)?.first().map(|number| *number as u64);
        let ranges = |key| {
            let ends = numbers(key)?;
            let range = |ends: &[i64]| ends[0] as u64..ends[1] as u64;
            Some(ends.chunks_exact(2).map(range).collect::<Vec<_>>())
        };
        let facts = || {
            let symbols = Symbols {
                context_path: numbers("context_path")?.iter().map(|at| *at as i32).collect(),
                vm: number("vm")?,
                object_class: number("object_class")?,
                names: number("names"),
                evaluation: ranges("evaluation")?,
                image: ranges("image")?.first()?.clone(),
                thread_number: number("thread_number").map(|number| number as u32),
            };
            Some((number("minor")? as u8, symbols))
        };
        let (minor, symbols) = facts().ok_or(Refusal::Layout("facts are missing"))?;
        Ruby::new(detect::offsets(minor)?, symbols, recorded)
    }

    /// Checks it against recorded memory, as [`super::detect`] does with a process.
    ///
    /// # Errors
    ///
    /// What is not as expected.
    pub fn check(&self, threads: &[i32], recorded: &Recorded) -> Result<(), Refusal> {
        check::check(self, threads, recorded, 1)
    }
}
