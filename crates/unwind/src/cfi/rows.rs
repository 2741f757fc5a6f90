//! Rules of whole functions: their rows are evaluated once, for all addresses.
//!
//! A row is its first address and the number of its rule: a program has some thousand different
//! rules. Rows are written one function behind the other, and the oldest ones are overwritten.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHashMap;

use super::{Described, Rule};

/// Entries of a set in a [`Table`].
const WAYS: usize = 4;

/// Words of a set: a line of the CPU's caches.
const SET: usize = WAYS * 2;

/// A cache of numbers by a 64-bit and a 32-bit key, of which the second is not 0.
pub struct Table {
    /// Sets from `first` on. Of each entry the first key; the second key and the number in the low
    /// half.
    words: Vec<u64>,
    /// The first word that begins a line.
    first: usize,
    /// Binary logarithm of the number of sets.
    bits: u32,
}

impl Table {
    /// A table of 2 ^ `bits` entries; one takes 16 bytes.
    pub fn new(bits: u32) -> Table {
        let words = vec![0; (2 << bits) + SET];
        let first = words.as_ptr().align_offset(size_of::<[u64; SET]>()).min(SET);
        Table { words, first, bits: bits - WAYS.ilog2() }
    }

    #[inline]
    fn set(&self, first: u64, second: u32) -> usize {
        // Addresses are dense and aligned; the multiplication spreads them.
        let key = (first ^ u64::from(second) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.first + (key >> (64 - self.bits)) as usize * SET
    }

    /// The number of these keys.
    #[inline]
    pub fn get(&self, first: u64, second: u32) -> Option<u32> {
        let set = self.words[self.set(first, second)..].first_chunk::<SET>()?;
        let (entries, _) = set.as_chunks::<2>();
        let found = entries.iter().find(|e| e[0] == first && (e[1] >> 32) as u32 == second)?;
        Some(found[1] as u32)
    }

    /// Sets the number of these keys; it replaces the oldest one of its set.
    pub fn insert(&mut self, first: u64, second: u32, number: u32) {
        let at = self.set(first, second);
        let (set, _) = self.words[at..at + SET].as_chunks_mut::<2>();
        let same = set.iter().position(|e| e[0] == first && (e[1] >> 32) as u32 == second);
        set.copy_within(..same.unwrap_or(WAYS - 1), 1);
        set[0] = [first, u64::from(second) << 32 | u64::from(number)];
    }

    fn clear(&mut self) {
        self.words.fill(0);
    }
}

/// Most different rules; with their numbers by rule, one takes 64 bytes.
const MAX_RULES: usize = 14_000;

/// Different rules, by number.
#[derive(Default)]
pub struct Rules {
    all: Vec<Rule>,
    numbers: FxHashMap<Rule, u32>,
    is_full: bool,
}

impl Rules {
    /// The rule with a number.
    #[inline]
    pub fn get(&self, number: u32) -> Rule {
        self.all[number as usize]
    }

    /// The number of a rule; `None` if there are too many.
    pub fn number(&mut self, rule: Rule) -> Option<u32> {
        if let Some(&number) = self.numbers.get(&rule) {
            return Some(number);
        }
        self.is_full |= self.all.len() >= MAX_RULES;
        if self.is_full {
            return None;
        }
        let number = self.all.len() as u32;
        self.all.push(rule);
        self.numbers.insert(rule, number);
        Some(number)
    }
}

impl Hash for Rule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        if let Rule::Offset { register, cfa, bp, ra } | Rule::Deref { register, cfa, bp, ra, .. } =
            self
        {
            (register, cfa, bp, ra.slot(0)).hash(state);
        }
    }
}

/// Words of all rows; one takes 8 bytes.
const WORDS: usize = 1 << 19;

/// Words before the rows of a function: its first address; its size, and the number of rows in the
/// low half.
const HEADER: usize = 2;

/// Most rows of a function that are stored; a row takes three bytes or more of unwind information,
/// of which the largest function in rustc has 34 KB.
pub const MAX_ROWS: usize = 1 << 14;

/// Binary logarithms of the number of addresses and of functions that are cached.
const ADDRESSES: u32 = 15;
const FUNCTIONS: u32 = 16;

/// Binary logarithms of the number of granules by which functions are found without their table,
/// and of the bytes of one.
const GRANULES: u32 = 17;
const GRANULE: u32 = 6;

