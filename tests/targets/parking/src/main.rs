//! As locks.rs, for parking_lot's locks: KIND is mutex, read, write or condition. Prints the
//! seconds in take(), and those asleep in it: before it sleeps, it yields its CPU a few times.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

#[derive(Default)]
struct Shared {
    mutex: Mutex<u64>,
    rwlock: RwLock<u64>,
    signaled: Mutex<bool>,
    condition: Condvar,
}

/// Running and runnable time of this thread so far (`Documentation/scheduler/sched-stats.rst`).
fn awake() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = text.split(' ').take(2).map(|n| n.parse::<u64>().unwrap());
    Duration::from_nanos(nanoseconds.sum())
}

#[inline(never)]
fn take(kind: &str, shared: &Shared) -> (Duration, Duration) {
    let (since, before) = (Instant::now(), awake());
    match kind {
        "mutex" => *shared.mutex.lock() += 1,
        "read" => assert!(*shared.rwlock.read() < u64::MAX),
        "write" => *shared.rwlock.write() += 1,
        _ => {
            let mut signaled = shared.signaled.lock();
            while !*signaled {
                shared.condition.wait(&mut signaled);
            }
            *signaled = false;
        }
    }
    let elapsed = since.elapsed();
    (elapsed, elapsed.saturating_sub(awake() - before))
}

/// Returns when the thread with this directory in /proc sleeps.
fn until_it_sleeps(thread: &Path) {
    let sleeps =
        |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'));
    while !std::fs::read_to_string(thread.join("stat")).is_ok_and(sleeps) {
        thread::sleep(Duration::from_millis(1));
    }
}

#[inline(never)]
fn give(kind: &str, shared: &Shared, waiter: &Path, held: impl FnOnce()) {
    until_it_sleeps(waiter);
    thread::sleep(Duration::from_millis(10));
    held();
    if kind == "condition" {
        *shared.signaled.lock() = true;
        shared.condition.notify_one();
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap_or("mutex".into());
    let rounds: u32 = args.next().map_or(20, |n| n.parse().unwrap());
    let shared = Arc::new(Shared::default());
    // The two meet at sockets, which are no futexes.
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let (sender, receiver) = mpsc::channel();
    let waiter = thread::Builder::new().name("waiter".into()).spawn({
        let (kind, shared) = (kind.clone(), shared.clone());
        move || {
            let (mut waited, mut slept) = (Duration::ZERO, Duration::ZERO);
            let own = std::fs::read_link("/proc/thread-self").unwrap();
            sender.send(Path::new("/proc").join(own)).unwrap();
            for _ in 0..rounds {
                theirs.read_exact(&mut [0]).unwrap();
                let times = take(&kind, &shared);
                (waited, slept) = (waited + times.0, slept + times.1);
                theirs.write_all(&[0]).unwrap();
            }
            (waited.as_secs_f64(), slept.as_secs_f64())
        }
    });
    let directory = receiver.recv().unwrap();
    for _ in 0..rounds {
        let mutex = (kind == "mutex").then(|| shared.mutex.lock());
        let write = (kind == "read" || kind == "write").then(|| shared.rwlock.write());
        ours.write_all(&[0]).unwrap();
        give(&kind, &shared, &directory, || drop((mutex, write)));
        ours.read_exact(&mut [0]).unwrap();
    }
    let (waited, slept) = waiter.unwrap().join().unwrap();
    println!("{waited} {slept}");
}
