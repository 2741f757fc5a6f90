//! From the bytes that were copied at a sample to frames.

use super::lines::{Current, position_of_line};
use super::offsets::INSTRUCTION;
use super::{Offsets, Php};
use crate::walk::{Behind, Block, CODE_BLOCKS, CodeDescriptor, CodePointer, Frame, Status};
use crate::{ChainEnd, CodeKey, Copied, Runtime, UserFrame};

/// Bits of a frame that tell how it was called (`ZEND_CALL_*`): it is code of a file or an `eval`, not
/// a function; an evaluation began with it.
const IS_CODE: u32 = 1 << 16;
const IS_TOP: u32 = 1 << 17;

/// Kinds of instructions (`zend_vm_opcodes.h`).
const INCLUDE_OR_EVAL: u8 = 73;
/// DO_FCALL, DO_ICALL, DO_UCALL, DO_FCALL_BY_NAME.
const CALLS: [u8; 5] = [60, 129, 130, 131, INCLUDE_OR_EVAL];

/// Numbers of the registers in which the evaluation function has its frame and its instruction.
const FRAME_REGISTER: usize = 14;
const INSTRUCTION_REGISTER: usize = 15;

/// Places of a frame's members in what is copied of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// What is copied of a frame.
    pub block: Block,
    /// What is copied of its function.
    pub function: Behind,
    /// What is copied of the instruction that it has stored: from the extended number on.
    pub instruction: Behind,
    /// The hash of its function's file: other files may lie where it lay.
    pub file_hash: Behind,
    /// The caller's frame.
    pub previous: u8,
}

impl Layout {
    pub fn new(offsets: &Offsets) -> Layout {
        let behind = |pointer: u32, lo: u32, end: u32| Behind {
            pointer: pointer as u8,
            block: Block { lo: lo as i32, size: (end - lo) as u8 },
        };
        let first = offsets.instruction_extended;
        // Of a function in C, and before the first call, it is what was there before.
        let instruction =
            behind(offsets.frame_instruction, first, (offsets.instruction_kind + 4).min(32));
        let size = offsets.frame_previous + 8;
        let file = size + offsets.function_file;
        Layout {
            block: Block { lo: 0, size: size as u8 },
            function: behind(offsets.frame_function, 0, function_size(offsets) as u32),
            instruction,
            file_hash: behind(file, offsets.string_hash, offsets.string_hash + 8),
            previous: offsets.frame_previous as u8,
        }
    }

    /// The place of the hash of the function's file.
    fn file_hash_at(&self) -> usize {
        let blocks = [self.block, self.function.block, self.instruction.block];
        blocks.iter().map(|block| usize::from(block.size)).sum()
    }

    /// What is copied of new code: the function, its class, its name, the file, instructions, and the
    /// name of the class.
    pub fn code_copy(&self, offsets: &Offsets) -> CodeDescriptor {
        let place = |at: u32| (u32::from(self.block.size) + at) as u8;
        let member = |at: u32| CodePointer::Frame(place(at));
        let function = CodePointer::Frame(self.function.pointer);
        let blocks = [
            (function, function_size(offsets)),
            (member(offsets.function_class), offsets.class_name as usize + 8),
            (member(offsets.function_name), CODE_BLOCKS[2]),
            (member(offsets.function_file), CODE_BLOCKS[3]),
            (member(offsets.function_code), CODE_BLOCKS[4]),
            (CodePointer::Block(offsets.class_name as u8), CODE_BLOCKS[5]),
        ];
        let code = place(offsets.function_code);
        let words = [self.function.pointer.into(), code.into(), self.file_hash_at() as u16];
        CodeDescriptor::new(words, blocks)
    }
}

/// Bytes of a function that identify it.
pub(super) fn function_size(offsets: &Offsets) -> usize {
    offsets.function_end as usize + 4
}

/// Kinds of functions (`zend_compile.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is written in C.
    Internal,
    /// Code of the user's: also of files and `eval`.
    User,
}

/// The members of a function that identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub kind: Kind,
    /// Its name; 0 for the code of a file.
    pub name: u64,
    pub class: u64,
    variables: u32,
    /// Number of its instructions.
    pub size: u32,
    /// The first one.
    pub code: u64,
    pub file: u64,
    pub line: u32,
    pub end: u32,
}

impl Function {
    /// From its bytes; `None` if they are no function. Members that functions in C do not have are 0.
    pub fn parse(offsets: &Offsets, bytes: &[u8]) -> Option<Function> {
        let bytes = Frame { address: 0, bytes };
        let (word, half) = (|at: u32| bytes.word(at as usize), |at: u32| bytes.half(at as usize));
        let (name, class) = (word(offsets.function_name), word(offsets.function_class));
        let is_pointer = |word: u64| word.is_multiple_of(8);
        if !is_pointer(name) || !is_pointer(class) {
            return None;
        }
        match bytes.byte(offsets.function_kind as usize) {
            1 => Some(Function {
                kind: Kind::Internal,
                name,
                class,
                variables: 0,
                size: 0,
                code: 0,
                file: 0,
                line: 0,
                end: 0,
            }),
            2 | 4 => Some(Function {
                kind: Kind::User,
                name,
                class,
                variables: half(offsets.function_variables),
                size: half(offsets.function_size),
                code: word(offsets.function_code),
                file: word(offsets.function_file),
                line: half(offsets.function_line),
                end: half(offsets.function_end),
            }),
            _ => None,
        }
    }

