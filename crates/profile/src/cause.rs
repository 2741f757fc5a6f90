//! Causes of missing names and source lines.

use std::fmt;

/// Cause of missing names or source lines in a binary.
///
/// In files it is its [`Cause::code`], followed by a detail if it has one: `unreadable: permission
/// denied`. [`Display`](fmt::Display) describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No file has this path.
    FileMissing,
    /// The file is another build than the one that was recorded.
    BuildIdDiffers {
        /// The file's build ID in hexadecimal, empty if it has none.
        found: String,
    },
    /// The file was written to or replaced since, and has no build ID to identify it.
    Changed,
    /// The binary has only its exported names, and no debug file was found.
    Stripped,
    /// There are symbols, but none at these addresses.
    NoSymbol,
    /// The file cannot be read; the operating system's error.
    Unreadable(String),
    /// The file is not an ELF file.
    NotElf,
    /// The debug file that the binary names belongs to another build; its path.
    OtherDebugFile(String),
    /// A file with debug information that the binary, or its debug file, refers to is missing.
    PartMissing(String),
    /// All lines of the perf map are malformed; their number.
    NoPerfMap(usize),
    /// The file's symbols cannot be parsed; the parser's error.
    Damaged(String),
    /// The user interrupted the lookup.
    Interrupted,
    /// Its names exceeded this CPU time, in seconds.
    TooLong(u64),
    /// Its names exceeded this much memory, in MiB.
    TooMuchMemory(u64),
    /// The file's parser crashed.
    Crashed,
    /// The time limit for the names of all files was reached.
    NoTimeLeft,
    /// No process could be started to parse the file; the operating system's error.
    NoWorker(String),
    /// The file was truncated while it was read.
    Cut,
    /// `kptr_restrict` hides the kernel's addresses.
    KernelHidden,
    /// Another kernel was recorded than the one that runs.
    KernelDiffers,
    /// The kernel was recorded before the last boot, which moved it.
    KernelRebooted,
    /// The recording does not identify its kernel, or it was at other addresses then.
    KernelUnidentified,
    /// The JIT compiler wrote no perf map.
    PerfMapMissing,
    /// The perf map or jitdump file was created or changed after the recording, perhaps by another
    /// process.
    PerfMapNewer,
    /// A jitdump file ends within a record.
    JitdumpCut,
    /// Other code replaced the code at these addresses while it was sampled.
    Reused,
    /// There is no vDSO.
    NoVdso,
    /// Code in memory that belongs to no file.
    Anonymous,
    /// Number of malformed lines in a perf map that has valid ones as well.
    PerfMapLines(usize),
    /// Text from a file of another version of prof.
    Other(String),
}

impl Cause {
    /// Its form in files: a code, followed by a detail if it has one. The codes are part of the
    /// file format: they never change.
    pub fn code(&self) -> String {
        let (code, detail) = match self {
            Cause::FileMissing => ("file-missing", None),
            Cause::BuildIdDiffers { found } => ("build-id-differs", Some(found.clone())),
            Cause::Changed => ("changed", None),
            Cause::Stripped => ("stripped", None),
            Cause::NoSymbol => ("no-symbol", None),
            Cause::Unreadable(text) => ("unreadable", Some(text.clone())),
            Cause::NotElf => ("not-elf", None),
            Cause::OtherDebugFile(text) => ("other-debug-file", Some(text.clone())),
            Cause::PartMissing(text) => ("part-missing", Some(text.clone())),
            Cause::NoPerfMap(n) => ("no-perf-map-lines", Some(n.to_string())),
            Cause::Damaged(text) => ("damaged", Some(text.clone())),
            Cause::Interrupted => ("interrupted", None),
            Cause::TooLong(n) => ("too-long", Some(n.to_string())),
            Cause::TooMuchMemory(n) => ("too-much-memory", Some(n.to_string())),
            Cause::Crashed => ("crashed", None),
            Cause::NoTimeLeft => ("no-time-left", None),
            Cause::NoWorker(text) => ("no-worker", Some(text.clone())),
            Cause::Cut => ("cut", None),
            Cause::KernelHidden => ("kernel-hidden", None),
            Cause::KernelDiffers => ("kernel-differs", None),
            Cause::KernelRebooted => ("kernel-rebooted", None),
            Cause::KernelUnidentified => ("kernel-unidentified", None),
            Cause::PerfMapMissing => ("perf-map-missing", None),
            Cause::PerfMapNewer => ("perf-map-newer", None),
            Cause::JitdumpCut => ("jitdump-cut", None),
            Cause::Reused => ("reused", None),
            Cause::NoVdso => ("no-vdso", None),
            Cause::Anonymous => ("anonymous", None),
            Cause::PerfMapLines(n) => ("perf-map-lines", Some(n.to_string())),
            Cause::Other(text) => return text.clone(),
        };
        match detail {
            Some(detail) if !detail.is_empty() => format!("{code}: {detail}"),
            _ => code.to_owned(),
        }
    }

