//! The program against its model, over memory of this process and of CPython. They need root.

mod bounds;
mod php;
mod python;

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use interpreters::walk::CopiedCode;
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
    walks: Walks,
    deep: Deep,
    /// Copies of new code.
    code: Vec<CopiedCode>,
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
        let maps = Arc::new(WalkMaps::new(most).unwrap());
        maps.set(pid, 0, walks).unwrap();
        deep.set_walks(maps.clone());
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
        let walks = Walks::new(maps).unwrap();
        Some(Sampling { walks, deep, code: Vec::new(), _event: event })
    }

    fn walks(&mut self) -> &mut Walks {
        &mut self.walks
    }

    /// Calls a function with each walk, until it returns true.
    fn until(&mut self, mut each: impl FnMut(Walked) -> bool) {
        let start = Instant::now();
        let mut is_done = false;
        while !is_done {
            assert!(start.elapsed() < Duration::from_secs(60), "there are too few samples");
            let Sampling { walks, code, .. } = self;
            let copy = |new: ring::NewCode<'_>| code.push(CopiedCode::parse(new.bytes));
            walks.take(|walked| is_done |= each(walked), copy);
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

/// The record of a part of a walk at a time, with this much of frames.
fn record(time: u64, walk: u64, part: u64, status: i32, frames: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; header::SIZE];
    for (at, value) in [
        (header::TIME, time),
        (header::WALK, walk),
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
    let copies = |records: &[(u64, u64, i32, &str)]| -> Vec<(usize, Vec<u8>)> {
        let record = |&(walk, part, status, frames): &_| {
            record(5, walk, part, status, str::as_bytes(frames))
        };
        let records: Vec<_> = records.iter().map(record).collect();
        walked(&records.concat()).map(|walked| (walked.walk, walked.copy.bytes)).collect()
    };
    let whole = [(0, 0, CONTINUED, "ab"), (0, 1, COMPLETE, "c"), (1, 0, COMPLETE, "d")];
    assert_eq!(copies(&whole), [(0, b"abc".to_vec()), (1, b"d".to_vec())]);
    assert_eq!(copies(&whole[1..]), []);
    assert_eq!(copies(&whole[..1]), []);
    assert_eq!(copies(&[whole[0], whole[2]]), []);
    assert_eq!(copies(&whole[..2]), [(0, b"abc".to_vec())]);
    assert_eq!(copies(&[whole[0], (0, 2, COMPLETE, "c")]), []);
    assert_eq!(copies(&[]), []);
}

#[test]
fn a_walk_is_that_of_its_record() {
    use interpreters::walk::Status;
    for (status, bytes) in [(Status::Complete, &b"frames"[..]), (Status::Nothing, b"")] {
        let copy = WalkCopy { status, object: 7, first: 8, bytes: bytes.to_vec() };
        let (id, walk) = (5, 1);
        let walked = Walked { time: 1, pid: 2, tid: 3, ip: 4, sp: 6, id, walk, took: 9, copy };
        let records = [walked.record(), walked.record()].concat();
        assert_eq!(super::walked(&records).collect::<Vec<_>>(), [walked.clone(), walked]);
    }
}

#[test]
fn damaged_records_have_no_copy() {
    let whole = record(1, 0, 0, status::COMPLETE, b"frames");
    for length in 0..whole.len() {
        assert_eq!(walked(&whole[..length]).next(), None);
    }
    assert!(walked(&whole).next().is_some());
}
