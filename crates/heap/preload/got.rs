//! Injects the hooks into a running process: the slots through which its objects call the real
//! functions are redirected to the hooks, and back again.
//!
//! A preloaded library needs none of this: the dynamic linker finds its functions first.

use core::ffi::c_int;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::arch::{GLOB_DAT, JUMP_SLOT, POINTER};
use crate::real;
use crate::symbols::{Object, Relocation, each_object};
use crate::sys;

const PAGE: usize = 4096;

/// Direction of a change.
#[derive(Clone, Copy, PartialEq)]
enum Redirect {
    In,
    Out,
}

/// Installs the hooks in all loaded objects that lack them. Returns the number of slots that were
/// redirected to a hook.
///
/// Call it again after objects have been loaded.
#[unsafe(no_mangle)]
pub extern "C" fn prof_heap_patch() -> c_int {
    real::find_hooks();
    all_objects(Redirect::In)
}

/// Removes the hooks. Pointers to them that the program has copied stay valid while this library is
/// loaded. Returns the number of slots that were restored.
#[unsafe(no_mangle)]
pub extern "C" fn prof_heap_unpatch() -> c_int {
    all_objects(Redirect::Out)
}

fn all_objects(way: Redirect) -> c_int {
    let mut changed = 0;
    each_object(|object| {
        // The allocator's own calls would be counted twice.
        if !real::is_allocator(object) {
            changed += one_object(object, way);
        }
        false
    });
    changed
}

fn one_object(object: &Object, way: Redirect) -> c_int {
    let (start, end) = (object.relro.0 & !(PAGE - 1), object.relro.1 & !(PAGE - 1));
    // Another thread is still loading it: it is handled next time.
    if start < end && sys::is_writable(start, PAGE) {
        return 0;
    }
    let (mut open, mut changed) = (false, 0);
    object.each_relocation(|relocation| {
        let slot = relocation.slot;
        let Some(value) = wanted(object, &relocation, way) else { return };
        if (start..end).contains(&slot) {
            open = open || sys::protect(start, end - start, true);
            if !open {
                return;
            }
        } else if !object.is_writable(slot) {
            return;
        }
        // SAFETY: a slot that the dynamic linker writes to; concurrent readers see one of both
        // functions.
        unsafe { (*(slot as *const AtomicUsize)).store(value, Release) };
        changed += 1;
    });
    if open {
        sys::protect(start, end - start, false);
    }
    changed
}

/// Value that a slot should have; `None` if it is not a hooked one, or has that value already.
fn wanted(object: &Object, relocation: &Relocation, way: Redirect) -> Option<usize> {
    let kind = relocation.kind;
    if !matches!(kind, POINTER | GLOB_DAT | JUMP_SLOT) || !relocation.slot.is_multiple_of(8) {
        return None;
    }
    let (hook, real, counts) = real::hook_for(|name| relocation.is_of(name))?;
    // SAFETY: the dynamic linker has written to it.
    let now = unsafe { (*(relocation.slot as *const AtomicUsize)).load(Relaxed) };
    // Not resolved yet: it points into the object's own table of stubs.
    let later = kind == JUMP_SLOT && object.contains(now);
    match way {
        Redirect::In if counts && (now == real || later) => Some(hook),
        Redirect::Out if now == hook => Some(real),
        _ => None,
    }
}
