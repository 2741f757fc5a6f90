//! Steps by rules, by frame pointers and out of signals.

use super::*;
use crate::arch::ReturnAddress;

fn reader(start: u64, words: &[u64]) -> impl FnMut(u64) -> Result<u64, ()> {
    move |a| words.get((a.wrapping_sub(start) / 8) as usize).copied().ok_or(())
}

#[test]
fn a_signal_frame_leads_to_what_was_interrupted() {
    let mut stack = [0u64; 32];
    stack[15..=21].copy_from_slice(&[7, 3, 0, 0, 0, 0x9000, 0x1234]);
    let mut read = reader(0x100, &stack);
    let mut regs = Regs { ip: 1, sp: 0x100, bp: 1 };
    assert_eq!(interrupted(&mut regs, &mut read), Step::Interrupted(0x1234));
    assert_eq!(regs, Regs { ip: 0x1234, sp: 0x9000, bp: 7 });
    let mut all = KnownRegisters::NONE;
    all.set(SP, 0x100);
    assert_eq!(restored(&mut all, &mut read), Step::Interrupted(0x1234));
    assert_eq!((all.get(SP), all.get(BP), all.get(3)), (Some(0x9000), Some(7), Some(3)));
}

#[test]
fn frame_pointers_are_followed_upwards_only() {
    let mut read = reader(0x100, &[0x120u64, 0x1111, 0, 0, 0x130, 0x2222, 0, 0]);
    let mut regs = Regs { ip: 0, sp: 0x100, bp: 0x100 };
    assert_eq!(frame_pointer_step(&mut regs, &mut read), Step::Caller(0x1111));
    assert_eq!((regs.sp, regs.bp), (0x110, 0x120));
    assert_eq!(frame_pointer_step(&mut regs, &mut read), Step::Caller(0x2222));
    assert_eq!(frame_pointer_step(&mut regs, &mut read), Step::NoCaller);
    for (bp, step) in [(0x100, Step::Failed), (0, Step::Failed), (0x900, Step::Unreadable(0x908))] {
        let mut regs = Regs { ip: 0, sp: 0x200, bp };
        assert_eq!(frame_pointer_step(&mut regs, &mut read), step);
    }
}

/// gcc keeps the caller's stack pointer of an aligned frame below its frame pointer.
#[test]
fn a_rule_may_read_where_the_frame_begins() {
    let mut read = reader(0x100, &[0, 0x138, 0x77, 0, 0, 0, 0x4444, 0]);
    let bp = Saved::FromBp(0);
    let at = -8;
    let rule = Rule::Deref { register: BP, at, cfa: 0, bp, ra: ReturnAddress };
    let mut regs = Regs { ip: 0, sp: 0x100, bp: 0x110 };
    assert_eq!(by_rule(rule, AddressKind::Return, &mut regs, &mut read), Step::Caller(0x4444));
    assert_eq!(regs, Regs { ip: 0x4444, sp: 0x138, bp: 0x77 });
}

#[test]
fn rules_lead_up_or_nowhere() {
    let mut read = reader(0x100, &[0x1111, 0, 0x3333]);
    let offset = |register, cfa| Rule::Offset { register, cfa, bp: Saved::Same, ra: ReturnAddress };
    for (rule, step) in [
        (offset(SP, 8), Step::Caller(0x1111)),
        (offset(SP, 16), Step::NoCaller),
        (offset(SP, 0), Step::Failed),
        (offset(SP, -8), Step::Failed),
        (offset(SP, 64), Step::Unreadable(0x138)),
        (offset(10, 8), Step::NeedsRegisters),
        (Rule::Outermost, Step::End),
        (Rule::Switched, Step::NoCaller),
    ] {
        let mut regs = Regs { ip: 0, sp: 0x100, bp: 0 };
        assert_eq!(by_rule(rule, AddressKind::Instruction, &mut regs, &mut read), step, "{rule:?}");
    }
}

/// The unwinder of a file, with its number.
fn module(image: u32, path: &str) -> Option<ModuleUnwinder> {
    let bytes = Arc::new(Bytes::Memory(std::fs::read(path).ok()?));
    Some(ModuleUnwinder::new(image, path, &Elf::parse(&bytes)?, &bytes))
}

