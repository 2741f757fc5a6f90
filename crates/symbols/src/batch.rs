//! Sorts a profile's addresses by binary, divides them among threads and writes the results.

mod cache_key;
mod groups;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use groups::{AddressGroup, CachedGroup, NameSource, groups};
use profile::{Cause, LocationId, Mapping, MappingId, Profile, StrId};
use sys::os;

use super::encoded_frames::{FrameEncoder, Resolved};
use super::frame_writer::{FrameWriter, FunctionIndex};
use super::kernel::{self, Kallsyms};
use super::pace::Pace;
use super::run_time::{MAX_OF_ALL, Report};
use super::worker::{Worker, WorkerLimits};
use super::{BinaryOutcome, Outcome, SymbolOptions, demangle, elf, partition};

/// Time limit for the names of all binaries together.
const TIME: Duration = Duration::from_secs(600);

/// The same beside a recording, which a lookup waits for.
const TIME_WITH_PAUSES: Duration = Duration::from_secs(24 * 3600);

/// Some of a group's addresses, which are distinct and ascend.
struct Task {
    group: usize,
    addresses: Vec<u64>,
}

/// See [`super::symbolize`].
pub fn symbolize(
    profile: &mut Profile,
    options: &SymbolOptions,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Outcome {
    let time = if options.allowance.is_some() { TIME_WITH_PAUSES } else { TIME };
    let until = Instant::now() + time;
    let mut pace = Pace::begin(options);
    let (requested, without_mapping) = requested_by_mapping(profile, options);
    let mut binaries = Vec::new();
    let mut kernels = Vec::new();
    let mut functions = FunctionIndex::new(profile);
    let before = AtomicUsize::new(0);
    let mappings = requested.len();
    for round in rounds(profile, requested, files_at_once(options)) {
        let mut requested = vec![Vec::new(); mappings];
        round.into_iter().for_each(|(mapping, locations)| requested[mapping] = locations);
        pace.wait();
        let (mut groups, sources) = groups(profile, options, &requested, until);
        let tasks = tasks(&groups, &sources, options.jobs.max(1));
        let earlier = before.load(Ordering::Relaxed);
        let all_progress = |done, total| {
            before.fetch_max(earlier + done, Ordering::Relaxed);
            progress(earlier + done, earlier + total);
        };
        let resolved = run(&sources, &tasks, options, until, &all_progress);
        let all: Vec<(Task, TaskResult)> = tasks.into_iter().zip(resolved).collect();
        for (i, group) in groups.iter_mut().enumerate() {
            let first = all.partition_point(|(task, _)| task.group < i);
            let end = all.partition_point(|(task, _)| task.group <= i);
            write(profile, &mut functions, group, &all[first..end]);
            keep(group, &sources[i], &all[first..end], options);
        }
        set_flags(profile, options, &groups);
        binaries.extend(outcomes(profile, &groups, &sources, &requested));
        kernels.extend(groups.into_iter().zip(sources).filter_map(
            |(group, source)| match source {
                NameSource::Kernel(kernel) => Some((kernel, group.requested)),
                _ => None,
            },
        ));
    }
    binaries.sort_by_key(|binary| binary.mapping);
    for (kernel, requested) in &kernels {
        // Without them, all names are from the cache, which has none of modules.
        if let Some(kallsyms) = kernel.symbols_read() {
            split_modules(profile, kallsyms, requested);
        }
    }
    Outcome { binaries, without_mapping, errors: errors(profile, options) }
}

/// Errors of debuginfod servers, of the cache and of demangling, one sentence each.
fn errors(profile: &mut Profile, options: &SymbolOptions) -> Vec<String> {
    let mut errors = options.debuginfod.as_ref().map_or_else(Vec::new, |d| d.errors());
    errors.extend(options.cache.iter().flat_map(|cache| cache.errors()));
    let refused = if options.demangle { demangle::refused(profile) } else { 0 };
    if refused > 0 {
        let s = if refused == 1 { " is" } else { "s are" };
        errors.push(format!("{refused} name{s} left mangled: demangled, they would be too long"));
    }
    errors
}

/// Number of files whose symbols are read at once: by the descriptors that are left.
fn files_at_once(options: &SymbolOptions) -> usize {
    /// A binary, its debug file, what they share with others, and an unpacked part.
    const PER_FILE: usize = 4;
    /// Ends of the pipes and sockets between a thread and its worker.
    const PER_JOB: usize = 8;
    let spare = os::spare_files().saturating_sub(options.jobs * PER_JOB);
    (spare / PER_FILE).max(1)
}

/// Locations to resolve, with the index of their mapping.
type Round = Vec<(usize, Vec<LocationId>)>;

/// The locations to resolve by mapping, in parts of at most this many files; mappings of one file
/// stay together.
fn rounds(profile: &Profile, requested: Vec<Vec<LocationId>>, most: usize) -> Vec<Round> {
    let mut files: FxHashMap<StrId, usize> = FxHashMap::default();
    let mut rounds: Vec<Round> = Vec::new();
    for (i, locations) in requested.into_iter().enumerate().filter(|(_, all)| !all.is_empty()) {
        let next = files.len();
        let round = *files.entry(profile.mappings[i].file).or_insert(next) / most;
        rounds.resize(rounds.len().max(round + 1), Round::new());
        rounds[round].push((i, locations));
    }
    rounds
}

/// Locations to resolve, by mapping, and the number of those without any.
fn requested_by_mapping(
    profile: &Profile,
    options: &SymbolOptions,
) -> (Vec<Vec<LocationId>>, usize) {
    let mut requested = vec![Vec::new(); profile.mappings.len()];
    let mut without_mapping = 0;
    for (id, location) in (0..).map(LocationId).zip(&profile.locations) {
        if location.line_count > 0 && !options.force {
            continue;
        }
        match location.mapping {
            Some(mapping) => requested[mapping.0 as usize].push(id),
            None => without_mapping += usize::from(location.line_count == 0),
        }
    }
    (requested, without_mapping)
}

/// Addresses that are not cached, in shares.
fn tasks(groups: &[AddressGroup], sources: &[NameSource], jobs: usize) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (group, AddressGroup { requested, kept, .. }) in groups.iter().enumerate() {
        let mut addresses: Vec<u64> = requested.iter().map(|a| a.0).collect();
        addresses.dedup();
        if let Some(stored) = kept.as_ref().and_then(|kept| kept.stored.as_ref()) {
            let mut from = 0;
            addresses.retain(|&address| match stored.find(address, from) {
                Some(place) => {
                    from = place;
                    false
                }
                None => true,
            });
        }
        let shares = match &sources[group] {
            _ if addresses.is_empty() => Vec::new(),
            NameSource::Elf(layers, _) => partition::shares(layers, addresses, jobs),
            _ => vec![addresses],
        };
        tasks.extend(shares.into_iter().map(|addresses| Task { group, addresses }));
    }
    tasks
}

