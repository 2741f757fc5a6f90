//! The content of a file, as in its schema.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use crate::json;

/// Most sample types of a file.
pub(super) const MOST_TYPES: usize = 256;

#[derive(Deserialize)]
pub(super) struct FileContent {
    #[serde(default)]
    pub exporter: Option<String>,
    pub shared: FileShared,
    #[serde(deserialize_with = "json::list")]
    pub profiles: Vec<FileProfile>,
}

#[derive(Deserialize)]
pub(super) struct FileShared {
    #[serde(deserialize_with = "json::list")]
    pub frames: Vec<FileFrame>,
}

#[derive(Deserialize)]
pub(super) struct FileFrame {
    #[serde(deserialize_with = "json::text")]
    pub name: String,
    #[serde(default)]
    pub file: Option<String>,
    #[serde(default)]
    pub line: Option<f64>,
    #[serde(default)]
    pub col: Option<f64>,
}

/// A profile; it has samples and weights, or events.
#[derive(Deserialize)]
pub(super) struct FileProfile {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub unit: String,
    #[serde(default)]
    pub samples: FileStacks,
    #[serde(default, deserialize_with = "json::list")]
    pub weights: Vec<f64>,
    /// The time of the end; calls that are open last until it.
    #[serde(default, rename = "endValue")]
    pub end_value: Option<f64>,
    #[serde(default, deserialize_with = "json::list")]
    pub events: Vec<FileEvent>,
}

/// The begin (`O`) or the end (`C`) of a call.
#[derive(Deserialize)]
pub(super) struct FileEvent {
    #[serde(rename = "type")]
    pub kind: EventKind,
    pub frame: u32,
    pub at: f64,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
pub(super) enum EventKind {
    #[serde(rename = "O")]
    Open,
    #[serde(rename = "C")]
    Close,
}

/// Stacks, the root first, in one array.
#[derive(Default)]
pub(super) struct FileStacks {
    pub frames: Vec<u32>,
    /// End of each stack in `frames`.
    pub ends: Vec<usize>,
}

impl<'de> Deserialize<'de> for FileStacks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FileStacks, D::Error> {
        struct Stacks;

        impl<'de> Visitor<'de> for Stacks {
            type Value = FileStacks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of stacks")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<FileStacks, A::Error> {
                let mut stacks = FileStacks::default();
                while let Some(()) = all.next_element_seed(Stack(&mut stacks.frames))? {
                    json::count(size_of::<usize>())?;
                    stacks.ends.push(stacks.frames.len());
                }
                Ok(stacks)
            }
        }

        deserializer.deserialize_seq(Stacks)
    }
}

/// Appends the frames of a stack.
struct Stack<'v>(&'v mut Vec<u32>);

impl<'de> serde::de::DeserializeSeed<'de> for Stack<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Stack<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of frame numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut frames: A) -> Result<(), A::Error> {
        while let Some(frame) = frames.next_element()? {
            json::count(size_of::<u32>())?;
            self.0.push(frame);
        }
        Ok(())
    }
}
