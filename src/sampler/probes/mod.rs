//! Probes by name: `probe:/usr/lib/libssl.so.3:SSL_write%return`, `kprobe:do_sys_openat2`,
//! `sdt:python:function__entry`.

pub(super) mod instructions;

use std::cell::OnceCell;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::EventSpec;
pub(super) use instructions::At;
use messages::Message;
use symbols::functions::{FunctionRange, NoFunction, functions};
use sys::Error;
use sys::binaries::{self, Binary};
use sys::suggest;
use sys::usdt::{Marker, markers};
use sys::{foreign, mmap};

/// Prefixes of a probe's name: its kind, and true if it probes returns.
const KINDS: &[(&str, ProbeKind, bool)] = &[
    ("probe", ProbeKind::User, false),
    ("uprobe", ProbeKind::User, false),
    ("uretprobe", ProbeKind::User, true),
    ("kprobe", ProbeKind::Kernel, false),
    ("kretprobe", ProbeKind::Kernel, true),
    ("sdt", ProbeKind::Marker, false),
    ("usdt", ProbeKind::Marker, false),
];

/// Maximum number of names that an error lists.
const SHOWN: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeKind {
    User,
    Kernel,
    Marker,
}

/// True if an event's name is that of a probe.
pub fn is_probe(event: &str) -> bool {
    kind(event).is_some()
}

fn kind(event: &str) -> Option<(ProbeKind, bool, &str)> {
    let (prefix, rest) = event.split_once(':')?;
    let &(_, kind, returns) = KINDS.iter().find(|(name, ..)| *name == prefix)?;
    Some((kind, returns, rest))
}

/// The binaries of the target, which are searched for probes without a path.
#[derive(Debug, Default)]
pub struct ProbePlaces {
    pids: Vec<i32>,
    command: Option<String>,
    binaries: OnceCell<Vec<Binary>>,
}

/// A function and an offset in it.
#[derive(Debug, PartialEq, Eq)]
struct CodePlace<'a> {
    file: Option<&'a str>,
    function: &'a str,
    into: u64,
    returns: bool,
}

impl ProbePlaces {
    /// For these processes, or for a command that is to be started.
    pub fn new(pids: Vec<i32>, command: Option<&str>) -> ProbePlaces {
        ProbePlaces { pids, command: command.map(str::to_owned), binaries: OnceCell::new() }
    }

    /// The binaries of the target.
    pub fn binaries(&self) -> &[Binary] {
        self.binaries.get_or_init(|| match &self.command {
            Some(command) => binaries::for_command(command),
            None => binaries::mapped_by_all(&self.pids),
        })
    }

    /// The events of a probe: one for each location that its name matches.
    ///
    /// # Errors
    ///
    /// There is no such location; the line lists similar names.
    pub fn events(&self, event: &str) -> Result<Vec<EventSpec>, Error> {
        let failed = |why: String| Error::usage(format!("event '{event}': {why}"));
        match kind(event) {
            Some((ProbeKind::Kernel, returns, rest)) => {
                let place = place(rest, returns).map_err(failed)?;
                kernel(event, &place)
            }
            Some((ProbeKind::Marker, _, rest)) => self.markers(event, rest).map_err(failed),
            Some((ProbeKind::User, returns, rest)) => {
                let place = place(rest, returns).map_err(failed)?;
                self.functions(event, &place).map_err(failed)
            }
            None => Err(failed("it is no probe".into())),
        }
    }

    fn functions(&self, event: &str, place: &CodePlace<'_>) -> Result<Vec<EventSpec>, String> {
        let files = match place.file {
            Some(name) => self.files(name)?,
            None => self.with_function(place.function)?,
        };
        let mut specs = Vec::new();
        for file in &files {
            let found = functions(&file.open, place.function)
                .map_err(|why| no_function(&file.path, place.function, why))?;
            for function in found {
                specs.push(self.user(event, file, &function, place)?);
            }
        }
        Ok(specs)
    }

