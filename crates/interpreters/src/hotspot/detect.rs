//! Recognizes HotSpot by what `libjvm.so` exports for debuggers.

use super::counters::Counter;
use super::heap::CodeHeap;
use super::structs::{EXPORTED, Structs};
use super::{HotSpot, Layout, check, counters, flags};
use crate::candidate::Kind;
use crate::{Memory, Process, Refusal};

/// HotSpot among the files of a process.
pub(crate) struct Found {
    layout: Layout,
    structs: Structs,
    /// The address of the value of an option: compiled code keeps frame pointers.
    frame_pointers: Option<u64>,
}

impl Kind for Found {
    type Checked = HotSpot;

    fn find(process: &Process) -> Result<Option<Found>, Refusal> {
        let Some(image) = process.images.iter().find(|image| image.exports(EXPORTED)) else {
            return Ok(None);
        };
        let structs = Structs::read(image, process.memory)?;
        let place = structs.statics.get("Abstract_VM_Version._vm_major_version");
        let version = place.map(|place| process.memory.half(*place)).transpose()?;
        if version == Some(0) {
            return Err(Refusal::NotRunning);
        }
        let version = version.unwrap_or(0);
        if !Layout::has_version(version) {
            let is_known = (1..1000).contains(&version);
            let name =
                if is_known { format!("HotSpot {version}") } else { "this HotSpot".to_owned() };
            return Err(Refusal::Version(name));
        }
        let other = Refusal::Layout("its description of itself is another one");
        let layout = Layout::new(version, &structs).ok_or(other)?;
        let frame_pointers =
            flags::address("PreserveFramePointer", &structs, image, process.memory);
        Ok(Some(Found { layout, structs, frame_pointers }))
    }

    fn check(&mut self, _: &[i32], memory: &dyn Memory) -> Result<HotSpot, Refusal> {
        let Found { layout, structs, frame_pointers } = self;
        let call_stub_return = memory.word(layout.call_stub_return)?;
        if call_stub_return == 0 {
            return Err(Refusal::NotRunning);
        }
        let heaps = CodeHeap::read_all(layout, memory)?;
        let (layout, structs) = (layout.clone(), structs.clone());
        let mut hotspot = HotSpot::new(layout, structs, call_stub_return, heaps);
        hotspot.has_frame_pointers =
            frame_pointers.is_some_and(|address| flags::is_set(address, memory));
        let unloaded = counters::address(counters::UNLOADED, &hotspot.structs, memory);
        hotspot.state().unloaded = unloaded.map(Counter::new);
        check::try_once(&hotspot, memory)?;
        Ok(hotspot)
    }
}

/// HotSpot in a process, if there is one: its check is repeated, with pauses.
///
/// # Errors
///
/// It is of a version that is not supported, has not begun yet, or its structures are not as expected.
#[cfg(any(test, feature = "testing"))]
pub fn detect(process: &Process) -> Result<Option<HotSpot>, Refusal> {
    crate::candidate::detect::<Found>(process)
}
