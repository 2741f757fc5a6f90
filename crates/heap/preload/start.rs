//! Start and end of sampling.

use core::ffi::{c_char, c_int};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

use crate::layout::{FILE_SIZE, Header, MAGIC, MAX_PATH, VARIABLE};
use crate::queue::SHARED;
use crate::sample::{self, PROCESS};
use crate::symbols::each_object;
use crate::table::Process;
use crate::{filter, real, stack, sys};

const EINVAL: c_int = 22;
const EBUSY: c_int = 16;
const CLOCK_MONOTONIC: c_int = 1;

/// The kernel's clock function without a system call, in the vDSO; 0: none.
static CLOCK: AtomicUsize = AtomicUsize::new(0);

/// Nanoseconds by which this clock is ahead of that outside the process's time namespace, modulo
/// 2^64.
static AHEAD: AtomicU64 = AtomicU64::new(0);

/// The shared file; null: none has been mapped.
static MAPPED: AtomicPtr<Header> = AtomicPtr::new(core::ptr::null_mut());

/// The C library calls this before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    real::find_all();
    let mut path = VariableValue::default();
    // Not every C library passes the environment on, or has it ready for early initializers.
    // SAFETY: the text ends with a NUL.
    unsafe { sys::read_file(c"/proc/self/environ".as_ptr().cast(), |piece| path.scan(piece)) };
    if !path.is_whole() {
        return;
    }
    let inherited = path.split();
    // SAFETY: the path ends with a NUL.
    let started = unsafe { prof_heap_start(path.text.as_ptr().cast()) };
    if let Some(fd) = inherited.filter(|_| started != 0) {
        begin(|old| {
            // SAFETY: `old` is the previous mapping.
            unsafe { sys::map_open_file(fd, FILE_SIZE, old) }
        });
    }
}

/// Value of prof's variable, parsed while the environment is read piece by piece.
struct VariableValue {
    text: [u8; MAX_PATH],
    length: usize,
    /// Bytes of the current variable that match prof's.
    same: Option<usize>,
    ended: bool,
}

impl Default for VariableValue {
    fn default() -> VariableValue {
        VariableValue { text: [0; MAX_PATH], length: 0, same: Some(0), ended: false }
    }
}

impl VariableValue {
    fn scan(&mut self, piece: &[u8]) {
        let name = VARIABLE.as_bytes();
        for &byte in piece {
            if self.ended {
                return;
            }
            self.same = match self.same {
                Some(n) if n > name.len() => {
                    self.ended = byte == 0;
                    if let Some(place) = self.text.get_mut(self.length) {
                        *place = byte;
                    }
                    self.length += 1;
                    Some(n)
                }
                _ if byte == 0 => Some(0),
                Some(n) if byte == *name.get(n).unwrap_or(&b'=') => Some(n + 1),
                _ => None,
            };
        }
    }

    fn is_whole(&self) -> bool {
        self.ended && self.length <= MAX_PATH
    }

    /// Ends the path before the number of a descriptor, and returns that number.
    fn split(&mut self) -> Option<usize> {
        let at = self.text.iter().position(|&byte| byte == b';')?;
        let (path, number) = self.text.split_at_mut(at + 1);
        path[at] = 0;
        let digits = number.iter().take_while(|&&byte| byte != 0);
        digits.copied().try_fold(0usize, |number, digit| {
            let digit = usize::from(digit.wrapping_sub(b'0'));
            (digit < 10).then(|| number * 10 + digit).filter(|&number| number < 1 << 20)
        })
    }
}

/// Begins to sample into the file at a path. Returns 0, or a negative error number of the kernel.
///
/// # Safety
///
/// `path` ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prof_heap_start(path: *const c_char) -> c_int {
    real::find_all();
    find_clock();
    // SAFETY: the text ends with a NUL.
    unsafe { sys::read_file(c"/proc/self/timens_offsets".as_ptr().cast(), find_offset) };
    // SAFETY: the caller guarantees the path's end; `old` is the previous mapping.
    begin(|old| unsafe { sys::map_file(path.cast(), FILE_SIZE, old) })
}

