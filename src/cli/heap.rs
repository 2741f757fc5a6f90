//! The arguments for `-T heap` and `-T alloc`.

use clap::Args;

use super::target::Type;
use super::usage;
use crate::recorder::HeapSpec;

/// As gperftools and Go have it.
const INTERVAL: u64 = 512 << 10;

/// How the heap is sampled.
#[derive(Debug, Default, Args)]
pub struct HeapArgs {
    /// For -T heap and alloc: sample an allocation about each so many bytes: 64K, 1M; 1 samples
    /// each [default: 512K]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = "Events")]
    pub heap_interval: Option<u64>,
    /// With -T heap or alloc: also what was in use when that was most
    #[arg(long, help_heading = "Events")]
    pub peak: bool,
    /// With -T heap or alloc: also what was freed before its thread allocated anything else
    #[arg(long, help_heading = "Events")]
    pub temporary: bool,
    /// With -T heap or alloc: also what was never freed and could not be reached any more when its
    /// process exited
    #[arg(long, conflicts_with = "inject", help_heading = "Events")]
    pub leaks: bool,
    /// With -T heap or alloc: anonymous mappings count as allocations, too
    #[arg(long, help_heading = "Events")]
    pub heap_mmap: bool,
    /// With -p and -T heap or alloc: put prof's library into the running process, whose allocations
    /// are seen from then on; it stays there, without effect, when the recording ends
    #[arg(long, requires = "pid", help_heading = "Events")]
    pub inject: bool,
}

impl HeapArgs {
    /// The heap profile to record with these types.
    ///
    /// Errors: an option without a type that it applies to.
    pub fn spec(&self, types: &[Type]) -> anyhow::Result<Option<HeapSpec>> {
        let in_use = types.contains(&Type::Heap);
        if !in_use && !types.contains(&Type::Alloc) {
            return match self.given() {
                Some(option) => Err(usage(format!("{option} needs -T heap or -T alloc"))),
                None => Ok(None),
            };
        }
        Ok(Some(HeapSpec {
            interval: self.heap_interval.unwrap_or(INTERVAL),
            in_use,
            peak: self.peak,
            temporary: self.temporary,
            leaks: self.leaks,
            mappings: self.heap_mmap,
            inject: self.inject,
        }))
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
    fn sizes() {
        let good = [("1", 1), ("64K", 64 << 10), ("1MiB", 1 << 20), ("2G", 2 << 30), ("8B", 8)];
        for (text, bytes) in good {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for bad in ["", "0", "-1", "1.5M", "K", "2T", "9999G", "18446744073709551615K", "1 K"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
