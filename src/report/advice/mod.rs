//! Remedies for missing names, source lines and parts of stacks, as commands that a user can type.

pub mod binaries;
mod packages;
pub mod run_time;

use rustc_hash::FxHashMap;

use packages::{Archive, Distribution, Package, Servers};
use profile::{Cause, Truncation};
use run_time::RunTime;
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
    of_binary: Vec<String>,
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
    fn of_binary(of_binary: Vec<String>) -> Remedies {
        Remedies { of_binary, ..Remedies::default() }
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
    /// The compilers of run-time code among the binaries.
    run_times: Vec<RunTime>,
}

/// Whether a path represents memory that holds run-time code, not a file.
pub fn is_memory(file: &str) -> bool {
    const ELSEWHERE: [&str; 5] = ["//", "/memfd:", "/dev/", "/SYSV", "/anon_hugepage"];
    !file.starts_with('/') || ELSEWHERE.iter().any(|prefix| file.starts_with(prefix))
}

impl Advisor {
    /// For the binaries with these paths, of the profile in the file `profile`, if there is one.
    pub fn new(files: &[&str], profile: Option<String>) -> Advisor {
        let packages = packages::packages(files);
        let mut run_times: Vec<_> = files.iter().filter_map(|f| RunTime::of_binary(f)).collect();
        run_times.sort_unstable();
        run_times.dedup();
        Advisor { profile, packages, distribution: Distribution::of_this_system(), run_times }
    }

    /// The remedies for the gaps of the binary `file`, as sentences.
    pub fn remedies(&self, file: &str, build_id: &str, missing: &Missing<'_>) -> Vec<String> {
        let mut out = Vec::new();
        if missing.names || missing.lines {
            let what = if missing.names { "for names: " } else { "for source lines: " };
            let Remedies { prerequisite, mut of_binary, fetch } =
                self.for_binary(file, build_id, missing);
            if let Some(first) = of_binary.first_mut() {
                first.insert_str(0, what);
            }
            out.extend(prerequisite.map(|first| first.sentence));
            out.extend(of_binary);
            out.extend(fetch.map(|fetch| format!("or, for all such: {fetch}")));
        }
        out.extend(missing.ends.iter().find_map(|why| match *why {
            Truncation::RunTimeCode => Some(self.run_time_stacks()),
            why => whole_stacks(why),
        }));
        out
    }

    /// The command that gives the binary `file` names with the least effort.
    pub fn for_names(&self, file: &str, build_id: &str, missing: &Missing<'_>) -> Option<String> {
        let Remedies { prerequisite, of_binary, fetch } = self.for_binary(file, build_id, missing);
        // A server needs no root, and helps other binaries, too.
        fetch.or(prerequisite.map(|first| first.brief)).or(of_binary.into_iter().next())
    }

    /// The remedy for stacks that end in run-time code.
    fn run_time_stacks(&self) -> String {
        let remedies: Vec<_> = self.run_times.iter().filter_map(|r| r.whole_stacks()).collect();
        match remedies.as_slice() {
            [] => format!("for whole stacks: {}", run_time::KEEP_FRAME_POINTERS),
            remedies => format!("for whole stacks: {}", remedies.join("; ")),
        }
    }

