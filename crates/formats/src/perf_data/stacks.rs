//! The stack of a sample: the kernel's frames, and those of its user stack, which is unwound if the
//! sample has registers and a copy of it.

use rustc_hash::FxHashMap;

use profile::{Line, LocationId, Mapping, MappingId, Truncation};
use sys::arch::{self, SAMPLED_REGISTERS};
use sys::elf::hex;
use sys::image::State;
use sys::record::{AllRegs, Callchain, Regs, Rest, UserStack};
use sys::{ProcessAddress, ThreadId};
use unwind::{AddressKind, Frame, Place, StackEnd, Unwinder};

use super::attribute::{Attribute, SampleFields, UserRegisters};
use super::fields::words;
use super::kernel::Kernel;
use super::machine::Machine;
use super::record::Mode;
use super::spaces::Spaces;
use crate::assembly::Assembly;

/// Which part of an image a mapping of the profile is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// An executable segment of an ELF file.
    Segment(u16),
    /// The region from an offset of a file on.
    Offset(u64),
    /// All of it.
    Whole,
}

/// Number of user stacks, and of those that do not reach the thread's entry.
#[derive(Default)]
pub struct StackCounts {
    pub all: u64,
    pub truncated: FxHashMap<Truncation, u64>,
    /// Those of another architecture, which are not unwound.
    pub foreign: u64,
}

/// Makes stacks.
#[derive(Default)]
pub struct Stacks {
    pub kernel: Kernel,
    pub counts: StackCounts,
    unwinder: Unwinder,
    mappings: FxHashMap<(u32, Part), MappingId>,
    truncations: FxHashMap<Truncation, LocationId>,
    kernel_addresses: Vec<u64>,
    chain: Vec<u64>,
    frames: Vec<Frame>,
    registers: Vec<u8>,
}

/// What the stack of a sample depends on.
pub struct StackSource<'a> {
    pub attribute: &'a Attribute,
    pub fields: &'a SampleFields<'a>,
    pub mode: Mode,
    pub machine: &'a Machine,
    /// Names of run-time code may be in the perf maps of this machine.
    pub has_perf_maps: bool,
    /// Records were lost before.
    pub has_losses: bool,
}

impl Stacks {
    /// Sets `stack` to the locations of a sample, leaf first.
    pub fn make(
        &mut self,
        source: &StackSource<'_>,
        spaces: &mut Spaces,
        all: &mut Assembly,
        stack: &mut Vec<LocationId>,
    ) {
        stack.clear();
        self.split(source);
        let end = self.user_frames(source, spaces);
        for (number, &address) in self.kernel_addresses.iter().enumerate() {
            let call = address.wrapping_sub(u64::from(number > 0));
            stack.push(self.kernel.location(call, source.machine, all));
        }
        let frames = std::mem::take(&mut self.frames);
        for frame in &frames {
            stack.push(self.location(source, frame, spaces, all));
        }
        self.frames = frames;
        if stack.is_empty() {
            stack.push(all.location(None, source.fields.ip.unwrap_or(0), &[]));
        }
        self.end(end, source.machine, all, stack);
    }

    /// Splits the call chain, or takes the sampled address.
    fn split(&mut self, source: &StackSource<'_>) {
        self.kernel_addresses.clear();
        self.chain.clear();
        let SampleFields { chain, ip, .. } = *source.fields;
        Callchain::new(chain).split(&mut self.kernel_addresses, &mut self.chain);
        if self.kernel_addresses.is_empty() && self.chain.is_empty() {
            match source.mode {
                Mode::Kernel => self.kernel_addresses.extend(ip),
                Mode::User => self.chain.extend(ip),
                Mode::Other => {}
            }
        }
        let branches = source.fields.branches;
        if !self.chain.is_empty() && !branches.is_empty() {
            branches.chain(ip.filter(|_| source.mode == Mode::User), &mut self.chain);
        }
    }

