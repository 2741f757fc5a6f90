//! Instructions of a function, with the values, source lines and targets of each.

mod around;
mod jit;
mod names;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::PathBuf;

use object::{Object, ObjectSection};

use crate::arch::{Decoded, Disassembler};
pub use crate::arch::{Flow, Latency};
pub use around::same_code;
use profile::Cause;
use symbols::{Binary, SymbolOptions};
use sys::{FileAddress, FileOffset, catch_panic, mmap};

/// Bytes that are decoded at most before the hottest address of a function.
const MAX_BEFORE: u64 = 1 << 20;

/// The values of an address of a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Offset in the binary's file.
    pub offset: FileOffset,
    /// Sum of the samples that were taken there.
    pub self_value: i64,
    /// Sum of the samples whose stack contains it.
    pub total: i64,
}

/// The code to disassemble: the functions of a binary that contain some addresses.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Path of the binary.
    pub binary: &'a str,
    /// Its build ID; empty: unknown.
    pub build_id: &'a str,
    /// The function's name in the binary, for code made at run time.
    pub function: &'a str,
    /// End of the recording in nanoseconds since the Unix epoch; 0: unknown.
    pub end: i64,
    /// Addresses with values.
    pub weights: &'a [Weight],
    /// An address may be that of the instruction after the one that took the time.
    pub skids: bool,
}

/// Bounds of a disassembly.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of code.
    pub bytes: u64,
    /// Most instructions.
    pub instructions: usize,
}

impl Limits {
    /// Subtracts what is shown of a piece, and sets what is not.
    fn take(&mut self, piece: &mut Piece) {
        let size = piece.function.end - piece.function.start;
        let shown: u64 = piece.instructions.iter().map(|i| i.length as u64).sum();
        piece.left_out = size.saturating_sub(shown);
        self.bytes = self.bytes.saturating_sub(shown);
        self.instructions = self.instructions.saturating_sub(piece.instructions.len());
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { bytes: 64 << 10, instructions: 20_000 }
    }
}

/// The cause of missing code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoCode {
    /// No binary of the recorded build was found.
    NoBinary(Cause),
    /// The binary is for an architecture without a disassembler.
    UnknownMachine,
    /// No symbol and no other table has the bounds of the function.
    NoBounds,
    /// The jitdump has no code of this name at these addresses.
    NoJitCode,
    /// The jitdump has different code of this name at the same addresses.
    SeveralCodes,
}

impl NoCode {
    /// Its name in JSON.
    pub fn code(&self) -> &'static str {
        match self {
            NoCode::NoBinary(_) => "no_binary",
            NoCode::UnknownMachine => "unknown_machine",
            NoCode::NoBounds => "no_bounds",
            NoCode::NoJitCode => "no_jit_code",
            NoCode::SeveralCodes => "several_codes",
        }
    }
}

/// A place in the source that an instruction was compiled from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The function.
    pub function: String,
    /// Its source file, empty if unknown.
    pub file: String,
    /// The line, 0 if unknown.
    pub line: i64,
}

/// The target of a jump or call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its address in the file.
    pub address: FileAddress,
    /// Name of the function there, empty if unknown or the same function.
    pub name: String,
}

/// The memory or function whose address an operand states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Its address in the file.
    pub address: FileAddress,
    /// Name of the symbol there, empty if unknown.
    pub name: String,
    /// Offset of the address in the symbol.
    pub offset: u64,
    /// It is a word of the global offset table, which has the symbol's address.
    pub slot: bool,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its address in the file.
    pub address: FileAddress,
    /// Its bytes.
    pub length: usize,
    /// Its text; `None` if these bytes are no instruction.
    pub text: Option<String>,
    /// The continuation after it.
    pub flow: Flow,
    /// The address that it states to jump to or to call.
    pub target: Option<Target>,
    /// The address of data or of a function that an operand states.
    pub reference: Option<Reference>,
    /// Sum of the samples that were taken there.
    pub self_value: i64,
    /// Sum of the samples whose stack contains it.
    pub total: i64,
    /// The time until its result is there.
    pub latency: Latency,
    /// Its self value is likely that of the instruction before it, which takes longer and has less.
    pub skid: bool,
    /// The source, innermost (inlined) function first; empty if unknown.
    pub places: Vec<Place>,
}

/// A contiguous piece of code: a function, or the part of it that fits the limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Addresses of the whole function in the file.
    pub function: Range<u64>,
    /// The instructions.
    pub instructions: Vec<Instruction>,
    /// Bytes of the function before and after them.
    pub left_out: u64,
    /// Jumps within the piece, by the indexes of their instructions: from, to.
    pub jumps: Vec<(u32, u32)>,
}

/// Code of a function in one binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembly {
    /// The file that was read.
    pub path: PathBuf,
    /// Pieces, largest self value first.
    pub pieces: Vec<Piece>,
    /// Functions without a piece because of the limits.
    pub left_out: usize,
}