    fn user(
        &self,
        event: &str,
        file: &Binary,
        function: &FunctionRange,
        place: &CodePlace<'_>,
    ) -> Result<EventSpec, String> {
        let name = place.function;
        let size = function.size;
        let into = match place.into {
            0 => instructions::entry(&file.open, function.offset.0),
            into => into,
        };
        if into > 0 && into >= size {
            return Err(format!("{name} has {size:#x} bytes, there is no +{into:#x}"));
        }
        let at = instructions::at(&file.open, function.offset.0, into);
        if at == At::Middle {
            return Err(format!(
                "{name}+{into:#x} is in the middle of an instruction; a probe there would corrupt \
                 the program"
            ));
        }
        if at == At::Unknown && into > 0 {
            return Err(format!("the instructions of {name} up to +{into:#x} cannot be decoded"));
        }
        let offset = function.offset.0 + into;
        let mut spec = EventSpec::uprobe(event, &file.open, offset, place.returns, None)
            .map_err(|e| e.to_string())?;
        self.note(&mut spec, event, file, at);
        Ok(spec)
    }

    fn markers(&self, event: &str, rest: &str) -> Result<Vec<EventSpec>, String> {
        let words = "write sdt:PROVIDER:NAME or sdt:FILE:PROVIDER:NAME";
        let (rest, name) = rest.rsplit_once(':').ok_or(words)?;
        let (file, provider) = rest.rsplit_once(':').map_or((None, rest), |(f, p)| (Some(f), p));
        let files = match file {
            Some(name) => self.files(name)?,
            None => self.all_files("sdt:FILE:PROVIDER:NAME")?.to_vec(),
        };
        let mut specs = Vec::new();
        let mut others = Vec::new();
        for file in &files {
            for marker in markers_of(&file.open) {
                if (marker.provider.as_str(), marker.name.as_str()) == (provider, name) {
                    let spec =
                        EventSpec::uprobe(event, &file.open, marker.offset, false, marker.counter);
                    let mut spec = spec.map_err(|e| e.to_string())?;
                    let at = instructions::at(&file.open, marker.offset, 0);
                    self.note(&mut spec, event, file, at);
                    specs.push(spec);
                } else {
                    others.push(format!("{}:{}", marker.provider, marker.name));
                }
            }
        }
        if specs.is_empty() {
            return Err(no_marker(&files, provider, name, others));
        }
        Ok(specs)
    }

    /// Notes a binary that is not loaded yet, or an expensive instruction.
    fn note(&self, spec: &mut EventSpec, event: &str, file: &Binary, at: At) {
        let Some(probe) = &mut spec.probe else { return };
        let known = self.binaries();
        if !known.is_empty() && !known.iter().any(|b| same_file(&b.open, &file.open)) {
            let event = event.to_owned();
            let file = file.path.display().to_string();
            probe.note = Some(Message::NotLoaded { event, file });
        } else if at == At::Stepped {
            probe.note = Some(Message::SteppedProbe { event: event.to_owned() });
        }
    }

    /// The files that a name matches.
    fn files(&self, name: &str) -> Result<Vec<Binary>, String> {
        let known = self.binaries();
        if name.contains('/') {
            let mapped: Vec<Binary> =
                known.iter().filter(|b| b.path == Path::new(name)).cloned().collect();
            if !mapped.is_empty() {
                return Ok(distinct(mapped));
            }
            let path = fs::canonicalize(name).map_err(|e| format!("{name}: {e}"))?;
            return Ok(vec![Binary::here(path)]);
        }
        let mapped: Vec<Binary> = known.iter().filter(|b| b.is_called(name)).cloned().collect();
        if !mapped.is_empty() {
            return Ok(distinct(mapped));
        }
        let path: Option<PathBuf> = binaries::library(name).or_else(|| binaries::program(name));
        let path = path.ok_or_else(|| {
            format!("no binary of the target is called '{name}', and no program or library is")
        })?;
        Ok(vec![Binary::here(path)])
    }

    fn all_files(&self, form: &str) -> Result<&[Binary], String> {
        match self.binaries() {
            [] => Err(format!("no file is named, and the target has none; write {form}")),
            files => Ok(files),
        }
    }

