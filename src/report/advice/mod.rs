//! What would get names, source lines and whole stacks, as commands that a user can type.

pub mod binaries;
mod packages;

use rustc_hash::FxHashMap;

use packages::{Archive, Distribution, Package, Servers};
use profile::{Cause, Truncation};
use sys::jit::file_names::is_compilers_file;
use sys::os;

/// What a binary lacks.
#[derive(Clone, Debug, Default)]
pub struct Missing<'a> {
    /// Some of its frames have no name.
    pub names: bool,
    /// Some of its frames have no source line.
    pub lines: bool,
    /// Why stacks end in it.
    pub ends: Vec<Truncation>,
    /// What is known of why there are no names or lines.
    pub why: Vec<&'a Cause>,
}

/// What gives a binary names, or source lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ways {
    /// What is to be done before all else, whatever the binary.
    once: Option<Once>,
    /// What helps this binary; the first is the best.
    of_binary: Vec<String>,
    /// A command that helps all such binaries.
    fetch: Option<String>,
}

/// What is to be done once.
#[derive(Debug, PartialEq, Eq)]
struct Once {
    /// As a sentence.
    sentence: String,
    /// That and the way that it opens, in short.
    brief: String,
}

impl Ways {
    fn of_binary(ways: Vec<String>) -> Ways {
        Ways { of_binary: ways, ..Ways::default() }
    }
}

/// Knows what would help the binaries of a profile.
#[derive(Debug, Default)]
pub struct Advisor {
    /// The profile's file, as a user types it, if there is one.
    profile: Option<String>,
    /// Debian packages by the files in them.
    packages: FxHashMap<String, Package>,
    /// Where its packages' debug files are.
    distribution: Distribution,
    /// What makes code at run time among the binaries.
    run_times: Vec<RunTime>,
}

/// A program or library that makes code at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RunTime {
    Java,
    Node,
    Php,
    LuaJit,
}

impl RunTime {
    /// The one that a binary is.
    fn of(file: &str) -> Option<RunTime> {
        let name = file.rsplit('/').next().unwrap_or(file);
        let begins = |with: &[&str]| with.iter().any(|w| name.starts_with(w));
        Some(match () {
            () if begins(&["libjvm.so"]) => RunTime::Java,
            () if begins(&["libnode.so"]) || name == "node" => RunTime::Node,
            () if begins(&["opcache.so", "php", "libphp"]) => RunTime::Php,
            () if begins(&["luajit", "libluajit"]) => RunTime::LuaJit,
            () => return None,
        })
    }

    /// What makes its stacks whole, if anything does.
    fn whole_stacks(self) -> Option<&'static str> {
        match self {
            RunTime::Java => Some("start java with -XX:+PreserveFramePointer"),
            // Its code keeps frame pointers.
            RunTime::Node => None,
            RunTime::Php => Some(
                "run php with -d opcache.jit=disable: the code that its compiler makes keeps no \
                 frame pointers",
            ),
            RunTime::LuaJit => Some(
                "run luajit with -joff: the code that its compiler makes keeps no frame pointers",
            ),
        }
    }

    /// What gives its code names, if anything does.
    fn names(self) -> Option<&'static str> {
        match self {
            RunTime::Java => Some(
                "start java with -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit, or before \
                 the recording ends (Java 17 or newer): jcmd PID Compiler.perfmap",
            ),
            RunTime::Node => Some("start node with --perf-basic-prof"),
            RunTime::Php => Some("run php with -d opcache.jit_debug=0x10"),
            RunTime::LuaJit => None,
        }
    }
}

/// The file stands for memory in which code was made.
pub fn is_memory(file: &str) -> bool {
    const ELSEWHERE: [&str; 5] = ["//", "/memfd:", "/dev/", "/SYSV", "/anon_hugepage"];
    !file.starts_with('/') || ELSEWHERE.iter().any(|prefix| file.starts_with(prefix))
}

impl Advisor {
    /// For the binaries with these paths, in the profile that a user calls `profile`, if there is
    /// one.
    pub fn new(files: &[&str], profile: Option<String>) -> Advisor {
        let packages = packages::packages(files);
        let mut run_times: Vec<_> = files.iter().filter_map(|f| RunTime::of(f)).collect();
        run_times.sort_unstable();
        run_times.dedup();
        Advisor { profile, packages, distribution: Distribution::of_this_system(), run_times }
    }

