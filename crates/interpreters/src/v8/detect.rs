//! Recognizes V8 by the constants that a file exports for debuggers: `node`, or `libnode`.

use std::collections::HashMap;

use super::offsets::{PREFIX, symbols};
use super::{Constants, Offsets, Symbols, V8, check};
use crate::candidate::Kind;
use crate::glibc::{ThreadLayout, ThreadLists};
use crate::images::Symbol;
use crate::memory::ReadError;
use crate::{LoadedImage, Memory, Process, Refusal};

/// A constant that all versions export.
pub(crate) const EXPORTED: &str = "v8dbg_HeapObjectTag";

const MAJOR: &str = "_ZN2v88internal7Version6major_E";
const MINOR: &str = "_ZN2v88internal7Version6minor_E";

/// The isolate of a thread: a thread-local variable, or the number of a pthread key (up to 10.x).
const CURRENT: &str = "_ZN2v88internal18g_current_isolate_E";
const KEY: &str = "_ZN2v88internal7Isolate12isolate_key_E";

/// Sizes of bytecodes.
const BYTECODES: &str = "_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE";

/// The interpreter, the beginning of all built-in code, and of the code that calls C++.
const INTERPRETER: &str = "Builtins_InterpreterEntryTrampoline";
const BUILTINS: [&str; 3] = [
    "v8_Default_embedded_blob_code_data_",
    "v8_Default_embedded_blob_code_",
    "v8_Default_embedded_blob_",
];
const CALL: &str = "Builtins_CEntry_Return1_";

/// Built-in code that calls C++ directly, without a frame of its own for that: in all versions.
const DIRECT_CALL: &str = "Builtins_FindOrderedHashMapEntry";

/// The function that returns the address of all built-in code. Stripped libraries have no other symbol
/// for it.
const BLOB: &str = "_ZN2v88internal23DefaultEmbeddedBlobCodeEv";

/// V8 among the files of a process.
pub(crate) struct Found {
    offsets: Offsets,
    isolate: Isolate,
    /// Without the path to an isolate.
    symbols: Symbols,
    threads: Option<ThreadLists>,
}

/// Where the isolate of a thread is.
enum Isolate {
    /// At the end of this path from its thread pointer.
    Path(Vec<i32>),
    /// The value of a pthread key, whose number is at this address.
    Key { address: u64, layout: ThreadLayout },
    /// That is unknown.
    Unknown,
}

impl Isolate {
    /// The path from a thread pointer; empty if it is unknown.
    fn path(&self, memory: &dyn Memory) -> Result<Vec<i32>, ReadError> {
        match self {
            Isolate::Path(path) => Ok(path.clone()),
            Isolate::Key { address, layout } => {
                Ok(layout.path_to(memory.half(*address)?).unwrap_or_default())
            }
            Isolate::Unknown => Ok(Vec::new()),
        }
    }
}

impl Kind for Found {
    type Checked = V8;

