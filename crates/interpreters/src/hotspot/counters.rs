//! Counters that HotSpot keeps for monitors (`perfMemory.hpp`, `perfData.hpp`).

use super::structs::Structs;
use crate::Memory;

/// Most bytes that counters may take (`PerfDataMemorySize`: 32 KiB, and more if it is set).
const MOST_BYTES: u64 = 1 << 20;

/// Most counters; there are about 250.
const MOST: usize = 4096;

/// The number of classes that were unloaded (`classLoadingService.cpp`).
pub const UNLOADED: &str = "java.cls.unloadedClasses";

/// The address of a counter, which has 64 bits; `None`: HotSpot keeps none (`-XX:-UsePerfData`).
pub fn address(name: &str, structs: &Structs, memory: &dyn Memory) -> Option<u64> {
    let offset = |field: &str| structs.offsets.get(field).copied();
    let prologue = |field: &str| offset(&format!("PerfDataPrologue.{field}"));
    let entry = |field: &str| offset(&format!("PerfDataEntry.{field}"));
    let start = memory.word(*structs.statics.get("PerfMemory._start")?).ok()?;
    let half = |at: u64| Some(u64::from(memory.half(start.checked_add(at)?).ok()?));
    let used = half(prologue("used")?)?.min(MOST_BYTES);
    let count = half(prologue("num_entries")?)? as usize;
    let mut bytes = vec![0; used as usize];
    memory.read(start, &mut bytes).ok()?;
    let number = |at: usize, field: u64| {
        let at = at.checked_add(usize::try_from(field).ok()?)?;
        let number = bytes.get(at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*number)).ok()
    };
    let [length, named, value] = ["entry_length", "name_offset", "data_offset"].map(entry);
    let (length, named, value) = (length?, named?, value?);
    let mut at = number(0, prologue("entry_offset")?)?;
    for _ in 0..count.min(MOST) {
        let text = bytes.get(at.checked_add(number(at, named)?)?..)?;
        let rest = text.strip_prefix(name.as_bytes());
        if rest.is_some_and(|rest| rest.first() == Some(&0)) {
            let value = at.checked_add(number(at, value)?)?;
            return (value + 8 <= bytes.len()).then_some(start + value as u64);
        }
        at = at.checked_add(number(at, length)?.max(1))?;
    }
    None
}

/// A counter, and since when it has its value.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    address: u64,
    value: u64,
    /// It had the value at this time, in nanoseconds.
    since: u64,
}

impl Counter {
    /// The counter at an address, of events of which none has happened at the beginning.
    pub fn new(address: u64) -> Counter {
        Counter { address, value: 0, since: 0 }
    }

    /// True if nothing was counted between a time and now, in nanoseconds; `None`: it cannot be read.
    pub fn is_unchanged(&mut self, from: u64, now: u64, memory: &dyn Memory) -> Option<bool> {
        let value = memory.word(self.address).ok()?;
        if value != self.value {
            *self = Counter { value, since: now, ..*self };
        }
        Some(self.since <= from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recorded;

    #[test]
    fn a_counter_is_unchanged_from_when_it_had_its_value() {
        let mut memory = Recorded::default();
        memory.insert(0x1000, &[0; 8]);
        let mut counter = Counter::new(0x1000);
        assert_eq!(counter.is_unchanged(5, 10, &memory), Some(true));
        memory.insert(0x1000, &3_u64.to_le_bytes());
        assert_eq!(counter.is_unchanged(15, 20, &memory), Some(false));
        assert_eq!(counter.is_unchanged(20, 30, &memory), Some(true));
        assert_eq!(counter.is_unchanged(19, 40, &memory), Some(false));
        assert_eq!(counter.is_unchanged(19, 40, &Recorded::default()), None);
    }
}
