//! Symbolization of a recording. The recording is written first, and the user can end the lookup
//! at any time.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::output::Output;
use super::progress::Progress;
use super::record::{self, Recorded};
use crate::report::advice::interpreters::{self, HiddenFunctions, Unread};
use crate::report::locks::{self, LockWaits};
use crate::sampler::{Aggregated, Interrupts, Recording};
use formats::pprof;
use messages::Message;
use profile::{Cause, Diagnostics, Profile};
use symbols::{Outcome, SymbolOptions};
use sys::os;

/// Interval between checks whether the user ended the lookup.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Time for an ended lookup to return the names that it has.
const GRACE: Duration = Duration::from_millis(500);

/// Looks up the `names` of a recording if given, and adds the figures to the comments. This is the
/// order of all that happens between the last sample and the profile that a command writes:
///
/// 1. The recording is written to `output` without names if that is a file, so that it survives
///    whatever happens during the lookup.
/// 2. Names are looked up until the user ends that, and waits for locks are recognized by them.
/// 3. What has no name, and why, is added to the figures, with notes: they depend on the names.
/// 4. The figures become comments.
///
/// A profile is then written by [`record::write`].
///
/// # Errors
///
/// The recording cannot be written to `output`.
pub fn name(
    recording: Recording,
    names: Option<SymbolOptions>,
    interrupts: &Interrupts,
    progress: &Progress,
    output: Option<&mut Output>,
) -> anyhow::Result<Recorded> {
    let Recording { mut aggregated, mut diagnostics, notes, exit, running } = recording;
    diagnostics.notes = notes.all().map(Message::to_string).collect();
    progress.recorded();
    let (mut profile, status) = match names {
        Some(names) => {
            let bytes = without_names(&mut aggregated.profile, &diagnostics)?;
            let output = output
                .filter(|output| !(output.refuses_empty() && aggregated.profile.has_no_values()));
            let file = keep(&bytes, output, interrupts)?;
            let fetches = names.debuginfod.is_some();
            let named = look_up(aggregated, names, &bytes, interrupts, progress)?;
            let mut status = LookupStatus::new(&named, interrupts, file, fetches, &mut diagnostics);
            let unread: Vec<Unread> = notes.at_end.iter().filter_map(unread).collect();
            status.interpreter = interpreters::hidden_functions(&named.profile, &unread);
            status.notes.extend(status.interpreter.as_ref().map(HiddenFunctions::to_string));
            (named.profile, status)
        }
        None => {
            diagnostics.unsymbolized = symbols::unsymbolized(&aggregated.profile);
            (aggregated.profile, LookupStatus::default())
        }
    };
    progress.finish();
    interrupts.end_naming();
    diagnostics.notes.extend(status.notes.iter().cloned());
    (diagnostics.own_cpu_seconds, diagnostics.own_peak_bytes) = os::own_usage();
    set_comments(&mut profile, &diagnostics);
    Ok(Recorded {
        profile,
        diagnostics,
        notes,
        names: status.complete,
        names_missed: status.missed,
        run_time_code: status.run_time_code,
        interpreter: status.interpreter,
        notes_of_names: status.notes,
        exit,
        running,
    })
}

/// Why functions of interpreted programs were not read, if a note says so.
fn unread(note: &Message) -> Option<Unread> {
    let (why, unsupported) = match note {
        Message::InterpretersNotRead { why } => (why.to_string(), None),
        Message::InterpreterNotSupported { interpreter, why, .. } => {
            (why.clone(), Some(interpreter.clone()))
        }
        Message::NativeInterpreterStacks { .. } => {
            ("these samples came before the interpreter was recognized".to_owned(), None)
        }
        Message::UncopiedInterpreterStacks { .. } => {
            ("they were not copied at these samples".to_owned(), None)
        }
        Message::InterpreterMismatch { .. } => {
            ("they do not fit the native frames of these samples".to_owned(), None)
        }
        _ => return None,
    };
    Some(Unread { why, unsupported })
}

/// The completeness of the names of a recording.
#[derive(Default)]
struct LookupStatus {
    /// Names were looked up, and the user did not end that.
    complete: bool,
    /// The reason for which not all were.
    missed: Option<String>,
    /// The remedy for code that was made at run time, if much of it has no names.
    run_time_code: Option<String>,
    /// An interpreter that hides its programs' functions.
    interpreter: Option<HiddenFunctions>,
    /// All notes about names.
    notes: Vec<String>,
}

