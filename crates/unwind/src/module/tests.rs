//! Rules of modules.

use super::*;
use crate::AddressKind;

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
