//! Offsets of the structures that frames and names need.

use super::structs::Structs;

/// Versions of HotSpot whose code is described as here: the encodings of scopes and lines are not
/// stated by HotSpot itself.
const VERSIONS: std::ops::RangeInclusive<u32> = 11..=25;

/// First version whose compressed numbers have no byte 0 (`unsigned5.hpp`).
const WITHOUT_ZEROS: u32 = 20;

/// Offsets in bytes, unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The major version.
    pub version: u32,
    /// Address of the list of code heaps.
    pub heaps: u64,
    /// Address of the address to which Java methods return that C++ has called.
    pub call_stub_return: u64,
    pub(super) list_length: u64,
    pub(super) list_items: u64,
    pub(super) heap: HeapLayout,
    pub(super) blob: BlobLayout,
    pub(super) compiled: CompiledLayout,
    pub(super) method: MethodLayout,
    /// Compressed numbers have no byte 0.
    pub(super) excludes_zero: bool,
    pub(super) threads: Option<ThreadLayout>,
}

/// `CodeHeap`, and the header of a block of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeapLayout {
    /// Lowest address and the address behind the last one that it may have.
    pub low: u64,
    pub high: u64,
    /// The address up to which it has grown.
    pub grown: u64,
    /// The address of its segment map.
    pub segments: u64,
    pub log2_segment: u64,
    pub block_used: u64,
    /// In segments.
    pub block_length: u64,
    /// Size of the header.
    pub block_size: u64,
}

/// Where a structure states an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stated {
    /// A pointer at this offset.
    Pointer(u64),
    /// A distance of 32 bits from the beginning of the structure, at this offset.
    Distance(u64),
}

/// `CodeBlob`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlobLayout {
    pub name: u64,
    pub size: u64,
    /// In words.
    pub frame_size: u64,
    /// Offset and size of the number.
    pub frame_complete: (u64, usize),
    pub code_begin: Stated,
    pub code_end: Stated,
}

/// `nmethod`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CompiledLayout {
    pub method: u64,
    pub compile_id: u64,
    pub original_pc: u64,
    pub deoptimized: [Stated; 2],
    pub stubs: u64,
    pub debug: DebugLayout,
    /// Size of the structure.
    pub size: u64,
}

/// Places of debug information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DebugLayout {
    /// In the blob: distances from its beginning, and a pointer to the scopes.
    Inside { metadata: u64, scopes: u64, pcs: u64, pcs_end: u64 },
    /// In memory of their own: pointers, and distances from these.
    Outside {
        mutable: u64,
        mutable_size: u64,
        relocations: u64,
        immutable: u64,
        immutable_size: u64,
        pcs: u64,
        scopes: u64,
    },
}

/// `Method` and what it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MethodLayout {
    pub constant: u64,
    pub pool: u64,
    pub flags: u64,
    pub code_size: u64,
    pub name: u64,
    pub signature: u64,
    /// Size of `ConstMethod`, behind which are the bytecode and the lines.
    pub constant_size: u64,
    pub pool_holder: u64,
    pub pool_length: u64,
    /// Size of `ConstantPool`, behind which are its entries.
    pub pool_size: u64,
    pub source_file: SourceFile,
    pub class_name: u64,
    pub class_pool: u64,
    pub symbol_length: u64,
    pub symbol_text: u64,
}

/// Where the number of the entry with the name of the source file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceFile {
    Pool(u64),
    Class(u64),
}

/// `JavaThread`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ThreadLayout {
    /// Address of the list of threads.
    pub list: u64,
    pub list_length: u64,
    pub list_items: u64,
    pub os_thread: u64,
    pub number: u64,
    /// The innermost frame of Java, if C++ is executed: stack and frame pointers, and position.
    pub last: [u64; 3],
}

impl Layout {
    /// True if this version is supported.
    pub fn has_version(version: u32) -> bool {
        VERSIONS.contains(&version)
    }

