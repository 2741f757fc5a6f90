//! Groups the locations of a profile by the source of their names.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, UNIX_EPOCH};

use rustc_hash::FxHashMap;

use profile::{Cause, LocationId, Mapping, MappingId, Profile, StrId};
use sys::foreign;
use sys::jit::file_names::{is_compilers_file, number_of_dump};
use sys::jit::{Epoch, Span};

use super::cache_key;
use crate::SymbolOptions;
use crate::cache::CacheKey;
use crate::encoded_frames::EncodedFrames;
use crate::kernel::{self, RunningKernel};
use crate::opener::DirectOpener;
use crate::run_time::RunTime;
use crate::source::{self, Access, Layer, SymbolFiles};
use crate::vdso::Vdso;

/// First address of the kernel's half.
const KERNEL: u64 = 1 << 63;

/// Locations of one binary, which are resolved together.
pub struct AddressGroup {
    pub mappings: Vec<MappingId>,
    /// Address to resolve and location, sorted.
    pub requested: Vec<(u64, LocationId)>,
    /// Cause for addresses without a result.
    pub missing_cause: Cause,
    /// True if any result arrived.
    pub has_result: bool,
    pub with_lines: bool,
    /// Cause of incomplete input.
    pub incomplete: Option<Cause>,
    pub kept: Option<CachedGroup>,
}

/// Cache data of a group whose results can be cached.
pub struct CachedGroup {
    /// Key of the results.
    pub key: CacheKey,
    /// The files that have them; `None`: the running kernel.
    pub found: Option<SymbolFiles>,
    /// Results of an earlier recording.
    pub stored: Option<EncodedFrames>,
}

/// Source of the names of a group.
pub enum NameSource {
    /// The files, and the way to open further ones.
    Elf(Vec<Layer>, DirectOpener),
    Kernel(RunningKernel),
    Vdso(Vdso, String),
    RunTime(RunTime),
    Nothing(Cause),
}

/// Groups mappings of the same file: its symbols are parsed once.
pub fn groups(
    profile: &Profile,
    options: &SymbolOptions,
    requested: &[Vec<LocationId>],
    until: Instant,
) -> (Vec<AddressGroup>, Vec<NameSource>) {
    let mut grouping = Grouping { at_any_time: options.at_any_time, ..Grouping::default() };
    let mut by_file = FxHashMap::default();
    for (id, mapping) in (0..).map(MappingId).zip(&profile.mappings) {
        let locations = &requested[id.0 as usize];
        if locations.is_empty() {
            continue;
        }
        let root = options.roots.get(&id.0);
        let file = options.files.get(&id.0).map(|p| p.as_path());
        let access = Access { file, root };
        let epoch = options.run_time.get(&id.0);
        let sources_of = |epoch: &Arc<Epoch>| Arc::as_ptr(&epoch.sources);
        let changed = options.changed.contains(&id.0);
        let source = (epoch.map(sources_of), root.map(Arc::as_ptr));
        let key = (mapping.file, mapping.build_id, file, changed, source);
        let group = *by_file.entry(key).or_insert_with(|| {
            let (source, files) = match epoch {
                _ if options.stop.load(Ordering::Relaxed) => {
                    (NameSource::Nothing(Cause::Interrupted), None)
                }
                _ if Instant::now() > until => (NameSource::Nothing(Cause::NoTimeLeft), None),
                _ if changed => (NameSource::Nothing(Cause::Changed), None),
                Some(epoch) => (NameSource::RunTime(RunTime::new(epoch.sources.clone())), None),
                None => open(profile, mapping, access, options),
            };
            grouping.add_group(source, files)
        });
        grouping.groups[group].mappings.push(id);
        grouping.add_locations(group, profile, mapping, epoch, locations);
    }
    grouping.finish(options)
}

/// Groups that are being filled.
#[derive(Default)]
struct Grouping {
    groups: Vec<AddressGroup>,
    /// Source of each group.
    sources: Vec<NameSource>,
    /// ELF files of each group.
    files: Vec<Option<SymbolFiles>>,
    /// See [`SymbolOptions::at_any_time`].
    at_any_time: bool,
}

impl Grouping {
    /// Adds an empty group; returns its index.
    fn add_group(&mut self, source: NameSource, files: Option<SymbolFiles>) -> usize {
        let missing_cause = match (&source, &files) {
            (NameSource::Nothing(why), _) => why.clone(),
            (_, Some(files)) if files.stripped => files.flaw.clone().unwrap_or(Cause::Stripped),
            _ => Cause::NoSymbol,
        };
        self.groups.push(AddressGroup {
            mappings: Vec::new(),
            requested: Vec::new(),
            missing_cause,
            has_result: false,
            with_lines: false,
            incomplete: files.as_ref().and_then(|files| files.flaw.clone()),
            kept: None,
        });
        self.sources.push(source);
        self.files.push(files);
        self.groups.len() - 1
    }

    /// Adds locations of a mapping to its group.
    fn add_locations(
        &mut self,
        group: usize,
        profile: &Profile,
        mapping: &Mapping,
        epoch: Option<&Arc<Epoch>>,
        locations: &[LocationId],
    ) {
        let files = self.files[group].as_ref();
        // An earlier recording has no times; if it has several mappings of one file, its addresses
        // represent different code at different times.
        let once = || {
            count(profile, mapping.file) == 1
                && number_of_dump(profile.str(mapping.file).as_bytes()).is_none()
        };
        let made_before = matches!(self.sources[group], NameSource::RunTime(_)) && epoch.is_none();
        let whenever =
            if made_before && !self.at_any_time && once() { Span::END } else { Span::UNKNOWN };
        for &location in locations {
            let address = profile.locations[location.0 as usize].address;
            let span = epoch.and_then(|epoch| epoch.spans.get(&address).copied());
            let span = span.unwrap_or(whenever);
            let at = source_address(&mut self.sources[group], files, mapping, address, span);
            self.groups[group].requested.extend(at.map(|at| (at, location)));
        }
    }

