//! What would get names, source lines and whole stacks, as commands that a user can type.

use std::process::{Command, Stdio};

use rustc_hash::FxHashMap;

use crate::profile::is_compilers_file;

/// What a binary lacks.
#[derive(Clone, Debug, Default)]
pub struct Missing<'a> {
    /// Some of its frames have no name.
    pub names: bool,
    /// Some of its frames have no source line.
    pub lines: bool,
    /// Why stacks end in it, as [`crate::unwind::StackEnd::reason`] says.
    pub ends: Vec<&'a str>,
}

/// Knows what would help the binaries of a profile.
#[derive(Debug, Default)]
pub struct Advisor {
    /// The profile's file, as a user types it, if there is one.
    profile: Option<String>,
    /// Debian packages by the files in them.
    packages: FxHashMap<String, String>,
    /// The server of this distribution's debug files.
    server: Option<&'static str>,
}

impl Advisor {
    /// For the binaries with these paths, in the profile that a user calls `profile`, if there is
    /// one.
    pub fn new(files: &[&str], profile: Option<String>) -> Advisor {
        let packages = packages(files);
        let os = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        Advisor { profile, packages, server: debuginfod_server(&os) }
    }

    /// Sentences about what would help the binary `file`.
    pub fn remedies(&self, file: &str, build_id: &str, missing: &Missing<'_>) -> Vec<String> {
        let mut out = Vec::new();
        if missing.names || missing.lines {
            let what = if missing.names { "for names" } else { "for source lines" };
            let mut ways = self.names(file, build_id, missing).into_iter();
            out.extend(ways.next().map(|how| format!("{what}: {how}")));
            out.extend(ways);
        }
        out.extend(missing.ends.iter().filter_map(|why| whole_stacks(why)));
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
        if let Some(package) = self.packages.get(file) {
            let (package, needs) = debug_package(package);
            let (then, fetch) = match &self.profile {
                Some(profile) => {
                    let again = |option: &str| format!("prof symbolize --force{option} {profile}");
                    (again(""), self.server.map(|s| again(&format!(" --debuginfod={s}"))))
                }
                None => {
                    let fetch = self.server.map(|s| format!("record with --debuginfod={s}"));
                    ("record again".to_owned(), fetch)
                }
            };
            let install = format!("apt-get install {package}{needs}, then {then}");
            // A server knows a binary by its build id.
            let fetch = fetch
                .filter(|_| !build_id.is_empty())
                .map(|how| format!("or, for all such: {how}"));
            return std::iter::once(install).chain(fetch).collect();
        }
        let strip = if missing.names { " and do not strip it" } else { "" };
        let id =
            if build_id.is_empty() { "; it has no build id: link with -Wl,--build-id" } else { "" };
        vec![format!(
            "build it with -g (Rust: debug = \"line-tables-only\" in [profile.release]){strip}{id}"
        )]
    }
}

/// The packages that these files belong to, as Debian's dpkg knows.
fn packages(files: &[&str]) -> FxHashMap<String, String> {
    // A path that dpkg-query would take for a pattern or an option is no package's.
    let plain = |f: &&&str| f.starts_with('/') && !f.contains(['*', '?', '[', '\\', '\n']);
    // Where /lib is a link to /usr/lib, a package may have its files under either name.
    let merged = |f: &&str| {
        let old = f.strip_prefix("/usr");
        old.filter(|p| p.starts_with("/lib") || p.starts_with("/bin") || p.starts_with("/sbin"))
            .map(str::to_owned)
    };
    let files: Vec<&&str> = files.iter().filter(plain).collect();
    if files.is_empty() {
        return FxHashMap::default();
    }
    let mut ask = Command::new("dpkg-query");
    ask.arg("--search").args(&files).args(files.iter().filter_map(|f| merged(f)));
    // It fails when one of the files is nobody's, and still tells of the others.
    let answer = ask.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let answer = answer.map_or_else(|_| Vec::new(), |o| o.stdout);
    let answer = String::from_utf8_lossy(&answer);
    let owners: FxHashMap<&str, &str> = answer.lines().filter_map(owner).collect();
    let owner_of = |f: &&str| owners.get(*f).copied().or_else(|| owners.get(&*merged(f)?).copied());
    files.iter().filter_map(|f| Some((f.to_string(), owner_of(f)?.to_owned()))).collect()
}

