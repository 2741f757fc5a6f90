//! Coverage of a profile's names and stacks, by binary.

use rustc_hash::FxHashMap;

use super::View;
use profile::{BinaryNotes, Gap, LocationId, Profile, StrId};

/// One binary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// Its path or name; [`StrId::EMPTY`]: code outside all mappings.
    pub file: StrId,
    /// Its build ID, if there is one.
    pub build_id: StrId,
    /// Value of the samples whose leaf is in it.
    pub itself: i64,
    /// Value of the samples with a frame in it.
    pub total: i64,
    /// The part of `total` whose stacks are truncated at one of its frames, by cause, most first.
    pub truncated: Vec<(String, i64)>,
    /// Sum over its frames of the value of their samples.
    pub frames: i64,
    /// The part of `frames` with a function name.
    pub named: i64,
    /// The part of `frames` with a source line.
    pub with_lines: i64,
    /// Cause of missing names, if the profile has it.
    pub why: Option<Gap>,
    /// Cause of missing source lines, if the profile has it.
    pub why_no_lines: Option<Gap>,
    /// Parse errors of its files.
    pub bad_input: Option<Gap>,
    /// True if the profile records that it has no unwind information.
    pub no_unwind_info: bool,
}

impl Covered {
    /// Value of the samples whose stack is truncated at one of its frames.
    pub fn truncated_total(&self) -> i64 {
        self.truncated.iter().map(|(_, value)| value).sum()
    }

    /// The causes of at least a thousandth of its samples, and the sum of the others.
    pub fn ends(&self) -> (&[(String, i64)], i64) {
        let much = |&(_, value): &(String, i64)| value.saturating_mul(1000) >= self.total;
        // They are sorted.
        let (shown, few) = self.truncated.split_at(self.truncated.partition_point(much));
        (shown, few.iter().map(|(_, value)| value).sum())
    }
}

/// All binaries of a view, sorted by self value as after a recording.
#[derive(Clone, Debug)]
pub struct Coverage {
    /// The binaries.
    pub binaries: Vec<Covered>,
}

/// Classification of a location.
#[derive(Clone, Copy)]
enum LocationClass {
    Code {
        binary: usize,
        named: bool,
        with_line: bool,
    },
    /// The end of a truncated stack, with the number of its reason.
    End(usize),
    /// A name that represents no code.
    Other,
}

impl Coverage {
    /// Coverage of the samples in a view.
    pub fn new(view: &View) -> Coverage {
        let Classes { mut binaries, reasons, by_location } = classify(view.profile);
        // By binary and reason; a file may have any number of reasons.
        let mut truncated: FxHashMap<(usize, usize), i64> = FxHashMap::default();
        // The last sample with a frame in each binary.
        let mut seen = vec![usize::MAX; binaries.len()];
        for (n, sample) in view.samples().enumerate() {
            let value = sample.value;
            let mut outermost = None;
            for (depth, location) in sample.stack.iter().enumerate() {
                match by_location[location.0 as usize] {
                    LocationClass::Code { binary, named, with_line } => {
                        let covered = &mut binaries[binary];
                        plus(&mut covered.itself, if depth == 0 { value } else { 0 });
                        plus(&mut covered.total, if seen[binary] == n { 0 } else { value });
                        plus(&mut covered.frames, value);
                        plus(&mut covered.named, if named { value } else { 0 });
                        plus(&mut covered.with_lines, if with_line { value } else { 0 });
                        seen[binary] = n;
                        outermost = Some(binary);
                    }
                    LocationClass::End(reason) => {
                        if let Some(binary) = outermost {
                            plus(truncated.entry((binary, reason)).or_default(), value);
                        }
                    }
                    LocationClass::Other => {}
                }
            }
        }
        for ((binary, reason), value) in truncated {
            binaries[binary].truncated.push((reasons[reason].to_owned(), value));
        }
        binaries.retain(|b| b.total != 0);
        let name = |b: &Covered| view.profile.str(b.file);
        binaries.sort_by(|a, b| {
            (b.itself, b.total).cmp(&(a.itself, a.total)).then_with(|| name(a).cmp(name(b)))
        });
        let notes = BinaryNotes::all(view.profile);
        for binary in &mut binaries {
            let notes = notes.get(&binary.file).cloned().unwrap_or_default();
            binary.why = notes.no_names;
            binary.why_no_lines = notes.no_lines;
            binary.bad_input = notes.bad_input;
            binary.no_unwind_info = notes.no_unwind_info;
            binary.truncated.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        }
        Coverage { binaries }
    }
}