    fn for_binary(&self, file: &str, build_id: &str, missing: &Missing<'_>) -> Remedies {
        if file.starts_with("[kernel") {
            let hidden = missing.names.then_some("as root: sysctl kernel.kptr_restrict=0");
            return Remedies::of_binary(hidden.into_iter().map(str::to_owned).collect());
        }
        if file.starts_with('[') || file.is_empty() || is_compilers_file(file) {
            return Remedies::default();
        }
        if is_memory(file) {
            let mut names: Vec<_> = self.run_times.iter().map(|r| r.names(None)).collect();
            if names.is_empty() {
                names.push(run_time::WRITE_PERF_MAP.to_owned());
            }
            return Remedies::of_binary(names);
        }
        let package = self.packages.get(file);
        let fetch = package.filter(|p| p.of_distribution).and_then(|_| self.fetch(build_id));
        if let Some(remedy) = self.by_reason(file, build_id, missing) {
            // A package that was replaced by a newer one is still on the server.
            return Remedies { fetch, ..Remedies::of_binary(vec![remedy]) };
        }
        if let Some(package) = package {
            return Remedies { fetch, ..self.of_package(package) };
        }
        let strip = if missing.names { " and do not strip it" } else { "" };
        let id =
            if build_id.is_empty() { "; it has no build ID: link with -Wl,--build-id" } else { "" };
        Remedies::of_binary(vec![format!(
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
    fn of_package(&self, package: &Package) -> Remedies {
        let Package { name, version, maintainer, .. } = package;
        if !package.of_distribution {
            return Remedies::of_binary(vec![format!(
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
        Remedies { prerequisite, ..Remedies::of_binary(vec![remedy]) }
    }
}

/// Whether there is a way to record stacks whole that are truncated for this reason.
pub fn can_be_whole(why: Truncation) -> bool {
    !matches!(
        why,
        Truncation::NoCaller | Truncation::ExceptionDelivery | Truncation::AlternateStack
    )
}

/// The remedy for stacks that are truncated for this reason, as a sentence.
pub fn whole_stacks(why: Truncation) -> Option<String> {
    let remedy = match why {
        Truncation::SmallDump => "prof record -g dwarf,65528 (up to -F 999, the default)",
        Truncation::DumpTooSmall => too_small(os::uid()),
        Truncation::Unreadable => {
            "record again: it was paged out, not yet grown into, or taken down by execve or exit"
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
            "build it with -fasynchronous-unwind-tables or -fno-omit-frame-pointer (Go: without \
             -ldflags=-w)"
        }
        Truncation::DamagedUnwindInfo => "build or install it again: its .eh_frame cannot be read",
        Truncation::Uncovered => {
            "build what ends them with -fasynchronous-unwind-tables or -fno-omit-frame-pointer \
             (assembly: with .cfi_* directives; Go: without -ldflags=-w)"
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
        Truncation::BadReturnAddress
        | Truncation::LostMappings
        | Truncation::TooDeep
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
mod tests {
    use super::*;

    #[test]
    fn root_is_not_advised_to_be_root() {
        assert!(!hidden_mappings(0).contains("root") && !too_small(0).contains("root"));
        assert!(hidden_mappings(1000).contains("record as root"));
    }

    fn of(file: &str, missing: &Missing<'_>) -> Vec<String> {
        Advisor::new(&[file], None).remedies(file, "abc", missing)
    }

    #[test]
    fn a_binary_without_gaps_has_no_remedies() {
        assert!(of("/bin/ls", &Missing::default()).is_empty());
    }

    #[test]
    fn programs_are_built_with_debug_information_and_packages_get_theirs_installed() {
        let missing = Missing {
            names: true,
            lines: true,
            ends: vec![Truncation::SmallDump],
            why: Vec::new(),
        };
        let own = of("/no/such/program", &missing);
        assert!(own[0].contains("-g") && own[0].contains("do not strip"), "{own:?}");
        assert!(own[1].contains("-g dwarf"), "{own:?}");
        let lines = Missing { lines: true, ..Missing::default() };
        let url = "https://symbols.example";
        let add = "apt-get update";
        let mut debian = Advisor {
            profile: Some("x.pb.gz".into()),
            distribution: Distribution {
                servers: Some(Servers::Url(url.to_owned())),
                archive: Archive::Add(add.to_owned()),
            },
            ..Advisor::default()
        };
        let package = |name: &str, of_distribution| Package {
            name: name.to_owned(),
            version: "1.2-3x".to_owned(),
            maintainer: "Their Vendor".to_owned(),
            of_distribution,
        };
        debian.packages.insert("/bin/x".into(), package("dpkg", true));
        assert_eq!(
            debian.remedies("/bin/x", "abc", &lines),
            [
                "once, as root: apt-get update",
                "for source lines: apt-get install dpkg-dbgsym && prof symbolize --force x.pb.gz",
                "or, for all such: prof symbolize --force \
                 --debuginfod=https://symbols.example x.pb.gz"
            ]
        );
        let best = |debian: &Advisor| debian.for_names("/bin/x", "abc", &missing).unwrap();
        assert_eq!(
            best(&debian),
            "prof symbolize --force --debuginfod=https://symbols.example x.pb.gz"
        );
        debian.distribution.servers = Some(Servers::Environment);
        assert_eq!(best(&debian), "prof symbolize --force x.pb.gz --debuginfod");
        debian.distribution.servers = None;
        assert_eq!(
            best(&debian),
            "apt-get install dpkg-dbgsym, once its repository is enabled \
             (prof report --coverage x.pb.gz)"
        );
        debian.distribution.archive = Archive::Unknown;
        let unknown = debian.remedies("/bin/x", "abc", &lines);
        assert!(unknown[0].starts_with("once: enable your distribution's"), "{unknown:?}");
        assert!(unknown[1].contains("apt-get install dpkg-dbgsym"), "{unknown:?}");
        debian.distribution.archive = Archive::Enabled;
        let install = "apt-get install dpkg-dbgsym && prof symbolize --force x.pb.gz";
        assert_eq!(best(&debian), install);
        debian.packages.insert("/bin/x".into(), package("libc6", true));
        let libc = debian.remedies("/bin/x", "", &lines);
        let install = "for source lines: apt-get install libc6-dbg && \
                       prof symbolize --force x.pb.gz";
        assert_eq!(libc, [install]);
        // Debian has no debug symbols of packages from others.
        debian.packages.insert("/bin/x".into(), package("nodejs", false));
        let vendor = debian.remedies("/bin/x", "abc", &lines);
        assert_eq!(
            vendor,
            ["for source lines: the debug symbols of nodejs 1.2-3x come from its vendor (Their \
              Vendor); when they are in a directory: \
              prof symbolize --force --symbol-path DIR x.pb.gz"]
        );
    }

    #[test]
    fn each_compiler_of_run_time_code_has_its_own_advice() {
        let missing =
            Missing { names: true, ends: vec![Truncation::RunTimeCode], ..Missing::default() };
        let of = |binary: &str, memory: &str| {
            Advisor::new(&[binary], None).remedies(memory, "", &missing).join("; ")
        };
        for (binary, memory, remedy) in [
            ("/usr/lib/jvm/lib/server/libjvm.so", "//anon", "-XX:+PreserveFramePointer"),
            ("/usr/bin/php8.2", "/dev/zero", "opcache.jit_debug=0x10"),
            ("/usr/bin/php8.2", "/dev/zero", "opcache.jit=disable"),
            ("/usr/bin/luajit", "//anon", "-joff"),
            ("/usr/bin/node", "//anon", "--perf-basic-prof"),
            ("/opt/other", "//anon", "keep frame pointers"),
        ] {
            let all = of(binary, memory);
            assert!(all.contains(remedy), "{binary}: {all}");
            assert!(!all.contains("-g"), "{binary}: {all}");
            let java =
                binary.contains("jvm") || binary.contains("other") || binary.contains("node");
            assert!(java || !all.contains("java"), "{binary}: {all}");
        }
    }

    #[test]
    fn code_without_unwind_information_is_built_with_it() {
        let missing = Missing { ends: vec![Truncation::Uncovered], ..Missing::default() };
        let all = of("/no/such/program", &missing);
        assert!(all[0].contains("-fasynchronous-unwind-tables"), "{all:?}");
    }

    #[test]
    fn a_recorded_reason_has_a_remedy_of_its_own() {
        let reasons = [
            (Cause::PartMissing("x.dwo".into()), "put the missing file"),
            (Cause::OtherDebugFile("/x.debug".into()), "(build ID abc)"),
            (Cause::FileMissing, "put the recorded build (build ID abc)"),
            (Cause::Changed, "record again"),
            (Cause::Damaged(".debug_line: version 7".into()), "it is damaged"),
        ];
        for (why, way) in reasons {
            let missing = Missing { lines: true, why: vec![&why], ..Missing::default() };
            let found = of("/no/such/program", &missing);
            assert!(found.len() == 1 && found[0].contains(way), "{found:?}");
            assert!(!found[0].contains("-g"), "{found:?}");
        }
    }

    #[test]
    fn a_binary_that_was_replaced_is_searched_for_and_not_built_again() {
        let why = Cause::BuildIdDiffers { found: String::new() };
        let missing = Missing { names: true, lines: true, ends: Vec::new(), why: vec![&why] };
        assert_eq!(
            of("/no/such/program", &missing),
            [
                "for names: put the recorded build (build ID abc) into a directory: record again with \
              --symbol-path DIR"
            ]
        );
    }
}
