//! The program of truth.c in Rust: closures in threads, trait objects.
//!
//! usage: truth THREADS MILLISECONDS      (of CPU time of each thread)

use std::hint::black_box;
use std::io::Read;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanos: i64,
}

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

const CLOCK_PROCESS_CPUTIME_ID: i32 = 2;
const CLOCK_THREAD_CPUTIME_ID: i32 = 3;

fn now(clock: i32) -> i64 {
    let mut t = Timespec { seconds: 0, nanos: 0 };
    // SAFETY: `t` has the layout of x86-64's struct timespec.
    unsafe { clock_gettime(clock, &mut t) };
    t.seconds * 1_000_000_000 + t.nanos
}

/// About 15 µs.
#[inline(never)]
fn burn(mut x: u64) -> u64 {
    for _ in 0..10_000 {
        x = black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407));
    }
    x
}

/// A function that works until this thread has used the quota of CPU time, and returns the time
/// that was used.
macro_rules! spin {
    ($name:ident, $salt:literal) => {
        #[inline(never)]
        fn $name(quota: i64) -> i64 {
            let start = now(CLOCK_THREAD_CPUTIME_ID);
            loop {
                black_box(burn($salt));
                let used = now(CLOCK_THREAD_CPUTIME_ID) - start;
                if used >= quota {
                    return used;
                }
            }
        }
    };
}

spin!(spin_alpha, 1);
spin!(spin_beta, 2);
spin!(spin_gamma, 3);
spin!(spin_delta, 4);
spin!(spin_epsilon, 5);

type Work = Box<dyn Fn(i64) -> i64 + Send>;

/// Name, percent of a cycle (100 ms on average), function.
fn kinds() -> [(&'static str, i64, Work); 5] {
    [
        ("spin_alpha", 35, Box::new(spin_alpha)),
        ("spin_beta", 25, Box::new(spin_beta)),
        ("spin_gamma", 20, Box::new(spin_gamma)),
        ("spin_delta", 12, Box::new(spin_delta)),
        ("spin_epsilon", 8, Box::new(spin_epsilon)),
    ]
}

/// Cycles of all functions, in a random order and for a random time: in step with nothing.
fn work(seed: u64, quota: i64) -> [i64; 5] {
    let mut state = seed;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let kinds = kinds();
    let (mut used, mut done) = ([0; 5], 0);
    while done < quota {
        let mut order = [0, 1, 2, 3, 4];
        for i in (1..order.len()).rev() {
            order.swap(i, random(i as u64 + 1) as usize);
        }
        for kind in order {
            // From half to one and a half of its part.
            let part = kinds[kind].1 * (500_000 + random(1_000_000) as i64);
            let spent = kinds[kind].2(part);
            used[kind] += spent;
            done += spent;
        }
    }
    used
}

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse().expect("a number"));
    let threads: u64 = args.next().unwrap_or(1);
    let quota = args.next().unwrap_or(1000) as i64 * 1_000_000;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("standard input ends");
    let process = now(CLOCK_PROCESS_CPUTIME_ID);
    let others: Vec<_> =
        (2..=threads).map(|seed| std::thread::spawn(move || work(seed, quota))).collect();
    let mut all = vec![work(1, quota)];
    all.extend(others.into_iter().map(|t| t.join().expect("a thread")));
    let process = now(CLOCK_PROCESS_CPUTIME_ID) - process;
    for (kind, (name, ..)) in kinds().iter().enumerate() {
        println!("{name} {}", all.iter().map(|used| used[kind]).sum::<i64>());
    }
    println!("process {process}");
}
