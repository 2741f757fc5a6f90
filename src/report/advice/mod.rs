//! Remedies for missing names, source lines and parts of stacks, as commands that a user can type.

pub mod binaries;
pub mod interpreters;
mod packages;
pub mod run_time;

use rustc_hash::{FxHashMap, FxHashSet};

use packages::{Archive, Distribution, Package, Servers};
use profile::{Cause, Profile, Truncation};
use run_time::{Compilers, RunTime};
use sys::jit::file_names::is_compilers_file;
use sys::os;

/// The gaps of a binary.
#[derive(Clone, Debug, Default)]
pub struct Missing<'a> {
    /// Some of its frames have no name.
    pub names: bool,
    /// Some of its frames have no source line.
    pub lines: bool,
    /// Reasons for which stacks end in it.
    pub ends: Vec<Truncation>,
    /// Recorded reasons for missing names and lines.
    pub why: Vec<&'a Cause>,
}

/// Remedies for missing names or source lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct Remedies {
    /// A step before all others, for all binaries.
    prerequisite: Option<Prerequisite>,
    /// Remedies for this binary, the best one first.
    own: Vec<String>,
    /// A command that helps all such binaries.
    fetch: Option<String>,
}

/// A step that is taken once on a machine.
#[derive(Debug, PartialEq, Eq)]
struct Prerequisite {
    /// A sentence.
    sentence: String,
    /// The same and the remedy that depends on it, in short.
    brief: String,
}

impl Remedies {
    fn own(own: Vec<String>) -> Remedies {
        Remedies { own, ..Remedies::default() }
    }
}

/// Finds remedies for the binaries of a profile.
#[derive(Debug, Default)]
pub struct Advisor {
    /// The profile's file, as a user types it, if there is one.
    profile: Option<String>,
    /// Debian packages by the files in them.
    packages: FxHashMap<String, Package>,
    /// Sources of their debug files.
    distribution: Distribution,
    /// The compilers of run-time code, by the file or memory of their code.
    run_times: FxHashMap<String, Vec<RunTime>>,
    /// The one that needs no remedy for names.
    read: Option<RunTime>,
    /// Interpreters whose programs' functions are not in the profile.
    hiding: FxHashSet<String>,
    copies: Copies,
}

/// What the copies of stacks in a profile are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Copies {
    /// Samples: `-g dwarf,BYTES` sets their size.
    #[default]
    Samples,
    /// Waits, requests and calls, and no CPU time: their size is prof's choice.
    Waits,
}

impl Copies {
    fn find(profile: &Profile) -> Copies {
        let has = |name: &&str| profile.type_index(name).is_some();
        let waits = ["wall", "delay", "io_delay", "syscall_time"].iter().any(has);
        if waits && !has(&"cpu") { Copies::Waits } else { Copies::Samples }
    }
}

/// Whether a path represents memory that holds run-time code, not a file.
pub fn is_memory(file: &str) -> bool {
    const ELSEWHERE: [&str; 5] = ["//", "/memfd:", "/dev/", "/SYSV", "/anon_hugepage"];
    !file.starts_with('/') || ELSEWHERE.iter().any(|prefix| file.starts_with(prefix))
}

impl Advisor {
    /// For the binaries with these paths, of a profile, which is in the file `file` if there is
    /// one.
    pub fn new(files: &[&str], profile: &Profile, file: Option<String>) -> Advisor {
        let compilers = Compilers::find(profile);
        let run_times = |file: &&str| {
            let found = profile.strings.find(file).into_iter();
            ((*file).to_owned(), found.flat_map(|id| compilers.by_file(id)).collect())
        };
        Advisor {
            profile: file,
            packages: packages::packages(files),
            distribution: Distribution::running(),
            run_times: files.iter().map(run_times).collect(),
            read: RunTime::read_in(profile),
            hiding: interpreters::hiding(profile, files),
            copies: Copies::find(profile),
        }
    }

    fn run_times_of(&self, file: &str) -> &[RunTime] {
        self.run_times.get(file).map_or(&[], Vec::as_slice)
    }

