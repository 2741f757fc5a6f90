//! Code fragments in every C library through which a thread can be led without writing code into
//! the process.

use super::ReturnPath;

/// Addresses of the fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gadgets {
    /// `syscall; ret`.
    pub syscall: Option<u64>,
    /// `pop %rax; ret`, the same of rdi and of rsi.
    pub pop: [Option<u64>; 3],
    /// Return address of signal handlers: it calls `rt_sigreturn`.
    pub restorer: Option<u64>,
    /// See [`ReturnPath`].
    pub store: Option<Store>,
}

/// Code that stores `rax` where a callee-saved register points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    at: u64,
    displacement: i8,
    words: u64,
}

impl Gadgets {
    /// Fragments in code that is mapped at `address`.
    pub fn find(code: &[u8], address: u64) -> Gadgets {
        let position = |what: &[u8]| {
            let at = code.windows(what.len()).position(|w| w == what)?;
            Some(address + at as u64)
        };
        let store = (0..code.len()).find_map(|at| {
            let (displacement, words) = store(&code[at..])?;
            Some(Store { at: address + at as u64, displacement, words })
        });
        Gadgets {
            syscall: position(&[0x0f, 0x05, 0xc3]),
            pop: [0x58, 0x5f, 0x5e].map(|pop| position(&[pop, 0xc3])),
            restorer: position(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05]),
            store,
        }
    }

    /// These, completed by others.
    pub fn or(self, others: Gadgets) -> Gadgets {
        Gadgets {
            syscall: self.syscall.or(others.syscall),
            pop: std::array::from_fn(|i| self.pop[i].or(others.pop[i])),
            restorer: self.restorer.or(others.restorer),
            store: self.store.or(others.store),
        }
    }

    /// Fragments that keep a function's result and restore its caller's registers.
    pub fn way(&self) -> Option<ReturnPath> {
        let Store { at, displacement, words } = self.store?;
        let [rax, rdi, rsi] = self.pop;
        let pop = [rax?, rdi?, rsi?];
        let syscall = self.syscall?;
        let restorer = self.restorer?;
        Some(ReturnPath { store: at, displacement, words, pop, syscall, restorer })
    }
}

/// Displacement d and popped words of code that begins with `mov %rax,d(%r)` for an `r` of rbx,
/// rbp, r12 to r15, then perhaps `xor %eax,%eax`, `add $n,%rsp` and some `pop`, and `ret`.
fn store(code: &[u8]) -> Option<(i8, u64)> {
    let (displacement, mut rest) = match code {
        [0x48, 0x89, 0x03, rest @ ..]
        | [0x49, 0x89, 0x04, 0x24, rest @ ..]
        | [0x49, 0x89, 0x06 | 0x07, rest @ ..] => (0, rest),
        [0x48, 0x89, 0x43 | 0x45, d, rest @ ..]
        | [0x49, 0x89, 0x44, 0x24, d, rest @ ..]
        | [0x49, 0x89, 0x45..=0x47, d, rest @ ..] => (*d as i8, rest),
        _ => return None,
    };
    let mut words = 0;
    if let [0x31, 0xc0, after @ ..] = rest {
        rest = after;
    }
    if let [0x48, 0x83, 0xc4, n, after @ ..] = rest {
        // Only upwards, and by whole words.
        if *n >= 0x80 || n % 8 != 0 {
            return None;
        }
        (words, rest) = (u64::from(n / 8), after);
    }
    loop {
        match rest {
            [0xc3, ..] => return Some((displacement, words)),
            // Not rsp.
            [0x58..=0x5b | 0x5d..=0x5f, after @ ..] | [0x41, 0x58..=0x5f, after @ ..] => {
                (words, rest) = (words + 1, after);
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_stores_a_result() {
        assert_eq!(store(&[0x48, 0x89, 0x03, 0x5b, 0xc3]), Some((0, 1)));
        assert_eq!(store(&[0x48, 0x89, 0x43, 0xf8, 0x58, 0x5a, 0x5b, 0xc3]), Some((-8, 3)));
        let r12 = [0x49, 0x89, 0x44, 0x24, 8, 0x31, 0xc0, 0x5b, 0x5d, 0x41, 0x5c, 0xc3];
        assert_eq!(store(&r12), Some((8, 3)));
        assert_eq!(store(&[0x48, 0x89, 0x45, 0, 0x48, 0x83, 0xc4, 8, 0x5b, 0xc3]), Some((0, 2)));
        // Through rdi, which is not preserved; it never returns; the stack pointer is popped.
        assert_eq!(store(&[0x48, 0x89, 0x07, 0xc3]), None);
        assert_eq!(store(&[0x48, 0x89, 0x03, 0x5b, 0xe9]), None);
        assert_eq!(store(&[0x48, 0x89, 0x03, 0x5c, 0xc3]), None);
        assert_eq!(store(&[0x48, 0x89]), None);
    }

    #[test]
    fn all_are_in_this_c_library() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut lines = maps.lines().filter_map(sys::maps::parse_line);
        let line = lines.find(|l| l.executable && l.path.contains("libc.so.6")).unwrap();
        let file = std::fs::read(line.path).unwrap();
        let size = (line.end - line.start) as usize;
        let code = &file[line.offset as usize..][..size.min(file.len() - line.offset as usize)];
        let found = Gadgets::find(code, line.start);
        assert!(found.way().is_some(), "{found:?}");
        assert_eq!(Gadgets::find(&[], 0).or(found), found);
    }
}
