//! The end of a recording on standard error: five lines at most, and the rest with `-v`. All of it
//! is in the profile's comments, too.

use std::cell::OnceCell;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use super::quality;
use super::record::Recorded;
use crate::report::advice::interpreters::HiddenFunctions;
use crate::report::{advice, summary as view_summary};
use messages::{Level, LossRemedy, Message, matters};
use profile::{BinaryShare, Diagnostics, Profile, StrId};
use sys::printed::Stderr;
use view::{Cancel, Granularity, Shares, View, has_interpreted, hide_interpreters};

/// The amount of output on standard error.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Verbosity {
    /// Print errors only
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Output")]
    pub quiet: bool,
    /// Print all notes, what each binary lacks, and what prof itself used
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
}

impl Verbosity {
    /// Prints lines about what is going to be recorded.
    pub fn show(self, lines: &[String]) {
        if !self.quiet {
            lines.iter().for_each(|line| Stderr::line(&format!("prof: {line}")));
        }
    }
}

/// The share of samples without a name, in percent, above which it is reported.
const NAMELESS_PERCENT: u64 = 5;

/// Kind of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Samples over some time.
    Recording,
    /// A snapshot of threads.
    Snapshot,
    /// A snapshot of threads, which are printed.
    PrintedThreads,
}

/// The end of a recording, in words.
pub struct Summary<'a> {
    recorded: &'a Recorded,
    kind: Kind,
    /// The profile that was written, if one was.
    file: Option<String>,
    /// Of the sample type that is shown first; computed when it is needed.
    shares: OnceCell<Shares>,
}

