//! The code objects of a process, and the locations of its frames in the profile.

use rustc_hash::FxHashMap;
use std::sync::Arc;

use super::budgeted::BudgetedMemory;
use super::copied_codes::CopiedCodes;
use interpreters::{Budget, Code, CodeKey, Executed, Name, ReadError, Runtime, UserFrame};
use profile::{Builder, Language, LocationId, Mapping, MappingId, SourceFunction};

/// What is read of a process in each second of samples.
pub const BUDGET: Budget = Budget { bytes: 8 << 20, calls: 20_000 };

/// Most code objects, and most locations, that are kept of a process, and most bytes of their names and
/// lines.
const MOST: usize = 1 << 17;
/// See [`MOST`].
const MOST_BYTES: usize = 64 << 20;

/// Why the name of a function is not known.
const GONE: &str = "its code is gone";
const ENDED: &str = "its process has ended";
const UNREADABLE: &str = "its name cannot be read";
const TOO_MANY: &str = "too many functions were new at that time";

/// The functions of a language.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// The language.
    pub language: Language,
    /// Their mapping.
    pub mapping: MappingId,
}

impl Functions {
    /// The location of a function whose name is not known.
    fn unnamed(self, why: &str, builder: &mut Builder) -> LocationId {
        let name = format!("[{} function: {why}]", self.language.name());
        builder.named_location_in(&name, Some(self.mapping))
    }
}

/// Where names of code are read.
#[derive(Clone, Copy)]
pub struct NameSource<'a> {
    /// The process.
    pub pid: i32,
    /// Its interpreter.
    pub runtime: &'a dyn Runtime,
    /// What was copied at samples, which counts before memory.
    pub copied: &'a CopiedCodes,
}

/// A code object, without the position.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct CodeObject {
    address: u64,
    identity: [u64; 4],
    context: u64,
}

impl From<&CodeKey> for CodeObject {
    fn from(key: &CodeKey) -> CodeObject {
        CodeObject { address: key.object, identity: key.identity, context: key.context }
    }
}

/// Code objects and locations that are known.
#[derive(Clone, Default)]
struct Known {
    objects: FxHashMap<CodeObject, Arc<Code>>,
    locations: FxHashMap<CodeKey, LocationId>,
    /// Bytes of names and lines.
    bytes: usize,
}

impl Known {
    fn extend(&mut self, other: Known) {
        self.objects.extend(other.objects);
        self.locations.extend(other.locations);
        self.bytes += other.bytes;
    }
}

/// The code objects of a process.
pub struct Codes {
    memory: BudgetedMemory,
    /// What forked processes have from their parents, and these keep.
    shared: Arc<Known>,
    /// What was found since then.
    own: Known,
    /// Functions of which something could not be read, whose machine code may be replaced, or for which
    /// there is no room, until the budget is refilled.
    unnamed: FxHashMap<CodeKey, LocationId>,
    /// The outermost frames of the last stack, whose locations are known, the outermost first: most
    /// stacks begin alike.
    outermost: Vec<(CodeKey, LocationId)>,
}

impl Codes {
    /// Those of a process, of which none is known.
    pub fn new(pid: i32) -> Codes {
        Codes {
            memory: BudgetedMemory::new(pid, BUDGET),
            shared: Arc::default(),
            own: Known::default(),
            unnamed: FxHashMap::default(),
            outermost: Vec::new(),
        }
    }