type TaskResult = Result<Resolved, Cause>;

/// Results of all tasks, in their order, for any number of threads.
fn run(
    sources: &[NameSource],
    tasks: &[Task],
    options: &SymbolOptions,
    until: Instant,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Vec<TaskResult> {
    let total = tasks.iter().map(|t| t.addresses.len()).sum();
    let count = AtomicUsize::new(0);
    let done = |n: usize| progress(count.fetch_add(n, Ordering::Relaxed) + n, total);
    // The longest first, so that no thread is left with it at the end.
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(tasks[i].addresses.len()));
    let next = AtomicUsize::new(0);
    let resolved: Vec<Mutex<Option<TaskResult>>> = tasks.iter().map(|_| Mutex::default()).collect();
    let limits = options.separate_process.then(|| WorkerLimits::for_this_machine(until));
    let jobs = limits.map_or(options.jobs, |limits| options.jobs.min(limits.count));
    let run_time = AtomicU64::new(MAX_OF_ALL);
    let work = || {
        let mut worker = limits.map(Worker::new);
        let mut pace = Pace::begin(options);
        while let Some(&i) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            pace.wait();
            let source = &sources[tasks[i].group];
            let addresses = &tasks[i].addresses;
            let result = if options.stop.load(Ordering::Relaxed) {
                Err(Cause::Interrupted)
            } else if Instant::now() > until {
                Err(Cause::NoTimeLeft)
            } else {
                resolve(source, addresses, options, &mut worker, &run_time, &mut pace, &done)
            };
            *resolved[i].lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, tasks.len().max(1)) {
            let thread = thread::Builder::new().name("symbolize".into()).stack_size(elf::STACK);
            if thread.spawn_scoped(scope, work).is_err() {
                // No further thread could be created: this one does the work.
                work();
            }
        }
    });
    resolved
        .into_iter()
        .map(|a| a.into_inner().unwrap_or_else(|e| e.into_inner()))
        .map(|a| a.unwrap_or_else(|| Err(Cause::Damaged("its symbols cannot be parsed".into()))))
        .collect()
}

