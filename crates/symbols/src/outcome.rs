//! What was found, what was not, and why.

use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};

use profile::{BinaryShare, LabelValue, Lack, MappingId, Profile, Reason, StrId, label};

/// What a reason says of a file that is not the recorded binary.
pub const ANOTHER_BUILD: &str = "another build than the recorded one";

/// What a reason says of a binary that is nowhere.
pub const FILE_MISSING: &str = "the file is not there";

/// What a reason says of a file without build id that is younger than the recording.
pub const CHANGED: &str = "the file was changed or replaced since it was recorded";

/// What a reason says of a debug file that does not belong to the binary.
pub const OTHER_DEBUG_FILE: &str = "is of another build";

/// What a reason says of a file that a binary refers to.
pub const MISSING: &str = "is missing";

/// What a reason says of a file that cannot be parsed.
pub const DAMAGED: &str = "damaged: ";

/// Why the addresses of a binary have no names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// No file has this path.
    FileMissing,
    /// The file is another build than the one that was recorded.
    BuildIdDiffers {
        /// The file's build id in hexadecimal, empty when it has none.
        found: String,
    },
    /// The file was written to or replaced since, and has no build id to tell what it was.
    Changed,
    /// The binary has only its exported names, and no debug file was found.
    Stripped,
    /// There are symbols, but none at these addresses.
    NoSymbol,
    /// The file cannot be read; the operating system's words.
    Unreadable(String),
    /// The file is no ELF file.
    NotElf,
    /// The debug file that the binary names belongs to another build; its path.
    OtherDebugFile(String),
    /// A file with debug information that the binary, or its debug file, refers to is not there.
    PartMissing(String),
    /// So many lines stand in the perf map, and none of them is a perf map's.
    NoPerfMap(usize),
    /// The file's symbols cannot be parsed; the parser's words.
    Damaged(String),
    /// The user did not want to wait any longer.
    Interrupted,
    /// Its names took longer than so many seconds of CPU time.
    TooLong(u64),
    /// Its names took more than so many MiB of memory.
    TooMuchMemory(u64),
    /// What parses the file has crashed.
    Crashed,
    /// The time for the names of all files was over.
    NoTimeLeft,
    /// No process could be started to parse the file; the operating system's words.
    NoWorker(String),
    /// The file became shorter while it was read.
    Cut,
    /// `kptr_restrict` hides the kernel's addresses.
    KernelHidden,
    /// Another kernel was recorded than the one that runs.
    KernelDiffers,
    /// The kernel was recorded before the last boot, which moved it.
    KernelRebooted,
    /// The JIT compiler wrote no perf map.
    PerfMapMissing,
    /// The perf map or jitdump file was made or changed after the recording, by another process
    /// perhaps.
    PerfMapNewer,
    /// A jitdump file ends within a record.
    JitdumpCut,
    /// Other code took the place of the code at these addresses while it was sampled.
    Reused,
    /// There is no vDSO.
    NoVdso,
    /// Code in memory that belongs to no file.
    Anonymous,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::FileMissing => f.write_str(FILE_MISSING),
            Why::BuildIdDiffers { found } if found.is_empty() => {
                write!(f, "the file is {ANOTHER_BUILD} (it has no build id)")
            }
            Why::BuildIdDiffers { found } => {
                write!(f, "the file is {ANOTHER_BUILD} (build id {found})")
            }
            Why::Changed => {
                write!(f, "{CHANGED}, and has no build id to tell whether it is the same")
            }
            Why::Stripped => f.write_str("stripped: install its debug symbols, or do not strip it"),
            Why::NoSymbol => f.write_str("no symbol at these addresses"),
            Why::Unreadable(error) => write!(f, "it cannot be read: {error}"),
            Why::NotElf => f.write_str("the file is no ELF binary"),
            Why::OtherDebugFile(path) => write!(f, "its debug file {path} {OTHER_DEBUG_FILE}"),
            Why::PartMissing(file) => write!(f, "its debug file {file} {MISSING}"),
            Why::NoPerfMap(lines) => {
                let s = if *lines == 1 { " is" } else { "s are" };
                write!(f, "{lines} line{s} no perf map's, and there is no other")
            }
            Why::Damaged(error) => write!(f, "{DAMAGED}{error}"),
            Why::Interrupted => f.write_str("interrupted before it was asked"),
            Why::TooLong(seconds) => {
                write!(f, "symbolizing it was stopped: it took more than {seconds} s of CPU time")
            }
            Why::TooMuchMemory(mib) => {
                write!(f, "symbolizing it was stopped: it took more than {mib} MiB of memory")
            }
            Why::Crashed => f.write_str("symbolizing it crashed its parser"),
            Why::NoTimeLeft => f.write_str(
                "the time for all names was over (10 minutes); `prof symbolize` goes on",
            ),
            Why::NoWorker(error) => write!(f, "no process to parse it could be started: {error}"),
            Why::Cut => f.write_str("the file was overwritten while it was read"),
            Why::KernelHidden => f.write_str(
                "/proc/kallsyms hides its addresses from this user (`prof doctor` says how to unlock)",
            ),
            Why::KernelDiffers => f.write_str("another kernel was recorded than the running one"),
            Why::KernelRebooted => {
                f.write_str("recorded before the last boot, which moved the kernel's addresses")
            }
            Why::PerfMapMissing => f.write_str(
                "no perf map: start node with --perf-basic-prof, java with \
                 -XX:+DumpPerfMapAtExit or jcmd PID Compiler.perfmap, python3 with -X perf, php \
                 with -d opcache.jit_debug=0x10",
            ),
            Why::PerfMapNewer => f.write_str(
                "the file that names it was made or changed after the recording, and is not that of \
                 a process that still runs",
            ),
            Why::JitdumpCut => f.write_str("its jitdump file ends within a record"),
            Why::Reused => f.write_str(
                "other code took the place of the code at these addresses while it was sampled",
            ),
            Why::NoVdso => f.write_str("this system has no vDSO"),
            Why::Anonymous => f.write_str("code in memory that belongs to no file"),
        }
    }
}

