//! The corpus of each fuzz target, and the same changes to it in each run.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use prof_fuzz::{ALL, Target};

/// Changed inputs for each file of a corpus.
const CHANGED: usize = 1000;

/// Longest input, as in `tests/fuzz/run`.
const LONGEST: usize = 65536;

/// Values at which lengths and offsets are wrong.
const EDGES: [u64; 8] = [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];

/// Targets count the memory that is held: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// A generator of numbers that are the same in each run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Changes an input in one to four places; `other` is another one.
    fn change(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(4) {
            self.change_once(input, other);
        }
        input.truncate(LONGEST);
    }

    fn change_once(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        if input.is_empty() {
            return input.extend_from_slice(other);
        }
        let at = self.below(input.len());
        match self.below(7) {
            0 => input[at] ^= 1 << self.below(8),
            1 => input[at] = self.next() as u8,
            2 => {
                let edge = EDGES[self.below(EDGES.len())].to_le_bytes();
                let size = 1 << self.below(4);
                input[at..].iter_mut().zip(&edge[..size]).for_each(|(byte, new)| *byte = *new);
            }
            3 => input.truncate(at),
            4 => drop(input.drain(at..(at + self.below(64)).min(input.len()))),
            5 => {
                let copy = input[at..(at + self.below(64)).min(input.len())].to_vec();
                input.splice(at..at, copy);
            }
            _ => {
                let from = self.below(other.len().max(1)).min(other.len());
                let part = &other[from..(from + self.below(256)).min(other.len())];
                input.splice(at..at, part.iter().copied());
            }
        }
    }
}

/// The files of a directory, in the order of their names.
fn files(directory: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a corpus").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("an input")).collect()
}

/// Runs a target with its corpus and with changed inputs.
fn replay(name: &str) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let target: &Target = ALL.iter().find(|target| target.name == name).expect("a target");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut corpus = files(&root.join("corpus").join(name));
    if target.reads_programs {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let status = Command::new(root.join("programs")).arg(directory.path()).status();
        assert!(status.is_ok_and(|status| status.success()), "gcc builds programs");
        corpus.extend(files(directory.path()));
    }
    assert!(!corpus.is_empty(), "an empty corpus");
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for (i, input) in corpus.iter().enumerate() {
        (target.run)(input);
        for _ in 0..CHANGED {
            let mut changed = input.clone();
            numbers.change(&mut changed, &corpus[(i + 1) % corpus.len()]);
            if let Err(panic) = std::panic::catch_unwind(|| (target.run)(&changed)) {
                let file = std::env::temp_dir().join(format!("prof-fuzz-{name}"));
                std::fs::write(&file, &changed).ok();
                eprintln!("{name}: input {i} of the corpus, changed: {}", file.display());
                std::panic::resume_unwind(panic);
            }
        }
    }
}

macro_rules! replayed {
    ($($test:ident: $target:literal),* $(,)?) => {
        $(#[test] fn $test() { replay($target); })*

        #[test]
        fn all_targets_are_replayed() {
            let names: Vec<&str> = ALL.iter().map(|target| target.name).collect();
            assert_eq!(names, [$($target),*]);
        }
    };
}

replayed! {
    foreign_profiles_are_read_or_refused: "profile",
    profiles_in_other_formats_are_read_or_refused: "formats",
    records_of_the_kernel_are_read_or_refused: "records",
    names_are_shown_within_bounds: "names",
    mangled_names_are_demangled_within_bounds: "demangle",
    descriptions_of_run_time_code_cost_what_their_size_allows: "run_time_code",
    programs_are_symbolized_or_refused: "symbols",
    stacks_in_any_program_are_unwound_within_bounds: "unwind",
    the_analysis_of_code_costs_what_its_size_allows: "analysis",
    answers_of_debuginfod_servers_are_taken_or_refused: "debuginfod",
    memory_of_interpreters_is_read_within_bounds: "interpreters",
}