    /// Sets the user frames; returns the end of the stack.
    fn user_frames(&mut self, source: &StackSource<'_>, spaces: &mut Spaces) -> End {
        let SampleFields { pid, tid, registers, .. } = *source.fields;
        self.frames.clear();
        let has_copies = source.attribute.copies_stacks();
        let is_compat = registers == UserRegisters::Compat;
        let native = self.native_registers(source);
        if pid < 0 || (self.chain.is_empty() && native.is_none() && !is_compat) {
            return End::Complete;
        }
        if !source.machine.has_own_architecture {
            return self.foreign_frames(pid, has_copies, spaces);
        }
        if native.is_some_and(|regs| self.is_left_over(regs, source.mode, pid, spaces)) {
            return End::Complete;
        }
        self.counts.all += 1;
        let (process, images) = spaces.split(pid);
        let regions = &process.regions;
        let end = match native {
            Some(regs) => {
                let (all, rest) = (AllRegs::new(&self.registers), Rest::default());
                let copy = source.fields.stack;
                let (bytes, full) = (copy.bytes, copy.is_full);
                let user = UserStack::Native { regs, all, bytes, full, rest };
                let thread = ThreadId { pid, tid };
                let chain = if source.attribute.has_chains() { &*self.chain } else { &[] };
                self.unwinder.unwind(thread, regions, images, user, chain, &mut self.frames)
            }
            None if has_copies && !is_compat && source.mode == Mode::Kernel => {
                StackEnd::RegistersNotSaved
            }
            None => {
                unwind::chain_frames(pid, regions, images, &self.chain, &mut self.frames);
                if has_copies { StackEnd::Compat } else { StackEnd::Complete }
            }
        };
        let is_kernel = source.mode == Mode::Kernel;
        let length = self.kernel_addresses.len() + self.chain.len();
        let end = match end {
            _ if !has_copies
                && source.attribute.has_chains()
                && length >= source.attribute.max_chain() =>
            {
                StackEnd::ChainTooDeep
            }
            StackEnd::Complete if source.fields.branches.is_full() => StackEnd::ChainTooDeep,
            StackEnd::Unreadable if is_kernel => StackEnd::NoUserMemory,
            StackEnd::BadReturnAddress if source.has_losses => StackEnd::LostMappings,
            end => end,
        };
        truncation(end).map_or(End::Complete, End::Truncated)
    }

    /// The user registers that unwinding begins with; the others are in `self.registers` then, if the
    /// sample has all.
    fn native_registers(&mut self, source: &StackSource<'_>) -> Option<Regs> {
        let UserRegisters::Native(sampled) = source.fields.registers else { return None };
        let mask = source.attribute.registers;
        let value = |bit: u32| {
            let before = (mask & ((1u64 << bit) - 1)).count_ones();
            words(sampled).nth(before as usize).filter(|_| mask >> bit & 1 != 0)
        };
        let bits = (0..u64::BITS).filter(|bit| SAMPLED_REGISTERS >> bit & 1 != 0);
        let all: Vec<Option<u64>> = bits.map(value).collect();
        self.registers.clear();
        if all.iter().all(Option::is_some) {
            self.registers.extend(all.iter().flatten().flat_map(|word| word.to_ne_bytes()));
        }
        let [ip, sp, bp] = [arch::IP, arch::SP, arch::BP].map(|place| all[place]);
        Some(Regs { ip: ip?, sp: sp?, bp: bp.unwrap_or(0) })
    }

    /// True if the registers are left over from the program before `execve`.
    fn is_left_over(&self, regs: Regs, mode: Mode, pid: i32, spaces: &mut Spaces) -> bool {
        let process = spaces.process(pid);
        let is_unmapped = process.regions.find(ProcessAddress(regs.ip)).is_none();
        if process.is_replaced && mode == Mode::Kernel && is_unmapped {
            return true;
        }
        process.is_replaced = false;
        false
    }

