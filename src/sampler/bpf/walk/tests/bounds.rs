//! Memory of this process, which the tests make: also what no interpreter has.

use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use interpreters::walk::{Behind, Block, MAX_UNREADABLE, Next, Start, Status, Thread, run};
use interpreters::{Budget, ProcessMemory};

use super::*;

/// A thread that runs until it is dropped.
struct Spinning {
    handle: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    tid: i32,
    /// Its thread pointer.
    pointer: u64,
}

impl Spinning {
    fn start() -> Spinning {
        let stop = Arc::new(AtomicBool::new(false));
        let (send, receive) = std::sync::mpsc::channel();
        let is_over = Arc::clone(&stop);
        let handle = std::thread::spawn(move || {
            let own = std::fs::read_link("/proc/thread-self").unwrap();
            send.send(own.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let pointer = handle.as_pthread_t() as u64;
        Spinning { handle: Some(handle), stop, tid: receive.recv().unwrap(), pointer }
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.handle.take().unwrap().join().unwrap();
    }
}

/// Words of memory, at addresses that do not change.
struct Words(Box<[u64]>);

impl Words {
    fn new(count: usize) -> Words {
        Words((0..count as u64).map(|i| i << 32).collect())
    }

    fn address(&self, index: usize) -> u64 {
        &raw const self.0[index] as u64
    }
}

/// Words of an object: its key, the next object, a frame, the frames as an array, and their number.
const KEY: usize = 0;
const NEXT: usize = 1;
const FIRST: usize = 2;
const BASE: usize = 3;
const COUNT: usize = 4;
/// Number of words of an object and of a frame.
const UNIT: usize = 16;
/// Words of a frame: a pointer to its caller's, and two others.
const CALLER: usize = 3;
const ONE: usize = 5;
const TWO: usize = 6;
/// A mark, and the pointer in frames that have it.
const MARK: usize = 8;
const OTHER: usize = 9;

/// A list of frames, and the words in which they are: objects with the numbers 0 to 2, then frames.
struct Frames {
    words: Words,
}

const OBJECTS: usize = 3;

impl Frames {
    /// A chain whose object 2 belongs to the thread.
    fn new(thread: &Spinning, count: usize) -> Frames {
        let mut frames = Frames { words: Words::new((OBJECTS + count) * UNIT) };
        for object in 0..OBJECTS {
            let next = frames.words.address((object + 1) % OBJECTS * UNIT);
            let first = frames.frame(0);
            let words = &mut frames.words.0[object * UNIT..][..UNIT];
            words[KEY] = thread.pointer + 2 - object as u64;
            (words[NEXT], words[FIRST]) = (if object == 2 { 0 } else { next }, first);
            (words[BASE], words[COUNT]) = (first, count as u64);
        }
        for frame in 0..count {
            let caller = if frame + 1 < count { frames.frame(frame + 1) } else { 0 };
            let (first, own) = (frames.words.address(0), frames.frame(frame));
            let words = frames.words_of(frame);
            words[CALLER] = caller;
            (words[ONE], words[TWO]) = (first, own);
        }
        frames
    }

    /// The address of a frame.
    fn frame(&self, number: usize) -> u64 {
        self.words.address((OBJECTS + number) * UNIT)
    }

    fn words_of(&mut self, frame: usize) -> &mut [u64] {
        &mut self.words.0[(OBJECTS + frame) * UNIT..][..UNIT]
    }

    fn list(&self) -> Start {
        let pointer = &self.words.0[NEXT] as *const u64 as u64;
        Start::List { pointer, next: 8 * NEXT as i32, key: 8 * KEY as i32 }
    }

    /// A walk that copies all that it may.
    fn walk(&self) -> WalkDescriptor {
        let behind = |pointer: usize, lo, size| {
            let pointer = 8 * (pointer - 2) as u8;
            Behind { pointer, block: Block { lo, size } }
        };
        WalkDescriptor {
            starts: vec![self.list()],
            path: vec![8 * FIRST as i32],
            block: Block { lo: 16, size: 96 },
            behind: vec![behind(ONE, 8, 168), behind(TWO, -8, 24)],
            next: Next::Pointer { at: 8 * (CALLER - 2) as u8 },
            most: 4000,
            code: None,
        }
    }

    fn array(&self) -> WalkDescriptor {
        let (base, count) = (8 * BASE as i32, 8 * COUNT as i32);
        let unit = 8 * UNIT as u32;
        WalkDescriptor {
            next: Next::Array { stride: unit as i32, base, count, unit },
            behind: Vec::new(),
            block: Block { lo: 3, size: 17 },
            ..self.walk()
        }
    }
}

/// What the program has to do with walks: end and number of frames of each.
struct Case {
    name: &'static str,
    /// They have to live as long as it is tried.
    _frames: Frames,
    walks: Vec<(WalkDescriptor, Status, usize)>,
}

fn case(
    name: &'static str,
    _frames: Frames,
    walk: WalkDescriptor,
    status: Status,
    count: usize,
) -> Case {
    Case { name, _frames, walks: vec![(walk, status, count)] }
}

/// Chains that end in each way.
fn ends(thread: &Spinning) -> Vec<Case> {
    let frames = |count| Frames::new(thread, count);
    let with_caller = |frame: usize, caller: u64| {
        let mut frames = frames(50);
        frames.words_of(frame)[CALLER] = caller;
        frames
    };
    let mut cases = Vec::new();
    let mut add = |name, frames: Frames, status, count| {
        let walk = frames.walk();
        cases.push(case(name, frames, walk, status, count));
    };
    add("one frame", frames(1), Status::Complete, 1);
    add("more than a record", frames(3000), Status::Complete, 3000);
    add("too many", frames(4001), Status::TooMany, 4000);
    add("as many as may be", frames(4000), Status::Complete, 4000);
    for (name, address) in [
        ("unmapped", 1 << 40),
        ("the first page", 8),
        ("the kernel's", 0xffff_8880_0000_1000),
        ("no address", 0x1234_5678_9abc_def0),
        ("the last address", u64::MAX - 4),
    ] {
        add(name, with_caller(30, address), Status::Fault, 31);
    }
    let mut cyclic = frames(50);
    cyclic.words_of(30)[CALLER] = cyclic.frame(10);
    add("cyclic", cyclic, Status::TooMany, 4000);
    let mut own = frames(50);
    own.words_of(0)[CALLER] = own.frame(0);
    add("its own caller", own, Status::TooMany, 4000);
    let mut nothing_behind = frames(50);
    nothing_behind.words_of(20)[ONE] = 0;
    nothing_behind.words_of(21)[TWO] = 0;
    add("null pointers", nothing_behind, Status::Complete, 50);
    let mut behind = frames(50);
    behind.words_of(20)[ONE] = 1 << 40;
    behind.words_of(20)[TWO] = 1 << 40;
    add("pointers that are none", behind, Status::Complete, 50);
    let mut unreadable = frames(100);
    for frame in 20..=20 + MAX_UNREADABLE as usize {
        unreadable.words_of(frame)[TWO] = 1 << 40;
    }
    add("too many pointers that are none", unreadable, Status::Fault, 20 + MAX_UNREADABLE as usize);
    let mut none = frames(50);
    none.words.0[2 * UNIT + FIRST] = 0;
    add("no frame", none, Status::Nothing, 0);
    cases
}

/// Other starts, and arrays.
fn starts(thread: &Spinning) -> Vec<Case> {
    let frames = || Frames::new(thread, 20);
    let with_starts = |frames: &Frames, starts| WalkDescriptor { starts, ..frames.walk() };
    let mut cases = Vec::new();
    let all = frames();
    let walk = all.array();
    cases.push(case("an array", all, walk, Status::Complete, 20));
    let mut endless = frames();
    endless.words.0[2 * UNIT + COUNT] = u64::MAX / 3;
    let walk = WalkDescriptor { most: 10, ..endless.array() };
    cases.push(case("an array without end", endless, walk, Status::TooMany, 10));

    let mut ring = frames();
    (ring.words.0[2 * UNIT + KEY], ring.words.0[2 * UNIT + NEXT]) = (0, ring.words.address(0));
    let walk = ring.walk();
    cases.push(case("a list without end", ring, walk, Status::Nothing, 0));
    let mut broken = frames();
    broken.words.0[UNIT + NEXT] = 1 << 40;
    let walk = broken.walk();
    cases.push(case("a broken list", broken, walk, Status::Fault, 0));

    let shared = |frames: &Frames, object: usize| Start::Shared {
        pointer: frames.words.address((object - 1) * UNIT + NEXT),
        key: 8 * KEY as i32,
    };
    let own = frames();
    let walk = with_starts(&own, vec![shared(&own, 2)]);
    cases.push(case("its own object", own, walk, Status::Complete, 20));
    let other = frames();
    let walk = with_starts(&other, vec![shared(&other, 1)]);
    cases.push(case("another thread's object", other, walk, Status::Nothing, 0));
    let second = frames();
    let walk = with_starts(&second, vec![shared(&second, 1), second.list()]);
    cases.push(case("the second start", second, walk, Status::Complete, 20));
    let far = frames();
    let path = vec![0x7fff_0000];
    let walk = with_starts(&far, vec![Start::ThreadPointer { path }]);
    cases.push(case("a path to nowhere", far, walk, Status::Fault, 0));

    let first = frames();
    let object = first.words.address(2 * UNIT);
    let walk = with_starts(&first, vec![Start::FirstThread { object }]);
    cases.push(case("the first thread's object", first, walk, Status::Nothing, 0));

    let mut marked = frames();
    let (from, to) = (3, 12);
    marked.words_of(from)[MARK] = 7;
    marked.words_of(from)[OTHER] = marked.frame(to);
    marked.words_of(15)[MARK] = 9;
    marked.words_of(15)[OTHER] = 0;
    let place = |word: usize| 8 * (word - 2) as u8;
    let next =
        Next::Marked { at: place(CALLER), mark: place(MARK), marks: [9, 7], marked: place(OTHER) };
    let walk = WalkDescriptor { next, ..marked.walk() };
    cases.push(case("frames with a mark", marked, walk, Status::Complete, 4 + 4));

    // In the first object, which the frames have a pointer to: a pointer to the first frame.
    let behind = frames();
    let mut walk = behind.walk();
    walk.behind[1].pointer = walk.block.size + 8 * (FIRST - 1) as u8;
    cases.push(case("a pointer behind a pointer", behind, walk, Status::Complete, 20));

    let two = frames();
    let (walk, array) = (two.walk(), two.array());
    let walks = vec![(array, Status::Complete, 20), (walk, Status::Complete, 20)];
    cases.push(Case { name: "two walks", _frames: two, walks });
    cases
}

#[test]
fn whatever_the_memory_has_the_program_copies_what_its_model_copies() {
    let thread = Spinning::start();
    let cases: Vec<Case> = ends(&thread).into_iter().chain(starts(&thread)).collect();
    let pid = std::process::id() as i32;
    let memory = ProcessMemory::new(pid, Budget { bytes: usize::MAX, calls: usize::MAX });
    let first: Vec<_> = cases[0].walks.iter().map(|(walk, ..)| walk.clone()).collect();
    let Some(mut sampling) = Sampling::start(thread.tid, 4096, pid, &first) else { return };
    for (i, case) in cases.iter().enumerate() {
        let id = i as u64 + 1;
        let walks: Vec<_> = case.walks.iter().map(|(walk, ..)| walk.clone()).collect();
        sampling.walks().maps().set(pid, id, &walks).unwrap();
        let mut seen = vec![0; walks.len()];
        sampling.until(|walked| {
            // The walks before may still be in the ring.
            if walked.id != id {
                return false;
            }
            assert_eq!((walked.pid, walked.tid), (pid, thread.tid));
            let (walk, status, count) = &case.walks[walked.walk];
            let name = case.name;
            assert_eq!(walked.copy.status, *status, "{name}");
            assert_eq!(walked.copy.bytes.len(), count * walk.frame_size(), "{name}");
            let at = Thread { pointer: thread.pointer, frame: 0, is_first: false };
            assert!(walked.copy == run(walk, at, &memory), "{name}: as the model");
            seen[walked.walk] += 1;
            seen.iter().all(|count| *count >= 3)
        });
    }
    // A process without walks has no copies.
    sampling.walks().maps().remove(pid);
    let mut after = 0;
    std::thread::sleep(Duration::from_millis(20));
    sampling.walks().take(|_| (), |_| ());
    std::thread::sleep(Duration::from_millis(20));
    sampling.walks().take(|_| after += 1, |_| ());
    // A sample that was being taken has a copy of each walk.
    assert!(after <= 2, "{after}");
}

/// The parts of the program behind the walks have the registers that they need.
#[test]
fn a_sample_with_a_walk_has_a_copy_of_its_stack_as_well() {
    let thread = Spinning::start();
    let frames = Frames::new(&thread, 3);
    let pid = std::process::id() as i32;
    let sampling = Sampling::with_dump(0, thread.tid, 10, pid, &[frames.walk()]);
    let Some(mut sampling) = sampling else { return };
    let mut time = None;
    sampling.until(|walked| {
        time.get_or_insert(walked.time);
        true
    });
    sampling.deep.refresh();
    assert!(sampling.deep.has(time.unwrap()));
}

#[test]
fn walks_beyond_the_limits_are_refused() {
    let thread = Spinning::start();
    let frames = Frames::new(&thread, 1);
    let walk = frames.walk();
    let is_encoded = |walks: &[WalkDescriptor]| encode(1, walks, 100).is_some();
    assert!(is_encoded(&[walk.clone(), walk.clone()]));
    assert!(!is_encoded(&[]) && !is_encoded(&[walk.clone(), walk.clone(), walk.clone()]));
    let block = Block { lo: 0, size: 97 };
    assert!(!is_encoded(&[WalkDescriptor { block, ..walk.clone() }]));
    assert!(!is_encoded(&[WalkDescriptor { next: Next::Pointer { at: 89 }, ..walk }]));
}
