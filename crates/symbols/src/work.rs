//! Sorts a profile's addresses by binary, shares them out to threads and writes the answers.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use profile::{LocationId, Mapping, MappingId, Profile, StrId};
use sys::jit::file_names::{is_compilers_file, number_of_dump};

use super::answers::{Answers, FunctionIndex, StoredWriter, Unwritten};
use super::cache::{Key, Merged, Stored};
use super::kernel::{self, Kallsyms};
use super::run_time::{MAX_OF_ALL, Report, RunTime};
use super::source::{self, Found, Layer};
use super::vdso::Vdso;
use super::worker::{Limits, Worker};
use super::{Binary, Options, Outcome, demangle, elf, shares};
use profile::Cause;
use sys::foreign;
use sys::jit::{Epoch, Span};

/// First address of the kernel's half.
const KERNEL: u64 = 1 << 63;

/// Time for the names of all binaries together.
const TIME: Duration = Duration::from_secs(600);

/// Debug information nests deeply, and so do its parsers.
pub const STACK: usize = 8 << 20;

/// Locations of one binary, to be asked in one go.
struct Group {
    mappings: Vec<MappingId>,
    /// Address to ask for and location, sorted.
    asked: Vec<(u64, LocationId)>,
    /// What to say of addresses that are asked in vain.
    in_vain: Cause,
    /// Answers came, whatever they say.
    answered: bool,
    with_lines: bool,
    /// What could not be read of its files, if something.
    doubt: Option<Cause>,
    kept: Option<Kept>,
}

/// What the cache has to do with a group whose answers can be kept.
struct Kept {
    /// What the answers depend on.
    key: Key,
    found: Found,
    /// Answers of an earlier recording.
    stored: Option<Stored>,
}

enum Source {
    Elf(Vec<Layer>),
    Kernel(Kallsyms),
    Vdso(Vdso, String),
    RunTime(RunTime),
    Nothing(Cause),
}

/// Some of a group's addresses, which are distinct and ascend.
struct Task {
    group: usize,
    addresses: Vec<u64>,
}

