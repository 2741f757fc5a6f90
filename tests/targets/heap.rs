//! Allocates as Rust programs do: vectors that grow, strings, boxes.

use std::hint::black_box;

#[inline(never)]
fn boxes() -> Vec<Box<[u8]>> {
    (0..8).map(|_| black_box(vec![1u8; 1 << 20].into_boxed_slice())).collect()
}

#[inline(never)]
fn zeroed() {
    for _ in 0..8 {
        black_box(vec![0u8; 1 << 20]);
    }
}

/// 1 + 2 + 4 + 8 MiB.
#[inline(never)]
fn grows() -> Vec<u8> {
    let mut v = Vec::with_capacity(1 << 20);
    for _ in 0..8 << 20 {
        v.push(black_box(1));
    }
    v
}

fn main() {
    let kept = boxes();
    zeroed();
    let grown = grows();
    std::mem::forget(black_box((kept, grown)));
}