/// Rules that depend on the code at an address are not those of the addresses around it.
fn compare_rules(path: &str, addresses: impl Fn(&Elf) -> Vec<u64>) {
    let Some(module) = module(3, path) else {
        return sys::testing::skip(&format!("there is no {path}"));
    };
    let mut context: UnwindContext = UnwindContext::new_in();
    let mut cache = RuleCache::default();
    let mut special = 0;
    let addresses = addresses(&Elf::parse(&module.file).unwrap());
    // The second time, most are cached.
    for &address in addresses.iter().chain(addresses.iter().rev()) {
        let at = CodeAddress { address: FileAddress(address), kind: AddressKind::Instruction };
        let rule = cache.rule(&module, at);
        let Described { rule: row, may_deliver } = module.tables.described(&mut context, address);
        if let Some(go) = module.go_rule(address) {
            special += 1;
            assert_eq!(rule, go, "{address:#x}");
        } else if may_deliver && arch::delivers(module.text(), address) {
            special += 1;
            assert!(matches!(rule, Rule::Delivering(_)), "{address:#x}: {rule:?}");
        } else if row == Rule::Uncovered {
            assert_eq!(rule, module.go_table_rule(address).unwrap_or(row), "{address:#x}");
        } else {
            assert_eq!(rule, row, "{address:#x}");
        }
    }
    assert!(special > 20 && cache.hits > 0, "{special} of {}", addresses.len());
    assert_eq!(cache.hits + cache.misses, addresses.len() as u64 * 2);
}

/// Else each new function of a compiler would make all samples after it wait.
#[test]
fn rules_of_a_copied_image_are_found_without_its_file() {
    let path = "/lib/x86_64-linux-gnu/libc.so.6";
    let Some(module) = module(3, path) else {
        return sys::testing::skip(&format!("there is no {path}"));
    };
    let text = Elf::parse(&module.file).unwrap().text.unwrap();
    let at = |function: u64| CodeAddress {
        address: FileAddress(text.address + 0x1_0000 + function * 0x1000),
        kind: AddressKind::Instruction,
    };
    let mut cache = RuleCache::default();
    // No file is read before it is allowed.
    cache.begin_closed();
    (0..20).for_each(|function| assert_eq!(cache.rule(&module, at(function)), Rule::Uncovered));
    assert!(cache.end_closed() && cache.misses == 0);
    let (seen, new): (Vec<_>, Vec<_>) = (0..80).map(at).partition(|a| a.address < at(20).address);
    seen.iter().for_each(|&at| _ = cache.rule(&module, at));
    let mut found = Vec::new();
    for &at in &new {
        cache.begin_closed();
        let rule = cache.rule(&module, at);
        if !cache.end_closed() {
            found.push((at, rule));
        }
    }
    // All but assembly without unwind information.
    assert!(found.len() * 10 > new.len() * 9, "{} of {}", found.len(), new.len());
    let mut other = RuleCache::default();
    found.into_iter().for_each(|(at, rule)| assert_eq!(other.rule(&module, at), rule));
    // A stack through many new functions waits for the other thread.
    let mut cache = RuleCache::default();
    cache.begin_closed();
    new.iter().for_each(|&at| _ = cache.rule(&module, at));
    assert!(cache.end_closed() && cache.misses <= 32, "{}", cache.misses);
}

#[test]
fn rules_of_exceptions_hold_for_single_addresses() {
    compare_rules("/lib/x86_64-linux-gnu/libgcc_s.so.1", |elf| {
        let text = elf.text.as_ref().unwrap();
        (text.address..text.address + text.range.len() as u64).collect()
    });
}

#[test]
fn rules_of_go_hold_for_single_addresses() {
    let root = std::process::Command::new("go").args(["env", "GOROOT"]).output();
    let Ok(root) = root.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()) else {
        return sys::testing::skip("Go is not installed");
    };
    compare_rules(&format!("{root}/bin/go"), |elf| {
        let text = elf.text.as_ref().unwrap();
        let size = text.range.len() as u64;
        (0..size).step_by(13).map(|at| text.address + at).collect()
    });
}

/// Costs of rules of addresses at random: with empty caches, and of the same addresses again. The
/// fewest fit into the cache of addresses, the most into none.
#[test]
#[ignore = "a measurement: cargo test -p prof-unwind measure_rules -- --ignored --nocapture"]
fn measure_rules() {
    const FILES: [&str; 2] =
        ["/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus", "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1"];
    for (image, path) in (0..).zip(FILES) {
        let Some(module) = module(image, path) else { continue };
        let text = Elf::parse(&module.file).unwrap().text.unwrap();
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let size = text.range.len() as u64;
        let mut at = || CodeAddress {
            address: FileAddress(text.address + next() % size),
            kind: AddressKind::Return,
        };
        for count in [1000, 20_000, 200_000] {
            let addresses: Vec<CodeAddress> = (0..count).map(|_| at()).collect();
            let pass = |cache: &mut RuleCache| {
                let start = std::time::Instant::now();
                for &at in &addresses {
                    std::hint::black_box(cache.rule(&module, at));
                }
                start.elapsed().as_nanos() as f64 / f64::from(count)
            };
            let first = || pass(&mut RuleCache::default());
            let first = (0..5).map(|_| first()).fold(f64::MAX, f64::min);
            let mut cache = RuleCache::default();
            let again = (0..6).map(|_| pass(&mut cache)).fold(f64::MAX, f64::min);
            println!("{path} {count}: first {first:.0} ns, again {again:.0} ns");
        }
    }
}
