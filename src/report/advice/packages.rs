//! Which packages binaries belong to, who made these, and where their debug symbols are.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use sys::os;

/// A package of dpkg's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Who keeps it, without the address.
    pub maintainer: String,
    /// It is the distribution's own, whose archive has its debug symbols.
    pub of_distribution: bool,
}

impl Package {
    /// The package with its debug information.
    pub fn debug(&self) -> String {
        match self.name.as_str() {
            "libc6" => "libc6-dbg".to_owned(),
            name => format!("{name}-dbgsym"),
        }
    }

    /// That one is in an archive of its own.
    pub fn debug_is_apart(&self) -> bool {
        self.name != "libc6"
    }
}

/// The packages of these files.
pub fn packages(files: &[&str]) -> FxHashMap<String, Package> {
    let owners = owners(files);
    let names: FxHashSet<&str> = owners.values().map(String::as_str).collect();
    let mut known = described(&names);
    let doubtful: Vec<&str> =
        known.values().filter(|p| !p.of_distribution).map(|p| p.name.as_str()).collect();
    let in_archive = in_archive(&doubtful);
    for package in known.values_mut() {
        package.of_distribution |= in_archive.contains(&package.name);
    }
    let of = |(file, name): (String, String)| Some((file, known.get(&name)?.clone()));
    owners.into_iter().filter_map(of).collect()
}

/// The packages that these files belong to, as Debian's dpkg knows.
fn owners(files: &[&str]) -> FxHashMap<String, String> {
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
    let answer = said(&mut ask);
    let owners: FxHashMap<&str, &str> = answer.lines().filter_map(owner).collect();
    let owner_of = |f: &&str| owners.get(*f).copied().or_else(|| owners.get(&*merged(f)?).copied());
    files.iter().filter_map(|f| Some((f.to_string(), owner_of(f)?.to_owned()))).collect()
}

/// How long a package manager is waited for: what it knows is good to have and no more.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most bytes of its answer.
const MAX_ANSWER: u64 = 16 << 20;

/// What a command says; empty when it cannot be run, or takes too long.
fn said(command: &mut Command) -> String {
    said_within(PATIENCE, command)
}

fn said_within(time: Duration, command: &mut Command) -> String {
    command.env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    let Ok(mut child) = command.process_group(0).spawn() else { return String::new() };
    let Some(output) = child.stdout.take() else { return String::new() };
    let (sender, answer) = mpsc::channel();
    let read = move || {
        let mut bytes = Vec::new();
        let whole = output.take(MAX_ANSWER).read_to_end(&mut bytes);
        // Nobody waits any more, perhaps.
        let _ = sender.send(whole.map_or_else(|_| Vec::new(), |_| bytes));
    };
    let reads = std::thread::Builder::new().spawn(read).is_ok();
    let answer = if reads { answer.recv_timeout(time).unwrap_or_default() } else { Vec::new() };
    // With all that it has started. It has not been waited for, so the number is still its own.
    let _ = os::kill(-(child.id() as i32), libc::SIGKILL);
    let _ = child.wait();
    String::from_utf8_lossy(&answer).into_owned()
}

/// A file and its package in a line such as `libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6`.
fn owner(line: &str) -> Option<(&str, &str)> {
    let (packages, file) = line.split_once(": ")?;
    let package = packages.split([',', ':']).next().filter(|p| !p.is_empty())?;
    Some((file, package))
}

/// The packages with these names. Those that look like the distribution's are taken for it.
fn described(names: &FxHashSet<&str>) -> FxHashMap<String, Package> {
    if names.is_empty() {
        return FxHashMap::default();
    }
    let mut ask = Command::new("dpkg-query");
    ask.args(["-W", "-f", "${Package}\t${Version}\t${Maintainer}\n"]).args(names);
    let answer = said(&mut ask);
    let package = |line: &str| {
        let [name, version, maintainer] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
        let package = Package {
            name: name.to_owned(),
            version: version.to_owned(),
            maintainer: maintainer.split('<').next().unwrap_or_default().trim().to_owned(),
            of_distribution: looks_distributed(version, maintainer),
        };
        Some((package.name.clone(), package))
    };
    answer.lines().filter_map(package).collect()
}

