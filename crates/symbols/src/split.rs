//! Debug information that blazesym does not read: split DWARF (in `.dwo` files or a `.dwp` package;
//! DWARF 5, section 7.3), and sections compressed in the old format (`.zdebug_*`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use addr2line::gimli::{self, DwarfPackage, EndianSlice, RunTimeEndian};
use addr2line::{Context, LookupResult, SplitDwarfLoad};
use object::read::ReadCache;
use object::{Object, ObjectSection};
use typed_arena::Arena;

use profile::StrId;

use super::SymbolOptions;
use super::address_frames::{AddressFrames, SymbolFrame, placeholder};
use super::opener::{Opener, Place};
use super::source::Layer;
use profile::Cause;

/// Largest file that is read, whose sections are read whole; also the limit of all unpacked bytes
/// together. In bytes.
const MAX_BYTES: u64 = 1 << 30;

/// Most files of one binary that are opened or searched for.
const MAX_FILES: usize = 1 << 14;

type DwarfReader<'a> = EndianSlice<'a, RunTimeEndian>;
type Dwarf<'a> = gimli::Dwarf<DwarfReader<'a>>;

/// Sections read so far, kept while references to them exist.
pub(super) struct SectionMemory {
    files: Arena<ReadCache<File>>,
    unpacked: Arena<Vec<u8>>,
    /// Bytes of sections that may still be read, and names that may be searched for.
    left: Cell<u64>,
    names: Cell<usize>,
}

impl Default for SectionMemory {
    fn default() -> SectionMemory {
        let files = Arena::new();
        let unpacked = Arena::new();
        SectionMemory { files, unpacked, left: Cell::new(MAX_BYTES), names: Cell::new(MAX_FILES) }
    }
}

/// Debug information of one file.
pub struct Split<'a> {
    memory: &'a SectionMemory,
    options: &'a SymbolOptions,
    opener: &'a dyn Opener,
    /// Its place, for finding files next to it.
    place: Place,
    context: Context<DwarfReader<'a>>,
    package: Option<DwarfPackage<DwarfReader<'a>>>,
    /// Names of missing files.
    missing: RefCell<BTreeSet<String>>,
}

/// Frames of `addresses` of a file; `progress` is called with the number of addresses
/// done.
///
/// # Errors
///
/// The file cannot be read, or its debug information cannot be parsed.
pub fn resolve(
    layer: &Layer,
    addresses: &[u64],
    options: &SymbolOptions,
    opener: &dyn Opener,
    report: &dyn Fn(usize),
) -> Result<AddressFrames, String> {
    let memory = SectionMemory::default();
    let split = Split::open(layer, options, opener, &memory)?;
    let mut resolved = AddressFrames::default();
    for &address in addresses {
        split.push(address, &mut resolved).map_err(|e| e.to_string())?;
        report(1);
    }
    resolved.incomplete = split.missing().map(Cause::PartMissing);
    Ok(resolved)
}

