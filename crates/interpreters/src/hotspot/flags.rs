//! Options of HotSpot (`jvmFlag.hpp`).

use super::methods::word;
use super::structs::Structs;
use crate::{LoadedImage, Memory};

/// Most options; there are about 1,500.
const MOST: u64 = 8192;

/// True if the option that is on or off with its value at an address is on.
pub fn is_set(address: u64, memory: &dyn Memory) -> bool {
    let mut value = [0];
    memory.read(address, &mut value).is_ok() && value != [0]
}

/// The address of the value of an option; `None` if there is none of that name.
pub fn address(
    name: &str,
    structs: &Structs,
    image: &LoadedImage<'_>,
    memory: &dyn Memory,
) -> Option<u64> {
    let size = *structs.sizes.get("JVMFlag").filter(|size| **size <= 256)?;
    let offset = |field: &str| structs.offsets.get(field).filter(|at| **at + 8 <= size).copied();
    let (named, value) = (offset("JVMFlag._name")?, offset("JVMFlag._addr")?);
    let fixed = |field: &str| memory.word(*structs.statics.get(field)?).ok();
    let (flags, count) = (fixed("JVMFlag.flags")?, fixed("JVMFlag.numFlags")?.min(MOST));
    let mut bytes = vec![0; usize::try_from(size * count).ok()?];
    memory.read(flags, &mut bytes).ok()?;
    let is_named = |flag: &&[u8]| {
        let text = word(flag, named).and_then(|address| image.bytes(address));
        let rest = text.and_then(|text| text.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    };
    let flag = bytes.chunks_exact(size as usize).find(is_named)?;
    word(flag, value)
}
