use std::sync::atomic::AtomicBool;

use super::super::layout::granule::{READY, RETIRED, SKIPPED};
use super::super::layout::{Kind, LIVE, MAX_STACK, StackRecord};
use super::super::queue::{self, RecordPlace};
use super::memory::words;
use super::*;
use sys::record::UserStack;

fn ring(interval: u64) -> AllocationRing {
    let ring = AllocationRing::create(interval, false).unwrap();
    ring.set_active(true);
    ring
}

/// Writers access the memory independently of the reader.
fn shared(ring: &AllocationRing) -> &'static Header {
    // SAFETY: the memory exists as long as the ring, which the tests never outlive.
    unsafe { &*ring.memory.as_ptr().cast() }
}

/// Writes like the library, with a stack derived from the id.
fn write(place: &mut RecordPlace<'_>, id: u64, length: usize) {
    let pid = 7;
    let interval = id;
    let time = place.time();
    let kind = Kind::Allocation as u32;
    let length = length as u32;
    let record =
        StackRecord { id, time, size: id, interval, pid, kind, length, ..StackRecord::default() };
    // SAFETY: the place is ours and large enough.
    unsafe {
        place.record().write(record);
        let stack: *mut u8 = place.record().add(1).cast();
        stack.write_bytes(id as u8, length as usize);
    }
}

fn allocate(ring: &AllocationRing, id: u64, time: u64, length: usize) -> bool {
    let header = shared(ring);
    let Some(mut place) = queue::reserve(header, time, length) else { return false };
    write(&mut place, id, length);
    place.hand_over()
}

fn free(ring: &AllocationRing, id: u64, time: u64) -> bool {
    let Some(slot) = queue::free_slot(header(&ring.memory), time) else { return false };
    slot.get().id.store(id, Relaxed);
    slot.hand_over()
}

/// Records as read: ids of allocations, negative for ends; stacks are checked.
fn taken(ring: &mut AllocationRing, until: u64, over: bool) -> Vec<i64> {
    let mut ids = Vec::new();
    ring.take(until, over, |record| match record {
        AllocationRecord::Allocation(Allocation { id, size, interval, user, .. }) => {
            let UserStack::Native { bytes, .. } = user else { panic!("no stack") };
            assert!(bytes.iter().all(|&byte| byte == id as u8), "{id}");
            assert_eq!((size, interval), (id, id));
            ids.push(id as i64);
        }
        AllocationRecord::Free { id, .. } => ids.push(-(id as i64)),
        AllocationRecord::Process { .. } => panic!("no process"),
    });
    ids
}

#[test]
fn records_come_out_in_the_order_of_time() {
    let mut ring = ring(1);
    assert!(allocate(&ring, 1, 10, 0) && allocate(&ring, 2, 30, 5000) && allocate(&ring, 3, 50, 9));
    assert!(free(&ring, 1, 20) && free(&ring, 3, 60));
    assert_eq!(taken(&mut ring, 50, false), [1, -1, 2]);
    assert_eq!(taken(&mut ring, u64::MAX, false), [3, -3]);
    assert_eq!(ring.damaged(), None);
    assert_eq!(ring.stats(), HeapStats::default());
}

/// Many laps with stacks of all lengths.
#[test]
fn records_wrap_around() {
    let mut ring = ring(1);
    let mut id = 0;
    let mut laps = 0;
    while laps < 3 * GRANULES {
        let first = id + 1;
        let mut times = [0; 700];
        for time in &mut times {
            (id, *time) = (id + 1, os::monotonic_nanos());
            assert!(allocate(&ring, id, *time, (id as usize * 7919) % MAX_STACK));
        }
        // The last ones are not read, so that the ring is not rewound.
        let all: Vec<i64> = taken(&mut ring, times[689], false);
        let kept = if first == 1 { first } else { first - 11 };
        assert!(all.iter().zip(kept as i64..).all(|(a, b)| *a == b), "{all:?}");
        laps = header(&ring.memory).stacks.next.load(Relaxed);
    }
    assert_eq!(taken(&mut ring, u64::MAX, true).last(), Some(&(id as i64)));
    assert_eq!((ring.damaged(), ring.stats().lost), (None, 0));
}

