//! Files that are cut off while they are mapped, such as a library that is overwritten in place.

use std::cell::Cell;

thread_local! {
    /// Pages that this thread read as zeros. It needs no destructor, so a signal handler may
    /// touch it at any time.
    static CUT_PAGES: Cell<usize> = const { Cell::new(0) };
}

/// From now on, reading mapped bytes of a file that somebody has cut off meanwhile (a library
/// that is overwritten in place, say) gives zeros instead of ending the process by `SIGBUS`.
pub fn outlive_cut_files() {
    let handler: extern "C" fn(i32, *const libc::siginfo_t, *const libc::c_void) = on_bus_error;
    // SAFETY: sigaction is plain data for which zero is valid; the handler makes only calls that
    // are safe in a handler (mmap, sigaction) and touches nothing but a number of this thread's.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

/// How many pages this thread has read as zeros because their file was cut off.
pub fn cut_pages() -> usize {
    CUT_PAGES.get()
}

extern "C" fn on_bus_error(_: i32, info: *const libc::siginfo_t, _: *const libc::c_void) {
    const PAGE: usize = 4096;
    /// "Nonexistent physical address", see `sigaction(2)`: behind the end of the file.
    const BUS_ADRERR: i32 = 2;
    // SAFETY: the kernel passes a valid siginfo. The page that is replaced could not be read, so
    // nothing in it is lost; when that fails, the default action ends the process at once.
    unsafe {
        if (*info).si_code == BUS_ADRERR {
            let page = ((*info).si_addr() as usize & !(PAGE - 1)) as *mut libc::c_void;
            let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            if libc::mmap(page, PAGE, libc::PROT_READ, flags, -1, 0) != libc::MAP_FAILED {
                CUT_PAGES.set(CUT_PAGES.get() + 1);
                return;
            }
        }
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_cut_off_reads_as_zeros() {
        outlive_cut_files();
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        // SAFETY: what the file turns into meanwhile is what is tested.
        let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        file.set_len(100).unwrap();
        assert!(map[4096..].iter().all(|&b| b == 0));
        assert!(cut_pages() >= 1);
    }
}
