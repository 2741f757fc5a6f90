//! Checks the edges of a profile against the machine code: the call before a return address has
//! to lead to the function that the inner frame lies in.
//!
//! A direct call names its target. It leads to a function when that is the target's, or one that
//! the target's code jumps to (a tail call, a cold part, an entry of the PLT), over any number of
//! such jumps. The code does not show the targets of indirect calls and jumps: such edges are
//! counted apart. Shares no code with the product.

use std::collections::{BTreeMap, HashMap, HashSet};

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use object::{Object, ObjectSection, ObjectSymbol};

use super::pprof::{Pprof, Sample};

/// Most instructions that are followed from a call's target.
const MAX_STEPS: usize = 200_000;

/// `mov $15, %rax; syscall`: the code to which signal handlers return; nothing has called it.
const SIGRETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// The functions that Go's signal handler makes interrupted code call, where it has no call.
const CALLED_BY_GO_SIGNALS: [&str; 2] = ["runtime.asyncPreempt", "runtime.sigpanic"];

/// The kind of an edge by the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// A direct call leads there.
    Right,
    /// A direct call leads elsewhere, or there is no call.
    Wrong,
    /// An indirect call, or one through the PLT into another binary.
    Open,
    /// A frame of a signal, or code that is in no file.
    Unchecked,
}

/// The edges of a profile, in samples.
#[derive(Debug, Default)]
pub struct Edges {
    pub right: i64,
    pub open: i64,
    pub unchecked: i64,
    /// Callee, caller and samples of the impossible edges.
    pub wrong: BTreeMap<(String, String), i64>,
}

impl Edges {
    /// Samples with an impossible edge (one sample may count more than once).
    pub fn wrong(&self) -> i64 {
        self.wrong.values().sum()
    }
}

/// Checks all edges between user frames of a profile.
pub fn check(p: &Pprof) -> Edges {
    check_where(p, |_| true)
}

/// Fails when an edge of the profile is impossible.
#[track_caller]
pub fn assert_right(what: &str, p: &Pprof) -> Edges {
    let edges = check(p);
    assert!(edges.wrong.is_empty(), "{what}: impossible edges: {:#?}", edges.wrong);
    edges
}

/// The same of the samples that `keep` selects.
pub fn check_where(p: &Pprof, keep: impl Fn(&Sample) -> bool) -> Edges {
    let (mut edges, mut files) = (Edges::default(), Files::default());
    let column = p.column("samples");
    for sample in p.samples.iter().filter(|s| keep(s)) {
        let value = sample.values[column];
        for pair in sample.locations.windows(2) {
            match files.edge(p, pair[0], pair[1]) {
                Edge::Right => edges.right += value,
                Edge::Open => edges.open += value,
                Edge::Unchecked => edges.unchecked += value,
                Edge::Wrong => {
                    let of = (named(p, pair[0]), named(p, pair[1]));
                    *edges.wrong.entry(of).or_default() += value;
                }
            }
        }
    }
    edges
}

/// A location's function, file and address.
fn named(p: &Pprof, location: u64) -> String {
    let name = p.lines[&location].last().map_or("[?]", String::as_str);
    let file = p.mapping_of.get(&location).map_or("", |&m| p.mappings[m].file.as_str());
    let file = file.rsplit('/').next().unwrap_or(file);
    format!("{name} ({file}+{:#x})", p.addresses[&location])
}

#[derive(Default)]
struct Files {
    by_path: HashMap<String, Option<File>>,
    edges: HashMap<(u64, u64), Edge>,
}

impl Files {
    fn edge(&mut self, p: &Pprof, callee: u64, caller: u64) -> Edge {
        if let Some(&known) = self.edges.get(&(callee, caller)) {
            return known;
        }
        let edge = self.decide(p, callee, caller).unwrap_or(Edge::Unchecked);
        self.edges.insert((callee, caller), edge);
        edge
    }

