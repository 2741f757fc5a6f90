//! Puts the hooks into a process that runs: the slots through which its objects call the real
//! functions are made to point to the hooks, and back again.
//!
//! Preloaded, the library needs none of this: the dynamic linker finds its functions first.

use core::ffi::c_int;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::real;
use crate::symbols::{Object, Relocation, each_object};
use crate::sys;

const PAGE: usize = 4096;

/// `R_X86_64_64`: a pointer in data; `R_X86_64_GLOB_DAT`, `R_X86_64_JUMP_SLOT`: in the global
/// offset table.
const POINTER: u32 = 1;
const GLOB_DAT: u32 = 6;
const JUMP_SLOT: u32 = 7;

/// Which way slots are changed.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    In,
    Out,
}

/// Puts the hooks into all objects that are loaded, as far as they are not there yet. Returns how
/// many slots point to a hook now that did not.
///
/// To be called again when objects have been loaded.
#[unsafe(no_mangle)]
pub extern "C" fn prof_heap_patch() -> c_int {
    real::find_hooks();
    all_objects(Way::In)
}

/// Takes the hooks out again. Pointers to them that the program has copied stay good, as long as
/// this library is there. Returns how many slots point to the real functions again.
#[unsafe(no_mangle)]
pub extern "C" fn prof_heap_unpatch() -> c_int {
    all_objects(Way::Out)
}

fn all_objects(way: Way) -> c_int {
    let mut changed = 0;
    each_object(|object| {
        // What the allocator asks of itself would be counted twice.
        if !real::is_allocator(object) {
            changed += one_object(object, way);
        }
        false
    });
    changed
}

fn one_object(object: &Object, way: Way) -> c_int {
    let (start, end) = (object.relro.0 & !(PAGE - 1), object.relro.1 & !(PAGE - 1));
    // Another thread has just loaded it and is not done: next time.
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
        // SAFETY: a slot that the dynamic linker writes to; others read it at any moment, and
        // see this or that function.
        unsafe { (*(slot as *const AtomicUsize)).store(value, Release) };
        changed += 1;
    });
    if open {
        sys::protect(start, end - start, false);
    }
    changed
}

/// What a slot should hold; `None`: it is not one of ours, or holds that already.
fn wanted(object: &Object, relocation: &Relocation, way: Way) -> Option<usize> {
    let kind = relocation.kind;
    if !matches!(kind, POINTER | GLOB_DAT | JUMP_SLOT) || !relocation.slot.is_multiple_of(8) {
        return None;
    }
    let (hook, real, counts) = real::hook_for(|name| relocation.is_of(name))?;
    // SAFETY: the dynamic linker has written to it.
    let now = unsafe { (*(relocation.slot as *const AtomicUsize)).load(Relaxed) };
    // Not looked up yet: it points into the object's own table of stubs.
    let later = kind == JUMP_SLOT && object.contains(now);
    match way {
        Way::In if counts && (now == real || later) => Some(hook),
        Way::Out if now == hook => Some(real),
        _ => None,
    }
}