/// A file and its package in a line such as `libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6`.
fn owner(line: &str) -> Option<(&str, &str)> {
    let (packages, file) = line.split_once(": ")?;
    let package = packages.split([',', ':']).next().filter(|p| !p.is_empty())?;
    Some((file, package))
}

/// The server with the debug files of a distribution, by its `os-release`
/// (<https://sourceware.org/elfutils/Debuginfod.html>).
fn debuginfod_server(os_release: &str) -> Option<&'static str> {
    let field = |name: &str| {
        let value = os_release.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='))?;
        Some(value.trim_matches('"'))
    };
    let ids = [field("ID"), field("ID_LIKE")];
    ids.into_iter().flatten().flat_map(str::split_whitespace).find_map(|id| {
        Some(match id {
            "debian" => "https://debuginfod.debian.net",
            "ubuntu" => "https://debuginfod.ubuntu.com",
            "fedora" => "https://debuginfod.fedoraproject.org",
            "centos" => "https://debuginfod.centos.org",
            "arch" => "https://debuginfod.archlinux.org",
            "opensuse" | "opensuse-tumbleweed" => "https://debuginfod.opensuse.org",
            _ => return None,
        })
    })
}

/// The package with the debug information of another, in Debian's archive, and what has to be
/// done first.
fn debug_package(package: &str) -> (String, &'static str) {
    match package {
        "libc6" => ("libc6-dbg".to_owned(), ""),
        _ => (format!("{package}-dbgsym"), " (from the archive debian-debug)"),
    }
}

/// What helps against stacks that end for this reason ([`crate::unwind::StackEnd::reason`]), as a
/// sentence.
pub fn whole_stacks(why: &str) -> Option<String> {
    let how = match why {
        "dump too small" => "prof record -g dwarf,65528, or -g fp if it keeps frame pointers",
        "stack not readable" => "record again: it was paged out, or taken down by execve or exit",
        "no caller on this stack" => {
            "nothing: the stack is a coroutine's, and who resumed it stands on another one"
        }
        "no unwind information" => {
            "build it with -fasynchronous-unwind-tables or -fno-omit-frame-pointer"
        }
        "run-time code without frame pointers" => {
            "start java with -XX:+PreserveFramePointer (node keeps them by itself)"
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
        let missing = Missing { names: true, lines: true, ends: vec!["dump too small"] };
        let own = of("/no/such/program", &missing);
        assert!(own[0].contains("-g") && own[0].contains("do not strip"), "{own:?}");
        assert!(own[1].contains("-g dwarf"), "{own:?}");
        let lines = Missing { lines: true, ..Missing::default() };
        let mut debian = Advisor {
            profile: Some("x.pb.gz".into()),
            server: debuginfod_server("NAME=x\nID=debian\n"),
            ..Advisor::default()
        };
        debian.packages.insert("/bin/x".into(), "dpkg".into());
        assert_eq!(
            debian.remedies("/bin/x", "abc", &lines),
            [
                "for source lines: apt-get install dpkg-dbgsym (from the archive debian-debug), \
                 then prof symbolize --force x.pb.gz",
                "or, for all such: prof symbolize --force \
                 --debuginfod=https://debuginfod.debian.net x.pb.gz"
            ]
        );
        debian.packages.insert("/bin/x".into(), "libc6".into());
        let libc = debian.remedies("/bin/x", "", &lines);
        let install = "for source lines: apt-get install libc6-dbg, then \
                       prof symbolize --force x.pb.gz";
        assert_eq!(libc, [install]);
    }

    #[test]
    fn dpkg_knows_who_owns_what() {
        if Command::new("dpkg-query").arg("--version").output().is_err() {
            println!("skipped: no dpkg here");
            return;
        }
        let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
        let found =
            packages(&["/no/such", "/usr/bin/dpkg", libc, "/bin/*", "-x", "/usr/bin/dpkg "]);
        assert_eq!(found.get("/usr/bin/dpkg").map(String::as_str), Some("dpkg"));
        assert_eq!(found.get(libc).map(String::as_str), Some("libc6"));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(packages(&["[vdso]", "//anon", ""]).is_empty());
    }

    #[test]
    fn distributions_have_servers() {
        assert_eq!(debuginfod_server(""), None);
        let rocky = "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n";
        assert_eq!(debuginfod_server(rocky), Some("https://debuginfod.centos.org"));
    }
}
