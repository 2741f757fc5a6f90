//! Unwind tables of one image, in the address space of its file, and one step up a stack.

mod facts;
mod go;
mod greenlet;
mod rule_cache;
mod step;

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;

use gimli::BaseAddresses;

use super::arch::{self, BP, CodeFrame, Moved, SIGRETURN, SP};
use super::cfi::{
    CopyMemory, Described, KnownRegisters, Rows, Rule, TableMemory, UnwindContext, UnwindTables,
};
use super::code::{AtReturn, Between, File, Functions, Leads, Text};
use crate::CodeAddress;
pub use facts::{Fact, FactKind, GoRole};
use go::GoFacts;
pub use rule_cache::RuleCache;
pub use step::{Step, by_rule, by_rule_in, frame_pointer_step};
use step::{interrupted, restored};
use sys::FileAddress;
use sys::arch::DWARF_ORDER;
use sys::catch_panic;
use sys::elf::{Elf, Section, Segment};
use sys::image::{Bytes, Loaded};
use sys::record::Regs;

/// Bytes of a section, which keep the file mapped.
#[derive(Clone)]
pub struct SectionBytes {
    bytes: Arc<Bytes>,
    range: Range<usize>,
}

impl SectionBytes {
    /// A part of a file.
    pub fn part(bytes: &Arc<Bytes>, range: Range<usize>) -> SectionBytes {
        SectionBytes { bytes: bytes.clone(), range }
    }

    /// Releases the memory of the file's pages.
    pub fn drop_pages(&self) {
        self.bytes.drop_pages();
    }
}

impl From<Vec<u8>> for SectionBytes {
    fn from(bytes: Vec<u8>) -> SectionBytes {
        let range = 0..bytes.len();
        SectionBytes { bytes: Arc::new(Bytes::Memory(bytes)), range }
    }
}

impl std::ops::Deref for SectionBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

/// The unwinders of a recording's images.
#[derive(Default)]
pub struct Modules {
    /// By image.
    all: Vec<Option<Box<ModuleUnwinder>>>,
    memory: TableMemory,
    /// That of copied sections.
    copies: CopyMemory,
}

impl Modules {
    /// Images whose unwind information exceeded a limit of memory or time: some of their code may
    /// have been taken as without unwind information.
    pub fn over_budget(&self) -> impl Iterator<Item = u32> {
        let all = self.all.iter().flatten();
        all.filter(|module| module.over_budget()).map(|module| module.image)
    }

    /// Releases half of the memory of copied sections.
    pub fn drop_copies(&mut self) {
        self.copies.halve();
    }

    /// Releases what can be read from the files again.
    pub fn drop_caches(&mut self) {
        self.memory.clear();
        self.copies.clear();
        self.all.iter_mut().flatten().for_each(|module| drop(module.functions.take()));
    }

    /// True if the unwinder of an image exists.
    pub fn has(&self, image: u32) -> bool {
        self.all.get(image as usize).is_some_and(Option::is_some)
    }

    /// The unwinder of an image.
    pub fn get(&mut self, image: u32, path: &str, loaded: &Loaded) -> &ModuleUnwinder {
        let at = image as usize;
        if self.all.len() <= at {
            self.all.resize_with(at + 1, || None);
        }
        let Modules { memory, copies, .. } = self;
        let new = || {
            let module = ModuleUnwinder::new(image, path, &loaded.elf, &loaded.bytes);
            ModuleUnwinder { tables: module.tables.with_memory(memory, copies), ..module }
        };
        self.all[at].get_or_insert_with(|| Box::new(new()))
    }
}

/// Unwinds through one image, in the address space of its file.
pub struct ModuleUnwinder {
    image: u32,
    tables: UnwindTables,
    /// Return address of signal handlers, if this is the C library or a static program.
    sigreturn: Option<u64>,
    /// Go's linker made it.
    is_go: bool,
    /// Read from the file when they are needed first.
    go_facts: GoFacts,
    file: Arc<Bytes>,
    segments: Vec<Segment>,
    entry: u64,
    /// The function with which greenlets begin: what lies above its frame is not of their stacks.
    first: Option<Range<u64>>,
    /// Read from the file at the first code without unwind information.
    functions: OnceCell<Functions>,
}

/// Largest `.text` that is searched for [`SIGRETURN`].
const MAX_SEARCHED: usize = 16 << 20;

