//! Kernel functions, from `/proc/kallsyms`.

use std::cell::LazyCell;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::address_frames::AddressFrames;
use super::pace::Pace;
use profile::{Cause, UNIDENTIFIED_KERNEL};
use sys::elf::{build_id_in_notes, hex};

/// Largest distance of an address from its symbol: no kernel function is that long.
const MAX_DISTANCE: u64 = 1 << 20;

/// The running kernel as a source of names. Its list of symbols is read when it is needed: the
/// kernel takes 50 ms for it.
#[derive(Default)]
pub struct RunningKernel {
    symbols: OnceLock<Result<Arc<Kallsyms>, Cause>>,
    kept: Option<Arc<KeptSymbols>>,
}

impl RunningKernel {
    /// The running kernel, whose list of symbols may have been `kept` by an earlier lookup.
    pub fn new(kept: Option<Arc<KeptSymbols>>) -> RunningKernel {
        RunningKernel { symbols: OnceLock::new(), kept }
    }

    /// The functions of the kernel and its modules, among them those at `addresses`.
    ///
    /// # Errors
    ///
    /// Those of [`Kallsyms::of_this_kernel`].
    pub fn symbols(&self, addresses: &[u64], pace: &mut Pace<'_>) -> Result<&Kallsyms, Cause> {
        let find = || {
            if let Some(kept) = self.kept.as_ref().and_then(|kept| kept.at(addresses)) {
                return Ok(kept);
            }
            let symbols = Arc::new(Kallsyms::of_this_kernel(pace)?);
            self.kept.iter().for_each(|kept| kept.set(symbols.clone()));
            Ok(symbols)
        };
        let symbols = self.symbols.get_or_init(find);
        symbols.as_ref().map(|symbols| &**symbols).map_err(Cause::clone)
    }

    /// The same, if they were read already.
    pub fn symbols_read(&self) -> Option<&Kallsyms> {
        Some(self.symbols.get()?.as_ref().ok()?)
    }
}

/// The kernel's list of symbols, kept between the lookups of a recording that goes on.
#[derive(Debug, Default)]
pub struct KeptSymbols(Mutex<Option<Arc<Kallsyms>>>);

impl KeptSymbols {
    /// The list, if it still holds for all of these addresses: they are in the kernel itself, or in
    /// modules that are where they were. BPF programs come and go unnoticed.
    fn at(&self, addresses: &[u64]) -> Option<Arc<Kallsyms>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let now = LazyCell::new(|| fs::read_to_string("/proc/modules").unwrap_or_default());
        let holds = |&address: &u64| kept.holds_at(address, || &now);
        addresses.iter().all(holds).then_some(kept)
    }

    fn set(&self, symbols: Arc<Kallsyms>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(symbols);
    }
}

/// A number of the running boot, during which the addresses of the kernel's own functions stay the
/// same.
pub fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// The functions of the kernel and its modules.
#[derive(Debug, Default)]
pub struct Kallsyms {
    names: String,
    /// Places of modules, ascending.
    places: Vec<ModulePlace>,
    /// Sorted by address; one for each address.
    symbols: Vec<KernelSymbol>,
    /// Names of modules; the first is that of the kernel itself, which is empty.
    modules: Vec<String>,
}

/// The place of a module, from a line of `/proc/modules`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ModulePlace {
    start: u64,
    end: u64,
    name: String,
}

impl ModulePlace {
    /// Reads `NAME SIZE … ADDRESS`; `None` if the address is hidden.
    fn parse(line: &str) -> Option<ModulePlace> {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let start = u64::from_str_radix(fields.get(5)?.strip_prefix("0x")?, 16).ok()?;
        let end = start.checked_add(fields[1].parse().ok()?).filter(|_| start != 0)?;
        Some(ModulePlace { start, end, name: fields[0].to_owned() })
    }

    /// Reads `/proc/modules`.
    fn parse_all(text: &str) -> impl Iterator<Item = ModulePlace> {
        text.lines().filter_map(ModulePlace::parse)
    }
}

#[derive(Clone, Copy, Debug)]
struct KernelSymbol {
    address: u64,
    name: u32,
    /// 0: not a function, but the end of the previous one.
    length: u16,
    rank: u8,
    module: u16,
}

/// Rank of symbols that are not functions.
const NO_FUNCTION: u8 = u8::MAX;

