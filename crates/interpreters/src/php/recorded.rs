//! PHP of recorded memory: what is known of it from files of its process is kept as facts.

use super::{Offsets, Php, Symbols, check};
use crate::{Recorded, Refusal};

impl Php {
    /// What [`Php::of_recorded`] needs in addition to memory.
    pub fn facts(&self) -> Vec<(String, String)> {
        let numbers = |all: &[u64]| all.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        let symbols = &self.symbols;
        let parts: Vec<u64> =
            symbols.evaluation.iter().flat_map(|part| [part.start, part.end]).collect();
        let facts = [
            ("interface", vec![self.offsets.interface.into()]),
            ("globals", vec![symbols.globals]),
            ("evaluation", parts),
            ("image", vec![symbols.image.start, symbols.image.end]),
            ("has_registers", vec![symbols.has_registers.into()]),
        ];
        facts.map(|(key, values)| (key.to_owned(), numbers(&values))).into()
    }

    /// PHP of recorded memory.
    ///
    /// # Errors
    ///
    /// The facts are incomplete.
    pub fn of_recorded(recorded: &Recorded) -> Result<Php, Refusal> {
        let numbers = |key: &str| -> Option<Vec<u64>> {
            recorded.fact(key)?.split_whitespace().map(|number| number.parse().ok()).collect()
        };
        let number = |key| numbers(key)?.first().copied();
        let found = || {
            let offsets = Offsets::for_interface(number("interface")? as u32)?;
            let image = numbers("image")?;
            let parts = numbers("evaluation")?;
            let symbols = Symbols {
                globals: number("globals")?,
                evaluation: parts.chunks_exact(2).map(|part| part[0]..part[1]).collect(),
                image: *image.first()?..*image.last()?,
                has_registers: number("has_registers")? != 0,
            };
            Some(Php::new(offsets.clone(), symbols))
        };
        found().ok_or(Refusal::Layout("facts are missing"))
    }

    /// Checks it against recorded memory, as [`super::detect`] does with a process.
    ///
    /// # Errors
    ///
    /// What is not as expected.
    pub fn check(&self, recorded: &Recorded) -> Result<(), Refusal> {
        check::check(self, recorded, 1)
    }
}
