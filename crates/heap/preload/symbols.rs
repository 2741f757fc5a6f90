//! Finds functions in the objects of this process, without `dlsym`, which allocates and is in
//! another library in older C libraries.
//!
//! Formats: the ELF specification's dynamic section, and for the hash tables
//! <https://sourceware.org/gnu-gabi/program-loading-and-dynamic-linking.txt>.

use core::ffi::{CStr, c_int, c_void};

/// Start of `struct dl_phdr_info`.
#[repr(C)]
struct Info {
    base: usize,
    name: *const u8,
    headers: *const ProgramHeader,
    count: u16,
}

#[repr(C)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_size: u64,
    memory_size: u64,
    align: u64,
}

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

/// `Elf64_Sym`
#[repr(C)]
struct ElfSymbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// `Elf64_Rela`
#[repr(C)]
struct Rela {
    offset: u64,
    info: u64,
    addend: i64,
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_RELRO: u32 = 0x6474_e552;
const PF_W: u32 = 2;
const DT_PLTRELSZ: i64 = 2;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
const STT_FUNC: u8 = 2;
/// The symbol has an old version, for programs that request it.
const HIDDEN: u16 = 0x8000;

unsafe extern "C" {
    fn dl_iterate_phdr(
        callback: unsafe extern "C" fn(*const Info, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
}

/// A loaded object's tables.
pub struct Object {
    base: usize,
    /// First and limit address.
    pub range: (usize, usize),
    symbols: *const ElfSymbol,
    strings: *const u8,
    gnu_hash: *const u32,
    hash: *const u32,
    versions: *const u16,
    /// Relocations of data and of calls: address, and size in bytes.
    relocations: [(*const Rela, usize); 2],
    /// Memory that is read-only after relocation: first and limit address.
    pub relro: (usize, usize),
    headers: (*const ProgramHeader, usize),
}

/// A slot into which the dynamic linker writes the address of a symbol.
pub struct Relocation {
    /// Type.
    pub kind: u32,
    /// Address of the slot.
    pub slot: usize,
    /// The symbol's name.
    name: *const u8,
}

impl Relocation {
    /// True if it refers to this symbol.
    pub fn is_of(&self, name: &CStr) -> bool {
        // SAFETY: it ends with a NUL.
        unsafe { is_same(self.name, name) }
    }
}

/// # Safety
///
/// `text` ends with a NUL.
unsafe fn is_same(text: *const u8, name: &CStr) -> bool {
    // SAFETY: bytes behind the first difference are not read.
    let same = |(i, &c): (usize, &u8)| unsafe { *text.add(i) } == c;
    name.to_bytes_with_nul().iter().enumerate().all(same)
}

/// A function.
#[derive(Clone, Copy)]
pub struct ExportedFunction {
    /// First address.
    pub address: usize,
    /// Size in bytes.
    pub size: usize,
}

/// Calls `visit` for each object of the process except this library, in the dynamic linker's search
/// order, until it returns true.
pub fn each_object<F: FnMut(&Object) -> bool>(mut visit: F) {
    each(|object| !object.is_ours() && visit(object));
}

/// Passes this library to `visit`.
pub fn this_library(mut visit: impl FnMut(&Object)) {
    each(|object| {
        let ours = object.is_ours();
        if ours {
            visit(object);
        }
        ours
    });
}

fn each<F: FnMut(&Object) -> bool>(mut visit: F) {
    unsafe extern "C" fn visit_object<F: FnMut(&Object) -> bool>(
        info: *const Info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker's description of an object, and our own closure.
        unsafe {
            let visit = &mut *data.cast::<F>();
            match Object::new(&*info) {
                Some(object) => c_int::from(visit(&object)),
                None => 0,
            }
        }
    }
    // SAFETY: the closure lives through the call.
    unsafe { dl_iterate_phdr(visit_object::<F>, (&raw mut visit).cast()) };
}

impl Object {
    /// # Safety
    ///
    /// `info` is the linker's description, so all its pointers are valid.
    unsafe fn new(info: &Info) -> Option<Object> {
        let none = core::ptr::null();
        let mut object = Object {
            base: info.base,
            range: (usize::MAX, 0),
            symbols: none,
            strings: core::ptr::null(),
            gnu_hash: core::ptr::null(),
            hash: core::ptr::null(),
            versions: core::ptr::null(),
            relocations: [(core::ptr::null(), 0); 2],
            relro: (0, 0),
            headers: (info.headers, usize::from(info.count)),
        };
        let mut dynamic: *const Dynamic = core::ptr::null();
        for i in 0..usize::from(info.count) {
            // SAFETY: the description has this many headers.
            let header = unsafe { &*info.headers.add(i) };
            let start = info.base.wrapping_add(header.address as usize);
            match header.kind {
                PT_LOAD => {
                    let end = start.wrapping_add(header.memory_size as usize);
                    object.range = (object.range.0.min(start), object.range.1.max(end));
                }
                PT_DYNAMIC => dynamic = start as *const Dynamic,
                PT_GNU_RELRO => {
                    object.relro = (start, start.wrapping_add(header.memory_size as usize));
                }
                _ => {}
            }
        }
        if dynamic.is_null() {
            return None;
        }
        loop {
            // SAFETY: the section ends with a tag of 0.
            let Dynamic { tag, value } = unsafe { &*dynamic };
            let at = object.address(*value);
            match *tag {
                0 => break,
                DT_HASH => object.hash = at as *const u32,
                DT_STRTAB => object.strings = at as *const u8,
                DT_SYMTAB => object.symbols = at as *const ElfSymbol,
                DT_GNU_HASH => object.gnu_hash = at as *const u32,
                DT_VERSYM => object.versions = at as *const u16,
                DT_RELA => object.relocations[0].0 = at as *const Rela,
                DT_RELASZ => object.relocations[0].1 = *value,
                DT_JMPREL => object.relocations[1].0 = at as *const Rela,
                DT_PLTRELSZ => object.relocations[1].1 = *value,
                _ => {}
            }
            // SAFETY: it was not the last.
            dynamic = unsafe { dynamic.add(1) };
        }
        (!object.symbols.is_null() && !object.strings.is_null()).then_some(object)
    }

    /// Address of a dynamic entry: glibc has relocated the entries of most objects, but not of the
    /// vDSO; other C libraries of none.
    fn address(&self, value: usize) -> usize {
        if value < self.base { self.base.wrapping_add(value) } else { value }
    }

    /// True for this library.
    fn is_ours(&self) -> bool {
        let here = each_object::<fn(&Object) -> bool> as *const () as usize;
        self.contains(here)
    }

    /// True if it contains an address.
    pub fn contains(&self, address: usize) -> bool {
        (self.range.0..self.range.1).contains(&address)
    }

    /// True if an address is writable according to the file's headers.
    pub fn is_writable(&self, address: usize) -> bool {
        (0..self.headers.1).any(|i| {
            // SAFETY: the object has this many headers.
            let header = unsafe { &*self.headers.0.add(i) };
            let start = self.base.wrapping_add(header.address as usize);
            let inside =
                (start..start.wrapping_add(header.memory_size as usize)).contains(&address);
            header.kind == PT_LOAD && header.flags & PF_W != 0 && inside
        })
    }

    /// Calls `visit` for each relocation that names a symbol.
    pub fn each_relocation(&self, mut visit: impl FnMut(Relocation)) {
        for (first, bytes) in self.relocations {
            let count = if first.is_null() { 0 } else { bytes / size_of::<Rela>() };
            for i in 0..count {
                // SAFETY: the object has this many relocations.
                let rela = unsafe { &*first.add(i) };
                let symbol = (rela.info >> 32) as usize;
                if symbol == 0 || rela.addend != 0 {
                    continue;
                }
                // SAFETY: its symbol and the symbol's name exist, too.
                let name = unsafe { self.strings.add((*self.symbols.add(symbol)).name as usize) };
                let slot = self.base.wrapping_add(rela.offset as usize);
                visit(Relocation { kind: rela.info as u32, slot, name });
            }
        }
    }

    /// A function that it defines.
    pub fn function(&self, name: &CStr) -> Option<ExportedFunction> {
        // SAFETY: the tables are those that the dynamic linker uses itself.
        unsafe {
            match self.gnu_hash.is_null() {
                false => self.by_gnu_hash(name),
                true if !self.hash.is_null() => self.by_hash(name),
                true => None,
            }
        }
    }

    unsafe fn by_gnu_hash(&self, name: &CStr) -> Option<ExportedFunction> {
        let hash = name
            .to_bytes()
            .iter()
            .fold(5381u32, |h, &c| h.wrapping_mul(33).wrapping_add(u32::from(c)));
        // SAFETY: header of four words, a filter of 64-bit words, buckets, chains.
        unsafe {
            let table = self.gnu_hash;
            let (buckets, first, filter) = (*table, *table.add(1), *table.add(2));
            if buckets == 0 {
                return None;
            }
            let all = table.add(4 + 2 * filter as usize);
            let chains = all.add(buckets as usize);
            let mut i = *all.add((hash % buckets) as usize);
            if i < first {
                return None;
            }
            loop {
                let chain = *chains.add((i - first) as usize);
                if chain | 1 == hash | 1
                    && let Some(found) = self.is_function(i, name)
                {
                    return Some(found);
                }
                if chain & 1 != 0 {
                    return None;
                }
                i += 1;
            }
        }
    }

    unsafe fn by_hash(&self, name: &CStr) -> Option<ExportedFunction> {
        let hash = name.to_bytes().iter().fold(0u32, |h, &c| {
            let h = (h << 4).wrapping_add(u32::from(c));
            let high = h & 0xf000_0000;
            (h ^ (high >> 24)) & !high
        });
        // SAFETY: two numbers, buckets, chains that end with 0.
        unsafe {
            let buckets = *self.hash;
            if buckets == 0 {
                return None;
            }
            let chains = self.hash.add(2 + buckets as usize);
            let mut i = *self.hash.add(2 + (hash % buckets) as usize);
            while i != 0 {
                if let Some(found) = self.is_function(i, name) {
                    return Some(found);
                }
                i = *chains.add(i as usize);
            }
            None
        }
    }

    unsafe fn is_function(&self, i: u32, name: &CStr) -> Option<ExportedFunction> {
        // SAFETY: the hash table determines the number of symbols.
        unsafe {
            let symbol = &*self.symbols.add(i as usize);
            if symbol.section == 0 || symbol.info & 15 != STT_FUNC {
                return None;
            }
            let hidden = !self.versions.is_null() && *self.versions.add(i as usize) & HIDDEN != 0;
            let is_it = is_same(self.strings.add(symbol.name as usize), name);
            let address = self.base.wrapping_add(symbol.value as usize);
            let found = ExportedFunction { address, size: symbol.size as usize };
            (!hidden && is_it).then_some(found)
        }
    }
}
