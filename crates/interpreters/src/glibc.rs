//! Thread-local data of glibc's threads, as glibc itself describes it to debuggers: constants
//! `_thread_db_*` with the bits, number and offset of members (`nptl_db/structs.def`).

use crate::images::LoadedImage;
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

/// Thread pointers of all threads, from the two lists that glibc 2.34 and later has of them: of those
/// with stacks that it made, and of others, such as the main thread. None without these lists.
///
/// # Errors
///
/// Memory cannot be read.
pub fn thread_pointers(images: &[LoadedImage], memory: &dyn Memory) -> Result<Vec<u64>, ReadError> {
    const GLOBAL: &str = "_rtld_global";
    let names = [
        "_thread_db_rtld_global__dl_stack_user",
        "_thread_db_rtld_global__dl_stack_used",
        "_thread_db_pthread_list",
    ];
    let global = images.iter().find_map(|image| image.symbols(&[GLOBAL]).get(GLOBAL).copied());
    let offsets = images.iter().find_map(|image| {
        let symbols = image.symbols(&names);
        let offset = |name: &str| {
            let words: [u8; 12] = image.constant(symbols.get(name)?.address)?;
            words.last_chunk().map(|offset| u64::from(u32::from_le_bytes(*offset)))
        };
        Some([offset(names[0])?, offset(names[1])?, offset(names[2])?])
    });
    let mut found = Vec::new();
    let (Some(global), Some([user, used, list])) = (global, offsets) else { return Ok(found) };
    for head in [user, used].map(|offset| global.address.wrapping_add(offset)) {
        let mut entry = memory.word(head)?;
        while entry != head && found.len() < MAX_THREADS {
            found.push(entry.wrapping_sub(list));
            entry = memory.word(entry)?;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_each_key_has_a_path() {
        let layout = ThreadLayout::new([720, 1296, 16, 8]);
        assert_eq!(layout.path_to(0), Some(vec![1296, 8]));
        assert_eq!(layout.path_to(33), Some(vec![1304, 24]));
        assert_eq!(layout.path_to(1024), None);
    }
}