    /// The remedies for the gaps of the binary `file`, as sentences.
    pub fn remedies(&self, file: &str, build_id: &str, missing: &Missing<'_>) -> Vec<String> {
        let mut out = Vec::new();
        out.extend(self.hiding.get(file).and_then(|file| interpreters::remedy(file)));
        if missing.names || missing.lines {
            let what = match (missing.names, interpreters::is_interpreter(file)) {
                (true, false) => "for names: ",
                (true, true) => "for names of the interpreter's own functions: ",
                (false, false) => "for source lines: ",
                (false, true) => "for source lines of the interpreter: ",
            };
            let Remedies { prerequisite, mut own, fetch } =
                self.for_binary(file, build_id, missing);
            if let Some(first) = own.first_mut() {
                first.insert_str(0, what);
            }
            out.extend(prerequisite.map(|first| first.sentence));
            out.extend(own);
            out.extend(fetch.map(|fetch| format!("or, for all such: {fetch}")));
        }
        out.extend(missing.ends.iter().find_map(|why| match *why {
            Truncation::RunTimeCode => self.run_time_stacks(file),
            why => whole_stacks(why, self.copies),
        }));
        out
    }

    /// The command that gives the binary `file` names with the least effort.
    pub fn for_names(&self, file: &str, build_id: &str, missing: &Missing<'_>) -> Option<String> {
        let Remedies { prerequisite, own, fetch } = self.for_binary(file, build_id, missing);
        // A server needs no root, and helps other binaries, too.
        fetch.or(prerequisite.map(|first| first.brief)).or(own.into_iter().next())
    }

    /// The remedy for stacks that end in the run-time code of this file.
    fn run_time_stacks(&self, file: &str) -> Option<String> {
        let run_times = self.run_times_of(file);
        let remedies: Vec<_> = run_times.iter().filter_map(|r| r.whole_stacks()).collect();
        let remedy = match (run_times, remedies.as_slice()) {
            ([], _) => run_time::KEEP_FRAME_POINTERS.to_owned(),
            (_, []) => return None,
            (_, remedies) => remedies.join("; "),
        };
        Some(format!("for whole stacks: {remedy}"))
    }

    fn for_binary(&self, file: &str, build_id: &str, missing: &Missing<'_>) -> Remedies {
        if file.starts_with("[kernel") {
            let hidden = missing.names.then_some("as root: sysctl kernel.kptr_restrict=0");
            return Remedies::own(hidden.into_iter().map(str::to_owned).collect());
        }
        let lacks_map = missing.why.contains(&&Cause::PerfMapMissing);
        let is_without_remedy = file.starts_with('[') || file.is_empty();
        if is_without_remedy || is_compilers_file(file) && !lacks_map {
            return Remedies::default();
        }
        if is_memory(file) || is_compilers_file(file) {
            let run_times = self.run_times_of(file);
            let others = run_times.iter().filter(|run_time| Some(**run_time) != self.read);
            let mut names: Vec<_> = others.map(|run_time| run_time.names(None)).collect();
            if run_times.is_empty() {
                names.push(run_time::WRITE_PERF_MAP.to_owned());
            }
            return Remedies::own(names);
        }
        let package = self.packages.get(file);
        let fetch = package.filter(|p| p.is_distributed).and_then(|_| self.fetch(build_id));
        if let Some(remedy) = self.by_reason(file, build_id, missing) {
            // A package that was replaced by a newer one is still on the server.
            return Remedies { fetch, ..Remedies::own(vec![remedy]) };
        }
        if let Some(package) = package {
            return Remedies { fetch, ..self.for_package(package) };
        }
        let strip = if missing.names { " and do not strip it" } else { "" };
        let id =
            if build_id.is_empty() { "; it has no build ID: link with -Wl,--build-id" } else { "" };
        Remedies::own(vec![format!(
            "build it with -g (Rust: debug = \"line-tables-only\" in [profile.release]){strip}{id}"
        )])
    }

