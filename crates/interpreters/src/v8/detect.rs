//! Recognizes V8 by the constants that a file exports for debuggers: `node`, or `libnode`.

use std::collections::HashMap;

use super::offsets::{PREFIX, symbols};
use super::{Constants, Offsets, Symbols, V8, check};
use crate::glibc::{ThreadLayout, thread_pointers};
use crate::images::Place;
use crate::{LoadedImage, Process, Refusal};

/// A constant that all versions export.
pub(crate) const EXPORTED: &str = "v8dbg_HeapObjectTag";

const MAJOR: &str = "_ZN2v88internal7Version6major_E";
const MINOR: &str = "_ZN2v88internal7Version6minor_E";

/// The isolate of a thread: a thread-local variable, or the number of a pthread key (up to 10.x).
const CURRENT: &str = "_ZN2v88internal18g_current_isolate_E";
const KEY: &str = "_ZN2v88internal7Isolate12isolate_key_E";

/// The interpreter, the beginning of all built-in code, and of the code that calls C++.
const INTERPRETER: &str = "Builtins_InterpreterEntryTrampoline";
const BUILTINS: [&str; 3] = [
    "v8_Default_embedded_blob_code_data_",
    "v8_Default_embedded_blob_code_",
    "v8_Default_embedded_blob_",
];
const CALL: &str = "Builtins_CEntry_Return1_";

/// V8 in a process, if there is one. Its structures are checked: that takes some thousand reads.
///
/// # Errors
///
/// There is V8 of a version that is not supported, it runs no script yet, or its structures are not as
/// expected.
pub fn detect(process: &Process) -> Result<Option<V8>, Refusal> {
    let Some(image) = process.images.iter().find(|image| image.exports(EXPORTED)) else {
        return Ok(None);
    };
    let constants = symbols();
    let mut names: Vec<&str> = constants.iter().map(String::as_str).collect();
    names.extend([MAJOR, MINOR, CURRENT, KEY, INTERPRETER]);
    names.extend(BUILTINS);
    let found = image.symbols(&names);
    let version = [MAJOR, MINOR].map(|name| -> Result<u32, Refusal> {
        let Some(place) = found.get(name) else { return Ok(0) };
        Ok(process.memory.half(place.address)?)
    });
    let [major, minor] = version;
    let version = [major?, minor?];
    if !Offsets::has_version(version) {
        let name = format!("V8 {}.{}", version[0], version[1]);
        let is_known = version[0] != 0;
        return Err(Refusal::Version(if is_known { name } else { "this V8".to_owned() }));
    }
    let value = |name: &String| {
        // Those that are 0 need no bytes in the file.
        let bytes = image.constant(found.get(name.as_str())?.address).unwrap_or([0; 4]);
        Some((name.strip_prefix(PREFIX)?.to_owned(), i32::from_le_bytes(bytes)))
    };
    let constants: Constants = constants.iter().filter_map(value).collect();
    let other = Refusal::Layout("its description of itself is another one");
    let offsets = Offsets::new(version, constants).ok_or(other)?;
    let v8 = V8::new(offsets, places(process, image, &found)?);
    let threads = thread_pointers(process.images, process.memory)?;
    check::check(&v8, &threads, process.memory, check::TRIES)?;
    Ok(Some(v8))
}

/// Addresses and ways in a process.
fn places(
    process: &Process,
    image: &LoadedImage,
    found: &HashMap<&str, Place>,
) -> Result<Symbols, Refusal> {
    let isolate = match (found.get(CURRENT), found.get(KEY)) {
        (Some(variable), _) => image.thread_local(*variable).map(|distance| vec![distance]),
        (None, Some(key)) => {
            let key = process.memory.half(key.address)?;
            ThreadLayout::find(process.images).and_then(|layout| layout.path_to(key))
        }
        (None, None) => None,
    };
    let calls = image.parts(CALL);
    let exit_frame = calls.iter().find_map(|call| exit_frame(image.bytes(call.address)?));
    let interpreter = found.get(INTERPRETER).and_then(|code| {
        let bytes = image.bytes(code.address)?;
        let size = usize::try_from(code.size).ok()?;
        let distance = interpreter_return(&bytes[..bytes.len().min(size)])?;
        Some(code.address.wrapping_add(distance))
    });
    // In some versions, the second name is that of a pointer to the code.
    let first = BUILTINS.iter().find_map(|name| found.get(name)).map(|place| place.address);
    let builtins = first.filter(|first| interpreter.is_some_and(|address| *first <= address));
    Ok(Symbols { isolate: isolate.unwrap_or_default(), exit_frame, interpreter, builtins })
}

/// Most bytes of a function in which an instruction is searched.
const MAX_CODE: usize = 2048;

/// The offset in an isolate at which the code that calls C++ stores its frame pointer: `mov
/// [r13 + offset], rbp`, where r13 has the isolate plus a distance, which `lea rdx, [r13 - distance]`
/// removes.
fn exit_frame(code: &[u8]) -> Option<i32> {
    let code = &code[..code.len().min(MAX_CODE)];
    let find = |bytes: &[u8]| {
        let at = code.windows(bytes.len()).position(|window| window == bytes)?;
        code.get(at + bytes.len()..)
    };
    let offset: &[u8; 4] = find(&[0x49, 0x89, 0xad])?.first_chunk()?;
    let distance = find(&[0x49, 0x8d, 0x55])?.first()?.cast_signed();
    let offset = i32::from_le_bytes(*offset).checked_sub(distance.into())?;
    (0..1 << 20).contains(&offset).then_some(offset)
}

/// The offset behind the call of the code of an instruction: `call rcx`, and `mov r12, [rbp - 32]`, the
/// bytecode of the frame.
fn interpreter_return(code: &[u8]) -> Option<u64> {
    const CALL: [u8; 2] = [0xff, 0xd1];
    const BYTECODE: [u8; 4] = [0x4c, 0x8b, 0x65, 0xe0];
    let code = &code[..code.len().min(MAX_CODE)];
    let is_call = |window: &[u8]| window[..2] == CALL && window[2..] == BYTECODE;
    Some(code.windows(6).position(is_call)? as u64 + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_in_code() {
        let call = [0x55, 0x49, 0x89, 0xad, 0x90, 0, 0, 0, 0x49, 0x8d, 0x55, 0x80, 0xff, 0xd3];
        assert_eq!(exit_frame(&call), Some(0x110));
        assert_eq!(exit_frame(&call[..6]), None);
        let interpreter = [0xff, 0xd1, 0xff, 0xd1, 0x4c, 0x8b, 0x65, 0xe0];
        assert_eq!(interpreter_return(&interpreter), Some(4));
        assert_eq!(interpreter_return(&interpreter[1..3]), None);
    }
}
