//! Cached results of all images.

use super::ModuleUnwinder;
use super::facts::{Fact, FactCache};
use crate::CodeAddress;
use crate::arch;
use crate::cfi::{Rows, Rule, UnwindContext};
use sys::own_memory::FilePages;

/// Most rules of a stack that are evaluated while no file is read.
const MOST_QUICK: u32 = 32;

/// Cached rules of all images, and working memory for lookups.
#[derive(Default)]
pub struct RuleCache {
    pub(super) rows: Rows,
    pub(super) context: UnwindContext,
    /// Cached results about code without unwind information.
    pub(super) code: arch::CodeCache,
    facts: FactCache,
    /// Pages that were read for analyses of code.
    pub(super) pages: FilePages,
    /// Only cached results are used: no file is read.
    closed: bool,
    /// Number of rules that may still be evaluated from copies of sections.
    quick: u32,
    /// A result was needed that is not cached.
    lacking: bool,
    /// No code is analysed.
    pub(super) hurried: bool,
    /// Code of the current stack was not analysed for this reason.
    pub(super) skipped: bool,
    /// Number of rules found in the cache of addresses.
    pub hits: u64,
    /// Number of rules looked up in the rows of functions or in the tables.
    pub misses: u64,
}

impl RuleCache {
    /// From now on, uses cached results only; [`RuleCache::end_closed`] ends that.
    pub fn begin_closed(&mut self) {
        (self.closed, self.lacking, self.quick) = (true, false, MOST_QUICK);
    }

    /// Reads files again. Returns true if another result was needed in the meantime.
    pub fn end_closed(&mut self) -> bool {
        self.closed = false;
        std::mem::take(&mut self.lacking)
    }

    /// True if a result was needed that is not cached, since [`RuleCache::begin_closed`].
    pub fn is_lacking(&self) -> bool {
        self.lacking
    }

    /// True while only cached results are used.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Analyses no code from now on, or again.
    pub fn set_hurried(&mut self, hurried: bool) {
        self.hurried = hurried;
    }

    /// Releases the cached results about code.
    pub fn drop_code(&mut self) {
        self.code.clear();
    }

    /// A stack begins.
    pub fn begin_stack(&mut self) {
        self.skipped = false;
    }

    /// True if code of the current stack was not analysed because of a hurry.
    pub fn has_skipped(&self) -> bool {
        self.skipped
    }

    /// True if only cached results are used: the one that is needed now is not, which is noted.
    pub fn lacks(&mut self) -> bool {
        self.lacking |= self.closed;
        self.closed
    }

    /// True if a fact about an address is known, so that no code has to be analysed for it.
    pub fn has_fact(&self, fact: Fact) -> bool {
        self.facts.get(fact).is_some()
    }

    /// A fact about an address in an image.
    pub fn fact(&mut self, fact: Fact, find: impl FnOnce(&mut Self) -> bool) -> bool {
        if let Some(known) = self.facts.get(fact) {
            return known;
        }
        if self.lacks() {
            return false;
        }
        let found = find(self);
        self.facts.insert(fact, found);
        found
    }

    /// Images whose code was not analysed because that took too long.
    pub fn over_budget(&self) -> impl Iterator<Item = u32> {
        self.code.over_budget()
    }

    /// The rule of an address in an image, or of the call before it.
    #[inline]
    pub fn rule(&mut self, module: &ModuleUnwinder, at: CodeAddress) -> Rule {
        // The byte before a return address is no instruction's first: the two never share a rule.
        let address = at.lookup().0;
        if let Some(rule) = self.rows.at(module.image, address) {
            self.hits += 1;
            return rule;
        }
        if let Some(rule) = self.rows.in_function(module.image, address) {
            self.hits += 1;
            return rule;
        }
        self.look_up(module, at)
    }

    #[cold]
    fn look_up(&mut self, module: &ModuleUnwinder, at: CodeAddress) -> Rule {
        let address = at.lookup().0;
        self.rows.forget_last();
        if module.begins_stack(address) {
            self.misses += 1;
            self.rows.keep_at(module.image, address, Rule::Outermost);
            return Rule::Outermost;
        }
        if !self.closed && !module.is_go {
            module.tables.prepare_copy(module.image, address);
        }
        let RuleCache { rows, context, closed, quick, .. } = self;
        let may = !*closed || *quick > 0;
        *quick = quick.saturating_sub(1);
        let copied = may.then(|| module.copied_rule(rows, context, address)).flatten();
        let rule = match copied {
            Some(rule) => rule,
            None if *closed => {
                self.lacking = true;
                return Rule::Uncovered;
            }
            None => module.read_rule(rows, context, address, at.address.0),
        };
        self.misses += 1;
        self.rows.keep_at(module.image, address, rule);
        if let Some((start, end)) = self.rows.last_function()
            && module.has_rows_only(start, end)
        {
            self.rows.serve_last_function(module.image, address);
        }
        rule
    }
}
