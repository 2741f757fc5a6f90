//! Stacks of the tables of stacks, frames, functions and libraries.

use profile::{Line, LocationId, Mapping, MappingId, StackId};

use super::file::{
    Column, FileContent, FileFrames, FileFunctions, FileResources, FileSources, FileStacks,
    FileString, FileTables, FileThread, flags,
};
use super::invalid;
use crate::assembly::{Assembly, MOST_FRAMES};
use crate::error::ReadError;

/// The type of a resource that is a library.
const LIBRARY: f64 = 1.0;

/// The number in a row of a column.
pub(super) fn number(column: &Column, row: usize) -> Option<f64> {
    column.get(row).copied().flatten()
}

/// The index in a row of a column.
fn index(column: &Column, row: usize) -> Option<usize> {
    number(column, row).filter(|&number| number >= 0.0).map(|number| number as usize)
}

/// The index in a row of a column, if the row has this bit set in `flags`, or there are none.
fn flagged(column: &Column, flags: &Column, bit: u32, row: usize) -> Option<usize> {
    has_bit(flags, bit, row).then(|| index(column, row)).flatten()
}

fn has_bit(flags: &Column, bit: u32, row: usize) -> bool {
    index(flags, row).is_none_or(|flags| flags & bit as usize != 0)
}

/// A frame, without its callers.
#[derive(Clone, Copy, PartialEq)]
struct FrameParts {
    mapping: Option<MappingId>,
    /// 0: unknown.
    address: u64,
    /// `None`: only the address is known.
    line: Option<Line>,
    /// Number of frames that this one was inlined into at the same address.
    depth: usize,
}

/// What was found of tables so far.
#[derive(Default)]
struct Found {
    /// By the rows of the table of stacks.
    stacks: Vec<Option<StackId>>,
    /// By the rows of the table of frames.
    frames: Vec<Option<FrameParts>>,
}

impl Found {
    fn new(stacks: &FileStacks, frames: &FileFrames) -> Found {
        Found { stacks: vec![None; stacks.frame.len()], frames: vec![None; frames.func.len()] }
    }

    fn bytes(&self) -> u64 {
        let stacks = self.stacks.len() * size_of::<Option<StackId>>();
        (stacks + self.frames.len() * size_of::<Option<FrameParts>>()) as u64
    }
}

/// What threads share.
pub(super) struct Shared {
    /// By the numbers of libraries.
    mappings: Vec<MappingId>,
    /// Of the shared tables.
    found: Found,
}

impl Shared {
    pub(super) fn new(file: &FileContent, all: &mut Assembly) -> Shared {
        let mut mappings = Vec::with_capacity(file.libs.len());
        for lib in &file.libs {
            let path = if lib.path.is_empty() { &lib.name } else { &lib.path };
            let id = lib.code_id.as_deref().unwrap_or_default();
            let is_id = id.bytes().all(|b| b.is_ascii_hexdigit());
            let id = if is_id { id.to_ascii_lowercase() } else { String::new() };
            let mapping =
                Mapping { file: all.string(path), build_id: all.string(&id), ..Mapping::default() };
            mappings.push(all.add_mapping(mapping));
        }
        let FileTables { stack_table, frame_table, .. } = &file.shared;
        let found = match (stack_table, frame_table) {
            (Some(stacks), Some(frames)) => Found::new(stacks, frames),
            _ => Found::default(),
        };
        Shared { mappings, found }
    }
}

/// The tables of a thread.
pub(super) struct Tables<'f> {
    strings: &'f [FileString],
    stacks: &'f FileStacks,
    frames: &'f FileFrames,
    functions: &'f FileFunctions,
    resources: &'f FileResources,
    sources: Option<&'f FileSources>,
    /// `None`: the tables are shared.
    own: Option<Found>,
    stack: Vec<LocationId>,
}

/// A frame with those that are inlined into it, as far as they are known.
struct OpenFrame {
    parts: FrameParts,
    lines: Vec<Line>,
}

