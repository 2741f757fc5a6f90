//! CPU profiles: a tree of calls, and for each sample its node and its time.

use rustc_hash::FxHashMap;
use serde::Deserialize;

use profile::{FunctionId, LabelSetId, Line, LocationId, Profile};

use super::{CPU, CallFrame, stack};
use crate::assembly::{AddedSample, Assembly, ColumnValue};
use crate::error::ReadError;
use crate::json;

/// The content of a file; times are in microseconds.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileContent {
    #[serde(deserialize_with = "json::list")]
    nodes: Vec<FileNode>,
    #[serde(default)]
    start_time: f64,
    #[serde(default)]
    end_time: f64,
    /// The ids of nodes.
    #[serde(default, deserialize_with = "json::list")]
    samples: Vec<u64>,
    /// The time of each sample after the one before it; of the first, after the start.
    #[serde(default, deserialize_with = "json::list")]
    time_deltas: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileNode {
    id: u64,
    call_frame: CallFrame,
    #[serde(default)]
    hit_count: Option<i64>,
    #[serde(default, deserialize_with = "json::list")]
    children: Vec<u64>,
    #[serde(default, deserialize_with = "json::list")]
    position_ticks: Vec<PositionTicks>,
}

/// The samples in which a node was the leaf at a line.
#[derive(Deserialize)]
struct PositionTicks {
    line: i64,
    ticks: i64,
}

/// A node of the tree.
struct CallNode<'f> {
    file: &'f FileNode,
    function: Option<FunctionId>,
    /// The function, called from another.
    location: Option<LocationId>,
    parent: Option<u32>,
    /// The samples of which the node was the leaf so far.
    samples: i64,
}

/// A sample with its time, in microseconds since the start.
struct TimedSample {
    node: u32,
    time: f64,
}

/// The profile of a file's content.
///
/// A sample lasts until the next one. The lines of the samples of a node are those of its
/// `positionTicks`, whose order is not in the file.
pub(super) fn profile(content: &FileContent, memory_allowed: u64) -> Result<Profile, ReadError> {
    let mut all = Assembly::new(&[("samples", "count"), ("time", "nanoseconds")]);
    let mut ids: FxHashMap<u64, u32> = FxHashMap::default();
    for (number, node) in content.nodes.iter().enumerate() {
        if ids.insert(node.id, number as u32).is_some() {
            return Err(ReadError::invalid(CPU, format!("two nodes have the id {}", node.id)));
        }
    }
    let mut nodes = tree(content, &ids, &mut all)?;
    let mut scratch = Vec::new();
    let mut adder = Adder { all: &mut all, memory_allowed, added: 0, stack: &mut scratch };
    if content.samples.is_empty() {
        for number in 0..nodes.len() as u32 {
            let hits = nodes[number as usize].file.hit_count.unwrap_or(0);
            adder.add(&mut nodes, number, [hits, 0], None)?;
        }
    } else {
        let end = content.end_time - content.start_time;
        let samples = timed(content, &ids)?;
        for (at, sample) in samples.iter().enumerate() {
            let next = samples.get(at + 1).map_or(end, |next| next.time);
            let nanos = ((next - sample.time).max(0.0) * 1e3).round() as i64;
            adder.add(&mut nodes, sample.node, [1, nanos], Some(sample.time as u64))?;
        }
        all.profile.duration_nanos = (end.max(0.0) * 1e3) as i64;
    }
    Ok(all.finish())
}