    /// The one binary of the target that contains a function.
    fn with_function(&self, name: &str) -> Result<Vec<Binary>, String> {
        let files = self.all_files("probe:FILE:FUNCTION")?;
        let mut with = Vec::new();
        let mut similar = Vec::new();
        let mut other = None;
        for file in files {
            match functions(&file.open, name) {
                Ok(_) => with.push(file.clone()),
                Err(NoFunction::Unknown(names)) => similar.extend(names),
                Err(NoFunction::File(_)) => {}
                Err(why) => other = other.or(Some(no_function(&file.path, name, why))),
            }
        }
        match (distinct(with), other) {
            (with, _) if with.len() == 1 => Ok(with),
            (with, _) if with.len() > 1 => Err(format!(
                "{} have a function of this name; write probe:FILE:{name}",
                paths(&with)
            )),
            (_, Some(why)) => Err(why),
            _ => {
                let why = NoFunction::Unknown(similar);
                Err(no_function(Path::new("the target's binaries"), name, why))
            }
        }
    }
}

/// `[FILE:]FUNCTION[+OFFSET][%return]`; two colons belong to the function's name.
fn place(text: &str, returns: bool) -> Result<CodePlace<'_>, String> {
    let (text, returns) = match text.strip_suffix("%return") {
        Some(text) => (text, true),
        None => (text, returns),
    };
    let separates = |i: usize| !text[i + 1..].starts_with(':') && !text[..i].ends_with(':');
    let colon = text.match_indices(':').map(|(i, _)| i).find(|&i| separates(i));
    let (file, function) = match colon {
        Some(i) => (Some(&text[..i]), &text[i + 1..]),
        None => (None, text),
    };
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let offset = function.rsplit_once('+').and_then(|(f, offset)| Some((f, number(offset)?)));
    let (function, into) = offset.unwrap_or((function, 0));
    if function.is_empty() || file == Some("") {
        return Err("no function is named: write probe:FILE:FUNCTION".into());
    }
    if returns && into > 0 {
        return Err("a return belongs to a whole function: leave out the offset".into());
    }
    Ok(CodePlace { file, function, into, returns })
}

fn kernel(event: &str, place: &CodePlace<'_>) -> Result<Vec<EventSpec>, Error> {
    let spec = EventSpec::kprobe(event, place.function, place.into, place.returns)?;
    let failed = |why: String| Error::usage(format!("event '{event}': {why}"));
    if place.file.is_some() {
        return Err(failed("the kernel's functions have no file: write kprobe:FUNCTION".into()));
    }
    // The names are readable even if the addresses are hidden.
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let functions = symbols.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let kind = words.next()?;
        "tTwW".contains(kind).then(|| words.next())?
    });
    let names: Vec<&str> = functions.collect();
    if !names.is_empty() && !names.contains(&place.function) {
        let why = NoFunction::Unknown(
            suggest::similar(place.function, names.into_iter(), SHOWN)
                .into_iter()
                .map(str::to_owned)
                .collect(),
        );
        return Err(failed(no_function(Path::new("the kernel"), place.function, why)));
    }
    Ok(vec![spec])
}

fn no_function(file: &Path, name: &str, why: NoFunction) -> String {
    let file = file.display();
    match why {
        NoFunction::File(why) => format!("{file}: {why}"),
        NoFunction::Unknown(similar) if similar.is_empty() => {
            format!("{file}: there is no function '{name}' (inlined functions have no code)")
        }
        NoFunction::Unknown(similar) => {
            format!("{file}: there is no function '{name}'; did you mean {}?", or(&similar))
        }
        NoFunction::Ambiguous(all) => {
            format!("{file}: several functions are called '{name}': {}", all.join(", "))
        }
        NoFunction::Indirect => format!(
            "{file}: '{name}' is chosen for the CPU when the program starts (an indirect \
             function): give the name of that one"
        ),
    }
}