impl<'f> Tables<'f> {
    pub(super) fn new(file: &'f FileContent, thread: &'f FileThread) -> Result<Self, ReadError> {
        let missing = |what| move || invalid(format!("a thread has no {what}"));
        let shared = &file.shared;
        let strings = thread.string_array.as_ref().or(shared.string_array.as_ref());
        let strings = strings.ok_or_else(missing("stringArray"))?;
        let stacks = thread.stack_table.as_ref().or(shared.stack_table.as_ref());
        let stacks = stacks.ok_or_else(missing("stackTable"))?;
        let frames = thread.frame_table.as_ref().or(shared.frame_table.as_ref());
        let frames = frames.ok_or_else(missing("frameTable"))?;
        let functions = thread.func_table.as_ref().or(shared.func_table.as_ref());
        let functions = functions.ok_or_else(missing("funcTable"))?;
        let resources = thread.resource_table.as_ref().or(shared.resource_table.as_ref());
        let resources = resources.ok_or_else(missing("resourceTable"))?;
        let has_own = thread.stack_table.is_some();
        if has_own != thread.frame_table.is_some() {
            return Err(invalid(
                "a thread has one of stackTable and frameTable, but not the other",
            ));
        }
        Ok(Tables {
            strings: &strings.0,
            stacks,
            frames,
            functions,
            resources,
            sources: shared.sources.as_ref(),
            own: has_own.then(|| Found::new(stacks, frames)),
            stack: Vec::new(),
        })
    }