    /// That of a version, by its description; `None` if something is missing.
    pub fn new(version: u32, structs: &Structs) -> Option<Layout> {
        if !is_plausible(structs) {
            return None;
        }
        let at = |name: &str| structs.offsets.get(name).copied();
        let fixed = |name: &str| structs.statics.get(name).copied();
        let size = |name: &str| structs.sizes.get(name).copied();
        let nmethod = |name: &str| {
            at(&format!("nmethod.{name}")).or_else(|| at(&format!("CompiledMethod.{name}")))
        };
        let memory = at("CodeHeap._memory")?;
        let heap = HeapLayout {
            low: memory + at("VirtualSpace._low_boundary")?,
            high: memory + at("VirtualSpace._high_boundary")?,
            grown: memory + at("VirtualSpace._high")?,
            segments: at("CodeHeap._segmap")? + at("VirtualSpace._low")?,
            log2_segment: at("CodeHeap._log2_segment_size")?,
            block_used: at("HeapBlock._header")? + at("HeapBlock::Header._used")?,
            block_length: at("HeapBlock._header")? + at("HeapBlock::Header._length")?,
            block_size: size("HeapBlock")?,
        };
        let pointers = at("CodeBlob._code_begin").zip(at("CodeBlob._code_end"));
        let (code_begin, code_end) = match pointers {
            Some((begin, end)) => (Stated::Pointer(begin), Stated::Pointer(end)),
            None => (
                Stated::Distance(at("CodeBlob._code_offset")?),
                Stated::Distance(at("CodeBlob._data_offset")?),
            ),
        };
        let complete = at("CodeBlob._frame_complete_offset")?;
        let blob = BlobLayout {
            name: at("CodeBlob._name")?,
            size: at("CodeBlob._size")?,
            frame_size: at("CodeBlob._frame_size")?,
            // Those with distances have numbers of 16 bits.
            frame_complete: (complete, if pointers.is_some() { 4 } else { 2 }),
            code_begin,
            code_end,
        };
        let deoptimized = |kind: &str| {
            let pointer = nmethod(&format!("_deopt{kind}_handler_begin")).map(Stated::Pointer);
            pointer
                .or_else(|| nmethod(&format!("_deopt{kind}_handler_offset")).map(Stated::Distance))
        };
        let inside = || {
            Some(DebugLayout::Inside {
                metadata: nmethod("_metadata_offset")?,
                scopes: nmethod("_scopes_data_begin")?,
                pcs: nmethod("_scopes_pcs_offset")?,
                pcs_end: nmethod("_dependencies_offset")?,
            })
        };
        let outside = || {
            Some(DebugLayout::Outside {
                mutable: at("CodeBlob._mutable_data")?,
                mutable_size: at("CodeBlob._mutable_data_size")?,
                relocations: at("CodeBlob._relocation_size")?,
                immutable: nmethod("_immutable_data")?,
                immutable_size: nmethod("_immutable_data_size")?,
                pcs: nmethod("_scopes_pcs_offset")?,
                scopes: nmethod("_scopes_data_offset")?,
            })
        };
        let compiled = CompiledLayout {
            method: nmethod("_method")?,
            compile_id: nmethod("_compile_id")?,
            original_pc: nmethod("_orig_pc_offset")?,
            deoptimized: [deoptimized("")?, deoptimized("_mh")?],
            stubs: nmethod("_stub_offset")?,
            debug: inside().or_else(outside)?,
            size: size("nmethod")?,
        };
        let constant = |name: &str| at(&format!("ConstMethod.{name}"));
        let source_file = at("ConstantPool._source_file_name_index").map(SourceFile::Pool);
        let in_class = || at("InstanceKlass._source_file_name_index").map(SourceFile::Class);
        let method = MethodLayout {
            constant: at("Method._constMethod")?,
            pool: constant("_constants")?,
            flags: constant("_flags").or_else(|| constant("_flags._flags"))?,
            code_size: constant("_code_size")?,
            name: constant("_name_index")?,
            signature: constant("_signature_index")?,
            constant_size: size("ConstMethod")?,
            pool_holder: at("ConstantPool._pool_holder")?,
            pool_length: at("ConstantPool._length")?,
            pool_size: size("ConstantPool")?,
            source_file: source_file.or_else(in_class)?,
            class_name: at("Klass._name")?,
            class_pool: at("InstanceKlass._constants")?,
            symbol_length: at("Symbol._length")?,
            symbol_text: at("Symbol._body")?,
        };
        Some(Layout {
            version,
            heaps: fixed("CodeCache._heaps")?,
            call_stub_return: fixed("StubRoutines._call_stub_return_address")?,
            list_length: at("GrowableArrayBase._len")
                .or_else(|| at("GenericGrowableArray._len"))?,
            list_items: at("GrowableArray<int>._data")?,
            heap,
            blob,
            compiled,
            method,
            excludes_zero: version >= WITHOUT_ZEROS,
            threads: threads(structs),
        })
    }
}

/// True if offsets and sizes are as those of structures are.
fn is_plausible(structs: &Structs) -> bool {
    const LARGEST: u64 = 1 << 14;
    const LARGEST_HEADER: u64 = 1 << 10;
    let at = |name: &str| structs.offsets.get(name).copied();
    let size = |name: &str| structs.sizes.get(name).copied();
    let is_header = |name: &str| size(name).is_some_and(|size| size <= LARGEST_HEADER);
    structs.sizes.values().chain(structs.offsets.values()).all(|n| *n < LARGEST)
        && is_header("nmethod")
        && is_header("HeapBlock")
        && size("PcDesc") == Some(16)
        && at("PcDesc._pc_offset") == Some(0)
        && at("PcDesc._scope_decode_offset") == Some(4)
}

/// How threads are found; only sleeping ones need it.
fn threads(structs: &Structs) -> Option<ThreadLayout> {
    let at = |name: &str| structs.offsets.get(name).copied();
    let anchor = at("JavaThread._anchor")?;
    let last = |name: &str| Some(anchor + at(&format!("JavaFrameAnchor.{name}"))?);
    Some(ThreadLayout {
        list: *structs.statics.get("ThreadsSMRSupport._java_thread_list")?,
        list_length: at("ThreadsList._length")?,
        list_items: at("ThreadsList._threads")?,
        os_thread: at("JavaThread._osthread").or_else(|| at("Thread._osthread"))?,
        number: at("OSThread._thread_id")?,
        last: [last("_last_Java_sp")?, last("_last_Java_fp")?, last("_last_Java_pc")?],
    })
}
