//! The program against its model, over memory of this process and of CPython. They need root.

mod bounds;
mod python;

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use perf_event::events::Software;
use perf_event::{Builder, Counter, SampleFlag};
use sys::record::MAX_DUMP;

use super::super::deep::{self, Deep};
use super::super::testing::skip_programs;
use super::ring::{header, status};
use super::*;

/// Nanoseconds of CPU time between two samples.
const PERIOD: u64 = 200_000;

/// A thread that is sampled, with walks.
struct Sampling {
    deep: Deep,
    _event: Counter,
}

/// True if programs may have the loops that walks need.
fn has_may_goto() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let numbers: Vec<u32> = release.split('.').map_while(|number| number.parse().ok()).collect();
    matches!(numbers[..], [major, minor, ..] if (major, minor) >= (6, 9))
}

impl Sampling {
    /// Samples a thread, and those that it starts; `None`, with a reason, if that does not work here.
    fn start(tid: i32, most: u32, pid: i32, walks: &[WalkDescriptor]) -> Option<Sampling> {
        Sampling::with_dump(MAX_DUMP, tid, most, pid, walks)
    }

    /// The same, as if the kernel copied this much of stacks.
    fn with_dump(
        dump: u32,
        tid: i32,
        most: u32,
        pid: i32,
        walks: &[WalkDescriptor],
    ) -> Option<Sampling> {
        if sys::os::uid() != 0 || Btf::running().is_err() || deep::check().is_err() {
            skip_programs("this user may not load programs into the kernel");
            return None;
        }
        if !has_may_goto() {
            sys::testing::skip_hardware("the kernel is older than Linux 6.9");
            return None;
        }
        let mut deep = Deep::new(32 << 10).unwrap();
        let new = Walks::new(most).unwrap();
        new.set(pid, 0, walks).unwrap();
        deep.set_walks(new);
        let mut event = Builder::new(Software::CPU_CLOCK);
        event
            .observe_pid(tid)
            .any_cpu()
            .inherit(true)
            .sample_period(PERIOD)
            .sample(SampleFlag::TIME);
        let mut event = event.build().unwrap();
        deep.attach(event.as_raw_fd(), dump, None).unwrap();
        event.enable().unwrap();
        Some(Sampling { deep, _event: event })
    }

    fn walks(&mut self) -> &mut Walks {
        self.deep.walks().unwrap()
    }

    /// Calls a function with each walk, until it returns true.
    fn until(&mut self, mut each: impl FnMut(Walked) -> bool) {
        let start = Instant::now();
        let mut is_done = false;
        while !is_done {
            assert!(start.elapsed() < Duration::from_secs(60), "there are too few samples");
            self.walks().take(|walked| is_done |= each(walked));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn what_is_copied_costs_no_more_than_its_share() {
    assert_eq!(most_frames(99), 1262);
    assert_eq!(most_frames(999), 125);
    assert_eq!((most_frames(1), most_frames(1_000_000)), (MOST_FRAMES, 16));
}

/// The record of a part of a walk on a CPU, at a time, with this much of frames.
fn record(cpu: u64, time: u64, part: u64, status: i32, frames: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; header::SIZE];
    for (at, value) in [
        (header::CPU, cpu),
        (header::TIME, time),
        (header::PART, part),
        (header::STATUS, status as u64),
        (header::LENGTH, frames.len() as u64),
    ] {
        bytes[at as usize..][..8].copy_from_slice(&value.to_ne_bytes());
    }
    bytes.extend_from_slice(frames);
    bytes
}

#[test]
fn a_walk_of_which_a_record_is_lost_has_no_copy() {
    use status::{COMPLETE, CONTINUED};
    let mut parts = Parts::default();
    let mut add = |cpu, time, part, status, frames| {
        let walked = parts.add(&record(cpu, time, part, status, frames));
        walked.map(|walked| (walked.time, walked.copy.bytes))
    };
    // Records of two CPUs alternate.
    assert_eq!(add(0, 5, 0, CONTINUED, b"ab"), None);
    assert_eq!(add(1, 5, 0, CONTINUED, b"AB"), None);
    assert_eq!(add(0, 5, 1, COMPLETE, b"c"), Some((5, b"abc".to_vec())));
    assert_eq!(add(1, 5, 1, CONTINUED, b"C"), None);
    assert_eq!(add(1, 5, 2, COMPLETE, b""), Some((5, b"ABC".to_vec())));
    // The second of three, the first, and the last one are lost.
    assert_eq!(add(0, 6, 0, CONTINUED, b"a"), None);
    assert_eq!(add(0, 6, 2, COMPLETE, b"c"), None);
    assert_eq!(add(0, 7, 1, COMPLETE, b"b"), None);
    assert_eq!(add(0, 8, 0, CONTINUED, b"a"), None);
    assert_eq!(add(0, 9, 1, COMPLETE, b"b"), None);
    assert_eq!(add(0, 10, 0, COMPLETE, b"x"), Some((10, b"x".to_vec())));
}

#[test]
fn damaged_records_have_no_copy() {
    let whole = record(0, 1, 0, status::COMPLETE, b"frames");
    for length in 0..whole.len() {
        assert_eq!(Parts::default().add(&whole[..length]), None);
    }
    assert!(Parts::default().add(&whole).is_some());
}
