//! Thread-local data of glibc's threads, as glibc itself describes it to debuggers: constants
//! `_thread_db_*` with the bits, number and offset of members (`nptl_db/structs.def`).

use crate::images::{LoadedImage, Tls};
use crate::memory::{Memory, ReadError};

/// Members of `struct pthread`, at which the thread pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadLayout {
    /// The thread's number in its PID namespace.
    pub tid: u32,
    /// The array of pointers to blocks of 32 values of pthread keys.
    specific: u32,
    /// Size of a value.
    value_size: u32,
    /// The value itself.
    value: u32,
}

impl ThreadLayout {
    /// Values of keys in a block (`PTHREAD_KEY_2NDLEVEL_SIZE`).
    const BLOCK: u32 = 32;

    /// The layout in the C library among these files.
    pub fn find(images: &[LoadedImage]) -> Option<ThreadLayout> {
        images.iter().find_map(ThreadLayout::described)
    }

    fn described(image: &LoadedImage) -> Option<ThreadLayout> {
        let names = [
            "_thread_db_pthread_tid",
            "_thread_db_pthread_specific",
            "_thread_db_sizeof_pthread_key_data",
            "_thread_db_pthread_key_data_data",
        ];
        let symbols = image.symbols(&names);
        // Bits, number, offset.
        let offset = |name: &str| {
            let words: [u8; 12] = image.constant(symbols.get(name)?.address)?;
            words.last_chunk().map(|offset| u32::from_le_bytes(*offset))
        };
        let size: [u8; 4] = image.constant(symbols.get(names[2])?.address)?;
        let layout = ThreadLayout {
            tid: offset(names[0])?,
            specific: offset(names[1])?,
            value_size: u32::from_le_bytes(size),
            value: offset(names[3])?,
        };
        layout.is_plausible().then_some(layout)
    }

    /// True if no sum of its offsets is large.
    fn is_plausible(self) -> bool {
        let all = [self.tid, self.specific, self.value_size, self.value];
        all.iter().all(|offset| *offset < 1 << 16)
    }

    /// The path of pointers from the thread pointer to the value of a key.
    pub fn path_to(self, key: u32) -> Option<Vec<i32>> {
        // `PTHREAD_KEYS_MAX`.
        if key >= 1024 {
            return None;
        }
        let block = self.specific + 8 * (key / Self::BLOCK);
        let value = self.value_size * (key % Self::BLOCK) + self.value;
        Some(vec![i32::try_from(block).ok()?, i32::try_from(value).ok()?])
    }

    /// A layout with these offsets: thread number, blocks, size of a value, value.
    #[cfg(any(test, feature = "testing"))]
    pub fn new([tid, specific, value_size, value]: [u32; 4]) -> ThreadLayout {
        ThreadLayout { tid, specific, value_size, value }
    }

    /// What [`ThreadLayout::new`] takes.
    #[cfg(any(test, feature = "testing"))]
    pub fn offsets(self) -> [u32; 4] {
        [self.tid, self.specific, self.value_size, self.value]
    }
}

/// Most threads of a process that are found.
const MAX_THREADS: usize = 1024;

/// The two lists that glibc 2.34 and later has of all threads: of those with stacks that it made, and
/// of others, such as the main thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadLists {
    heads: [u64; 2],
    /// Distance from a thread pointer to its place in a list.
    place: u64,
}

impl ThreadLists {
    /// Those of the C library among these files, if it has them.
    pub fn find(images: &[LoadedImage]) -> Option<ThreadLists> {
        const GLOBAL: &str = "_rtld_global";
        let names = [
            "_thread_db_rtld_global__dl_stack_user",
            "_thread_db_rtld_global__dl_stack_used",
            "_thread_db_pthread_list",
        ];
        let global =
            images.iter().find_map(|image| image.symbols(&[GLOBAL]).get(GLOBAL).copied())?;
        let [user, used, place] = images.iter().find_map(|image| {
            let symbols = image.symbols(&names);
            let offset = |name: &str| {
                let words: [u8; 12] = image.constant(symbols.get(name)?.address)?;
                words.last_chunk().map(|offset| u64::from(u32::from_le_bytes(*offset)))
            };
            Some([offset(names[0])?, offset(names[1])?, offset(names[2])?])
        })?;
        let heads = [user, used].map(|offset| global.address.wrapping_add(offset));
        Some(ThreadLists { heads, place })
    }

    /// Thread pointers of all threads.
    ///
    /// # Errors
    ///
    /// Memory cannot be read.
    pub fn pointers(&self, memory: &dyn Memory) -> Result<Vec<u64>, ReadError> {
        let mut found = Vec::new();
        for head in self.heads {
            let mut entry = memory.word(head)?;
            while entry != head && found.len() < MAX_THREADS {
                found.push(entry.wrapping_sub(self.place));
                entry = memory.word(entry)?;
            }
        }
        Ok(found)
    }
}

