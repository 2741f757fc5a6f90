//! Mapped objects of the target that matter: its C library, dynamic loader and allocator.

#![allow(unsafe_code)]

use std::fs::File;

use object::LittleEndian;
use object::elf::{FileHeader64, SHN_UNDEF, SHT_DYNSYM, STT_FUNC, STT_GNU_IFUNC, STT_OBJECT};
use object::read::elf::{FileHeader, Sym};
use rustc_hash::FxHashMap;

use crate::arch::{self, Gadgets};
use sys::elf::{MAX_SECTIONS, NameBudget};
use sys::image::{Hit, State};
use sys::maps::Region;
use sys::processes::ProcessTable;
use sys::{FileAddress, LoadBias, ProcessAddress};

/// Role of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectRole {
    /// The dynamic loader.
    Loader,
    /// The C library, or a part of it.
    CLibrary,
    /// It defines `malloc`, and is neither of both.
    Allocator,
    /// The program, or one of its libraries.
    Program,
}

/// A function of the C library that a thread may be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harmless {
    /// A system call around which the C library holds no lock.
    Sleeps,
    /// It waits for a lock of the program.
    Locks,
    /// It calls the program's functions, without holding a lock.
    Calls,
    /// It calls `main`.
    Starts,
}

const SLEEPS: &[&str] = &[
    "accept",
    "accept4",
    "clock_nanosleep",
    "connect",
    "copy_file_range",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "eventfd_read",
    "eventfd_write",
    "fdatasync",
    "flock",
    "fsync",
    "ftruncate",
    "ftruncate64",
    "getrandom",
    "ioctl",
    "lseek",
    "lseek64",
    "mq_timedreceive",
    "mq_timedsend",
    "msgrcv",
    "msgsnd",
    "nanosleep",
    "pause",
    "poll",
    "ppoll",
    "pread",
    "pread64",
    "preadv",
    "preadv64",
    "pselect",
    "pthread_clockjoin_np",
    "pthread_cond_clockwait",
    "pthread_cond_timedwait",
    "pthread_cond_wait",
    "pthread_join",
    "pthread_sigmask",
    "pthread_timedjoin_np",
    "pwrite",
    "pwrite64",
    "pwritev",
    "pwritev64",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "sched_yield",
    "select",
    "sem_clockwait",
    "sem_timedwait",
    "sem_wait",
    "semop",
    "semtimedop",
    "send",
    "sendfile",
    "sendfile64",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "shutdown",
    "sigprocmask",
    "sigsuspend",
    "sigtimedwait",
    "sigwait",
    "sigwaitinfo",
    "sleep",
    "splice",
    "sync_file_range",
    "syscall",
    "tcdrain",
    "timerfd_settime",
    "usleep",
    "wait",
    "wait3",
    "wait4",
    "waitid",
    "waitpid",
    "write",
    "writev",
];
const LOCKS: &[&str] = &[
    "pthread_mutex_clocklock",
    "pthread_mutex_lock",
    "pthread_mutex_timedlock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
];
const CALLS: &[&str] = &["bsearch", "qsort", "qsort_r"];
const STARTS: &[&str] = &["__libc_start_main"];

/// Address range of a function, and its kind.
type Range = (u64, u64, Harmless);

/// The objects that were found.
#[derive(Default)]
pub struct Objects {
    /// Roles by image.
    roles: FxHashMap<u32, ObjectRole>,
    /// Sorted.
    harmless: Vec<Range>,
    /// Requested functions and variables, by name: address and size.
    symbols: FxHashMap<&'static str, (u64, u64)>,
    /// Code fragments that threads can be led through.
    pub gadgets: Gadgets,
    /// The program itself defines `malloc`: its own code may be the allocator's.
    pub program_allocates: bool,
    /// The program is written in Go.
    pub is_go: bool,
    /// Executable regions, for detecting changes.
    regions: Vec<(u64, u64, u32)>,
}

/// Symbols that are kept.
const WANTED: &[&str] =
    &["dlopen", "__libc_dlopen_mode", "dlerror", "__errno_location", "_rtld_global"];

