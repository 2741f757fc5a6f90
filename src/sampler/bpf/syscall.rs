//! The `bpf(2)` calls that prof needs.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use memmap2::{MmapOptions, MmapRaw};

use super::btf::Btf;
use sys::procfs;

/// `enum bpf_cmd` of `linux/bpf.h`.
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP: libc::c_int = 1;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const MAP_NEXT_KEY: libc::c_int = 4;
const PROG_LOAD: libc::c_int = 5;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const LINK_CREATE: libc::c_int = 28;
const ITER_CREATE: libc::c_int = 33;

/// `BPF_PROG_TYPE_TRACING`, attached as `BPF_TRACE_RAW_TP` or `BPF_TRACE_ITER`.
const TRACING: u32 = 26;
const TRACE_RAW_TP: u32 = 23;
const TRACE_ITER: u32 = 28;

/// `BPF_PROG_TYPE_PERF_EVENT`.
const PERF_EVENT: u32 = 7;

/// `BPF_F_NO_PREALLOC`, `BPF_F_MMAPABLE`.
const NO_PREALLOC: u32 = 1;
const MMAPABLE: u32 = 1 << 10;

/// License of the programs, as required by the kernel functions that they call.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";

/// Size of the verifier's log in bytes.
const LOG: usize = 64 << 10;

/// Kinds of maps (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Lookup by any key.
    Hash = 1,
    /// Lookup by index; prof can map it into its own memory.
    Mapped = 2,
    /// One perf event for each CPU.
    PerfEvents = 4,
    /// Lookup by index, with a value for each CPU.
    PerCpuArray = 6,
    /// A ring buffer; its entries are bytes.
    Ring = 27,
}

#[repr(C)]
#[derive(Default)]
struct MapAttr {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct ElementAttr {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgramAttr {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
    btf: u32,
    functions_size: u32,
    functions: u64,
    functions_len: u32,
    lines_size: u32,
    lines: u64,
    lines_len: u32,
    attach_btf_id: u32,
}

/// `link_create` for an iterator.
#[repr(C)]
#[derive(Default)]
struct LinkAttr {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    info: u64,
    info_size: u32,
    pad: u32,
}

/// `bpf_iter_link_info.task`: the thread, or 0 and the process or its descriptor.
#[repr(C)]
#[derive(Default)]
struct TaskInfo {
    tid: u32,
    pid: u32,
    pid_fd: u32,
}

#[repr(C)]
#[derive(Default)]
struct IteratorAttr {
    link: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct TracepointAttr {
    name: u64,
    program: u32,
    pad: u32,
}

/// A call of `bpf(2)`.
///
/// # Safety
///
/// `attr` is the struct for the command, and addresses in it are of live memory of the size that
/// the command reads or writes.
unsafe fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<i32> {
    // SAFETY: the kernel reads `size` bytes at `attr`, which is that large; the rest is the
    // caller's.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: `bpf(2)` has just returned it, and it has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Memory that programs share with prof.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_size: usize,
    value_size: usize,
}

/// Sizes of a map's keys and values in bytes.
#[derive(Clone, Copy, Debug)]
pub struct EntrySize {
    /// Of a key; 0 for a ring.
    pub key: usize,
    /// Of a value; 0 for a ring.
    pub value: usize,
}

impl EntrySize {
    /// With a number of a CPU, or another of 32 bits, as key.
    pub fn by_number(value: usize) -> EntrySize {
        EntrySize { key: 4, value }
    }
}

impl Map {
    /// Creates a map with a maximum number of entries.
    ///
    /// # Errors
    ///
    /// `EPERM`: the user lacks the privilege.
    pub fn new(kind: MapKind, entry: EntrySize, entries: u32) -> io::Result<Map> {
        let EntrySize { key, value } = entry;
        let flags = match kind {
            // Only hashes accept it.
            MapKind::Hash => NO_PREALLOC,
            MapKind::Mapped => MMAPABLE,
            _ => 0,
        };
        let mut attr = MapAttr {
            kind: kind as u32,
            key_size: key as u32,
            value_size: value as u32,
            max_entries: entries,
            flags,
        };
        // SAFETY: no addresses are in it.
        let fd = owned(unsafe { bpf(MAP_CREATE, &mut attr) }?);
        Ok(Map { fd, key_size: key, value_size: value })
    }

    /// For [`super::code::BpfCode::map`].
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Maps the values of a [`MapKind::Mapped`], at most one page.
    ///
    /// # Errors
    ///
    /// Those of `mmap(2)`.
    pub fn memory(&self) -> io::Result<MmapRaw> {
        MmapOptions::new().len(self.value_size).map_raw(self.fd())
    }