    /// `None`: a location of the two has no code in a file.
    fn decide(&mut self, p: &Pprof, callee: u64, caller: u64) -> Option<Edge> {
        let function = p.lines[&callee].last().map(String::as_str);
        if function.is_some_and(|name| CALLED_BY_GO_SIGNALS.contains(&name)) {
            return Some(Edge::Unchecked);
        }
        let path = |location: u64| {
            let mapping = p.mapping_of.get(&location)?;
            (!p.is_kernel(&location)).then(|| p.mappings[*mapping].file.as_str())
        };
        let (inner, outer) = (path(callee)?, path(caller)?);
        let (to, from) = (p.addresses[&callee], p.addresses[&caller]);
        for path in [inner, outer] {
            if !self.by_path.contains_key(path) {
                self.by_path.insert(path.to_string(), File::read(path));
            }
        }
        let inner_file = self.by_path[inner].as_ref();
        if inner_file.is_some_and(|f| f.is_sigreturn(to)) {
            return Some(Edge::Unchecked);
        }
        let file = self.by_path[outer].as_ref()?;
        let called = file.call_before(from.wrapping_add(1))?;
        Some(match called {
            Call::None => Edge::Wrong,
            Call::Indirect => Edge::Open,
            Call::Direct(target) if inner == outer => file.leads(target, Some(to)),
            Call::Direct(target) => file.leads(target, None),
        })
    }
}

/// A call instruction.
#[derive(Clone, Copy)]
enum Call {
    None,
    Direct(u64),
    Indirect,
}

/// A binary: its code, and the ranges of its functions.
struct File {
    /// Address and bytes of each section with code.
    code: Vec<(u64, Vec<u8>)>,
    /// First address and first one behind, by address; a function may have parts.
    functions: Vec<(u64, u64)>,
}

impl File {
    fn read(path: &str) -> Option<File> {
        // A mapping may be one of a device, without end.
        std::fs::metadata(path).ok().filter(|file| file.is_file())?;
        let data = std::fs::read(path).ok()?;
        let elf = object::File::parse(&*data).ok()?;
        let code = elf.sections().filter(|s| s.kind() == object::SectionKind::Text);
        let code: Vec<_> =
            code.filter_map(|s| Some((s.address(), s.data().ok()?.to_vec()))).collect();
        let symbols = elf.symbols().chain(elf.dynamic_symbols());
        let of_symbols = symbols
            .filter(|s| s.kind() == object::SymbolKind::Text && s.size() > 0)
            .map(|s| (s.address(), s.address() + s.size()));
        let mut functions: Vec<_> = of_symbols.collect();
        if let Some(section) = elf.section_by_name(".eh_frame") {
            let bases = BaseAddresses::default().set_eh_frame(section.address());
            let bytes = section.data().ok()?;
            let mut frames = EhFrame::new(bytes, LittleEndian);
            frames.set_address_size(8);
            let mut entries = frames.entries(&bases);
            while let Ok(Some(entry)) = entries.next() {
                let CieOrFde::Fde(partial) = entry else { continue };
                if let Ok(fde) = partial.parse(EhFrame::cie_from_offset) {
                    functions.push((fde.initial_address(), fde.end_address()));
                }
            }
        }
        functions.sort_unstable();
        functions.dedup();
        Some(File { code, functions })
    }