    /// Parses the result of [`Cause::code`]; any other text is [`Cause::Other`].
    pub fn from_code(text: &str) -> Cause {
        let other = || Cause::Other(text.to_owned());
        match text.split_once(": ").unwrap_or((text, "")) {
            ("file-missing", _) => Cause::FileMissing,
            ("build-id-differs", found) => Cause::BuildIdDiffers { found: found.to_owned() },
            ("changed", _) => Cause::Changed,
            ("stripped", _) => Cause::Stripped,
            ("no-symbol", _) => Cause::NoSymbol,
            ("unreadable", text) => Cause::Unreadable(text.to_owned()),
            ("not-elf", _) => Cause::NotElf,
            ("other-debug-file", text) => Cause::OtherDebugFile(text.to_owned()),
            ("part-missing", text) => Cause::PartMissing(text.to_owned()),
            ("no-perf-map-lines", n) => n.parse().map_or_else(|_| other(), Cause::NoPerfMap),
            ("damaged", text) => Cause::Damaged(text.to_owned()),
            ("interrupted", _) => Cause::Interrupted,
            ("too-long", n) => n.parse().map_or_else(|_| other(), Cause::TooLong),
            ("too-much-memory", n) => n.parse().map_or_else(|_| other(), Cause::TooMuchMemory),
            ("crashed", _) => Cause::Crashed,
            ("no-time-left", _) => Cause::NoTimeLeft,
            ("no-worker", text) => Cause::NoWorker(text.to_owned()),
            ("cut", _) => Cause::Cut,
            ("kernel-hidden", _) => Cause::KernelHidden,
            ("kernel-differs", _) => Cause::KernelDiffers,
            ("kernel-rebooted", _) => Cause::KernelRebooted,
            ("kernel-unidentified", _) => Cause::KernelUnidentified,
            ("perf-map-missing", _) => Cause::PerfMapMissing,
            ("perf-map-newer", _) => Cause::PerfMapNewer,
            ("jitdump-cut", _) => Cause::JitdumpCut,
            ("reused", _) => Cause::Reused,
            ("no-vdso", _) => Cause::NoVdso,
            ("anonymous", _) => Cause::Anonymous,
            ("perf-map-lines", n) => n.parse().map_or_else(|_| other(), Cause::PerfMapLines),
            _ => other(),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::FileMissing => f.write_str("the file is not there"),
            Cause::BuildIdDiffers { found } if found.is_empty() => {
                write!(f, "the file is another build than the recorded one (it has no build ID)")
            }
            Cause::BuildIdDiffers { found } => {
                write!(f, "the file is another build than the recorded one (build ID {found})")
            }
            Cause::Changed => {
                write!(f, "the file was changed or replaced since it was recorded, and has no build ID to identify it")
            }
            Cause::Stripped => f.write_str("stripped: install its debug symbols, or do not strip it"),
            Cause::NoSymbol => f.write_str("no symbol at these addresses"),
            Cause::Unreadable(error) => write!(f, "it cannot be read: {error}"),
            Cause::NotElf => f.write_str("the file is not an ELF binary"),
            Cause::OtherDebugFile(path) => write!(f, "its debug file {path} is of another build"),
            Cause::PartMissing(file) => write!(f, "its debug file {file} is missing"),
            Cause::NoPerfMap(lines) => {
                write!(f, "the perf map has no valid line ({lines} malformed)")
            }
            Cause::Damaged(error) => write!(f, "damaged: {error}"),
            Cause::Interrupted => f.write_str("interrupted before it was symbolized"),
            Cause::TooLong(seconds) => {
                write!(f, "symbolizing it was stopped: it took more than {seconds} s of CPU time")
            }
            Cause::TooMuchMemory(mib) => {
                write!(f, "symbolizing it was stopped: it took more than {mib} MiB of memory")
            }
            Cause::Crashed => f.write_str("its parser crashed"),
            Cause::NoTimeLeft => f.write_str(
                "the time limit for all names was reached (10 minutes); `prof symbolize` continues",
            ),
            Cause::NoWorker(error) => write!(f, "no process to parse it could be started: {error}"),
            Cause::Cut => f.write_str("the file was overwritten while it was read"),
            Cause::KernelHidden => f.write_str(
                "/proc/kallsyms hides its addresses from this user (`prof doctor` shows the remedy)",
            ),
            Cause::KernelDiffers => f.write_str("another kernel was recorded than the running one"),
            Cause::KernelRebooted => {
                f.write_str("recorded before the last boot, which moved the kernel's addresses")
            }
            Cause::KernelUnidentified => f.write_str(
                "the recording does not identify its kernel, or that was at other addresses",
            ),
            Cause::PerfMapMissing => f.write_str("no perf map: its compiler wrote none"),
            Cause::PerfMapNewer => f.write_str(
                "the file that names it was made or changed after the recording, and is not that of \
                 a process that still runs",
            ),
            Cause::JitdumpCut => f.write_str("its jitdump file ends within a record"),
            Cause::Reused => f.write_str(
                "other code replaced the code at these addresses while it was sampled",
            ),
            Cause::NoVdso => f.write_str("this system has no vDSO"),
            Cause::Anonymous => f.write_str("code in memory that belongs to no file"),
            Cause::PerfMapLines(lines) => {
                let s = if *lines == 1 { "" } else { "s" };
                write!(f, "{lines} malformed line{s} in the perf map")
            }
            Cause::Other(text) => f.write_str(text),
        }
    }
}