/// A function of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFunction<'a> {
    /// Name of the function.
    pub name: &'a str,
    /// Its module, or `bpf` for a BPF program; empty for the kernel itself.
    pub module: &'a str,
}

impl Kallsyms {
    /// The functions of the running kernel.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or `kptr_restrict` hides the addresses.
    pub fn of_this_kernel(pace: &mut Pace<'_>) -> Result<Kallsyms, Cause> {
        let unreadable = |e: io::Error| Cause::Unreadable(e.to_string());
        let file = File::open("/proc/kallsyms").map_err(unreadable)?;
        let kallsyms = Kallsyms::read(file, || pace.wait());
        let mut kallsyms = kallsyms.map_err(unreadable)?;
        if kallsyms.symbols.is_empty() {
            return Err(Cause::KernelHidden);
        }
        kallsyms.end_modules(&fs::read_to_string("/proc/modules").unwrap_or_default());
        Ok(kallsyms)
    }

    /// Reads `ADDRESS TYPE NAME [MODULE]` lines; keeps functions with an address. Calls `wait` every
    /// few milliseconds.
    ///
    /// # Errors
    ///
    /// Those of `input`.
    pub fn read(input: impl Read, mut wait: impl FnMut()) -> io::Result<Kallsyms> {
        /// Lines between two pauses.
        const LINES: usize = 8192;
        let mut all = Kallsyms { modules: vec![String::new()], ..Kallsyms::default() };
        let mut input = BufReader::with_capacity(1 << 16, input);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if input.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if number % LINES == 0 {
                wait();
            }
            if let Some((address, rank, function)) = std::str::from_utf8(&line).ok().and_then(parse)
            {
                let module = all.module(function.module);
                let start = all.names.len() as u32;
                let length = function.name.len() as u16;
                all.names.push_str(function.name);
                all.symbols.push(KernelSymbol { address, name: start, length, rank, module });
            }
        }
        all.sort();
        Ok(all)
    }

    fn sort(&mut self) {
        self.symbols.sort_by_key(|s| (s.address, s.rank));
        self.symbols.dedup_by_key(|s| s.address);
    }

    fn module(&mut self, name: &str) -> u16 {
        let last = self.modules.len() - 1;
        if self.modules[last] == name {
            return last as u16;
        }
        let found = self.modules.iter().position(|m| m == name);
        found.unwrap_or_else(|| {
            // There are fewer modules; those beyond would count as the kernel's.
            if last >= usize::from(u16::MAX) {
                return 0;
            }
            self.modules.push(name.to_owned());
            last + 1
        }) as u16
    }

    /// Sets the places of modules from `/proc/modules`.
    fn end_modules(&mut self, text: &str) {
        self.places = ModulePlace::parse_all(text).collect();
        self.places.sort_unstable();
        let end = |place: &ModulePlace| KernelSymbol {
            address: place.end,
            name: 0,
            length: 0,
            rank: NO_FUNCTION,
            module: 0,
        };
        self.symbols.extend(self.places.iter().map(end));
        self.sort();
    }

    /// True if the function at an address is still the one that was read. `modules`: the text of
    /// `/proc/modules` now.
    fn holds_at<'a>(&self, address: u64, modules: impl FnOnce() -> &'a str) -> bool {
        let Some(function) = self.function(address) else { return false };
        if function.module.is_empty() {
            return true;
        }
        let contains = |place: &&ModulePlace| place.start <= address && address < place.end;
        let place = self.places.iter().find(contains);
        place.is_some_and(|place| ModulePlace::parse_all(modules()).any(|now| now == *place))
    }

    /// The function at `address`.
    pub fn function(&self, address: u64) -> Option<KernelFunction<'_>> {
        let i = self.symbols.partition_point(|s| s.address <= address).checked_sub(1)?;
        let symbol = self.symbols[i];
        let name = symbol.name as usize..symbol.name as usize + usize::from(symbol.length);
        let inside = symbol.length > 0 && address - symbol.address < MAX_DISTANCE;
        let module = &self.modules[usize::from(symbol.module)];
        inside.then(|| KernelFunction { name: &self.names[name], module })
    }

    /// Names of `addresses`.
    pub fn resolve(&self, addresses: &[u64]) -> AddressFrames {
        let mut resolved = AddressFrames::default();
        for &address in addresses {
            resolved.push_name(self.function(address).map(|f| f.name));
        }
        resolved
    }
}

