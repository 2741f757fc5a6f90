//! The registers of interrupted code in samples (`PERF_SAMPLE_REGS_INTR`).

use perf_event_open_sys::bindings as abi;

use super::{AllRegs, CONTEXT_KERNEL, CONTEXT_MAX, Callchain, RecordReader};
use crate::arch;

/// Number of registers in [`arch::INTERRUPTED_REGISTERS`].
const REGISTERS: u64 = arch::INTERRUPTED_REGISTERS.count_ones() as u64;

/// The registers [`arch::INTERRUPTED_REGISTERS`] of interrupted code, undecoded; empty if the sample
/// has none.
pub(super) struct Interrupted<'a>(&'a [u8]);

impl<'a> Interrupted<'a> {
    /// Reads the field of a record.
    pub fn read(r: &mut RecordReader<'a>) -> Option<Interrupted<'a>> {
        match r.u64()? as u32 {
            abi::PERF_SAMPLE_REGS_ABI_NONE => Some(Interrupted(&[])),
            _ => r.bytes(REGISTERS * 8).map(Interrupted),
        }
    }

    /// True if the sampled user registers are those of the thread. To be called for samples of the
    /// kernel only; `chain` is their call chain.
    pub fn leaves_saved(&self, sampled: AllRegs<'_>, chain: Callchain<'_>) -> bool {
        arch::registers_are_saved(self.0, sampled.0, || kernel_addresses(chain))
    }
}

/// Number of kernel addresses in a call chain.
fn kernel_addresses(chain: Callchain<'_>) -> usize {
    let (words, _) = chain.0.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_ne_bytes(*word));
    let kernel = words.skip_while(|&word| word != CONTEXT_KERNEL).skip(1);
    kernel.take_while(|&word| word < CONTEXT_MAX).count()
}
