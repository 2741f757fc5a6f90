//! What reads foreign bytes, as functions that take any input and panic where a promise of prof's
//! does not hold. libFuzzer calls them (`tests/fuzz/run`), and so does a test with the corpus and with
//! changes to it.

mod analysis;
mod cost;
mod debuginfod;
#[path = "../../../crates/demangle/fuzz/demangle.rs"]
mod demangle;
mod formats_in;
mod interpreters_in;
mod names;
mod profile;
mod records;
mod run_time_code;
mod symbols;
mod unwind;

/// A reader of foreign bytes.
pub struct Target {
    /// Its name, and that of its directory in the corpus.
    pub name: &'static str,
    /// Takes an input.
    pub run: fn(&[u8]),
    /// Its inputs are programs, too.
    pub reads_programs: bool,
}

impl Target {
    const fn new(name: &'static str, run: fn(&[u8])) -> Target {
        Target { name, run, reads_programs: false }
    }

    const fn of_programs(name: &'static str, run: fn(&[u8])) -> Target {
        Target { name, run, reads_programs: true }
    }
}

/// All of them.
pub const ALL: [Target; 11] = [
    Target::new("profile", profile::run),
    Target::new("formats", formats_in::run),
    Target::new("records", records::run),
    Target::new("names", names::run),
    Target::new("demangle", demangle::run),
    Target::new("run_time_code", run_time_code::run),
    Target::of_programs("symbols", symbols::run),
    Target::of_programs("unwind", unwind::run),
    Target::of_programs("analysis", analysis::run),
    Target::new("debuginfod", debuginfod::run),
    Target::new("interpreters", interpreters_in::run),
];
