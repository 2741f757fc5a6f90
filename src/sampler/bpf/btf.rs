//! The kernel's description of its types (`/sys/kernel/btf/vmlinux`; `Documentation/bpf/btf.rst` of
//! the kernel): offsets of fields, and the existing tracepoints.

use std::fs::File;
use std::io::{self, Read};
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, PoisonError};

use memchr::memmem;
use memmap2::Mmap;

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;

/// Kinds of types (`BTF_KIND_*` of `linux/btf.h`).
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const FUNCTION: u32 = 12;

/// Depth to which anonymous structs within others are searched.
const MAX_DEPTH: usize = 8;

/// Fewest bytes of a type and its share of the list of offsets.
const BYTES_PER_TYPE: usize = 24;

/// The kernel's types, from the first use to [`Btf::release`]: a recording reads them once.
static RUNNING: Mutex<Option<Arc<Btf>>> = Mutex::new(None);

/// The kernel's types.
pub struct Btf {
    bytes: Bytes,
    /// Offsets of the names: each ends with a zero, and none is there twice.
    names: Range<usize>,
    /// Offset of each type, by its ID; the first (`void`) has none.
    types: Vec<u32>,
}

/// The contents of the kernel's file.
enum Bytes {
    /// Mapped, so that only the parts in use are read (Linux 6.16).
    Mapped(Mmap),
    Read(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(bytes) => bytes,
            Bytes::Read(bytes) => bytes,
        }
    }
}

/// The header of a type.
#[derive(Clone, Copy)]
struct Type {
    kind: u32,
    /// Number of members or the like.
    len: usize,
    /// Members' offsets contain the size of bit fields.
    bit_fields: bool,
    /// Offset of the data behind the header.
    rest: usize,
}

impl Btf {
    /// The types of the running kernel.
    ///
    /// # Errors
    ///
    /// The kernel has no BTF (built without `CONFIG_DEBUG_INFO_BTF`), or BTF of an unknown format.
    pub fn running() -> io::Result<Arc<Btf>> {
        let mut known = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(btf) = known.as_ref() {
            return Ok(btf.clone());
        }
        let mut file = File::open("/sys/kernel/btf/vmlinux")?;
        let bytes = match sys::mmap::map_privately(&file) {
            Ok(bytes) => Bytes::Mapped(bytes),
            Err(_) => {
                let size = file.metadata()?.len();
                let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
                file.read_to_end(&mut bytes)?;
                Bytes::Read(bytes)
            }
        };
        let btf = Btf::parse(bytes).ok_or(io::ErrorKind::InvalidData)?;
        Ok(known.insert(Arc::new(btf)).clone())
    }