/// A function with addresses that have values.
struct Function {
    range: Range<u64>,
    weights: Vec<(u64, Weight)>,
}

impl Function {
    fn self_value(&self) -> u64 {
        let sum =
            |sum: u64, (_, w): &(u64, Weight)| sum.saturating_add(w.self_value.unsigned_abs());
        self.weights.iter().fold(0, sum)
    }

    /// The address with the largest value.
    fn hottest(&self) -> u64 {
        let value = |(_, w): &&(u64, Weight)| (w.self_value.unsigned_abs(), w.total.unsigned_abs());
        self.weights.iter().max_by_key(value).map_or(self.range.start, |(address, _)| *address)
    }
}

/// Disassembles the functions with these addresses.
///
/// # Errors
///
/// The binary, its architecture or the functions are unknown.
pub fn disassemble(
    request: &Request<'_>,
    options: &SymbolOptions,
    limits: Limits,
) -> Result<Assembly, NoCode> {
    disassemble_any(request, None, options, limits)
}

/// Disassembles the function without a name that contains `at`; where its bounds are unknown, a
/// piece around this address.
///
/// # Errors
///
/// The binary or its architecture are unknown, or the beginning of an instruction.
pub fn disassemble_around(
    request: &Request<'_>,
    at: FileOffset,
    options: &SymbolOptions,
    limits: Limits,
) -> Result<Assembly, NoCode> {
    disassemble_any(request, Some(at), options, limits)
}

fn disassemble_any(
    request: &Request<'_>,
    around: Option<FileOffset>,
    options: &SymbolOptions,
    limits: Limits,
) -> Result<Assembly, NoCode> {
    if jit::is_dump(request.binary) {
        return jit::disassemble(request, options, limits);
    }
    let binary =
        Binary::find(request.binary, request.build_id, options).map_err(NoCode::NoBinary)?;
    let cut_before = mmap::cut_pages();
    let (mut functions, unbounded) = functions(&binary, request, around);
    let (mut pieces, left_out) =
        catch_panic(|| pieces(&binary, &mut functions, request.skids, limits)).unwrap_or_else(
            || Err(NoCode::NoBinary(Cause::Damaged("it cannot be parsed".into()))),
        )?;
    if mmap::cut_pages() > cut_before {
        return Err(NoCode::NoBinary(Cause::Cut));
    }
    if pieces.is_empty() && left_out == 0 && unbounded {
        return Err(NoCode::NoBounds);
    }
    if around.is_some() && unbounded {
        pieces.iter_mut().for_each(around::end_at_an_instruction);
    }
    names::add_source(&mut pieces, &binary, request, options);
    names::add_names(&mut pieces, &binary, request, options);
    Ok(Assembly { path: binary.path, pieces, left_out })
}

/// The functions with these addresses, largest self value first, and whether an address belongs to
/// none with known bounds.
fn functions(
    binary: &Binary,
    request: &Request<'_>,
    around: Option<FileOffset>,
) -> (Vec<Function>, bool) {
    let weights = request.weights;
    let known: Vec<(u64, Weight)> = weights
        .iter()
        .filter_map(|weight| Some((binary.address_of(weight.offset)?.0, *weight)))
        .collect();
    let addresses: Vec<FileAddress> = known.iter().map(|(at, _)| FileAddress(*at)).collect();
    let ranges = binary.functions_at(&addresses);
    let without: Vec<(u64, Weight)> =
        ranges.iter().zip(&known).filter(|(range, _)| range.is_none()).map(|(_, k)| *k).collect();
    let around = around.and_then(|at| binary.address_of(at));
    let piece = around.and_then(|at| around::piece(request, at, &without));
    let mut unbounded = known.len() < weights.len();
    let mut by_start: BTreeMap<u64, Function> = BTreeMap::new();
    for (range, weight) in ranges.into_iter().zip(known) {
        unbounded |= range.is_none();
        let in_piece = || piece.clone().filter(|piece| piece.contains(&weight.0));
        let Some(range) = range.or_else(in_piece) else { continue };
        let new = || Function { range: range.clone(), weights: Vec::new() };
        by_start.entry(range.start).or_insert_with(new).weights.push(weight);
    }
    let mut functions: Vec<Function> = by_start.into_values().collect();
    functions.sort_by_key(hottest_first);
    (functions, unbounded)
}

/// A key of the order of functions.
fn hottest_first(function: &Function) -> std::cmp::Reverse<u64> {
    std::cmp::Reverse(function.self_value())
}

