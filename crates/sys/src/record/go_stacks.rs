//! The other stack of a thread that runs Go, read at the same moment as a sample.

/// Saved stack pointers of a thread that runs Go, and the bytes of the stack on which it does not run:
/// its own one, or the one of its goroutine. Of another thread, there may be the outermost bytes of its
/// stack instead, without pointers. Empty: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoStacks<'a>(&'a [u8]);

impl<'a> GoStacks<'a> {
    /// Size of what is before the bytes: the saved stack pointer of the goroutine (0 if the thread
    /// runs on its stack) and of the thread's own stack, the goroutine's saved instruction pointer,
    /// and the address of the first byte.
    pub const WORDS: usize = 32;

    /// Those words and the bytes.
    pub fn new(all: &'a [u8]) -> GoStacks<'a> {
        GoStacks(all)
    }

    /// All of it, for [`GoStacks::new`].
    pub fn all(self) -> &'a [u8] {
        self.0
    }

    /// True if nothing is known.
    pub fn is_empty(self) -> bool {
        self.0.len() <= GoStacks::WORDS
    }

    /// Saved stack pointer of the goroutine, if the thread does not run on its stack.
    pub fn goroutine(self) -> Option<u64> {
        self.at(0).filter(|&sp| sp != 0)
    }

    /// Stack pointer with which the thread left its own stack the last time.
    pub fn system(self) -> Option<u64> {
        self.at(8).filter(|&sp| sp != 0)
    }

    /// The instruction at which the goroutine will be resumed, if the thread does not run on its
    /// stack.
    pub fn resumed(self) -> Option<u64> {
        self.at(16).filter(|&ip| ip != 0)
    }

    /// The word at an address of the other stack.
    pub fn word(self, address: u64) -> Option<u64> {
        let at = address.checked_sub(self.at(24)?)?;
        self.at(usize::try_from(at).ok()?.checked_add(GoStacks::WORDS)?)
    }

    fn at(self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_copied_is_there() {
        let bytes: Vec<u8> =
            [0, 0x7000, 0x400, 0x7000, 1, 2].iter().flat_map(|w: &u64| w.to_le_bytes()).collect();
        let stacks = GoStacks::new(&bytes);
        assert_eq!((stacks.goroutine(), stacks.system()), (None, Some(0x7000)));
        assert_eq!(stacks.resumed(), Some(0x400));
        assert_eq!([0x7000, 0x7008].map(|at| stacks.word(at)), [Some(1), Some(2)]);
        for outside in [0, 0x6ff8, 0x7009, 0x7010, u64::MAX] {
            assert_eq!(stacks.word(outside), None, "{outside:x}");
        }
        assert!(!stacks.is_empty() && GoStacks::new(&bytes[..32]).is_empty());
        assert_eq!(GoStacks::default().word(0), None);
    }
}
