//! Memory of a process, of which an amount may be read in each second.

use interpreters::{Budget, ProcessMemory};

/// Nanoseconds after which the budget is refilled.
const REFILL_AFTER: u64 = 1_000_000_000;

/// Memory of a process with a budget.
pub struct BudgetedMemory {
    memory: ProcessMemory,
    budget: Budget,
    /// Time at which the budget is refilled, in nanoseconds.
    refill: u64,
}

impl BudgetedMemory {
    /// The memory of a process, of which this may be read in each second.
    pub fn new(pid: i32, budget: Budget) -> BudgetedMemory {
        BudgetedMemory { memory: ProcessMemory::new(pid, budget), budget, refill: 0 }
    }

    /// True if the budget is to be refilled at a time, in nanoseconds.
    pub fn is_due(&self, time: u64) -> bool {
        time >= self.refill
    }

    /// Refills the budget if it is to be refilled at a time, in nanoseconds. Returns true if it was.
    pub fn refill(&mut self, time: u64) -> bool {
        let is_due = self.is_due(time);
        if is_due {
            self.memory.refill(self.budget);
            self.refill = time.saturating_add(REFILL_AFTER);
        }
        is_due
    }

    /// The memory.
    pub fn memory(&self) -> &ProcessMemory {
        &self.memory
    }
}