/// The people and the version are such as Debian and Ubuntu have them. Without that, the package
/// may still be theirs, which [`in_archive`] knows, at some cost.
fn looks_distributed(version: &str, maintainer: &str) -> bool {
    let host = maintainer.rsplit('@').next().unwrap_or_default().trim_end_matches('>');
    let of = |name: &str| host.strip_suffix(name).is_some_and(|h| h.is_empty() || h.ends_with('.'));
    let people =
        ["debian.org", "debian.net", "ubuntu.com", "launchpad.net", "canonical.com"].map(of);
    // What follows the last dash is the packagers': `9+deb12u14`, `2ubuntu1.4`, `1~bpo12+1`,
    // but also `1.pgdg120+1` or `1nodesource1`.
    let revision = version.rsplit_once('-').map_or("", |(_, revision)| revision);
    let mut words = revision.split(|c: char| !c.is_ascii_alphabetic()).filter(|w| !w.is_empty());
    let known = ["deb", "u", "ubuntu", "build", "b", "bpo", "nmu", "exp", "e"];
    people.contains(&true) && words.all(|word| known.contains(&word))
}

/// Those of the packages whose installed version is in an archive of Debian's or Ubuntu's, as far
/// as apt knows.
fn in_archive(packages: &[&str]) -> FxHashSet<String> {
    if packages.is_empty() {
        return FxHashSet::default();
    }
    let archives = said(Command::new("apt-cache").arg("policy"));
    let archives = distribution_archives(&archives);
    let versions = said(Command::new("apt-cache").arg("policy").args(packages));
    installed_from(&versions, &archives)
}

/// The archives of Debian and Ubuntu in what `apt-cache policy` says, as it calls them.
fn distribution_archives(policy: &str) -> FxHashSet<&str> {
    let mut archives = FxHashSet::default();
    let mut last = "";
    for line in policy.lines() {
        let line = line.trim();
        let origin =
            line.strip_prefix("release ").map(|r| r.split(',').find(|f| f.starts_with("o=")));
        match origin {
            Some(Some("o=Debian" | "o=Ubuntu")) => _ = archives.insert(last),
            Some(_) => {}
            None => last = archive(line),
        }
    }
    archives
}

/// `500 http://deb.debian.org/debian bookworm/main amd64 Packages` without the number.
fn archive(line: &str) -> &str {
    line.split_once(' ').map_or("", |(_, archive)| archive)
}

/// Packages whose installed version (`***`) `apt-cache policy NAME…` finds in one of `archives`.
fn installed_from(policy: &str, archives: &FxHashSet<&str>) -> FxHashSet<String> {
    let mut found = FxHashSet::default();
    let (mut package, mut installed) = ("", false);
    for line in policy.lines() {
        let depth = line.len() - line.trim_start().len();
        match depth {
            0 => (package, installed) = (line.trim_end_matches(':'), false),
            // A version stands four columns before its archives.
            1..=5 => installed = line.trim_start().starts_with("***"),
            _ if installed && archives.contains(archive(line.trim())) => {
                found.insert(package.to_owned());
            }
            _ => {}
        }
    }
    found
}

/// The distribution, by its `os-release`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// The server of its debug files.
    pub server: Option<&'static str>,
    /// What makes its archive of debug symbols known to apt, unless it is.
    pub add_archive: Option<String>,
}

impl Distribution {
    /// That which runs.
    pub fn of_this_system() -> Distribution {
        let os = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        Distribution::of(&os, &apt_sources(Path::new("/etc/apt")))
    }

    /// That with this `os-release`, whose apt has these sources.
    fn of(os_release: &str, sources: &str) -> Distribution {
        let add_archive = add_archive(os_release).filter(|_| !has_debug_archive(sources));
        Distribution { server: debuginfod_server(os_release), add_archive }
    }
}

fn field<'a>(os_release: &'a str, name: &str) -> Option<&'a str> {
    let value = os_release.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim_matches('"'))
}