    /// Memory of what was found, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.own.as_ref().map_or(0, Found::bytes)
    }

    /// Id of the stack in a row of the table of stacks; `None`: no stack.
    pub(super) fn stack(
        &mut self,
        node: Option<f64>,
        shared: &mut Shared,
        all: &mut Assembly,
    ) -> Result<StackId, ReadError> {
        let Some(leaf) = node.filter(|&node| node >= 0.0).map(|node| node as usize) else {
            return Ok(all.stack(&[]));
        };
        let found = self.own.as_ref().unwrap_or(&shared.found);
        match found.stacks.get(leaf) {
            Some(Some(stack)) => return Ok(*stack),
            Some(None) => {}
            None => return Err(invalid(format!("stack number {leaf} is used, but not there"))),
        }
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        self.walk(leaf, shared, all, &mut stack)?;
        let id = all.stack(&stack);
        self.stack = stack;
        self.own.as_mut().unwrap_or(&mut shared.found).stacks[leaf] = Some(id);
        Ok(id)
    }

    /// Appends the locations of a stack, leaf first.
    fn walk(
        &mut self,
        leaf: usize,
        shared: &mut Shared,
        all: &mut Assembly,
        stack: &mut Vec<LocationId>,
    ) -> Result<(), ReadError> {
        let mut open: Option<OpenFrame> = None;
        let mut next = Some(leaf);
        // Of a deeper stack, the outermost frames are cut.
        while let Some(node) = next.filter(|_| stack.len() <= MOST_FRAMES) {
            let parts = self.frame(node, shared, all)?;
            next = self.prefix(node)?;
            match &mut open {
                Some(OpenFrame { parts: inner, lines }) if is_inlined(inner, &parts) => {
                    lines.extend(parts.line);
                    *inner = parts;
                }
                _ => {
                    let lines = parts.line.into_iter().collect();
                    let ended = open.replace(OpenFrame { parts, lines });
                    stack.extend(ended.map(|frame| frame.location(all)));
                }
            }
        }
        stack.extend(open.map(|frame| frame.location(all)));
        Ok(())
    }

    /// The caller of a row of the table of stacks.
    fn prefix(&self, node: usize) -> Result<Option<usize>, ReadError> {
        let prefix = match number(&self.stacks.prefix_offset, node) {
            Some(offset) if offset <= 0.0 => None,
            Some(offset) => Some(node.checked_sub(offset as usize).unwrap_or(node)),
            None => index(&self.stacks.prefix, node),
        };
        match prefix {
            Some(prefix) if prefix >= node => {
                Err(invalid(format!("stack number {node} comes before its prefix")))
            }
            prefix => Ok(prefix),
        }
    }

    /// The frame of a row of the table of stacks.
    fn frame(
        &mut self,
        node: usize,
        shared: &mut Shared,
        all: &mut Assembly,
    ) -> Result<FrameParts, ReadError> {
        let row = index(&self.stacks.frame, node).unwrap_or(usize::MAX);
        let found = self.own.as_ref().unwrap_or(&shared.found);
        let parts = match found.frames.get(row) {
            Some(Some(parts)) => return Ok(*parts),
            Some(None) => self.new_frame(row, shared, all)?,
            None => return Err(invalid(format!("stack number {node} has no frame"))),
        };
        self.own.as_mut().unwrap_or(&mut shared.found).frames[row] = Some(parts);
        Ok(parts)
    }

    fn new_frame(
        &self,
        row: usize,
        shared: &Shared,
        all: &mut Assembly,
    ) -> Result<FrameParts, ReadError> {
        let frames = self.frames;
        let function = index(&frames.func, row).unwrap_or(usize::MAX);
        let name = index(&self.functions.name, function).and_then(|name| self.text(name));
        let Some(name) = name else {
            return Err(invalid(format!("frame number {row} has no function with a name")));
        };
        let address = flagged(&frames.address, &frames.flags, flags::FRAME_ADDRESS, row);
        let mapping = self.mapping(row, function, shared, all);
        let is_address = address.is_some_and(|address| name == format!("{address:#x}"));
        let line = (!is_address).then(|| {
            let number = |column, bit| flagged(column, &frames.flags, bit, row).unwrap_or(0) as i64;
            let start_line = &self.functions.line_number;
            let functions = &self.functions.flags;
            let start_line = flagged(start_line, functions, flags::FUNCTION_LINE, function);
            let file = self.file(function).unwrap_or_default();
            Line {
                function: all.function(name, file, start_line.unwrap_or(0) as i64),
                line: number(&frames.line, flags::FRAME_LINE),
                column: number(&frames.column, flags::FRAME_COLUMN),
            }
        });
        let depth = if index(&frames.flags, row).is_some() {
            usize::from(has_bit(&frames.flags, flags::FRAME_INLINED, row))
        } else {
            index(&frames.inline_depth, row).unwrap_or(0)
        };
        Ok(FrameParts { mapping, address: address.unwrap_or(0) as u64, line, depth })
    }

    /// The source file of a function.
    fn file(&self, function: usize) -> Option<&'f str> {
        let functions = self.functions;
        let source = flagged(&functions.source, &functions.flags, flags::FUNCTION_SOURCE, function);
        let name = match (source, self.sources) {
            (Some(source), Some(sources)) => index(&sources.filename, source),
            _ => index(&functions.file_name, function),
        };
        let file = self.text(name?)?;
        Some(file.strip_prefix("file://").unwrap_or(file))
    }

    /// The library of a frame.
    fn mapping(
        &self,
        frame: usize,
        function: usize,
        shared: &Shared,
        all: &mut Assembly,
    ) -> Option<MappingId> {
        let frames = self.frames;
        let lib = flagged(&frames.lib, &frames.flags, flags::FRAME_ADDRESS, frame);
        let functions = &self.functions;
        let resource =
            flagged(&functions.resource, &functions.flags, flags::FUNCTION_RESOURCE, function);
        let lib_of_resource = resource.and_then(|resource| index(&self.resources.lib, resource));
        if let Some(lib) = lib.or(lib_of_resource) {
            return shared.mappings.get(lib).copied();
        }
        let resource = resource?;
        let is_library = number(&self.resources.kind, resource) == Some(LIBRARY);
        let name = self.text(index(&self.resources.name, resource).filter(|_| is_library)?)?;
        Some(all.mapping(name))
    }

    fn text(&self, number: usize) -> Option<&'f str> {
        self.strings.get(number).map(|string| string.0.as_str())
    }
}

/// True if `inner` is inlined into its caller `outer`, at the same address.
fn is_inlined(inner: &FrameParts, outer: &FrameParts) -> bool {
    inner.depth > 0
        && (inner.mapping, inner.address) == (outer.mapping, outer.address)
        && inner.line.is_some()
        && outer.line.is_some()
}

impl OpenFrame {
    fn location(&self, all: &mut Assembly) -> LocationId {
        all.location(self.parts.mapping, self.parts.address, &self.lines)
    }
}