/// See [`super::symbolize`].
pub fn symbolize(
    profile: &mut Profile,
    options: &Options,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Outcome {
    let until = Instant::now() + TIME;
    let (asked, homeless) = asked_by_mapping(profile, options);
    let (mut groups, sources) = groups(profile, options, &asked, until);
    let tasks = tasks(&groups, &sources, options.jobs.max(1));
    let answers = run(&sources, &tasks, options, until, progress);
    let all: Vec<(Task, Answered)> = tasks.into_iter().zip(answers).collect();
    let mut functions = FunctionIndex::new(profile);
    for (i, group) in groups.iter_mut().enumerate() {
        let first = all.partition_point(|(task, _)| task.group < i);
        let end = all.partition_point(|(task, _)| task.group <= i);
        write(profile, &mut functions, group, &all[first..end]);
        keep(group, &all[first..end], options);
    }
    set_flags(profile, options, &groups);
    let outcome = outcome(profile, &groups, &sources, &asked, homeless);
    for (group, source) in groups.iter().zip(&sources) {
        if let Source::Kernel(kallsyms) = source {
            tell_modules_apart(profile, kallsyms, &group.asked);
        }
    }
    let mut troubles = options.debuginfod.as_ref().map_or_else(Vec::new, |d| d.troubles());
    troubles.extend(options.cache.iter().flat_map(|cache| cache.troubles()));
    let refused = if options.demangle { demangle::refused(profile) } else { 0 };
    if refused > 0 {
        let s = if refused == 1 { " is" } else { "s are" };
        troubles.push(format!("{refused} name{s} left mangled: demangled, they would be too long"));
    }
    Outcome { troubles, ..outcome }
}

/// Locations to ask for, by mapping, and the number of those without any.
fn asked_by_mapping(profile: &Profile, options: &Options) -> (Vec<Vec<LocationId>>, usize) {
    let mut asked = vec![Vec::new(); profile.mappings.len()];
    let mut homeless = 0;
    for (id, location) in (0..).map(LocationId).zip(&profile.locations) {
        if location.line_count > 0 && !options.force {
            continue;
        }
        match location.mapping {
            Some(mapping) => asked[mapping.0 as usize].push(id),
            None => homeless += usize::from(location.line_count == 0),
        }
    }
    (asked, homeless)
}

/// Mappings of the same file are asked together: its symbols are parsed once.
fn groups(
    profile: &Profile,
    options: &Options,
    asked: &[Vec<LocationId>],
    until: Instant,
) -> (Vec<Group>, Vec<Source>) {
    let mut groups: Vec<Group> = Vec::new();
    let mut sources = Vec::new();
    let mut found_files = Vec::new();
    let mut known = FxHashMap::default();
    for (id, mapping) in (0..).map(MappingId).zip(&profile.mappings) {
        if asked[id.0 as usize].is_empty() {
            continue;
        }
        let instead = options.files.get(&id.0).map(|p| p.as_path());
        let epoch = options.run_time.get(&id.0);
        let sources_of = |epoch: &Arc<Epoch>| Arc::as_ptr(&epoch.sources);
        let changed = options.changed.contains(&id.0);
        let key = (mapping.file, mapping.build_id, instead, changed, epoch.map(sources_of));
        let group = *known.entry(key).or_insert_with(|| {
            let (source, found) = match epoch {
                _ if options.stop.load(Ordering::Relaxed) => {
                    (Source::Nothing(Cause::Interrupted), None)
                }
                _ if Instant::now() > until => (Source::Nothing(Cause::NoTimeLeft), None),
                _ if changed => (Source::Nothing(Cause::Changed), None),
                Some(epoch) => (Source::RunTime(RunTime::new(epoch.sources.clone())), None),
                None => open(profile, mapping, instead, options),
            };
            let in_vain = match (&source, &found) {
                (Source::Nothing(why), _) => why.clone(),
                (_, Some(found)) if found.stripped => found.flaw.clone().unwrap_or(Cause::Stripped),
                _ => Cause::NoSymbol,
            };
            let (mappings, asked) = (Vec::new(), Vec::new());
            let (answered, with_lines, kept) = (false, false, None);
            groups.push(Group {
                mappings,
                asked,
                in_vain,
                answered,
                with_lines,
                doubt: found.as_ref().and_then(|found: &Found| found.flaw.clone()),
                kept,
            });
            sources.push(source);
            found_files.push(found);
            groups.len() - 1
        });
        groups[group].mappings.push(id);
        let found = found_files[group].as_ref();
        // Of a recording made before, nothing is known of when; but where it has several
        // mappings of one file, its addresses stand for different code at different times.
        let once = || {
            count(profile, mapping.file) == 1
                && number_of_dump(profile.str(mapping.file).as_bytes()).is_none()
        };
        let made_before = matches!(sources[group], Source::RunTime(_)) && epoch.is_none();
        let whenever = if made_before && once() { Span::END } else { Span::UNKNOWN };
        for &location in &asked[id.0 as usize] {
            let address = profile.locations[location.0 as usize].address;
            let span = epoch.and_then(|epoch| epoch.spans.get(&address).copied());
            let span = span.unwrap_or(whenever);
            let ask = ask(&mut sources[group], found, mapping, address, span);
            groups[group].asked.extend(ask.map(|ask| (ask, location)));
        }
    }
    for (group, found) in groups.iter_mut().zip(&found_files) {
        group.asked.sort_unstable();
        group.kept = kept(group, found.as_ref(), options);
    }
    (groups, sources)
}

/// What the cache has for the group.
fn kept(group: &Group, found: Option<&Found>, options: &Options) -> Option<Kept> {
    let (cache, found) = (options.cache.as_ref()?, found?);
    if group.asked.is_empty() {
        return None;
    }
    let key = Key::of(found, options)?;
    let stored = cache.load(&key);
    Some(Kept { key, found: found.clone(), stored })
}

/// The address in the terms of the source.
fn ask(
    source: &mut Source,
    found: Option<&Found>,
    mapping: &Mapping,
    address: u64,
    span: Span,
) -> Option<u64> {
    match source {
        Source::Elf(_) => found?.link_address(address, mapping.start, mapping.file_offset),
        Source::Vdso(..) => address.checked_sub(mapping.start)?.checked_add(mapping.file_offset),
        Source::Kernel(_) => Some(address),
        Source::RunTime(code) => Some(code.ask(address, span)),
        Source::Nothing(_) => None,
    }
}

fn open(
    profile: &Profile,
    mapping: &Mapping,
    instead: Option<&Path>,
    options: &Options,
) -> (Source, Option<Found>) {
    let (file, build_id) = (profile.str(mapping.file), profile.str(mapping.build_id));
    let simple = |source: Result<Source, Cause>| (source.unwrap_or_else(Source::Nothing), None);
    if file.starts_with("[kernel") || mapping.start >= KERNEL {
        let same = kernel::check_same(file, build_id, profile.time_nanos);
        simple(same.and_then(|()| Kallsyms::of_this_kernel()).map(Source::Kernel))
    } else if file == "[vdso]" {
        simple(Vdso::of_this_kernel().map(|v| Source::Vdso(v, build_id.to_owned())))
    } else if is_compilers_file(file) {
        let end = profile.time_nanos.saturating_add(profile.duration_nanos);
        simple(RunTime::open(instead.unwrap_or(Path::new(file)), end).map(Source::RunTime))
    } else if instead.is_none() && is_anonymous(file) {
        simple(Err(Cause::Anonymous))
    } else if build_id.is_empty() && changed_after(profile, file, instead) {
        simple(Err(Cause::Changed))
    } else {
        match source::find(file, build_id, instead, options) {
            Ok(found) => (Source::Elf(found.layers.clone()), Some(found)),
            Err(why) => simple(Err(why)),
        }
    }
}

/// The file was written to after the recording had ended, or another has come to its place, which
/// may be older.
fn changed_after(profile: &Profile, file: &str, instead: Option<&Path>) -> bool {
    let end = profile.time_nanos.saturating_add(profile.duration_nanos);
    let now = instead.map_or_else(|| foreign::resolve(Path::new(file)), foreign::resolve_link);
    let Ok(now) = now.map(|found| found.metadata) else { return false };
    let nanos = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
    let written = nanos(now.mtime(), now.mtime_nsec());
    // `rename` and `link` change a file's status; what was opened while it ran is that file.
    let moved = nanos(now.ctime(), now.ctime_nsec());
    let changed = if instead.is_some() { written } else { written.max(moved) };
    end > 0 && changed > i128::from(end)
}

/// How many mappings have this file.
fn count(profile: &Profile, file: StrId) -> usize {
    profile.mappings.iter().filter(|m| m.file == file).count()
}

fn is_anonymous(file: &str) -> bool {
    let starts = ["[", "//", "/memfd:", "/SYSV", "/dev/zero", "anon_inode:"];
    file.is_empty() || starts.iter().any(|s| file.starts_with(s))
}

/// What the cache does not know, in shares.
fn tasks(groups: &[Group], sources: &[Source], jobs: usize) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (group, Group { asked, kept, .. }) in groups.iter().enumerate() {
        let mut addresses: Vec<u64> = asked.iter().map(|a| a.0).collect();
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
            Source::Elf(layers) => shares::of(layers, addresses, jobs),
            _ => vec![addresses],
        };
        tasks.extend(shares.into_iter().map(|addresses| Task { group, addresses }));
    }
    tasks
}

