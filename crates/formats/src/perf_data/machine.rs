//! The machine of a recording, compared with this one.

use std::sync::OnceLock;

use sys::elf::{build_id_in_notes, hex};
use sys::procfs;

use super::header::Header;
use super::record::{BuildId, Mode};

/// The kernel's name in perf's build IDs.
const KERNEL: &[u8] = b"[kernel.kallsyms]";

/// A place of the recorded kernel: a symbol, and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelBase {
    /// `_text` or `_stext`.
    pub symbol: String,
    pub address: u64,
}

/// The machine of a recording.
#[derive(Debug, Default)]
pub struct Machine {
    /// The kernel's build ID in hexadecimal; empty if it is not known.
    pub kernel_build_id: String,
    /// Set when its record was read.
    pub base: Option<KernelBase>,
    /// It has the architecture that prof runs on.
    pub has_own_architecture: bool,
    pub architecture: String,
    /// It has the name of this one.
    pub is_here: bool,
    /// It runs the kernel of this machine.
    pub has_this_kernel: bool,
}

impl Machine {
    pub fn new(header: &Header) -> Machine {
        let mut machine = Machine::default();
        machine.take_in(header);
        machine
    }

    /// Takes in what a header says of the machine; what its records have said stays.
    pub fn take_in(&mut self, header: &Header) {
        let own = std::env::consts::ARCH;
        self.architecture = header.architecture.clone().unwrap_or_else(|| own.to_owned());
        self.has_own_architecture = self.architecture == own;
        header.build_ids.iter().for_each(|build_id| self.add_build_id(build_id));
        let here = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        self.is_here = header.hostname.as_deref().is_some_and(|name| name == here.trim());
    }

    /// Takes in a build ID of the recording: that of the kernel.
    pub fn add_build_id(&mut self, build_id: &BuildId) {
        if build_id.mode == Mode::Kernel && build_id.path == KERNEL {
            self.set_kernel(&build_id.id);
        }
    }

    /// Sets the build ID of the kernel.
    pub fn set_kernel(&mut self, build_id: &[u8]) {
        static RUNNING: OnceLock<Vec<u8>> = OnceLock::new();
        let running = RUNNING.get_or_init(|| {
            let notes = std::fs::read("/sys/kernel/notes").unwrap_or_default();
            build_id_in_notes(&notes).unwrap_or_default()
        });
        self.kernel_build_id = hex(build_id);
        self.has_this_kernel = !running.is_empty() && running == build_id;
    }

    /// True if it has the name and the kernel of this one.
    pub fn is_this(&self) -> bool {
        self.is_here && self.has_this_kernel
    }

    /// True if names for the kernel's addresses can be right or are refused by its build ID: it is
    /// another build, or this one at the same addresses.
    pub fn has_identified_kernel(&self) -> bool {
        let is_in_place = || {
            let base = self.base.as_ref();
            base.is_some_and(|base| procfs::kernel_symbol(&base.symbol) == Some(base.address))
        };
        !self.kernel_build_id.is_empty() && (!self.has_this_kernel || is_in_place())
    }
}

impl KernelBase {
    /// The base by the kernel's record: its name ends with the symbol, whose address is the offset.
    pub fn parse(name: &str, offset: u64) -> Option<KernelBase> {
        let symbol = name.strip_prefix("[kernel.kallsyms]")?;
        ["_text", "_stext"]
            .contains(&symbol)
            .then(|| KernelBase { symbol: symbol.to_owned(), address: offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_of_a_stream_leaves_what_its_records_have_said() {
        let mut machine = Machine::default();
        machine.set_kernel(b"from a record");
        machine.base = KernelBase::parse("[kernel.kallsyms]_text", 0x1234);
        let before = (machine.kernel_build_id.clone(), machine.base.is_some());
        machine.take_in(&Header::default());
        assert_eq!((machine.kernel_build_id, machine.base.is_some()), before);
    }

    #[test]
    fn a_kernel_without_a_build_id_or_at_another_address_is_not_identified() {
        let mut machine = Machine::new(&Header::default());
        assert!(machine.has_own_architecture && !machine.is_this());
        assert!(!machine.has_identified_kernel());
        machine.set_kernel(b"of another build");
        assert!(!machine.has_this_kernel && machine.has_identified_kernel());
        let notes = std::fs::read("/sys/kernel/notes").unwrap_or_default();
        let running = build_id_in_notes(&notes).expect("the build ID of the running kernel");
        machine.set_kernel(&running);
        assert!(machine.has_this_kernel && !machine.has_identified_kernel());
        machine.base = KernelBase::parse("[kernel.kallsyms]_text", 0x1234);
        assert!(machine.base.is_some() && !machine.has_identified_kernel());
        assert_eq!(KernelBase::parse("[guest.kernel.kallsyms]_text", 1), None);
    }
}
