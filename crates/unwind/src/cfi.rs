//! Call frame information: the contents of `.eh_frame` or `.debug_frame`, as rules that are short
//! enough to cache, and in full for the few frames that need it.
//!
//! Registers have DWARF's numbers, see [`crate::arch`].

use std::cell::OnceCell;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EhFrameHdr, Encoding, EndianSlice,
    FrameDescriptionEntry, LittleEndian, Operation, Register, RegisterRule, UnwindContext,
    UnwindExpression, UnwindSection, UnwindTableRow,
};

mod machine;

use super::arch::{self, BP, COLUMNS, DeliveryContexts, IP, RA, ReturnAddress};
use super::module::{SectionBytes, Step};
use machine::Machine;
use sys::catch_panic;

/// Location of the caller's frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// Unchanged.
    Same,
    /// In memory, at this offset in bytes from the canonical frame address.
    FromCfa(i32),
    /// In memory, at this offset in bytes from the frame pointer.
    FromBp(i32),
}

/// Return address of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return<R> {
    /// None: the frame has no caller.
    Outermost,
    /// At a usual location.
    At(R),
}

/// Rule for finding the caller's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The canonical frame address (CFA) is a register plus `cfa`.
    Offset {
        /// The register.
        register: u8,
        /// Number that is added.
        cfa: i32,
        /// Location of the caller's frame pointer.
        bp: Saved,
        /// Location of the return address.
        ra: ReturnAddress,
    },
    /// The CFA is the word at a register plus `at`, plus `cfa`: the frame was aligned, or the stack
    /// pointer saved.
    Deref {
        /// The register.
        register: u8,
        /// Offset of the word.
        at: i32,
        /// Number that is added to the word.
        cfa: i32,
        /// Location of the caller's frame pointer.
        bp: Saved,
        /// Location of the return address.
        ra: ReturnAddress,
    },
    /// The frame has no caller.
    Outermost,
    /// The caller is on another stack.
    Switched,
    /// The frame may contain the registers of an exception's handler instead of the caller's.
    Delivering(Option<DeliveryContexts>),
    /// No such short rule exists; see [`UnwindTables::step`].
    Evaluate,
    /// The code has no unwind information.
    Uncovered,
}

/// Entry of the tables for the code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// The rule.
    pub rule: Rule,
    /// The function saves the registers in its frame in which a handler receives its exception, as
    /// functions do that may return to one.
    pub may_deliver: bool,
}

/// The general registers, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownRegisters {
    values: [u64; COLUMNS],
    known: u64,
}

impl KnownRegisters {
    /// All registers unknown.
    pub const NONE: KnownRegisters = KnownRegisters { values: [0; COLUMNS], known: 0 };

    /// Value of a register, if known.
    pub fn get(&self, register: u8) -> Option<u64> {
        let is_known = usize::from(register) < COLUMNS && self.known & 1 << register != 0;
        is_known.then(|| self.values[usize::from(register)])
    }

    /// Sets a register.
    pub fn set(&mut self, register: u8, value: u64) {
        self.values[usize::from(register)] = value;
        self.known |= 1 << register;
    }

    /// Sets the instruction pointer.
    pub fn set_ip(&mut self, ip: u64) {
        self.set(IP, ip);
    }
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type UnwindRow = UnwindTableRow<usize>;

/// The unwind tables of an image.
pub struct UnwindTables {
    bases: BaseAddresses,
    /// `.eh_frame`, and `.eh_frame_hdr` if that has a search table.
    eh_frame: Option<(SectionBytes, Option<SectionBytes>)>,
    /// Entries of an `.eh_frame` without a search table, and true if all of it could be read.
    eh_index: Index,
    eh_whole: bool,
    /// Loads `.debug_frame`; called when `.eh_frame` has no entry.
    debug_frame: Option<Box<dyn Fn() -> Option<SectionBytes> + Send>>,
    debug_index: OnceCell<Option<(SectionBytes, Index)>>,
}

/// First addresses and offsets of a section's entries, by address.
type Index = Vec<(u64, usize)>;

impl UnwindTables {
    /// Tables of a file; builds an index for those without one.
    pub fn new(
        bases: BaseAddresses,
        eh_frame: Option<SectionBytes>,
        eh_frame_hdr: Option<SectionBytes>,
        debug_frame: Option<Box<dyn Fn() -> Option<SectionBytes> + Send>>,
    ) -> UnwindTables {
        let searchable = |hdr: &SectionBytes| {
            let parsed = EhFrameHdr::new(hdr, LittleEndian).parse(&bases, 8);
            parsed.is_ok_and(|h| h.table().is_some())
        };
        let hdr = eh_frame_hdr.filter(searchable);
        let (eh_index, eh_whole) = match (&eh_frame, &hdr) {
            (Some(frame), None) => {
                catch_panic(|| index(&eh_section(frame), &bases)).unwrap_or_default()
            }
            _ => (Vec::new(), true),
        };
        let eh_frame = eh_frame.map(|frame| (frame, hdr));
        UnwindTables {
            bases,
            eh_frame,
            eh_index,
            eh_whole,
            debug_frame,
            debug_index: OnceCell::new(),
        }
    }