/// Little of the memory is used while prof keeps up.
#[test]
fn prompt_reading_needs_little_memory() {
    let mut ring = ring(1);
    for id in 1..200_000 {
        assert!(allocate(&ring, id, 1, 2000));
        if id % 1000 == 0 {
            taken(&mut ring, u64::MAX, false);
        }
    }
    let used = |ring: &AllocationRing| ring.file.metadata().unwrap().blocks() * 512;
    assert!(used(&ring) < 32 << 20, "{} bytes", used(&ring));
    // Much, for once.
    assert!((1..20_000).all(|id| allocate(&ring, id, 1, 4000)));
    assert!(used(&ring) > 64 << 20, "{} bytes", used(&ring));
    for id in 1..5000 {
        taken(&mut ring, u64::MAX, false);
        assert!(allocate(&ring, id, 1, 2000));
    }
    assert!(used(&ring) < 32 << 20, "{} bytes", used(&ring));
}

/// However much is allocated between two reads: nothing is lost, and sums are right.
#[test]
fn the_ring_never_becomes_full() {
    for least in [1, 4096, 512 << 10] {
        let mut ring = ring(least);
        let size = least * 3;
        let mut state = 5;
        let mut written = 0.0;
        let header = shared(&ring);
        let mut estimate = 0.0;
        for round in 0..3 {
            for _ in 0..3_000_000u64 {
                written += size as f64;
                let sampled = size > super::super::random::distance(&mut state, least);
                let interval = queue::interval(header);
                if sampled && super::super::random::stays(&mut state, size, least, interval) {
                    let mut place = queue::reserve(header, 1, 600).expect("space");
                    write(&mut place, interval, 600);
                    // SAFETY: the place is ours.
                    unsafe { (*place.record()).size = size };
                    assert!(place.hand_over());
                }
            }
            ring.take(u64::MAX, round == 2, |record| {
                let AllocationRecord::Allocation(a) = record else { panic!("{record:?}") };
                estimate += crate::weight(a.size, a.interval) * a.size as f64;
            });
        }
        let off = (estimate / written - 1.0).abs();
        assert!(off < 0.05, "{least}: {off}");
        assert_eq!((ring.damaged(), ring.stats().lost), (None, 0));
    }
}

/// Ends have space for all tracked allocations.
#[test]
fn no_more_is_tracked_than_can_end() {
    let ring = ring(1);
    let header = shared(&ring);
    assert_eq!(queue::interval(header), 1);
    header.live.store(LIVE as i64 - 1, Relaxed);
    assert!(queue::interval(header) > 1 << 30);
    assert!((1..=LIVE).all(|id| free(&ring, id, 1)));
    header.live.store(i64::MIN, Relaxed);
    assert_eq!(queue::interval(header), 1);
}

/// A writer that was killed while writing loses only its own record.
#[test]
fn writers_that_do_not_come_back() {
    let mut ring = ring(1);
    let header = shared(&ring);
    let killed = queue::reserve(header, 1, 3000).unwrap();
    assert!(allocate(&ring, 2, 2, 100));
    // Others are read at once, also those before it.
    assert_eq!(taken(&mut ring, u64::MAX, false), [2]);
    let slow = queue::reserve(header, 1, 100).unwrap();
    assert!(taken(&mut ring, u64::MAX, false).is_empty());
    let mut late = slow;
    write(&mut late, 9, 100);
    assert!(late.hand_over());
    assert_eq!(taken(&mut ring, u64::MAX, true), [9]);
    // It is lost unless its writer returns, and no other record has its place.
    assert_eq!(ring.stats().lost, 1);
    for id in 10..4000 {
        assert!(allocate(&ring, id, 1, MAX_STACK));
        assert_eq!(taken(&mut ring, u64::MAX, false), [id as i64]);
    }
    let retired = words(&ring.memory).iter().filter(|w| granule::is_retired(w.load(Relaxed)));
    assert_eq!((retired.count(), ring.damaged()), (1, None));
    let mut back = killed;
    write(&mut back, 5, 3000);
    assert!(back.hand_over());
    assert_eq!(taken(&mut ring, u64::MAX, false), [5]);
    let retired = words(&ring.memory).iter().filter(|w| granule::is_retired(w.load(Relaxed)));
    assert_eq!((retired.count(), ring.stats().lost, ring.damaged()), (1, 0, None));
    // Late records are skipped in every lap, by the writers and by the reader.
    for id in 10..4000 {
        assert!(allocate(&ring, id, 1, MAX_STACK));
        assert_eq!(taken(&mut ring, u64::MAX, false), [id as i64]);
    }
    assert_eq!(ring.damaged(), None);
}