fn resolve(
    source: &NameSource,
    addresses: &[u64],
    options: &SymbolOptions,
    worker: &mut Option<Worker>,
    run_time: &AtomicU64,
    pace: &mut Pace<'_>,
    done: &dyn Fn(usize),
) -> TaskResult {
    let resolved = match (source, worker) {
        (NameSource::Elf(layers, opener), Some(worker)) => {
            return worker.resolve(layers, addresses, options, opener, done);
        }
        (NameSource::Elf(layers, opener), None) => {
            let resolved = elf::resolve(layers, addresses, options, opener, done)?;
            return Resolved::new(addresses, resolved);
        }
        (NameSource::Kernel(kernel), _) => {
            kernel.symbols(addresses, pace).map(|kallsyms| kallsyms.resolve(addresses))
        }
        (NameSource::Vdso(vdso, build_id), _) => vdso.resolve(build_id, addresses),
        (NameSource::RunTime(code), _) => Ok(code.resolve(addresses, options.demangle, run_time)),
        (NameSource::Nothing(why), _) => Err(why.clone()),
    };
    done(addresses.len());
    Resolved::new(addresses, resolved?)
}

/// Writes the frames of the group's locations, from the cache or from the results of its tasks, in
/// the order of the addresses, so that the result does not depend on the source.
fn write(
    profile: &mut Profile,
    functions: &mut FunctionIndex,
    group: &mut AddressGroup,
    tasks: &[(Task, TaskResult)],
) {
    let stored = group.kept.as_ref().and_then(|kept| kept.stored.as_ref());
    group.has_result = stored.is_some() && tasks.is_empty();
    let mut encoded = Vec::new();
    for (task, resolved) in tasks {
        match resolved {
            Ok(resolved) => {
                group.has_result = true;
                group.incomplete = resolved.incomplete.clone().or_else(|| group.incomplete.take());
                encoded.push((&resolved.frames, task.addresses.len()));
            }
            Err(why) => group.missing_cause = why.clone(),
        }
    }
    encoded.extend(stored.map(|stored| (stored, group.requested.len())));
    let mut writers: Vec<FrameWriter> = encoded
        .into_iter()
        .map(|(frames, addresses)| FrameWriter::new(frames, addresses, profile, functions))
        .collect();
    for &(address, location) in &group.requested {
        let found = writers.iter_mut().find_map(|w| Some((w.index_of(address)?, w)));
        group.with_lines |=
            found.is_some_and(|(index, writer)| writer.write(profile, functions, location, index));
    }
}

/// Caches the results of the tasks for the next recording, if their sources were intact.
fn keep(
    group: &AddressGroup,
    source: &NameSource,
    tasks: &[(Task, TaskResult)],
    options: &SymbolOptions,
) {
    let (Some(cache), Some(CachedGroup { key, found, stored })) = (&options.cache, &group.kept)
    else {
        return;
    };
    let good = |(_, resolved): &(Task, TaskResult)| {
        resolved.as_ref().is_ok_and(|a| a.incomplete.is_none())
    };
    // The files must still be those of the key.
    if tasks.is_empty()
        || !tasks.iter().all(good)
        || groups::key_of(found.as_ref(), options).as_ref() != Some(key)
    {
        return;
    }
    let mut all = FrameEncoder::default();
    stored.iter().for_each(|stored| all.add_encoded(stored));
    for (task, resolved) in tasks {
        match (source, resolved) {
            // Modules and BPF programs come and go.
            (NameSource::Kernel(kernel), Ok(_)) => {
                let Some(kallsyms) = kernel.symbols_read() else { continue };
                let own = |address: &u64| {
                    kallsyms.function(*address).is_some_and(|f| f.module.is_empty())
                };
                let own: Vec<u64> = task.addresses.iter().copied().filter(own).collect();
                all.add_resolved(&own, &kallsyms.resolve(&own));
            }
            (_, Ok(resolved)) => all.add_encoded(&resolved.frames),
            (_, Err(_)) => {}
        }
    }
    cache.store(key, &all);
}