/// Address, rank among names of the same address (lowest is best) and function; without a name for
/// other symbols.
fn parse(line: &str) -> Option<(u64, u8, KernelFunction<'_>)> {
    const KERNEL: u64 = 1 << 63;
    let mut fields = line.split_ascii_whitespace();
    let address = u64::from_str_radix(fields.next()?, 16).ok().filter(|&a| a >= KERNEL)?;
    let kind = fields.next()?;
    let name = fields.next().filter(|n| n.len() <= 1024)?;
    let module = fields.next().map_or("", |m| m.trim_start_matches('[').trim_end_matches(']'));
    let weak = match kind {
        "T" | "t" => 0,
        "W" | "w" => 128,
        _ => return Some((address, NO_FUNCTION, KernelFunction { name: "", module })),
    };
    // No function extends beyond the end of a section.
    if name.ends_with("_text_end") || ["_etext", "_einittext"].contains(&name) {
        return Some((address, NO_FUNCTION, KernelFunction { name: "", module }));
    }
    // Section marks such as `_stext` share the address of the first function.
    let mark = if name.ends_with("text") || name.ends_with("_start") { 64 } else { 0 };
    let underscores = name.bytes().take_while(|&b| b == b'_').count().min(62) as u8;
    Some((address, weak + mark + underscores, KernelFunction { name, module }))
}

/// Checks that the recorded kernel is the running one, at the same addresses.
///
/// # Errors
///
/// It is not known, is another build, or was recorded before the last boot, which moves the kernel.
pub fn check_same(file: &str, build_id: &str, time_nanos: i64) -> Result<(), Cause> {
    if file == UNIDENTIFIED_KERNEL {
        return Err(Cause::KernelUnidentified);
    }
    let running = running_build_id(file);
    if !build_id.is_empty() && !running.is_empty() && build_id != running {
        return Err(Cause::KernelDiffers);
    }
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    match boot_seconds(&stat) {
        Some(boot) if time_nanos > 0 && time_nanos / 1_000_000_000 < boot => {
            Err(Cause::KernelRebooted)
        }
        _ => Ok(()),
    }
}

/// Build ID of the running kernel, or of a module with the name `[NAME]`; empty if unknown.
pub fn running_build_id(file: &str) -> String {
    let module = file.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or_default();
    let path = match module.starts_with("kernel") {
        true => "/sys/kernel/notes".to_owned(),
        false if module.contains(['/', '.']) => return String::new(),
        false => format!("/sys/module/{module}/notes/.note.gnu.build-id"),
    };
    fs::read(path).ok().and_then(|notes| build_id_in(&notes)).unwrap_or_default()
}

fn boot_seconds(stat: &str) -> Option<i64> {
    stat.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse().ok()
}