/// Otherwise the record would come before the kernel's that names its process.
#[test]
fn delayed_records_come_when_it_is_time_for_them() {
    let mut ring = ring(1);
    let header = shared(&ring);
    let begun = os::monotonic_nanos();
    let mut slow = queue::reserve(header, begun + 2, 100).unwrap();
    assert!(taken(&mut ring, begun + 1, false).is_empty());
    write(&mut slow, 1, 100);
    assert!(slow.hand_over());
    assert!(taken(&mut ring, begun + 1, false).is_empty());
    assert!(taken(&mut ring, begun + 2, false).is_empty());
    assert_eq!(taken(&mut ring, begun + 3, false), [1]);
    // Likewise where its granules are no longer waited for.
    let begun = os::monotonic_nanos();
    let mut slow = queue::reserve(header, begun + 2, 100).unwrap();
    assert!(taken(&mut ring, begun + 1, false).is_empty());
    let retired = |ring: &AllocationRing| {
        words(&ring.memory).iter().any(|word| granule::is_retired(word.load(Relaxed)))
    };
    while !retired(&ring) {
        assert!(taken(&mut ring, begun + 1, false).is_empty());
    }
    write(&mut slow, 2, 100);
    assert!(slow.hand_over());
    assert!(taken(&mut ring, begun + 2, false).is_empty());
    assert_eq!(taken(&mut ring, begun + 3, false), [2]);
    assert_eq!((ring.damaged(), ring.stats()), (None, HeapStats::default()));
}

/// A slow writer of an end blocks no other, and its record is not lost.
#[test]
fn ends_whose_writers_are_slow() {
    let mut ring = ring(1);
    let header = shared(&ring);
    let slot = || queue::free_slot(header, 5).unwrap();
    assert!((1..=4).all(|id| allocate(&ring, id, id, 0)));
    let slow = slot();
    let slower = slot();
    let _killed = slot();
    assert!(free(&ring, 4, 6));
    assert_eq!(taken(&mut ring, u64::MAX, false), [1, 2, 3, 4, -4]);
    slow.get().id.store(1, Relaxed);
    assert!(slow.hand_over());
    assert_eq!(taken(&mut ring, u64::MAX, false), [-1]);
    // Its slot is out of use, while others complete several laps.
    std::thread::sleep(std::time::Duration::from_millis(250));
    for id in 10..3 * FREES as i64 {
        assert!(free(&ring, id as u64, 7));
        if id % 1000 == 0 || id < 20 {
            assert_eq!(taken(&mut ring, u64::MAX, false).last(), Some(&-id));
        }
    }
    taken(&mut ring, u64::MAX, false);
    slower.get().id.store(2, Relaxed);
    assert!(slower.hand_over());
    assert_eq!(taken(&mut ring, u64::MAX, false), [-2]);
    assert_eq!(ring.stats(), HeapStats::default());
    assert!(taken(&mut ring, u64::MAX, true).is_empty());
    assert_eq!((ring.stats().lost_frees, ring.damaged()), (1, None));
}