    /// Rule of the code at an address.
    #[cfg(test)]
    pub fn rule(&self, context: &mut UnwindContext<usize>, address: u64) -> Rule {
        self.described(context, address).rule
    }

    /// Entry for the code at an address.
    pub fn described(&self, context: &mut UnwindContext<usize>, address: u64) -> Described {
        let uncovered = Described { rule: Rule::Uncovered, may_deliver: false };
        self.visit(context, address, Shorten).unwrap_or(uncovered)
    }

    /// One step up by the full entry. `registers` become the caller's, as far as those can be
    /// determined.
    pub fn step(
        &self,
        context: &mut UnwindContext<usize>,
        address: u64,
        registers: &mut KnownRegisters,
        read: &mut dyn FnMut(u64) -> Result<u64, ()>,
    ) -> Step {
        let machine = Machine { before: *registers, cfa: None, read };
        let Some(stepped) = self.visit(context, address, machine) else { return Step::Failed };
        match stepped {
            Ok(after) => {
                *registers = after;
                match after.get(RA).map(arch::code_address) {
                    Some(0) => Step::NoCaller,
                    Some(address) => Step::Caller(address),
                    None => Step::End,
                }
            }
            Err(step) => step,
        }
    }

    /// True if the tables have an entry that begins at this address, and none for the byte before
    /// it.
    pub fn begins_alone(&self, context: &mut UnwindContext<usize>, address: u64) -> bool {
        self.visit(context, address.wrapping_sub(1), Shorten).is_none()
            && self.visit(context, address, Shorten).is_some()
    }

    /// Looks up the row of the code at an address. Damaged tables count as missing.
    fn visit<V: Visitor>(
        &self,
        context: &mut UnwindContext<usize>,
        address: u64,
        visitor: V,
    ) -> Option<V::Output> {
        catch_panic(|| self.look_up(context, address, visitor)).flatten()
    }

    fn look_up<V: Visitor>(
        &self,
        context: &mut UnwindContext<usize>,
        address: u64,
        visitor: V,
    ) -> Option<V::Output> {
        if let Some((section, fde)) = self.eh_entry(address) {
            return self.row(&section, context, fde, address, visitor);
        }
        let load = self.debug_frame.as_ref()?;
        let (bytes, index) = self
            .debug_index
            .get_or_init(|| {
                let bytes = load()?;
                let (index, _) = catch_panic(|| index(&debug_section(&bytes), &self.bases))?;
                Some((bytes, index))
            })
            .as_ref()?;
        let section = debug_section(bytes);
        let fde = find(&section, &self.bases, index, address)?;
        self.row(&section, context, fde, address, visitor)
    }

    /// True if the entry in `.eh_frame` for the address cannot be read, or the section is so
    /// damaged that it may have had one.
    pub fn is_damaged(&self, context: &mut UnwindContext<usize>, address: u64) -> bool {
        catch_panic(|| self.is_damaged_at(context, address)).unwrap_or(true)
    }

    fn is_damaged_at(&self, context: &mut UnwindContext<usize>, address: u64) -> bool {
        let Some((frame, hdr)) = &self.eh_frame else { return false };
        let section = eh_section(frame);
        let cie = EhFrame::cie_from_offset;
        let found = match hdr {
            Some(hdr) => EhFrameHdr::new(hdr, LittleEndian).parse(&self.bases, 8).and_then(|h| {
                let table = h.table().ok_or(gimli::Error::NoUnwindInfoForAddress)?;
                table.fde_for_address(&section, &self.bases, address, cie)
            }),
            None => find(&section, &self.bases, &self.eh_index, address)
                .ok_or(gimli::Error::NoUnwindInfoForAddress),
        };
        match found {
            Ok(fde) => self.row(&section, context, fde, address, Shorten).is_none(),
            Err(gimli::Error::NoUnwindInfoForAddress) => !self.eh_whole,
            Err(_) => true,
        }
    }

    /// First address of the function that contains an address, from `.eh_frame`.
    pub fn start(&self, address: u64) -> Option<u64> {
        catch_panic(|| self.eh_entry(address).map(|(_, fde)| fde.initial_address())).flatten()
    }

    /// True if one entry covers both addresses: they are in one function.
    pub fn are_one(&self, a: u64, b: u64) -> bool {
        let in_one = || self.eh_entry(a).is_some_and(|(_, fde)| fde.contains(b));
        catch_panic(in_one).unwrap_or(false)
    }

    /// True if `.eh_frame` has an entry for the address.
    pub fn in_eh_frame(&self, address: u64) -> bool {
        self.eh_entry(address).is_some()
    }

    fn eh_entry(
        &self,
        address: u64,
    ) -> Option<(EhFrame<Slice<'_>>, FrameDescriptionEntry<Slice<'_>>)> {
        let (frame, hdr) = self.eh_frame.as_ref()?;
        let section = eh_section(frame);
        let fde = match hdr {
            Some(hdr) => {
                let hdr = EhFrameHdr::new(hdr, LittleEndian).parse(&self.bases, 8).ok()?;
                let cie = EhFrame::cie_from_offset;
                hdr.table()?.fde_for_address(&section, &self.bases, address, cie).ok()?
            }
            None => find(&section, &self.bases, &self.eh_index, address)?,
        };
        Some((section, fde))
    }

