//! CPU profiles: a tree of calls, and for each sample its node and its time.

use std::collections::HashMap;

use serde::Deserialize;

use profile::{FunctionId, LabelSetId, Line, LocationId, Profile, StackId};

use super::{CPU, CallFrame, stack};
use crate::assembly::{Assembly, ColumnValue, InternedSample};
use crate::error::ReadError;
use crate::json;

/// The content of a file; times are in microseconds. Samples and their times are optional, as is each
/// of the two links of nodes.
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
    #[serde(default)]
    parent: Option<u64>,
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
    /// Number of the current element of `positionTicks`.
    tick: usize,
    /// The samples of the current element so far.
    tick_samples: i64,
}

/// The numbers of nodes by their ids. The standard hasher, because the keys come from the file.
type NodeIds = HashMap<u64, u32>;

/// A stack by its leaf.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Leaf {
    node: u32,
    /// 0: unknown.
    line: i64,
}

/// A sample with its time, in microseconds since the start.
struct TimedSample {
    node: u32,
    time: f64,
}

/// The profile of a file's content.
///
/// A sample lasts until the next one. The lines of the samples of a node are those of its
/// `positionTicks`, whose order is not in the file. Samples without times share the duration.
pub(super) fn profile(content: &FileContent, memory_allowed: u64) -> Result<Profile, ReadError> {
    let mut all = Assembly::new(&[("samples", "count"), ("time", "nanoseconds")]);
    let mut ids: NodeIds = HashMap::new();
    for (number, node) in content.nodes.iter().enumerate() {
        if ids.insert(node.id, number as u32).is_some() {
            return Err(ReadError::invalid(CPU, format!("two nodes have the id {}", node.id)));
        }
    }
    let mut nodes = tree(content, &ids, &mut all)?;
    let duration = (content.end_time - content.start_time).max(0.0);
    all.profile.duration_nanos = (duration * 1e3) as i64;
    let mut adder = Adder {
        all: &mut all,
        memory_allowed,
        added: 0,
        stacks: HashMap::new(),
        frames: Vec::new(),
    };
    if content.samples.is_empty() {
        adder.add_hits(&nodes, duration)?;
    } else if content.time_deltas.is_empty() {
        let mut shares = Shares::new(duration, content.samples.len() as f64);
        for id in &content.samples {
            let node = node_of_sample(&ids, *id)?;
            adder.add(&mut nodes, node, shares.next(1), None)?;
        }
    } else {
        let samples = timed(content, &ids)?;
        for (at, sample) in samples.iter().enumerate() {
            let end = content.end_time - content.start_time;
            let next = samples.get(at + 1).map_or(end, |next| next.time);
            let nanos = ((next - sample.time).max(0.0) * 1e3).round() as i64;
            adder.add(&mut nodes, sample.node, [1, nanos], Some(sample.time as u64))?;
        }
    }
    Ok(all.finish())
}

/// Shares of a duration, which add up to it.
struct Shares {
    /// In nanoseconds.
    of_each: f64,
    count: f64,
    given: i64,
}

impl Shares {
    /// Those of `count` samples in a duration in microseconds.
    fn new(duration: f64, count: f64) -> Shares {
        Shares { of_each: duration * 1e3 / count.max(1.0), count: 0.0, given: 0 }
    }

    /// The number of the next samples and their share in nanoseconds.
    fn next(&mut self, samples: i64) -> [i64; 2] {
        self.count += samples as f64;
        let end = (self.of_each * self.count).round() as i64;
        let share = end.saturating_sub(self.given);
        self.given = end;
        [samples, share]
    }
}

/// The node of a sample.
fn node_of_sample(ids: &NodeIds, id: u64) -> Result<u32, ReadError> {
    ids.get(&id).copied().ok_or_else(|| {
        ReadError::invalid(CPU, format!("a sample is of node {id}, which is not there"))
    })
}

/// The nodes with their parents.
fn tree<'f>(
    content: &'f FileContent,
    ids: &NodeIds,
    all: &mut Assembly,
) -> Result<Vec<CallNode<'f>>, ReadError> {
    let mut nodes: Vec<CallNode<'_>> = Vec::with_capacity(content.nodes.len());
    for file in &content.nodes {
        let function = file.call_frame.function(all);
        let line = |function| [Line { function, line: 0, column: 0 }];
        let location = function.map(|function| all.location(None, 0, &line(function)));
        nodes.push(CallNode { file, function, location, parent: None, tick: 0, tick_samples: 0 });
    }
    for (number, file) in content.nodes.iter().enumerate() {
        for child in &file.children {
            let Some(&child_number) = ids.get(child) else {
                let what = format!("node {} has a child {child}, which is not there", file.id);
                return Err(ReadError::invalid(CPU, what));
            };
            link(&mut nodes[child_number as usize], number as u32)?;
        }
        if let Some(parent) = file.parent {
            let Some(&parent_number) = ids.get(&parent) else {
                let what = format!("node {} has a parent {parent}, which is not there", file.id);
                return Err(ReadError::invalid(CPU, what));
            };
            // Also a child of it.
            if nodes[number].parent != Some(parent_number) {
                link(&mut nodes[number], parent_number)?;
            }
        }
    }
    check_no_circle(&nodes)?;
    Ok(nodes)
}

