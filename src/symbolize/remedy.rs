//! What would get names, source lines and whole stacks, as commands that a user can type.

mod packages;

use rustc_hash::FxHashMap;

use super::outcome::{ANOTHER_BUILD, CHANGED, DAMAGED, FILE_MISSING, MISSING, OTHER_DEBUG_FILE};
use crate::profile::is_compilers_file;
use packages::{Distribution, Package};

/// What a binary lacks.
#[derive(Clone, Debug, Default)]
pub struct Missing<'a> {
    /// Some of its frames have no name.
    pub names: bool,
    /// Some of its frames have no source line.
    pub lines: bool,
    /// Why stacks end in it, as [`crate::unwind::StackEnd::reason`] says.
    pub ends: Vec<&'a str>,
    /// What is known of why there are no names or lines, in the words of [`super::Outcome`].
    pub why: Vec<&'a str>,
}

/// What begins a sentence about something to be done before all else, whatever the binary.
const ONCE: &str = "once, as root: ";

/// Knows what would help the binaries of a profile.
#[derive(Debug, Default)]
pub struct Advisor {
    /// The profile's file, as a user types it, if there is one.
    profile: Option<String>,
    /// Debian packages by the files in them.
    packages: FxHashMap<String, Package>,
    /// Where its packages' debug files are.
    distribution: Distribution,
}

impl Advisor {
    /// For the binaries with these paths, in the profile that a user calls `profile`, if there is
    /// one.
    pub fn new(files: &[&str], profile: Option<String>) -> Advisor {
        let packages = packages::packages(files);
        Advisor { profile, packages, distribution: Distribution::of_this_system() }
    }

    /// Sentences about what would help the binary `file`.
    pub fn remedies(&self, file: &str, build_id: &str, missing: &Missing<'_>) -> Vec<String> {
        let mut out = Vec::new();
        if missing.names || missing.lines {
            let what = if missing.names { "for names: " } else { "for source lines: " };
            let ways = self.names(file, build_id, missing).into_iter();
            let (before, mut ways): (Vec<_>, Vec<_>) = ways.partition(|way| way.starts_with(ONCE));
            if let Some(first) = ways.first_mut() {
                first.insert_str(0, what);
            }
            out.extend(before.into_iter().chain(ways));
        }
        out.extend(missing.ends.iter().find_map(|why| whole_stacks(why)));
        out
    }

    fn names(&self, file: &str, build_id: &str, missing: &Missing<'_>) -> Vec<String> {
        if file.starts_with("[kernel") {
            let hidden = missing.names.then_some("as root: sysctl kernel.kptr_restrict=0");
            return hidden.into_iter().map(str::to_owned).collect();
        }
        if file.starts_with('[') || file.is_empty() || is_compilers_file(file) {
            return Vec::new();
        }
        if !file.starts_with('/') || file.starts_with("//") || file.starts_with("/memfd:") {
            return vec!["let the program write a perf map, /tmp/perf-PID.map".to_owned()];
        }
        if let Some(way) = self.by_reason(file, build_id, missing) {
            // A package that was replaced by a newer one is still on the server.
            let of_distribution = self.packages.get(file).filter(|p| p.of_distribution);
            let fetch = of_distribution.and_then(|_| self.fetch(build_id));
            return std::iter::once(way).chain(fetch).collect();
        }
        if let Some(package) = self.packages.get(file) {
            return self.of_package(package, build_id);
        }
        let strip = if missing.names { " and do not strip it" } else { "" };
        let id =
            if build_id.is_empty() { "; it has no build id: link with -Wl,--build-id" } else { "" };
        vec![format!(
            "build it with -g (Rust: debug = \"line-tables-only\" in [profile.release]){strip}{id}"
        )]
    }

    /// How the distribution's server is asked, which knows a binary by its build id.
    fn fetch(&self, build_id: &str) -> Option<String> {
        let server = self.distribution.server.filter(|_| !build_id.is_empty())?;
        Some(format!("or, for all such: {}", self.again(&format!(" --debuginfod={server}"))))
    }

    /// What helps against a reason that is known, if that is not to install or to build what has
    /// debug information.
    fn by_reason(&self, file: &str, build_id: &str, missing: &Missing<'_>) -> Option<String> {
        let says = |what: &str| missing.why.iter().any(|why| why.contains(what));
        let id = if build_id.is_empty() { "" } else { &format!(" (build id {build_id})") };
        let in_folder = self.again(" --symbol-path FOLDER");
        if says(CHANGED) {
            Some("record again; linked with -Wl,--build-id, builds can be told apart".to_owned())
        } else if says(ANOTHER_BUILD) || says(FILE_MISSING) {
            Some(format!("put the recorded build{id} into a folder: {in_folder}"))
        } else if says(MISSING) {
            Some(format!("put the missing file beside it, or into a folder: {in_folder}"))
        } else if says(OTHER_DEBUG_FILE) {
            let its = "put the debug file of this build";
            Some(format!("{its}{id} in its place, or into a folder: {in_folder}"))
        } else if says(DAMAGED) {
            Some(match self.packages.get(file) {
                Some(package) => format!("apt-get install --reinstall {}", package.name),
                None => "build or copy it anew: it is damaged".to_owned(),
            })
        } else {
            None
        }
    }