    /// The command that gets debug files by build ID from the server for which this machine is
    /// configured.
    fn fetch(&self, build_id: &str) -> Option<String> {
        let servers = self.distribution.servers.as_ref().filter(|_| !build_id.is_empty())?;
        Some(match servers {
            Servers::Environment => match &self.profile {
                // At the end, because a URL may follow it.
                Some(profile) => format!("prof symbolize --force {profile} --debuginfod"),
                None => "record again with --debuginfod".to_owned(),
            },
            Servers::Url(url) => self.symbolize_again(&format!(" --debuginfod={url}")),
        })
    }

    /// The remedy for a recorded reason, if it is other than a build or a package with debug
    /// information.
    fn by_reason(&self, file: &str, build_id: &str, missing: &Missing<'_>) -> Option<String> {
        let id = if build_id.is_empty() { "" } else { &format!(" (build ID {build_id})") };
        let in_directory = self.symbolize_again(" --symbol-path DIR");
        missing.why.iter().find_map(|cause| match cause {
            Cause::Changed => Some(
                "record again; with -Wl,--build-id at link time, builds can be distinguished"
                    .to_owned(),
            ),
            Cause::BuildIdDiffers { .. } | Cause::FileMissing => {
                Some(format!("put the recorded build{id} into a directory: {in_directory}"))
            }
            Cause::PartMissing(_) => Some(format!(
                "put the missing file next to it, or into a directory: {in_directory}"
            )),
            Cause::OtherDebugFile(_) => Some(format!(
                "put the debug file of this build{id} in its place, or into a directory: \
                 {in_directory}"
            )),
            Cause::Damaged(_) => Some(match self.packages.get(file) {
                Some(package) => format!("apt-get install --reinstall {}", package.name),
                None => "build or copy it again: it is damaged".to_owned(),
            }),
            _ => None,
        })
    }

    /// The command that looks up all names again, with this option.
    fn symbolize_again(&self, option: &str) -> String {
        match &self.profile {
            Some(profile) => format!("prof symbolize --force{option} {profile}"),
            None if option.is_empty() => "record again".to_owned(),
            None => format!("record again with{option}"),
        }
    }

    /// The commands that get the debug symbols of a package.
    fn for_package(&self, package: &Package) -> Remedies {
        let Package { name, version, maintainer, .. } = package;
        if !package.is_distributed {
            return Remedies::own(vec![format!(
                "the debug symbols of {name} {version} come from its vendor ({maintainer}); when \
                 they are in a directory: {}",
                self.symbolize_again(" --symbol-path DIR")
            )]);
        }
        let again = self.symbolize_again("");
        let install = format!("apt-get install {}", package.debug());
        let step = match &self.distribution.archive {
            _ if !package.has_debug_archive() => None,
            Archive::Enabled => None,
            Archive::Add(command) => Some(format!("once, as root: {command}")),
            Archive::Unknown => Some(
                "once: enable your distribution's repository of debug symbols (apt: suites that \
                 end in -debug)"
                    .to_owned(),
            ),
        };
        let prerequisite = step.map(|sentence| {
            let details = match &self.profile {
                Some(profile) => format!("prof report --coverage {profile}"),
                None => "-v shows how".to_owned(),
            };
            let brief = format!("{install}, once its repository is enabled ({details})");
            Prerequisite { sentence, brief }
        });
        let remedy = match self.profile {
            Some(_) => format!("{install} && {again}"),
            None => format!("{install} (then {again})"),
        };
        Remedies { prerequisite, ..Remedies::own(vec![remedy]) }
    }
}

/// Whether there is a way to record stacks whole that are truncated for this reason.
pub fn can_be_whole(why: Truncation) -> bool {
    !matches!(
        why,
        Truncation::NoCaller
            | Truncation::NoUserMemory
            | Truncation::ExceptionDelivery
            | Truncation::AlternateStack
    )
}

/// The remedy for the stacks of a profile that are truncated for this reason, as a sentence.
pub fn whole_stacks_of(profile: &Profile, why: Truncation) -> Option<String> {
    match why {
        Truncation::RunTimeCode => {
            let remedy = Compilers::find(profile).whole_stacks();
            remedy.map(|remedy| format!("for whole stacks: {remedy}"))
        }
        why => whole_stacks(why, Copies::find(profile)),
    }
}

