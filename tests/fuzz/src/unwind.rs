//! An ELF file with unwind information, as a target may have mapped it, and a stack to unwind: its
//! analysis has the cost of its size, in CPU time and memory.

use std::io::Write;
use std::time::Duration;

use super::cost::Limits;

use sys::ThreadId;
use sys::image::{Hit, Images, State};
use sys::maps::{Region, Regions};
use sys::record::{AllRegs, Regs, Rest, UserStack};
use unwind::Unwinder;

/// Addresses of the mapped file and of the stack.
const BASE: u64 = 0x5000_0000_0000;
const STACK: u64 = 0x7fff_0000_0000;

/// A process ID that no process has.
const PID: i32 = i32::MAX - 1;

/// The tables of rules have a fixed size.
const LIMITS: Limits = Limits {
    time: Duration::from_millis(50),
    time_for_a_byte: Duration::from_micros(10),
    memory: 9 << 20,
    memory_for_a_byte: 64,
};

/// Takes an input.
pub fn run(data: &[u8]) {
    if data.len() < 64 {
        return;
    }
    let mut file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a temporary file");
    file.write_all(data).expect("room for it");
    let path = file.path().to_str().expect("an ASCII path");
    LIMITS.hold(data.len(), || unwind_in(path, data));
}

/// Unwinds from places all over the file's first segments.
fn unwind_in(path: &str, data: &[u8]) {
    let mut images = Images::default();
    let image = images.intern(1, path, &[], Default::default());
    let size = (data.len() as u64).next_multiple_of(4096);
    let mut regions = Regions::default();
    regions.insert(Region { start: BASE, end: BASE + size, offset: 0, image, ..Region::default() });
    let image = images.load(image, Hit { pid: PID, start: 0, end: 0 });
    let segments: Vec<(u64, u64)> = match &images.get(image).state {
        State::Elf(loaded) => loaded.elf.segments.iter().map(|s| (s.offset, s.size)).collect(),
        _ => return,
    };
    let mut all = [0; 136];
    all.iter_mut().enumerate().for_each(|(i, byte)| *byte = data[i % data.len()]);
    let (mut unwinder, mut frames) = (Unwinder::default(), Vec::new());
    for (offset, length) in segments.into_iter().take(3) {
        for i in 0..24 {
            let offset = offset.wrapping_add(length / 24 * i) % size;
            let (ip, stack) = (BASE + offset, stack(offset, size));
            let regs = Regs { ip, sp: STACK, bp: STACK + 64 };
            for all in [AllRegs::default(), AllRegs::new(&all)] {
                let (rest, full) = (Rest::default(), i % 2 == 0);
                let user = UserStack::Native { regs, all, bytes: &stack, full, rest };
                let chain = [ip, BASE + 100];
                let thread = ThreadId { pid: PID, tid: 1 };
                let _ = unwinder.unwind(thread, &regions, &mut images, user, &chain, &mut frames);
            }
        }
    }
}

/// Words that point into the stack and into the file.
fn stack(offset: u64, size: u64) -> Vec<u8> {
    let word = |i: u64| match i % 3 {
        0 => STACK + i * 8 + 32,
        _ => BASE + (offset + 37 * i) % size,
    };
    (0..512).flat_map(|i| word(i).to_le_bytes()).collect()
}
