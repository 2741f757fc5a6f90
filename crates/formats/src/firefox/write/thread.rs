//! The tables of a thread.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};

use profile::{LocationId, StackId, StrId};
use serde::Serialize;
use view::{Frame, Name};

use super::markers::{MarkerTable, Markers};
use super::{Category, ThreadKey, Weights, Written};
use crate::samples::RowPart;

/// A table of rows, which are numbered in the order in which they were first looked up.
struct Numbers<K>(HashMap<K, u32>);

impl<K> Default for Numbers<K> {
    fn default() -> Numbers<K> {
        Numbers(HashMap::new())
    }
}

impl<K: Hash + Eq> Numbers<K> {
    /// The number of a row, and true if it is new.
    fn number(&mut self, key: K) -> (u32, bool) {
        let next = self.0.len() as u32;
        let number = *self.0.entry(key).or_insert(next);
        (number, number == next)
    }
}

/// A row of the table of stacks.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct StackNode {
    prefix: Option<u32>,
    frame: u32,
}

/// A row of the table of frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FrameRow {
    /// Id in the frames of the profile.
    id: u32,
    inline_depth: u32,
}

/// A row of the table of functions.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FunctionRow {
    name: u32,
    file: Option<u32>,
    resource: Option<u32>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct StackTable {
    length: usize,
    prefix: Vec<Option<u32>>,
    frame: Vec<u32>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct FrameTable {
    length: usize,
    address: Vec<i64>,
    inline_depth: Vec<u32>,
    category: Vec<u8>,
    subcategory: Vec<u8>,
    func: Vec<u32>,
    native_symbol: Vec<Option<u32>>,
    #[serde(rename = "innerWindowID")]
    inner_window: Vec<u32>,
    line: Vec<Option<i64>>,
    column: Vec<Option<i64>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionTable {
    length: usize,
    name: Vec<u32>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    relevant_for_js: Vec<bool>,
    resource: Vec<i64>,
    file_name: Vec<Option<u32>>,
    line_number: Vec<Option<i64>>,
    column_number: Vec<Option<i64>>,
}

/// Binaries, by their names.
#[derive(Default, Serialize)]
struct ResourceTable {
    length: usize,
    lib: Vec<Option<u32>>,
    name: Vec<u32>,
    host: Vec<Option<u32>>,
    #[serde(rename = "type")]
    kind: Vec<u32>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct SampleTable {
    length: usize,
    weight_type: &'static str,
    stack: Vec<Option<u32>>,
    /// Milliseconds.
    time: Vec<f64>,
    weight: Vec<f64>,
    #[serde(rename = "threadCPUDelta", skip_serializing_if = "Vec::is_empty")]
    cpu: Vec<i64>,
}

/// Functions that the reader would look up by addresses: none.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NativeSymbols {
    length: usize,
    address: [u32; 0],
    function_size: [u32; 0],
    lib_index: [u32; 0],
    name: [u32; 0],
}

/// A thread as it is written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenThread<'t> {
    name: &'t str,
    is_main_thread: bool,
    pid: String,
    tid: String,
    process_name: &'t str,
    process_type: &'static str,
    process_startup_time: u32,
    process_shutdown_time: Option<u32>,
    register_time: u32,
    unregister_time: Option<u32>,
    paused_ranges: [u32; 0],
    show_markers_in_timeline: bool,
    samples: &'t SampleTable,
    markers: &'t MarkerTable,
    stack_table: &'t StackTable,
    frame_table: &'t FrameTable,
    func_table: &'t FunctionTable,
    resource_table: &'t ResourceTable,
    native_symbols: NativeSymbols,
    string_array: &'t [String],
}

impl SampleTable {
    fn push(&mut self, stack: Option<u32>, time: f64, weight: f64, cpu: Option<i64>) {
        self.length += 1;
        self.stack.push(stack);
        self.time.push(time);
        self.weight.push(weight);
        self.cpu.extend(cpu);
    }
}

/// The tables of a thread while its samples are added, in their order.
pub(super) struct ThreadTables<'w> {
    written: &'w Written<'w>,
    strings: Vec<String>,
    string_numbers: HashMap<String, u32>,
    stacks: Numbers<StackNode>,
    stack_table: StackTable,
    /// The leaf of each stack of the profile.
    leaves: HashMap<StackId, Option<u32>>,
    frames: Numbers<FrameRow>,
    frame_table: FrameTable,
    functions: Numbers<FunctionRow>,
    function_table: FunctionTable,
    resources: Numbers<StrId>,
    resource_table: ResourceTable,
    samples: SampleTable,
    markers: Markers,
    /// Milliseconds at the last sample.
    last_time: f64,
}