    /// Releases the memory of the running kernel's types; the next use reads them again.
    pub fn release() {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn parse(bytes: Bytes) -> Option<Btf> {
        let word = |at: usize| word(&bytes, at);
        let magic = u16::from_ne_bytes(*bytes.first_chunk::<2>()?);
        let header = word(4)? as usize;
        if magic != MAGIC || header < HEADER {
            return None;
        }
        let types_at = header + word(8)? as usize;
        let types_len = word(12)? as usize;
        let names_at = header.checked_add(word(16)? as usize)?;
        let names = names_at..names_at.checked_add(word(20)? as usize)?;
        let end = types_at.checked_add(types_len)?;
        if end > bytes.len() || names.end > bytes.len() {
            return None;
        }
        let mut btf = Btf { names, types: Vec::with_capacity(types_len / BYTES_PER_TYPE), bytes };
        btf.types.push(u32::MAX);
        let mut at = types_at;
        while at < end {
            let found = btf.at(at)?;
            btf.types.push(u32::try_from(at).ok()?);
            at = found.rest + trailing(found.kind, found.len)?;
        }
        Some(btf)
    }

    fn at(&self, at: usize) -> Option<Type> {
        let info = word(&self.bytes, at + 4)?;
        Some(Type {
            kind: info >> 24 & 0x1f,
            len: (info & 0xffff) as usize,
            bit_fields: info >> 31 != 0,
            rest: at + 12,
        })
    }

    fn name(&self, offset: u32) -> &[u8] {
        let names = self.bytes.get(self.names.clone()).unwrap_or_default();
        let rest = names.get(offset as usize..).unwrap_or_default();
        &rest[..rest.iter().position(|&b| b == 0).unwrap_or(0)]
    }

    /// The type of this kind and name: the name is searched for first, so that types are compared by
    /// a number.
    fn find(&self, kind: u32, name: &str) -> Option<(usize, Type)> {
        let names = self.bytes.get(self.names.clone())?;
        let wanted = [b"\0", name.as_bytes(), b"\0"].concat();
        let offset = memmem::find(names, &wanted)? as u32 + 1;
        self.types.iter().enumerate().skip(1).find_map(|(id, &at)| {
            let is_it = word(&self.bytes, at as usize)? == offset;
            let found = is_it.then(|| self.at(at as usize)).flatten()?;
            (found.kind == kind).then_some((id, found))
        })
    }

    fn by_id(&self, id: usize) -> Option<Type> {
        self.at(*self.types.get(id)? as usize)
    }

    /// The type ID with which programs are attached to a tracepoint.
    ///
    /// # Errors
    ///
    /// `NotFound`: this kernel has no tracepoint of that name.
    pub fn tracepoint(&self, name: &str) -> io::Result<u32> {
        let found = self.find(TYPEDEF, &format!("btf_trace_{name}"));
        found.map(|(id, _)| id as u32).ok_or_else(|| {
            let why = format!("this kernel has no tracepoint {name}");
            io::Error::new(io::ErrorKind::NotFound, why)
        })
    }

    /// The type ID with which programs call a function of the kernel.
    ///
    /// # Errors
    ///
    /// `NotFound`: this kernel has no function of that name.
    pub fn function(&self, name: &str) -> io::Result<u32> {
        self.find(FUNCTION, name).map(|(id, _)| id as u32).ok_or_else(|| {
            let why = format!("this kernel has no function {name} for BPF programs");
            io::Error::new(io::ErrorKind::NotFound, why)
        })
    }

    /// The offset of a struct's field in bytes; `path` names the field and those within it.
    ///
    /// # Errors
    ///
    /// `NotFound`: this kernel's struct has no field of that name.
    pub fn field(&self, name: &str, path: &[&str]) -> io::Result<i16> {
        let field = || {
            let mut within = self.find(STRUCT, name)?.1;
            let mut offset = 0;
            for (i, name) in path.iter().enumerate() {
                let (type_, at) = self.member(within, name, 0)?;
                offset += at;
                if i + 1 < path.len() {
                    within = self.by_id(type_)?;
                }
            }
            i16::try_from(offset).ok()
        };
        field().ok_or_else(|| {
            let why = format!("this kernel's {name} has no field {}", path.join("."));
            io::Error::new(io::ErrorKind::NotFound, why)
        })
    }

    /// The size of a struct in bytes.
    ///
    /// # Errors
    ///
    /// `NotFound`: this kernel has no struct of that name.
    pub fn size(&self, name: &str) -> io::Result<i16> {
        // Behind the name and the kind.
        let size = || word(&self.bytes, self.find(STRUCT, name)?.1.rest - 4);
        size().and_then(|size| i16::try_from(size).ok()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("this kernel has no struct {name}"))
        })
    }

    /// The type and the offset in bytes of a member.
    fn member(&self, container: Type, name: &str, depth: usize) -> Option<(usize, usize)> {
        if !matches!(container.kind, STRUCT | UNION) || depth > MAX_DEPTH {
            return None;
        }
        (0..container.len).find_map(|i| {
            let at = container.rest + i * 12;
            let named = word(&self.bytes, at)?;
            let type_ = word(&self.bytes, at + 4)? as usize;
            let mut bits = word(&self.bytes, at + 8)? as usize;
            if container.bit_fields {
                bits &= 0xff_ffff;
            }
            let named = self.name(named);
            if named == name.as_bytes() {
                return Some((type_, bits / 8));
            }
            if !named.is_empty() {
                return None;
            }
            let inner = self.by_id(type_)?;
            let (type_, offset) = self.member(inner, name, depth + 1)?;
            Some((type_, bits / 8 + offset))
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}

/// Number of bytes behind a type's header.
fn trailing(kind: u32, len: usize) -> Option<usize> {
    Some(match kind {
        // Integers, variables, tags of declarations.
        1 | 14 | 17 => 4,
        ARRAY => 12,
        // Also sections of variables and enums of 64 bits.
        STRUCT | UNION | 15 | 19 => len * 12,
        // Enums and parameters.
        6 | 13 => len * 8,
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_s_types() {
        let Ok(btf) = Btf::running() else {
            return sys::testing::skip_hardware("the kernel has no BTF");
        };
        let pid = btf.field("task_struct", &["pid"]);
        let tgid = btf.field("task_struct", &["tgid"]);
        assert_eq!(pid.unwrap() + 4, tgid.unwrap());
        let run = btf.field("task_struct", &["se", "sum_exec_runtime"]).unwrap();
        assert!(run > btf.field("task_struct", &["se"]).unwrap());
        // `di` is the fifteenth word.
        assert_eq!(btf.field("pt_regs", &["di"]).unwrap(), 14 * 8);
        assert_eq!(btf.size("k_sigaction").unwrap(), 32);
        assert!(btf.field("task_struct", &["no_such_field"]).is_err());
        assert!(btf.tracepoint("sched_switch").unwrap() > 0 && btf.tracepoint("no_such").is_err());
        assert!(Arc::ptr_eq(&btf, &Btf::running().unwrap()), "it is read once");
    }

    #[test]
    fn damaged_types_are_none() {
        let mut bytes = vec![0; HEADER];
        bytes[..2].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[4] = HEADER as u8;
        let parse = |bytes: &[u8]| Btf::parse(Bytes::Read(bytes.to_vec()));
        assert!(parse(&bytes).is_some_and(|btf| btf.tracepoint("x").is_err()));
        bytes[12] = 16;
        assert!(parse(&bytes).is_none(), "types end too early");
        bytes[16] = 200;
        assert!(parse(&bytes).is_none(), "names begin beyond the end");
        bytes[16] = 0;
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(parse(&bytes).is_none(), "a kind that is not known");
        assert!(parse(&[]).is_none());
    }
}