impl Objects {
    /// Reads all executable mappings of a process.
    pub fn read(table: &mut ProcessTable, pid: i32) -> Objects {
        let mut objects = Objects::default();
        let main = table.process(pid).main_image;
        let (process, images) = table.split(pid);
        let regions: Vec<Region> = process.regions.iter().cloned().collect();
        for region in &regions {
            objects.regions.push((region.start, region.end, region.image));
            let hit = Hit { pid, start: region.start, end: region.end };
            let image = images.load(region.image, hit);
            let State::Elf(loaded) = &images.get(image).state else { continue };
            let start = ProcessAddress(region.start);
            let address = loaded.elf.address_of(region.offset_of(start));
            let Some((_, address)) = address else { continue };
            let bias = LoadBias::between(address, start);
            let path = &images.get(image).path;
            let is_main = main == Some(region.image) || main == Some(image);
            objects.is_go |= is_main && loaded.elf.is_go;
            let role = objects.add(image, path, is_main, &loaded.bytes, bias);
            if matches!(role, ObjectRole::CLibrary | ObjectRole::Loader) {
                let start = region.offset as usize;
                let length = (region.end - region.start) as usize;
                let end = start.saturating_add(length).min(loaded.bytes.len());
                let code = loaded.bytes.get(start..end).unwrap_or_default();
                let gadgets = Gadgets::find(code, region.start);
                objects.gadgets = std::mem::take(&mut objects.gadgets).or(gadgets);
            }
        }
        objects.harmless.sort_unstable_by_key(|range| range.0);
        objects
    }

