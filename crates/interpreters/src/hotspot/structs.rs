//! HotSpot's description of itself for debuggers (`vmStructs.hpp`): where fields lie in structures,
//! where static ones are, and how large types are.

use std::collections::{BTreeMap, HashMap};

use crate::images::Symbol;
use crate::{LoadedImage, Memory, ReadError, Refusal};

/// A symbol that all versions export.
pub(crate) const EXPORTED: &str = "gHotSpotVMStructs";

const TYPES: &str = "gHotSpotVMTypes";

/// Most entries of a table; there are about 1,000.
const MOST: u64 = 8192;

/// Sizes in bytes that an entry of a table may have.
const STRIDES: std::ops::RangeInclusive<u64> = 16..=256;

/// Longest name, in bytes.
const LONGEST: usize = 128;

/// Types whose fields are kept.
const KEPT: [&str; 30] = [
    "Abstract_VM_Version",
    "CodeBlob",
    "CodeCache",
    "CodeHeap",
    "CompiledMethod",
    "ConstMethod",
    "ConstantPool",
    "GenericGrowableArray",
    "GrowableArray<int>",
    "GrowableArrayBase",
    "HeapBlock",
    "HeapBlock::Header",
    "InstanceKlass",
    "JVMFlag",
    "JavaFrameAnchor",
    "JavaThread",
    "Klass",
    "Method",
    "OSThread",
    "PcDesc",
    "PerfDataEntry",
    "PerfDataPrologue",
    "PerfMemory",
    "StubRoutines",
    "Symbol",
    "Thread",
    "ThreadsList",
    "ThreadsSMRSupport",
    "VirtualSpace",
    "nmethod",
];

/// What HotSpot states of its structures. Keys are `Type.field`, and names of types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Structs {
    /// Offsets of fields in bytes.
    pub offsets: BTreeMap<String, u64>,
    /// Addresses of static fields.
    pub statics: BTreeMap<String, u64>,
    /// Sizes of types in bytes.
    pub sizes: BTreeMap<String, u64>,
}

impl Structs {
    /// Those of a process, whose image of HotSpot is given.
    ///
    /// # Errors
    ///
    /// Memory cannot be read, or the description has another form.
    pub fn read(image: &LoadedImage<'_>, memory: &dyn Memory) -> Result<Structs, Refusal> {
        let mut structs = Structs::default();
        let names = ["TypeName", "FieldName", "IsStatic", "Offset", "Address"];
        let table = Table::find(image, memory, EXPORTED, "gHotSpotVMStructEntry", &names)?;
        for entry in 0..MOST {
            let Some(owner) = table.text(entry, 0)? else { break };
            let Some(name) = table.text(entry, 1)?.filter(|_| KEPT.contains(&owner)) else {
                continue;
            };
            let key = format!("{owner}.{name}");
            if table.word(entry, 2)? as u32 == 0 {
                structs.offsets.insert(key, table.word(entry, 3)?);
            } else {
                structs.statics.insert(key, table.word(entry, 4)?);
            }
        }
        let table =
            Table::find(image, memory, TYPES, "gHotSpotVMTypeEntry", &["TypeName", "Size"])?;
        for entry in 0..MOST {
            let Some(name) = table.text(entry, 0)? else { break };
            if KEPT.contains(&name) {
                structs.sizes.insert(name.to_owned(), table.word(entry, 1)?);
            }
        }
        Ok(structs)
    }
}

/// A table of the description.
struct Table<'a> {
    image: &'a LoadedImage<'a>,
    /// Its entries.
    bytes: Vec<u8>,
    stride: usize,
    /// Offsets in an entry.
    places: Vec<usize>,
}

const OTHER: Refusal = Refusal::Layout("its description of itself is another one");

impl<'a> Table<'a> {
    /// A table of a name, whose entries have these members.
    fn find(
        image: &'a LoadedImage<'a>,
        memory: &dyn Memory,
        name: &str,
        prefix: &str,
        members: &[&str],
    ) -> Result<Table<'a>, Refusal> {
        let stride = format!("{prefix}ArrayStride");
        let places: Vec<String> = members.iter().map(|m| format!("{prefix}{m}Offset")).collect();
        let wanted: Vec<&str> =
            [name, &stride].into_iter().chain(places.iter().map(String::as_str)).collect();
        let found: HashMap<&str, Symbol> = image.symbols(&wanted);
        let word = |name: &str| -> Result<u64, Refusal> {
            Ok(memory.word(found.get(name).ok_or(OTHER)?.address)?)
        };
        let stride = Some(word(&stride)?).filter(|stride| STRIDES.contains(stride)).ok_or(OTHER)?;
        let inside = |place: u64| {
            let end = place.checked_add(8).filter(|end| *end <= stride)?;
            usize::try_from(end - 8).ok()
        };
        let places: Result<Vec<usize>, Refusal> =
            places.iter().map(|place| inside(word(place)?).ok_or(OTHER)).collect();
        let stride = stride as usize;
        let bytes = read_entries(memory, word(name)?, stride)?;
        Ok(Table { image, bytes, stride, places: places? })
    }

    fn word(&self, entry: u64, member: usize) -> Result<u64, Refusal> {
        let at = usize::try_from(entry).ok().and_then(|entry| entry.checked_mul(self.stride));
        let at = at.and_then(|at| at.checked_add(self.places[member])).ok_or(OTHER)?;
        let word = self.bytes.get(at..).and_then(|bytes| bytes.first_chunk()).ok_or(OTHER)?;
        Ok(u64::from_le_bytes(*word))
    }

    /// A name, which is a constant of the file; `None` at the end of the table.
    fn text(&self, entry: u64, member: usize) -> Result<Option<&'a str>, Refusal> {
        let address = self.word(entry, member)?;
        if address == 0 {
            return Ok(None);
        }
        let bytes = self.image.bytes(address).ok_or(OTHER)?;
        let bytes = &bytes[..bytes.len().min(LONGEST)];
        let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Ok(Some(std::str::from_utf8(&bytes[..length]).map_err(|_| OTHER)?))
    }
}

/// The entries of a table up to that whose first word is 0: a part is read at a time, as the length is
/// not known.
fn read_entries(memory: &dyn Memory, table: u64, stride: usize) -> Result<Vec<u8>, Refusal> {
    const PART: usize = 64;
    let mut bytes = Vec::new();
    while bytes.len() < MOST as usize * stride {
        let mut part = vec![0; PART * stride];
        let address = table.wrapping_add(bytes.len() as u64);
        match memory.read(address, &mut part) {
            Err(ReadError::Unmapped) => {
                // The end of the table may be that of the memory.
                part.truncate(stride);
                memory.read(address, &mut part)?;
            }
            read => read?,
        }
        bytes.extend(&part);
        if part.chunks(stride).any(|entry| entry[..8] == [0; 8]) {
            break;
        }
    }
    Ok(bytes)
}
