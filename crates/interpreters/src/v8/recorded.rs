//! V8 of recorded memory: what is known of it from files of its process is kept as facts.

use super::{Constants, Offsets, Symbols, V8};
use crate::{Recorded, Refusal};

impl V8 {
    /// What [`V8::of_recorded`] needs in addition to memory.
    pub fn facts(&self) -> Vec<(String, String)> {
        let text = |all: &[i64]| all.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
        let symbols = &self.symbols;
        let isolate: Vec<i64> = symbols.isolate.iter().map(|offset| i64::from(*offset)).collect();
        let optional = |word: Option<u64>| Vec::from_iter(word.map(u64::cast_signed));
        let [exit, direct] = [symbols.exit_frame, symbols.direct_caller]
            .map(|offset| Vec::from_iter(offset.map(i64::from)));
        let constants: Vec<String> =
            self.offsets.constants.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let facts = [
            ("version", text(&self.offsets.version.map(i64::from))),
            ("isolate", text(&isolate)),
            ("exit_frame", text(&exit)),
            ("direct_caller", text(&direct)),
            ("interpreter", text(&optional(symbols.interpreter))),
            ("builtins", text(&optional(symbols.builtins))),
            (
                "bytecodes",
                text(&Vec::from_iter(symbols.bytecodes.iter().map(|size| i64::from(*size)))),
            ),
            ("constants", constants.join(" ")),
        ];
        facts.map(|(key, value)| (key.to_owned(), value)).into()
    }

    /// V8 of recorded memory.
    ///
    /// # Errors
    ///
    /// The facts are incomplete ([`Refusal::Layout`]).
    pub fn of_recorded(recorded: &Recorded) -> Result<V8, Refusal> {
        let numbers = |key: &str| -> Option<Vec<i64>> {
            recorded.fact(key)?.split_whitespace().map(|number| number.parse().ok()).collect()
        };
        let first = |key| Some(numbers(key)?.first().copied());
        let facts = || {
            let constants = recorded.fact("constants")?.split(' ');
            let pair = |pair: &str| {
                let (name, value) = pair.split_once('=')?;
                Some((name.to_owned(), value.parse().ok()?))
            };
            let constants: Constants = constants.map(pair).collect::<Option<_>>()?;
            let version = numbers("version")?.into_iter().map(|number| number as u32);
            let version = *Vec::from_iter(version).first_chunk()?;
            let symbols = Symbols {
                isolate: numbers("isolate")?.into_iter().map(|offset| offset as i32).collect(),
                exit_frame: first("exit_frame")?.map(|offset| offset as i32),
                direct_caller: first("direct_caller")?.map(|offset| offset as i32),
                interpreter: first("interpreter")?.map(i64::cast_unsigned),
                builtins: first("builtins")?.map(i64::cast_unsigned),
                bytecodes: numbers("bytecodes")?.into_iter().map(|size| size as u8).collect(),
            };
            Some(V8::new(Offsets::new(version, constants)?, symbols))
        };
        facts().ok_or(Refusal::Layout("facts are missing"))
    }
}
