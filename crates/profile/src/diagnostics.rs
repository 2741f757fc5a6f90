//! Diagnostics: how far a recording can be trusted.

use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Gap, Profile, StrId, Truncation, comment};

/// Samples of one binary that have no function name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryShare {
    /// Path or name of the mapping.
    pub binary: String,
    /// Samples whose leaf frame lies in this binary and has no name.
    pub samples: u64,
}

/// Kind of gap in the information about a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lack {
    /// Names of functions.
    Names,
    /// Source lines.
    Lines,
    /// A part of its files could not be parsed.
    Input,
}

impl Lack {
    const ALL: [Lack; 3] = [Lack::Names, Lack::Lines, Lack::Input];

    /// Key of its comment.
    fn key(self) -> &'static str {
        match self {
            Lack::Names => comment::NO_NAMES,
            Lack::Lines => comment::NO_LINES,
            Lack::Input => comment::BAD_INPUT,
        }
    }
}

/// Cause of a gap in the information about a binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Kind of gap.
    pub lack: Lack,
    /// Path or name of its mapping.
    pub binary: String,
    /// Share of its addresses, and the cause.
    pub gap: Gap,
}

impl Reason {
    fn comment(&self) -> String {
        format!("{}: {}: {}", self.lack.key(), self.binary, self.gap.code())
    }
}

/// The figures of a recording; they are stored in the profile as comments, `key: value` each.
///
/// | key | value |
/// |---|---|
/// | `samples` | samples taken |
/// | `distinct-stacks` | distinct stacks (with their labels) |
/// | `lost` | samples that the kernel dropped because a ring buffer was full |
/// | `lost-records` | records about mappings, names, starts and ends that it dropped for that reason |
/// | `covered` | nanoseconds of CPU time that the samples represent, `of` those that the target used |
/// | `throttled` | times that the kernel throttled an event |
/// | `truncated` | user stacks that do not reach the thread's entry |
/// | `truncated: CODE` | the same, by [`Truncation`] |
/// | `deep-stacks` | user stacks beyond the kernel's own copy whose rest was copied at the same moment |
/// | `folded` | samples whose stack was cut because the stack table was full |
/// | `unsymbolized` | samples whose leaf frame has no name |
/// | `unsymbolized: BINARY` | the same, by binary |
/// | `no-names: BINARY` | cause of missing names |
/// | `no-lines: BINARY` | cause of missing source lines, though it has debug information |
/// | `bad-input: BINARY` | parse errors of the files that name its addresses |
/// | `no-unwind-information` | a binary with frames in the profile that has none |
/// | `own-cpu-seconds` | CPU time that prof itself used |
/// | `recording-cpu-seconds` | the part of it that was used while recording |
/// | `target` | `whole machine`: everything was recorded |
/// | `own-peak-memory` | largest resident set of prof itself, in bytes |
/// | `note` | any other message to the user |
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnostics {
    /// Samples taken.
    pub samples: u64,
    /// Distinct stacks, with their labels.
    pub distinct: u64,
    /// Samples that were lost.
    pub lost: u64,
    /// Records about processes that were lost.
    pub lost_records: u64,
    /// Nanoseconds of CPU time that the samples represent, and that the target used, if known.
    pub covered: Option<(u64, u64)>,
    /// Throttle records.
    pub throttled: u64,
    /// User stacks (the base of the truncated share).
    pub user_stacks: u64,
    /// Truncated user stacks, by cause.
    pub truncated: Vec<(Truncation, u64)>,
    /// Truncated user stacks with causes unknown to this version; only when read from a file.
    pub truncated_otherwise: u64,
    /// User stacks beyond the kernel's own copy whose rest was copied at the same moment.
    pub deep: u64,
    /// Samples whose stack was cut because the stack table was full.
    pub folded: u64,
    /// Samples beyond the limit of those whose time is kept; `None`: no times are kept.
    pub without_time: Option<u64>,
    /// Samples whose leaf has no function name, by binary, most first.
    pub unsymbolized: Vec<BinaryShare>,
    /// Causes of missing names or source lines.
    pub reasons: Vec<Reason>,
    /// Binaries with frames in the profile, but no unwind information.
    pub no_unwind_info: Vec<String>,
    /// CPU time of prof itself, in seconds.
    pub own_cpu_seconds: f64,
    /// The part of it that was used while recording, not for names.
    pub recording_cpu_seconds: f64,
    /// Peak resident memory of prof itself, in bytes.
    pub own_peak_bytes: u64,
    /// Lost samples for which there was no memory while others were analysed; not in files.
    pub not_kept: u64,
    /// Longest time in seconds without a record that was read from the rings; not in files.
    pub longest_pause_seconds: Option<f64>,
    /// Further messages for the user (fallbacks, refusals).
    pub notes: Vec<String>,
}