type Answered = Result<Answers, Cause>;

/// Answers of all tasks, in their order, whatever the number of threads.
fn run(
    sources: &[Source],
    tasks: &[Task],
    options: &Options,
    until: Instant,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Vec<Answered> {
    let total = tasks.iter().map(|t| t.addresses.len()).sum();
    let count = AtomicUsize::new(0);
    let done = |n: usize| progress(count.fetch_add(n, Ordering::Relaxed) + n, total);
    // The longest first, so that no thread is left with it at the end.
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(tasks[i].addresses.len()));
    let next = AtomicUsize::new(0);
    let answers: Vec<Mutex<Option<Answered>>> = tasks.iter().map(|_| Mutex::default()).collect();
    let limits = options.apart.then(|| Limits::of_this_machine(until));
    let jobs = limits.map_or(options.jobs, |limits| options.jobs.min(limits.count));
    let run_time = AtomicU64::new(MAX_OF_ALL);
    let work = || {
        let mut worker = limits.map(Worker::new);
        while let Some(&i) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (source, addresses) = (&sources[tasks[i].group], &tasks[i].addresses);
            let answer = if options.stop.load(Ordering::Relaxed) {
                Err(Cause::Interrupted)
            } else if Instant::now() > until {
                Err(Cause::NoTimeLeft)
            } else {
                answer(source, addresses, options, &mut worker, &run_time, &done)
            };
            *answers[i].lock().unwrap_or_else(|e| e.into_inner()) = Some(answer);
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, tasks.len().max(1)) {
            let thread = thread::Builder::new().name("symbolize".into()).stack_size(STACK);
            if thread.spawn_scoped(scope, work).is_err() {
                // No thread to be had: this one does it.
                work();
            }
        }
    });
    answers
        .into_iter()
        .map(|a| a.into_inner().unwrap_or_else(|e| e.into_inner()))
        .map(|a| a.unwrap_or_else(|| Err(Cause::Damaged("its symbols cannot be parsed".into()))))
        .collect()
}

fn answer(
    source: &Source,
    addresses: &[u64],
    options: &Options,
    worker: &mut Option<Worker>,
    run_time: &AtomicU64,
    done: &dyn Fn(usize),
) -> Answered {
    let answers = match (source, worker) {
        (Source::Elf(layers), Some(worker)) => {
            return worker.resolve(layers, addresses, options, done);
        }
        (Source::Elf(layers), None) => return elf::resolve(layers, addresses, options, done),
        (Source::Kernel(kallsyms), _) => Ok(kallsyms.resolve(addresses)),
        (Source::Vdso(vdso, build_id), _) => vdso.resolve(build_id, addresses),
        (Source::RunTime(code), _) => Ok(code.resolve(addresses, options.demangle, run_time)),
        (Source::Nothing(why), _) => Err(why.clone()),
    };
    done(addresses.len());
    answers
}