    fn find(process: &Process) -> Result<Option<Found>, Refusal> {
        let Some(image) = process.images.iter().find(|image| image.exports(EXPORTED)) else {
            return Ok(None);
        };
        let constants = symbols();
        let mut names: Vec<&str> = constants.iter().map(String::as_str).collect();
        names.extend([MAJOR, MINOR, CURRENT, KEY, INTERPRETER, BYTECODES, BLOB, DIRECT_CALL]);
        names.extend(BUILTINS);
        let found = image.symbols(&names);
        let version = [MAJOR, MINOR].map(|name| -> Result<u32, Refusal> {
            let Some(symbol) = found.get(name) else { return Ok(0) };
            Ok(process.memory.half(symbol.address)?)
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
        let (isolate, symbols) = places(process, image, &found);
        let threads = ThreadLists::find(process.images);
        Ok(Some(Found { offsets, isolate, symbols, threads }))
    }

    fn check(&mut self, _: &[i32], memory: &dyn Memory) -> Result<V8, Refusal> {
        let isolate = self.isolate.path(memory)?;
        let v8 = V8::new(self.offsets.clone(), Symbols { isolate, ..self.symbols.clone() });
        let threads = match &self.threads {
            Some(lists) => lists.pointers(memory)?,
            None => Vec::new(),
        };
        check::try_once(&v8, &threads, memory)?;
        Ok(v8)
    }
}

/// V8 in a process, if there is one: its check is repeated, with pauses.
///
/// # Errors
///
/// There is V8 of a version or kind that is not supported, it runs no code at this time, or its
/// structures are not as expected.
#[cfg(any(test, feature = "testing"))]
pub fn detect(process: &Process) -> Result<Option<V8>, Refusal> {
    crate::candidate::detect::<Found>(process)
}

/// Addresses and ways in a process.
fn places(
    process: &Process,
    image: &LoadedImage,
    found: &HashMap<&str, Symbol>,
) -> (Isolate, Symbols) {
    let isolate = match (found.get(CURRENT), found.get(KEY)) {
        (Some(variable), _) => {
            image.thread_local(*variable).map(|distance| Isolate::Path(vec![distance]))
        }
        (None, Some(key)) => ThreadLayout::find(process.images)
            .map(|layout| Isolate::Key { address: key.address, layout }),
        (None, None) => None,
    };
    let calls = image.parts(CALL);
    let mut exit = calls.iter().find_map(|call| ExitFrame::find(image.bytes(call.address)?));
    let code = |name| {
        let symbol: &Symbol = found.get(name)?;
        let bytes = image.bytes(symbol.address)?;
        let size = usize::try_from(symbol.size).ok()?.min(MAX_CODE);
        Some((symbol.address, &bytes[..bytes.len().min(size)]))
    };
    let mut interpreter = code(INTERPRETER)
        .and_then(|(address, code)| Some(address.wrapping_add(interpreter_return(code)?)));
    let mut direct = code(DIRECT_CALL).and_then(|(_, code)| direct_caller(code));
    // In some versions, the second name is that of a pointer to the code.
    let mut first = BUILTINS.iter().find_map(|name| found.get(name)).map(|symbol| symbol.address);
    if exit.is_none()
        && let Some(blob) = found.get(BLOB).and_then(|symbol| blob(image, *symbol, process.memory))
        && let Some(code) = image.bytes(blob)
    {
        let code = &code[..code.len().min(MAX_BLOB)];
        exit = ExitFrame::find_in(code);
        direct = direct_caller(code);
        interpreter = interpreter_return(code).map(|distance| blob.wrapping_add(distance));
        first = Some(blob);
    }
    let builtins = first.filter(|first| interpreter.is_some_and(|address| *first <= address));
    let bytecodes = found.get(BYTECODES).and_then(|symbol| bytecodes(image, *symbol));
    let bytecodes = bytecodes.unwrap_or_default();
    let exit_frame = exit.map(|exit| exit.offset);
    let direct_caller = exit.zip(direct).and_then(|(exit, direct)| exit.in_isolate(direct));
    let symbols = Symbols {
        isolate: Vec::new(),
        exit_frame,
        direct_caller,
        interpreter,
        builtins,
        bytecodes,
    };
    (isolate.unwrap_or(Isolate::Unknown), symbols)
}

/// The table of the sizes of bytecodes: at most 256 of each scale.
fn bytecodes(image: &LoadedImage, table: Symbol) -> Option<Vec<u8>> {
    let size = usize::try_from(table.size).ok().filter(|size| *size <= 3 * 256 && size % 3 == 0)?;
    Some(image.bytes(table.address)?.get(..size)?.to_vec())
}

/// Most bytes of a function in which an instruction is searched.
const MAX_CODE: usize = 2048;

/// Most bytes of built-in code that are searched; it has 1.5 to 3 MB.
const MAX_BLOB: usize = 8 << 20;

/// The address of all built-in code, from the function that returns it: `lea rax, [rip + distance]`,
/// `mov rax, [rax]`.
fn blob(image: &LoadedImage, function: Symbol, memory: &dyn Memory) -> Option<u64> {
    let [0x48, 0x8d, 0x05, a, b, c, d, 0x48, 0x8b, 0x00] = image.constant(function.address)? else {
        return None;
    };
    let distance = i32::from_le_bytes([a, b, c, d]);
    let pointer = function.address.wrapping_add(7).wrapping_add_signed(distance.into());
    memory.word(pointer).ok()
}

/// Where code that calls C++ stores its frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ExitFrame {
    /// The offset in an isolate.
    offset: i32,
    /// The distance of r13 from the isolate, in built-in code.
    root: i32,
}

impl ExitFrame {
    /// Of a function: `mov [r13 + offset], rbp`, where r13 has the isolate plus a distance, which `lea
    /// rdx, [r13 - distance]` removes.
    fn find(code: &[u8]) -> Option<ExitFrame> {
        let code = &code[..code.len().min(MAX_CODE)];
        let find = |bytes: &[u8]| {
            let at = code.windows(bytes.len()).position(|window| window == bytes)?;
            code.get(at + bytes.len()..)
        };
        let offset: &[u8; 4] = find(&[0x49, 0x89, 0xad])?.first_chunk()?;
        let root = i32::from(find(&[0x49, 0x8d, 0x55])?.first()?.cast_signed());
        let exit = ExitFrame { offset: 0, root: root.checked_neg()? };
        Some(ExitFrame { offset: exit.in_isolate(i32::from_le_bytes(*offset))?, ..exit })
    }

