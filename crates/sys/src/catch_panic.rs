//! Catches panics in parsers of files that may be damaged or hostile: a panic costs no more than
//! the result.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// Runs `f`; `None` if it panicked. Nothing is printed about the panic.
pub fn catch_panic<T>(f: impl FnOnce() -> T) -> Option<T> {
    thread_local!(static QUIET: Cell<bool> = const { Cell::new(false) });
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    QUIET.set(false);
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_yields_no_result() {
        assert_eq!(catch_panic(|| 1), Some(1));
        assert_eq!(catch_panic(|| [1, 2][std::hint::black_box(7)]), None);
    }
}
