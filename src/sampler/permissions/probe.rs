//! Opens perf events only to test whether that works.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

use perf_event_open_sys::bindings as abi;
use sys::os;

/// An event to try, never enabled.
#[derive(Clone, Copy, Debug)]
pub struct TriedEvent {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// `perf_event_attr.sample_period`.
    pub period: u64,
    /// 0: this process; -1: all processes, on one CPU.
    pub pid: i32,
    /// -1: any.
    pub cpu: i32,
    /// `perf_event_attr.exclude_kernel`: user code only.
    pub exclude_kernel: bool,
}

impl TriedEvent {
    /// The software clock on this process, kernel included.
    pub fn cpu_clock() -> TriedEvent {
        TriedEvent {
            kind: abi::PERF_TYPE_SOFTWARE,
            config: u64::from(abi::PERF_COUNT_SW_CPU_CLOCK),
            period: 10_000_000,
            pid: 0,
            cpu: -1,
            exclude_kernel: false,
        }
    }

    /// The same on a CPU, for whatever runs there, without the kernel's code.
    pub fn whole_machine() -> TriedEvent {
        TriedEvent { pid: -1, cpu: 0, exclude_kernel: true, ..TriedEvent::cpu_clock() }
    }

    /// Opens the event; it is closed when the file is dropped.
    ///
    /// # Errors
    ///
    /// Those of `perf_event_open(2)`.
    pub fn open(&self) -> io::Result<File> {
        let mut attr = abi::perf_event_attr::default();
        attr.type_ = self.kind;
        attr.size = size_of::<abi::perf_event_attr>() as u32;
        attr.config = self.config;
        attr.sample_type = u64::from(abi::PERF_SAMPLE_IP | abi::PERF_SAMPLE_CALLCHAIN);
        attr.__bindgen_anon_1.sample_period = self.period;
        attr.set_disabled(1);
        attr.set_exclude_hv(1);
        attr.set_exclude_kernel(self.exclude_kernel.into());
        attr.set_exclude_callchain_kernel(self.exclude_kernel.into());
        let flags = u64::from(abi::PERF_FLAG_FD_CLOEXEC);
        // SAFETY: `attr` is a valid attribute of the size it states, and outlives the call.
        let fd = unsafe {
            perf_event_open_sys::perf_event_open(&mut attr, self.pid, self.cpu, -1, flags as _)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor; it has no other owner.
        Ok(unsafe { File::from_raw_fd(fd) })
    }
}

/// Maps a ring buffer of `bytes` (a power of two) and one page, and unmaps it.
///
/// # Errors
///
/// Those of `perf_event_open(2)` and `mmap(2)`.
pub fn map_ring(bytes: u64) -> io::Result<()> {
    let event = TriedEvent { exclude_kernel: true, ..TriedEvent::cpu_clock() }.open()?;
    let length = bytes as usize + os::page_size();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses; checked below.
    let ring = unsafe {
        let null = std::ptr::null_mut();
        libc::mmap(null, length, protection, libc::MAP_SHARED, event.as_raw_fd(), 0)
    };
    if ring == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: exactly the mapping made above, which is not shared.
    unsafe { libc::munmap(ring, length) };
    Ok(())
}