    /// Adds an image.
    fn add(
        &mut self,
        image: u32,
        path: &str,
        is_main: bool,
        data: &[u8],
        bias: LoadBias,
    ) -> ObjectRole {
        if let Some(role) = self.roles.get(&image) {
            return *role;
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        let mut role = role_by_name(name);
        let mut defines_malloc = false;
        for_each_symbol(data, |name, value, size, is_function| {
            if !is_function && name != "_rtld_global" {
                return;
            }
            if name == "malloc" {
                defines_malloc = true;
            }
            if role == ObjectRole::Program {
                return;
            }
            let ProcessAddress(at) = bias.apply(FileAddress(value));
            if let Some(wanted) = WANTED.iter().find(|w| **w == name) {
                self.symbols.entry(wanted).or_insert((at, size));
            }
            if let Some(harmless) = harmless(name).filter(|_| role == ObjectRole::CLibrary) {
                self.harmless.push((at, at + size, harmless));
            }
        });
        if role == ObjectRole::Program && defines_malloc {
            if is_main {
                self.program_allocates = true;
            } else {
                role = ObjectRole::Allocator;
            }
        }
        self.roles.insert(image, role);
        role
    }

    /// Role of an image.
    pub fn role(&self, image: u32) -> ObjectRole {
        self.roles.get(&image).copied().unwrap_or(ObjectRole::Program)
    }

    /// The function of the C library that contains an address, if it is harmless.
    pub fn harmless(&self, ProcessAddress(address): ProcessAddress) -> Option<Harmless> {
        let i = self.harmless.partition_point(|range| range.0 <= address);
        // A function may have several names.
        let range = self.harmless.get(i.checked_sub(1)?)?;
        (address < range.1).then_some(range.2)
    }

    /// The function of the C library that the call before a return address leads to, directly or by
    /// an entry of the procedure linkage table, if it is harmless and has no callback.
    ///
    /// A function that ends in a jump to another one (`sem_timedwait` of glibc) is not on the
    /// stack.
    pub fn calls(&self, memory: &File, return_address: ProcessAddress) -> Option<Harmless> {
        let target = arch::call_target(memory, return_address.0)?;
        let i = self.harmless.binary_search_by_key(&target, |range| range.0).ok()?;
        let harmless = self.harmless[i].2;
        matches!(harmless, Harmless::Sleeps | Harmless::Locks).then_some(harmless)
    }

    /// Address and size of a symbol of the C library or the loader.
    pub fn symbol(&self, name: &str) -> Option<(u64, u64)> {
        self.symbols.get(name).copied()
    }

    /// True if there is a C library.
    pub fn has_c_library(&self) -> bool {
        self.roles.values().any(|role| *role == ObjectRole::CLibrary)
    }

    /// `dlopen`, or its internal equivalent in older C libraries.
    pub fn dlopen(&self) -> Option<u64> {
        let found = self.symbol("dlopen").or_else(|| self.symbol("__libc_dlopen_mode"));
        found.map(|(address, _)| address)
    }
}

fn role_by_name(name: &str) -> ObjectRole {
    const LOADER: &[&str] = &["ld-linux", "ld-2."];
    const C_LIBRARY: &[&str] = &[
        "libc.so.",
        "libc-2.",
        "libpthread.so",
        "libpthread-2.",
        "libdl.so",
        "libdl-2.",
        "librt.so",
        "librt-2.",
        "ld-musl",
        "libc.musl",
    ];
    let begins = |names: &[&str]| names.iter().any(|n| name.starts_with(n));
    match name {
        // musl, if it was found by the name of its file.
        "libc.so" => ObjectRole::CLibrary,
        _ if begins(LOADER) => ObjectRole::Loader,
        _ if begins(C_LIBRARY) => ObjectRole::CLibrary,
        _ => ObjectRole::Program,
    }
}

fn harmless(name: &str) -> Option<Harmless> {
    let kinds = [
        (SLEEPS, Harmless::Sleeps),
        (LOCKS, Harmless::Locks),
        (CALLS, Harmless::Calls),
        (STARTS, Harmless::Starts),
    ];
    kinds.iter().find_map(|(names, kind)| names.contains(&name).then_some(*kind))
}

/// Exported functions and objects of a file: name, address, size, and true for functions.
fn for_each_symbol(data: &[u8], mut each: impl FnMut(&str, u64, u64, bool)) {
    let endian = LittleEndian;
    let Ok(header) = FileHeader64::<LittleEndian>::parse(data) else { return };
    let sections = header.sections(endian, data);
    // A search for a symbol table passes all of them.
    let Some(sections) = sections.ok().filter(|all| all.len() <= MAX_SECTIONS) else { return };
    let Ok(symbols) = sections.symbols(endian, data, SHT_DYNSYM) else { return };
    let mut budget = NameBudget::of(data);
    for symbol in symbols.iter() {
        let kind = symbol.st_type();
        let wanted = [STT_FUNC, STT_GNU_IFUNC, STT_OBJECT].contains(&kind);
        if !wanted || symbol.st_shndx(endian) == SHN_UNDEF {
            continue;
        }
        let Some(name) = budget.found(symbol.name(endian, symbols.strings())) else { return };
        let Ok(name) = std::str::from_utf8(name) else { continue };
        let value = symbol.st_value(endian);
        let size = symbol.st_size(endian);
        each(name, value, size, kind != STT_OBJECT);
    }
}

/// Address of a library's exported function, relative to its mapping.
pub fn exported(data: &[u8], wanted: &str) -> Option<u64> {
    let mut found = None;
    for_each_symbol(data, |name, value, _, is_function| {
        if is_function && name == wanted {
            found = Some(value);
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_all_that_is_needed() {
        let pid = std::process::id() as i32;
        let objects = Objects::read(&mut ProcessTable::default(), pid);
        assert!(objects.has_c_library() && objects.dlopen().is_some());
        assert!(objects.symbol("__errno_location").is_some());
        assert!(objects.symbol("dlerror").is_some());
        assert!(objects.gadgets.way().is_some());
        assert!(!objects.program_allocates);
        let read = libc::read as unsafe extern "C" fn(_, _, _) -> _ as usize as u64;
        assert_eq!(objects.harmless(ProcessAddress(read)), Some(Harmless::Sleeps));
        let malloc = libc::malloc as unsafe extern "C" fn(_) -> _ as usize as u64;
        assert_eq!(objects.harmless(ProcessAddress(malloc)), None);
    }

    #[test]
    fn names_of_c_libraries() {
        for name in ["libc.so.6", "libc-2.31.so", "ld-musl-x86_64.so.1", "libpthread.so.0"] {
            assert_eq!(role_by_name(name), ObjectRole::CLibrary, "{name}");
        }
        for name in ["ld-linux-x86-64.so.2", "ld-2.31.so"] {
            assert_eq!(role_by_name(name), ObjectRole::Loader, "{name}");
        }
        assert_eq!(role_by_name("libcrypto.so.3"), ObjectRole::Program);
    }
}
