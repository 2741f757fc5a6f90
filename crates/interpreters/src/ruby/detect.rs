//! Recognizes Ruby by exported symbols of a file that a process has mapped: an executable or `libruby`,
//! also a stripped one.

use std::collections::HashMap;

use super::{Offsets, Ruby, Symbols, check};
use crate::candidate::Kind;
use crate::glibc::{ThreadLayout, path_to_variable};
use crate::images::Symbol;
use crate::{LoadedImage, Memory, Process, Refusal};
use sys::FileAddress;

/// The version as text.
pub(crate) const VERSION: &str = "ruby_version";
const VM: &str = "ruby_current_vm_ptr";
/// A thread-local variable (3.0 and later).
const CONTEXT: &str = "ruby_current_ec";
const OBJECT_CLASS: &str = "rb_cObject";
const EVALUATION: &str = "rb_vm_exec";
/// Returns the first word of the symbol table, which is not exported.
const NUMBER_OF_NAMES: &str = "rb_sym_immortal_count";

/// Ruby among the files of a process.
pub(crate) struct Found {
    offsets: Offsets,
    symbols: Symbols,
}

impl Kind for Found {
    type Checked = Ruby;

    fn find(process: &Process) -> Result<Option<Found>, Refusal> {
        let names = [VERSION, VM, CONTEXT, OBJECT_CLASS, EVALUATION, NUMBER_OF_NAMES];
        let all: Vec<_> = process.images.iter().map(|image| image.symbols(&names)).collect();
        // An executable that is not position-independent may have the library's data (copy relocations),
        // but no code of it.
        let has_code = |symbols: &HashMap<&str, Symbol>| symbols.contains_key(NUMBER_OF_NAMES);
        let is_own = |symbols: &HashMap<&str, Symbol>| {
            symbols.contains_key(VERSION) && (symbols.contains_key(VM) || has_code(symbols))
        };
        let Some(own) = all.iter().position(is_own) else { return Ok(None) };
        let image = &process.images[own];
        let symbols = &all[own];
        let minor = minor_version(image, symbols)?;
        let offsets = offsets(minor)?;
        let data = |name| {
            let mut copies = all.iter().enumerate().filter(|(number, _)| *number != own);
            let copied = copies.find_map(|(_, symbols)| symbols.get(name));
            copied.or(symbols.get(name)).map(|symbol| symbol.address)
        };
        let (Some(vm), Some(object_class), Some(context), Some(evaluation)) =
            (data(VM), data(OBJECT_CLASS), symbols.get(CONTEXT), symbols.get(EVALUATION))
        else {
            return Err(Refusal::Layout("it does not export what its releases do"));
        };
        let first = image.bias.apply(FileAddress(0)).0;
        let offset = context.address.wrapping_sub(first);
        let path = path_to_variable(process.images, image, offset, process.memory)?;
        let context_path =
            path.ok_or(Refusal::Layout("the C library does not describe thread-local variables"))?;
        let names = symbols.get(NUMBER_OF_NAMES).and_then(|symbol| {
            let code = image.bytes(symbol.address)?;
            returned_variable(code, symbol.address)
        });
        let symbols = Symbols {
            context_path,
            vm,
            object_class,
            names,
            evaluation: image.code(EVALUATION, *evaluation),
            image: image.extent(),
            thread_number: ThreadLayout::find(process.images).map(|layout| layout.tid),
        };
        Ok(Some(Found { offsets, symbols }))
    }

    fn check(&mut self, threads: &[i32], memory: &dyn Memory) -> Result<Ruby, Refusal> {
        let ruby = Ruby::new(self.offsets.clone(), self.symbols.clone(), memory)?;
        check::try_once(&ruby, threads, memory)?;
        Ok(ruby)
    }
}

/// Ruby in a process, if there is one: its check is repeated, with pauses.
///
/// # Errors
///
/// There is Ruby of a version or kind that is not supported, it runs no code at this time, or its
/// structures are not as expected.
#[cfg(any(test, feature = "testing"))]
pub fn detect(process: &Process) -> Result<Option<Ruby>, Refusal> {
    crate::candidate::detect::<Found>(process)
}

/// The minor version, of those that have a table.
fn minor_version(image: &LoadedImage, symbols: &HashMap<&str, Symbol>) -> Result<u8, Refusal> {
    let bytes = symbols.get(VERSION).and_then(|symbol| image.bytes(symbol.address));
    let text = bytes.unwrap_or_default().iter().take(16).take_while(|byte| **byte != 0);
    let text: String = text.map(|byte| char::from(*byte)).collect();
    let mut parts = text.split('.').map(|part| part.parse::<u8>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(3), Some(minor)) => Ok(minor),
        (Some(major), Some(minor)) => Err(Refusal::Version(format!("Ruby {major}.{minor}"))),
        _ => Err(Refusal::Layout("it does not state its version")),
    }
}

/// The offsets of a version.
pub(super) fn offsets(minor: u8) -> Result<Offsets, Refusal> {
    let table = Offsets::for_minor(minor).cloned();
    table.ok_or_else(|| Refusal::Version(format!("Ruby 3.{minor}")))
}

/// The address of the 32-bit variable that a function returns, if it does nothing else.
fn returned_variable(code: &[u8], address: u64) -> Option<u64> {
    /// `endbr64`, with which functions begin that are built with `-fcf-protection`.
    const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let rest = code.strip_prefix(&LANDING).unwrap_or(code);
    let begin = code.len() - rest.len();
    // `mov eax, [rip + distance]`, `ret`.
    let [0x8b, 0x05, distance @ .., 0xc3] = rest.first_chunk::<7>()? else { return None };
    let end = address.wrapping_add(begin as u64 + 6);
    Some(end.wrapping_add_signed(i32::from_le_bytes(*distance).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_returns_a_variable_has_its_address() {
        let code = [0x8b, 0x05, 0x10, 0, 0, 0, 0xc3, 0x90];
        assert_eq!(returned_variable(&code, 100), Some(122));
        let landing = [&[0xf3, 0x0f, 0x1e, 0xfa], &code[..]].concat();
        assert_eq!(returned_variable(&landing, 100), Some(126));
        let back = [0x8b, 0x05, 0xf0, 0xff, 0xff, 0xff, 0xc3];
        assert_eq!(returned_variable(&back, 100), Some(90));
        for other in [&code[..6], &[0x48, 0x8b, 0x05, 0, 0, 0, 0, 0xc3], &[]] {
            assert_eq!(returned_variable(other, 100), None);
        }
    }
}