    /// The attributes of an element: `value` is the address of a value, or of one for each CPU.
    fn element(&self, key: &[u8], value: u64) -> ElementAttr {
        assert_eq!(key.len(), self.key_size);
        ElementAttr { map: self.fd() as u32, key: key.as_ptr() as u64, value, ..Default::default() }
    }

    /// Sets a value, unless the key has one.
    ///
    /// # Errors
    ///
    /// `EEXIST`, or the map is full (`E2BIG`).
    pub fn insert(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value_size);
        let mut attr = self.element(key, value.as_ptr() as u64);
        attr.flags = 1;
        // SAFETY: key and value live, and are as large as the map's.
        unsafe { bpf(MAP_UPDATE, &mut attr) }.map(drop)
    }

    /// Sets a value, whether the key has one or not.
    ///
    /// # Errors
    ///
    /// The map is full (`E2BIG`).
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value_size);
        let mut attr = self.element(key, value.as_ptr() as u64);
        // SAFETY: key and value live, and are as large as the map's.
        unsafe { bpf(MAP_UPDATE, &mut attr) }.map(drop)
    }

    /// Removes a key, if it has a value.
    pub fn remove(&self, key: &[u8]) {
        let mut attr = self.element(key, 0);
        // SAFETY: the key lives, and is as large as the map's.
        let _ = unsafe { bpf(MAP_DELETE, &mut attr) };
    }

    /// Sets the event of a CPU (by its number) in a [`MapKind::PerfEvents`]; the event must outlive
    /// the programs.
    ///
    /// # Errors
    ///
    /// Programs cannot write to this kind of event.
    pub fn connect(&self, cpu: u32, event: RawFd) -> io::Result<()> {
        let key = cpu.to_ne_bytes();
        let value = event.to_ne_bytes();
        let mut attr = self.element(&key, value.as_ptr() as u64);
        // SAFETY: key and value live and have four bytes each, as in the map.
        unsafe { bpf(MAP_UPDATE, &mut attr) }.map(drop)
    }

    /// Reads the value of a key into `value`, which has the size of a value; for `cpus` above 1,
    /// one value for each possible CPU.
    ///
    /// # Errors
    ///
    /// The key has no value (`ENOENT`).
    pub fn get(&self, key: &[u8], value: &mut [u8], cpus: usize) -> io::Result<()> {
        assert_eq!(value.len(), self.value_size.next_multiple_of(8) * cpus);
        let mut attr = self.element(key, value.as_mut_ptr() as u64);
        // SAFETY: key and value live, and are as large as the kernel writes them.
        unsafe { bpf(MAP_LOOKUP, &mut attr) }.map(drop)
    }

    /// All keys with their values; to be called when no program changes them any more.
    pub fn entries(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + '_ {
        self.keys().into_iter().filter_map(|key| {
            let mut value = vec![0; self.value_size.next_multiple_of(8)];
            self.get(&key, &mut value, 1).ok().map(|()| (key, value))
        })
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        loop {
            let mut next = vec![0; self.key_size];
            let before = keys.last().map_or(0, |key| key.as_ptr() as u64);
            let mut attr = ElementAttr {
                map: self.fd() as u32,
                key: before,
                value: next.as_mut_ptr() as u64,
                ..Default::default()
            };
            // SAFETY: both keys live and are as large as the map's (or none is given).
            if unsafe { bpf(MAP_NEXT_KEY, &mut attr) }.is_err() {
                return keys;
            }
            keys.push(next);
        }
    }
}

/// A program, loaded and verified, not yet attached.
#[derive(Debug)]
struct Program(OwnedFd);

/// Loads a program that runs when a perf event is sampled, before the sample is written
/// (`PERF_EVENT_IOC_SET_BPF`). A result of 0 suppresses the sample.
///
/// # Errors
///
/// The user lacks the privilege, or this kernel rejects the program.
pub fn load_for_samples(name: &str, code: &[u64]) -> io::Result<OwnedFd> {
    let attr = ProgramAttr { kind: PERF_EVENT, ..ProgramAttr::default() };
    Program::load_as(name, attr, code).map(|program| program.0)
}

/// Loads a program for an iterator of the kernel, given by the type ID of its function.
///
/// # Errors
///
/// The user lacks the privilege, or this kernel rejects the program.
pub fn load_iterator(name: &str, function: u32, code: &[u64]) -> io::Result<OwnedFd> {
    let attr = ProgramAttr {
        kind: TRACING,
        attach_type: TRACE_ITER,
        attach_btf_id: function,
        ..ProgramAttr::default()
    };
    Program::load_as(name, attr, code).map(|program| program.0)
}