/// The pieces within the limits, and the number of functions without one.
fn pieces(
    binary: &Binary,
    functions: &mut [Function],
    skids: bool,
    mut left: Limits,
) -> Result<(Vec<Piece>, usize), NoCode> {
    let unreadable = |e: String| NoCode::NoBinary(Cause::Damaged(e));
    let map = mmap::map(&binary.file).map_err(|e| unreadable(e.to_string()))?;
    let file = object::File::parse(&*map).map_err(|e| unreadable(e.to_string()))?;
    let machine = match &file {
        object::File::Elf64(file) => {
            use object::read::elf::FileHeader;
            file.elf_header().e_machine(file.endian())
        }
        _ => return Err(NoCode::UnknownMachine),
    };
    let mut disassembler = Disassembler::for_machine(machine).ok_or(NoCode::UnknownMachine)?;
    let mut pieces = Vec::new();
    let count = functions.len();
    for (done, function) in functions.iter_mut().enumerate() {
        if left.bytes == 0 || left.instructions == 0 {
            return Ok((pieces, count - done));
        }
        let section = file.sections().find(|section| {
            let into = function.range.start.checked_sub(section.address());
            section.kind() == object::SectionKind::Text && into.is_some_and(|i| i < section.size())
        });
        let Some(section) = section else { continue };
        // A piece around an address may reach beyond its section.
        let end = section.address().saturating_add(section.size());
        function.range.end = function.range.end.min(end);
        let size = function.range.end - function.range.start;
        let code = section.data_range(function.range.start, size).ok().flatten();
        let Some(code) = code else { continue };
        let mut piece = decode(&mut disassembler, function, code, left);
        add_values(&mut piece.instructions, function, skids);
        add_jumps(&mut piece);
        left.take(&mut piece);
        pieces.push(piece);
    }
    Ok((pieces, 0))
}

/// The instructions of a function, or those around its hottest address.
fn decode(
    disassembler: &mut Disassembler,
    function: &Function,
    code: &[u8],
    limits: Limits,
) -> Piece {
    let start = function.range.start;
    let fits = code.len() as u64 <= limits.bytes.min(limits.instructions as u64);
    let hottest = if fits { start } else { function.hottest() };
    let mut at = (hottest - start).saturating_sub(MAX_BEFORE) as usize;
    let mut instructions = VecDeque::new();
    let mut bytes = 0;
    while at < code.len() {
        let address = start + at as u64;
        let instruction = instruction(disassembler.decode(&code[at..], address), address);
        at += instruction.length;
        bytes += instruction.length as u64;
        instructions.push_back(instruction);
        let full = |part: usize| {
            instructions.len() >= (limits.instructions / part).max(1)
                || bytes >= limits.bytes / part as u64
        };
        if start + at as u64 <= hottest && full(2) {
            bytes -= instructions.pop_front().map_or(0, |first| first.length as u64);
        } else if full(1) {
            break;
        }
    }
    let instructions = instructions.into();
    Piece { function: function.range.clone(), instructions, left_out: 0, jumps: Vec::new() }
}

/// An instruction without values and source.
fn instruction(decoded: Decoded, address: u64) -> Instruction {
    let Decoded { length, text, flow, target, reference, latency } = decoded;
    let new =
        |at| Reference { address: FileAddress(at), name: String::new(), offset: 0, slot: false };
    let target = target.map(|at| Target { address: FileAddress(at), name: String::new() });
    Instruction {
        address: FileAddress(address),
        length,
        text,
        flow,
        target,
        reference: reference.map(new),
        self_value: 0,
        total: 0,
        latency,
        skid: false,
        places: Vec::new(),
    }
}

/// Index of the instruction with an address.
fn containing(instructions: &[Instruction], address: u64) -> Option<usize> {
    let i = instructions.partition_point(|i| i.address.0 <= address).checked_sub(1)?;
    let found = &instructions[i];
    (address - found.address.0 < found.length as u64).then_some(i)
}

/// Adds the values of addresses to the instructions that contain them. A caller's address is one
/// before the return address, within the call.
fn add_values(instructions: &mut [Instruction], function: &Function, skids: bool) {
    for (address, weight) in &function.weights {
        if let Some(i) = containing(instructions, *address) {
            let found = &mut instructions[i];
            found.self_value = found.self_value.saturating_add(weight.self_value);
            found.total = found.total.saturating_add(weight.total);
        }
    }
    for i in 1..instructions.len() {
        let [before, instruction] = &mut instructions[i - 1..=i] else { continue };
        let falls_through = matches!(before.flow, Flow::Next | Flow::Branch);
        let more = instruction.self_value > before.self_value;
        let takes_longer = before.latency > instruction.latency;
        instruction.skid = skids && falls_through && more && takes_longer;
    }
}

fn add_jumps(piece: &mut Piece) {
    let instructions = &piece.instructions;
    let jump = |(from, instruction): (usize, &Instruction)| {
        let jumps = matches!(instruction.flow, Flow::Jump | Flow::Branch);
        let target = instruction.target.as_ref().filter(|_| jumps)?.address.0;
        let to = containing(instructions, target)?;
        (instructions[to].address.0 == target).then_some((from as u32, to as u32))
    };
    piece.jumps = instructions.iter().enumerate().filter_map(jump).collect();
}

#[cfg(test)]
mod tests;
