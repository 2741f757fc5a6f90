//! The kernel's code: itself, modules and BPF programs.

use std::collections::BTreeMap;

use profile::{Line, LocationId, Mapping, MappingId, UNIDENTIFIED_KERNEL};
use sys::arch::KERNEL_START;

use super::machine::Machine;
use crate::assembly::Assembly;

/// Most modules and BPF programs at a time.
const MOST_RANGES: usize = 1 << 14;

/// Name of the kernel's mapping.
const KERNEL: &str = "[kernel.kallsyms]";

/// Code that was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelCode {
    /// A module with the name `[NAME]`, and its build ID in hexadecimal.
    Module { name: String, build_id: String },
    /// A BPF program.
    Bpf(String),
}

struct Range {
    end: u64,
    code: KernelCode,
    mapping: Option<MappingId>,
}

/// The kernel's code while records are read.
#[derive(Default)]
pub struct Kernel {
    /// By first address.
    ranges: BTreeMap<u64, Range>,
    /// The mapping of the kernel itself, and whether its addresses are those of its build.
    own: Option<OwnMapping>,
}

#[derive(Clone, Copy)]
struct OwnMapping {
    id: MappingId,
    is_identified: bool,
}

impl Kernel {
    pub fn insert(&mut self, start: u64, end: u64, code: KernelCode) {
        if end > start && (self.ranges.len() < MOST_RANGES || self.ranges.contains_key(&start)) {
            self.ranges.insert(start, Range { end, code, mapping: None });
        }
    }

    pub fn remove(&mut self, start: u64) {
        self.ranges.remove(&start);
    }

    /// The location of an address.
    pub fn location(&mut self, address: u64, machine: &Machine, all: &mut Assembly) -> LocationId {
        let own = self.own_mapping(machine, all);
        let range = self.ranges.range_mut(..=address).next_back();
        let Some((&start, range)) = range.filter(|(_, range)| address < range.end) else {
            return all.location(Some(own.id), address, &[]);
        };
        let (file, build_id) = match &range.code {
            KernelCode::Module { .. } if !own.is_identified => {
                return all.location(Some(own.id), address, &[]);
            }
            KernelCode::Module { name, build_id } => (name.as_str(), build_id.as_str()),
            KernelCode::Bpf(_) => ("[bpf]", ""),
        };
        let is_bpf = matches!(range.code, KernelCode::Bpf(_));
        let mapping = *range.mapping.get_or_insert_with(|| {
            let (file, build_id) = (all.string(file), all.string(build_id));
            let has_functions = is_bpf;
            let limit = range.end;
            let mapping = Mapping { start, limit, file, build_id, ..Mapping::default() };
            all.add_mapping(Mapping { has_functions, ..mapping })
        });
        if let KernelCode::Bpf(name) = &range.code {
            let function = all.function(name, "", 0);
            return all.location(Some(mapping), address, &[Line { function, line: 0, column: 0 }]);
        }
        all.location(Some(mapping), address, &[])
    }

    fn own_mapping(&mut self, machine: &Machine, all: &mut Assembly) -> OwnMapping {
        *self.own.get_or_insert_with(|| {
            let is_identified = machine.has_identified_kernel();
            let file = all.string(if is_identified { KERNEL } else { UNIDENTIFIED_KERNEL });
            let build_id = all.string(&machine.kernel_build_id);
            let (start, limit) = (KERNEL_START, u64::MAX);
            let mapping = Mapping { start, limit, file, build_id, ..Mapping::default() };
            OwnMapping { id: all.add_mapping(mapping), is_identified }
        })
    }
}

/// The name of a module by its file: `/lib/modules/…/snd-pcm.ko.xz` is `[snd_pcm]`.
pub fn module_name(path: &str) -> Option<String> {
    if path.starts_with('[') && path.ends_with(']') {
        return Some(path.to_owned());
    }
    let file = path.rsplit('/').next()?;
    let (stem, _) = file.split_once(".ko")?;
    Some(format!("[{}]", stem.replace('-', "_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(all: &Assembly, location: LocationId) -> String {
        let profile = &all.profile;
        let mapping = profile.locations[location.0 as usize].mapping.unwrap();
        let lines = profile.lines_of(location).iter();
        let names: Vec<_> = lines
            .map(|line| profile.str(profile.functions[line.function.0 as usize].name))
            .collect();
        format!("{} {}", profile.str(profile.mappings[mapping.0 as usize].file), names.join(" "))
    }

    #[test]
    fn code_is_what_was_loaded_at_the_time() {
        let mut all = Assembly::new(&[("samples", "count")]);
        let mut kernel = Kernel::default();
        let mut machine = Machine::default();
        machine.set_kernel(b"of another build");
        let base = 0xffff_ffff_c000_0000;
        let mut at = |kernel: &mut Kernel, address| {
            let location = kernel.location(address, &machine, &mut all);
            text(&all, location)
        };
        assert_eq!(at(&mut kernel, base), "[kernel.kallsyms] ");
        kernel.insert(base, base + 0x100, KernelCode::Bpf("bpf_prog_1_x".into()));
        let module = KernelCode::Module { name: "[ext4]".into(), build_id: String::new() };
        kernel.insert(base + 0x1000, base + 0x2000, module);
        assert_eq!(at(&mut kernel, base + 0xff), "[bpf] bpf_prog_1_x");
        assert_eq!(at(&mut kernel, base + 0x1000), "[ext4] ");
        assert_eq!(at(&mut kernel, base + 0x100), "[kernel.kallsyms] ");
        kernel.remove(base);
        assert_eq!(at(&mut kernel, base + 0xff), "[kernel.kallsyms] ");
    }

    #[test]
    fn modules_are_named_by_their_files() {
        let name = |path| module_name(path).unwrap_or_default();
        assert_eq!(name("/lib/modules/6.1/kernel/sound/snd-pcm.ko.xz"), "[snd_pcm]");
        assert_eq!((name("[ext4]"), name("/boot/vmlinux")), ("[ext4]".into(), String::new()));
    }
}
