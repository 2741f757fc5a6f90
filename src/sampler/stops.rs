//! Perf events that fire while a thread runs user code, to run a program or send a signal.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use perf_event_open_sys::ioctls;

use heap::inject::{StopEvents, StopPrograms};

use super::bpf::stop::Stopper;
use super::permissions::probe::TriedEvent;

/// `F_SETSIG`, `F_SETOWN_EX` and `F_OWNER_TID` (linux/fcntl.h).
const SET_SIGNAL: i32 = 10;
const SET_OWNER: i32 = 15;
const OWNER_TID: i32 = 0;

/// Stops threads, so that a library can be injected into their process.
#[derive(Debug)]
pub struct KernelEvents;

impl StopEvents for KernelEvents {
    fn programs(&self, signal: i32) -> io::Result<Box<dyn StopPrograms>> {
        Ok(Box::new(Stopper::load(signal)?))
    }

    fn signal(&self, tid: i32, period: u64, signal: i32) -> io::Result<File> {
        with_signal(tid, period, signal)
    }
}

#[repr(C)]
struct Owner {
    kind: i32,
    id: i32,
}

/// Runs a program each time that a thread has run for `period` nanoseconds, if it is in user code.
///
/// # Errors
///
/// Those of `perf_event_open(2)`.
pub fn with_program(tid: i32, period: u64, program: RawFd) -> io::Result<File> {
    let event = open(tid, period)?;
    // SAFETY: both are open descriptors, and the call takes numbers.
    checked(unsafe { ioctls::SET_BPF(event.as_raw_fd(), program as u32) })?;
    enable(event)
}

/// Sends a signal to the thread instead. That needs no privilege, but the thread may block or
/// handle the signal.
///
/// # Errors
///
/// Those of `perf_event_open(2)`.
fn with_signal(tid: i32, period: u64, signal: i32) -> io::Result<File> {
    let event = open(tid, period)?;
    let owner = Owner { kind: OWNER_TID, id: tid };
    // SAFETY: the calls take numbers, and the kernel reads `owner`, which is of its layout.
    unsafe {
        checked(libc::fcntl(event.as_raw_fd(), SET_OWNER, &raw const owner))?;
        checked(libc::fcntl(event.as_raw_fd(), SET_SIGNAL, signal))?;
        checked(libc::fcntl(event.as_raw_fd(), libc::F_SETFL, libc::O_ASYNC))?;
    }
    enable(event)
}

fn open(tid: i32, period: u64) -> io::Result<File> {
    TriedEvent { pid: tid, period, exclude_kernel: true, ..TriedEvent::cpu_clock() }.open()
}

fn enable(event: File) -> io::Result<File> {
    // SAFETY: the descriptor is open, and the call takes numbers.
    checked(unsafe { ioctls::ENABLE(event.as_raw_fd(), 0) })?;
    Ok(event)
}

fn checked(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
