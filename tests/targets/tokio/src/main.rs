//! Busy tasks on tokio's threads, which hand work to each other. usage: busy-tokio SECONDS

use std::time::{Duration, Instant};

use tokio::sync::mpsc;

async fn words(seed: u64) -> usize {
    let mut all: Vec<String> = (0..200).map(|i| format!("word {}", i * seed % 97)).collect();
    tokio::task::yield_now().await;
    all.sort();
    all.dedup();
    all.join(",").len()
}

async fn recurse(depth: u32, seed: u64) -> usize {
    match depth {
        0 => words(seed).await,
        _ => Box::pin(recurse(depth - 1, seed)).await + depth as usize,
    }
}

async fn work(end: Instant, out: mpsc::Sender<usize>) {
    let mut seed = 1;
    while Instant::now() < end {
        seed += recurse(5, seed).await as u64;
        if out.send(seed as usize).await.is_err() {
            return;
        }
    }
}

fn main() {
    let seconds: f64 = std::env::args().nth(1).map_or(1.0, |s| s.parse().unwrap());
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (out, mut results) = mpsc::channel(8);
        for _ in 0..4 {
            tokio::spawn(work(end, out.clone()));
        }
        drop(out);
        let mut sum = 0usize;
        while let Some(result) = results.recv().await {
            sum = sum.wrapping_add(result);
        }
        assert_ne!(sum, 1);
    });
}