    /// The words that tell it from others at its address; `origin` counts if it has no name.
    pub fn identity(&self, origin: impl FnOnce() -> Origin) -> [u64; 4] {
        let name = if self.name == 0 { origin().word() } else { self.name };
        [name, self.class, self.code, self.fingerprint()]
    }

    /// Its other members as one word.
    fn fingerprint(&self) -> u64 {
        /// FNV-1a.
        const PRIME: u64 = 0x100_0000_01b3;
        let numbers = [self.variables, self.size, self.line, self.end].map(u64::from);
        let all = [self.kind as u64, self.file].into_iter().chain(numbers);
        all.fold(0xcbf2_9ce4_8422_2325, |hash: u64, word| {
            (hash ^ word).wrapping_mul(PRIME).rotate_left(29)
        })
    }

    /// The number of an instruction at an address, if it is one of this function.
    pub fn number_of(&self, instruction: u64) -> Option<u32> {
        let distance = instruction.checked_sub(self.code)?;
        let unit = u64::from(INSTRUCTION);
        let number = u32::try_from(distance / unit).ok()?;
        (self.code != 0 && distance.is_multiple_of(unit) && number < self.size).then_some(number)
    }
}

/// Where code without a name comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// What has included it (`ZEND_EVAL`, `ZEND_INCLUDE`, …); 0 for the first file.
    pub include: u8,
    /// The line of that.
    pub line: u32,
}

impl Origin {
    /// As a word that is no pointer.
    fn word(self) -> u64 {
        1 | u64::from(self.include) << 8 | u64::from(self.line) << 32
    }

    /// The origin of a word of the identity; `None` if that is the name of a function.
    pub fn of_word(word: u64) -> Option<Origin> {
        let origin = Origin { include: (word >> 8) as u8, line: (word >> 32) as u32 };
        (word & 7 == 1).then_some(origin)
    }
}

/// A part of the chain, from inside to outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// A function, by its number.
    Function(usize),
    /// A frame at this address that has no function. It lies in the native frame of what calls a
    /// function from C code (up to 8.2), or in a generator.
    Dummy(u64),
    /// The root of a fiber: the others are those of what has resumed it, on another native stack.
    FiberRoot,
}

/// A decoded frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    pub user: UserFrame,
    pub function: Function,
    /// It is the code of the first file.
    pub is_main: bool,
    /// The address at which its result is put.
    pub result: u64,
    /// It has called nothing.
    pub is_innermost: bool,
}

/// A decoded chain.
pub(super) struct Chain {
    /// How it ends.
    pub end: ChainEnd,
    /// Its parts.
    pub links: Vec<Link>,
    /// Its functions.
    pub frames: Vec<Decoded>,
    /// The innermost frame is this one's, as far as the registers say.
    pub has_registers: bool,
}

/// Decodes the frames of a sample; none if they are damaged.
pub(super) fn decode(php: &Php, copied: Copied<'_>) -> Chain {
    let mut chain = Chain {
        end: ChainEnd::Nothing,
        links: Vec::new(),
        frames: Vec::new(),
        has_registers: false,
    };
    let Some(copy) = copied.walks.first() else { return chain };
    let copies: Vec<Copy> = copy.frames(&php.walks[0]).map(|frame| Copy { php, frame }).collect();
    let mut is_cut = copy.status != Status::Complete;
    for (i, copy) in copies.iter().enumerate() {
        if copy.function_address() == 0 {
            chain.links.push(Link::Dummy(copy.frame.address));
            continue;
        }
        let is_last = i + 1 == copies.len();
        let function = copy.function();
        // Callers of which nothing is known may be beyond: code without a name has its name from them.
        let is_unnamed = function.is_some_and(|f| f.kind == Kind::User && f.name == 0);
        if is_last && is_cut && is_unnamed || copy.is_unreadable() {
            is_cut = true;
            break;
        }
        let Some(function) = function else {
            return Chain {
                end: ChainEnd::Damaged,
                links: Vec::new(),
                frames: Vec::new(),
                ..chain
            };
        };
        if function.kind == Kind::Internal && function.name == 0 {
            chain.links.push(Link::FiberRoot);
            continue;
        }
        chain.links.push(Link::Function(chain.frames.len()));
        let registers = if i == 0 { Registers::of(php, copied) } else { None };
        chain.has_registers |= registers.is_some_and(|own| own.frame == copy.frame.address);
        chain.frames.push(copy.decoded(function, &copies[i + 1..], i == 0, registers));
    }
    chain.end = match copy.status {
        Status::Complete if is_cut => ChainEnd::Fault,
        Status::Complete => ChainEnd::Complete,
        Status::TooMany => ChainEnd::TooMany,
        Status::Fault => ChainEnd::Fault,
        Status::Nothing => ChainEnd::Nothing,
    };
    chain
}