fn build_id_in(notes: &[u8]) -> Option<String> {
    build_id_in_notes(notes).map(|id| hex(&id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ffffffff81000000 T _stext\n\
        ffffffff81000000 T startup_64\n\
        ffffffff81000100 t __do_work\n\
        ffffffff81000100 T do_work\n\
        ffffffff81000100 W aaa_weak\n\
        ffffffff81000200 D some_data\n\
        ffffffff81000280 t last\n\
        ffffffff81000300 T _etext\n\
        0000000000000000 A irq_count\n\
        broken\n\
        ffffffffc0000000 t nf_hook\t[nf_tables]\n\
        ffffffffc0200000 t bpf_prog_6deef7357e7b4530\t[bpf]\n";

    fn read(text: &str) -> Kallsyms {
        Kallsyms::read(text.as_bytes(), || {}).unwrap()
    }

    const MODULES: &str = "nf_tables 12288 1 - Live 0xffffffffc0000000 (E)\n";

    #[test]
    fn a_kept_list_holds_for_the_kernel_and_modules_that_are_where_they_were() {
        let mut k = read(TEXT);
        k.end_modules(MODULES);
        let holds = |address, modules: &'static str| k.holds_at(address, || modules);
        // The kernel itself does not move.
        assert!(holds(0xffffffff81000000, ""));
        assert!(holds(0xffffffffc0000010, MODULES));
        let used_more = "other 1 0 - Live 0xffffffffd0000000\n\
            nf_tables 12288 7 x,y, Live 0xffffffffc0000000 (E)\n";
        assert!(holds(0xffffffffc0000010, used_more));
        // Unloaded, replaced by another, moved.
        assert!(!holds(0xffffffffc0000010, ""));
        assert!(!holds(0xffffffffc0000010, "other 12288 1 - Live 0xffffffffc0000000\n"));
        assert!(!holds(0xffffffffc0000010, "nf_tables 16384 1 - Live 0xffffffffc0000000\n"));
        assert!(!holds(0xffffffffc0000010, "nf_tables 12288 1 - Live 0xffffffffc0400000\n"));
        // BPF programs, and what was loaded since.
        assert!(!holds(0xffffffffc0200010, MODULES));
        assert!(!holds(0xffffffffc0500000, MODULES));
    }

    #[test]
    fn reading_pauses_again_and_again() {
        let text = "ffffffff81000000 T f\n".repeat(50_000);
        let mut pauses = 0;
        Kallsyms::read(text.as_bytes(), || pauses += 1).unwrap();
        assert_eq!(pauses, 6);
    }

    #[test]
    fn the_best_of_several_names_is_taken() {
        let k = read(TEXT);
        let name = |address| k.function(address).map(|f| f.name);
        assert_eq!(name(0xffffffff81000000), Some("startup_64"));
        assert_eq!(name(0xffffffff810000ff), Some("startup_64"));
        assert_eq!(name(0xffffffff81000100), Some("do_work"));
        let hook = KernelFunction { name: "nf_hook", module: "nf_tables" };
        assert_eq!(k.function(0xffffffffc0000010), Some(hook));
        let program = KernelFunction { name: "bpf_prog_6deef7357e7b4530", module: "bpf" };
        assert_eq!(k.function(0xffffffffc0200010), Some(program));
        assert_eq!(k.function(0xffffffff81000100).unwrap().module, "");
    }

    #[test]
    fn addresses_outside_functions_have_no_name() {
        let mut k = read(TEXT);
        let name = |k: &Kallsyms, address| k.function(address).map(|f| f.name.to_owned());
        // Data, addresses before the first and far after the last function, the end of the text.
        for nothing in [
            0xffffffff81000210,
            0xffffffff80ffffff,
            0xffffffffb0000000,
            0xffffffffc0500000,
            0xffffffff81000300,
            0xffffffff81000301,
            0x10,
        ] {
            assert_eq!(name(&k, nothing), None, "{nothing:#x}");
        }
        assert_eq!(name(&k, 0xffffffff81000280).as_deref(), Some("last"));
        assert!(name(&k, 0xffffffffc0004000).is_some());
        k.end_modules(
            "nf_tables 12288 1 - Live 0xffffffffc0000000 (E)\nhidden 5 0 - Live 0x0\nx\n",
        );
        assert_eq!(name(&k, 0xffffffffc0004000), None);
        assert!(name(&k, 0xffffffffc0000010).is_some());
    }

    #[test]
    fn hidden_addresses_yield_no_symbols() {
        let k = read("0000000000000000 T _stext\n0000000000000000 T foo\n");
        assert!(k.symbols.is_empty());
    }

    #[test]
    fn another_kernel_or_boot_is_refused() {
        assert_eq!(check_same("[kernel.kallsyms]", "00ff", 0), Err(Cause::KernelDiffers));
        assert_eq!(check_same("[kernel.kallsyms]", "", 1), Err(Cause::KernelRebooted));
        assert_eq!(check_same("[kernel.kallsyms]", "", 0), Ok(()));
        assert_eq!(check_same("[kernel.kallsyms]", "", i64::MAX), Ok(()));
    }

    #[test]
    fn odd_names_of_modules_have_no_build_id() {
        for file in ["[../../kernel]", "[]", "[no such]", "", "[a/b]"] {
            assert_eq!(running_build_id(file), "", "{file}");
        }
    }

    #[test]
    fn notes_are_walked() {
        let note = |name: &[u8], kind: u32, desc: &[u8]| {
            let mut out = Vec::new();
            for n in [name.len() as u32, desc.len() as u32, kind] {
                out.extend(n.to_ne_bytes());
            }
            out.extend(name);
            out.extend(desc);
            out
        };
        let xen = note(b"Xen\0", 3, &[9; 8]);
        let gnu = note(b"GNU\0", 3, &[0xab, 0xcd, 0, 1]);
        let both = [xen.clone(), gnu].concat();
        assert_eq!(build_id_in(&both).as_deref(), Some("abcd0001"));
        assert_eq!(build_id_in(&xen), None);
        for cut in 0..both.len() {
            assert_eq!(build_id_in(&both[..cut]), None);
        }
        assert_eq!(build_id_in(&[0xff; 64]), None);
    }
}
