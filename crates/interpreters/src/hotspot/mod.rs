//! HotSpot, of Java 11 to 25, on x86-64.
//!
//! Its frames lie on the native stack, and its code is in memory. What HotSpot states of a piece of its
//! code leads from a frame to its caller ([`Shape`]), and to the methods of an instruction
//! ([`HotSpot::methods`]). It is read after the sample, within a time in which it is not replaced
//! (`mirror.rs`). Nothing has to be copied at the sample but registers and the stack.

mod blob;
mod check;
mod counters;
mod debug;
mod detect;
mod flags;
mod frames;
mod heap;
mod layout;
mod methods;
mod mirror;
mod names;
#[cfg(any(test, feature = "testing"))]
mod recorded;
mod structs;
#[cfg(test)]
mod tests;
mod threads;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use detect::Found;
#[cfg(any(test, feature = "testing"))]
pub use detect::detect;
pub use frames::{Address, Body, FrameShape, MethodFrames, Registers, Shape};
pub use mirror::Times;
pub(crate) use structs::EXPORTED;
pub use threads::LastFrame;

use crate::merge::{Merge, NativeStack, Place};
use crate::walk::WalkDescriptor;
use crate::{ChainEnd, CodeKey, Copied, Memory, Name, Runtime, UserFrame};
use counters::Counter;
use frames::{KnownKeys, KnownMethods};
use heap::CodeHeap;
use layout::Layout;
use mirror::Mirror;
use structs::Structs;

/// HotSpot in a process.
#[derive(Debug)]
pub struct HotSpot {
    layout: Layout,
    /// What the layout was made of.
    structs: Structs,
    /// The address to which Java methods return that C++ has called.
    call_stub_return: u64,
    /// Compiled code keeps frame pointers.
    has_frame_pointers: bool,
    state: Mutex<State>,
}

/// What was read.
#[derive(Debug)]
struct State {
    mirror: Mirror,
    methods: KnownMethods,
    keys: KnownKeys,
    /// The number of classes that were unloaded, if it is known.
    unloaded: Option<Counter>,
}

impl HotSpot {
    /// HotSpot with this layout and these heaps of code.
    fn new(
        layout: Layout,
        structs: Structs,
        call_stub_return: u64,
        heaps: Vec<CodeHeap>,
    ) -> HotSpot {
        let state = State {
            mirror: Mirror::new(heaps),
            methods: HashMap::new(),
            keys: HashMap::new(),
            unloaded: None,
        };
        let state = Mutex::new(state);
        HotSpot { layout, structs, call_stub_return, has_frame_pointers: false, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each part of it is whole at any moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what is in the heaps of code at a time, in nanoseconds: what is there now and later, was
    /// there in between.
    pub fn read_heaps(&self, now: u64, memory: &dyn Memory) {
        self.state().mirror.read_heaps(now, &self.layout, memory);
    }

    /// True if an address is in a heap of code.
    pub fn has_code(&self, address: u64) -> bool {
        self.state().mirror.heap(address).is_some()
    }

    fn heaps(&self) -> Vec<CodeHeap> {
        self.state().mirror.heaps()
    }
}

impl Runtime for HotSpot {
    fn version(&self) -> String {
        format!("HotSpot {}", self.layout.version)
    }

    fn walks(&self) -> &[WalkDescriptor] {
        &[]
    }

    fn frames(&self, _copied: Copied<'_>, _out: &mut Vec<UserFrame>) -> ChainEnd {
        ChainEnd::Nothing
    }

    fn merge(
        &self,
        _copied: Copied<'_>,
        native: &NativeStack,
        _frames: &mut Vec<UserFrame>,
    ) -> Merge {
        let places = (0..native.frames.len()).map(Place::Native).collect();
        Merge::Stack { places, unmatched: 0 }
    }

    fn name(&self, code: &CodeKey, memory: &dyn Memory) -> Name {
        names::name(&self.layout, code, memory)
    }

    fn hotspot(&self) -> Option<&HotSpot> {
        Some(self)
    }
}
