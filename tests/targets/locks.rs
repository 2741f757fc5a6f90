//! As locks.c, for Rust's standard library: KIND is mutex, read, write, condition or park.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

struct Shared {
    mutex: Mutex<u64>,
    rwlock: RwLock<u64>,
    signaled: Mutex<bool>,
    condition: Condvar,
}

#[inline(never)]
fn take(kind: &str, shared: &Shared) -> Duration {
    let since = Instant::now();
    match kind {
        "mutex" => *shared.mutex.lock().unwrap() += 1,
        "read" => assert!(*shared.rwlock.read().unwrap() < u64::MAX),
        "write" => *shared.rwlock.write().unwrap() += 1,
        "condition" => {
            let mut signaled = shared.signaled.lock().unwrap();
            while !*signaled {
                signaled = shared.condition.wait(signaled).unwrap();
            }
            *signaled = false;
        }
        _ => thread::park(),
    }
    since.elapsed()
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
fn give(
    kind: &str,
    shared: &Shared,
    (waiter, directory): (&thread::Thread, &Path),
    held: impl FnOnce(),
) {
    until_it_sleeps(directory);
    thread::sleep(Duration::from_millis(10));
    held();
    if kind == "condition" {
        *shared.signaled.lock().unwrap() = true;
        shared.condition.notify_one();
    } else if kind == "park" {
        waiter.unpark();
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap_or("mutex".into());
    let rounds: u32 = args.next().map_or(20, |n| n.parse().unwrap());
    let shared = Arc::new(Shared {
        mutex: Mutex::new(0),
        rwlock: RwLock::new(0),
        signaled: Mutex::new(false),
        condition: Condvar::new(),
    });
    // The two meet at sockets, which are no futexes.
    let (mut ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let (sender, receiver) = mpsc::channel();
    let (began, begins) = mpsc::channel();
    let handle = thread::Builder::new().name("waiter".into()).spawn({
        let (kind, shared) = (kind.clone(), shared.clone());
        move || {
            use std::io::{Read, Write};
            let own = std::fs::read_link("/proc/thread-self").unwrap();
            began.send(Path::new("/proc").join(own)).unwrap();
            let mut waited = Duration::ZERO;
            for _ in 0..rounds {
                theirs.read_exact(&mut [0]).unwrap();
                waited += take(&kind, &shared);
                theirs.write_all(&[0]).unwrap();
            }
            sender.send(waited).unwrap();
        }
    });
    let handle = handle.unwrap();
    let directory = begins.recv().unwrap();
    for _ in 0..rounds {
        use std::io::{Read, Write};
        let mutex = (kind == "mutex").then(|| shared.mutex.lock().unwrap());
        let write = (kind == "read" || kind == "write").then(|| shared.rwlock.write().unwrap());
        ours.write_all(&[0]).unwrap();
        give(&kind, &shared, (handle.thread(), &directory), || drop((mutex, write)));
        ours.read_exact(&mut [0]).unwrap();
    }
    println!("{} 0", receiver.recv().unwrap().as_secs_f64());
    handle.join().unwrap();
}
