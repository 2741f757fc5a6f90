//! The code objects of a process, and the locations of its frames in the profile.

use rustc_hash::FxHashMap;
use std::sync::Arc;

use interpreters::{Budget, Code, CodeKey, Name, ProcessMemory, ReadError, Runtime};
use profile::{Builder, Language, LocationId, Mapping, MappingId, SourceFunction};

/// What is read of a process in each second of samples.
const BUDGET: Budget = Budget { bytes: 8 << 20, calls: 20_000 };
/// See [`BUDGET`].
const REFILL_AFTER: u64 = 1_000_000_000;

/// Most code objects, and most locations, that are kept of a process.
const MOST: usize = 1 << 17;

/// Functions whose names could not be read.
const GONE: &str = "[Python function: its code is gone]";
const ENDED: &str = "[Python function: its process has ended]";
const UNREADABLE: &str = "[Python function: its name cannot be read]";

/// A code object, without the position.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct CodeObject {
    address: u64,
    identity: [u64; 4],
}

/// The code objects of a process.
pub struct Codes {
    memory: ProcessMemory,
    /// Time at which the budget is refilled.
    refill: u64,
    objects: FxHashMap<CodeObject, Arc<Code>>,
    locations: FxHashMap<CodeKey, LocationId>,
}

impl Codes {
    /// Those of a process, of which none is known.
    pub fn new(pid: i32) -> Codes {
        Codes {
            memory: ProcessMemory::new(pid, BUDGET),
            refill: 0,
            objects: FxHashMap::default(),
            locations: FxHashMap::default(),
        }
    }

    /// Those of a process that was just forked.
    pub fn for_child(&self, pid: i32) -> Codes {
        let (objects, locations) = (self.objects.clone(), self.locations.clone());
        Codes { objects, locations, ..Codes::new(pid) }
    }

    /// The memory of the process.
    pub fn memory(&self) -> &ProcessMemory {
        &self.memory
    }

    /// True if the location of a frame is known.
    pub fn knows(&self, code: &CodeKey) -> bool {
        self.locations.contains_key(code)
    }

    /// The location of a frame at a time (nanoseconds).
    pub fn location(
        &mut self,
        code: &CodeKey,
        runtime: &dyn Runtime,
        mapping: MappingId,
        builder: &mut Builder,
        time: u64,
    ) -> LocationId {
        if let Some(id) = self.locations.get(code) {
            return *id;
        }
        if time >= self.refill {
            self.memory.refill(BUDGET);
            self.refill = time.saturating_add(REFILL_AFTER);
        }
        let object = CodeObject { address: code.object, identity: code.identity };
        let known = self.objects.get(&object).cloned();
        let found = match known {
            Some(found) => found,
            None => match runtime.name(code, &self.memory) {
                Name::Found(code) => Arc::new(code),
                // Another object at the same place may have the same words.
                Name::Gone => return builder.named_location_in(GONE, Some(mapping)),
                Name::Unreadable(why) => {
                    let why = if why == ReadError::Ended { ENDED } else { UNREADABLE };
                    return builder.named_location_in(why, Some(mapping));
                }
            },
        };
        let function = SourceFunction {
            name: &found.function,
            file: &found.file,
            first_line: found.first_line,
        };
        let id = builder.source_location(mapping, function, found.line(code.position));
        if self.objects.len() < MOST && self.locations.len() < MOST {
            self.objects.insert(object, found);
            self.locations.insert(*code, id);
        }
        id
    }
}

/// Adds the mapping of Python's functions.
pub fn add_mapping(builder: &mut Builder) -> MappingId {
    let file = builder.profile.strings.intern(Language::Python.mapping());
    builder.add_mapping(Mapping { file, limit: 1, ..Mapping::default() })
}