/// What was found for one mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// The mapping.
    pub mapping: MappingId,
    /// Its file, or name.
    pub file: String,
    /// Locations that were asked for.
    pub asked: usize,
    /// Of those, with a function name now.
    pub named: usize,
    /// Of those, with a source line now.
    pub with_line: usize,
    /// Why some have no name; `None` when all have one.
    pub why: Option<Why>,
    /// What could not be read of its debug information, though something gave answers.
    pub damage: Option<Why>,
    /// Lines of a perf map that could not be understood.
    pub bad_lines: usize,
}

/// What was found, for each mapping that had something to ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// One for each mapping, in their order.
    pub binaries: Vec<Binary>,
    /// Locations without names that belong to no mapping.
    pub homeless: usize,
    /// What went wrong with servers of debug files and with the cache, one sentence each.
    pub troubles: Vec<String>,
}

impl Outcome {
    /// Locations that were asked for.
    pub fn asked(&self) -> usize {
        self.binaries.iter().map(|b| b.asked).sum::<usize>() + self.homeless
    }

    /// What the binaries lack and why, each of them once with names, once with source lines and
    /// once with input that is bad.
    pub fn reasons(&self) -> Vec<Reason> {
        let mut all = Vec::new();
        let mut seen = FxHashSet::default();
        for binary in &self.binaries {
            let mut add = |lack, text: String| {
                if seen.insert((lack, &binary.file)) {
                    all.push(Reason { lack, binary: binary.file.clone(), text });
                }
            };
            let of_all = |n: usize, why: &Why| format!("{n} of {} addresses: {why}", binary.asked);
            if let Some(why) = &binary.why {
                add(Lack::Names, of_all(binary.asked - binary.named, why));
            }
            match &binary.damage {
                // It was said of the names.
                Some(why)
                    if binary.named == binary.with_line && binary.why.as_ref() == Some(why) => {}
                Some(why) if binary.with_line < binary.asked => {
                    add(Lack::Lines, of_all(binary.asked - binary.with_line, why));
                }
                Some(why) => add(Lack::Input, why.to_string()),
                None => {}
            }
            if binary.bad_lines > 0 && !matches!(binary.why, Some(Why::NoPerfMap(_))) {
                let s = if binary.bad_lines == 1 { " is" } else { "s are" };
                add(Lack::Input, format!("{} line{s} no perf map's", binary.bad_lines));
            }
        }
        all
    }

    /// Locations that have a name now.
    pub fn named(&self) -> usize {
        self.binaries.iter().map(|b| b.named).sum()
    }

    /// Locations that have a source line now.
    pub fn with_line(&self) -> usize {
        self.binaries.iter().map(|b| b.with_line).sum()
    }
}

/// Samples whose leaf has no function name, by binary, most first.
///
/// Samples are counted by the first sample type if its unit is `count`, else one a row.
pub fn unsymbolized(profile: &Profile) -> Vec<BinaryShare> {
    let mut shares: FxHashMap<StrId, u64> = FxHashMap::default();
    for (i, sample) in profile.samples.iter().enumerate() {
        let Some(&leaf) = profile.stacks.get(sample.stack).first() else { continue };
        let named =
            |l: &profile::Line| profile.functions[l.function.0 as usize].name != StrId::EMPTY;
        if profile.lines_of(leaf).iter().any(named) {
            continue;
        }
        let mapping = profile.locations[leaf.0 as usize].mapping;
        let file = mapping.map_or(StrId::EMPTY, |m| profile.mappings[m.0 as usize].file);
        *shares.entry(file).or_default() += weight(profile, i);
    }
    let name = |file: StrId| match profile.str(file) {
        "" => "[unknown]".to_owned(),
        file => file.to_owned(),
    };
    let mut shares: Vec<BinaryShare> = shares
        .into_iter()
        .filter(|&(_, samples)| samples > 0)
        .map(|(file, samples)| BinaryShare { binary: name(file), samples })
        .collect();
    shares.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.binary.cmp(&b.binary)));
    shares
}