/// Most granules of a function.
const MAX_GRANULES: usize = 1 << 10;

/// In the number of rows: the function has granules.
const HAS_GRANULES: u64 = 1 << 31;

/// A table of an image: `.eh_frame` or `.debug_frame`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableId(u32);

impl TableId {
    /// The image's `.eh_frame`, or its `.debug_frame`.
    pub fn new(image: u32, is_debug_frame: bool) -> TableId {
        TableId(image.wrapping_mul(2).wrapping_add(1 + u32::from(is_debug_frame)))
    }
}

/// Result of a search for the row of an address in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The row; `None`: the entry cannot be read there.
    Row(Option<Described>),
    /// The entry does not contain the address.
    Outside,
    /// The entry's rows have not been evaluated up to the address.
    Beyond,
}

/// A row that begins at an address: `None` if the entry has not been evaluated from there on,
/// `Some(None)` if it cannot be read.
pub type Row = (u64, Option<Option<Described>>);

/// Packed form of an entry that has not been evaluated further.
const BEYOND: u32 = u32::MAX;

/// Rules by address, and behind them rows by function. Takes at most 10 MiB.
pub struct Rows {
    rules: Rules,
    addresses: Table,
    /// Positions in `words`, before they wrap around.
    functions: Table,
    /// The same by granule: address / 64 and image.
    granules: Table,
    /// Position of the function that was stored or found last.
    last: Option<u32>,
    words: Vec<u64>,
    written: u32,
    /// Working memory.
    rows: Vec<Row>,
}

impl Default for Rows {
    fn default() -> Rows {
        Rows {
            rules: Rules::default(),
            addresses: Table::new(ADDRESSES),
            functions: Table::new(FUNCTIONS),
            granules: Table::new(GRANULES),
            last: None,
            words: vec![0; WORDS],
            written: 0,
            rows: Vec::new(),
        }
    }
}

impl Rows {
    /// The cached rule of an address in an image.
    #[inline]
    pub fn at(&self, image: u32, address: u64) -> Option<Rule> {
        Some(self.rules.get(self.addresses.get(address, image.wrapping_add(1))?))
    }

    /// Caches the rule of an address in an image.
    pub fn keep_at(&mut self, image: u32, address: u64, rule: Rule) {
        if self.rules.is_full {
            self.clear();
        }
        if let Some(number) = self.rules.number(rule) {
            self.addresses.insert(address, image.wrapping_add(1), number);
        }
    }