/// Gives the group's locations their frames, from the cache or from the answers of its tasks. In
/// the order of the addresses, so that it makes no difference which of them it is.
fn write(
    profile: &mut Profile,
    functions: &mut FunctionIndex,
    group: &mut Group,
    tasks: &[(Task, Answered)],
) {
    let stored = group.kept.as_ref().and_then(|kept| kept.stored.as_ref());
    let mut stored =
        stored.map(|stored| StoredWriter::new(stored, group.asked.len(), profile, functions));
    group.answered = stored.is_some() && tasks.is_empty();
    for (_, answers) in tasks {
        match answers {
            Ok(answers) => {
                group.answered = true;
                group.doubt = answers.doubt.clone().or_else(|| group.doubt.take());
            }
            Err(why) => group.in_vain = why.clone(),
        }
    }
    let mut done: Vec<Unwritten> = tasks
        .iter()
        .map(|(task, answers)| Unwritten::new(&task.addresses, answers.as_ref().ok()))
        .collect();
    for &(address, location) in &group.asked {
        let found = done.iter_mut().find_map(|task| Some((task.index_of(address)?, task)));
        group.with_lines |= match (found, &mut stored) {
            (Some((index, task)), _) => task.write(profile, functions, location, index),
            (None, Some(stored)) => stored.write(profile, functions, location, address),
            (None, None) => false,
        };
    }
}

/// Keeps what the tasks found for the next recording, if nothing was wrong with their sources.
fn keep(group: &Group, tasks: &[(Task, Answered)], options: &Options) {
    let (Some(cache), Some(Kept { key, found, stored })) = (&options.cache, &group.kept) else {
        return;
    };
    let good = |(_, answers): &(Task, Answered)| answers.as_ref().is_ok_and(|a| a.doubt.is_none());
    // The files must still be those that the key is made of.
    if tasks.is_empty() || !tasks.iter().all(good) || Key::of(found, options).as_ref() != Some(key)
    {
        return;
    }
    let mut merged = Merged::new(stored.as_ref());
    for (task, answers) in tasks {
        if let Ok(answers) = answers {
            merged.add(&task.addresses, answers);
        }
    }
    cache.store(key, &merged);
}

/// Modules and BPF programs are binaries of their own, which are called `[NAME]` as perf does.
fn tell_modules_apart(profile: &mut Profile, kallsyms: &Kallsyms, asked: &[(u64, LocationId)]) {
    let mut mappings = FxHashMap::default();
    for &(address, location) in asked {
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
        // The addresses come sorted.
        profile.mappings[id.0 as usize].limit = address + 1;
        profile.locations[location.0 as usize].mapping = Some(id);
    }
}

/// Tells other readers what need not be looked up again.
fn set_flags(profile: &mut Profile, options: &Options, groups: &[Group]) {
    for group in groups {
        for id in &group.mappings {
            let mapping = &mut profile.mappings[id.0 as usize];
            mapping.has_functions |= group.answered || group.in_vain == Cause::Anonymous;
            mapping.has_filenames |= group.with_lines;
            mapping.has_line_numbers |= group.with_lines;
            mapping.has_inline_frames |= group.with_lines && options.inlines;
        }
    }
}

fn outcome(
    profile: &Profile,
    groups: &[Group],
    sources: &[Source],
    asked: &[Vec<LocationId>],
    homeless: usize,
) -> Outcome {
    let mut binaries = Vec::new();
    for (group, source) in groups.iter().zip(sources) {
        let report = match source {
            Source::RunTime(code) => code.report(),
            _ => Report::default(),
        };
        let reused = (report.reused > 0).then_some(Cause::Reused);
        // Where nothing else is known, what is wrong with the debug information is the reason.
        let in_vain = match &group.doubt {
            Some(doubt) if group.in_vain == Cause::NoSymbol || group.in_vain == Cause::Stripped => {
                doubt
            }
            _ => &group.in_vain,
        };
        let in_vain = report.trouble.or(reused).unwrap_or_else(|| in_vain.clone());
        for &mapping in &group.mappings {
            let asked = &asked[mapping.0 as usize];
            let named = asked.iter().filter(|&&l| !profile.lines_of(l).is_empty()).count();
            let line = |l: &&LocationId| profile.lines_of(**l).iter().any(|l| l.line > 0);
            binaries.push(Binary {
                mapping,
                file: profile.str(profile.mappings[mapping.0 as usize].file).to_owned(),
                asked: asked.len(),
                named,
                with_line: asked.iter().filter(line).count(),
                why: (named < asked.len()).then(|| in_vain.clone()),
                damage: group.doubt.clone(),
                bad_lines: report.bad_lines,
            });
        }
    }
    binaries.sort_by_key(|b| b.mapping);
    Outcome { binaries, homeless, ..Outcome::default() }
}