/// All samples, counted as [`unsymbolized`] counts them: what its shares are of.
pub fn counted(profile: &Profile) -> u64 {
    (0..profile.samples.len()).map(|row| weight(profile, row)).fold(0, u64::saturating_add)
}

/// Samples with code on their stack that was made at run time and has no name, by the names of
/// processes, most first, with the number of one process of that name. Counted as
/// [`unsymbolized`] does.
pub fn run_time_code(profile: &Profile) -> Vec<(String, Option<i64>, u64)> {
    let mut nameless = vec![false; profile.locations.len()];
    for (location, nameless) in profile.locations.iter().zip(&mut nameless) {
        let file =
            location.mapping.map_or("", |m| profile.str(profile.mappings[m.0 as usize].file));
        let made = ["//anon", "[anon:", "/memfd:"].iter().any(|start| file.starts_with(start));
        *nameless = made && location.line_count == 0;
    }
    let (key, pid_key) = (profile.strings.find(label::PROCESS), profile.strings.find(label::PID));
    let mut shares: FxHashMap<String, (Option<i64>, u64)> = FxHashMap::default();
    for (i, sample) in profile.samples.iter().enumerate() {
        if !profile.stacks.get(sample.stack).iter().any(|l| nameless[l.0 as usize]) {
            continue;
        }
        let process = match key.and_then(|key| profile.labels.value(sample.labels, key)) {
            Some(LabelValue::Str(name)) => profile.str(name),
            _ => "a process",
        };
        let share = shares.entry(process.to_owned()).or_default();
        let pid = pid_key.and_then(|key| profile.labels.value(sample.labels, key));
        share.0 = share.0.or(match pid {
            Some(LabelValue::Str(pid)) => profile.str(pid).parse().ok(),
            Some(LabelValue::Num { value, .. }) => Some(value),
            None => None,
        });
        share.1 += weight(profile, i);
    }
    let mut shares: Vec<_> = shares.into_iter().map(|(name, (pid, n))| (name, pid, n)).collect();
    shares.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.0.cmp(&b.0)));
    shares
}

/// How many samples a row stands for.
fn weight(profile: &Profile, row: usize) -> u64 {
    let counted = profile.sample_types.first().is_some_and(|t| profile.str(t.unit) == "count");
    if counted { profile.values_of(row)[0].max(0) as u64 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Builder, Column, Label, LabelSetId, Mapping};

    #[test]
    fn samples_without_a_leaf_name_are_counted_by_binary() {
        let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
        let mut mapping = |file: &str| {
            let file = b.profile.strings.intern(file);
            b.add_mapping(Mapping { file, ..Mapping::default() })
        };
        let (one, two) = (mapping("/one"), mapping("/two"));
        let named = b.named_location("main");
        let in_one = b.location(Some(one), 1);
        let in_two = b.location(Some(two), 1);
        let nowhere = b.location(None, 1);
        for (stack, times) in [
            (vec![in_one, named], 2),
            (vec![in_two, named], 5),
            (vec![named, in_one], 9),
            (vec![nowhere], 1),
            (vec![], 4),
        ] {
            for _ in 0..times {
                b.add(&stack, LabelSetId::EMPTY, Column(1), 7);
            }
        }
        let share = |binary: &str, samples| BinaryShare { binary: binary.into(), samples };
        assert_eq!(
            unsymbolized(&b.finish(None)),
            [share("/two", 5), share("/one", 2), share("[unknown]", 1)]
        );
    }

    /// Of allocations, one sample stands for many objects: shares are of objects then.
    #[test]
    fn shares_without_names_are_of_what_they_are_counted_in() {
        let mut b = Builder::new(&[("alloc_objects", "count"), ("alloc_space", "bytes")]);
        let (named, nameless) = (b.named_location("main"), b.location(None, 1));
        let values = |objects| [(Column(0), objects), (Column(1), objects * 64)];
        b.add_stack(&[named, nameless], None, LabelSetId::EMPTY, &values(300));
        b.add_stack(&[named], None, LabelSetId::EMPTY, &values(100));
        let p = b.finish(None);
        let nameless: u64 = unsymbolized(&p).iter().map(|share| share.samples).sum();
        assert_eq!((nameless, counted(&p)), (300, 400));
    }

    #[test]
    fn code_made_at_run_time_is_counted_by_process() {
        let mut b = Builder::new(&[("samples", "count")]);
        let file = b.profile.strings.intern("//anon");
        let made = b.add_mapping(Mapping { file, ..Mapping::default() });
        let (made, named) = (b.location(Some(made), 7), b.named_location("main"));
        let key = b.profile.strings.intern("process");
        for (process, stack, times) in
            [("node", vec![named, made], 2), ("java", vec![made], 3), ("sh", vec![named], 9)]
        {
            let value = LabelValue::Str(b.profile.strings.intern(process));
            let labels = b.profile.labels.intern(&[Label { key, value }]);
            for _ in 0..times {
                b.add(&stack, labels, Column(0), 1);
            }
        }
        let expected = [("java".to_owned(), None, 3), ("node".to_owned(), None, 2)];
        assert_eq!(run_time_code(&b.finish(None)), expected);
    }
}
