//! Heap profiles: a tree of calls, in which each node contains its callees and the bytes that it
//! allocated and that were still in use.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use profile::{LabelSetId, Line, LocationId, Profile};

use super::{CallFrame, HEAP, stack};
use crate::assembly::{AddedSample, Assembly, ColumnValue};
use crate::error::ReadError;
use crate::json;

/// Deepest node. V8 records 128 frames.
const DEEPEST: usize = 512;

/// The nodes of a file; callers come before their callees.
pub(super) struct FileContent {
    nodes: Vec<FileNode>,
}

struct FileNode {
    call_frame: Option<CallFrame>,
    self_size: f64,
    parent: Option<u32>,
}

/// The profile of a file's content.
pub(super) fn profile(content: &FileContent, memory_allowed: u64) -> Result<Profile, ReadError> {
    let mut all = Assembly::new(&[("inuse_space", "bytes")]);
    let nodes = &content.nodes;
    let mut locations: Vec<Option<LocationId>> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let function = node.call_frame.as_ref().and_then(|frame| frame.function(&mut all));
        let line = |function| [Line { function, line: 0, column: 0 }];
        locations.push(function.map(|function| all.location(None, 0, &line(function))));
    }
    let mut frames = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        if node.self_size <= 0.0 {
            continue;
        }
        stack(&mut frames, locations[number], node.parent, |number| {
            (locations[number as usize], nodes[number as usize].parent)
        });
        let values = &[ColumnValue { column: 0, value: node.self_size.round() as i64 }];
        let labels = LabelSetId::EMPTY;
        all.add(AddedSample { stack: &frames, labels, values, time: None });
        if number.is_multiple_of(1024)
            && let Some(excess) = all.excess(memory_allowed)
        {
            return Err(ReadError::invalid(HEAP, excess));
        }
    }
    Ok(all.finish())
}

#[derive(Deserialize)]
#[serde(field_identifier)]
enum FileKey {
    #[serde(rename = "head")]
    Head,
    #[serde(other)]
    Other,
}

impl<'de> Deserialize<'de> for FileContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FileContent, D::Error> {
        struct Content;

        impl<'de> Visitor<'de> for Content {
            type Value = FileContent;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a head")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FileContent, A::Error> {
                let mut nodes = Vec::new();
                while let Some(key) = map.next_key()? {
                    match key {
                        FileKey::Head => {
                            map.next_value_seed(Node {
                                nodes: &mut nodes,
                                parent: None,
                                depth: 0,
                            })?;
                        }
                        FileKey::Other => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                if nodes.is_empty() {
                    return Err(A::Error::missing_field("head"));
                }
                Ok(FileContent { nodes })
            }
        }

        deserializer.deserialize_map(Content)
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum NodeKey {
    CallFrame,
    SelfSize,
    Children,
    #[serde(other)]
    Other,
}

/// Appends a node and those that it contains.
struct Node<'n> {
    nodes: &'n mut Vec<FileNode>,
    parent: Option<u32>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.depth == DEEPEST {
            return Err(D::Error::custom(format!("a stack has more than {DEEPEST} frames")));
        }
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Node { nodes, parent, depth } = self;
        let number = nodes.len();
        json::count(size_of::<FileNode>())?;
        nodes.push(FileNode { call_frame: None, self_size: 0.0, parent });
        while let Some(key) = map.next_key()? {
            match key {
                NodeKey::CallFrame => nodes[number].call_frame = Some(map.next_value()?),
                NodeKey::SelfSize => nodes[number].self_size = map.next_value()?,
                NodeKey::Children => {
                    let parent = Some(number as u32);
                    map.next_value_seed(Children { nodes, parent, depth: depth + 1 })?;
                }
                NodeKey::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Appends the nodes of an array.
struct Children<'n> {
    nodes: &'n mut Vec<FileNode>,
    parent: Option<u32>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Children<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Children<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of nodes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        let Children { nodes, parent, depth } = self;
        while let Some(()) = all.next_element_seed(Node { nodes, parent, depth })? {}
        Ok(())
    }
}
