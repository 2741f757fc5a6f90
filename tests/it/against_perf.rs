//! prof's profile of a run is as near to perf's as perf's own profiles of that run are to each
//! other.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSymbol};

use crate::common::{
    Build, Counts, PerfRecording, Pprof, ProfRecording, Waiting, distance_of_equals, manhattan,
    needs, one_of_three, target, temp_dir,
};

/// One name for each function of which a binary has several: for one address, perf prints `malloc`
/// and prof `__GI___libc_malloc`.
#[derive(Default)]
struct Aliases {
    /// (binary, name) → the first of its names.
    first: HashMap<(String, String), String>,
}

impl Aliases {
    /// From the symbol tables of a profile's binaries and their debug files.
    fn of(p: &Pprof) -> Aliases {
        let mut aliases = Aliases::default();
        for mapping in &p.mappings {
            let debug = mapping.build_id.split_at_checked(2).map(|(dir, rest)| {
                PathBuf::from(format!("/usr/lib/debug/.build-id/{dir}/{rest}.debug"))
            });
            for file in [Some(PathBuf::from(&mapping.file)), debug].into_iter().flatten() {
                aliases.add(&base(&mapping.file), &file);
            }
        }
        aliases
    }

    fn add(&mut self, binary: &str, file: &Path) {
        let Ok(bytes) = std::fs::read(file) else { return };
        let Ok(elf) = object::File::parse(&*bytes) else { return };
        let mut by_address: HashMap<u64, Vec<String>> = HashMap::new();
        for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
            if let (true, Ok(name)) = (symbol.is_definition(), symbol.name()) {
                by_address.entry(symbol.address()).or_default().push(stem(name));
            }
        }
        for names in by_address.into_values() {
            // The binary may have one more name for a function of the debug file.
            let key = |n: &String| (binary.to_string(), n.clone());
            let known = names.iter().find_map(|n| self.first.get(&key(n)).cloned());
            let first = known.or_else(|| names.iter().min().cloned()).unwrap();
            for name in &names {
                self.first.entry(key(name)).or_insert_with(|| first.clone());
            }
        }
    }

    /// The counts by the first name of each function.
    fn apply(&self, counts: Counts) -> Counts {
        let mut out = Counts::new();
        for (function, n) in counts {
            let (name, binary) = function.rsplit_once(' ').unwrap();
            let key = (binary.to_string(), stem(name));
            let name = self.first.get(&key).unwrap_or(&key.1);
            *out.entry(format!("{name} {binary}")).or_default() += n;
        }
        out
    }
}

/// A name without its version (`cfree@GLIBC_2.2.5`) and without the compiler's suffix of copies of
/// functions (`unlink_chunk.constprop.0`); debug information has neither.
fn stem(name: &str) -> String {
    let name = name.split('@').next().unwrap_or_default();
    let copies = [".constprop", ".isra", ".part", ".cold"];
    let end = copies.iter().filter_map(|c| name.find(c)).min().unwrap_or(name.len());
    name[..end].to_string()
}

fn base(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_string()
}

/// Samples by leaf, as `FUNCTION BINARY`, named as perf script names them.
fn leaves(p: &Pprof) -> Counts {
    let column = p.column("samples");
    let mut counts = Counts::new();
    for s in &p.samples {
        let Some(location) = s.locations.first() else { continue };
        let function = p.lines[location].last().map_or("[unknown]", String::as_str);
        let binary = p.mapping_of.get(location).map_or("", |&m| p.mappings[m].file.as_str());
        *counts.entry(format!("{function} {}", base(binary))).or_default() +=
            s.values[column] as u64;
    }
    counts
}

/// The largest differences between two profiles, for the message of a failure.
fn differences(a: &Counts, b: &Counts) -> String {
    let count = |c: &Counts, name: &String| c.get(name).copied().unwrap_or(0);
    let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let mut rows: Vec<_> =
        names.into_iter().map(|n| (count(a, n).abs_diff(count(b, n)), n)).collect();
    rows.sort_by(|x, y| y.cmp(x));
    let row = |(_, n): &(u64, &String)| format!("\n  {} and {}: {n}", count(a, n), count(b, n));
    rows.iter().take(12).map(row).collect()
}

/// The Manhattan distance of the functions' own shares is within the limit of a permutation test
/// for two samples of one and the same profile (p = 0.001), in one of three recordings: a right
/// profile fails once in a billion times.
#[test]
fn the_distance_to_perf_is_that_of_two_perf_runs() {
    if !needs(&["perf"]) {
        return;
    }
    one_of_three("the distance to perf", as_near_as_perf);
}

/// One recording by prof, and two by perf.
fn as_near_as_perf() -> Result<(), String> {
    let dir = temp_dir();
    let mut program = Waiting::start(Command::new(target("busy", Build::Cpp)).arg("0"));
    let pid = program.pid();
    let perf = |name: &str| {
        let args = format!("-F 999 -e cpu-clock -p {pid}");
        PerfRecording::start(dir.path(), name, &args)
    };
    let args = format!("-F 999 -e cpu-clock -g none --no-inlines --no-demangle -d 4s -p {pid}");
    let (one, two) = (perf("one.data"), perf("two.data"));
    let ours = ProfRecording::start(dir.path(), "profile.pb.gz", &args);
    program.go();
    let ours = ours.finish();
    let (one, two) = (one.finish(), two.finish());
    program.stop();
    let aliases = Aliases::of(&ours);
    let ours = aliases.apply(leaves(&ours));
    let [one, two] = [one, two].map(|counts| aliases.apply(counts));
    assert!(one.len() > 20 && ours.len() > 20, "{one:?} {ours:?}");
    println!(
        "perf and perf: {:.4}, equals differ by less than {:.4}",
        manhattan(&one, &two),
        distance_of_equals(&one, &two)
    );
    // Both runs of perf together are the best reference that there is.
    let mut perf = one;
    two.iter().for_each(|(name, n)| *perf.entry(name.clone()).or_default() += n);
    let (distance, limit) = (manhattan(&ours, &perf), distance_of_equals(&ours, &perf));
    println!("prof and perf: {distance:.4}, equals differ by less than {limit:.4}");
    if distance > limit {
        return Err(format!("{distance} > {limit}: {}", differences(&ours, &perf)));
    }
    Ok(())
}

/// The permutation test refuses a profile in which a function has 6 points more than in the other.
#[test]
fn the_permutation_test_refuses_a_shift_of_6_points() {
    let profile = |shares: &[(&str, u64)]| -> Counts {
        shares.iter().map(|(name, n)| (name.to_string(), *n)).collect()
    };
    let one = profile(&[("a", 2000), ("b", 1000), ("c", 600), ("d", 400)]);
    let same = profile(&[("a", 1990), ("b", 1020), ("c", 580), ("d", 410)]);
    let other = profile(&[("a", 1760), ("b", 1240), ("c", 600), ("d", 400)]);
    assert!(manhattan(&one, &same) <= distance_of_equals(&one, &same));
    assert!(manhattan(&one, &other) > distance_of_equals(&one, &other));
    assert_eq!(manhattan(&one, &one), 0.0);
    assert_eq!(manhattan(&one, &profile(&[("e", 7)])), 2.0);
    assert!((manhattan(&one, &other) - 0.12).abs() < 1e-9);
}
