//! The content of a file that is read, of the versions 41 to 75 of the format.
//!
//! The tables belong to a thread; since version 56 one after another has moved to `shared`. Columns
//! have numbers: indexes, of which -1 and `null` are none.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use crate::json;

/// The oldest version whose tables are as described here.
pub(super) const OLDEST: u32 = 41;

/// The newest version whose changes are known.
pub(super) const NEWEST: u32 = 75;

/// Bits of the column `flags`, which tell since version 71 (frames) and 75 (functions) what other
/// columns have.
pub(super) mod flags {
    /// A frame has an address in a library.
    pub const FRAME_ADDRESS: u32 = 1 << 1;
    /// A frame was inlined into the one before.
    pub const FRAME_INLINED: u32 = 1;
    /// A frame has a line.
    pub const FRAME_LINE: u32 = 1 << 4;
    /// A frame has a column.
    pub const FRAME_COLUMN: u32 = 1 << 5;
    /// A function has a resource.
    pub const FUNCTION_RESOURCE: u32 = 1 << 2;
    /// A function has a source.
    pub const FUNCTION_SOURCE: u32 = 1 << 3;
    /// A function has a line.
    pub const FUNCTION_LINE: u32 = 1 << 4;
}

#[derive(Deserialize)]
pub(super) struct FileContent {
    pub meta: FileMeta,
    #[serde(default, deserialize_with = "json::list")]
    pub libs: Vec<FileLib>,
    #[serde(default)]
    pub shared: FileTables,
    #[serde(deserialize_with = "json::list")]
    pub threads: Vec<FileThread>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileMeta {
    /// Version of the format; without it, the file is one of Firefox's recorder.
    #[serde(default)]
    pub preprocessed_profile_version: Option<u32>,
    /// Time between two samples in milliseconds.
    #[serde(default)]
    pub interval: Option<f64>,
    /// Milliseconds since the Unix epoch.
    #[serde(default)]
    pub start_time: Option<f64>,
    /// Begin and end of the recording in milliseconds.
    #[serde(default)]
    pub profiling_start_time: Option<f64>,
    #[serde(default)]
    pub profiling_end_time: Option<f64>,
    #[serde(default)]
    pub sample_units: Option<FileUnits>,
    /// What prof writes, and others do not.
    #[serde(default)]
    pub prof: Option<OwnMeta>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileUnits {
    /// The unit of `threadCPUDelta`.
    #[serde(default, rename = "threadCPUDelta")]
    pub cpu: String,
}

/// What the format has no field for.
#[derive(Clone, Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OwnMeta {
    /// The sample type of the weights.
    pub kind: String,
    pub unit: String,
    /// The times of samples are those of the recording.
    pub has_times: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileLib {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub path: String,
    /// The GNU build id.
    #[serde(default)]
    pub code_id: Option<String>,
}

/// Tables; each is in a thread or in `shared`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FileTables {
    pub string_array: Option<FileStrings>,
    pub stack_table: Option<FileStacks>,
    pub frame_table: Option<FileFrames>,
    pub func_table: Option<FileFunctions>,
    pub resource_table: Option<FileResources>,
    pub sources: Option<FileSources>,
}

/// A thread, with its own tables.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileThread {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub process_name: Option<String>,
    #[serde(default)]
    pub pid: FileId,
    #[serde(default)]
    pub tid: FileId,
    #[serde(default)]
    pub samples: FileSamples,
    #[serde(default)]
    pub native_allocations: Option<FileSamples>,
    #[serde(default)]
    pub string_array: Option<FileStrings>,
    #[serde(default)]
    pub stack_table: Option<FileStacks>,
    #[serde(default)]
    pub frame_table: Option<FileFrames>,
    #[serde(default)]
    pub func_table: Option<FileFunctions>,
    #[serde(default)]
    pub resource_table: Option<FileResources>,
}

/// A column of numbers.
pub(super) type Column = Vec<Option<f64>>;

