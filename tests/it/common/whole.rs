//! The share of stacks that reach the function where their thread begins, by prof and by perf.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use object::Object;

use super::pprof::Pprof;

/// Functions where programs, threads and goroutines begin. The second half of the dynamic loader's
/// `_start` has a name of its own.
const ENTRIES: &[&str] = &[
    "_start",
    "_dl_start_user",
    "clone",
    "clone3",
    "start_thread",
    "runtime.goexit",
    "runtime.clone",
    // Go's scheduler gives up the goroutine that calls it.
    "runtime.mcall",
];

fn is_entry(name: &str) -> bool {
    let name = name.trim_end_matches(".abi0").split('@').next().unwrap_or(name);
    ENTRIES.contains(&name.trim_start_matches("__"))
}

/// Entry points of ELF files, read once; the name of the function there may be stripped.
#[derive(Default)]
struct Files(HashMap<String, Option<u64>>);

impl Files {
    fn begins_at(&mut self, file: &str, address: u64) -> bool {
        const CODE: u64 = 64;
        let entry = *self.0.entry(file.to_string()).or_insert_with(|| {
            let data = std::fs::read(Path::new(file)).ok()?;
            let entry = object::File::parse(&*data).ok()?.entry();
            (entry != 0).then_some(entry)
        });
        entry.is_some_and(|e| address.wrapping_sub(e) < CODE)
    }
}

/// Number of user stacks, and of those that are whole.
#[derive(Default, Debug)]
pub struct Share {
    pub whole: i64,
    pub all: i64,
    /// Outermost functions of the others.
    pub others: BTreeMap<String, i64>,
}

impl Share {
    /// In percent.
    pub fn percent(&self) -> f64 {
        100.0 * self.whole as f64 / self.all.max(1) as f64
    }

    fn add(&mut self, whole: bool, value: i64, end: impl FnOnce() -> String) {
        self.all += value;
        if whole { self.whole += value } else { *self.others.entry(end()).or_default() += value }
    }
}

/// The share in a profile that prof wrote, over the samples that `keep` selects.
pub fn of_profile(p: &Pprof, keep: impl Fn(&super::pprof::Sample) -> bool) -> Share {
    let (mut share, mut files) = (Share::default(), Files::default());
    let column = p.column("samples");
    for sample in p.samples.iter().filter(|s| keep(s)) {
        let Some(last) = sample.locations.last().filter(|l| !p.is_kernel(l)) else { continue };
        let name = p.lines[last].last();
        // Not even the user's instruction is known.
        if name.is_some_and(|name| *name == "[truncated: registers not saved]") {
            continue;
        }
        let file = p.mapping_of.get(last).map(|&m| p.mappings[m].file.as_str());
        let mut by_address = || file.is_some_and(|f| files.begins_at(f, p.addresses[last]));
        let whole = name.is_some_and(|n| is_entry(n)) || by_address();
        share.add(whole, sample.values[column], || {
            let frames = p.user_frames(sample);
            frames.iter().rev().take(4).copied().collect::<Vec<_>>().join(" < ")
        });
    }
    share
}

/// The share in the output of `perf script --no-inline -F ip,sym,dso`.
#[allow(dead_code, reason = "for benches/stacks.rs")]
pub fn of_perf_script(text: &str) -> Share {
    let (mut share, mut files) = (Share::default(), Files::default());
    for stack in text.split("\n\n") {
        let user = |l: &&str| !l.contains("([kernel") && !l.trim().is_empty();
        let Some(last) = stack.lines().rfind(user) else { continue };
        let (address, rest) = last.trim().split_once(' ').unwrap_or((last.trim(), ""));
        let (name, file) = rest.rsplit_once(" (").unwrap_or((rest, ""));
        let address = u64::from_str_radix(address, 16).unwrap_or(0);
        let whole = is_entry(name) || files.begins_at(file.trim_end_matches(')'), address);
        share.add(whole, 1, || name.to_string());
    }
    share
}
