//! The options of `-T heap` and `-T alloc`.

use clap::Args;

/// The heading of these options in help.
const HEADING: &str = "Heap (with -T heap or -T alloc)";

/// Mean bytes between samples, as in gperftools and Go.
const INTERVAL: u64 = 512 << 10;

/// The options as arguments.
#[derive(Clone, Debug, Default, Args)]
pub struct HeapOptions {
    /// Sample one allocation about every BYTES bytes [default: 512K]
    ///
    /// For example 64K or 1M; 1 samples every allocation.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = HEADING)]
    pub heap_interval: Option<u64>,
    /// Also record the memory in use at its peak
    #[arg(long, help_heading = HEADING)]
    pub peak: bool,
    /// Also record memory that was freed before its thread allocated again
    #[arg(long, help_heading = HEADING)]
    pub temporary: bool,
    /// Also record leaks: memory not freed and no longer reachable at exit
    #[arg(long, conflicts_with = "inject", help_heading = HEADING)]
    pub leaks: bool,
    /// Count anonymous mappings as allocations
    #[arg(long, help_heading = HEADING)]
    pub heap_mmap: bool,
    /// With -p, load prof's library into the running process
    ///
    /// Its allocations are recorded from then on. The library stays loaded when the recording ends,
    /// without effect.
    #[arg(long, requires = "pid", help_heading = HEADING)]
    pub inject: bool,
}

impl HeapOptions {
    /// The options with their defaults.
    pub fn settings(&self) -> HeapSettings {
        HeapSettings {
            interval: self.heap_interval.unwrap_or(INTERVAL),
            peak: self.peak,
            temporary: self.temporary,
            leaks: self.leaks,
            mappings: self.heap_mmap,
            inject: self.inject,
        }
    }

    /// The first of these options that was given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--heap-interval", self.heap_interval.is_some()),
            ("--peak", self.peak),
            ("--temporary", self.temporary),
            ("--leaks", self.leaks),
            ("--heap-mmap", self.heap_mmap),
            ("--inject", self.inject),
        ];
        given.into_iter().find_map(|(name, given)| given.then_some(name))
    }
}

/// The options with their defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapSettings {
    /// Mean distance between samples in bytes; 1: each allocation.
    pub interval: u64,
    /// Also the memory in use at its peak.
    pub peak: bool,
    /// Also allocations that were freed before their thread allocated anything else.
    pub temporary: bool,
    /// Also memory that was never freed and cannot be reached when its process exits.
    pub leaks: bool,
    /// Anonymous mappings count as allocations.
    pub mappings: bool,
    /// True if the library may be injected into a running process.
    pub inject: bool,
}

/// `4096`, `64K`, `1M`, `2G`, optionally followed by `iB`.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || "not a number of bytes from 1 to 1T; write 65536, 64K or 1M".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(1 << shift).filter(|bytes| (1..=1 << 40).contains(bytes));
    bytes.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units_and_limits() {
        let good = [("1", 1), ("64K", 64 << 10), ("1MiB", 1 << 20), ("2G", 2 << 30), ("8B", 8)];
        for (text, bytes) in good {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for bad in ["", "0", "-1", "1.5M", "K", "2T", "9999G", "18446744073709551615K", "1 K"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