impl<'a> Split<'a> {
    fn open(
        layer: &Layer,
        options: &'a SymbolOptions,
        opener: &'a dyn Opener,
        memory: &'a SectionMemory,
    ) -> Result<Split<'a>, String> {
        let object = memory.parse(&layer.file).ok_or("it cannot be read")?;
        let dwarf = Dwarf::load(|id| memory.section(&object, Some(id.name())));
        let shared = layer.shared.as_ref().and_then(|file| memory.parse(file));
        let context = dwarf.and_then(|mut dwarf| {
            if let Some(shared) = &shared {
                dwarf.load_sup(|id| memory.section(shared, Some(id.name())))?;
            }
            dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
            Context::from_dwarf(dwarf)
        });
        let context = context.map_err(|e| e.to_string())?;
        let (place, missing) = (layer.place.resolved(), RefCell::default());
        let mut split = Split { memory, options, opener, place, context, package: None, missing };
        split.package = split.find_package();
        Ok(split)
    }

    /// Directories to search: that of the file, and the user's.
    fn directories(&self) -> impl Iterator<Item = Place> {
        let sibling = self.place.parent().into_iter().flat_map(Place::alternatives);
        sibling.chain(self.options.symbol_path.iter().map(|path| Place::own(path)))
    }

    /// `PROGRAM.dwp`; for a debug file `PROGRAM.debug`, too.
    fn find_package(&self) -> Option<DwarfPackage<DwarfReader<'a>>> {
        let name = self.place.path.file_name()?.to_str()?;
        let names = [Some(name), name.strip_suffix(".debug")];
        let names = || names.into_iter().flatten().map(|name| format!("{name}.dwp"));
        self.directories()
            .find_map(|dir| names().find_map(|name| self.open_package(&dir.join(name.as_ref()))))
    }

    fn open_package(&self, place: &Place) -> Option<DwarfPackage<DwarfReader<'a>>> {
        let object = self.memory.open(self.opener, place)?;
        let load = |id: gimli::SectionId| self.memory.section(&object, id.dwo_name());
        DwarfPackage::load(load, EndianSlice::new(&[], endian_of(&object))).ok()
    }

    /// The target of a skeleton unit, if it exists and belongs to it.
    fn load(&self, load: SplitDwarfLoad<DwarfReader<'a>>) -> Option<Arc<Dwarf<'a>>> {
        let packed = self.package.as_ref().map(|p| p.find_cu(load.dwo_id, &load.parent));
        if let Some(Ok(Some(unit))) = packed {
            return Some(Arc::new(unit));
        }
        let text = |r: Option<DwarfReader<'a>>| Some(PathBuf::from(r?.to_string().ok()?));
        let name = text(load.path)?;
        let compiled_in =
            text(load.comp_dir).map(|dir| Place { path: dir.join(&name), ..self.place });
        let compiled_in = compiled_in.into_iter().flat_map(Place::alternatives);
        let moved = self.directories().flat_map(|dir| {
            let relative = name.is_relative().then(|| dir.join(&name));
            relative.into_iter().chain(name.file_name().map(|file| dir.join(file.as_ref())))
        });
        let found = compiled_in.chain(moved).find_map(|place| self.open_unit(&place, &load));
        if found.is_none() {
            let file = name.file_name().unwrap_or(name.as_os_str());
            self.missing.borrow_mut().insert(file.to_string_lossy().into_owned());
        }
        found
    }

    /// The missing files, in brief.
    fn missing(&self) -> Option<String> {
        let missing = self.missing.borrow();
        let first = missing.first()?;
        Some(match missing.len() {
            1 => first.clone(),
            n => format!("{first} (as {} more)", n - 1),
        })
    }

    fn open_unit(
        &self,
        place: &Place,
        load: &SplitDwarfLoad<DwarfReader<'a>>,
    ) -> Option<Arc<Dwarf<'a>>> {
        let object = self.memory.open(self.opener, place)?;
        let mut dwarf = Dwarf::load(|id| self.memory.section(&object, id.dwo_name())).ok()?;
        let header = dwarf.units().next().ok()??;
        // In DWARF 4 the ID is an attribute of the unit's first entry.
        if dwarf.unit(header).ok()?.dwo_id != Some(load.dwo_id) {
            return None;
        }
        dwarf.make_dwo(&load.parent);
        Some(Arc::new(dwarf))
    }

    fn push(&self, address: u64, resolved: &mut AddressFrames) -> gimli::Result<()> {
        for (load, found) in self.context.preload_units(address) {
            found(self.load(load))?;
        }
        let LookupResult::Output(frames) = self.context.find_frames(address) else {
            resolved.push([]);
            return Ok(());
        };
        let mut frames = frames?;
        let mut out = Vec::new();
        while let Some(frame) = frames.next()? {
            let Some(function) = frame.function else { continue };
            let name = resolved.strings.intern(&function.raw_name()?);
            let at = frame.location.as_ref();
            let file = at.and_then(|at| at.file).map(|file| placeholder(file).unwrap_or(file));
            out.push(SymbolFrame {
                name,
                system_name: name,
                file: file.map_or(StrId::EMPTY, |file| resolved.strings.intern(file)),
                line: at.and_then(|at| at.line).unwrap_or(0),
                column: at.and_then(|at| at.column).unwrap_or(0),
            });
        }
        if !self.options.inlines && out.len() > 1 {
            let first = out[0];
            let last = out[out.len() - 1];
            let whole = SymbolFrame { name: last.name, system_name: last.system_name, ..first };
            out = vec![whole];
        }
        resolved.push(out);
        Ok(())
    }
}

impl SectionMemory {
    /// The ELF file at this place, if it is below the limit.
    fn open(
        &self,
        opener: &dyn Opener,
        place: &Place,
    ) -> Option<object::File<'_, &ReadCache<File>>> {
        self.names.set(self.names.get().checked_sub(1)?);
        self.parse(&opener.open(place).ok()?)
    }

    /// An ELF file, if it is below the limit.
    pub(super) fn parse(&self, file: &File) -> Option<object::File<'_, &ReadCache<File>>> {
        file.metadata().ok().filter(|m| m.len() <= MAX_BYTES)?;
        let cache = self.files.alloc(ReadCache::new(file.try_clone().ok()?));
        object::File::parse(&*cache).ok()
    }

    /// A section, unpacked; empty if there is none.
    pub(super) fn section<'a>(
        &'a self,
        object: &object::File<'a, &'a ReadCache<File>>,
        name: Option<&str>,
    ) -> gimli::Result<DwarfReader<'a>> {
        let data = match name.and_then(|name| object.section_by_name(name)) {
            Some(section) => section.compressed_data().ok().and_then(|packed| {
                // The size in a damaged header is not trusted.
                self.left.set(self.left.get().checked_sub(packed.uncompressed_size)?);
                Some(match packed.decompress().ok()? {
                    std::borrow::Cow::Borrowed(data) => data,
                    std::borrow::Cow::Owned(data) => self.unpacked.alloc(data).as_slice(),
                })
            }),
            None => Some(&[][..]),
        };
        let data = data.ok_or(gimli::Error::Io)?;
        Ok(EndianSlice::new(data, endian_of(object)))
    }
}

fn endian_of<'a>(object: &impl Object<'a>) -> RunTimeEndian {
    if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big }
}