    /// The bytes from an address to the end of its section.
    fn from(&self, address: u64) -> Option<&[u8]> {
        self.code.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(at..).filter(|rest| !rest.is_empty())
        })
    }

    /// The bytes of its section before an address.
    fn before(&self, address: u64) -> Option<&[u8]> {
        self.code.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(..at).filter(|before| !before.is_empty())
        })
    }

    fn is_sigreturn(&self, address: u64) -> bool {
        // From the byte before it, as of a return address, to the end of the system call.
        (0..=SIGRETURN.len() as u64 + 1).any(|back| {
            let at = address.wrapping_add(1).wrapping_sub(back);
            self.from(at).is_some_and(|after| after.starts_with(&SIGRETURN))
        })
    }

    /// Ranges of the functions that hold an address.
    fn functions_at(&self, address: u64) -> impl Iterator<Item = &(u64, u64)> {
        let upto = self.functions.partition_point(|&(start, _)| start <= address);
        // Few functions lie within others.
        let near = self.functions[..upto].iter().rev().take(64);
        near.filter(move |&&(_, end)| address < end)
    }

    /// The call that ends at an address; `None`: no code is there.
    fn call_before(&self, address: u64) -> Option<Call> {
        let before = self.before(address)?;
        // Decoded from the function's beginning, instructions have their true addresses.
        let known = self.functions_at(address.wrapping_sub(1)).map(|f| f.0).max();
        if let Some(start) = known.filter(|s| address - s <= 1 << 20) {
            let from = before.len().checked_sub((address - start) as usize)?;
            let mut last = Instruction::default();
            for instruction in &mut Decoder::with_ip(64, &before[from..], start, 0) {
                last = instruction;
            }
            // Data between instructions misleads the decoder.
            if !last.is_invalid() && last.next_ip() == address {
                return Some(call(&last));
            }
        }
        let direct = before.len().checked_sub(5).filter(|&at| before[at] == 0xe8);
        let lengths = [5, 2, 3, 6, 7, 4, 8];
        let found = lengths.into_iter().filter(|&n| n != 5 || direct.is_some()).find_map(|n| {
            let bytes = &before[before.len().checked_sub(n)?..];
            let ip = address - n as u64;
            let one = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
            let is_call = one.len() == n && !matches!(call(&one), Call::None);
            is_call.then(|| call(&one))
        });
        Some(found.unwrap_or(Call::None))
    }

    /// The kind of an edge from a call's target: to the function of `to`, or (`None`) out of this
    /// binary.
    fn leads(&self, target: u64, to: Option<u64>) -> Edge {
        let same = |at: u64| {
            to.is_some_and(|to| at == to || self.functions_at(to).any(|f| (f.0..f.1).contains(&at)))
        };
        let (mut todo, mut seen, mut open) = (vec![target], HashSet::new(), false);
        while let Some(start) = todo.pop() {
            let Some(bytes) = self.from(start) else { continue };
            let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
            let mut instruction = Instruction::default();
            while decoder.can_decode() {
                decoder.decode_out(&mut instruction);
                if instruction.is_invalid() || !seen.insert(instruction.ip()) {
                    break;
                }
                if seen.len() > MAX_STEPS {
                    return Edge::Open;
                }
                if same(instruction.ip())
                    || to.is_some_and(|to| (instruction.ip()..instruction.next_ip()).contains(&to))
                {
                    return Edge::Right;
                }
                let flow = instruction.flow_control();
                if matches!(flow, FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch)
                {
                    todo.push(instruction.near_branch_target());
                }
                open |= flow == FlowControl::IndirectBranch;
                let ends = matches!(
                    flow,
                    FlowControl::UnconditionalBranch
                        | FlowControl::IndirectBranch
                        | FlowControl::Return
                        | FlowControl::Exception
                );
                // A call that does not return is the last one of its function.
                let last = matches!(flow, FlowControl::Call | FlowControl::IndirectCall)
                    && instruction.mnemonic() != iced_x86::Mnemonic::Syscall
                    && self.functions_at(start).all(|f| instruction.next_ip() >= f.1)
                    && self.functions_at(start).next().is_some();
                if ends || last || instruction.mnemonic() == iced_x86::Mnemonic::Hlt {
                    break;
                }
            }
        }
        if open { Edge::Open } else { Edge::Wrong }
    }
}

fn call(instruction: &Instruction) -> Call {
    match instruction.flow_control() {
        FlowControl::Call if instruction.is_call_near() => {
            Call::Direct(instruction.near_branch_target())
        }
        FlowControl::IndirectCall => Call::Indirect,
        _ => Call::None,
    }
}