impl ModuleUnwinder {
    /// An unwinder for an image, with memory of its own.
    pub fn new(image: u32, path: &str, elf: &Elf, file: &Arc<Bytes>) -> ModuleUnwinder {
        let bytes = |s: &Section| SectionBytes::part(file, s.range.clone());
        let debug_frame = elf.debug_frame.clone().map(|section| (section, file.clone()));
        let address = |s: &Option<Section>| s.as_ref().map_or(0, |s| s.address);
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(address(&elf.eh_frame_hdr))
            .set_eh_frame(address(&elf.eh_frame))
            .set_text(address(&elf.text))
            .set_got(address(&elf.got));
        let frame = elf.eh_frame.as_ref();
        let hdr = elf.eh_frame_hdr.as_ref();
        let tables = UnwindTables::new(bases, frame.map(bytes), hdr.map(bytes), debug_frame);
        ModuleUnwinder {
            image,
            tables,
            sigreturn: sigreturn(path, elf, file),
            is_go: elf.is_go,
            go_facts: GoFacts::default(),
            file: file.clone(),
            segments: elf.segments.clone(),
            entry: elf.entry,
            first: catch_panic(|| greenlet::first_function(path, file)).flatten(),
            functions: OnceCell::new(),
        }
    }

    /// True if the code at an address begins a stack, whatever its unwind information states.
    fn begins_stack(&self, address: u64) -> bool {
        self.first.as_ref().is_some_and(|first| first.contains(&address))
    }

    /// The rule of the tables for an address, unless the code from `next` on is about to return to
    /// an exception's handler.
    fn described(
        &self,
        rows: &mut Rows,
        context: &mut UnwindContext,
        address: u64,
        next: u64,
    ) -> Rule {
        let described = self.tables.described_in(self.image, rows, context, address);
        let Described { rule, may_deliver } = described;
        if may_deliver && arch::delivers(self.text(), next) {
            let start = || self.tables.start(address).filter(|&start| start < next);
            let start = if address == next { None } else { start() };
            let contexts = start.and_then(|start| arch::contexts(self.text(), start, next));
            Rule::Delivering(contexts.filter(|_| arch::has_pointer(rule)))
        } else {
            rule
        }
    }

    /// The rule for an address, if the copied tables determine it: no file is read.
    fn copied_rule(
        &self,
        rows: &mut Rows,
        context: &mut UnwindContext,
        address: u64,
    ) -> Option<Rule> {
        // Go's own tables come first.
        let tables = (!self.is_go).then_some(&self.tables)?;
        let described = tables.described_in_copy(self.image, rows, context, address)?;
        (!described.may_deliver).then_some(described.rule)
    }

    /// The rule for an address by all that the file contains. The code from `next` on follows.
    fn read_rule(
        &self,
        rows: &mut Rows,
        context: &mut UnwindContext,
        address: u64,
        next: u64,
    ) -> Rule {
        let tables = || self.described(rows, context, address, next);
        match self.go_rule(address).unwrap_or_else(tables) {
            Rule::Uncovered => self.go_table_rule(address).unwrap_or(Rule::Uncovered),
            rule => rule,
        }
    }

    /// True if its unwind information exceeded a limit of memory or time.
    pub fn over_budget(&self) -> bool {
        self.tables.over_budget()
    }

    /// True if the address is the return address of signal handlers.
    pub fn is_sigreturn(&self, at: CodeAddress) -> bool {
        let FileAddress(address) = at.address;
        // The two instructions themselves may be running, too.
        let after = |start: u64| address.wrapping_sub(start) <= SIGRETURN.len() as u64;
        self.sigreturn.is_some_and(|s| s == address || (!at.kind.is_return() && after(s)))
    }