/// The nodes with their parents.
fn tree<'f>(
    content: &'f FileContent,
    ids: &FxHashMap<u64, u32>,
    all: &mut Assembly,
) -> Result<Vec<CallNode<'f>>, ReadError> {
    let mut nodes: Vec<CallNode<'_>> = Vec::with_capacity(content.nodes.len());
    for file in &content.nodes {
        let function = file.call_frame.function(all);
        let line = |function| [Line { function, line: 0, column: 0 }];
        let location = function.map(|function| all.location(None, 0, &line(function)));
        nodes.push(CallNode { file, function, location, parent: None, samples: 0 });
    }
    for (number, file) in content.nodes.iter().enumerate() {
        for child in &file.children {
            let Some(&child_number) = ids.get(child) else {
                let what = format!("node {} has a child {child}, which is not there", file.id);
                return Err(ReadError::invalid(CPU, what));
            };
            let parent = &mut nodes[child_number as usize].parent;
            if parent.replace(number as u32).is_some() {
                let what = format!("node {child} has two callers");
                return Err(ReadError::invalid(CPU, what));
            }
        }
    }
    check_no_circle(&nodes)?;
    Ok(nodes)
}

/// Each node has a single parent: nodes that no root leads to are in a circle.
fn check_no_circle(nodes: &[CallNode<'_>]) -> Result<(), ReadError> {
    let mut reaches_root = vec![false; nodes.len()];
    let mut path = Vec::new();
    for number in 0..nodes.len() {
        path.clear();
        let mut at = number;
        while !reaches_root[at] {
            path.push(at);
            if path.len() > nodes.len() {
                return Err(ReadError::invalid(CPU, "a node is among its own callers"));
            }
            match nodes[at].parent {
                Some(parent) => at = parent as usize,
                None => break,
            }
        }
        path.iter().for_each(|&at| reaches_root[at] = true);
    }
    Ok(())
}

/// The samples in the order of their times; a clock of another CPU can be behind.
fn timed(content: &FileContent, ids: &FxHashMap<u64, u32>) -> Result<Vec<TimedSample>, ReadError> {
    let (samples, deltas) = (content.samples.len(), content.time_deltas.len());
    if samples != deltas {
        let what = format!("it has {samples} samples, but {deltas} times");
        return Err(ReadError::invalid(CPU, what));
    }
    let mut time = 0.0;
    let mut timed = Vec::with_capacity(samples);
    for (id, delta) in content.samples.iter().zip(&content.time_deltas) {
        time += delta;
        let Some(&node) = ids.get(id) else {
            let what = format!("a sample is of node {id}, which is not there");
            return Err(ReadError::invalid(CPU, what));
        };
        timed.push(TimedSample { node, time });
    }
    timed.sort_by(|a, b| a.time.total_cmp(&b.time));
    Ok(timed)
}

struct Adder<'a> {
    all: &'a mut Assembly,
    memory_allowed: u64,
    added: u64,
    stack: &'a mut Vec<LocationId>,
}

impl Adder<'_> {
    /// Adds samples of a node: their number and their time in nanoseconds.
    fn add(
        &mut self,
        nodes: &mut [CallNode<'_>],
        number: u32,
        [count, nanos]: [i64; 2],
        time: Option<u64>,
    ) -> Result<(), ReadError> {
        if count == 0 {
            return Ok(());
        }
        let node = &mut nodes[number as usize];
        let line = line_of_sample(&node.file.position_ticks, node.samples);
        node.samples += 1;
        let leaf = node
            .function
            .map(|function| self.all.location(None, 0, &[Line { function, line, column: 0 }]));
        let parent = node.parent;
        stack(self.stack, leaf, parent, |number| {
            let node = &nodes[number as usize];
            (node.location, node.parent)
        });
        let value = |column, value| ColumnValue { column, value };
        let values = &[value(0, count), value(1, nanos)];
        let labels = LabelSetId::EMPTY;
        self.all.add(AddedSample { stack: self.stack, labels, values, time });
        self.added += 1;
        if self.added.is_multiple_of(1024)
            && let Some(excess) = self.all.excess(self.memory_allowed)
        {
            return Err(ReadError::invalid(CPU, excess));
        }
        Ok(())
    }
}

/// The line of sample number `number` of a node; 0: unknown.
fn line_of_sample(ticks: &[PositionTicks], number: i64) -> i64 {
    let mut before = 0i64;
    for PositionTicks { line, ticks } in ticks {
        before = before.saturating_add(*ticks);
        if number < before {
            return (*line).max(0);
        }
    }
    0
}