impl Diagnostics {
    /// Number of truncated stacks.
    pub fn truncated_total(&self) -> u64 {
        let listed = self.truncated.iter().map(|(_, n)| *n);
        listed.fold(self.truncated_otherwise, u64::saturating_add)
    }

    /// Number of samples without a name.
    pub fn unsymbolized_total(&self) -> u64 {
        total(&self.unsymbolized)
    }

    /// The figures as pprof comments.
    pub fn to_comments(&self) -> Vec<String> {
        let mut out = Vec::new();
        let mut add = |key: &str, value: &dyn fmt::Display| out.push(format!("{key}: {value}"));
        add(comment::SAMPLES, &self.samples);
        add(comment::DISTINCT_STACKS, &self.distinct);
        add(comment::LOST, &self.lost);
        add(comment::THROTTLED, &self.throttled);
        let truncated = format!("{} of {}", self.truncated_total(), self.user_stacks);
        add(comment::TRUNCATED, &truncated);
        if self.lost_records > 0 {
            add(comment::LOST_RECORDS, &self.lost_records);
        }
        if let Some((sampled, used)) = self.covered {
            add(comment::COVERED, &format!("{sampled} of {used}"));
        }
        for (why, n) in &self.truncated {
            add(comment::TRUNCATED, &format!("{}: {n}", why.code()));
        }
        add(comment::DEEP_STACKS, &self.deep);
        add(comment::FOLDED, &self.folded);
        if let Some(samples) = self.without_time {
            add(comment::WITHOUT_TIME, &samples);
        }
        out.extend(unsymbolized_comments(&self.unsymbolized));
        out.extend(self.reasons.iter().map(Reason::comment));
        let mut add = |key: &str, value: &dyn fmt::Display| out.push(format!("{key}: {value}"));
        for binary in &self.no_unwind_info {
            add(comment::NO_UNWIND_INFORMATION, binary);
        }
        add(comment::OWN_CPU_SECONDS, &format!("{:.3}", self.own_cpu_seconds));
        add(comment::RECORDING_CPU_SECONDS, &format!("{:.3}", self.recording_cpu_seconds));
        add(comment::OWN_PEAK_MEMORY, &self.own_peak_bytes);
        for note in &self.notes {
            add(comment::NOTE, note);
        }
        out
    }

    /// Reads the figures from the comments of a profile; if a key occurs several times, as in files
    /// that other tools merged, the sum. Missing figures are 0 or empty.
    ///
    /// Causes of missing names belong to binaries: see [`BinaryNotes`].
    pub fn from_comments(profile: &Profile) -> Diagnostics {
        let count = |key| {
            let all = comment::values(profile, key).filter_map(|v| v.parse::<u64>().ok());
            all.fold(0, u64::saturating_add)
        };
        let seconds = |key| {
            let all = comment::values(profile, key).filter_map(|v| v.parse::<f64>().ok());
            all.filter(|seconds| seconds.is_finite()).sum()
        };
        let by_name = |key| {
            let all = comment::values(profile, key).filter_map(|v| v.rsplit_once(": "));
            all.filter_map(|(name, n)| Some((name, n.parse::<u64>().ok()?)))
        };
        let texts = |key| comment::values(profile, key).map(str::to_owned).collect();
        let mut truncated: Vec<(Truncation, u64)> = Vec::new();
        for (code, n) in by_name(comment::TRUNCATED) {
            let Some(why) = Truncation::from_code(code) else { continue };
            match truncated.iter_mut().find(|(other, _)| *other == why) {
                Some((_, sum)) => *sum = sum.saturating_add(n),
                None => truncated.push((why, n)),
            }
        }
        let (all_truncated, user_stacks) = share(profile, comment::TRUNCATED).unwrap_or_default();
        let with_code = truncated.iter().map(|(_, n)| *n).fold(0, u64::saturating_add);
        let shares = by_name(comment::UNSYMBOLIZED);
        Diagnostics {
            samples: count(comment::SAMPLES),
            distinct: count(comment::DISTINCT_STACKS),
            lost: count(comment::LOST),
            lost_records: count(comment::LOST_RECORDS),
            covered: share(profile, comment::COVERED),
            throttled: count(comment::THROTTLED),
            user_stacks,
            truncated,
            truncated_otherwise: all_truncated.saturating_sub(with_code),
            deep: count(comment::DEEP_STACKS),
            folded: count(comment::FOLDED),
            without_time: comment::values(profile, comment::WITHOUT_TIME)
                .next()
                .map(|_| count(comment::WITHOUT_TIME)),
            unsymbolized: shares
                .map(|(binary, samples)| BinaryShare { binary: binary.to_owned(), samples })
                .collect(),
            reasons: Vec::new(),
            no_unwind_info: texts(comment::NO_UNWIND_INFORMATION),
            own_cpu_seconds: seconds(comment::OWN_CPU_SECONDS),
            recording_cpu_seconds: seconds(comment::RECORDING_CPU_SECONDS),
            own_peak_bytes: count(comment::OWN_PEAK_MEMORY),
            not_kept: 0,
            longest_pause_seconds: None,
            notes: texts(comment::NOTE),
        }
    }
}