    /// One step up from the code at an address.
    #[inline]
    pub fn step(
        &self,
        cache: &mut RuleCache,
        at: CodeAddress,
        regs: &mut Regs,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Step {
        if self.is_sigreturn(at) {
            return interrupted(regs, read);
        }
        let rule = cache.rule(self, at);
        if rule != Rule::Evaluate {
            return by_rule(rule, at.kind, regs, read);
        }
        let mut registers = KnownRegisters::NONE;
        registers.set_ip(regs.ip);
        registers.set(SP, regs.sp);
        registers.set(BP, regs.bp);
        let step = self.step_with(cache, at, &mut registers, read);
        if let Step::Caller(ip) = step {
            let sp = registers.get(SP).unwrap_or(regs.sp);
            *regs = Regs { ip, sp, bp: registers.get(BP).unwrap_or(0) };
        }
        step
    }

    /// The same with all registers.
    pub fn step_with(
        &self,
        cache: &mut RuleCache,
        at: CodeAddress,
        registers: &mut KnownRegisters,
        mut read: &mut dyn FnMut(u64) -> Result<u64, ()>,
    ) -> Step {
        if self.is_sigreturn(at) {
            return restored(registers, &mut read);
        }
        let sp = registers.get(SP);
        let FileAddress(lookup) = at.lookup();
        let rule = cache.rule(self, at);
        match rule {
            Rule::Switched => return Step::NoCaller,
            Rule::Delivering(_) => return Step::Delivering,
            Rule::Uncovered => {
                let frame = self.frame(cache, at);
                return frame.map_or(Step::Uncovered, |f| f.step(registers, |_| true, read));
            }
            _ => {}
        }
        if cache.lacks() {
            return Step::Failed;
        }
        let mut step = self.tables.step(&mut cache.context, lookup, registers, read);
        if step == Step::Failed && self.is_go {
            // The rule is of Go's own table.
            step = by_rule_in(rule, at.kind, registers, &mut read);
        }
        // Only the innermost frame may use no stack (`vfork` pops its own return address).
        match step {
            Step::Caller(_) if registers.get(SP) < sp => Step::Failed,
            Step::Caller(_) if at.kind.is_return() && registers.get(SP) == sp => Step::Failed,
            step => step,
        }
    }

    /// The image's number.
    pub fn image(&self) -> u32 {
        self.image
    }

    fn text(&self) -> Text<'_> {
        Text { segments: &self.segments, bytes: &self.file }
    }