#[derive(Deserialize)]
pub(super) struct FileStrings(#[serde(deserialize_with = "json::list")] pub Vec<FileString>);

#[derive(Deserialize)]
pub(super) struct FileString(#[serde(deserialize_with = "json::text")] pub String);

/// A tree of calls; a node comes after its prefix, the caller.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FileStacks {
    #[serde(deserialize_with = "json::list")]
    pub frame: Column,
    #[serde(deserialize_with = "json::list")]
    pub prefix: Column,
    /// How many nodes before it the prefix is; 0: none. Since version 66.
    #[serde(deserialize_with = "json::list")]
    pub prefix_offset: Column,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FileFrames {
    #[serde(deserialize_with = "json::list")]
    pub func: Column,
    /// Relative to the lowest address of the library.
    #[serde(deserialize_with = "json::list")]
    pub address: Column,
    #[serde(deserialize_with = "json::list")]
    pub inline_depth: Column,
    #[serde(deserialize_with = "json::list")]
    pub line: Column,
    #[serde(deserialize_with = "json::list")]
    pub column: Column,
    /// Since version 70; before, the resource of the function has it.
    #[serde(deserialize_with = "json::list")]
    pub lib: Column,
    /// Since version 71.
    #[serde(deserialize_with = "json::list")]
    pub flags: Column,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FileFunctions {
    #[serde(deserialize_with = "json::list")]
    pub name: Column,
    #[serde(deserialize_with = "json::list")]
    pub resource: Column,
    /// A text, up to version 57.
    #[serde(deserialize_with = "json::list")]
    pub file_name: Column,
    /// Since version 58.
    #[serde(deserialize_with = "json::list")]
    pub source: Column,
    #[serde(deserialize_with = "json::list")]
    pub line_number: Column,
    /// Since version 75.
    #[serde(deserialize_with = "json::list")]
    pub flags: Column,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FileResources {
    #[serde(deserialize_with = "json::list")]
    pub lib: Column,
    #[serde(deserialize_with = "json::list")]
    pub name: Column,
    /// 1: a library.
    #[serde(rename = "type", deserialize_with = "json::list")]
    pub kind: Column,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FileSources {
    /// A text.
    #[serde(deserialize_with = "json::list")]
    pub filename: Column,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FileSamples {
    /// The number of rows, of which columns may be absent.
    pub length: Option<u32>,
    pub weight_type: Option<String>,
    #[serde(deserialize_with = "json::list")]
    pub stack: Column,
    /// Milliseconds.
    #[serde(deserialize_with = "json::list")]
    pub time: Column,
    /// Milliseconds since the row before.
    #[serde(deserialize_with = "json::list")]
    pub time_deltas: Column,
    #[serde(deserialize_with = "json::list")]
    pub weight: Column,
    /// CPU time since the row before.
    #[serde(rename = "threadCPUDelta", deserialize_with = "json::list")]
    pub cpu: Column,
    /// The address of an allocation.
    #[serde(deserialize_with = "json::list")]
    pub memory_address: Column,
}

/// The id of a process or thread: a number, a text that begins with one, or another.
#[derive(Clone, Copy, Default)]
pub(super) struct FileId(pub Option<i64>);

impl<'de> Deserialize<'de> for FileId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FileId, D::Error> {
        struct Id;

        impl Visitor<'_> for Id {
            type Value = FileId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the id of a process or thread")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<FileId, E> {
                // A thread that has the id of another one is `ID.1`.
                let number = text.split('.').next().unwrap_or_default();
                Ok(FileId(number.parse().ok()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<FileId, E> {
                Ok(FileId(i64::try_from(number).ok()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<FileId, E> {
                Ok(FileId(Some(number)))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<FileId, E> {
                Ok(FileId(Some(number as i64)))
            }

            fn visit_unit<E: Error>(self) -> Result<FileId, E> {
                Ok(FileId(None))
            }
        }

        deserializer.deserialize_any(Id)
    }
}
