//! Recognizes PHP by exported symbols of a file that a process has mapped: an executable, `libphp` or
//! a module of Apache, also a stripped one.

use std::collections::HashMap;

use super::{Offsets, Php, Symbols, check};
use crate::candidate::Kind;
use crate::images::Symbol;
use crate::{Memory, Process, Refusal};

pub(crate) const EVALUATION: &str = "execute_ex";
/// Data of the one thread that executes code; builds with threads have another symbol.
const GLOBALS: &str = "executor_globals";
/// A function that returns how instructions are dispatched.
const VM_KIND: &str = "zend_vm_kind";
/// Names that only PHP has together with the evaluation function.
const OTHERS: [&str; 2] = ["zend_execute_internal", "zend_get_executed_lineno"];

/// How the build of an extension is named (`ZEND_MODULE_BUILD_ID`): `API20220829,NTS`. PHP compares it
/// with its own text, which each of its built-in extensions has, too.
const BUILD: &[u8] = b"API20";
/// Digits of the number of the interface in it.
const DIGITS: usize = 8;
/// Most bytes behind it.
const MAX_SUFFIX: usize = 16;

/// PHP among the files of a process.
pub(crate) struct Found(Php);

impl Kind for Found {
    type Checked = Php;

    fn find(process: &Process) -> Result<Option<Found>, Refusal> {
        let names = [&[EVALUATION, GLOBALS, VM_KIND][..], &OTHERS].concat();
        let all: Vec<_> = process.images.iter().map(|image| image.symbols(&names)).collect();
        let is_php = |symbols: &HashMap<&str, Symbol>| {
            let has = |name: &&str| symbols.contains_key(*name);
            has(&EVALUATION) && OTHERS.iter().all(has)
        };
        let Some(own) = all.iter().position(is_php) else { return Ok(None) };
        let image = &process.images[own];
        let offsets = offsets(image.file)?;
        // An executable that is not position-independent may have the library's data (copy relocations).
        let copies = all.iter().filter(|symbols| !symbols.contains_key(EVALUATION));
        let globals = copies.chain([&all[own]]).find_map(|symbols| symbols.get(GLOBALS));
        let Some(globals) = globals else {
            return Err(Refusal::Version(format!("PHP {} with threads (ZTS)", offsets.version)));
        };
        let kind = all[own].get(VM_KIND).and_then(|symbol| image.bytes(symbol.address));
        let symbols = Symbols {
            globals: globals.address,
            evaluation: image.code(EVALUATION, all[own][EVALUATION]),
            image: image.extent(),
            has_registers: kind.is_some_and(is_hybrid),
        };
        Ok(Some(Found(Php::new(offsets.clone(), symbols))))
    }

    fn check(&mut self, _: &[i32], memory: &dyn Memory) -> Result<Php, Refusal> {
        check::try_once(&self.0, memory)?;
        Ok(self.0.clone())
    }
}

/// PHP in a process, if there is one: its check is repeated, with pauses.
///
/// # Errors
///
/// There is PHP of a version or kind that is not supported, it runs no code at this time, or its
/// structures are not as expected.
#[cfg(any(test, feature = "testing"))]
pub fn detect(process: &Process) -> Result<Option<Php>, Refusal> {
    crate::candidate::detect::<Found>(process)
}

/// True if the function whose code this is returns 4 (`ZEND_VM_KIND_HYBRID`): `mov eax, 4` and `ret`,
/// behind `endbr64` if it has that.
fn is_hybrid(code: &[u8]) -> bool {
    let code = code.strip_prefix(b"\xf3\x0f\x1e\xfa").unwrap_or(code);
    code.starts_with(b"\xb8\x04\x00\x00\x00\xc3")
}

/// The offsets of the version of a file that contains PHP.
fn offsets(file: &[u8]) -> Result<&'static Offsets, Refusal> {
    let Some((interface, suffix)) = build(file) else {
        return Err(Refusal::Version("PHP without the name of its build".to_owned()));
    };
    let offsets = Offsets::for_interface(interface);
    let offsets = offsets.ok_or_else(|| Refusal::Version(version(interface)))?;
    match suffix {
        b",NTS" => Ok(offsets),
        b",TS" => Err(Refusal::Version(format!("PHP {} with threads (ZTS)", offsets.version))),
        _ => Err(Refusal::Version(format!("PHP {} of a debug build", offsets.version))),
    }
}

/// The name of a version without a table.
fn version(interface: u32) -> String {
    /// Versions by the first release with an interface.
    const KNOWN: [(u32, &str); 10] = [
        (20_151_012, "7.0"),
        (20_160_303, "7.1"),
        (20_170_718, "7.2"),
        (20_180_731, "7.3"),
        (20_190_902, "7.4"),
        (20_200_930, "8.0"),
        (20_210_902, "8.1"),
        (20_230_831, "8.3"),
        (20_240_924, "8.4"),
        (20_250_925, "8.5"),
    ];
    match KNOWN.iter().find(|(number, _)| *number == interface) {
        Some((_, name)) => format!("PHP {name}"),
        None => format!("PHP with the interface {interface}"),
    }
}

/// The number of the interface, and what follows it in the name of the build.
fn build(file: &[u8]) -> Option<(u32, &[u8])> {
    /// Bytes in which it is searched; PHP's files have 6 MiB.
    const MOST: usize = 256 << 20;
    let mut rest = &file[..file.len().min(MOST)];
    while let Some(at) = find(rest, BUILD) {
        let text = &rest[at..];
        rest = &text[BUILD.len()..];
        let digits = text.get(3..3 + DIGITS)?;
        let behind = &text[3 + DIGITS..];
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        let end = behind.iter().take(MAX_SUFFIX).position(|byte| *byte == 0);
        if let (Some(number), Some(end)) = (number, end)
            && behind.starts_with(b",")
        {
            return Some((number, &behind[..end]));
        }
    }
    None
}

/// The place of a text in bytes.
fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        from += bytes.get(from..)?.iter().position(|byte| *byte == text[0])?;
        if bytes[from..].starts_with(text) {
            return Some(from);
        }
        from += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_is_named_by_a_text_of_the_file() {
        let file = |name: &str| format!("API API20 API20x20829,NTS\0 {name}\0 more").into_bytes();
        let found = |name: &str| offsets(&file(name)).map(|offsets| offsets.version);
        assert_eq!(found("API20220829,NTS"), Ok("8.2"));
        let refused = |name| match found(name) {
            Err(Refusal::Version(version)) => version,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused("API20220829,TS"), "PHP 8.2 with threads (ZTS)");
        assert_eq!(refused("API20220829,NTS,debug"), "PHP 8.2 of a debug build");
        assert_eq!(refused("API20250925,NTS"), "PHP 8.5");
        assert_eq!(refused("API20350101,NTS"), "PHP with the interface 20350101");
        assert_eq!(refused("nothing"), "PHP without the name of its build");
    }

    #[test]
    fn the_dispatch_is_what_a_function_returns() {
        assert!(
            is_hybrid(b"\xb8\x04\0\0\0\xc3") && is_hybrid(b"\xf3\x0f\x1e\xfa\xb8\x04\0\0\0\xc3")
        );
        assert!(!is_hybrid(b"\xb8\x01\0\0\0\xc3") && !is_hybrid(b""));
    }
}