    /// The machine code.
    pub(super) fn code(&self) -> File<'_> {
        let text = self.text();
        let drop_pages = || self.file.drop_pages();
        let find = || match self.go_table() {
            Some(table) => {
                Functions::new(text, self.entry, table.all_bounds(&self.file), &drop_pages)
            }
            None => Functions::new(text, self.entry, std::iter::empty(), &drop_pages),
        };
        let functions = self.functions.get_or_init(|| catch_panic(find).unwrap_or_default());
        File { image: self.image, text, functions, entry: self.entry }
    }

    /// The machine code, for an analysis; `None` if those of this image have taken too long.
    fn analysable(&self, cache: &mut RuleCache) -> Option<File<'_>> {
        if cache.hurried {
            cache.skipped = true;
            return None;
        }
        cache.pages.check(|| self.file.drop_pages());
        if self.functions.get().is_some() {
            return Some(self.code());
        }
        let is_allowed = cache.code.allows(self.image, self.text().size());
        let file = is_allowed.then(|| self.code())?;
        cache.code.count_functions(file);
        Some(file)
    }

    /// The frame of code without unwind information, from its instructions.
    pub fn frame(&self, cache: &mut RuleCache, at: CodeAddress) -> Option<CodeFrame> {
        if let Some(known) = cache.code.known_frame(self.image, at) {
            return known;
        }
        if cache.lacks() {
            return None;
        }
        let file = self.analysable(cache)?;
        cache.code.frame(file, at)
    }

    /// Location of the saved stack pointer of the code at an address, which moves its stack pointer.
    pub fn moved(&self, cache: &mut RuleCache, FileAddress(address): FileAddress) -> Option<Moved> {
        if let Some(known) = cache.code.known_moved(self.image, address) {
            return known;
        }
        if cache.lacks() {
            return None;
        }
        let start = self.tables.start(address)?;
        let file = self.analysable(cache)?;
        cache.code.moved(file, start, address)
    }

    /// Distance in bytes from the stack pointer up to the frame pointer of the code at an address.
    pub fn pointer(&self, cache: &mut RuleCache, at: CodeAddress) -> Option<u32> {
        if let Some(known) = cache.code.known_pointer(self.image, at) {
            return known;
        }
        if cache.lacks() {
            return None;
        }
        let FileAddress(address) = at.lookup();
        let described = self.tables.start(address);
        let file = self.analysable(cache)?;
        let start = described.or_else(|| Some(file.functions.start(address)?.address()))?;
        cache.code.pointer(file, start, at)
    }

    /// Where the code at an address leaves its function, executed with the sampled registers.
    pub fn leave(
        &self,
        cache: &mut RuleCache,
        FileAddress(address): FileAddress,
        registers: [u64; DWARF_ORDER.len()],
        read: &dyn Fn(u64) -> Result<u64, ()>,
    ) -> Option<AtReturn> {
        if cache.code.never_leaves(self.image, address) || cache.lacks() {
            return None;
        }
        let file = self.analysable(cache)?;
        cache.code.leave(file, address, registers, read)
    }

    /// Return address of the call that frame pointers skip.
    pub fn between(&self, cache: &mut RuleCache, between: Between) -> Option<FileAddress> {
        if let Some(known) = cache.code.known_between(self.image, between) {
            return known.map(FileAddress);
        }
        if cache.lacks() {
            return None;
        }
        let are_one = |a, b| self.tables.are_one(a, b);
        let file = self.analysable(cache)?;
        cache.code.between(file, between, are_one).map(FileAddress)
    }

    /// Result of following the call before `address` to the function that contains `to`; `None`:
    /// that is in another image.
    pub fn leads(
        &self,
        cache: &mut RuleCache,
        address: FileAddress,
        to: Option<FileAddress>,
    ) -> Leads {
        let to = to.map(|to| to.0);
        if let Some(known) = cache.code.known_leads(self.image, address.0, to) {
            return known;
        }
        if cache.lacks() {
            return Leads::Elsewhere;
        }
        let are_one = |a, b| self.tables.are_one(a, b);
        let Some(file) = self.analysable(cache) else { return Leads::Somewhere };
        cache.code.leads(file, address.0, to, are_one)
    }

    /// True if a frame pointer leads from the code at an address to its caller, by its unwind
    /// information or its instructions.
    pub fn keeps_pointer(&self, cache: &mut RuleCache, at: CodeAddress) -> bool {
        match cache.rule(self, at) {
            rule if arch::has_pointer(rule) => true,
            Rule::Uncovered => self.frame(cache, at).is_some_and(|f| f.has_pointer()),
            _ => self.is_go_code(cache, at),
        }
    }

    /// True if the code at an address runs on the first bytes of a segment of a stack, and its
    /// caller on another one.
    pub fn switches_segment(&self, cache: &mut RuleCache, at: CodeAddress) -> bool {
        arch::switches_segment(cache.rule(self, at))
    }

    /// True if the code at an address has no caller.
    pub fn is_outermost(&self, cache: &mut RuleCache, at: CodeAddress) -> bool {
        match cache.rule(self, at) {
            Rule::Outermost => true,
            Rule::Switched => self.has_go_role(cache, at, GoRole::Parks),
            _ => false,
        }
    }

    /// True if the unwind information for the code at an address cannot be read.
    pub fn is_damaged(&self, cache: &mut RuleCache, at: CodeAddress) -> bool {
        let FileAddress(address) = at.lookup();
        let damaged = Fact { image: self.image, address, kind: FactKind::Damaged };
        cache.fact(damaged, |cache| self.tables.is_damaged(&mut cache.context, address))
    }

    /// True if a function begins at `address` and none ends there: a return address with this value
    /// is not a call's, but was written by a program (as `makecontext` does).
    pub fn begins_alone(&self, cache: &mut RuleCache, address: FileAddress) -> bool {
        let alone = Fact { image: self.image, address: address.0, kind: FactKind::BeginsAlone };
        cache.fact(alone, |cache| self.tables.begins_alone(&mut cache.context, address.0))
    }

    /// True if no call is before `address`, and code of this file takes it: a return address with
    /// this value was written by that code (as boost's `make_fcontext` does).
    pub fn is_stored(&self, cache: &mut RuleCache, FileAddress(address): FileAddress) -> bool {
        let stored = Fact { image: self.image, address, kind: FactKind::Stored };
        if cache.hurried && !cache.has_fact(stored) {
            cache.skipped = true;
            return false;
        }
        cache.fact(stored, |cache| {
            let before = self.text().before(address, arch::LONGEST_CALL).unwrap_or_default();
            !arch::is_after_call(before, address)
                && self.analysable(cache).is_some_and(|file| file.functions.is_taken(address))
        })
    }
}

fn sigreturn(path: &str, elf: &Elf, file: &Bytes) -> Option<u64> {
    let text = elf.text.as_ref()?;
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_libc = arch::SIGRETURN_FILES.iter().any(|l| name.starts_with(l));
    let is_static = !elf.has_interpreter && elf.entry != 0;
    if !(is_libc || is_static) || text.range.len() > MAX_SEARCHED {
        return None;
    }
    let bytes = file.get(text.range.clone())?;
    let at = bytes.windows(SIGRETURN.len()).position(|w| w == SIGRETURN);
    file.drop_pages();
    let at = at?;
    Some(text.address + at as u64)
}

#[cfg(test)]
mod tests;