/// Sets the parent of a node.
fn link(node: &mut CallNode<'_>, parent: u32) -> Result<(), ReadError> {
    if node
        .parent
        .replace(parent)
        .is_some_and(|before| before != parent || node.file.parent.is_none())
    {
        let what = format!("node {} has two callers", node.file.id);
        return Err(ReadError::invalid(CPU, what));
    }
    Ok(())
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
fn timed(content: &FileContent, ids: &NodeIds) -> Result<Vec<TimedSample>, ReadError> {
    let (samples, deltas) = (content.samples.len(), content.time_deltas.len());
    if samples != deltas {
        let what = format!("it has {samples} samples, but {deltas} times");
        return Err(ReadError::invalid(CPU, what));
    }
    let mut time = 0.0;
    let mut timed = Vec::with_capacity(samples);
    for (id, delta) in content.samples.iter().zip(&content.time_deltas) {
        time += delta;
        let node = node_of_sample(ids, *id)?;
        timed.push(TimedSample { node, time });
    }
    timed.sort_by(|a, b| a.time.total_cmp(&b.time));
    Ok(timed)
}

struct Adder<'a> {
    all: &'a mut Assembly,
    memory_allowed: u64,
    added: u64,
    /// The stacks so far: a stack of many frames can have many samples.
    stacks: HashMap<Leaf, StackId>,
    frames: Vec<LocationId>,
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
        let line = nodes[number as usize].next_line();
        self.add_leaf(nodes, Leaf { node: number, line }, [count, nanos], time)
    }

    /// Adds the hits of all nodes, which share a duration in microseconds. Those of a node are divided
    /// among its lines, if these add up to them.
    fn add_hits(&mut self, nodes: &[CallNode<'_>], duration: f64) -> Result<(), ReadError> {
        let hits = |node: &CallNode<'_>| node.file.hit_count.unwrap_or(0).max(0);
        let mut shares = Shares::new(duration, nodes.iter().map(|node| hits(node) as f64).sum());
        for number in 0..nodes.len() {
            let hits = hits(&nodes[number]);
            let ticks = &nodes[number].file.position_ticks;
            let sum: i128 = ticks.iter().map(|line| i128::from(line.ticks)).sum();
            let are_lines = sum == hits.into() && ticks.iter().all(|line| line.ticks >= 0);
            let node = number as u32;
            for &PositionTicks { line, ticks } in ticks.iter().filter(|_| are_lines) {
                let leaf = Leaf { node, line: line.max(0) };
                self.add_leaf(nodes, leaf, shares.next(ticks), None)?;
            }
            if !are_lines {
                self.add_leaf(nodes, Leaf { node, line: 0 }, shares.next(hits), None)?;
            }
        }
        Ok(())
    }

    fn add_leaf(
        &mut self,
        nodes: &[CallNode<'_>],
        leaf: Leaf,
        [count, nanos]: [i64; 2],
        time: Option<u64>,
    ) -> Result<(), ReadError> {
        if count == 0 {
            return Ok(());
        }
        let stack = match self.stacks.get(&leaf) {
            Some(&stack) => stack,
            None => self.stack(nodes, leaf)?,
        };
        let value = |column, value| ColumnValue { column, value };
        let values = &[value(0, count), value(1, nanos)];
        self.all.add_interned(InternedSample { stack, labels: LabelSetId::EMPTY, values, time });
        self.added += 1;
        if self.added.is_multiple_of(1024) { self.check() } else { Ok(()) }
    }

    /// Id of a new stack.
    fn stack(&mut self, nodes: &[CallNode<'_>], leaf: Leaf) -> Result<StackId, ReadError> {
        let node = &nodes[leaf.node as usize];
        let location = node.function.map(|function| {
            self.all.location(None, 0, &[Line { function, line: leaf.line, column: 0 }])
        });
        stack(&mut self.frames, location, node.parent, |number| {
            let node = &nodes[number as usize];
            (node.location, node.parent)
        });
        let id = self.all.stack(&self.frames);
        self.stacks.insert(leaf, id);
        self.check()?;
        Ok(id)
    }

    fn check(&self) -> Result<(), ReadError> {
        let stacks = 40 * self.stacks.len() as u64;
        let excess = self.all.excess(self.memory_allowed.saturating_sub(stacks));
        excess.map_or(Ok(()), |excess| Err(ReadError::invalid(CPU, excess)))
    }
}

impl CallNode<'_> {
    /// The line of the next sample of which the node is the leaf; 0: unknown.
    fn next_line(&mut self) -> i64 {
        while let Some(PositionTicks { line, ticks }) = self.file.position_ticks.get(self.tick) {
            if self.tick_samples < *ticks {
                self.tick_samples += 1;
                return (*line).max(0);
            }
            self.tick += 1;
            self.tick_samples = 0;
        }
        0
    }
}