/// Ways to thread-local variables: the dynamic thread vector (`struct pthread`, `link_map`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TlsLayout {
    /// `struct pthread`: the pointer to its vector.
    vector: u32,
    /// Size of an item of the vector, which begins with a pointer to the variables of a module.
    item_size: u32,
    /// `link_map`: the number of the module.
    module: u32,
}

impl TlsLayout {
    fn find(images: &[LoadedImage]) -> Option<TlsLayout> {
        images.iter().find_map(|image| {
            let names = [
                "_thread_db_pthread_dtvp",
                "_thread_db_dtv_dtv",
                "_thread_db_link_map_l_tls_modid",
            ];
            let symbols = image.symbols(&names);
            // Bits, number, offset.
            let words = |name: &str| -> Option<[u32; 3]> {
                let bytes: [u8; 12] = image.constant(symbols.get(name)?.address)?;
                let word = |at: usize| {
                    bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
                };
                Some([word(0), word(4), word(8)])
            };
            let layout = TlsLayout {
                vector: words(names[0])?[2],
                item_size: words(names[1])?[0] / 8,
                module: words(names[2])?[2],
            };
            let all = [layout.vector, layout.item_size, layout.module];
            all.iter().all(|offset| *offset < 1 << 16).then_some(layout)
        })
    }
}

/// The path of pointers from the thread pointer to the value of a pointer variable of a file, which
/// lies `offset` bytes behind the beginning of the file's thread-local variables; `None` if the C
/// library does not describe it.
///
/// # Errors
///
/// The linker's list of files cannot be read.
pub(crate) fn path_to_variable(
    images: &[LoadedImage],
    file: &LoadedImage,
    offset: u64,
    memory: &dyn Memory,
) -> Result<Option<Vec<i32>>, ReadError> {
    let linker = images.iter().find_map(|image| image.symbols(&["_r_debug"]).remove("_r_debug"));
    let (Some(debug), Some(dynamic)) = (linker, file.dynamic_section()) else {
        // A static executable has no other modules.
        return Ok(file.tls().and_then(|tls| path_in_executable(&tls, offset)));
    };
    let Some(layout) = TlsLayout::find(images) else { return Ok(None) };
    let Some(number) = module_number(debug.address, dynamic, layout.module, memory)? else {
        return Ok(None);
    };
    let item = number.checked_mul(layout.item_size.into());
    let path = [Some(layout.vector.into()), item, Some(offset)];
    Ok(path.iter().map(|offset| i32::try_from((*offset)?).ok()).collect())
}

/// The number of the module whose dynamic section has this address.
fn module_number(
    debug: u64,
    dynamic: u64,
    number_at: u32,
    memory: &dyn Memory,
) -> Result<Option<u64>, ReadError> {
    /// Most files of a process that are searched.
    const MOST: usize = 4096;
    // `r_map` of `struct r_debug`; `l_ld` and `l_next` of `struct link_map` (`link.h`).
    let mut map = memory.word(debug.wrapping_add(8))?;
    for _ in 0..MOST {
        if map == 0 {
            break;
        }
        if memory.word(map.wrapping_add(16))? == dynamic {
            let number = memory.word(map.wrapping_add(number_at.into()))?;
            return Ok((number > 0).then_some(number));
        }
        map = memory.word(map.wrapping_add(24))?;
    }
    Ok(None)
}

/// The variables of an executable lie before the thread pointer (x86-64 psABI, variant II of TLS).
fn path_in_executable(tls: &Tls, offset: u64) -> Option<Vec<i32>> {
    let size = tls.size.checked_next_multiple_of(tls.alignment.max(1))?;
    let distance = i64::try_from(offset).ok()?.checked_sub(i64::try_from(size).ok()?)?;
    Some(vec![i32::try_from(distance).ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_a_static_executable_lie_before_the_thread_pointer() {
        let tls = Tls { size: 0x24, alignment: 16 };
        assert_eq!(path_in_executable(&tls, 8), Some(vec![8 - 0x30]));
        assert_eq!(path_in_executable(&Tls { size: 16, alignment: 0 }, 8), Some(vec![-8]));
        assert_eq!(path_in_executable(&Tls { size: u64::MAX, alignment: 16 }, 8), None);
        assert_eq!(path_in_executable(&Tls { size: 16, alignment: 8 }, 1 << 40), None);
    }

    #[test]
    fn the_value_of_each_key_has_a_path() {
        let layout = ThreadLayout::new([720, 1296, 16, 8]);
        assert_eq!(layout.path_to(0), Some(vec![1296, 8]));
        assert_eq!(layout.path_to(33), Some(vec![1304, 24]));
        assert_eq!(layout.path_to(1024), None);
    }
}
