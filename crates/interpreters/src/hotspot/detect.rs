//! Recognizes HotSpot by what `libjvm.so` exports for debuggers.

use super::counters::Counter;
use super::heap::CodeHeap;
use super::structs::{EXPORTED, Structs};
use super::{HotSpot, Layout, check, counters, flags};
use crate::{Process, Refusal};

/// HotSpot in a process, if there is one. Its structures are checked: that takes some hundred reads.
///
/// # Errors
///
/// It is of a version that is not supported, has not begun yet, or its structures are not as expected.
pub fn detect(process: &Process) -> Result<Option<HotSpot>, Refusal> {
    let Some(image) = process.images.iter().find(|image| image.exports(EXPORTED)) else {
        return Ok(None);
    };
    let structs = Structs::read(image, process.memory)?;
    let version = match structs.statics.get("Abstract_VM_Version._vm_major_version") {
        Some(place) => process.memory.half(*place)?,
        None => 0,
    };
    if !Layout::has_version(version) {
        let is_known = (1..1000).contains(&version);
        let name = if is_known { format!("HotSpot {version}") } else { "this HotSpot".to_owned() };
        return Err(Refusal::Version(name));
    }
    let other = Refusal::Layout("its description of itself is another one");
    let layout = Layout::new(version, &structs).ok_or(other)?;
    let call_stub_return = process.memory.word(layout.call_stub_return)?;
    if call_stub_return == 0 {
        return Err(Refusal::NotRunning);
    }
    let heaps = CodeHeap::read_all(&layout, process.memory)?;
    let pointers = flags::is_set("PreserveFramePointer", &structs, image, process.memory);
    let mut hotspot = HotSpot::new(layout, structs, call_stub_return, heaps);
    hotspot.has_frame_pointers = pointers == Some(true);
    let unloaded = counters::address(counters::UNLOADED, &hotspot.structs, process.memory);
    hotspot.state().unloaded = unloaded.map(Counter::new);
    check::check(&hotspot, process.memory, check::TRIES)?;
    Ok(Some(hotspot))
}
