//! Kernel code that was loaded or unloaded while recording: BPF programs, trampolines.
//! `/proc/kallsyms` contains only the code at the end, and addresses are reused.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use profile::{
    Builder, Function, FunctionId, Line, Location, LocationId, Mapping, MappingId, Profile,
};

/// Maximum number of tracked code ranges; beyond it, `/proc/kallsyms` is used.
const MAX: usize = 1 << 14;

/// A range of code with its name.
#[derive(Debug)]
struct KernelSymbol {
    start: u64,
    end: u64,
    name: String,
    mapping: Option<MappingId>,
}

/// The code ranges that the kernel reported.
#[derive(Default)]
pub struct KernelCode {
    all: Vec<KernelSymbol>,
    /// Loaded and still present ranges, by first address.
    live: BTreeMap<u64, usize>,
    /// Ranges present from the start that were unloaded.
    gone: Vec<usize>,
}

impl KernelCode {
    /// Applies a `PERF_RECORD_KSYMBOL`.
    pub fn record(&mut self, start: u64, len: u64, gone: bool, name: &[u8]) {
        if gone && self.live.remove(&start).is_some() {
            return;
        }
        let known = |&&i: &&usize| self.all[i].start == start;
        if self.all.len() >= MAX || (gone && self.gone.iter().any(|i| known(&i))) {
            return;
        }
        let end = start.saturating_add(len);
        let name = String::from_utf8_lossy(name).into_owned();
        self.all.push(KernelSymbol { start, end, name, mapping: None });
        let index = self.all.len() - 1;
        if gone {
            self.gone.push(index);
        } else {
            self.live.insert(start, index);
        }
    }

    /// Mapping of a kernel address in code that was loaded while recording.
    pub fn mapping(&mut self, address: u64, builder: &mut Builder) -> Option<MappingId> {
        let (_, &index) = self.live.range(..=address).next_back()?;
        let symbol = &mut self.all[index];
        if address >= symbol.end {
            return None;
        }
        if symbol.mapping.is_none() {
            symbol.mapping = Some(add_mapping(&mut builder.profile, symbol));
        }
        symbol.mapping
    }

    /// Names the addresses in this code. Code that was present from the start is in the mapping
    /// `kernel`.
    pub fn name(&self, profile: &mut Profile, kernel: Option<MappingId>) {
        let came = self.all.iter().enumerate().filter_map(|(i, s)| Some((s.mapping?, i)));
        let came: FxHashMap<MappingId, usize> = came.collect();
        let left: BTreeMap<u64, usize> =
            self.gone.iter().map(|&i| (self.all[i].start, i)).collect();
        if came.is_empty() && left.is_empty() {
            return;
        }
        let mut made: FxHashMap<usize, (FunctionId, MappingId)> = FxHashMap::default();
        for id in (0..profile.locations.len() as u32).map(LocationId) {
            let Location { mapping: Some(mapping), address, .. } = profile.locations[id.0 as usize]
            else {
                continue;
            };
            let before = || left.range(..=address).next_back().map(|(_, &i)| i);
            let before = || before().filter(|&i| address < self.all[i].end);
            let symbol = came.get(&mapping).copied();
            let symbol = symbol.or_else(|| before().filter(|_| Some(mapping) == kernel));
            let Some(symbol) = symbol else { continue };
            let (function, mapping) = *made.entry(symbol).or_insert_with(|| {
                let symbol = &self.all[symbol];
                (add_function(profile, symbol), add_mapping(profile, symbol))
            });
            profile.locations[id.0 as usize].mapping = Some(mapping);
            profile.set_lines(id, &[Line { function, line: 0, column: 0 }]);
        }
    }
}

/// The mapping of a code range, which may exist already.
fn add_mapping(profile: &mut Profile, symbol: &KernelSymbol) -> MappingId {
    if let Some(mapping) = symbol.mapping {
        return mapping;
    }
    let file = if symbol.name.starts_with("bpf_") { "[bpf]" } else { "[kernel.kallsyms]" };
    profile.mappings.push(Mapping {
        start: symbol.start,
        limit: symbol.end,
        file: profile.strings.intern(file),
        has_functions: true,
        ..Mapping::default()
    });
    MappingId(profile.mappings.len() as u32 - 1)
}

fn add_function(profile: &mut Profile, symbol: &KernelSymbol) -> FunctionId {
    let name = profile.strings.intern(&symbol.name);
    profile.functions.push(Function { name, system_name: name, ..Function::default() });
    FunctionId(profile.functions.len() as u32 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_named_by_what_was_there_at_the_time() {
        const BASE: u64 = 0xffff_ffff_c000_0000;
        let mut k = KernelCode::default();
        let mut b = Builder::new(&[("samples", "count")]);
        let kernel = b.add_mapping(Mapping::default());
        let mut at = |k: &mut KernelCode, offset: u64| {
            let mapping = k.mapping(BASE + offset, &mut b).unwrap_or(kernel);
            b.location(Some(mapping), BASE + offset)
        };
        let before = at(&mut k, 0x10);
        k.record(BASE, 0x40, true, b"from the beginning");
        k.record(BASE, 0x40, false, b"first");
        let first = at(&mut k, 0x10);
        let behind = at(&mut k, 0x40);
        k.record(BASE, 0x40, true, b"first");
        k.record(BASE, 0x80, false, b"second");
        let second = at(&mut k, 0x10);
        k.record(BASE, 0x80, true, b"second");
        let p = {
            k.name(&mut b.profile, Some(kernel));
            b.profile
        };
        let name =
            |id| p.lines_of(id).first().map(|l| p.str(p.functions[l.function.0 as usize].name));
        assert_eq!(name(before), Some("from the beginning"));
        assert_eq!(
            (name(first), name(second), name(behind)),
            (Some("first"), Some("second"), None)
        );
    }
}