/// The server with the debug files of a distribution
/// (<https://sourceware.org/elfutils/Debuginfod.html>).
fn debuginfod_server(os_release: &str) -> Option<&'static str> {
    let ids = ["ID", "ID_LIKE"].map(|name| field(os_release, name));
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

/// The command that makes the archive of debug symbols known: of Debian
/// (<https://wiki.debian.org/AutomaticDebugPackages>; those of security updates are in
/// `proposed-updates`) or of Ubuntu (<https://documentation.ubuntu.com/server/reference/debugging/debug-symbol-packages/>).
fn add_archive(os_release: &str) -> Option<String> {
    // It goes into a command.
    let name = |f| field(os_release, f).filter(|n| n.bytes().all(|b| b.is_ascii_lowercase()));
    let lines = |line: &str, suites: [String; 2], file: &str| {
        let [first, second] = suites;
        format!(
            "printf 'deb {line}\\n' {first} {second} > /etc/apt/sources.list.d/{file}.list && \
             apt-get update"
        )
    };
    if let Some(codename) = name("UBUNTU_CODENAME") {
        let suites = [codename.to_owned(), format!("{codename}-updates")];
        let line = "http://ddebs.ubuntu.com %s main restricted universe multiverse";
        let add = lines(line, suites, "ddebs");
        return Some(format!("apt-get install ubuntu-dbgsym-keyring && {add}"));
    }
    let codename =
        name("VERSION_CODENAME").filter(|_| field(os_release, "ID") == Some("debian"))?;
    let suites = ["", "-proposed-updates"].map(|part| format!("{codename}{part}-debug"));
    Some(lines("http://deb.debian.org/debian-debug %s main", suites, "debug"))
}

/// Everything that apt's lists of sources say.
fn apt_sources(apt: &Path) -> String {
    let mut files = vec![apt.join("sources.list")];
    let more = std::fs::read_dir(apt.join("sources.list.d")).into_iter().flatten().flatten();
    files.extend(
        more.map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|e| e == "list" || e == "sources")),
    );
    let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    texts.flat_map(|text| [text, "\n".to_owned()]).collect()
}