/// Runs the program of an iterator over threads for one of them. Returns what it has written.
///
/// # Errors
///
/// The thread has ended, or the kernel cannot choose threads (before Linux 6.1).
pub fn iterate_thread(program: &OwnedFd, tid: i32) -> io::Result<Vec<u8>> {
    let info = TaskInfo { tid: tid as u32, ..TaskInfo::default() };
    let mut link = LinkAttr {
        program: program.as_raw_fd() as u32,
        attach_type: TRACE_ITER,
        info: &raw const info as u64,
        info_size: size_of::<TaskInfo>() as u32,
        ..LinkAttr::default()
    };
    // SAFETY: `info` lives, and has the stated size.
    let link = owned(unsafe { bpf(LINK_CREATE, &mut link) }?);
    let mut iterator = IteratorAttr { link: link.as_raw_fd() as u32, flags: 0 };
    // SAFETY: no addresses are in it.
    let iterator = owned(unsafe { bpf(ITER_CREATE, &mut iterator) }?);
    let mut written = Vec::new();
    File::from(iterator).read_to_end(&mut written)?;
    Ok(written)
}

/// Programs that were loaded together.
#[derive(Debug, Default)]
pub struct Programs {
    programs: Vec<Program>,
    /// Closing these detaches them.
    attached: Vec<OwnedFd>,
}

impl Programs {
    /// Loads programs for the tracepoints of these names.
    ///
    /// # Errors
    ///
    /// The user lacks the privilege, this kernel lacks one of the tracepoints or rejects a program,
    /// or prof is in a PID namespace of its own.
    pub fn load(kernel: &Btf, programs: &[(&str, Vec<u64>)]) -> io::Result<Programs> {
        if !procfs::is_first_pid_namespace() {
            // The programs see other thread IDs.
            return Err(io::ErrorKind::Unsupported.into());
        }
        let load =
            |(name, code): &(&str, Vec<u64>)| Program::load(name, kernel.tracepoint(name)?, code);
        let programs = programs.iter().map(load).collect::<io::Result<_>>()?;
        Ok(Programs { programs, attached: Vec::new() })
    }

    /// Attaches them.
    ///
    /// # Errors
    ///
    /// The kernel refuses; then none of them is attached.
    pub fn attach(&mut self) -> io::Result<()> {
        self.attached = self.programs.iter().map(Program::attach).collect::<io::Result<_>>()?;
        Ok(())
    }

    /// Detaches them.
    pub fn detach(&mut self) {
        self.attached.clear();
    }
}

impl Program {
    /// `tracepoint`: from [`Btf::tracepoint`].
    fn load(name: &str, tracepoint: u32, code: &[u64]) -> io::Result<Program> {
        let attach_type = TRACE_RAW_TP;
        let attach_btf_id = tracepoint;
        let attr = ProgramAttr { kind: TRACING, attach_type, attach_btf_id, ..Default::default() };
        Program::load_as(name, attr, code)
    }

    /// Loads a program of the kind in `attr`. If the kernel rejects it, the error contains the last
    /// line of the verifier's log.
    fn load_as(name: &str, attr: ProgramAttr, code: &[u64]) -> io::Result<Program> {
        let mut attr = ProgramAttr {
            instructions: code.len() as u32,
            code: code.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            ..attr
        };
        let short = name.trim_start_matches("sched_").trim_start_matches("process_");
        let shown = format!("prof_{short}");
        let len = shown.len().min(15);
        attr.name[..len].copy_from_slice(&shown.as_bytes()[..len]);
        // SAFETY: code and license live.
        let refused = match unsafe { bpf(PROG_LOAD, &mut attr) } {
            Ok(fd) => return Ok(Program(owned(fd))),
            Err(refused) => refused,
        };
        let mut log = vec![0_u8; LOG];
        (attr.log_level, attr.log_size, attr.log) = (1, LOG as u32, log.as_mut_ptr() as u64);
        // SAFETY: code, license and log live, and the log has the stated size.
        match unsafe { bpf(PROG_LOAD, &mut attr) } {
            Ok(fd) => Ok(Program(owned(fd))),
            Err(_) => {
                let end = log.iter().position(|&b| b == 0).unwrap_or(0);
                let text = String::from_utf8_lossy(&log[..end]);
                let message =
                    text.lines().rev().find(|l| !l.is_empty() && !l.starts_with("processed"));
                Err(match message {
                    Some(message) => io::Error::new(refused.kind(), format!("{name}: {message}")),
                    None => refused,
                })
            }
        }
    }

    fn attach(&self) -> io::Result<OwnedFd> {
        let mut attr =
            TracepointAttr { program: self.0.as_raw_fd() as u32, ..TracepointAttr::default() };
        // SAFETY: no addresses are in it: the program determines the tracepoint.
        Ok(owned(unsafe { bpf(RAW_TRACEPOINT_OPEN, &mut attr) }?))
    }
}