/// A gap in the information about a binary: the share of its addresses, and the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Addresses without it, and all addresses of the binary; `None` if not applicable.
    pub addresses: Option<(u64, u64)>,
    /// The cause.
    pub cause: Cause,
}

impl Gap {
    /// Its form in files: `3 of 5 addresses: CODE`, or the code alone.
    pub fn code(&self) -> String {
        self.with(&self.cause.code())
    }

    /// Parses the result of [`Gap::code`].
    pub fn from_code(text: &str) -> Gap {
        let split = || {
            let (share, code) = text.split_once(" addresses: ")?;
            let (part, all) = share.split_once(" of ")?;
            Some(((part.parse().ok()?, all.parse().ok()?), code))
        };
        match split() {
            Some((addresses, code)) => {
                Gap { addresses: Some(addresses), cause: Cause::from_code(code) }
            }
            None => Gap { addresses: None, cause: Cause::from_code(text) },
        }
    }

    fn with(&self, cause: &str) -> String {
        match self.addresses {
            Some((part, all)) => format!("{part} of {all} addresses: {cause}"),
            None => cause.to_owned(),
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with(&self.cause.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_back() {
        let causes = [
            Cause::FileMissing,
            Cause::BuildIdDiffers { found: "ab12".into() },
            Cause::Changed,
            Cause::Stripped,
            Cause::NoSymbol,
            Cause::Unreadable("x: y".into()),
            Cause::NotElf,
            Cause::OtherDebugFile("x: y".into()),
            Cause::PartMissing("x: y".into()),
            Cause::NoPerfMap(7),
            Cause::Damaged("x: y".into()),
            Cause::Interrupted,
            Cause::TooLong(7),
            Cause::TooMuchMemory(7),
            Cause::Crashed,
            Cause::NoTimeLeft,
            Cause::NoWorker("x: y".into()),
            Cause::Cut,
            Cause::KernelHidden,
            Cause::KernelDiffers,
            Cause::KernelRebooted,
            Cause::PerfMapMissing,
            Cause::PerfMapNewer,
            Cause::JitdumpCut,
            Cause::Reused,
            Cause::NoVdso,
            Cause::Anonymous,
            Cause::KernelUnidentified,
            Cause::PerfMapLines(7),
        ];
        for cause in causes {
            assert_eq!(Cause::from_code(&cause.code()), cause);
            let gap = Gap { addresses: Some((3, 5)), cause };
            assert_eq!(Gap::from_code(&gap.code()), gap);
        }
        let none = Cause::BuildIdDiffers { found: String::new() };
        assert_eq!(Cause::from_code(&none.code()), none);
    }

    #[test]
    fn sentences_of_older_files_stay_as_they_are() {
        let gap = Gap::from_code("9 of 9 addresses: the file is not there");
        assert_eq!(gap.addresses, Some((9, 9)));
        assert_eq!(gap.to_string(), "9 of 9 addresses: the file is not there");
        assert_eq!(Gap::from_code("too-long: soon").to_string(), "too-long: soon");
    }
}