/// Begins to sample into the file that `map` maps, which replaces that of an earlier recording: a
/// writer that is still at work there writes a record that prof does not accept.
fn begin(map: impl Fn(*mut u8) -> Result<*mut u8, isize>) -> c_int {
    let header = match map(MAPPED.load(Acquire).cast()) {
        Ok(memory) => memory.cast::<Header>(),
        Err(e) => return e as c_int,
    };
    MAPPED.store(header, Release);
    // SAFETY: the mapping is as large as the layout.
    if unsafe { (*header).magic } != MAGIC {
        return -EINVAL;
    }
    // Memory that other threads may still access is reused.
    if PROCESS.load(Acquire).is_null() {
        let process = match sys::private_memory(size_of::<Process>()) {
            Ok(memory) => memory.cast::<Process>(),
            Err(e) => return e as c_int,
        };
        // SAFETY: new memory, for which zeros are a valid value.
        filter::set_filter(unsafe { &*process });
        PROCESS.store(process, Release);
    }
    // SAFETY: as above; it is never removed.
    let shared = unsafe { &*header };
    shared.loaded.fetch_add(1, Relaxed);
    real::MAPPINGS_COUNT.store(shared.mappings as u8, Relaxed);
    // The first writer reports this process.
    // SAFETY: memory that is never released.
    unsafe {
        let process = &*PROCESS.load(Acquire);
        process.pid.store(0, Relaxed);
        process.reported.store(false, Relaxed);
    }
    SHARED.store(header, Release);
    stack::find_first();
    // SAFETY: it has just been set, and is never released.
    sample::begin(shared, unsafe { &*PROCESS.load(Acquire) });
    0
}

/// Ends sampling. Existing allocations are unaffected.
#[unsafe(no_mangle)]
pub extern "C" fn prof_heap_stop() -> c_int {
    // Other threads may still write there, so the mapping stays.
    let header = SHARED.swap(core::ptr::null_mut(), Release);
    if header.is_null() { -EBUSY } else { 0 }
}

fn find_clock() {
    each_object(|object| {
        let clock = object.function(c"__vdso_clock_gettime");
        clock.inspect(|clock| CLOCK.store(clock.address, Relaxed)).is_some()
    });
}

/// Parses `/proc/self/timens_offsets` (time_namespaces(7)): `monotonic SECONDS NANOSECONDS` and
/// other clocks.
fn find_offset(text: &[u8]) {
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    if words.next() == Some(b"monotonic") {
        let mut next = || words.next().map_or(0, number);
        let seconds = next();
        AHEAD.store(seconds.wrapping_mul(1_000_000_000).wrapping_add(next()), Relaxed);
    }
}

/// A decimal number, possibly negative, modulo 2^64.
fn number(word: &[u8]) -> u64 {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let digit = |&byte: &u8| u64::from(byte.wrapping_sub(b'0'));
    let number = digits.iter().fold(0u64, |n, d| n.wrapping_mul(10).wrapping_add(digit(d)));
    if digits.len() < word.len() { number.wrapping_neg() } else { number }
}

/// `CLOCK_MONOTONIC`, nanoseconds.
pub fn now() -> u64 {
    own_clock().wrapping_sub(AHEAD.load(Relaxed))
}

fn own_clock() -> u64 {
    type ClockFunction = extern "C" fn(c_int, *mut [i64; 2]) -> c_int;
    let clock = CLOCK.load(Relaxed);
    if clock == 0 {
        return sys::monotonic();
    }
    let mut time = [0; 2];
    // SAFETY: the kernel's function of that name has this type.
    let clock: ClockFunction = unsafe { core::mem::transmute(clock) };
    clock(CLOCK_MONOTONIC, &raw mut time);
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}
