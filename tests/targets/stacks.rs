//! Rust whose threads are busy in the standard library. usage: stacks SECONDS

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::time::{Duration, Instant};

fn words(seed: u64) -> HashMap<String, Vec<u64>> {
    let mut words: HashMap<String, Vec<u64>> = HashMap::new();
    for i in 0..300 {
        let n = (seed + i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        words.entry(format!("word {}", n % 97)).or_default().push(n);
    }
    words
}

fn sorted(words: HashMap<String, Vec<u64>>) -> BTreeMap<u64, String> {
    let mut all = BTreeMap::new();
    for (word, mut numbers) in words {
        numbers.sort_by_key(|n| n.rotate_left(17));
        all.insert(numbers.iter().fold(0, |s: u64, n| s.wrapping_add(*n)), word);
    }
    all
}

#[inline(never)]
fn recurse(depth: u32, seed: u64) -> u64 {
    match depth {
        0 => sorted(words(seed)).into_keys().max().unwrap_or(0),
        _ => black_box(recurse(depth - 1, seed) ^ u64::from(depth)),
    }
}

fn unwinds(seed: u64) -> u64 {
    let caught = std::panic::catch_unwind(|| {
        if recurse(5, seed) % 2 < 2 {
            std::panic::resume_unwind(Box::new(seed));
        }
    });
    caught.is_err().into()
}

fn work(seconds: f64, seed: u64) -> u64 {
    let start = Instant::now();
    let mut sum = 0u64;
    while start.elapsed() < Duration::from_secs_f64(seconds) {
        for _ in 0..20 {
            sum = sum.wrapping_add(recurse(20, seed ^ sum));
        }
        // Between other work: see exceptions in stacks.cpp.
        sum = sum.wrapping_add(unwinds(sum));
    }
    sum
}

fn main() {
    let seconds: f64 = std::env::args().nth(1).map_or(1.0, |s| s.parse().unwrap());
    std::thread::scope(|s| {
        for seed in 0..2 {
            s.spawn(move || black_box(work(seconds, seed)));
        }
        black_box(work(seconds, 9));
    });
}