impl LookupStatus {
    /// After a lookup, whose result is added to the figures. `file` contains the recording, if it
    /// is a file; `fetches`: names were fetched from servers, too.
    fn new(
        named: &Named,
        interrupts: &Interrupts,
        file: Option<PathBuf>,
        fetches: bool,
        diagnostics: &mut Diagnostics,
    ) -> LookupStatus {
        let Named { profile, end } = named;
        let mut status = LookupStatus { complete: true, ..LookupStatus::default() };
        if matches!(end, LookupEnd::Failed) {
            status.missed = Some("the look-up of names failed: this is a bug".to_owned());
        }
        if interrupts.skip_names().load(Ordering::SeqCst) && !end.is_complete() {
            status.missed = Some(interrupted(file));
            // Advice would not help.
            status.complete = false;
        }
        status.notes.extend(status.missed.clone());
        diagnostics.unsymbolized = symbols::unsymbolized(profile);
        if let LookupEnd::Done(found) = end {
            status.add_outcome(found, profile, diagnostics);
            if fetches {
                status.missed = status.missed.or_else(|| found.outcome.errors.first().cloned());
            }
        }
        status
    }

    /// Adds the reasons for missing names to the figures, and notes about them.
    fn add_outcome(
        &mut self,
        found: &LookupResult,
        profile: &Profile,
        diagnostics: &mut Diagnostics,
    ) {
        let LookupResult { outcome, waits } = found;
        let all = symbols::counted(profile);
        self.run_time_code = record::run_time_code(profile, all);
        let explained = self.run_time_code.is_some();
        diagnostics.reasons = outcome.reasons();
        self.notes.extend(record::reasons(outcome, diagnostics, all, explained));
        self.notes.extend(self.run_time_code.clone());
        self.notes.extend(waits.sentences());
        self.notes.extend(outcome.errors.iter().cloned());
    }
}

/// A recording after the lookup of its names.
struct Named {
    /// With the names that were found.
    profile: Profile,
    end: LookupEnd,
}

/// Looks up the names of a recording until the user ends it. `bytes`: the recording without names.
///
/// # Errors
///
/// The recording cannot be read from `bytes`, if the lookup did not end.
fn look_up(
    aggregated: Aggregated,
    names: SymbolOptions,
    bytes: &[u8],
    interrupts: &Interrupts,
    progress: &Progress,
) -> anyhow::Result<Named> {
    if let Some(server) = names.debuginfod.clone() {
        interrupts.instead(move || server.abandon());
    }
    let Aggregated { profile, files, roots, run_time, changed, images, .. } = aggregated;
    let stop = interrupts.skip_names();
    let options = SymbolOptions { files, roots, run_time, changed, stop: stop.clone(), ..names };
    let bar = progress.symbols();
    let look_up = move |profile: &mut Profile| {
        LookupResult::look_up(profile, &options, &|done, all| bar.set(done, all))
    };
    match in_background(profile, look_up, &stop) {
        (Some(profile), end) => Ok(Named { profile, end }),
        (None, end) => {
            // The thread may still use their descriptors.
            std::mem::forget(images);
            Ok(Named { profile: pprof::read(bytes)?, end })
        }
    }
}

/// The recording before its names are looked up, in pprof format.
fn without_names(profile: &mut Profile, diagnostics: &Diagnostics) -> anyhow::Result<Vec<u8>> {
    let before = profile.comments.len();
    let mut figures = diagnostics.clone();
    figures.unsymbolized = symbols::unsymbolized(profile);
    (figures.own_cpu_seconds, figures.own_peak_bytes) = os::own_usage();
    set_comments(profile, &figures);
    let mut bytes = Vec::new();
    pprof::write(profile, &mut bytes)?;
    profile.comments.truncate(before);
    Ok(bytes)
}

fn set_comments(profile: &mut Profile, diagnostics: &Diagnostics) {
    let comments = diagnostics.to_comments();
    profile.comments.extend(comments.iter().map(|c| profile.strings.intern(c)));
}

/// Writes a profile into its file. Returns the path if it is a regular file.
fn keep(
    bytes: &[u8],
    output: Option<&mut Output>,
    interrupts: &Interrupts,
) -> anyhow::Result<Option<PathBuf>> {
    let Some(output) = output else { return Ok(None) };
    if !output.keep(bytes)? {
        return Ok(None);
    }
    let file = output.path().to_owned();
    interrupts.kept(file.clone());
    Ok(Some(file))
}

/// The result of a lookup.
#[derive(Default)]
pub struct LookupResult {
    /// Names, and the reasons for missing ones.
    pub outcome: Outcome,
    /// Waits for locks, recognized by the functions that wait.
    pub waits: LockWaits,
}