    fn row<'a, S: UnwindSection<Slice<'a>>, V: Visitor>(
        &self,
        section: &S,
        context: &mut UnwindContext<usize>,
        fde: FrameDescriptionEntry<Slice<'a>>,
        address: u64,
        visitor: V,
    ) -> Option<V::Output> {
        let encoding = fde.cie().encoding();
        let row = fde.unwind_info_for_address(section, &self.bases, context, address).ok()?;
        Some(visitor.visit(section, row, encoding))
    }
}

fn eh_section(bytes: &[u8]) -> EhFrame<Slice<'_>> {
    let mut section = EhFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(arch::VENDOR);
    section
}

fn debug_section(bytes: &[u8]) -> DebugFrame<Slice<'_>> {
    let mut section = DebugFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(arch::VENDOR);
    section
}

/// The index of a section, and true if all of it could be read.
fn index<'a, S: UnwindSection<Slice<'a>>>(section: &S, bases: &BaseAddresses) -> (Index, bool) {
    let mut index = Vec::new();
    let mut whole = true;
    let mut entries = section.entries(bases);
    loop {
        match entries.next() {
            Ok(Some(CieOrFde::Fde(partial))) => match partial.parse(S::cie_from_offset) {
                Ok(fde) => index.push((fde.initial_address(), fde.offset())),
                Err(_) => whole = false,
            },
            Ok(Some(CieOrFde::Cie(_))) => {}
            Ok(None) => break,
            Err(_) => {
                whole = false;
                break;
            }
        }
    }
    index.sort_unstable();
    (index, whole)
}

fn find<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    index: &[(u64, usize)],
    address: u64,
) -> Option<FrameDescriptionEntry<Slice<'a>>> {
    let at = index.partition_point(|&(start, _)| start <= address).checked_sub(1)?;
    let offset = S::Offset::from(index[at].1);
    let fde = section.fde_from_offset(bases, offset, S::cie_from_offset).ok()?;
    fde.contains(address).then_some(fde)
}

/// Processes a row of a table.
trait Visitor {
    type Output;

    fn visit<'a, S: UnwindSection<Slice<'a>>>(
        self,
        section: &S,
        row: &UnwindRow,
        encoding: Encoding,
    ) -> Self::Output;
}

/// Converts a row to a [`Rule`].
struct Shorten;

impl Visitor for Shorten {
    type Output = Described;

    fn visit<'a, S: UnwindSection<Slice<'a>>>(
        self,
        section: &S,
        row: &UnwindRow,
        encoding: Encoding,
    ) -> Described {
        let rule = shorten(section, row, encoding).unwrap_or(Rule::Evaluate);
        let saves =
            |n: u8| matches!(row.register(Register(n.into())), Some(RegisterRule::Offset(_)));
        Described { rule, may_deliver: arch::EXCEPTION.into_iter().all(saves) }
    }
}

fn shorten<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    row: &UnwindRow,
    encoding: Encoding,
) -> Option<Rule> {
    let ra = match arch::return_address(row.register(Register(RA.into())))? {
        Return::Outermost => return Some(Rule::Outermost),
        Return::At(ra) => ra,
    };
    let operations = |e: &UnwindExpression<usize>| {
        let mut found = [None, None, None];
        let mut all = e.get(section).ok()?.operations(encoding);
        for slot in &mut found {
            *slot = all.next().ok()?;
        }
        all.next().ok()?.is_none().then_some(found)
    };
    let bp = match row.register(Register(BP.into())) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Saved::Same,
        Some(RegisterRule::Offset(at)) => Saved::FromCfa(at.try_into().ok()?),
        Some(RegisterRule::Expression(e)) => match operations(&e)? {
            [Some(Operation::RegisterOffset { register, offset, .. }), None, None]
                if register.0 == u16::from(BP) =>
            {
                Saved::FromBp(offset.try_into().ok()?)
            }
            _ => return None,
        },
        Some(_) => return None,
    };
    match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Some(Rule::Offset {
            register: register.0.try_into().ok()?,
            cfa: i32::try_from(*offset).ok()?,
            bp,
            ra,
        }),
        CfaRule::Expression(e) => {
            let [first, Some(Operation::Deref { size: 8, space: false, .. }), last] =
                operations(e)?
            else {
                return None;
            };
            let Some(Operation::RegisterOffset { register, offset, .. }) = first else {
                return None;
            };
            let cfa = match last {
                None => 0,
                Some(Operation::PlusConstant { value }) => value.try_into().ok()?,
                Some(_) => return None,
            };
            let register = register.0.try_into().ok()?;
            Some(Rule::Deref { register, at: offset.try_into().ok()?, cfa, bp, ra })
        }
    }
}

#[cfg(test)]
mod tests;