    /// Those of a process that was just forked.
    pub fn for_child(&mut self, pid: i32) -> Codes {
        /// Number of locations up to which they are copied, for each child if need be.
        const FEW: usize = 1024;
        let (own, shared) = (self.own.locations.len(), self.shared.locations.len());
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.extend(std::mem::take(&mut self.own));
        } else if own > 0 && (shared <= FEW || own >= shared / 8) {
            let mut all = Known::clone(&self.shared);
            all.extend(std::mem::take(&mut self.own));
            self.shared = Arc::new(all);
        }
        Codes { shared: self.shared.clone(), ..Codes::new(pid) }
    }

    /// Replaces locations by those of frames at a time (nanoseconds), as far as they are known.
    pub fn find_all(
        &mut self,
        frames: &[UserFrame],
        time: u64,
        locations: &mut Vec<Option<LocationId>>,
    ) {
        let mut outermost = std::mem::take(&mut self.outermost);
        let pairs = frames.iter().rev().zip(&outermost);
        let common = pairs.take_while(|(frame, (code, _))| frame.code == *code).count();
        outermost.truncate(common);
        locations.clear();
        for frame in &frames[..frames.len() - common] {
            locations.push(self.find(&frame.code, time));
        }
        locations.extend(outermost.iter().rev().map(|(_, location)| Some(*location)));
        for (frame, location) in frames.iter().zip(&*locations).rev().skip(common) {
            // The others are not known for good.
            let Some(location) = location.filter(|_| !self.unnamed.contains_key(&frame.code))
            else {
                break;
            };
            outermost.push((frame.code, location));
        }
        self.outermost = outermost;
    }

    /// True if the location of a frame at a time (nanoseconds) is known.
    pub fn knows(&self, code: &CodeKey, time: u64) -> bool {
        self.find(code, time).is_some()
    }

    fn find(&self, code: &CodeKey, time: u64) -> Option<LocationId> {
        let unnamed = || self.unnamed.get(code).copied().filter(|_| !self.memory.is_due(time));
        self.known(code).or_else(unnamed)
    }

    fn known(&self, code: &CodeKey) -> Option<LocationId> {
        let own = self.own.locations.get(code);
        own.or_else(|| self.shared.locations.get(code)).copied()
    }

    /// The location of a frame at a time (nanoseconds).
    pub fn location(
        &mut self,
        code: &CodeKey,
        source: NameSource<'_>,
        functions: Functions,
        builder: &mut Builder,
        time: u64,
    ) -> LocationId {
        if let Some(id) = self.known(code) {
            return id;
        }
        if self.memory.refill(time) {
            self.unnamed.clear();
        }
        if let Some(id) = self.unnamed.get(code) {
            return *id;
        }
        let (keys, mut is_final) = match source.runtime.executed(code, self.memory.memory()) {
            Executed::Itself => (vec![*code], true),
            Executed::Frames(keys) => (keys, true),
            Executed::Momentary(keys) => (keys, false),
            Executed::Unreadable(own) => (vec![own], false),
        };
        let mut found = self.objects(&keys, source);
        if let (Err(_), [_, .., own]) = (&found, &keys[..]) {
            // Without what is inlined, its position is not known.
            found = self.objects(&[CodeKey { position: CodeKey::UNKNOWN, ..*own }], source);
            is_final = false;
        }
        let id = match &found {
            Ok(found) => {
                let frames = found
                    .iter()
                    .map(|(key, code)| (source_function(code), code.line(key.position)));
                builder.source_location(functions.mapping, frames)
            }
            Err(why) => functions.unnamed(why, builder),
        };
        let known = self.own.locations.len() + self.shared.locations.len();
        let is_kept = is_final && found.is_ok() && known < MOST;
        let ids = if is_kept { &mut self.own.locations } else { &mut self.unnamed };
        if ids.len() < MOST {
            ids.insert(*code, id);
        }
        id
    }

    /// The code objects of keys, which are kept.
    fn objects(
        &mut self,
        keys: &[CodeKey],
        source: NameSource<'_>,
    ) -> Result<Vec<(CodeKey, Arc<Code>)>, &'static str> {
        let mut found = Vec::new();
        for key in keys {
            let code = self.object(key, source)?;
            self.keep(CodeObject::from(key), code.clone());
            found.push((*key, code));
        }
        Ok(found)
    }

    /// Keeps a code object, if there is room.
    fn keep(&mut self, object: CodeObject, found: Arc<Code>) {
        let size = found.function.len() + found.file.len() + found.lines.len();
        let Known { objects, bytes, .. } = &mut self.own;
        let is_full = self.shared.bytes + *bytes + size > MOST_BYTES;
        if objects.len() < MOST && !is_full && objects.insert(object, found).is_none() {
            *bytes += size;
        }
    }

    /// A code object, or why its name is not known.
    fn object(&self, key: &CodeKey, source: NameSource<'_>) -> Result<Arc<Code>, &'static str> {
        let NameSource { pid, runtime, copied } = source;
        let object = CodeObject::from(key);
        let known = self.own.objects.get(&object);
        if let Some(found) = known.or_else(|| self.shared.objects.get(&object)) {
            return Ok(found.clone());
        }
        // At the sample, it was this code. What is in memory by now may have the same words.
        let copied = copied.get(pid, key).and_then(|copy| match runtime.name(key, copy) {
            Name::Found(code) => Some(code),
            _ => None,
        });
        let without_lines = match copied {
            Some(code) if !code.lines.is_empty() => return Ok(Arc::new(code)),
            copied => copied,
        };
        let is_own = |code: &Code| without_lines.as_ref().is_none_or(|copy| is_same(copy, code));
        let why = match runtime.name(key, self.memory.memory()) {
            Name::Found(code) if is_own(&code) => {
                return Ok(Arc::new(code));
            }
            Name::Found(_) | Name::Gone => GONE,
            Name::Unreadable(ReadError::Ended) => ENDED,
            Name::Unreadable(ReadError::Budget) => TOO_MANY,
            Name::Unreadable(ReadError::Unmapped | ReadError::Denied) => UNREADABLE,
        };
        without_lines.map(Arc::new).ok_or(why)
    }
}

/// True for code with the same names.
fn is_same(a: &Code, b: &Code) -> bool {
    (&a.function, &a.file, a.first_line) == (&b.function, &b.file, b.first_line)
}

fn source_function(code: &Code) -> SourceFunction<'_> {
    let Code { function, file, first_line, .. } = code;
    SourceFunction { name: function, file, first_line: *first_line }
}

/// Adds the mapping of a language's functions.
pub fn add_mapping(language: Language, builder: &mut Builder) -> MappingId {
    let file = builder.profile.strings.intern(language.mapping());
    builder.add_mapping(Mapping { file, limit: 1, ..Mapping::default() })
}