    /// The frames of the kernel's chain on another architecture, whose files are not read.
    fn foreign_frames(&mut self, pid: i32, has_copies: bool, spaces: &mut Spaces) -> End {
        let process = spaces.process(pid);
        for (number, &address) in self.chain.iter().enumerate() {
            let kind = if number > 0 { AddressKind::Return } else { AddressKind::Instruction };
            let at = ProcessAddress(address).minus(kind.offset());
            let place = match process.regions.find(at) {
                Some(region) => Place::File { image: region.image, offset: region.offset_of(at) },
                None => Place::Unmapped { address: at },
            };
            self.frames.push(Frame { address: ProcessAddress(address), kind, place });
        }
        self.counts.all += 1;
        self.counts.foreign += u64::from(has_copies);
        if has_copies { End::OtherArchitecture } else { End::Complete }
    }

    fn location(
        &mut self,
        source: &StackSource<'_>,
        frame: &Frame,
        spaces: &mut Spaces,
        all: &mut Assembly,
    ) -> LocationId {
        let (image, part) = match frame.place {
            Place::Elf(place) => (place.image, Part::Segment(place.segment)),
            Place::File { image, .. } => {
                let regions = &spaces.process(source.fields.pid).regions;
                let region = regions.find(frame.instruction());
                (image, Part::Offset(region.map_or(0, |region| region.offset)))
            }
            Place::Memory { image, .. } => (image, Part::Whole),
            Place::Unmapped { address } => return all.location(None, address.0, &[]),
        };
        let mapping = match self.mappings.get(&(image, part)) {
            Some(&mapping) => mapping,
            None => {
                let mapping = add_mapping(source, image, part, spaces, all);
                self.mappings.insert((image, part), mapping);
                mapping
            }
        };
        all.location(Some(mapping), frame.place.number(), &[])
    }

    /// Adds the frame that ends a truncated stack.
    fn end(
        &mut self,
        end: End,
        machine: &Machine,
        all: &mut Assembly,
        stack: &mut Vec<LocationId>,
    ) {
        match end {
            End::Complete => {}
            End::Truncated(why) => {
                *self.counts.truncated.entry(why).or_default() += 1;
                let location = self.truncations.entry(why);
                stack.push(*location.or_insert_with(|| named(all, &why.frame_name())));
            }
            End::OtherArchitecture => {
                let name = format!("[truncated: recorded on {}]", machine.architecture);
                stack.push(named(all, &name));
            }
        }
    }
}

/// The end of a user stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    Truncated(Truncation),
    OtherArchitecture,
}

fn named(all: &mut Assembly, name: &str) -> LocationId {
    let function = all.function(name, "", 0);
    all.location(None, 0, &[Line { function, line: 0, column: 0 }])
}

/// Adds the mapping of a part of an image, as a recording of prof has it.
fn add_mapping(
    source: &StackSource<'_>,
    image: u32,
    part: Part,
    spaces: &Spaces,
    all: &mut Assembly,
) -> MappingId {
    let is_identified = spaces.is_identified(image);
    let image = spaces.images.get(image);
    let (start, limit, file_offset) = match (part, &image.state) {
        (Part::Segment(segment), State::Elf(loaded)) => loaded.elf.mapping_of(usize::from(segment)),
        // The addresses are offsets.
        (Part::Offset(offset), _) => (offset, u64::MAX, offset),
        _ => (0, u64::MAX, 0),
    };
    let is_memory = part == Part::Whole && image.path.starts_with("//anon");
    let file = if is_memory && source.has_perf_maps {
        all.string(&format!("/tmp/perf-{}.map", image.pid))
    } else {
        all.string(&image.path)
    };
    // Without a recorded one, the file that is there now is not proved to be the recorded one.
    let build_id = if is_identified { hex(&image.build_id) } else { String::new() };
    let build_id = all.string(&build_id);
    all.add_mapping(Mapping { start, limit, file_offset, file, build_id, ..Mapping::default() })
}

/// The reason why a stack with this end is truncated, if it is: both have the same order.
fn truncation(end: StackEnd) -> Option<Truncation> {
    (end as usize).checked_sub(1).map(|place| Truncation::ALL[place])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_stacks_are_the_truncations_of_the_same_names() {
        for end in StackEnd::ALL {
            let name = truncation(end).map_or("Complete".to_owned(), |why| format!("{why:?}"));
            assert_eq!(name, format!("{end:?}"));
        }
    }
}
