//! The packages of binaries, their vendors, and the sources of their debug symbols.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
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
    /// Its maintainer, without the address.
    pub maintainer: String,
    /// It belongs to the distribution, whose archive has its debug symbols.
    pub is_distributed: bool,
}

impl Package {
    /// The package with its debug information.
    pub fn debug(&self) -> String {
        match self.name.as_str() {
            "libc6" => "libc6-dbg".to_owned(),
            name => format!("{name}-dbgsym"),
        }
    }

    /// Whether the package with its debug information is in a separate archive.
    pub fn has_debug_archive(&self) -> bool {
        self.name != "libc6"
    }
}

/// The packages of these files.
pub fn packages(files: &[&str]) -> FxHashMap<String, Package> {
    let owners = owners(files);
    let names: FxHashSet<&str> = owners.values().map(String::as_str).collect();
    let mut installed = described(&names);
    let doubtful: Vec<&str> =
        installed.values().filter(|p| !p.is_distributed).map(|p| p.name.as_str()).collect();
    let in_archive = in_archive(&doubtful);
    for package in installed.values_mut() {
        package.is_distributed |= in_archive.contains(&package.name);
    }
    let with_package = |(file, name): (String, String)| Some((file, installed.get(&name)?.clone()));
    owners.into_iter().filter_map(with_package).collect()
}

/// The packages of these files in the database of Debian's dpkg.
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
    let mut query = Command::new("dpkg-query");
    query.arg("--search").args(&files).args(files.iter().filter_map(|f| merged(f)));
    // It fails when one of the files belongs to no package, and still prints the others.
    let output = output_of(&mut query);
    let owners: FxHashMap<&str, &str> = output.lines().filter_map(owner).collect();
    let owner_of = |f: &&str| owners.get(*f).copied().or_else(|| owners.get(&*merged(f)?).copied());
    files.iter().filter_map(|f| Some((f.to_string(), owner_of(f)?.to_owned()))).collect()
}

/// Time limit of a package manager: its output is useful, but not necessary.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Most bytes of its output that are read.
const MAX_OUTPUT: u64 = 16 << 20;

/// The output of a command; empty when it cannot be run, or takes too long.
fn output_of(command: &mut Command) -> String {
    output_within(TIMEOUT, command)
}

