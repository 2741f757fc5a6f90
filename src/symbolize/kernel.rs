//! Kernel functions, from `/proc/kallsyms`.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};

use super::Why;
use super::answers::Answers;
use crate::process::elf::{build_id_in_notes, hex};

/// Farthest that an address may lie behind its symbol: no kernel function is that long.
const MAX_DISTANCE: u64 = 1 << 20;

/// The functions of the kernel and its modules.
#[derive(Default)]
pub struct Kallsyms {
    names: String,
    /// By address; one for each address.
    symbols: Vec<Symbol>,
}

#[derive(Clone, Copy)]
struct Symbol {
    address: u64,
    name: u32,
    length: u16,
    rank: u8,
}

impl Kallsyms {
    /// The functions of the running kernel.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or `kptr_restrict` hides the addresses.
    pub fn of_this_kernel() -> Result<Kallsyms, Why> {
        let file = File::open("/proc/kallsyms").map_err(|e| Why::Unreadable(e.to_string()))?;
        let kallsyms = Kallsyms::read(file).map_err(|e| Why::Unreadable(e.to_string()))?;
        if kallsyms.symbols.is_empty() { Err(Why::KernelHidden) } else { Ok(kallsyms) }
    }

    /// Reads a file of `ADDRESS TYPE NAME [MODULE]` lines; keeps functions with an address.
    ///
    /// # Errors
    ///
    /// Those of `input`.
    pub fn read(input: impl Read) -> io::Result<Kallsyms> {
        let mut all = Kallsyms::default();
        let mut input = BufReader::with_capacity(1 << 16, input);
        let mut line = Vec::new();
        loop {
            line.clear();
            if input.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if let Some((address, rank, name)) = std::str::from_utf8(&line).ok().and_then(parse) {
                let start = all.names.len() as u32;
                all.names.push_str(name);
                let length = name.len() as u16;
                all.symbols.push(Symbol { address, name: start, length, rank });
            }
        }
        all.symbols.sort_by_key(|s| (s.address, s.rank));
        all.symbols.dedup_by_key(|s| s.address);
        Ok(all)
    }

    /// Name of the function at `address`.
    pub fn name(&self, address: u64) -> Option<&str> {
        let i = self.symbols.partition_point(|s| s.address <= address).checked_sub(1)?;
        let symbol = self.symbols[i];
        let name = symbol.name as usize..symbol.name as usize + usize::from(symbol.length);
        (address - symbol.address < MAX_DISTANCE).then(|| &self.names[name])
    }

    /// Names of `addresses`.
    pub fn resolve(&self, addresses: &[u64]) -> Answers {
        let mut answers = Answers::default();
        for &address in addresses {
            answers.push_name(self.name(address));
        }
        answers
    }
}

/// Address, rank among names of the same address (least is best) and name of a function.
fn parse(line: &str) -> Option<(u64, u8, &str)> {
    let mut fields = line.split_ascii_whitespace();
    let address = u64::from_str_radix(fields.next()?, 16).ok().filter(|&a| a != 0)?;
    let weak = match fields.next()? {
        "T" | "t" => 0,
        "W" | "w" => 128,
        _ => return None,
    };
    let name = fields.next().filter(|n| n.len() <= 1024)?;
    // Section marks such as `_stext` stand at the address of the first function.
    let mark = if name.ends_with("text") || name.ends_with("_start") { 64 } else { 0 };
    let underscores = name.bytes().take_while(|&b| b == b'_').count().min(63) as u8;
    Some((address, weak + mark + underscores, name))
}

/// Checks that the kernel that was recorded is the one that runs now, at the same addresses.
///
/// # Errors
///
/// It is another build, or was recorded before the last boot, which moves the kernel.
pub fn check_same(build_id: &str, time_nanos: i64) -> Result<(), Why> {
    let notes = fs::read("/sys/kernel/notes").unwrap_or_default();
    let running = build_id_in(&notes).unwrap_or_default();
    if !build_id.is_empty() && !running.is_empty() && build_id != running {
        return Err(Why::KernelDiffers);
    }
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    match boot_seconds(&stat) {
        Some(boot) if time_nanos > 0 && time_nanos / 1_000_000_000 < boot => {
            Err(Why::KernelRebooted)
        }
        _ => Ok(()),
    }
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
        0000000000000000 A irq_count\n\
        broken\n\
        ffffffffc0000000 t nf_hook\t[nf_tables]\n";

    #[test]
    fn the_best_of_several_names_is_taken() {
        let k = Kallsyms::read(TEXT.as_bytes()).unwrap();
        assert_eq!(k.name(0xffffffff81000000), Some("startup_64"));
        assert_eq!(k.name(0xffffffff810000ff), Some("startup_64"));
        assert_eq!(k.name(0xffffffff81000100), Some("do_work"));
        assert_eq!(k.name(0xffffffff81000210), Some("do_work"));
        assert_eq!(k.name(0xffffffffc0000010), Some("nf_hook"));
        assert_eq!(k.name(0xffffffff80ffffff), None);
        assert_eq!(k.name(0xffffffffb0000000), None);
    }

    #[test]
    fn hidden_addresses_leave_nothing() {
        let k =
            Kallsyms::read(&b"0000000000000000 T _stext\n0000000000000000 T foo\n"[..]).unwrap();
        assert!(k.symbols.is_empty());
    }

    #[test]
    fn another_kernel_or_boot_is_refused() {
        assert_eq!(check_same("00ff", 0), Err(Why::KernelDiffers));
        assert_eq!(check_same("", 1), Err(Why::KernelRebooted));
        assert_eq!(check_same("", 0), Ok(()));
        assert_eq!(check_same("", i64::MAX), Ok(()));
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
