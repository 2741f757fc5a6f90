//! Events of the PMUs that sysfs describes (`Documentation/ABI/testing/sysfs-bus-event_source-*`).

use std::fs;
use std::path::{Path, PathBuf};

use super::{EventKind, EventSpec, unknown};
use crate::sampler::arch::CPU_PMU;
use sys::Error;

/// The directory that describes all PMUs.
const DEVICES: &str = "/sys/bus/event_source/devices";

/// `cpu/cache-misses/` or `cpu/event=0x3c,umask=1/`, from the description of the PMU in sysfs.
pub fn event(pmu: &str, terms: &str, text: &str) -> Result<EventSpec, Error> {
    let failed = |why: String| Error::usage(format!("event '{text}': {why}"));
    if !is_name(pmu) {
        return Err(unknown(text));
    }
    let description = Pmu(Path::new(DEVICES).join(pmu));
    let number = description.number().map_err(|why| {
        if [CPU_PMU, "cpu", "cpu_core", "cpu_atom"].contains(&pmu) {
            return Error::failed(format!(
                "event '{text}' does not exist on this machine (no hardware counters); nearest that \
                 works: cpu-clock (where CPU time goes)"
            ));
        }
        failed(format!("this machine has no PMU '{pmu}' ({}: {why})", description.0.display()))
    })?;
    let mut config = Config::default();
    for term in terms.split(',') {
        config.set(&description, term).map_err(|why| failed(format!("PMU '{pmu}' {why}")))?;
    }
    if let Some(missing) = config.unset.first() {
        return Err(failed(format!("PMU '{pmu}' needs {missing}=VALUE")));
    }
    let [config, config1, config2] = config.words;
    let spec = EventSpec::plain(text, EventKind::Hardware, number, config);
    Ok(EventSpec { config1, config2, ..spec })
}

/// The names of all PMUs.
pub fn names() -> Vec<String> {
    files(Path::new(DEVICES))
}

/// The names of the events that sysfs lists for a PMU.
pub fn events(pmu: &str) -> Vec<String> {
    let mut names = files(&Path::new(DEVICES).join(pmu).join("events"));
    // `x.unit` and `x.scale` state how to print `x`.
    names.retain(|name| is_name(name));
    names
}

/// The names of a directory's files, in order.
fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// True if a text names a file of a PMU's description.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(['/', '.'])
}

/// The description of a PMU: its directory.
struct Pmu(PathBuf);

impl Pmu {
    /// Its `perf_event_attr.type`.
    fn number(&self) -> Result<u32, String> {
        let text = fs::read_to_string(self.0.join("type")).map_err(|e| e.to_string())?;
        text.trim().parse().map_err(|e| format!("type: {e}"))
    }

    /// A field of its events' configuration; `None` if there is none of this name.
    fn field(&self, name: &str) -> Option<Result<Field, String>> {
        let whole = |word| Some(Ok(Field { word, bits: vec![Bits { first: 0, last: 63 }] }));
        match fs::read_to_string(self.0.join("format").join(name)) {
            Ok(text) => Some(Field::parse(text.trim())),
            // As perf has them, for each PMU.
            Err(_) => WORDS.iter().position(|word| *word == name).and_then(whole),
        }
    }

    /// The terms of an event with a name.
    fn event(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.0.join("events").join(name)).ok()
    }
}

/// Names of the words of `perf_event_attr` that hold an event's configuration.
const WORDS: [&str; 3] = ["config", "config1", "config2"];

/// Consecutive bits of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bits {
    /// The lowest.
    first: u32,
    /// The highest.
    last: u32,
}

impl Bits {
    fn parse(text: &str) -> Option<Bits> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let bits = Bits { first: first.parse().ok()?, last: last.parse().ok()? };
        (bits.first <= bits.last && bits.last < u64::BITS).then_some(bits)
    }

    fn len(self) -> u32 {
        self.last - self.first + 1
    }
}

/// A field of an event's configuration.
#[derive(Debug, PartialEq, Eq)]
struct Field {
    /// Index of its word in [`WORDS`].
    word: usize,
    /// Its bits there, the lowest of its value first.
    bits: Vec<Bits>,
}

impl Field {
    /// From a file in `format`: `config:0-7,32-35`.
    fn parse(text: &str) -> Result<Field, String> {
        let invalid = || format!("has a field of the unknown format '{text}'");
        let (word, bits) = text.split_once(':').ok_or_else(invalid)?;
        let word = WORDS.iter().position(|name| *name == word).ok_or_else(invalid)?;
        let bits: Option<Vec<Bits>> = bits.split(',').map(Bits::parse).collect();
        Ok(Field { word, bits: bits.ok_or_else(invalid)? })
    }

    /// Stores a value in its bits of `word`. False if it has more bits.
    fn store(&self, mut value: u64, word: &mut u64) -> bool {
        for bits in &self.bits {
            let mask = u64::MAX >> (u64::BITS - bits.len());
            *word = *word & !(mask << bits.first) | (value & mask) << bits.first;
            value = value.checked_shr(bits.len()).unwrap_or(0);
        }
        value == 0
    }
}