fn output_within(time: Duration, command: &mut Command) -> String {
    command.env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    let Ok(mut child) = command.process_group(0).spawn() else { return String::new() };
    let Some(output) = child.stdout.take() else { return String::new() };
    let (sender, receiver) = mpsc::channel();
    let read = move || {
        let mut bytes = Vec::new();
        let whole = output.take(MAX_OUTPUT).read_to_end(&mut bytes);
        // The receiver is gone after the time limit.
        let _ = sender.send(whole.map_or_else(|_| Vec::new(), |_| bytes));
    };
    let reads = std::thread::Builder::new().spawn(read).is_ok();
    let bytes = if reads { receiver.recv_timeout(time).unwrap_or_default() } else { Vec::new() };
    // With all its children. It was not reaped yet, so the PID is still its own.
    let _ = os::kill(-(child.id() as i32), libc::SIGKILL);
    let _ = child.wait();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A file and its package in a line such as `libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6`.
fn owner(line: &str) -> Option<(&str, &str)> {
    let (packages, file) = line.split_once(": ")?;
    let package = packages.split([',', ':']).next().filter(|p| !p.is_empty())?;
    Some((file, package))
}

/// The packages with these names. A package belongs to the distribution if its version and
/// maintainer have the distribution's form.
fn described(names: &FxHashSet<&str>) -> FxHashMap<String, Package> {
    if names.is_empty() {
        return FxHashMap::default();
    }
    let mut query = Command::new("dpkg-query");
    query.args(["-W", "-f", "${Package}\t${Version}\t${Maintainer}\n"]).args(names);
    let output = output_of(&mut query);
    let package = |line: &str| {
        let [name, version, maintainer] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
        let package = Package {
            name: name.to_owned(),
            version: version.to_owned(),
            maintainer: maintainer.split('<').next().unwrap_or_default().trim().to_owned(),
            is_distributed: looks_distributed(version, maintainer),
        };
        Some((package.name.clone(), package))
    };
    output.lines().filter_map(package).collect()
}

/// Whether the maintainer and the version have the form of Debian's and Ubuntu's. Others may be
/// theirs, too, which [`in_archive`] finds out at some cost.
fn looks_distributed(version: &str, maintainer: &str) -> bool {
    let host = maintainer.rsplit('@').next().unwrap_or_default().trim_end_matches('>');
    let is_below =
        |name: &str| host.strip_suffix(name).is_some_and(|h| h.is_empty() || h.ends_with('.'));
    let maintained =
        ["debian.org", "debian.net", "ubuntu.com", "launchpad.net", "canonical.com"].map(is_below);
    // What follows the last dash is the packagers': `9+deb12u14`, `2ubuntu1.4`, `1~bpo12+1`,
    // but also `1.pgdg120+1` or `1nodesource1`.
    let revision = version.rsplit_once('-').map_or("", |(_, revision)| revision);
    let mut words = revision.split(|c: char| !c.is_ascii_alphabetic()).filter(|w| !w.is_empty());
    let marks = ["deb", "u", "ubuntu", "build", "b", "bpo", "nmu", "exp", "e"];
    maintained.contains(&true) && words.all(|word| marks.contains(&word))
}

/// The packages whose installed version is in an archive of Debian's or Ubuntu's, according to apt.
fn in_archive(packages: &[&str]) -> FxHashSet<String> {
    if packages.is_empty() {
        return FxHashSet::default();
    }
    let versions = output_of(Command::new("apt-cache").arg("policy").args(packages));
    let installed = installed_from(&versions);
    // Each run of apt-cache takes half a second of CPU time.
    let known = installed.iter().map(|(_, from)| is_distribution(Path::new(LISTS), from));
    let known: Option<Vec<bool>> = known.collect();
    let archives = match known {
        Some(_) => String::new(),
        None => output_of(Command::new("apt-cache").arg("policy")),
    };
    let archives = distribution_archives(&archives);
    let in_archive = |(at, (package, from)): (usize, &(&str, &str))| {
        let is_it = known.as_ref().map_or_else(|| archives.contains(from), |known| known[at]);
        is_it.then(|| (*package).to_owned())
    };
    installed.iter().enumerate().filter_map(in_archive).collect()
}

/// apt's copies of the archives' indexes.
const LISTS: &str = "/var/lib/apt/lists";

/// Most bytes of a release file in front of the line with its origin.
const RELEASE_HEAD: u64 = 4 << 10;

/// Whether an archive, such as `http://mirror.example/debian bookworm/main amd64 Packages`, is
/// Debian's or Ubuntu's, according to its release file; `None`: there is none.
fn is_distribution(lists: &Path, archive: &str) -> Option<bool> {
    let mut words = archive.split(' ');
    let uri = words.next()?.split_once("://")?.1.trim_end_matches('/');
    let (suite, _) = words.next()?.rsplit_once('/')?;
    let plain = |text: &str| !text.contains(['_', '%', '~', '@', ':', '[']);
    if ![uri, suite].into_iter().all(plain) {
        return None;
    }
    let name = format!("{uri}/dists/{suite}/").replace('/', "_");
    let file = |kind| std::fs::File::open(lists.join(format!("{name}{kind}"))).ok();
    let mut head = Vec::new();
    let file = file("InRelease").or_else(|| file("Release"))?;
    file.take(RELEASE_HEAD).read_to_end(&mut head).ok()?;
    let head = String::from_utf8_lossy(&head);
    let origin = head.lines().find_map(|line| line.strip_prefix("Origin:"))?.trim();
    Some(ORIGINS.contains(&origin))
}

/// Names of the distributions in their release files.
const ORIGINS: [&str; 2] = ["Debian", "Ubuntu"];

/// The archives of Debian and Ubuntu in the output of `apt-cache policy`, by its names.
fn distribution_archives(policy: &str) -> FxHashSet<&str> {
    let mut archives = FxHashSet::default();
    let mut last = "";
    for line in policy.lines() {
        let line = line.trim();
        let origin = line
            .strip_prefix("release ")
            .map(|r| r.split(',').find_map(|field| field.strip_prefix("o=")));
        match origin {
            Some(Some(name)) if ORIGINS.contains(&name) => _ = archives.insert(last),
            Some(_) => {}
            None => last = archive(line),
        }
    }
    archives
}

/// `500 http://mirror.example/debian bookworm/main amd64 Packages` without the number.
fn archive(line: &str) -> &str {
    line.split_once(' ').map_or("", |(_, archive)| archive)
}

/// The packages in the output of `apt-cache policy NAME…` with the archives that have their
/// installed version (`***`).
fn installed_from(policy: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut package = "";
    let mut installed = false;
    for line in policy.lines() {
        let depth = line.len() - line.trim_start().len();
        match depth {
            0 => {
                package = line.trim_end_matches(':');
                installed = false;
            }
            // A version stands four columns before its archives.
            1..=5 => installed = line.trim_start().starts_with("***"),
            _ => {
                let from = archive(line.trim());
                // Another line is the list of what is installed.
                if installed && from.contains("://") {
                    found.push((package, from));
                }
            }
        }
    }
    found
}

/// The sources of debug files for the distribution's packages, as this machine is configured: prof
/// contains no host names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// The debuginfod servers.
    pub servers: Option<Servers>,
    /// The repository of debug packages.
    pub archive: Archive,
}