    /// Sorts the locations and reads the cache.
    fn finish(mut self, options: &SymbolOptions) -> (Vec<AddressGroup>, Vec<NameSource>) {
        let origins = self.files.iter().zip(&self.sources);
        for (group, (files, source)) in self.groups.iter_mut().zip(origins) {
            group.requested.sort_unstable();
            if files.is_some() || matches!(source, NameSource::Kernel(_)) {
                group.kept = kept(group, files.as_ref(), options);
            }
        }
        (self.groups, self.sources)
    }
}

/// Key of the results from these files, or from the running kernel.
pub fn key_of(found: Option<&SymbolFiles>, options: &SymbolOptions) -> Option<CacheKey> {
    found.map_or_else(cache_key::for_kernel, |found| cache_key::for_files(found, options))
}

/// Cache data for the group.
fn kept(
    group: &AddressGroup,
    found: Option<&SymbolFiles>,
    options: &SymbolOptions,
) -> Option<CachedGroup> {
    let cache = options.cache.as_ref()?;
    if group.requested.is_empty() {
        return None;
    }
    let key = key_of(found, options)?;
    let stored = cache.load(&key);
    Some(CachedGroup { key, found: found.cloned(), stored })
}

/// The address in the form that the source expects.
fn source_address(
    source: &mut NameSource,
    found: Option<&SymbolFiles>,
    mapping: &Mapping,
    address: u64,
    span: Span,
) -> Option<u64> {
    match source {
        NameSource::Elf(..) => Some(found?.file_address(address, mapping)?.0),
        NameSource::Vdso(..) => {
            address.checked_sub(mapping.start)?.checked_add(mapping.file_offset)
        }
        NameSource::Kernel(_) => Some(address),
        NameSource::RunTime(code) => Some(code.add(address, span)),
        NameSource::Nothing(_) => None,
    }
}

fn open(
    profile: &Profile,
    mapping: &Mapping,
    access: Access<'_>,
    options: &SymbolOptions,
) -> (NameSource, Option<SymbolFiles>) {
    let file = profile.str(mapping.file);
    let build_id = profile.str(mapping.build_id);
    let instead = access.file;
    let simple =
        |source: Result<NameSource, Cause>| (source.unwrap_or_else(NameSource::Nothing), None);
    if file.starts_with("[kernel") || mapping.start >= KERNEL {
        let same = kernel::check_same(file, build_id, profile.time_nanos);
        simple(same.map(|()| NameSource::Kernel(RunningKernel::new(options.kernel.clone()))))
    } else if file == "[vdso]" {
        simple(Vdso::running().map(|v| NameSource::Vdso(v, build_id.to_owned())))
    } else if is_compilers_file(file) {
        let end = end_of(profile);
        simple(RunTime::open(instead.unwrap_or(Path::new(file)), end).map(NameSource::RunTime))
    } else if instead.is_none() && is_anonymous(file) {
        simple(Err(Cause::Anonymous))
    } else if build_id.is_empty() && changed_after(profile, file, instead) {
        simple(Err(Cause::Changed))
    } else {
        match source::find(file, build_id, access, options) {
            Ok(found) => {
                let opener = DirectOpener { root: access.root.cloned() };
                (NameSource::Elf(found.layers.clone(), opener), Some(found))
            }
            Err(why) => simple(Err(why)),
        }
    }
}

/// The end of the recording, in nanoseconds since the Unix epoch; 0 if its start is not known.
fn end_of(profile: &Profile) -> i64 {
    match profile.time_nanos {
        0 => 0,
        start => start.saturating_add(profile.duration_nanos),
    }
}

/// True if the file was written to after the recording had ended, or replaced by another, which may
/// be older.
fn changed_after(profile: &Profile, file: &str, instead: Option<&Path>) -> bool {
    let end = end_of(profile);
    let now = instead.map_or_else(|| foreign::resolve(Path::new(file)), foreign::resolve_link);
    let Ok(now) = now.map(|found| found.metadata) else { return false };
    let nanos = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
    let written = nanos(now.mtime(), now.mtime_nsec());
    // `rename` and `link` change a file's status time; a file that was opened during the recording
    // is unaffected. perf links each binary that it records into a directory of its own: such a file
    // is another one if it was created since.
    let created = now.created().ok().filter(|_| now.nlink() > 1);
    let created = created.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let moved = match created {
        Some(time) => i128::try_from(time.as_nanos()).unwrap_or(i128::MAX),
        None => nanos(now.ctime(), now.ctime_nsec()),
    };
    let changed = if instead.is_some() { written } else { written.max(moved) };
    end > 0 && changed > i128::from(end)
}

/// Number of mappings of this file.
fn count(profile: &Profile, file: StrId) -> usize {
    profile.mappings.iter().filter(|m| m.file == file).count()
}

fn is_anonymous(file: &str) -> bool {
    let starts = ["[", "//", "/memfd:", "/SYSV", "/dev/zero", "anon_inode:"];
    file.is_empty() || starts.iter().any(|s| file.starts_with(s))
}