impl<'w> ThreadTables<'w> {
    pub(super) fn new(written: &'w Written<'w>) -> ThreadTables<'w> {
        ThreadTables {
            written,
            strings: Vec::new(),
            string_numbers: HashMap::new(),
            stacks: Numbers::default(),
            stack_table: StackTable::default(),
            leaves: HashMap::new(),
            frames: Numbers::default(),
            frame_table: FrameTable::default(),
            functions: Numbers::default(),
            function_table: FunctionTable::default(),
            resources: Numbers::default(),
            resource_table: ResourceTable::default(),
            samples: SampleTable { weight_type: written.weights.name(), ..SampleTable::default() },
            markers: Markers::default(),
            last_time: 0.0,
        }
    }

    /// Adds a sample.
    pub(super) fn add(&mut self, part: RowPart) {
        let profile = self.written.profile;
        let value = |column| part.value(profile, column);
        // The time that the sample takes, if it has none of its own.
        let (weight, cpu, length) = match self.written.weights {
            Weights::CpuSamples { samples, cpu } => {
                let cpu = value(cpu);
                (samples.map_or(1.0, |column| value(column) as f64), Some(cpu), cpu as f64 / 1e6)
            }
            Weights::Time { column } => {
                let millis = value(column) as f64 / 1e6;
                (millis, None, millis)
            }
            Weights::Bytes { column } | Weights::Count { column } => {
                (value(column) as f64, None, 1.0)
            }
        };
        if weight == 0.0 && cpu.is_none_or(|cpu| cpu == 0) {
            return;
        }
        let stack = self.stack(part.row);
        let time = part.time.map(|micros| micros as f64 / 1e3);
        // Without a time, it ends as much later than the one before as it takes.
        let time = time.unwrap_or(self.last_time + length.max(0.0));
        if let Some(cpu) = cpu.filter(|_| self.samples.length == 0) {
            // The reader leaves out the CPU time before the first sample.
            self.samples.push(None, (time - cpu as f64 / 1e6).max(0.0), 0.0, Some(0));
        }
        self.last_time = time;
        self.samples.push(stack, time, weight, cpu);
        if let Some(marker) = self.written.markers.marker(profile, part, length, stack) {
            let name = self.string(&marker.name);
            self.markers.push(name, marker);
        }
    }

    /// The row of the leaf of a sample's stack.
    fn stack(&mut self, row: usize) -> Option<u32> {
        let profile = self.written.profile;
        let id = profile.samples[row].stack;
        if let Some(leaf) = self.leaves.get(&id) {
            return *leaf;
        }
        let mut node = None;
        for &location in profile.stacks.get(id).iter().rev() {
            node = self.location(location, node);
        }
        self.leaves.insert(id, node);
        node
    }

    /// Adds the frames of a location, the inlined ones last.
    fn location(&mut self, location: LocationId, caller: Option<u32>) -> Option<u32> {
        let mut node = caller;
        let frames = &self.written.frames;
        for (depth, &id) in frames.at(location).iter().rev().enumerate() {
            let frame = self.frame(FrameRow { id, inline_depth: depth as u32 });
            let key = StackNode { prefix: node, frame };
            let (number, is_new) = self.stacks.number(key);
            if is_new {
                self.stack_table.length += 1;
                self.stack_table.prefix.push(node);
                self.stack_table.frame.push(frame);
            }
            node = Some(number);
        }
        node
    }

    fn frame(&mut self, row: FrameRow) -> u32 {
        let (number, is_new) = self.frames.number(row);
        if is_new {
            let frame = *self.written.frames.get(row.id);
            let function = self.function(&frame);
            let category = match frame.name {
                Name::Function(_) | Name::Address(_) if frame.kernel => Category::Kernel,
                Name::Function(_) | Name::Address(_) => Category::User,
                _ => Category::Other,
            };
            let table = &mut self.frame_table;
            table.length += 1;
            table.address.push(-1);
            table.inline_depth.push(row.inline_depth);
            table.category.push(category as u8);
            table.subcategory.push(0);
            table.func.push(function);
            table.native_symbol.push(None);
            table.inner_window.push(0);
            table.line.push((frame.line > 0).then_some(frame.line));
            table.column.push(None);
        }
        number
    }

    fn function(&mut self, frame: &Frame) -> u32 {
        let profile = self.written.profile;
        let name = self.string(&frame.display(profile));
        let text = |id: StrId| (id != StrId::EMPTY).then(|| profile.str(id));
        let file = text(frame.file).map(|file| self.string(file));
        let resource = text(frame.binary).map(|_| self.resource(frame));
        let (number, is_new) = self.functions.number(FunctionRow { name, file, resource });
        if is_new {
            let table = &mut self.function_table;
            table.length += 1;
            table.name.push(name);
            table.is_js.push(false);
            table.relevant_for_js.push(false);
            table.resource.push(resource.map_or(-1, i64::from));
            table.file_name.push(file);
            table.line_number.push(None);
            table.column_number.push(None);
        }
        number
    }

    fn resource(&mut self, frame: &Frame) -> u32 {
        let (number, is_new) = self.resources.number(frame.binary);
        if is_new {
            let libraries = &self.written.libraries;
            let lib = libraries.number(frame.binary);
            let library = lib.and_then(|lib| libraries.list.get(lib as usize));
            let name = library.map_or("", |library| &*library.name);
            let name = self.string(name);
            let table = &mut self.resource_table;
            table.length += 1;
            table.lib.push(lib);
            table.name.push(name);
            table.host.push(None);
            table.kind.push(1);
        }
        number
    }

    fn string(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.string_numbers.get(text) {
            return number;
        }
        let number = self.strings.len() as u32;
        self.strings.push(text.to_owned());
        self.string_numbers.insert(text.to_owned(), number);
        number
    }

    /// Writes the thread with this id.
    pub(super) fn write(&self, key: &ThreadKey, id: String, out: &mut dyn Write) -> io::Result<()> {
        let thread = WrittenThread {
            name: &key.thread,
            is_main_thread: !key.is_other,
            pid: key.pid.unwrap_or_default().to_string(),
            tid: id,
            process_name: &key.process,
            process_type: "default",
            process_startup_time: 0,
            process_shutdown_time: None,
            register_time: 0,
            unregister_time: None,
            paused_ranges: [],
            show_markers_in_timeline: true,
            samples: &self.samples,
            markers: self.markers.table(),
            stack_table: &self.stack_table,
            frame_table: &self.frame_table,
            func_table: &self.function_table,
            resource_table: &self.resource_table,
            native_symbols: NativeSymbols::default(),
            string_array: &self.strings,
        };
        Ok(serde_json::to_writer(out, &thread)?)
    }
}