impl<'a> Summary<'a> {
    /// For the recording of a target, which was written into `file`.
    pub fn for_recording(recorded: &'a Recorded, file: Option<&Path>) -> Summary<'a> {
        Summary::new(recorded, Kind::Recording, file)
    }

    /// For a snapshot of threads, which was written into `file`.
    pub fn for_snapshot(recorded: &'a Recorded, file: Option<&Path>) -> Summary<'a> {
        Summary::new(recorded, Kind::Snapshot, file)
    }

    /// For a snapshot of threads, without the figures that the printed threads show.
    pub fn for_printed_threads(recorded: &'a Recorded) -> Summary<'a> {
        Summary::new(recorded, Kind::PrintedThreads, None)
    }

    fn new(recorded: &'a Recorded, kind: Kind, file: Option<&Path>) -> Summary<'a> {
        let file = file.map(|file| file.to_string_lossy().into_owned());
        Summary { recorded, kind, file, shares: OnceCell::new() }
    }

    /// Prints it, and how the COMMAND ended; [`Summary::advice`] is to follow.
    pub fn write(&self, err: &mut impl Write, verbose: bool) -> io::Result<()> {
        let lines = if verbose {
            vec![self.figures()]
        } else {
            let names = self.names().or_else(|| Some(self.interpreter()?.to_string()));
            vec![self.figures(), self.losses(), names, self.notes()]
        };
        lines.iter().flatten().try_for_each(|line| writeln!(err, "prof: {line}"))?;
        if verbose {
            self.details(err)?;
        }
        command_end(err, self.recorded)
    }

    /// Prints remedies for missing names and lines, for which package managers run: after
    /// everything else.
    pub fn advice(&self, err: &mut impl Write, verbose: bool) -> io::Result<()> {
        let Recorded { profile, names, .. } = self.recorded;
        if !verbose {
            return self.names_of_worst().map_or(Ok(()), |line| writeln!(err, "prof: {line}"));
        }
        if *names {
            let whole = most_truncated(profile, &self.recorded.diagnostics);
            quality::summary(err, profile, self.file.as_deref(), whole)?;
        }
        Ok(())
    }

    fn seconds(&self) -> f64 {
        self.recorded.profile.duration_nanos as f64 / 1e9
    }

    fn figures(&self) -> Option<String> {
        let Recorded { profile, diagnostics: d, .. } = self.recorded;
        match self.kind {
            Kind::Recording => Some(format!(
                "{} in {:.1} s, {}",
                plural(self.samples(), "sample"),
                self.seconds(),
                plural(d.distinct, "distinct stack")
            )),
            Kind::Snapshot => {
                let view = View::new(profile, 0, Granularity::NONE);
                let threads = u64::try_from(view.kept_total).unwrap_or_default();
                let stacks = plural(profile.samples.len() as u64, "distinct stack");
                Some(format!("{}, {stacks}", plural(threads, "thread")))
            }
            Kind::PrintedThreads => None,
        }
    }

    /// The number of samples, as in `prof report`.
    fn samples(&self) -> u64 {
        let count = view_summary::sample_count(&self.recorded.profile);
        count.and_then(|n| u64::try_from(n).ok()).unwrap_or(self.recorded.diagnostics.samples)
    }

    /// The part of truncated stacks, if it matters: by the value that is shown first, since one stack
    /// may be that of a whole recording.
    fn truncated(&self) -> Option<String> {
        let d = &self.recorded.diagnostics;
        let shares = self.shares();
        if shares.all == 0 {
            let (truncated, all) = (d.truncated_total(), d.user_stacks);
            return matters(truncated, all).then(|| percent(truncated, all));
        }
        shares.truncated_percent().map(|share| format!("{share:.1} %"))
    }

    fn shares(&self) -> &Shares {
        let shares = |profile: &Profile| {
            Shares::new(&View::new(profile, profile.default_type_index(), Granularity::NONE))
        };
        self.shares.get_or_init(|| {
            let profile = &self.recorded.profile;
            if !has_interpreted(profile) {
                return shares(profile);
            }
            // As in all views.
            let mut profile = profile.clone();
            hide_interpreters(&mut profile, &Cancel::default());
            shares(&profile)
        })
    }

    /// Losses and cuts that matter to the figures, and the remedy for the first.
    fn losses(&self) -> Option<String> {
        let Recorded { diagnostics: d, notes, .. } = self.recorded;
        let mut lost = Vec::new();
        let mut remedies = Vec::new();
        if self.loses_samples() {
            let all = d.lost.saturating_add(d.samples);
            lost.push(format!("{} of {all} samples were lost", percent(d.lost, all)));
            let losses = notes.at_end.iter().filter(|note| is_loss(note));
            remedies.push(losses.min_by_key(|note| note.level()).and_then(first_remedy));
        }
        if let Some(note) = notes.at_end.iter().find(|note| is_uncovered_time(note)) {
            lost.push(note.headline());
            remedies.push(note.cause().map(Message::to_string));
        }
        if matters(d.throttled, d.throttled.saturating_add(d.samples)) {
            lost.push(format!("events were throttled {} times", d.throttled));
            remedies.push(Some(LossRemedy::LowerRateOrLongerPeriod.to_string()));
        }
        if let Some(share) = self.truncated() {
            let most = d.truncated.iter().max_by_key(|(_, n)| n).map(|(why, _)| *why);
            let why = most.map_or(String::new(), |why| format!(" ({})", why.code()));
            lost.push(format!("{share} of the value is in truncated stacks{why}"));
            let remedy = |why| advice::whole_stacks_of(&self.recorded.profile, why);
            remedies.push(most.filter(|why| advice::can_be_whole(*why)).and_then(remedy));
        }
        if matters(d.folded, d.samples) {
            let share = percent(d.folded, d.samples);
            lost.push(format!("{share} of the stacks were cut: too many distinct ones"));
        }
        let how = remedies.into_iter().flatten().next();
        let how = how.map_or(String::new(), |how| format!("; {how}"));
        (!lost.is_empty()).then(|| format!("{}{how}", lost.join(", ")))
    }

    fn loses_samples(&self) -> bool {
        let d = &self.recorded.diagnostics;
        matters(d.lost, d.lost.saturating_add(d.samples))
    }

    /// The reason for missing names, if it is not that of single binaries.
    fn names(&self) -> Option<String> {
        let missed = self.recorded.names_missed.as_ref();
        if let Some(why) = missed.filter(|_| self.lacks_names() || !self.recorded.names) {
            return Some(why.clone());
        }
        let hint = self.recorded.run_time_code.as_ref().filter(|_| self.recorded.names)?;
        self.worst().is_none_or(|b| advice::is_memory(&b.binary)).then(|| hint.clone())
    }

    /// The interpreter that hides functions, unless another binary lacks more names.
    fn interpreter(&self) -> Option<&HiddenFunctions> {
        let hidden = self.recorded.interpreter.as_ref().filter(|_| self.recorded.names)?;
        let lacks_more = |worst: BinaryShare| {
            let (_, all) = self.nameless();
            let percent = 100.0 * worst.samples as f64 / all as f64;
            percent > hidden.percent && !advice::interpreters::is_interpreter(&worst.binary)
        };
        (!self.worst().is_some_and(lacks_more)).then_some(hidden)
    }

    /// The share of samples without a name, if it is large and nothing else explains it, and the
    /// command that helps most.
    fn names_of_worst(&self) -> Option<String> {
        let Recorded { profile, .. } = self.recorded;
        let is_reported = || self.names().is_some() || self.interpreter().is_some();
        let worst = self.worst().filter(|_| self.recorded.names && !is_reported())?;
        let word = self.file.as_ref().map(|file| super::shell_word(file).into_owned());
        let how = advice::binaries::for_names(profile, word, &worst.binary);
        let how = how.map_or(String::new(), |how| format!("; for names: {how}"));
        let name = if advice::is_memory(&worst.binary) {
            &worst.binary
        } else {
            worst.binary.rsplit('/').next().unwrap_or_default()
        };
        let (nameless, all) = self.nameless();
        let share = percent(nameless.iter().map(|b| b.samples).sum(), all);
        let worst_share = percent(worst.samples, all);
        Some(format!("{share} of the samples have no function name ({name} {worst_share}){how}"))
    }

    /// The binaries of leaves without a name, most first, and all: by the value that is shown first.
    fn nameless(&self) -> (Vec<BinaryShare>, u64) {
        let Recorded { profile, diagnostics: d, .. } = self.recorded;
        let shares = self.shares();
        if shares.all == 0 {
            return (d.unsymbolized.clone(), symbols::counted(profile));
        }
        let share = |&(file, value): &(StrId, i64)| BinaryShare {
            binary: Some(profile.str(file)).filter(|f| !f.is_empty()).unwrap_or("[unknown]").into(),
            samples: value.unsigned_abs(),
        };
        (shares.nameless_in.iter().map(share).collect(), shares.all.unsigned_abs())
    }

    /// True if much of the value has no name.
    fn lacks_names(&self) -> bool {
        let (nameless, all) = self.nameless();
        let nameless = nameless.iter().map(|b| b.samples).fold(0, u64::saturating_add);
        nameless.saturating_mul(100) > all.saturating_mul(NAMELESS_PERCENT)
    }

    /// The binary of most of the value without a name, if it is much.
    fn worst(&self) -> Option<BinaryShare> {
        self.nameless().0.into_iter().next().filter(|_| self.lacks_names())
    }

    /// The most important of the other notes, if the figures mislead without it, and the number of
    /// the rest.
    fn notes(&self) -> Option<String> {
        let Recorded { notes, notes_of_names, names_missed, run_time_code, .. } = self.recorded;
        let interpreter = self.recorded.interpreter.as_ref().map(HiddenFunctions::to_string);
        let is_lost = |note: &Message| is_loss(note) && self.loses_samples();
        let rest = notes.at_end.iter();
        let rest: Vec<&Message> =
            rest.filter(|note| !is_lost(note) && !is_uncovered_time(note)).collect();
        let first = rest.iter().min_by_key(|note| note.level());
        let first = first.filter(|note| note.level() < Level::Detail);
        let printed = [names_missed.as_ref(), run_time_code.as_ref(), interpreter.as_ref()];
        let unprinted = notes_of_names.iter().filter(|note| !printed.contains(&Some(note)));
        let more = match (rest.len() + unprinted.count(), first) {
            (0, _) | (1, Some(_)) => None,
            (1, None) => Some("1 note".to_owned()),
            (n, None) => Some(format!("{n} notes")),
            (n, Some(_)) => Some(format!("{} more", n - 1)),
        };
        let more = more.map(|more| format!("{more}: {}", self.place_of_notes()));
        let words: Vec<String> =
            first.map(|note| note.to_string()).into_iter().chain(more).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    /// The place of all notes.
    fn place_of_notes(&self) -> String {
        match &self.file {
            Some(file) => format!("prof report --header{}", super::file_arg(file)),
            None => "-v prints them".to_owned(),
        }
    }

    /// The additional lines of `-v`.
    fn details(&self, err: &mut impl Write) -> io::Result<()> {
        let Recorded { profile, diagnostics: d, notes, names, notes_of_names, .. } = self.recorded;
        if self.kind == Kind::Recording {
            let pause = d.longest_pause_seconds.map_or(String::new(), |pause| {
                format!("; longest time away from the rings {:.1} ms", pause * 1e3)
            });
            let not_kept = match d.not_kept {
                0 => String::new(),
                samples => format!(" ({samples} of them waited for analysis, without room)"),
            };
            writeln!(err, "prof: {} lost{not_kept}, {} throttled{pause}", d.lost, d.throttled)?;
        }
        truncated(err, profile, d)?;
        if d.folded > 0 {
            writeln!(err, "prof: {} stacks were cut: too many distinct ones", d.folded)?;
        }
        if *names {
            unsymbolized(err, d, symbols::counted(profile))?;
        }
        notes.at_end.iter().try_for_each(|note| writeln!(err, "prof: {note}"))?;
        notes_of_names.iter().try_for_each(|note| writeln!(err, "prof: {note}"))?;
        // Attaching costs the same however short the window is.
        let seconds = self.seconds();
        let share = if seconds >= 1.0 {
            format!(", {:.1} % of a core", 100.0 * d.recording_cpu_seconds / seconds)
        } else {
            String::new()
        };
        writeln!(
            err,
            "prof: own CPU time {:.2} s ({:.2} s of it while recording{share}), peak memory {} MiB",
            d.own_cpu_seconds,
            d.recording_cpu_seconds,
            d.own_peak_bytes >> 20
        )
    }
}

/// The share of one process, in percent, from which the others do not matter.
const MOST_PERCENT: f64 = 95.0;

/// The commands that are suggested for a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextCommand {
    /// That adds names.
    Symbolize,
    /// Those that show functions.
    Report,
    /// Those that show processes first: several have a part of the value.
    ReportByProcess,
}

impl NextCommand {
    /// The commands for a recording.
    pub fn new(recorded: &Recorded) -> NextCommand {
        let profile = &recorded.profile;
        let view = View::new(profile, profile.default_type_index(), Granularity::NONE);
        let processes = view.label_values(profile::label::PROCESS);
        let busiest = processes.first().map_or(0, |&(_, value)| value);
        let all = processes.iter().fold(0i64, |sum, &(_, value)| sum.saturating_add(value));
        if !recorded.names {
            NextCommand::Symbolize
        } else if view::percent(busiest, all) >= MOST_PERCENT || all == 0 {
            NextCommand::Report
        } else {
            NextCommand::ReportByProcess
        }
    }
}

/// Prints the profile that was written, its size, and the `next` commands.
pub fn written(
    err: &mut impl Write,
    path: &Path,
    bytes: u64,
    next: Option<NextCommand>,
) -> io::Result<()> {
    let name = path.to_string_lossy();
    let size = bytes.div_ceil(1024);
    let arg = super::file_arg(&name);
    let (without, next) = match next {
        None => ("", String::new()),
        Some(NextCommand::Symbolize) => {
            (", without names", format!("; next: prof symbolize {}", super::shell_word(&name)))
        }
        Some(NextCommand::Report) => {
            ("", format!("; next: prof report{arg}, or prof flame{arg} > out.svg"))
        }
        Some(NextCommand::ReportByProcess) => {
            ("", format!("; next: prof report{arg} --sort process, or prof flame{arg} > out.svg"))
        }
    };
    writeln!(err, "prof: wrote {name} ({size} KiB){without}{next}")
}

/// The number of truncated stacks, by reason, and what would help most of them.
fn truncated(err: &mut impl Write, profile: &Profile, d: &Diagnostics) -> io::Result<()> {
    if d.truncated_total() == 0 {
        return Ok(());
    }
    let why: Vec<String> =
        d.truncated.iter().map(|(why, n)| format!("{} {n}", why.code())).collect();
    writeln!(
        err,
        "prof: {} of {} user stacks truncated ({}): {}",
        d.truncated_total(),
        d.user_stacks,
        percent(d.truncated_total(), d.user_stacks),
        why.join(", ")
    )?;
    most_truncated(profile, d).iter().try_for_each(|how| writeln!(err, "prof: {how}"))
}

/// What would help most of the truncated stacks.
fn most_truncated(profile: &Profile, d: &Diagnostics) -> Option<String> {
    let most = d.truncated.iter().max_by_key(|(_, n)| n);
    most.and_then(|(why, _)| advice::whole_stacks_of(profile, *why))
        .filter(|_| d.truncated_total() > 0)
}

/// The share of `all` samples that have no name, and where most of them are.
fn unsymbolized(err: &mut impl Write, d: &Diagnostics, all: u64) -> io::Result<()> {
    const SHOWN: usize = 3;
    if d.unsymbolized.is_empty() {
        return Ok(());
    }
    let share = |n| percent(n, all);
    let mut binaries: Vec<String> = d.unsymbolized[..d.unsymbolized.len().min(SHOWN)]
        .iter()
        .map(|b| format!("{} {}", b.binary, share(b.samples)))
        .collect();
    if d.unsymbolized.len() > SHOWN {
        binaries.push(format!("{} more", d.unsymbolized.len() - SHOWN));
    }
    let nameless = share(d.unsymbolized_total());
    writeln!(err, "prof: {nameless} of the samples have no function name: {}", binaries.join(", "))
}

/// The end of the COMMAND, in words.
fn command_end(err: &mut impl Write, recorded: &Recorded) -> io::Result<()> {
    if let Some(status) = recorded.exit.filter(|s| !s.success()) {
        match (status.code(), status.signal()) {
            (Some(code), _) => writeln!(err, "prof: the command exited with {code}")?,
            (None, Some(signal)) => {
                writeln!(err, "prof: the command was killed by signal {signal}")?;
            }
            (None, None) => {}
        }
    }
    if let Some(pid) = recorded.running.filter(|&pid| is_running(pid)) {
        writeln!(err, "prof: the command still runs as process {pid}; stop it with: kill {pid}")?;
    }
    Ok(())
}

fn is_running(pid: i32) -> bool {
    sys::procfs::stat(pid).is_some_and(|s| s.state != 'Z')
}

/// True if a note reports samples that were lost.
fn is_loss(note: &Message) -> bool {
    matches!(
        note,
        Message::Lost { .. } | Message::AllocationsLost { .. } | Message::FreesLost { .. }
    )
}

/// The best remedy of a note about lost samples.
fn first_remedy(note: &Message) -> Option<String> {
    match note {
        Message::Lost { remedies, .. } => remedies.first().map(LossRemedy::to_string),
        other => other.remedy(),
    }
}

/// True if a note reports CPU time without samples that is more than chance.
fn is_uncovered_time(note: &Message) -> bool {
    matches!(note, Message::Uncovered { .. }) && note.level() < Level::Detail
}

/// A share, as it is printed.
pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// `1 sample`, `2 samples`.
fn plural(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
