// Head of the generated program of the flame bench: generic functions, closures and iterators,
// which make much debug information and many inlined functions. The table STEPS follows.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

trait Step {
    fn step(&self, x: u64, depth: u32) -> u64;
}

struct Work<const N: usize>;

#[inline(always)]
fn mix<const N: usize>(x: u64) -> u64 {
    (x ^ N as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(N as u32 % 63)
}

#[inline(never)]
fn gather<const N: usize>(x: u64) -> u64 {
    let length = 16 + (N as u64 % 7);
    let all: Vec<u64> = (0..length).map(|i| mix::<N>(x + i)).filter(|v| v % 3 != 0).collect();
    let pairs = all.iter().zip(all.iter().skip(1));
    pairs.map(|(a, b)| a ^ b.rotate_left(7)).fold(x, |s, v| s.wrapping_add(v))
}

#[inline(never)]
fn order<const N: usize>(x: u64) -> u64 {
    let mut map: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
    for i in 0..6 {
        map.entry(mix::<N>(x + i) % 16).or_insert([N as u64, 0])[1] += i;
    }
    map.iter().rev().take(3).map(|(k, v)| k ^ v[0] ^ v[1]).sum()
}

impl<const N: usize> Step for Work<N> {
    #[inline(never)]
    fn step(&self, x: u64, depth: u32) -> u64 {
        let y = gather::<N>(x).wrapping_add(order::<N>(x));
        if depth == 0 {
            return y;
        }
        STEPS[(y % STEPS.len() as u64) as usize].step(y, depth - 1) ^ y
    }
}

fn main() {
    let rounds: u64 = std::env::args().nth(1).map_or(1000, |a| a.parse().unwrap());
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    let start = std::time::Instant::now();
    let mut x = 1;
    for i in 0..rounds {
        x = STEPS[i as usize % STEPS.len()].step(x, 12);
    }
    let wall = start.elapsed().as_nanos();
    println!("{wall} {wall} {x}");
}