/// Sums of the numbers N and M of `key: N of M`, if there are any.
fn share(profile: &Profile, key: &str) -> Option<(u64, u64)> {
    let parse = |v: &str| {
        let (n, all) = v.split_once(" of ")?;
        Some((n.parse::<u64>().ok()?, all.parse::<u64>().ok()?))
    };
    let shares = comment::values(profile, key).filter_map(parse);
    shares.reduce(|a, b| (a.0.saturating_add(b.0), a.1.saturating_add(b.1)))
}

/// Comments of a profile about one of its binaries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BinaryNotes {
    /// Cause of missing names.
    pub no_names: Option<Gap>,
    /// Cause of missing source lines.
    pub no_lines: Option<Gap>,
    /// Cause of unparsed files.
    pub bad_input: Option<Gap>,
    /// It has no unwind information.
    pub no_unwind_info: bool,
}

impl BinaryNotes {
    /// Notes of all binaries that comments mention, by file.
    pub fn all(profile: &Profile) -> FxHashMap<StrId, BinaryNotes> {
        let binaries: FxHashSet<StrId> = profile.mappings.iter().map(|m| m.file).collect();
        let mapped = |file: &str| profile.strings.find(file).filter(|id| binaries.contains(id));
        let mut all: FxHashMap<StrId, BinaryNotes> = FxHashMap::default();
        // A repeated comment adds nothing.
        let mut seen = FxHashSet::default();
        for &comment in profile.comments.iter().filter(|&&comment| seen.insert(comment)) {
            let Some((key, text)) = profile.str(comment).split_once(": ") else { continue };
            if key == comment::NO_UNWIND_INFORMATION
                && let Some(file) = mapped(text)
            {
                all.entry(file).or_default().no_unwind_info = true;
            }
            if let Some(lack) = Lack::ALL.into_iter().find(|lack| lack.key() == key) {
                // The binary's name may contain colons, and so may the cause.
                let ends = text.match_indices(": ").map(|(end, _)| end).take(MAX_COLONS);
                let parts = ends.filter_map(|end| Some((mapped(&text[..end])?, &text[end + 2..])));
                for (file, why) in parts.take(1) {
                    let notes = all.entry(file).or_default();
                    let note = match lack {
                        Lack::Names => &mut notes.no_names,
                        Lack::Lines => &mut notes.no_lines,
                        Lack::Input => &mut notes.bad_input,
                    };
                    note.get_or_insert_with(|| Gap::from_code(why));
                }
            }
        }
        all
    }
}

/// Most colons of a comment that are tried as the end of a binary's name.
const MAX_COLONS: usize = 8;

fn total(shares: &[BinaryShare]) -> u64 {
    shares.iter().map(|b| b.samples).sum()
}

fn unsymbolized_comments(shares: &[BinaryShare]) -> impl Iterator<Item = String> {
    let each =
        shares.iter().map(|b| format!("{}: {}: {}", comment::UNSYMBOLIZED, b.binary, b.samples));
    std::iter::once(format!("{}: {}", comment::UNSYMBOLIZED, total(shares))).chain(each)
}