    /// Sentences about what would help the binary `file`.
    pub fn remedies(&self, file: &str, build_id: &str, missing: &Missing<'_>) -> Vec<String> {
        let mut out = Vec::new();
        if missing.names || missing.lines {
            let what = if missing.names { "for names: " } else { "for source lines: " };
            let Ways { once, mut of_binary, fetch } = self.ways(file, build_id, missing);
            if let Some(first) = of_binary.first_mut() {
                first.insert_str(0, what);
            }
            out.extend(once.map(|once| once.sentence));
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
        let Ways { once, of_binary, fetch } = self.ways(file, build_id, missing);
        // A server needs no rights of root, and helps other binaries, too.
        fetch.or(once.map(|once| once.brief)).or(of_binary.into_iter().next())
    }

    /// What helps against stacks that end in code made at run time.
    fn run_time_stacks(&self) -> String {
        let known: Vec<_> = self.run_times.iter().filter_map(|r| r.whole_stacks()).collect();
        match known.is_empty() {
            true => format!("for whole stacks: {KEEP_POINTERS}"),
            false => format!("for whole stacks: {}", known.join("; ")),
        }
    }

    fn ways(&self, file: &str, build_id: &str, missing: &Missing<'_>) -> Ways {
        if file.starts_with("[kernel") {
            let hidden = missing.names.then_some("as root: sysctl kernel.kptr_restrict=0");
            return Ways::of_binary(hidden.into_iter().map(str::to_owned).collect());
        }
        if file.starts_with('[') || file.is_empty() || is_compilers_file(file) {
            return Ways::default();
        }
        if is_memory(file) {
            let known: Vec<_> = self.run_times.iter().filter_map(|r| r.names()).collect();
            return Ways::of_binary(match known.is_empty() {
                true => vec!["let the program write a perf map, /tmp/perf-PID.map".to_owned()],
                false => known.into_iter().map(str::to_owned).collect(),
            });
        }
        let package = self.packages.get(file);
        let fetch = package.filter(|p| p.of_distribution).and_then(|_| self.fetch(build_id));
        if let Some(way) = self.by_reason(file, build_id, missing) {
            // A package that was replaced by a newer one is still on the server.
            return Ways { fetch, ..Ways::of_binary(vec![way]) };
        }
        if let Some(package) = package {
            return Ways { fetch, ..self.of_package(package) };
        }
        let strip = if missing.names { " and do not strip it" } else { "" };
        let id =
            if build_id.is_empty() { "; it has no build id: link with -Wl,--build-id" } else { "" };
        Ways::of_binary(vec![format!(
            "build it with -g (Rust: debug = \"line-tables-only\" in [profile.release]){strip}{id}"
        )])
    }

    /// How the server that this machine is configured for is asked, which knows a binary by its
    /// build id.
    fn fetch(&self, build_id: &str) -> Option<String> {
        let servers = self.distribution.servers.as_ref().filter(|_| !build_id.is_empty())?;
        Some(match servers {
            Servers::Environment => match &self.profile {
                // Last, as it may be followed by a URL.
                Some(profile) => format!("prof symbolize --force {profile} --debuginfod"),
                None => "record again with --debuginfod".to_owned(),
            },
            Servers::Url(url) => self.again(&format!(" --debuginfod={url}")),
        })
    }

    /// What helps against a reason that is known, if that is not to install or to build what has
    /// debug information.
    fn by_reason(&self, file: &str, build_id: &str, missing: &Missing<'_>) -> Option<String> {
        let id = if build_id.is_empty() { "" } else { &format!(" (build id {build_id})") };
        let in_directory = self.again(" --symbol-path DIR");
        missing.why.iter().find_map(|cause| match cause {
            Cause::Changed => Some(
                "record again; linked with -Wl,--build-id, builds can be told apart".to_owned(),
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

    /// How the profile gets its names anew, with this option.
    fn again(&self, option: &str) -> String {
        match &self.profile {
            Some(profile) => format!("prof symbolize --force{option} {profile}"),
            None => format!("record again{}", with(option)),
        }
    }

    /// The commands that get the debug symbols of a package.
    fn of_package(&self, package: &Package) -> Ways {
        let Package { name, version, maintainer, .. } = package;
        if !package.of_distribution {
            return Ways::of_binary(vec![format!(
                "the debug symbols of {name} {version} come from its vendor ({maintainer}); when \
                 they are in a directory: {}",
                self.again(" --symbol-path DIR")
            )]);
        }
        let again = self.again("");
        let install = format!("apt-get install {}", package.debug());
        let once = match &self.distribution.archive {
            _ if !package.debug_is_apart() => None,
            Archive::Enabled => None,
            Archive::Add(command) => Some(format!("once, as root: {command}")),
            Archive::Unknown => Some(
                "once: enable your distribution's repository of debug symbols (apt: suites that \
                 end in -debug)"
                    .to_owned(),
            ),
        };
        let once = once.map(|sentence| {
            let how = match &self.profile {
                Some(profile) => format!("prof report --coverage {profile}"),
                None => "-v shows how".to_owned(),
            };
            let brief = format!("{install}, once its repository is enabled ({how})");
            Once { sentence, brief }
        });
        let way = match self.profile {
            Some(_) => format!("{install} && {again}"),
            None => format!("{install} (then {again})"),
        };
        Ways { once, ..Ways::of_binary(vec![way]) }
    }
}

/// An option in a sentence.
fn with(option: &str) -> String {
    if option.is_empty() { String::new() } else { format!(" with{option}") }
}

/// What helps against stacks that end there, whatever has made it.
const KEEP_POINTERS: &str = "let the compiler of the run-time code keep frame pointers (java: \
                             -XX:+PreserveFramePointer), or run without it";

/// Whether stacks that are truncated for this reason can be had whole.
pub fn can_be_whole(why: Truncation) -> bool {
    !matches!(
        why,
        Truncation::NoCaller | Truncation::ExceptionDelivery | Truncation::AlternateStack
    )
}

/// What helps against stacks that are truncated for this reason, as a sentence.
pub fn whole_stacks(why: Truncation) -> Option<String> {
    let how = match why {
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
        Truncation::NoUnwindInfo => {
            "build it with -fasynchronous-unwind-tables or -fno-omit-frame-pointer (Go: without \
             -ldflags=-w)"
        }
        Truncation::DamagedUnwindInfo => "build or install it anew: its .eh_frame cannot be read",
        Truncation::Uncovered => {
            "build what ends them with -fasynchronous-unwind-tables or -fno-omit-frame-pointer \
             (assembly: with .cfi_* directives; Go: without -ldflags=-w)"
        }
        Truncation::AlternateStack => {
            "nothing: what the handler interrupted is on a stack that was not copied"
        }
        Truncation::RunTimeCode => KEEP_POINTERS,
        Truncation::ChainTooDeep => "as root: sysctl kernel.perf_event_max_stack=1024",
        Truncation::HiddenMappings => hidden_mappings(os::uid()),
        Truncation::BadReturnAddress
        | Truncation::LostMappings
        | Truncation::TooDeep
        | Truncation::Compat => return None,
    };
    Some(format!("for whole stacks: {how}"))
}

/// What helps this user against stacks that are deeper than what was copied.
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

/// What helps this user where the mappings of processes could not be read.
fn hidden_mappings(user: u32) -> &'static str {
    match user {
        0 => "begin to record before the processes do: these had ended when prof looked at them",
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
    fn what_lacks_nothing_needs_nothing() {
        assert!(of("/bin/ls", &Missing::default()).is_empty());
    }

    #[test]
    fn one_s_own_program_is_built_otherwise_and_a_package_s_is_installed() {
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
        let (url, add) = ("https://symbols.example", "apt-get update");
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
        // Debian has no debug symbols of what others have built.
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
        for (binary, memory, says) in [
            ("/usr/lib/jvm/lib/server/libjvm.so", "//anon", "-XX:+PreserveFramePointer"),
            ("/usr/bin/php8.2", "/dev/zero", "opcache.jit_debug=0x10"),
            ("/usr/bin/php8.2", "/dev/zero", "opcache.jit=disable"),
            ("/usr/bin/luajit", "//anon", "-joff"),
            ("/usr/bin/node", "//anon", "--perf-basic-prof"),
            ("/opt/other", "//anon", "keep frame pointers"),
        ] {
            let all = of(binary, memory);
            assert!(all.contains(says), "{binary}: {all}");
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
    fn what_is_known_to_be_wrong_is_put_right() {
        let reasons = [
            (Cause::PartMissing("x.dwo".into()), "put the missing file"),
            (Cause::OtherDebugFile("/x.debug".into()), "(build id abc)"),
            (Cause::FileMissing, "put the recorded build (build id abc)"),
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
    fn a_binary_that_was_replaced_is_put_aside_and_not_built_anew() {
        let why = Cause::BuildIdDiffers { found: String::new() };
        let missing = Missing { names: true, lines: true, ends: Vec::new(), why: vec![&why] };
        assert_eq!(
            of("/no/such/program", &missing),
            [
                "for names: put the recorded build (build id abc) into a directory: record again with \
              --symbol-path DIR"
            ]
        );
    }
}
