//! Lines of scripts: from the ends of lines that V8 has computed, or from the source text.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use super::heap::{Heap, No, is_object, small};

/// Longest source text that is read, in characters.
const MAX_SOURCE: u32 = 4 << 20;

/// Most lines of all sources that are kept.
const MAX_LINES: usize = 1 << 20;

/// Most lines of a function; those behind them have none.
const MAX_SPAN: u32 = 1 << 16;

/// Items of an array that are read at once.
const CHUNK: u32 = 16;

/// Characters of a source text that identify it, at each of three places.
const SAMPLE: u32 = 64;

/// What identifies a source text: memory of a text that was collected is used again, and a forked process
/// has other texts at the same addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Source {
    /// The script, and its number.
    script: u64,
    id: u64,
    /// The text.
    text: u64,
    length: u32,
    /// Of characters at its beginning, in the middle and at its end.
    hash: u64,
}

impl Source {
    fn read(heap: Heap<'_>, script: u64, text: u64) -> Result<Source, No> {
        let length = heap.string_length(text)?;
        let id = heap.word(script, heap.offsets.script_id)?;
        let count = length.min(SAMPLE);
        let mut hash = DefaultHasher::new();
        for from in [0, (length - count) / 2, length - count] {
            heap.units(text, from, count)?.hash(&mut hash);
        }
        Ok(Source { script, id, text, length, hash: hash.finish() })
    }
}

/// Ends of the lines of source texts.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    known: Arc<Mutex<HashMap<Source, Arc<[u32]>>>>,
}

/// Lines of a part of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Number of the first line.
    first: u32,
    /// Places at which lines end, in characters of the script.
    ends: Vec<u32>,
}

impl Span {
    /// The line of a place; `None` outside of the span.
    pub fn line(&self, place: u32) -> Option<u32> {
        let index = self.ends.partition_point(|end| *end < place);
        let line = self.first.checked_add(u32::try_from(index).ok()?)?;
        (index < self.ends.len()).then_some(line)
    }
}

impl Sources {
    /// The lines of a script from a place to another one; `None` if they are unknown.
    pub fn span(
        &self,
        heap: Heap<'_>,
        script: u64,
        places: std::ops::RangeInclusive<u32>,
    ) -> Result<Option<Span>, No> {
        let line = small(heap.word(script, heap.offsets.script_line)?).unwrap_or(0);
        let Ok(line) = u32::try_from(line) else { return Ok(None) };
        let ends = heap.word(script, heap.offsets.script_line_ends)?;
        let span = if is_object(ends) && heap.kind(ends)? == heap.offsets.types.arrays[0] {
            in_array(heap, ends, places)?
        } else {
            self.in_source(heap, script, places)?
        };
        Ok(span
            .map(|span| Span { first: span.first.saturating_add(line).saturating_add(1), ..span }))
    }

    fn in_source(
        &self,
        heap: Heap<'_>,
        script: u64,
        places: std::ops::RangeInclusive<u32>,
    ) -> Result<Option<Span>, No> {
        let source = heap.word(script, heap.offsets.script_source)?;
        if !is_object(source) || !heap.is_string(source)? {
            return Ok(None);
        }
        if heap.string_length(source)? > MAX_SOURCE {
            return Ok(None);
        }
        let key = match Source::read(heap, script, source) {
            // A text that is in pieces, or not in this memory.
            Err(No::Other) => return Ok(None),
            key => key?,
        };
        let ends = match self.known(key) {
            Some(ends) => ends,
            None => {
                let ends: Arc<[u32]> = line_ends(&heap.units(source, 0, key.length)?).into();
                self.keep(key, &ends);
                ends
            }
        };
        let first = ends.partition_point(|end| end < places.start());
        let after = ends.partition_point(|end| end < places.end()) + 1;
        let ends = ends.get(first..after.min(first + MAX_SPAN as usize).min(ends.len()));
        Ok(Some(Span { first: first as u32, ends: ends.unwrap_or_default().to_vec() }))
    }

    fn known(&self, source: Source) -> Option<Arc<[u32]>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&source).cloned()
    }

    fn keep(&self, source: Source, ends: &Arc<[u32]>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: usize = known.values().map(|ends| ends.len()).sum();
        if lines + ends.len() > MAX_LINES {
            known.clear();
        }
        if ends.len() <= MAX_LINES {
            known.insert(source, ends.clone());
        }
    }
}

/// The lines of places, from an array with the ends of all lines.
fn in_array(
    heap: Heap<'_>,
    array: u64,
    places: std::ops::RangeInclusive<u32>,
) -> Result<Option<Span>, No> {
    let length = heap.length(array)?;
    let end = |word: u64| small(word).and_then(|end| u32::try_from(end).ok()).ok_or(No::Other);
    let (mut low, mut high) = (0, length);
    while low < high {
        let middle = low + (high - low) / 2;
        if end(heap.items(array, middle, 1)?[0])? < *places.start() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let mut ends: Vec<u32> = Vec::new();
    while low + (ends.len() as u32) < length
        && ends.len() < MAX_SPAN as usize
        && ends.last().is_none_or(|last| last < places.end())
    {
        let from = low + ends.len() as u32;
        let words = heap.items(array, from, CHUNK.min(length - from))?;
        let more: Vec<u32> = words.into_iter().map(end).collect::<Result<_, No>>()?;
        ends.extend(more);
    }
    let is_ordered = ends.is_sorted();
    Ok(is_ordered.then_some(Span { first: low, ends }))
}

/// Ends of lines of a source text, the last one that of the text (`String::CalculateLineEnds`).
fn line_ends(units: &[u16]) -> Vec<u32> {
    const LINE_FEED: u16 = 10;
    const RETURN: u16 = 13;
    let ends_line = |i: &usize| match units[*i] {
        LINE_FEED | 0x2028 | 0x2029 => true,
        RETURN => units.get(i + 1) != Some(&LINE_FEED),
        _ => false,
    };
    let ends = (0..units.len()).filter(ends_line).map(|i| i as u32);
    ends.chain([units.len() as u32]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_as_in_javascript() {
        let units: Vec<u16> = "a\nbc\r\n\rd\u{2028}".encode_utf16().collect();
        assert_eq!(line_ends(&units), [1, 5, 6, 8, 9]);
        assert_eq!(line_ends(&[]), [0]);
    }

    #[test]
    fn a_place_is_in_the_line_that_ends_behind_it() {
        let span = Span { first: 7, ends: vec![10, 20] };
        let lines = [0, 10, 11, 20, 21].map(|place| span.line(place));
        assert_eq!(lines, [Some(7), Some(7), Some(8), Some(8), None]);
    }
}