/// More writers are at work than the reader remembers: records behind them wait, and so do the ends
/// of those, until all is over.
#[test]
fn more_writers_than_are_waited_for() {
    for over in [false, true] {
        let mut ring = ring(1);
        let header = shared(&ring);
        let mut places: Vec<_> =
            (0..300).map(|_| queue::reserve(header, 1, 100).unwrap()).collect();
        assert!((301..=310).all(|id| allocate(&ring, id, 2, 0) && free(&ring, id, 3)));
        let slots: Vec<_> = (0..300).map(|_| queue::free_slot(header, 4).unwrap()).collect();
        assert!(free(&ring, 300, 5));
        let behind: Vec<i64> = (301..=310).chain((301..=310).map(|id| -id)).chain([-300]).collect();
        if over {
            assert_eq!(taken(&mut ring, u64::MAX, true), behind);
            assert_eq!((ring.stats().lost, ring.stats().lost_frees), (300, 300));
            continue;
        }
        assert!(taken(&mut ring, u64::MAX, false).is_empty());
        for (place, id) in places.iter_mut().zip(1..) {
            write(place, id, 100);
        }
        assert!(places.into_iter().all(RecordPlace::hand_over));
        let mut all = taken(&mut ring, u64::MAX, false);
        all.extend(taken(&mut ring, u64::MAX, false));
        let at = |id: i64| all.iter().position(|&taken| taken == id);
        assert!((1..=310).all(|id| at(id).is_some()));
        assert!((301..=310).all(|id| at(id) < at(-id)));
        for (slot, id) in slots.iter().zip(1..) {
            slot.get().id.store(id, Relaxed);
        }
        assert!(slots.into_iter().all(queue::Slot::hand_over));
        let mut ends = taken(&mut ring, u64::MAX, false);
        ends.extend(taken(&mut ring, u64::MAX, false));
        ends.sort_unstable();
        assert!(ends.into_iter().eq([-300].into_iter().chain(-300..=-1)));
    }
}

/// Threads that are preempted anywhere: no allocation comes after its end.
#[test]
fn ends_come_after_their_beginning() {
    const EACH: u64 = 10_000;
    let mut ring = ring(1);
    let running = std::sync::atomic::AtomicU32::new(4);
    let header = shared(&ring);
    let mut begun = vec![false; 4 * EACH as usize + 1];
    std::thread::scope(|scope| {
        for writer in 0..4u64 {
            let running = &running;
            scope.spawn(move || {
                for id in writer * EACH + 1..=(writer + 1) * EACH {
                    let pause = |n: u64| {
                        if (id * 7919 + n).is_multiple_of(97) {
                            std::thread::sleep(std::time::Duration::from_micros(300));
                        }
                    };
                    let time = os::monotonic_nanos();
                    pause(1);
                    let mut place = queue::reserve(header, time, 64).expect("space");
                    pause(2);
                    write(&mut place, id, 64);
                    assert!(place.hand_over());
                    let time = os::monotonic_nanos();
                    pause(3);
                    let slot = queue::free_slot(header, time).expect("space");
                    pause(4);
                    slot.get().id.store(id, Relaxed);
                    assert!(slot.hand_over());
                }
                running.fetch_sub(1, Release);
            });
        }
        let mut ended = 0;
        while ended < 4 * EACH {
            let over = running.load(Acquire) == 0;
            let until = if over { u64::MAX } else { os::monotonic_nanos() - 100_000 };
            for id in taken(&mut ring, until, over) {
                let begun = &mut begun[id.unsigned_abs() as usize];
                assert_eq!(*begun, id < 0, "{id}");
                (*begun, ended) = (true, ended + u64::from(id < 0));
            }
            assert!(!over || ended == 4 * EACH);
        }
    });
    assert_eq!((ring.damaged(), ring.stats()), (None, HeapStats::default()));
}

/// The clock of a process in a separate time namespace may always be ahead. Its records come after
/// earlier events, and before later ones.
#[test]
fn clocks_that_are_ahead() {
    let mut ring = ring(1);
    let ahead = os::monotonic_nanos() + 86_400_000_000_000;
    assert!(allocate(&ring, 1, ahead, 0) && free(&ring, 1, ahead));
    let before = os::monotonic_nanos();
    assert!(taken(&mut ring, before, false).is_empty());
    let after = os::monotonic_nanos();
    assert!(allocate(&ring, 2, after, 0) && free(&ring, 2, after));
    assert!(allocate(&ring, 3, ahead, 0));
    assert_eq!(taken(&mut ring, after, false), [1, -1]);
    assert_eq!(taken(&mut ring, u64::MAX, false), [2, -2, 3]);
    assert_eq!(ring.stats(), HeapStats::default());
}

