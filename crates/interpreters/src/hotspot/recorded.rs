//! HotSpot of recorded memory: what is known of it from files of its process is kept as facts.

use std::collections::BTreeMap;

use super::heap::CodeHeap;
use super::{HotSpot, Layout, Structs};
use crate::{Recorded, Refusal};

impl HotSpot {
    /// What [`HotSpot::of_recorded`] needs in addition to memory.
    pub fn facts(&self) -> Vec<(String, String)> {
        let text = |map: &BTreeMap<String, u64>| {
            let pairs: Vec<String> =
                map.iter().map(|(key, value)| format!("{key}={value}")).collect();
            pairs.join("; ")
        };
        let facts = [
            ("version", self.layout.version.to_string()),
            ("call_stub_return", self.call_stub_return.to_string()),
            ("offsets", text(&self.structs.offsets)),
            ("statics", text(&self.structs.statics)),
            ("sizes", text(&self.structs.sizes)),
        ];
        facts.map(|(key, value)| (key.to_owned(), value)).into()
    }

    /// HotSpot of recorded memory, which is not checked.
    ///
    /// # Errors
    ///
    /// The facts are incomplete ([`Refusal::Layout`]), or the heaps of code are not as expected.
    pub fn of_recorded(recorded: &Recorded) -> Result<HotSpot, Refusal> {
        let map = |key: &str| -> Option<BTreeMap<String, u64>> {
            let pairs = recorded.fact(key)?.split("; ");
            let pair = |pair: &str| {
                let (name, value) = pair.split_once('=')?;
                Some((name.to_owned(), value.parse().ok()?))
            };
            pairs.map(pair).collect()
        };
        let facts = || {
            let structs = Structs {
                offsets: map("offsets")?,
                statics: map("statics")?,
                sizes: map("sizes")?,
            };
            let layout = Layout::new(recorded.fact("version")?.parse().ok()?, &structs)?;
            let call_stub_return = recorded.fact("call_stub_return")?.parse().ok()?;
            Some((layout, structs, call_stub_return))
        };
        let (layout, structs, call_stub_return) =
            facts().ok_or(Refusal::Layout("facts are missing"))?;
        let heaps = CodeHeap::read_all(&layout, recorded)?;
        Ok(HotSpot::new(layout, structs, call_stub_return, heaps))
    }
}