    /// How the profile gets its names anew, with this option.
    fn again(&self, option: &str) -> String {
        match &self.profile {
            Some(profile) => format!("prof symbolize --force{option} {profile}"),
            None => format!("record again{}", with(option)),
        }
    }

    /// The commands that get the debug symbols of a package; words stand before and behind them.
    fn of_package(&self, package: &Package, build_id: &str) -> Vec<String> {
        let Package { name, version, maintainer, .. } = package;
        if !package.of_distribution {
            return vec![format!(
                "the debug symbols of {name} {version} come from its vendor ({maintainer}); when \
                 they are in a folder: {}",
                self.again(" --symbol-path FOLDER")
            )];
        }
        let again = self.again("");
        let install = format!("apt-get install {}", package.debug());
        let mut all = vec![match self.profile {
            Some(_) => format!("{install} && {again}"),
            None => format!("{install} (then {again})"),
        }];
        let apart = package.debug_is_apart();
        if let Some(add) = self.distribution.add_archive.as_ref().filter(|_| apart) {
            all.push(format!("{ONCE}{add}"));
        }
        all.extend(self.fetch(build_id));
        all
    }
}

/// An option in a sentence.
fn with(option: &str) -> String {
    if option.is_empty() { String::new() } else { format!(" with{option}") }
}

/// What helps against stacks that end for this reason ([`crate::unwind::StackEnd::reason`]), as a
/// sentence.
pub fn whole_stacks(why: &str) -> Option<String> {
    let how = match why {
        "dump smaller than 65528 bytes" => "prof record -g dwarf,65528 (up to -F 999, the default)",
        "dump too small" => {
            "build it with -fno-omit-frame-pointer and record with -g fp: a dump holds 64 KiB at \
             most, and the rest had changed, or was not readable, a moment later"
        }
        "stack not readable" => {
            "record again: it was paged out, not yet grown into, or taken down by execve or exit"
        }
        "no caller on this stack" => {
            "nothing: the stack is a coroutine's, or of Go's run-time code, and what called it \
             stands on another one"
        }
        "no unwind information" => {
            "build it with -fasynchronous-unwind-tables or -fno-omit-frame-pointer"
        }
        "damaged unwind information" => "build or install it anew: its .eh_frame cannot be read",
        "run-time code without frame pointers" => {
            "start java with -XX:+PreserveFramePointer (node keeps them by itself)"
        }
        "deeper than kernel.perf_event_max_stack" => {
            "as root: sysctl kernel.perf_event_max_stack=1024"
        }
        "mappings not readable" => "record as root, or as the user of the process",
        _ => return None,
    };
    Some(format!("for whole stacks: {how}"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ends: vec!["dump smaller than 65528 bytes"],
            why: Vec::new(),
        };
        let own = of("/no/such/program", &missing);
        assert!(own[0].contains("-g") && own[0].contains("do not strip"), "{own:?}");
        assert!(own[1].contains("-g dwarf"), "{own:?}");
        let lines = Missing { lines: true, ..Missing::default() };
        let (server, add) = ("https://debuginfod.debian.net", "apt-get update");
        let mut debian = Advisor {
            profile: Some("x.pb.gz".into()),
            distribution: Distribution { server: Some(server), add_archive: Some(add.to_owned()) },
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
                 --debuginfod=https://debuginfod.debian.net x.pb.gz"
            ]
        );
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
              Vendor); when they are in a folder: \
              prof symbolize --force --symbol-path FOLDER x.pb.gz"]
        );
    }

    #[test]
    fn what_is_known_to_be_wrong_is_put_right() {
        let reasons = [
            ("9 of 9 addresses: its debug file x.dwo is missing", "put the missing file"),
            ("9 of 9 addresses: its debug file /x.debug is of another build", "(build id abc)"),
            ("9 of 9 addresses: the file is not there", "put the recorded build (build id abc)"),
            (
                "1 of 9 addresses: the file was changed or replaced since it was recorded",
                "record again",
            ),
            ("9 of 9 addresses: damaged: .debug_line: version 7", "it is damaged"),
        ];
        for (why, way) in reasons {
            let missing = Missing { lines: true, why: vec![why], ..Missing::default() };
            let found = of("/no/such/program", &missing);
            assert!(found.len() == 1 && found[0].contains(way), "{found:?}");
            assert!(!found[0].contains("-g"), "{found:?}");
        }
    }

    #[test]
    fn a_binary_that_was_replaced_is_put_aside_and_not_built_anew() {
        let why = "12 of 12 addresses: the file is another build than the recorded one (it has \
                   no build id)";
        let missing = Missing { names: true, lines: true, ends: Vec::new(), why: vec![why] };
        assert_eq!(
            of("/no/such/program", &missing),
            ["for names: put the recorded build (build id abc) into a folder: record again with \
              --symbol-path FOLDER"]
        );
    }
}