fn no_marker(files: &[Binary], provider: &str, name: &str, mut others: Vec<String>) -> String {
    others.sort();
    others.dedup();
    let file = match files {
        [file] => file.path.display().to_string(),
        _ => "the target's binaries".to_owned(),
    };
    let wanted = format!("{provider}:{name}");
    let near = suggest::similar(&wanted, others.iter().map(String::as_str), SHOWN);
    if !near.is_empty() {
        let near: Vec<String> = near.into_iter().map(str::to_owned).collect();
        return format!("{file}: no marker '{wanted}'; did you mean {}?", or(&near));
    }
    match others.len() {
        0 => format!("{file}: no markers at all (.note.stapsdt)"),
        all if all > SHOWN => {
            format!("{file}: no marker '{wanted}', but {all} others; prof list {file} shows them")
        }
        _ => format!("{file}: no marker '{wanted}', but {}", others.join(", ")),
    }
}

fn or(names: &[String]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(" or ")
}

fn paths(files: &[Binary]) -> String {
    files.iter().map(|f| f.path.display().to_string()).collect::<Vec<_>>().join(" and ")
}

/// The markers of the file at `path`.
pub fn markers_of(path: &Path) -> Vec<Marker> {
    let map = foreign::open(path).and_then(|file| mmap::map(&file));
    map.map(|data| markers(&data)).unwrap_or_default()
}

fn same_file(a: &Path, b: &Path) -> bool {
    let id = |path| foreign::resolve(path).ok().map(|m| (m.metadata.dev(), m.metadata.ino()));
    a == b || id(a).is_some_and(|id_a| Some(id_a) == id(b))
}

/// Each file once, whatever its paths.
fn distinct(files: Vec<Binary>) -> Vec<Binary> {
    let mut all: Vec<Binary> = Vec::new();
    for file in files {
        if !all.iter().any(|other| same_file(&other.open, &file.open)) {
            all.push(file);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_places() {
        let of = |text| place(text, false).map(|p| (p.file, p.function, p.into, p.returns));
        assert_eq!(of("malloc"), Ok((None, "malloc", 0, false)));
        assert_eq!(of("libc:malloc%return"), Ok((Some("libc"), "malloc", 0, true)));
        assert_eq!(of("/a/b:f+0x10"), Ok((Some("/a/b"), "f", 16, false)));
        assert_eq!(of("/a/b:ns::f+3"), Ok((Some("/a/b"), "ns::f", 3, false)));
        assert_eq!(of("ns::f(a::b)"), Ok((None, "ns::f(a::b)", 0, false)));
        assert_eq!(of("x:a::operator+"), Ok((Some("x"), "a::operator+", 0, false)));
        for bad in ["", ":f", "x:", "f+4%return", "x:%return"] {
            assert!(of(bad).is_err(), "{bad}");
        }
        assert!(place("f", true).unwrap().returns);
    }

    #[test]
    fn prefixes_tell_probes_from_other_events() {
        for probe in ["probe:x:f", "uretprobe:f", "kprobe:f", "sdt:a:b", "usdt:/x:a:b"] {
            assert!(is_probe(probe), "{probe}");
        }
        for other in ["cycles", "sched:sched_switch", "probe", "probe_libc:malloc", ""] {
            assert!(!is_probe(other), "{other}");
        }
    }

    #[test]
    fn functions_of_this_process() {
        let places = ProbePlaces::new(vec![std::process::id() as i32], None);
        let events = match places.events("probe:libc:fopen") {
            Err(why) if why.to_string().contains("uprobes") => {
                return sys::testing::skip_hardware(&why.to_string());
            }
            events => events.unwrap(),
        };
        assert_eq!(events[0].name, "probe:libc:fopen");
        let refused = |event: &str, words: &[&str]| {
            let line = places.events(event).unwrap_err().to_string();
            words.iter().for_each(|word| assert!(line.contains(word), "{line}"));
        };
        refused("probe:libc:foppen", &["libc", "'foppen'", "'fopen'"]);
        refused("probe:libc:memcpy", &["indirect"]);
        refused("probe:libc:fopen+0xffffff", &["there is no +0xffffff"]);
        refused("probe:no-such-library:f", &["'no-such-library'"]);
        refused("probe:/no/such/file:f", &["/no/such/file"]);
        refused("sdt:nobody:nothing", &["nobody:nothing"]);
        refused("sdt:nothing", &["sdt:PROVIDER:NAME"]);
        let nowhere = ProbePlaces::default();
        assert!(nowhere.events("probe:f").unwrap_err().to_string().contains("probe:FILE:FUNCTION"));
    }
}