fn has_debug_archive(sources: &str) -> bool {
    let lines = sources.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.flat_map(str::split_whitespace).any(|word| {
        word.contains("/debian-debug") || word.contains("//ddebs.") || word.ends_with("-debug")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_manager_that_hangs_is_ended() {
        let mut shell = Command::new("sh");
        let said =
            said_within(Duration::from_millis(50), shell.args(["-c", "sleep 600 & sleep 600"]));
        assert_eq!(said, "");
        let mut shell = Command::new("sh");
        let said = said_within(Duration::from_secs(60), shell.args(["-c", "echo libc6; exit 1"]));
        assert_eq!(said, "libc6\n");
    }

    const POLICY: &str = "Package files:
 100 /var/lib/dpkg/status
     release a=now
 500 https://node.example/node_20.x nodistro/main amd64 Packages
     release o=. nodistro,a=nodistro,n=nodistro,l=. nodistro,c=main,b=amd64
     origin node.example
 500 http://deb.debian.org/debian bookworm/main amd64 Packages
     release v=12.13,o=Debian,a=stable,n=bookworm,l=Debian,c=main,b=amd64
     origin deb.debian.org
";

    const VERSIONS: &str = "nodejs:
  Installed: 20.20.2-1nodesource1
  Candidate: 20.20.2-1nodesource1
  Version table:
 *** 20.20.2-1nodesource1 500
        500 https://node.example/node_20.x nodistro/main amd64 Packages
        100 /var/lib/dpkg/status
     18.20.4+dfsg-1~deb12u1 500
        500 http://deb.debian.org/debian bookworm/main amd64 Packages
git:
  Installed: 1:2.39.5-0+deb12u2
  Version table:
     1:2.39.5-0+deb12u3 500
        500 http://other.example/debian bookworm/main amd64 Packages
 *** 1:2.39.5-0+deb12u2 500
        500 http://deb.debian.org/debian bookworm/main amd64 Packages
        100 /var/lib/dpkg/status
";

    #[test]
    fn apt_knows_which_versions_are_the_distribution_s() {
        let archives = distribution_archives(POLICY);
        assert_eq!(archives.len(), 1, "{archives:?}");
        let found = installed_from(VERSIONS, &archives);
        assert_eq!(found, FxHashSet::from_iter(["git".to_owned()]));
    }

    #[test]
    fn packages_of_others_do_not_look_distributed() {
        let libc = "GNU Libc Maintainers <debian-glibc@lists.debian.org>";
        assert!(looks_distributed("2.36-9+deb12u14", libc));
        assert!(looks_distributed("5:7.0.15-1~deb12u10", "Chris Lamb <lamby@debian.org>"));
        let ubuntu = "Ubuntu Developers <ubuntu-devel-discuss@lists.ubuntu.com>";
        assert!(looks_distributed("2.35-0ubuntu3.8", ubuntu));
        assert!(looks_distributed("1.21.22", "Dpkg Developers <debian-dpkg@lists.debian.org>"));
        let node = "NodeSource Support <support@nodesource.com>";
        assert!(!looks_distributed("20.20.2-1nodesource1", node));
        assert!(!looks_distributed("20.20.2-1", "Someone <a@notdebian.org>"));
        assert!(!looks_distributed("15.6-1.pgdg120+1", "Team <team@tracker.debian.org>"));
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
        let dpkg = &found["/usr/bin/dpkg"];
        assert_eq!((dpkg.name.as_str(), dpkg.of_distribution), ("dpkg", true), "{dpkg:?}");
        assert!(!dpkg.version.is_empty() && !dpkg.maintainer.contains('@'), "{dpkg:?}");
        let libc = &found[libc];
        assert_eq!((libc.name.as_str(), libc.of_distribution), ("libc6", true), "{libc:?}");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(packages(&["[vdso]", "//anon", ""]).is_empty());
    }

    #[test]
    fn distributions_have_servers_and_archives() {
        assert_eq!(Distribution::of("", ""), Distribution::default());
        let rocky = "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n";
        let rocky = Distribution::of(rocky, "");
        assert_eq!(rocky.server, Some("https://debuginfod.centos.org"));
        assert_eq!(rocky.add_archive, None);
        let debian = "ID=debian\nVERSION_CODENAME=bookworm\n";
        let add = "printf 'deb http://deb.debian.org/debian-debug %s main\\n' bookworm-debug \
                   bookworm-proposed-updates-debug > /etc/apt/sources.list.d/debug.list && \
                   apt-get update";
        assert_eq!(Distribution::of(debian, "").add_archive.as_deref(), Some(add));
        let ubuntu = "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\nUBUNTU_CODENAME=noble\n";
        let add = Distribution::of(ubuntu, "").add_archive.unwrap();
        assert!(add.contains("ddebs.ubuntu.com") && add.contains(" noble noble-updates "), "{add}");
        let odd = "ID=debian\nVERSION_CODENAME=\"x; rm -rf\"\n";
        assert_eq!(Distribution::of(odd, "").add_archive, None);
    }

    #[test]
    fn an_archive_that_apt_knows_is_not_added() {
        let old = "deb http://deb.debian.org/debian-debug bookworm-debug main\n";
        assert!(has_debug_archive(old));
        assert!(!has_debug_archive(&format!("# {old}")));
        let new = "Types: deb\nURIs: http://x.example/debian\nSuites: bookworm bookworm-debug\n";
        assert!(has_debug_archive(new));
        assert!(!has_debug_archive("deb http://deb.debian.org/debian bookworm main\n"));
        assert!(has_debug_archive("deb http://ddebs.ubuntu.com noble main\n"));
        let apt = tempfile::tempdir().unwrap();
        std::fs::create_dir(apt.path().join("sources.list.d")).unwrap();
        std::fs::write(apt.path().join("sources.list.d/debug.list"), old).unwrap();
        std::fs::write(apt.path().join("sources.list.d/x.list.save"), "ddebs").unwrap();
        assert!(apt_sources(apt.path()).contains(old));
        assert!(!apt_sources(apt.path()).contains("ddebs"));
    }
}