/// The registers of the evaluation function, if they have kept their meaning.
#[derive(Clone, Copy, Debug)]
struct Registers {
    frame: u64,
    instruction: u64,
    /// The thread executes the evaluation function itself.
    is_evaluation: bool,
}

impl Registers {
    fn of(php: &Php, copied: Copied<'_>) -> Option<Registers> {
        let all = copied.registers.in_dwarf_order().filter(|_| php.symbols.has_registers)?;
        Some(Registers {
            frame: *all.get(FRAME_REGISTER)?,
            instruction: *all.get(INSTRUCTION_REGISTER)?,
            is_evaluation: php.evaluates(copied.registers.instruction_pointer()?),
        })
    }
}

/// What was copied of a frame.
struct Copy<'a> {
    php: &'a Php,
    frame: Frame<'a>,
}

impl Copy<'_> {
    fn function_address(&self) -> u64 {
        self.frame.word(self.php.offsets.frame_function as usize)
    }

    /// True if its function could not be read.
    fn is_unreadable(&self) -> bool {
        let start = usize::from(self.php.layout.block.size);
        let end = start + usize::from(self.php.layout.function.block.size);
        self.frame.bytes.get(start..end).is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0))
    }

    fn function(&self) -> Option<Function> {
        let start = usize::from(self.php.layout.block.size);
        let bytes = self.frame.bytes.get(start..)?;
        let is_aligned = self.function_address().is_multiple_of(8);
        Function::parse(&self.php.offsets, bytes).filter(|_| is_aligned)
    }

    /// The place of a member of the stored instruction.
    fn in_instruction(&self, offset: u32) -> usize {
        let layout = &self.php.layout;
        let start = usize::from(layout.block.size) + usize::from(layout.function.block.size);
        start + offset.wrapping_sub(self.php.offsets.instruction_extended) as usize
    }

    fn stored(&self) -> u64 {
        self.frame.word(self.php.offsets.frame_instruction as usize)
    }

    /// What the stored instruction does and its line, if it is one of this function.
    fn stored_instruction(&self, function: &Function) -> Option<(u8, u32)> {
        function.number_of(self.stored())?;
        let offsets = &self.php.offsets;
        let kind = self.frame.byte(self.in_instruction(offsets.instruction_kind));
        Some((kind, self.frame.half(self.in_instruction(offsets.instruction_line))))
    }

    /// Bits that tell how it was called.
    fn call(&self) -> u32 {
        self.frame.half(self.php.offsets.frame_call as usize)
    }

    fn decoded(
        &self,
        function: Function,
        callers: &[Copy],
        is_innermost: bool,
        registers: Option<Registers>,
    ) -> Decoded {
        let call = self.call();
        let is_user = function.kind == Kind::User;
        let position = match (is_user, is_innermost) {
            (false, _) => 0,
            // Stored before each call.
            (true, false) => {
                let line = self.stored_instruction(&function).map_or(0, |(_, line)| line);
                position_of_line(line)
            }
            (true, true) => {
                let current = registers.and_then(|own| self.current(&function, own, callers));
                current.and_then(Current::position).unwrap_or(0)
            }
        };
        let identity = function.identity(|| origin(callers));
        let file_hash = self.frame.word(self.php.layout.file_hash_at());
        let context = if is_user { file_hash } else { 0 };
        let code = CodeKey { object: self.function_address(), identity, context, position };
        let is_entry = is_user && call & IS_TOP != 0;
        Decoded {
            user: UserFrame { address: self.frame.address, code, is_entry },
            function,
            is_main: is_entry && call & IS_CODE != 0 && callers.is_empty(),
            result: self.frame.word(self.php.offsets.frame_result as usize),
            is_innermost,
        }
    }

    /// The instruction that the registers have, of the innermost frame.
    fn current(
        &self,
        function: &Function,
        registers: Registers,
        callers: &[Copy],
    ) -> Option<Current> {
        if registers.frame != self.frame.address {
            return None;
        }
        let number = function.number_of(registers.instruction)?;
        // Until an evaluation has begun, the register has the instruction of the evaluation around it.
        let caller = callers.iter().filter_map(Copy::function).find(|f| f.kind == Kind::User);
        let is_recursion = caller.is_some_and(|caller| caller.code == function.code);
        if self.call() & IS_TOP != 0 && is_recursion && registers.instruction != self.stored() {
            return None;
        }
        let stored = self.stored_instruction(function);
        Some(Current {
            number,
            is_outside: !registers.is_evaluation,
            is_after_call: stored.is_some_and(|(kind, _)| CALLS.contains(&kind)),
        })
    }
}

/// Where code without a name comes from that these frames have called.
fn origin(callers: &[Copy]) -> Origin {
    let none = Origin { include: 0, line: 0 };
    let Some(caller) = callers.first() else { return none };
    let Some(function) = caller.function().filter(|f| f.kind == Kind::User) else { return none };
    match caller.stored_instruction(&function) {
        Some((INCLUDE_OR_EVAL, line)) => {
            let place = caller.in_instruction(caller.php.offsets.instruction_extended);
            Origin { include: caller.frame.byte(place), line }
        }
        _ => none,
    }
}
