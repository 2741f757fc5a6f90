//! Frames of answers.

use std::borrow::Cow;

use serde::Serialize;

use super::{known, known_text};
use crate::{Frame, Name, View, base_name, is_run_time};

/// A frame: the members by which frames differ at the granularity of the answer. An outer `None` is
/// a member that is missing, an inner one a null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FrameAnswer<'a> {
    /// Name of the function; without one, binary and address; of a package, if functions have the
    /// names of theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<Cow<'a, str>>,
    /// The mangled name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_name: Option<Option<&'a str>>,
    /// Path of the source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Option<&'a str>>,
    /// True if the function was inlined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inlined: Option<bool>,
    /// Address in the binary's file, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Path of the binary, `[JIT]` for run-time code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binary: Option<Option<&'a str>>,
    /// Source line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<Option<i64>>,
}

impl<'a> FrameAnswer<'a> {
    /// The frame with this ID in [`View::frames`].
    pub fn new(view: &'a View<'_>, frame: u32) -> FrameAnswer<'a> {
        let profile = view.profile;
        let granularity = view.frames.granularity;
        let frame: &Frame = view.frames.get(frame);
        let system_name = match frame.name {
            Name::Function(_) => profile.str(frame.system_name),
            _ => "",
        };
        // Of run-time code the name: the path is that of one of its files.
        let path = profile.str(frame.binary);
        let binary = if is_run_time(path) { base_name(path) } else { path };
        let has_file = granularity.function || granularity.file;
        FrameAnswer {
            function: granularity.function.then(|| frame.display(profile)),
            system_name: granularity.function.then(|| known_text(system_name)),
            file: has_file.then(|| known_text(profile.str(frame.file))),
            inlined: granularity.inlined.then_some(frame.inlined),
            address: granularity.address.then(|| format!("{:#x}", frame.address)),
            // Code without a function or file is distinguished by its binary in any case.
            binary: (granularity.binary || frame.needs_binary()).then(|| known_text(binary)),
            line: granularity.line.then(|| known(frame.line)),
        }
    }
}
