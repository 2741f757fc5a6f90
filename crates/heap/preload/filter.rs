//! The filter by which hooks of functions that free memory skip most addresses.

use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Release;

use crate::table::{FILTER, Process};

/// A filter that contains nothing, used before sampling begins.
static NOTHING: [u8; FILTER] = [0; FILTER];

/// The filter of sampled addresses.
pub static PASSES: AtomicPtr<u8> = AtomicPtr::new((&raw const NOTHING).cast_mut().cast());

/// Makes `free` use the filter of this process.
pub fn set_filter(process: &'static Process) {
    PASSES.store((&raw const process.filter).cast_mut().cast(), Release);
}