/// Gives modules and BPF programs separate mappings, named `[NAME]` as in perf.
fn split_modules(profile: &mut Profile, kallsyms: &Kallsyms, requested: &[(u64, LocationId)]) {
    let mut mappings = FxHashMap::default();
    for &(address, location) in requested {
        let Some(function) = kallsyms.function(address).filter(|f| !f.module.is_empty()) else {
            continue;
        };
        let id = *mappings.entry(function.module).or_insert_with(|| {
            let file = format!("[{}]", function.module);
            let build_id = kernel::running_build_id(&file);
            profile.mappings.push(Mapping {
                start: address,
                limit: address + 1,
                file: profile.strings.intern(&file),
                build_id: profile.strings.intern(&build_id),
                has_functions: true,
                ..Mapping::default()
            });
            MappingId(profile.mappings.len() as u32 - 1)
        });
        // The addresses are sorted.
        profile.mappings[id.0 as usize].limit = address + 1;
        profile.locations[location.0 as usize].mapping = Some(id);
    }
}

/// Sets the flags that mark resolved data for other readers.
fn set_flags(profile: &mut Profile, options: &SymbolOptions, groups: &[AddressGroup]) {
    for group in groups {
        for id in &group.mappings {
            let mapping = &mut profile.mappings[id.0 as usize];
            mapping.has_functions |= group.has_result || group.missing_cause == Cause::Anonymous;
            mapping.has_filenames |= group.with_lines;
            mapping.has_line_numbers |= group.with_lines;
            mapping.has_inline_frames |= group.with_lines && options.inlines;
        }
    }
}

fn outcomes(
    profile: &Profile,
    groups: &[AddressGroup],
    sources: &[NameSource],
    requested: &[Vec<LocationId>],
) -> Vec<BinaryOutcome> {
    let mut binaries = Vec::new();
    for (group, source) in groups.iter().zip(sources) {
        let report = match source {
            NameSource::RunTime(code) => code.report(),
            _ => Report::default(),
        };
        let reused = (report.reused > 0).then_some(Cause::Reused);
        // Without a more specific cause, damage of the debug information is the cause.
        let missing_cause = match &group.incomplete {
            Some(incomplete)
                if group.missing_cause == Cause::NoSymbol
                    || group.missing_cause == Cause::Stripped =>
            {
                incomplete
            }
            _ => &group.missing_cause,
        };
        let missing_cause = report.error.or(reused).unwrap_or_else(|| missing_cause.clone());
        for &mapping in &group.mappings {
            let requested = &requested[mapping.0 as usize];
            let named = requested.iter().filter(|&&l| !profile.lines_of(l).is_empty()).count();
            let line = |l: &&LocationId| profile.lines_of(**l).iter().any(|l| l.line > 0);
            binaries.push(BinaryOutcome {
                mapping,
                file: profile.str(profile.mappings[mapping.0 as usize].file).to_owned(),
                requested: requested.len(),
                named,
                with_line: requested.iter().filter(line).count(),
                why: (named < requested.len()).then(|| missing_cause.clone()),
                damage: group.incomplete.clone(),
                bad_lines: report.bad_lines,
            });
        }
    }
    binaries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_in_rounds_and_each_in_one() {
        let mut profile = Profile::default();
        for file in ["/a", "/b", "/a", "/c", "/d", "/b"] {
            let file = profile.strings.intern(file);
            profile.mappings.push(Mapping { file, ..Mapping::default() });
        }
        let mut requested: Vec<_> = (0..6).map(|i| vec![LocationId(i)]).collect();
        requested[3].clear();
        let mappings = |most| -> Vec<Vec<usize>> {
            let rounds = rounds(&profile, requested.clone(), most);
            rounds.iter().map(|round| round.iter().map(|&(mapping, _)| mapping).collect()).collect()
        };
        assert_eq!(mappings(1), [vec![0, 2], vec![1, 5], vec![4]]);
        assert_eq!(mappings(2), [vec![0, 1, 2, 5], vec![4]]);
        assert_eq!(mappings(100), [vec![0, 1, 2, 4, 5]]);
    }
}