impl LookupResult {
    /// Looks up the names of `profile`, and classifies its waits by them.
    pub fn look_up(
        profile: &mut Profile,
        options: &SymbolOptions,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> LookupResult {
        let outcome = symbols::symbolize(profile, options, progress);
        LookupResult { outcome, waits: locks::classify(profile) }
    }
}

/// The end of a lookup.
enum LookupEnd {
    /// It found names; after an interrupt, only those until then.
    Done(LookupResult),
    /// It did not end in time after an interrupt.
    Abandoned,
    /// It panicked.
    Failed,
}

impl LookupEnd {
    /// Whether nothing was left out because of an interrupt.
    fn is_complete(&self) -> bool {
        matches!(self, LookupEnd::Done(found) if !is_interrupted(&found.outcome))
    }
}

/// Runs a lookup in a thread, which may hang: once `stop` is true, it has [`GRACE`] to end and is
/// then abandoned. Returns the profile if the lookup ended.
fn in_background(
    mut profile: Profile,
    look_up: impl FnOnce(&mut Profile) -> LookupResult + Send + 'static,
    stop: &AtomicBool,
) -> (Option<Profile>, LookupEnd) {
    let (sender, answer) = mpsc::channel();
    let work = move || {
        let found = look_up(&mut profile);
        // The receiver may be gone.
        let _ = sender.send((profile, found));
    };
    if std::thread::Builder::new().name("names".to_owned()).spawn(work).is_err() {
        return (None, LookupEnd::Failed);
    }
    let mut stopped: Option<Instant> = None;
    loop {
        match answer.recv_timeout(CHECK_INTERVAL) {
            Ok((profile, found)) => return (Some(profile), LookupEnd::Done(found)),
            Err(RecvTimeoutError::Disconnected) => return (None, LookupEnd::Failed),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stop.load(Ordering::SeqCst)
            && stopped.get_or_insert_with(Instant::now).elapsed() >= GRACE
        {
            return (None, LookupEnd::Abandoned);
        }
    }
}

fn is_interrupted(outcome: &Outcome) -> bool {
    outcome.binaries.iter().any(|binary| binary.why == Some(Cause::Interrupted))
}

/// The note that names are missing, with the command that gets them.
fn interrupted(file: Option<PathBuf>) -> String {
    let file =
        file.map_or("FILE".into(), |file| super::shell_word(&file.to_string_lossy()).into_owned());
    format!("interrupted: names are missing; `prof symbolize {file}` looks them up")
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::Builder;

    fn profile() -> Profile {
        Builder::new(&[("cpu", "nanoseconds")]).finish(None)
    }

    /// The lookup waits forever, as in a system call.
    #[test]
    fn a_lookup_that_hangs_is_abandoned() {
        let (hang, never) = mpsc::channel::<()>();
        let stop = AtomicBool::new(true);
        let look_up = move |_: &mut Profile| {
            let _ = never.recv();
            LookupResult::default()
        };
        assert!(matches!(in_background(profile(), look_up, &stop), (None, LookupEnd::Abandoned)));
        drop(hang);
    }

    #[test]
    fn a_lookup_that_panics_loses_nothing_but_names() {
        let look_up = |_: &mut Profile| panic!("a look-up that panics: this is a test");
        let stop = AtomicBool::new(false);
        assert!(matches!(in_background(profile(), look_up, &stop), (None, LookupEnd::Failed)));
    }

    #[test]
    fn names_that_were_found_in_time_are_taken() {
        let look_up = |profile: &mut Profile| {
            profile.strings.intern("found");
            LookupResult::default()
        };
        let ended = in_background(profile(), look_up, &AtomicBool::new(true));
        let (Some(profile), LookupEnd::Done(_)) = ended else { panic!("it ended") };
        assert!(profile.strings.find("found").is_some());
    }

    #[test]
    fn the_kept_file_is_the_recording_without_names() {
        let mut recorded = profile();
        let diagnostics = Diagnostics { samples: 7, lost: 3, ..Diagnostics::default() };
        let bytes = without_names(&mut recorded, &diagnostics).unwrap();
        assert!(recorded.comments.is_empty(), "they are added when it is complete");
        let read = pprof::read(bytes.as_slice()).unwrap();
        let comments: Vec<&str> = read.comments.iter().map(|&c| read.str(c)).collect();
        for (key, value) in [("samples", "7"), ("lost", "3")] {
            assert!(comments.iter().any(|c| c.contains(key) && c.contains(value)), "{comments:?}");
        }
    }
}
