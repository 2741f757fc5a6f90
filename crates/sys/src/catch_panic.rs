//! Catches panics in parsers of files that may be damaged or hostile: a panic costs no more than
//! the result.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static CATCHES: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`; `None` if it panicked. Nothing is printed about the panic.
pub fn catch_panic<T>(f: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !panics_are_caught() {
                before(info);
            }
        }));
    });
    let outside = CATCHES.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    CATCHES.set(outside);
    result.ok()
}

/// True if [`catch_panic`] catches the panics of this thread: a panic hook leaves these alone.
pub fn panics_are_caught() -> bool {
    CATCHES.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_yields_no_result() {
        assert_eq!(catch_panic(|| 1), Some(1));
        assert_eq!(catch_panic(|| [1, 2][std::hint::black_box(7)]), None);
    }

    #[test]
    fn hooks_see_which_panics_are_caught() {
        assert!(!panics_are_caught());
        let inside = catch_panic(|| {
            assert_eq!(catch_panic(panics_are_caught), Some(true));
            panics_are_caught()
        });
        assert_eq!(inside, Some(true));
        assert!(!panics_are_caught());
    }
}