/// The configuration of an event, from its terms.
#[derive(Default)]
struct Config {
    /// The values of [`WORDS`].
    words: [u64; WORDS.len()],
    /// Fields of a named event for which it has no value: `chip=?`.
    unset: Vec<String>,
}

impl Config {
    /// Applies a term of an event: `FIELD=VALUE`, the name of an event, or a field of one bit.
    fn set(&mut self, pmu: &Pmu, term: &str) -> Result<(), String> {
        match term.split_once('=') {
            Some((field, value)) => self.set_field(pmu, field, value),
            None if !is_name(term) => {
                Err("needs the name of an event between the slashes".to_owned())
            }
            None => match pmu.event(term) {
                Some(terms) => terms.trim().split(',').try_for_each(|term| {
                    let (field, value) = term.split_once('=').unwrap_or((term, "1"));
                    self.set_field(pmu, field, value)
                }),
                None => self.set_field(pmu, term, "1"),
            },
        }
    }

    fn set_field(&mut self, pmu: &Pmu, name: &str, value: &str) -> Result<(), String> {
        let field = is_name(name).then(|| pmu.field(name)).flatten();
        let field = field.ok_or_else(|| {
            format!("has no event or field '{name}'; 'prof list' shows its events")
        })??;
        self.unset.retain(|unset| unset != name);
        if value == "?" {
            self.unset.push(name.to_owned());
            return Ok(());
        }
        let parsed = match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => value.parse(),
        };
        let number = parsed.map_err(|_| format!("needs a number in place of '{value}'"))?;
        let fits = field.store(number, &mut self.words[field.word]);
        fits.then_some(()).ok_or_else(|| format!("has no room for {value} in '{name}'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A PMU that is described as AMD's and Intel's are.
    fn pmu(dir: &Path) -> Pmu {
        let files = [
            ("type", "4\n"),
            ("format/event", "config:0-7,32-35\n"),
            ("format/umask", "config:8-15\n"),
            ("format/inv", "config:23\n"),
            ("format/ldlat", "config1:0-15\n"),
            ("format/odd", "config7:0-15\n"),
            ("format/long", "config:0-64\n"),
            ("events/stalled", "event=0x1a9,umask=0x02,inv\n"),
            ("events/of-a-chip", "event=1,ldlat=?\n"),
        ];
        for (name, text) in files {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Pmu(dir.to_owned())
    }

    fn words(terms: &str) -> Result<[u64; 3], String> {
        let dir = tempfile::tempdir().unwrap();
        let pmu = pmu(dir.path());
        assert_eq!(pmu.number(), Ok(4));
        let mut config = Config::default();
        terms.split(',').try_for_each(|term| config.set(&pmu, term))?;
        if config.unset.is_empty() { Ok(config.words) } else { Err(config.unset.join(",")) }
    }

    #[test]
    fn a_value_is_split_among_the_bits_of_its_field() {
        assert_eq!(words("event=0x3c"), Ok([0x3c, 0, 0]));
        assert_eq!(words("event=0x5ab,umask=255"), Ok([0x5_0000_ffab, 0, 0]));
        assert_eq!(words("stalled"), Ok([0x1_0080_02a9, 0, 0]));
        assert_eq!(words("stalled,umask=1"), Ok([0x1_0080_01a9, 0, 0]), "the last value holds");
        assert_eq!(words("event=1,ldlat=30,inv"), Ok([0x80_0001, 30, 0]));
        assert_eq!(words("config=0xffffffffffffffff,config2=2"), Ok([u64::MAX, 0, 2]));
        assert_eq!(words("of-a-chip,ldlat=3"), Ok([1, 3, 0]));
    }

    #[test]
    fn what_the_pmu_does_not_describe_is_refused() {
        let refused = |terms, why: &str| assert_eq!(words(terms), Err(why.to_owned()), "{terms}");
        refused("event=0x1000", "has no room for 0x1000 in 'event'");
        refused("inv=2", "has no room for 2 in 'inv'");
        refused("event=0x", "needs a number in place of '0x'");
        refused("nosuch", "has no event or field 'nosuch'; 'prof list' shows its events");
        refused("../type=1", "has no event or field '../type'; 'prof list' shows its events");
        refused("", "needs the name of an event between the slashes");
        refused("odd=1", "has a field of the unknown format 'config7:0-15'");
        refused("long=1", "has a field of the unknown format 'config:0-64'");
        refused("of-a-chip", "ldlat");
    }

    /// Each event that this machine's PMUs list can be converted, whatever the CPU.
    #[test]
    fn all_events_of_this_machine_have_a_configuration() {
        for pmu in names() {
            for name in events(&pmu) {
                if let Err(e) = event(&pmu, &name, &format!("{pmu}/{name}/")) {
                    assert!(e.to_string().contains(" needs "), "{e}");
                }
            }
        }
    }
}
