//! Go's part of a file: rules of its code that its unwind information lacks.

use std::cell::OnceCell;
use std::ops::Range;

use super::{Fact, FactKind, GoRole, ModuleUnwinder, RuleCache};
use crate::CodeAddress;
use crate::arch::{self, ENTRY_CFA, SP};
use crate::cfi::Rule;
use crate::go_frames::frame_size;
use sys::FileAddress;
use sys::catch_panic;
use sys::elf::Segment;
use sys::go_table::GoTable;

/// What is read from a Go file at its first use.
#[derive(Default)]
pub(super) struct GoFacts {
    /// Go's own table of its functions.
    table: OnceCell<Option<GoTable>>,
    /// The function of Go's run-time code that the entry point jumps to.
    start: OnceCell<Option<Range<u64>>>,
}

impl ModuleUnwinder {
    /// The rule of the code at an address in a Go file, which overrides its unwind information.
    pub(super) fn go_rule(&self, address: u64) -> Option<Rule> {
        let file = self.is_go.then_some(&self.file)?;
        if self.go_start().is_some_and(|start| start.contains(&address)) {
            return Some(Rule::Outermost);
        }
        let inside = |s: &&Segment| address.wrapping_sub(s.address) < s.size;
        let segment = self.segments.iter().find(inside)?;
        let begin = usize::try_from(segment.offset).ok()?;
        let next = usize::try_from(address - segment.address).ok()?.checked_add(begin + 1)?;
        let before = file.get(next.saturating_sub(arch::GO_BEFORE).max(begin)..next)?;
        let after = file.get(next..file.len().min(next.saturating_add(arch::GO_AFTER)))?;
        arch::go_rule(address, before, after)
    }

    /// The rule of the code at an address by Go's own table, which stripped files have, too.
    pub(super) fn go_table_rule(&self, address: u64) -> Option<Rule> {
        arch::go_frame(frame_size(self.go_table()?, &self.file, address)?)
    }

    /// The role of the code at an address in switching between Go's stacks.
    pub fn go_switch(&self, cache: &mut RuleCache, at: CodeAddress) -> Option<GoRole> {
        GoRole::SWITCHES.into_iter().find(|&role| self.has_go_role(cache, at, role))
    }

    /// True if the code at an address has this role in Go's run-time code.
    pub fn has_go_role(&self, cache: &mut RuleCache, at: CodeAddress, role: GoRole) -> bool {
        let FileAddress(address) = at.lookup();
        let fact = Fact { image: self.image, address, kind: FactKind::Go(role) };
        self.is_go && cache.fact(fact, |_| self.is_named(address, role.names()))
    }

    /// True if the function that contains an address has one of these names in Go's own table.
    fn is_named(&self, address: u64, names: &[&str]) -> bool {
        let name = self
            .go_table()
            .and_then(|table| table.name(&self.file, &table.function(&self.file, address)?));
        name.is_some_and(|name| names.iter().any(|known| name == known.as_bytes()))
    }

    pub(super) fn go_table(&self) -> Option<&GoTable> {
        let find = || catch_panic(|| GoTable::with_frames(&self.file)).flatten();
        self.is_go.then(|| self.go_facts.table.get_or_init(find))?.as_ref()
    }

    /// The function that the entry point jumps to. It aligns its stack, and has no caller.
    fn go_start(&self) -> Option<&Range<u64>> {
        let find = || {
            let text = self.text();
            let code = |address| text.from(address).filter(|_| address != 0);
            let start = arch::go_start(self.entry, code)?;
            self.go_table()?.bounds(&self.file, start)
        };
        self.go_facts.start.get_or_init(find).as_ref()
    }

    /// True if the rules of the code from `start` to `end` are those of its unwind information.
    pub(super) fn has_rows_only(&self, start: u64, end: u64) -> bool {
        /// Longest code that is searched.
        const MOST: u64 = 64 << 10;
        if !self.is_go {
            return true;
        }
        if self.go_start().is_some_and(|other| other.start < end && start < other.end) {
            return false;
        }
        let first = start.saturating_sub(arch::GO_BEFORE as u64);
        let size = (end + arch::GO_AFTER as u64).saturating_sub(first);
        // A function at the end of its segment is not worth more.
        let code = self.text().from(first).filter(|code| code.len() as u64 >= size && size <= MOST);
        code.is_some_and(|code| !arch::may_have_go_rules(&code[..size as usize]))
    }

    /// True if the code is Go's, without a frame or frame pointer: it has switched to another
    /// stack, or only calls on.
    pub fn is_frameless(&self, cache: &mut RuleCache, at: CodeAddress) -> bool {
        let rule = self.is_go.then(|| cache.rule(self, at));
        matches!(rule, Some(Rule::Switched | Rule::Offset { register: SP, cfa: ENTRY_CFA, .. }))
    }

    /// True if the code is Go's own, not C's in a Go program.
    pub fn is_go_code(&self, cache: &mut RuleCache, at: CodeAddress) -> bool {
        let address = at.lookup().0;
        let covered = Fact { image: self.image, address, kind: FactKind::InEhFrame };
        self.is_go && !cache.fact(covered, |_| self.tables.in_eh_frame(address))
    }
}