    /// The same of all functions in built-in code that call C++; `None` if these differ. They begin with
    /// `push rbp`, `mov rbp, rsp`, and `push` of the kind of their frame.
    fn find_in(code: &[u8]) -> Option<ExitFrame> {
        const BEGIN: [u8; 6] = [0x55, 0x48, 0x89, 0xe5, 0x6a, 6];
        const SIZE: usize = 64;
        let is_call = |window: &&[u8]| window[..BEGIN.len()] == BEGIN;
        let mut found = code.windows(SIZE).filter(is_call).filter_map(ExitFrame::find);
        let first = found.next()?;
        found.all(|exit| exit == first).then_some(first)
    }

    /// The offset in an isolate of a word at an offset from r13.
    fn in_isolate(self, offset: i32) -> Option<i32> {
        offset.checked_add(self.root).filter(|offset| (0..1 << 20).contains(offset))
    }
}

/// The offset from r13 at which code that calls C++ without a frame of its own stores its frame pointer
/// (`fast_c_call_caller_fp`); `None` if there is no such call, or they differ. These are the instructions
/// of `MacroAssembler::CallCFunction`: `mov [r13 + a], r10`, where it goes on, `mov [r13 + b], rbp`,
/// `call` of a register, `mov qword [r13 + b], 0`.
fn direct_caller(code: &[u8]) -> Option<i32> {
    let starts = code.windows(2).enumerate().filter(|(_, window)| *window == [0x4d, 0x89]);
    let mut found = starts.filter_map(|(at, _)| direct_call(&code[at..]));
    let first = found.next()?;
    found.all(|offset| offset == first).then_some(first)
}

/// The same of the call whose instructions begin here.
fn direct_call(code: &[u8]) -> Option<i32> {
    let (_, code) = root_offset(code, [0x4d, 0x89], 0x15)?;
    let (offset, code) = root_offset(code, [0x49, 0x89], 0x2d)?;
    // The register may need another byte.
    let [0xff, 0xd0..=0xd7, code @ ..] = code.strip_prefix(&[0x41]).unwrap_or(code) else {
        return None;
    };
    let (reset, code) = root_offset(code, [0x49, 0xc7], 0x05)?;
    (reset == offset && code.starts_with(&[0; 4])).then_some(offset)
}

/// The offset from r13 of an instruction with this code and register, and the code behind it.
fn root_offset(code: &[u8], instruction: [u8; 2], register: u8) -> Option<(i32, &[u8])> {
    let code = code.strip_prefix(&instruction)?;
    match code.split_first()? {
        (mode, [offset, code @ ..]) if *mode == register | 0x40 => {
            Some((offset.cast_signed().into(), code))
        }
        (mode, code) if *mode == register | 0x80 => {
            let (offset, code) = code.split_first_chunk()?;
            Some((i32::from_le_bytes(*offset), code))
        }
        _ => None,
    }
}

/// The offset behind the call of the code of an instruction; `None` if there is none, or another one:
/// `movzx r10d, [r12 + r9]`, the bytecode, `mov rcx, [r15 + r10 * 8]`, its code, `call rcx`, and
/// `mov r12, [rbp - 32]`, the bytecode of the frame.
fn interpreter_return(code: &[u8]) -> Option<u64> {
    const DISPATCH: [u8; 11] = [0x47, 0x0f, 0xb6, 0x14, 0x0c, 0x4b, 0x8b, 0x0c, 0xd7, 0xff, 0xd1];
    const BYTECODE: [u8; 4] = [0x4c, 0x8b, 0x65, 0xe0];
    let (call, size) = (DISPATCH.len(), DISPATCH.len() + BYTECODE.len());
    let is_call = |window: &[u8]| window[..call] == DISPATCH && window[call..] == BYTECODE;
    let mut found = code.windows(size).enumerate().filter(|(_, window)| is_call(window));
    let (first, _) = found.next()?;
    found.next().is_none().then_some((first + call) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_in_code() {
        let call = [0x55, 0x49, 0x89, 0xad, 0x90, 0, 0, 0, 0x49, 0x8d, 0x55, 0x80, 0xff, 0xd3];
        let exit = Some(ExitFrame { offset: 0x110, root: 0x80 });
        assert_eq!(ExitFrame::find(&call), exit);
        assert_eq!(ExitFrame::find(&call[..6]), None);
        let dispatch = [0x47, 0x0f, 0xb6, 0x14, 0x0c, 0x4b, 0x8b, 0x0c, 0xd7];
        let interpreter = [&[0xff, 0xd1][..], &dispatch, &[0xff, 0xd1, 0x4c, 0x8b, 0x65, 0xe0]];
        let interpreter = interpreter.concat();
        assert_eq!(interpreter_return(&interpreter), Some(13));
        assert_eq!(interpreter_return(&interpreter[..16]), None);
        assert_eq!(interpreter_return(&interpreter[10..]), None);
        // Which one the interpreter executes is not known.
        assert_eq!(interpreter_return(&interpreter.repeat(2)), None);
        let mut blob = [0x90; 200];
        for (at, offset) in [(10, 0x90), (100, 0x90)] {
            blob[at..at + 6].copy_from_slice(&[0x55, 0x48, 0x89, 0xe5, 0x6a, 6]);
            blob[at + 8..at + 22].copy_from_slice(&call);
            blob[at + 12] = offset;
        }
        assert_eq!(ExitFrame::find_in(&blob), exit);
        blob[112] = 0x98;
        assert_eq!(ExitFrame::find_in(&blob), None);
    }

    #[test]
    fn the_caller_of_a_function_of_cpp_is_where_all_calls_store_it() {
        let store = |offset: u8| [0x4d, 0x89, 0x55, offset + 8, 0x49, 0x89, 0x6d, offset];
        let reset = |offset: u8| [0x49, 0xc7, 0x45, offset, 0, 0, 0, 0];
        let call = |offset: u8| [&store(offset)[..], &[0xff, 0xd0], &reset(offset)].concat();
        assert_eq!(direct_caller(&[&[0x90; 7][..], &call(0x70), &call(0x70)].concat()), Some(0x70));
        assert_eq!(direct_caller(&[call(0x70), call(0x68)].concat()), None);
        assert_eq!(direct_caller(&[0x90; 64]), None);
        for size in 0..call(0x70).len() {
            assert_eq!(direct_caller(&call(0x70)[..size]), None);
        }
        // It is another register, no call, or is not reset to 0.
        for (at, byte) in [(6, 0x65), (8, 0x90), (13, 0x78), (17, 1)] {
            let mut other = call(0x70);
            other[at] = byte;
            assert_eq!(direct_caller(&other), None, "{at}");
        }
        // Offsets of 32 bits, and a register that needs another byte.
        let pc = [0x4d, 0x89, 0x95, 0xa0, 0, 0, 0];
        let fp = [0x49, 0x89, 0xad, 0xa8, 0, 0, 0, 0x41, 0xff, 0xd4];
        let reset = [0x49, 0xc7, 0x85, 0xa8, 0, 0, 0, 0, 0, 0, 0];
        let long = [&pc[..], &fp, &reset].concat();
        assert_eq!(direct_caller(&long), Some(0xa8));
        let exit = ExitFrame { offset: 0x110, root: 0x80 };
        assert_eq!([0xa8, -0x81].map(|offset| exit.in_isolate(offset)), [Some(0x128), None]);
    }
}