fn plus(sum: &mut i64, value: i64) {
    *sum = sum.saturating_add(value);
}

/// The classes of locations.
struct Classes<'p> {
    /// The binaries; mappings of one file are one binary.
    binaries: Vec<Covered>,
    /// The reasons of truncation.
    reasons: Vec<&'p str>,
    /// The class of each location.
    by_location: Vec<LocationClass>,
}

fn classify(profile: &Profile) -> Classes<'_> {
    let mut binaries = Vec::new();
    let mut reasons = Vec::new();
    let mut reason_index: FxHashMap<&str, usize> = FxHashMap::default();
    let mut index: FxHashMap<(StrId, StrId), usize> = FxHashMap::default();
    let by_location = (0..profile.locations.len() as u32).map(LocationId).map(|id| {
        let location = &profile.locations[id.0 as usize];
        let lines = profile.lines_of(id);
        let name = |l: &profile::Line| profile.functions[l.function.0 as usize].name;
        let mapping = location.mapping.map(|m| &profile.mappings[m.0 as usize]);
        if mapping.is_none() && !lines.is_empty() {
            let Some(reason) = profile.truncation_of(id) else { return LocationClass::Other };
            let number = reason_index.entry(reason).or_insert_with(|| {
                reasons.push(reason);
                reasons.len() - 1
            });
            return LocationClass::End(*number);
        }
        let (file, build_id) = mapping.map_or_else(Default::default, |m| (m.file, m.build_id));
        let binary = *index.entry((file, build_id)).or_insert_with(|| {
            binaries.push(Covered { file, build_id, ..Covered::default() });
            binaries.len() - 1
        });
        LocationClass::Code {
            binary,
            named: !lines.is_empty() && lines.iter().all(|l| name(l) != StrId::EMPTY),
            with_line: lines.iter().any(|l| l.line > 0),
        }
    });
    let by_location = by_location.collect();
    Classes { binaries, reasons, by_location }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Granularity;
    use crate::testing::{functions, mapping};
    use profile::{Builder, LabelSetId, Truncation};

    #[test]
    fn binaries_are_classified_by_their_frames() {
        let mut b = Builder::new(&[("samples", "count")]);
        let app = mapping(&mut b, "/bin/app", 0x1000);
        let again = mapping(&mut b, "/bin/app", 0x9000);
        let lib = mapping(&mut b, "/lib/x.so", 0x20000);
        let main = functions(&mut b, Some(app), 0x1000, &[("main", "a.c", 3)]);
        let other = functions(&mut b, Some(again), 0x9000, &[("other", "a.c", 4)]);
        let exported = functions(&mut b, Some(lib), 0x20000, &[("exported", "", 0)]);
        let nameless = b.location(Some(lib), 0x20010);
        let nowhere = b.location(None, 0xdead);
        let end = b.truncation(Truncation::DumpTooSmall);
        let stacks: [(&[LocationId], i64); 5] = [
            (&[main, other], 10),
            (&[exported, main], 20),
            (&[nameless, exported, main], 3),
            (&[exported, nameless, end], 4),
            (&[nowhere], 1),
        ];
        for (stack, times) in stacks {
            for _ in 0..times {
                b.add(stack, LabelSetId::EMPTY, 1, &[]);
            }
        }
        let p = b.finish(None);
        let view = View::new(&p, 0, Granularity::FUNCTION);
        let found: Vec<_> = Coverage::new(&view)
            .binaries
            .into_iter()
            .map(|b| {
                (
                    p.str(b.file).to_owned(),
                    [b.itself, b.total, b.frames, b.named, b.with_lines],
                    b.truncated,
                )
            })
            .collect();
        let whole = Vec::new;
        let cut = vec![("dump too small".to_owned(), 4)];
        assert_eq!(
            found,
            [
                ("/lib/x.so".to_owned(), [27, 27, 34, 27, 0], cut),
                ("/bin/app".to_owned(), [10, 33, 43, 43, 43], whole()),
                (String::new(), [1, 1, 1, 0, 0], whole()),
            ]
        );
    }

    #[test]
    fn few_ends_are_one_figure() {
        let end = |why: &str, value| (why.to_owned(), value);
        let ends = vec![end("a", 500), end("b", 10), end("c", 9), end("d", 1)];
        let mut binary = Covered { total: 10_000, truncated: ends, ..Covered::default() };
        assert_eq!(binary.ends(), (&[end("a", 500), end("b", 10)][..], 10));
        binary.truncated.clear();
        assert_eq!(binary.ends(), (&[][..], 0));
    }
}