/// Debuginfod servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    /// The servers in `DEBUGINFOD_URLS`.
    Environment,
    /// The first one in the distribution's files.
    Url(String),
}

/// A repository of debug packages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Archive {
    /// It is among apt's sources.
    Enabled,
    /// This command adds it.
    Add(String),
    /// Its address does not follow from apt's sources.
    #[default]
    Unknown,
}

impl Distribution {
    /// The distribution that runs.
    pub fn running() -> Distribution {
        let urls = std::env::var("DEBUGINFOD_URLS").unwrap_or_default();
        Distribution::below(Path::new("/"), &urls)
    }

    /// The distribution with its files below `root`, with this `DEBUGINFOD_URLS`.
    fn below(root: &Path, urls: &str) -> Distribution {
        let os = std::fs::read_to_string(root.join("etc/os-release")).unwrap_or_default();
        let servers = match first_url(urls) {
            Some(_) => Some(Servers::Environment),
            None => configured_server(&root.join("etc")).map(Servers::Url),
        };
        Distribution { servers, archive: Archive::find(&os, &apt_sources(&root.join("etc/apt"))) }
    }
}

/// The first server in the files that shells make `DEBUGINFOD_URLS` of.
fn configured_server(etc: &Path) -> Option<String> {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let lists = files(&etc.join("debuginfod"), &["urls"]);
    let script = read(&etc.join("profile.d/debuginfod.sh"));
    let set = script.lines().filter_map(|line| line.trim().split_once("DEBUGINFOD_URLS="));
    let set = set.filter(|(before, _)| !before.starts_with('#'));
    let texts = lists.iter().map(|path| read(path));
    let texts = texts.chain(set.map(|(_, value)| value.replace(['"', '\''], " ")));
    texts.filter_map(|text| first_url(&text).map(str::to_owned)).next()
}

/// The first word that is a URL and nothing else to a shell, outside comments.
fn first_url(text: &str) -> Option<&str> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut words = lines.flat_map(str::split_whitespace);
    words.find(|word| ["http://", "https://"].iter().any(|s| word.starts_with(s)) && is_plain(word))
}

/// Whether a word can stand in a shell's command as it is.
fn is_plain(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_alphanumeric() || b":/._-+~=%@".contains(&b))
}

