//! CPython of recorded memory: what is known of it from files of its process is kept as facts.

use super::{Cpython, Symbols, check, detect};
use crate::glibc::ThreadLayout;
use crate::{Recorded, Refusal};

impl Cpython {
    /// What [`Cpython::of_recorded`] needs in addition to memory.
    pub fn facts(&self) -> Vec<(String, String)> {
        let numbers = |all: &[u64]| all.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        let symbols = &self.symbols;
        let parts: Vec<u64> =
            symbols.evaluation.iter().flat_map(|part| [part.start, part.end]).collect();
        let layout = self.threads.map(ThreadLayout::offsets).into_iter().flatten();
        let layout: Vec<u64> = layout.map(u64::from).collect();
        let facts = [
            ("minor", vec![self.offsets.minor.into()]),
            ("runtime", vec![symbols.runtime]),
            ("code_type", vec![symbols.code_type]),
            ("str_type", vec![symbols.str_type]),
            ("evaluation", parts),
            ("prologue", vec![symbols.prologue]),
            ("image", vec![symbols.image.start, symbols.image.end]),
            ("thread_layout", layout),
        ];
        facts.map(|(key, values)| (key.to_owned(), numbers(&values))).into()
    }

    /// CPython of recorded memory.
    ///
    /// # Errors
    ///
    /// Those of [`Cpython::new`]; the facts are incomplete ([`Refusal::Layout`]).
    pub fn of_recorded(recorded: &Recorded) -> Result<Cpython, Refusal> {
        let damaged = Refusal::Layout("facts are missing");
        let numbers = |key: &str| -> Option<Vec<u64>> {
            recorded.fact(key)?.split_whitespace().map(|number| number.parse().ok()).collect()
        };
        let number = |key| numbers(key)?.first().copied();
        let facts = || {
            let parts = numbers("evaluation")?;
            let image = numbers("image")?;
            let symbols = Symbols {
                runtime: number("runtime")?,
                code_type: number("code_type")?,
                str_type: number("str_type")?,
                evaluation: parts.chunks_exact(2).map(|part| part[0]..part[1]).collect(),
                prologue: number("prologue")?,
                image: *image.first()?..*image.last()?,
            };
            let layout: Vec<u32> =
                numbers("thread_layout")?.into_iter().map(|number| number as u32).collect();
            let layout = layout.first_chunk().map(|layout| ThreadLayout::new(*layout));
            Some((number("minor")? as u8, symbols, layout))
        };
        let (minor, symbols, layout) = facts().ok_or(damaged)?;
        let offsets = detect::offsets(minor, symbols.runtime, recorded)?;
        Cpython::new(offsets, symbols, layout, recorded)
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