/// The same of any profile with such copies.
fn whole_stacks(why: Truncation, copies: Copies) -> Option<String> {
    let remedy = match why {
        Truncation::SmallDump if copies == Copies::Waits => {
            "-g fp, if it is built with -fno-omit-frame-pointer: of the stacks of short waits, \
             requests and calls, 8 to 32 KiB are copied"
        }
        Truncation::DumpTooSmall if copies == Copies::Waits => {
            "-g fp, if it is built with -fno-omit-frame-pointer: of the stack of a wait, 64 KiB are \
             copied, less where it is not in memory"
        }
        Truncation::SmallDump => "prof record -g dwarf,65528 (up to -F 999, the default)",
        Truncation::DumpTooSmall => too_small(os::uid()),
        Truncation::Unreadable => "record again: it was paged out, or not yet grown into",
        Truncation::NoUserMemory => {
            "nothing: the kernel took the memory down (execve, exit), gave the CPU to another \
             process, or brought in the end of the stack"
        }
        Truncation::NoCaller => {
            "nothing: the stack is a coroutine's, or of Go's run-time code, and what called it \
             stands on another one"
        }
        Truncation::ExceptionDelivery => {
            "nothing: to return to a handler, the C++ library's unwinder (libgcc) puts that one's \
             registers where those were that led to the caller"
        }
        Truncation::NotOpened => {
            "keep it in its place until the end of the recording, readable for this user (prof \
             report --coverage names it)"
        }
        Truncation::Replaced => "record again: another file has taken its place",
        Truncation::NoUnwindInfo => {
            "build it with -fasynchronous-unwind-tables or -fno-omit-frame-pointer"
        }
        Truncation::DamagedUnwindInfo => "build or install it again: its .eh_frame cannot be read",
        Truncation::Uncovered => {
            "build what ends them with -fasynchronous-unwind-tables or -fno-omit-frame-pointer \
             (assembly: with .cfi_* directives)"
        }
        Truncation::ReturnProbe => {
            "record as root (prof doctor, deep stacks), or without return probes (%return) of prof \
             and of other tools: the kernel puts its own address in place of the return address"
        }
        Truncation::Segments => {
            "build it without -fsplit-stack: the stack goes on in another segment, and only one is \
             copied"
        }
        Truncation::NotAnalysed => {
            "lower -F, or record when the machine is less busy: code without unwind information is \
             analysed while recording, and too many samples waited for that"
        }
        Truncation::AlternateStack => {
            "nothing: what the handler interrupted is on a stack that was not copied"
        }
        Truncation::RunTimeCode => run_time::KEEP_FRAME_POINTERS,
        Truncation::ChainTooDeep => "as root: sysctl kernel.perf_event_max_stack=1024",
        Truncation::HiddenMappings => hidden_mappings(os::uid()),
        Truncation::RegistersNotSaved => {
            "record with -e cpu-clock, whose interrupts wait until the kernel has saved the registers"
        }
        Truncation::BadReturnAddress
        | Truncation::LostMappings
        | Truncation::TooDeep
        | Truncation::PointerNotKnown
        | Truncation::Compat => return None,
    };
    Some(format!("for whole stacks: {remedy}"))
}

/// The remedy of this user for stacks that are deeper than the copy.
fn too_small(user: u32) -> &'static str {
    match user {
        0 => {
            "lower -F: more of each stack is copied then, up to 2 MiB at 99 Hz (prof doctor, deep \
             stacks); or build it with -fno-omit-frame-pointer"
        }
        _ => {
            "record as root, or give prof CAP_BPF and CAP_PERFMON (prof doctor, deep stacks): more \
             than 64 KiB of each stack is copied then; or build it with -fno-omit-frame-pointer"
        }
    }
}

/// The remedy of this user for processes whose mappings could not be read.
fn hidden_mappings(user: u32) -> &'static str {
    match user {
        0 => {
            "begin to record before the processes start: these had ended when prof read their mappings"
        }
        _ => "record as root, or as the user of the process",
    }
}

#[cfg(test)]
mod tests;