/// Replaces the figures about samples without a name in the comments of a profile of prof's after
/// it was symbolized.
pub fn set_unsymbolized(profile: &mut Profile, shares: &[BinaryShare], reasons: &[Reason]) {
    let Profile { strings, comments, .. } = profile;
    let key = |c: &StrId| strings.get(*c).split_once(": ").map_or("", |(key, _)| key);
    let Some(at) = comments.iter().position(|c| key(c) == comment::UNSYMBOLIZED) else { return };
    let old =
        |key: &str| key == comment::UNSYMBOLIZED || Lack::ALL.iter().any(|lack| lack.key() == key);
    comments.retain(|c| !old(key(c)));
    let new = unsymbolized_comments(shares).chain(reasons.iter().map(Reason::comment));
    let new: Vec<StrId> = new.map(|c| strings.intern(&c)).collect();
    comments.splice(at..at, new);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cause;

    #[test]
    fn figures_about_names_are_replaced() {
        let mut p = Profile::default();
        let before =
            ["lost: 0", "unsymbolized: 9", "unsymbolized: /a: 9", "no-names: /a: gone", "note: x"];
        p.comments = before.iter().map(|c| p.strings.intern(c)).collect();
        let share = BinaryShare { binary: "/b".into(), samples: 2 };
        let gap = |addresses, cause| Gap { addresses, cause };
        let reason = |lack, gap: &Gap| Reason { lack, binary: "/b".into(), gap: gap.clone() };
        let no_names = gap(Some((1, 2)), Cause::Stripped);
        let no_lines = gap(Some((1, 2)), Cause::Damaged(".debug_line: version 7".into()));
        let bad_input = gap(None, Cause::PerfMapLines(3));
        let reasons = [
            reason(Lack::Names, &no_names),
            reason(Lack::Lines, &no_lines),
            reason(Lack::Input, &bad_input),
        ];
        set_unsymbolized(&mut p, &[share], &reasons);
        let comments = |p: &Profile| p.comments.iter().map(|&c| p.str(c).to_owned()).collect();
        let after: Vec<String> = comments(&p);
        assert_eq!(
            after,
            [
                "lost: 0",
                "unsymbolized: 2",
                "unsymbolized: /b: 2",
                "no-names: /b: 1 of 2 addresses: stripped",
                "no-lines: /b: 1 of 2 addresses: damaged: .debug_line: version 7",
                "bad-input: /b: perf-map-lines: 3",
                "note: x"
            ]
        );
        assert!(BinaryNotes::all(&p).is_empty(), "there is no such mapping");
        let file = p.strings.intern("/b");
        p.mappings.push(crate::Mapping { file, ..Default::default() });
        let no_unwind_info = p.strings.intern("no-unwind-information: /b");
        p.comments.push(no_unwind_info);
        let notes = BinaryNotes {
            no_names: Some(no_names),
            no_lines: Some(no_lines),
            bad_input: Some(bad_input),
            no_unwind_info: true,
        };
        assert_eq!(BinaryNotes::all(&p).get(&file), Some(&notes));
        let mut others = Profile::default();
        set_unsymbolized(&mut others, &[], &[]);
        assert!(others.comments.is_empty());
    }

    #[test]
    fn comments_are_key_and_value() {
        let d = Diagnostics {
            samples: 10,
            lost_records: 3,
            covered: Some((60, 100)),
            user_stacks: 9,
            truncated: vec![(Truncation::DumpTooSmall, 2)],
            ..Diagnostics::default()
        };
        let comments = d.to_comments();
        assert!(comments.contains(&"samples: 10".to_string()));
        assert!(comments.contains(&"truncated: 2 of 9".to_string()));
        assert!(comments.contains(&"lost-records: 3".to_string()));
        assert!(comments.contains(&"covered: 60 of 100".to_string()));
        assert!(comments.contains(&"truncated: dump too small: 2".to_string()));
        assert!(comments.iter().all(|c| c.contains(": ")));
    }

    #[test]
    fn comments_are_read_back() {
        let d = Diagnostics {
            samples: 10,
            distinct: 4,
            lost: 2,
            lost_records: 3,
            covered: Some((60, 100)),
            throttled: 1,
            user_stacks: 9,
            truncated: vec![(Truncation::DumpTooSmall, 2), (Truncation::Compat, 1)],
            deep: 5,
            folded: 6,
            without_time: Some(7),
            unsymbolized: vec![BinaryShare { binary: "/lib/a: b.so".into(), samples: 3 }],
            no_unwind_info: vec!["/bin/x".into()],
            own_cpu_seconds: 0.25,
            recording_cpu_seconds: 0.125,
            own_peak_bytes: 1 << 20,
            notes: vec!["a: note".into()],
            ..Diagnostics::default()
        };
        let mut p = Profile::default();
        let keep = |p: &mut Profile, comments: &[String]| {
            p.comments.extend(comments.iter().map(|c| p.strings.intern(c)));
        };
        keep(&mut p, &d.to_comments());
        assert_eq!(Diagnostics::from_comments(&p), d);
        // Merged by other tools: the same keys twice, and a code of a later version.
        keep(&mut p, &["lost: 1".into(), "truncated: 7 of 8".into(), "truncated: new: 7".into()]);
        let read = Diagnostics::from_comments(&p);
        assert_eq!((read.lost, read.truncated_total(), read.user_stacks), (3, 10, 17));
        let others = Diagnostics::from_comments(&Profile::default());
        assert_eq!(others, Diagnostics::default());
    }
}