    /// Bytes that it takes at most at this time.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let tables = [&self.addresses, &self.functions, &self.granules];
        let tables = tables.into_iter().map(|t| size_of_val(&t.words[..])).sum::<usize>();
        let numbered = self.rules.all.capacity() * size_of::<Rule>();
        // A power of two of which seven eighths are used, with a byte of its own for each.
        let buckets = (self.rules.numbers.capacity() * 8 / 7).next_power_of_two();
        let numbers = buckets * (size_of::<(Rule, u32)>() + 1);
        let words = size_of_val(&self.words[..]);
        tables + numbered + numbers + words + self.rows.capacity() * size_of::<Row>()
    }

    fn clear(&mut self) {
        self.rules = Rules::default();
        self.addresses.clear();
        self.functions.clear();
        self.granules.clear();
        self.last = None;
        self.written = 0;
    }

    /// The row of an address in the entry at an offset of a table; `None` if the entry's rows are
    /// not there.
    pub fn find(&mut self, table: TableId, offset: usize, address: u64) -> Option<Found> {
        let position = self.functions.get(offset as u64, table.0)?;
        if (self.written - position) as usize > WORDS {
            return None;
        }
        let at = position as usize % WORDS;
        let [start, size] = *self.words[at..].first_chunk::<HEADER>()?;
        let distance = address.wrapping_sub(start);
        if distance >= size >> 32 {
            return Some(Found::Outside);
        }
        let row = self.row_at(at, distance)?;
        self.last = Some(position);
        Some(if row == BEYOND { Found::Beyond } else { Found::Row(self.unpack(row)) })
    }

    /// The row of the code at a distance from the beginning of the function that is stored at `at`.
    #[inline]
    fn row_at(&self, at: usize, distance: u64) -> Option<u32> {
        let count = (self.words[at + 1] as u32 & !(HAS_GRANULES as u32)) as usize;
        let rows = self.words[at + HEADER..].get(..count)?;
        let row = rows.partition_point(|row| row >> 32 <= distance).checked_sub(1)?;
        Some(rows[row] as u32)
    }

    /// Forgets the last function.
    pub fn forget_last(&mut self) {
        self.last = None;
    }

    /// First address and end of the function that was stored or found last.
    pub fn last_function(&self) -> Option<(u64, u64)> {
        let at = self.last? as usize % WORDS;
        let [start, size] = *self.words[at..].first_chunk::<HEADER>()?;
        Some((start, start + (size >> 32)))
    }

    /// Lets [`Rows::in_function`] find that function for all of its addresses, of which `address`
    /// is one.
    pub fn serve_last_function(&mut self, image: u32, address: u64) {
        let (Some(position), Some((start, end))) = (self.last, self.last_function()) else {
            return;
        };
        let header = &mut self.words[position as usize % WORDS + 1];
        let granules = if *header & HAS_GRANULES == 0 {
            start >> GRANULE..(end + (1 << GRANULE) - 1) >> GRANULE
        } else {
            // Another function has taken this one.
            address >> GRANULE..(address >> GRANULE) + 1
        };
        *header |= HAS_GRANULES;
        for granule in granules.take(MAX_GRANULES) {
            self.granules.insert(granule, image.wrapping_add(1), position);
        }
    }

    /// The rule of an address in a function that was [served](Rows::serve_last_function), if it
    /// depends on the function's rows only.
    #[inline]
    pub fn in_function(&mut self, image: u32, address: u64) -> Option<Rule> {
        let image = image.wrapping_add(1);
        let position = self.granules.get(address >> GRANULE, image)?;
        if (self.written - position) as usize > WORDS {
            return None;
        }
        let at = position as usize % WORDS;
        let distance = address.wrapping_sub(self.words[at]);
        if distance >= self.words[at + 1] >> 32 {
            return None;
        }
        let row = self.row_at(at, distance)?;
        // Also of one that has not been evaluated this far.
        let may_deliver = row & 1 != 0;
        let number = (row >> 1).checked_sub(1).filter(|_| !may_deliver)?;
        self.addresses.insert(address, image, number);
        Some(self.rules.get(number))
    }

    fn unpack(&self, row: u32) -> Option<Described> {
        let number = (row >> 1).checked_sub(1)?;
        Some(Described { rule: self.rules.get(number), may_deliver: row & 1 != 0 })
    }

    fn pack(&mut self, row: Option<Option<Described>>) -> Option<u32> {
        let Some(described) = row else { return Some(BEYOND) };
        let Some(Described { rule, may_deliver }) = described else { return Some(0) };
        Some((self.rules.number(rule)? + 1) << 1 | u32::from(may_deliver))
    }

    /// Stores the rows of an entry, for the code from `start` to `end`. `evaluate` adds them: first
    /// address and rule; the first one begins at `start`. Returns whether it could add all.
    pub fn keep(
        &mut self,
        table: TableId,
        offset: usize,
        (start, end): (u64, u64),
        evaluate: impl FnOnce(&mut Vec<Row>) -> bool,
    ) -> bool {
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        let all = evaluate(&mut rows) && start <= end && end - start <= u64::from(u32::MAX);
        if all {
            self.store(table, offset, (start, end), &rows);
        }
        self.rows = rows;
        all
    }

    fn store(
        &mut self,
        table: TableId,
        offset: usize,
        (start, end): (u64, u64),
        rows: &[Row],
    ) -> Option<()> {
        let length = HEADER + rows.len();
        if self.written > u32::MAX - 2 * WORDS as u32 {
            self.clear();
        }
        let at = self.written as usize % WORDS;
        if at + length > WORDS {
            self.written += (WORDS - at) as u32;
        }
        let position = self.written;
        let mut at = position as usize % WORDS + HEADER;
        self.written += length as u32;
        let first = at;
        for &(address, row) in rows.iter().filter(|row| row.0 < end) {
            let row = (address - start) << 32 | u64::from(self.pack(row)?);
            self.words[at] = row;
            at += 1;
        }
        let header = [start, (end - start) << 32 | (at - first) as u64];
        self.words[first - HEADER..first].copy_from_slice(&header);
        self.written -= (first + rows.len() - at) as u32;
        self.functions.insert(offset as u64, table.0, position);
        self.last = Some(position);
        Some(())
    }
}