/// The files in a directory with one of these extensions, in the order of their names.
fn files(directory: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let has_extension =
        |path: &PathBuf| extensions.iter().any(|&e| path.extension() == Some(e.as_ref()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(has_extension).collect();
    files.sort();
    files
}

/// A source of binary packages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Source {
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
    /// The file with the keys that sign it.
    signed_by: Option<String>,
}

/// The sources of apt that are enabled.
fn apt_sources(apt: &Path) -> Vec<Source> {
    let mut lists = vec![apt.join("sources.list")];
    lists.extend(files(&apt.join("sources.list.d"), &["list", "sources"]));
    let mut sources = Vec::new();
    for path in lists {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if path.extension().is_some_and(|e| e == "sources") {
            sources.extend(stanzas(&text).iter().filter_map(|s| Source::parse_stanza(s)));
        } else {
            sources.extend(text.lines().filter_map(Source::parse_line));
        }
    }
    sources
}

/// The paragraphs of a file such as `debian.sources`: names of fields in lower case, and values.
fn stanzas(text: &str) -> Vec<Vec<(String, String)>> {
    let mut all: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some(fields) = all.last_mut() else { continue };
        if line.trim().is_empty() {
            all.push(Vec::new());
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    all
}

impl Source {
    /// A line of `sources.list`: `deb [OPTION=VALUE …] URI SUITE COMPONENT…`.
    fn parse_line(line: &str) -> Option<Source> {
        let rest = line.trim().strip_prefix("deb")?.strip_prefix([' ', '\t'])?.trim_start();
        let (options, rest) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => ("", rest),
        };
        let mut words = rest.split('#').next()?.split_whitespace().map(str::to_owned);
        let signed_by = options.split_whitespace().find_map(|o| o.strip_prefix("signed-by="));
        Some(Source {
            uris: vec![words.next()?],
            suites: vec![words.next()?],
            components: words.collect(),
            signed_by: signed_by.map(str::to_owned),
        })
    }

    /// A paragraph of a file that ends in `.sources`.
    fn parse_stanza(fields: &[(String, String)]) -> Option<Source> {
        let value = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let words = |name: &str| -> Vec<String> {
            value(name).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
        };
        let disabled = value("enabled").is_some_and(|v| v.eq_ignore_ascii_case("no"));
        if disabled || !words("types").iter().any(|kind| kind == "deb") {
            return None;
        }
        Some(Source {
            uris: words("uris"),
            suites: words("suites"),
            components: words("components"),
            signed_by: value("signed-by").map(str::to_owned),
        })
    }

    /// Whether it has debug packages.
    fn is_of_debug_packages(&self) -> bool {
        let names = |uri: &String| {
            let mut parts = uri.split('/');
            parts.any(|part| part.ends_with("-debug") || part.starts_with("ddebs."))
        };
        self.uris.iter().any(names) || self.suites.iter().any(|suite| suite.ends_with("-debug"))
    }

    /// Whether it has the main part of Debian's archive, of the release with this name.
    fn is_main_of(&self, codename: &str) -> bool {
        self.suites.iter().any(|suite| suite == codename)
            && self.components.iter().any(|component| component == "main")
    }

    /// The mirror of Debian's debug packages next to this one of Debian's archive: by convention
    /// `debian-debug` next to `debian`.
    fn debug_mirror(&self) -> Option<String> {
        let web = |uri: &&String| first_url(uri).is_some_and(|url| url == uri.as_str());
        self.uris.iter().filter(web).find_map(|uri| {
            let above = uri.trim_end_matches('/').strip_suffix("/debian")?;
            Some(format!("{above}/debian-debug"))
        })
    }
}

impl Archive {
    /// The one of the distribution with this `os-release`, whose apt has these sources.
    fn find(os_release: &str, sources: &[Source]) -> Archive {
        if sources.iter().any(Source::is_of_debug_packages) {
            return Archive::Enabled;
        }
        Archive::next_to_debian(os_release, sources).map_or(Archive::Unknown, Archive::Add)
    }

    /// The command that adds Debian's, on the mirror that is in use
    /// (<https://wiki.debian.org/AutomaticDebugPackages>; debug packages of security updates are in
    /// `proposed-updates`).
    fn next_to_debian(os_release: &str, sources: &[Source]) -> Option<String> {
        if field(os_release, "ID") != Some("debian") {
            return None;
        }
        // It becomes a part of a command.
        let codename = field(os_release, "VERSION_CODENAME")
            .filter(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase()))?;
        let mut main = sources.iter().filter(|source| source.is_main_of(codename));
        let (source, uri) = main.find_map(|source| Some((source, source.debug_mirror()?)))?;
        let key = source.signed_by.as_ref().filter(|key| key.starts_with('/') && is_plain(key));
        let key = key.map_or(String::new(), |key| format!("[signed-by={key}] "));
        Some(format!(
            "printf 'deb {key}{uri} %s main\\n' {codename}-debug {codename}-proposed-updates-debug \
             >> /etc/apt/sources.list.d/debug.list && apt-get update"
        ))
    }
}

fn field<'a>(os_release: &'a str, name: &str) -> Option<&'a str> {
    let value = os_release.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim_matches('"'))
}

#[cfg(test)]
mod tests;
