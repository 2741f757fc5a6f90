//! Length of names in views.
//!
//! A file has each text once, but views print it in each row, box or line that has it: a file of some
//! kilobytes can have a name of a megabyte, and thousands of functions with it. So the texts of all
//! frames and labels together are limited in proportion to the profile, by cutting the longest ones
//! in their middle. No name below [`LONG`] bytes is cut otherwise.

use std::borrow::Cow;

use profile::{LabelSetId, LabelValue, Profile, StackId, StrId};

/// Bytes of text that the frames and labels of any profile may have.
const ANY: u64 = 64 << 20;

/// The same for each byte of names, location on a stack, and line. Real profiles have names of 50
/// bytes on average.
const OF_EACH: u64 = 32;

/// Length of a name, in bytes, below which all are whole if there are only some long ones.
const LONG: usize = 1 << 10;

/// Length to which names are cut at most.
const SHORTEST: usize = 256;

/// Cuts names that are so long, and used so often, that a view would have unreasonably much text.
/// Returns the number of names that were cut.
pub fn cut_long_texts(profile: &mut Profile) -> usize {
    let longest = profile.strings.iter().map(str::len).max().unwrap_or(0);
    if longest <= LONG {
        return 0;
    }
    let names: u64 = profile.strings.iter().map(|s| s.len() as u64).sum();
    let parts = names + (profile.stacks.frame_count() + profile.lines.len()) as u64;
    let limit = ANY.saturating_add(parts.saturating_mul(OF_EACH));
    let uses = uses(profile);
    let all = |most: usize| {
        profile.strings.iter().zip(&uses).fold(0u64, |sum, (text, &count)| {
            sum.saturating_add(count.saturating_mul(text.len().min(most) as u64))
        })
    };
    if all(longest) <= limit {
        return 0;
    }
    // The largest length with which all of them are below the limit.
    let (mut fits, mut exceeds) = (SHORTEST, longest);
    while exceeds - fits > 1 {
        let middle = fits + (exceeds - fits) / 2;
        if all(middle) <= limit { fits = middle } else { exceeds = middle }
    }
    let cut = profile.strings.iter().filter(|text| text.len() > fits).count();
    profile.strings.replace(|text| {
        if text.len() > fits { without_middle(text, fits).into() } else { Cow::Borrowed(text) }
    });
    cut
}

/// How often each string is on the stacks and labels of samples, or in the header.
fn uses(profile: &Profile) -> Vec<u64> {
    let mut uses = vec![0u64; profile.strings.len()];
    let mut add = |id: StrId, count: u64| {
        let uses_of_text = &mut uses[id.0 as usize];
        *uses_of_text = uses_of_text.saturating_add(count);
    };
    let mut stacks = vec![0u64; profile.stacks.len()];
    let mut sets = vec![0u64; profile.labels.len()];
    for sample in &profile.samples {
        stacks[sample.stack.0 as usize] += 1;
        sets[sample.labels.0 as usize] += 1;
    }
    let mut locations = vec![0u64; profile.locations.len()];
    for (id, count) in stacks.iter().enumerate().filter(|(_, count)| **count > 0) {
        for location in profile.stacks.get(StackId(id as u32)) {
            locations[location.0 as usize] += count;
        }
    }
    for (location, &count) in profile.locations.iter().zip(&locations) {
        let first = location.first_line as usize;
        for line in &profile.lines[first..first + location.line_count as usize] {
            let function = &profile.functions[line.function.0 as usize];
            add(function.name, count);
            add(function.system_name, count);
            add(function.filename, count);
        }
        if let Some(mapping) = location.mapping {
            add(profile.mappings[mapping.0 as usize].file, count);
        }
    }
    for (id, &count) in sets.iter().enumerate().filter(|(_, count)| **count > 0) {
        for label in profile.labels.get(LabelSetId(id as u32)) {
            add(label.key, count);
            if let LabelValue::Str(text) = label.value {
                add(text, count);
            }
        }
    }
    for value_type in &profile.sample_types {
        add(value_type.kind, 1);
        add(value_type.unit, 1);
    }
    profile.comments.iter().for_each(|&comment| add(comment, 1));
    profile.mappings.iter().for_each(|mapping| add(mapping.file, 1));
    uses
}

/// The beginning and the end of a text, with its length and a hash between them: two that differ
/// elsewhere stay different.
fn without_middle(text: &str, length: usize) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mark = format!("[cut: {} bytes, {:08x}]", text.len(), hash >> 32);
    let kept = length.saturating_sub(mark.len()) / 2;
    let (mut head, mut tail) = (kept, text.len() - kept);
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    format!("{}{mark}{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::functions;
    use profile::Builder;

    /// Samples of functions that differ in their first lines, each `depth` times on its stack, with
    /// names of `length` bytes that differ in the middle.
    fn named(length: usize, functions_: usize, depth: usize) -> Profile {
        let mut b = Builder::new(&[("samples", "count")]);
        for i in 0..functions_ {
            let half = "é".repeat(length / 4);
            let name = format!("{half}{i:04}{half}");
            let location = functions(&mut b, None, i as u64 + 1, &[(&name, "/src/a.c", 1)]);
            b.add(&vec![location; depth], LabelSetId::EMPTY, 1, &[]);
        }
        b.finish(None)
    }

    fn text(profile: &Profile) -> u64 {
        let uses = uses(profile);
        profile.strings.iter().zip(&uses).map(|(s, count)| s.len() as u64 * count).sum()
    }

    #[test]
    fn long_names_that_are_used_often_are_cut_and_stay_different() {
        let mut profile = named(100_000, 20, 1000);
        assert!(text(&profile) > 2_000_000_000);
        assert_eq!(cut_long_texts(&mut profile), 20);
        assert!(text(&profile) < 200_000_000, "{}", text(&profile));
        let names: std::collections::HashSet<&str> =
            profile.functions.iter().map(|f| profile.str(f.name)).collect();
        assert_eq!(names.len(), 20);
        assert!(names.iter().all(|name| name.contains("é[cut: 100004 bytes, ")));
    }

    #[test]
    fn usual_names_are_whole() {
        for (length, functions, depth) in [(1000, 10, 10_000), (20_000, 50, 20), (60_000_000, 1, 1)]
        {
            let mut profile = named(length, functions, depth);
            let before = text(&profile);
            assert_eq!((cut_long_texts(&mut profile), text(&profile)), (0, before));
        }
    }
}