/// Threads that write and are interrupted anywhere, while prof reads.
#[test]
fn many_writers_at_once() {
    const EACH: u64 = 20_000;
    let mut ring = ring(1);
    let done = AtomicBool::new(false);
    let header = shared(&ring);
    let mut seen = vec![0u8; 4 * EACH as usize + 1];
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u64)
            .map(|writer| {
                scope.spawn(move || {
                    for i in 1..=EACH {
                        let id = writer * EACH + i;
                        let length = (id as usize * 31) % 3000;
                        let mut place = loop {
                            match queue::reserve(header, 1, length) {
                                Some(place) => break place,
                                None => std::thread::yield_now(),
                            }
                        };
                        write(&mut place, id, length);
                        // One that reserves and is killed.
                        if i % 1000 != 0 {
                            assert!(place.hand_over());
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            done.store(true, Relaxed);
        });
        loop {
            let over = done.load(Relaxed);
            for id in taken(&mut ring, u64::MAX, over) {
                seen[id as usize] += 1;
            }
            if over {
                break;
            }
        }
    });
    let expected = |id: usize| u8::from(!(id as u64).is_multiple_of(1000));
    assert!((1..seen.len()).all(|id| seen[id] == expected(id)));
    assert_eq!((ring.damaged(), ring.stats().lost), (None, 4 * EACH / 1000));
}

/// With any contents of the memory, reading ends, and the profile has a reason.
#[test]
fn inconsistent_memory_is_not_read() {
    let hurt = |damage: &dyn Fn(&AllocationRing)| {
        let mut ring = ring(1);
        assert!((1..=100).all(|id| allocate(&ring, id, 1, 100)));
        assert!((1..=100).all(|id| free(&ring, id, 2)));
        assert_eq!(taken(&mut ring, 2, false).len(), 100);
        damage(&ring);
        taken(&mut ring, u64::MAX, true);
        assert!(ring.damaged().is_some());
        assert_eq!(header(&ring.memory).active.load(Relaxed), 0);
        assert!(taken(&mut ring, u64::MAX, true).is_empty());
    };
    let next = |ring: &AllocationRing, next| header(&ring.memory).stacks.next.store(next, Relaxed);
    hurt(&|ring| next(ring, 1 << 62));
    hurt(&|ring| next(ring, u64::MAX));
    hurt(&|ring| next(ring, 0));
    hurt(&|ring| next(ring, header(&ring.memory).stacks.next.load(Relaxed) + 5));
    hurt(&|ring| header(&ring.memory).frees.next.store(1 << 62, Relaxed));
    hurt(&|ring| free_slots(&ring.memory)[10].turn.store(77_777, Relaxed));
    let word = |ring: &AllocationRing, count, state| {
        let position = header(&ring.memory).stacks.next.load(Relaxed);
        let word = granule::word(position, count, state);
        words(&ring.memory)[ring.stacks.place(position)].store(word, Relaxed);
        next(ring, position + 1000);
    };
    for (count, state) in [(0, READY), (0, RETIRED), (1001, SKIPPED), (999, READY), (3, 99 << 56)] {
        hurt(&|ring| word(ring, count, state));
    }
    // A length beyond the record, and an unknown kind.
    for (length, kind) in [(u32::MAX, 0), (400, 0), (0, 7)] {
        hurt(&|ring| {
            let mut place = queue::reserve(header(&ring.memory), 1, 100).unwrap();
            write(&mut place, 1, 100);
            // SAFETY: the place is ours.
            unsafe { ((*place.record()).length, (*place.record()).kind) = (length, kind) };
            assert!(place.hand_over());
        });
    }
}

/// No process can truncate the memory that prof reads and writes.
#[test]
fn the_size_is_sealed() {
    let ring = ring(1);
    assert!(ring.file.set_len(0).is_err() && ring.file.set_len(1 << 40).is_err());
    // A file that is not in memory is refused.
    let file = tempfile::tempfile_in(".").unwrap();
    assert!(AllocationRing::on(file, PathBuf::new(), 1, false).is_err());
}
