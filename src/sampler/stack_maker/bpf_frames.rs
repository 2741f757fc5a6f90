//! Frames of BPF programs in kernel stacks that are recorded at tracepoints: the program itself and
//! its callers. They do not belong to the thread's work.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

/// Functions of the kernel that call BPF programs at tracepoints (`kernel/trace/bpf_trace.c` and
/// `include/trace/bpf_probe.h`).
const CALLERS: [&str; 4] = ["bpf_trace_run", "__bpf_trace_", "__traceiter_", "syscall_exit_"];

/// Maximum depth of these frames.
const DEPTH: usize = 8;

/// The addresses of those functions, sorted.
#[derive(Default)]
pub struct BpfFrames(Vec<Range<u64>>);

impl BpfFrames {
    /// Reads them, which takes a tenth of a second: to be done before the rings fill. A separate
    /// thread would have no priority, and prof would wait for it next to a busy target.
    pub fn read() -> BpfFrames {
        let symbols = File::open("/proc/kallsyms").map(BufReader::new);
        BpfFrames(symbols.map(callers).unwrap_or_default())
    }

    /// Removes the frames of programs; nothing, if the addresses are not known.
    pub fn strip(&self, kernel: &mut Vec<u64>) {
        let BpfFrames(callers) = self;
        let is_caller = |address: &u64| {
            let after = callers.partition_point(|range| range.start <= *address);
            after > 0 && callers[after - 1].contains(address)
        };
        let front = kernel.iter().take(DEPTH).rposition(is_caller);
        kernel.drain(..front.map_or(0, |last| last + 1));
    }
}

/// From lines of `/proc/kallsyms`, which are sorted by address except for modules.
fn callers(symbols: impl BufRead) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut open = None;
    for line in symbols.lines().map_while(Result::ok) {
        let mut words = line.split(' ');
        let address = words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
        let (Some(address @ 1..), Some(name)) = (address, words.nth(1)) else { continue };
        if let Some(start) = open.filter(|&start| start < address) {
            found.push(start..address);
            open = None;
        }
        if CALLERS.iter().any(|prefix| name.starts_with(prefix)) {
            open = Some(address);
        }
    }
    found.sort_by_key(|range| range.start);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_front_is_removed() {
        let symbols = "0000000000001000 T schedule\n0000000000002000 t __bpf_trace_x\n\
                       0000000000002010 T next\n0000000000003000 T bpf_trace_run1\n\
                       0000000000003050 T bpf_trace_run2\n0000000000004000 T last\n";
        let tracing = BpfFrames(callers(symbols.as_bytes()));
        let strip = |stack: &[u64]| {
            let mut stack = stack.to_vec();
            tracing.strip(&mut stack);
            stack
        };
        assert_eq!(strip(&[0xf000, 0x3060, 0x2005, 0x1010, 0x1000]), [0x1010, 0x1000]);
        assert_eq!(strip(&[0x1010, 0x2010]), [0x1010, 0x2010], "nothing is in front");
        assert!(strip(&[]).is_empty());
        let hidden = "0000000000000000 T bpf_trace_run1\n0000000000000000 T schedule\n";
        assert!(callers(hidden.as_bytes()).is_empty());
    }
}
