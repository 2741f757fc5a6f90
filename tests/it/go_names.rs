//! Stripped Go programs have the names that they carry for their own stack traces.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::common;
use crate::common::{Prof, needs, targets, temp_dir, unnamed};
use object::{Object, ObjectSymbol, SymbolKind};
use profile::LocationId;
use symbols::SymbolOptions;

fn program(flags: &[&str]) -> PathBuf {
    let flags: Vec<&str> = ["build"].into_iter().chain(flags.iter().copied()).collect();
    targets::built("truth", "truth.go", "go", &flags)
}

/// Name of the outermost function, and the line where nothing is inlined, at each address.
fn names(program: &Path, addresses: &[u64]) -> Vec<(String, i64)> {
    let mut p = unnamed(program, addresses);
    symbols::symbolize(&mut p, &SymbolOptions::default(), &|_, _| {});
    let name = |i| {
        let lines = p.lines_of(LocationId(i));
        let name = lines.last().map_or("", |l| p.str(p.functions[l.function.0 as usize].name));
        (name.to_owned(), if lines.len() == 1 { lines[0].line } else { 0 })
    };
    (0..addresses.len() as u32).map(name).collect()
}

/// The table leaves out the type arguments of generic functions, debug information has them.
fn bare(name: &str) -> String {
    match (name.find('['), name.rfind(']')) {
        (Some(from), Some(to)) => format!("{}[...]{}", &name[..from], &name[to + 1..]),
        _ => name.to_owned(),
    }
}

#[track_caller]
fn check(flags: &[&str]) {
    let whole = program(flags);
    let stripped: Vec<&str> = flags.iter().copied().chain(["-ldflags=-s -w"]).collect();
    let stripped = program(&stripped);
    // Each function has the same address in both programs.
    let data = std::fs::read(&whole).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    assert!(
        object::File::parse(&*std::fs::read(&stripped).unwrap())
            .unwrap()
            .symbols()
            .next()
            .is_none()
    );
    let functions = elf.symbols().filter(|s| s.kind() == SymbolKind::Text && s.size() > 0);
    let go = functions.filter(|s| s.name().is_ok_and(|n| n.contains('.') && !n.contains("cgo")));
    let places = go.map(|s| (s.address(), s.size()));
    let spread = |(start, size): (u64, u64)| (0..4).map(move |i| start + size * i / 4);
    let mut addresses: Vec<u64> = places.flat_map(spread).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let (ours, theirs) = (names(&stripped, &addresses), names(&whole, &addresses));
    let mut different = HashMap::new();
    let (mut named, mut lines) = (0, 0);
    for ((address, ours), theirs) in addresses.iter().zip(&ours).zip(&theirs) {
        named += usize::from(!ours.0.is_empty());
        lines += usize::from(ours.1 > 0);
        let same_line = ours.1 == 0 || theirs.1 == 0 || ours.1 == theirs.1;
        if !ours.0.is_empty() && (bare(&ours.0) != bare(&theirs.0) || !same_line) {
            different.insert(address, (ours, theirs));
        }
    }
    let all = addresses.len();
    assert!(all > 1000 && named * 1000 >= all * 999, "{named} of {all} addresses have names");
    assert!(lines * 2 > all, "{lines} of {all} addresses have lines");
    assert!(different.is_empty(), "{} of {all}: {different:#x?}", different.len());
}

#[test]
fn a_stripped_program_has_the_names_of_the_whole_one() {
    if needs(&["go"]) {
        check(&["-trimpath"]);
    }
}

#[test]
fn a_stripped_pie_has_the_names_of_the_whole_one() {
    if needs(&["go", "gcc"]) {
        check(&["-trimpath", "-buildmode=pie"]);
    }
}

#[test]
fn nearly_all_samples_of_a_stripped_program_have_names() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let stripped = program(&["-ldflags=-s -w"]);
    Prof::new(&dir, "record -F 499").target(&stripped, "1 1000").run().ok();
    let p = common::read(dir.path().join("profile.pb.gz"));
    let is_own = |l: &&u64| {
        let mapping = p.mapping_of.get(l).map(|&m| p.mappings[m].file.as_str());
        mapping.is_some_and(|file| Path::new(file) == stripped)
    };
    let leaves = p.samples.iter().filter_map(|s| s.locations.first().filter(is_own));
    let unnamed = |l: &&u64| p.lines[*l].first().is_none_or(|name| name.starts_with("0x"));
    let unnamed: Vec<String> =
        leaves.filter(unnamed).map(|l| format!("{:x}", p.addresses[l])).collect();
    assert!(unnamed.is_empty(), "no names in the program: {unnamed:?}");
    let named = p.share(|s| {
        p.user_frames(s).first().is_some_and(|name| !name.starts_with("0x") && !name.contains('+'))
    });
    assert!(named >= 99.0, "{named} % of the samples have names");
}
