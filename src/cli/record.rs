//! `prof record`.

mod last;
mod when;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

pub use self::last::LastArgs;
use self::last::Watched;
use super::examples;
use super::output::Output;
use super::output::replaced::{self, Written};
use super::perf_options::NeedlessArgs;
use super::progress::{Bars, Progress};
use super::summary::{self, NextCommand, Summary, Verbosity, percent};
use super::symbol_args::SymbolArgs;
use super::target::TargetArgs;
use crate::report::advice::interpreters::HiddenFunctions;
use crate::report::advice::run_time;
use crate::sampler::types::show_requested;
use crate::sampler::{self, Interrupts, Notes, Observer, Target};
use messages::{Level, Message};
use profile::{Cause, Diagnostics, Profile};
use sys::os;
use sys::printed::Stderr;

/// Arguments of `prof record`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("record"), after_long_help = examples::long("record"))]
pub struct Args {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    last: LastArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
    /// Write the profile to FILE; - is standard output
    ///
    /// A profile that is there stays as NAME.old.pb.gz. A recording of CPU or wall time that has no
    /// samples replaces nothing.
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "profile.pb.gz",
        help_heading = "Output"
    )]
    output: PathBuf,
    /// Do not symbolize; 'prof symbolize FILE' does it later
    #[arg(long, help_heading = "Output")]
    no_symbolize: bool,
    #[command(flatten)]
    verbosity: Verbosity,
    #[command(flatten)]
    needless: NeedlessArgs,
}

impl Args {
    /// The target and the events.
    pub fn target(&self) -> &TargetArgs {
        &self.target
    }
}

/// A symbolized recording.
pub struct Recorded {
    /// The profile, with the diagnostics as comments.
    pub profile: Profile,
    /// The figures.
    pub diagnostics: Diagnostics,
    /// The notes of the recorder.
    pub notes: Notes,
    /// True if all names were looked up.
    pub names: bool,
    /// The reason why not all were, although they were to be.
    pub names_missed: Option<String>,
    /// Advice for names of code that was made at run time, if much of it has none.
    pub run_time_code: Option<String>,
    /// The interpreter in which most samples are, whose programs' functions are not in the profile.
    pub interpreter: Option<HiddenFunctions>,
    /// The notes of the lookup of names, with all of these.
    pub notes_of_names: Vec<String>,
    /// The exit status of the COMMAND, if it has ended.
    pub exit: Option<ExitStatus>,
    /// The COMMAND, if it still ran when the window closed.
    pub running: Option<i32>,
}

impl Recorded {
    /// True if nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.profile.has_no_values()
    }

    /// The exit code of the COMMAND, as in a shell: 128 + the signal that ended it. 0 without a
    /// COMMAND, or if it still runs.
    pub fn exit_code(&self) -> ExitCode {
        exit_code(self.exit, self.running)
    }
}

/// The exit code of a COMMAND that has ended or still runs, as [`Recorded::exit_code`].
pub fn exit_code(exit: Option<ExitStatus>, running: Option<i32>) -> ExitCode {
    let exit = exit.or_else(|| os::reap(running?));
    ExitCode::from(exit.map_or(0, code_of))
}

fn code_of(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    // An exit code has eight bits, and there are 64 signals.
    status.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Runs `prof record`.
pub fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.verbosity.show(&args.needless.lines().collect::<Vec<_>>());
    args.target.find_and_show(args.verbosity)?;
    // Before recording, so that an unwritable file is reported now.
    replaced::check(&args.output, Written::Recording)?;
    let mut output = Output::create_recording(&args.output, args.target.without_samples())?;
    let names = (!args.no_symbolize).then(|| args.symbols.options()).transpose()?;
    let recorded = record(&args.target, &args.last, names, args.verbosity, &mut output)?;
    if recorded.is_empty() && output.refuses_empty() {
        return not_replaced(&recorded, &output, args.verbosity);
    }
    write(&recorded, output, Summary::for_recording, args.verbosity)?;
    Ok(recorded.exit_code())
}

/// Prints the summary of a recording without samples, whose file would replace another. Exit code
/// 1, or that of the COMMAND: a short one has a sample or none by chance.
fn not_replaced(
    recorded: &Recorded,
    output: &Output,
    Verbosity { quiet, verbose }: Verbosity,
) -> anyhow::Result<ExitCode> {
    if !quiet {
        Summary::for_recording(recorded, None).write(&mut Stderr, verbose)?;
    }
    let path = output.path().display();
    Stderr::line(&format!("prof: {path} stays as it was: the recording has no samples"));
    let has_command = recorded.exit.is_some() || recorded.running.is_some();
    Ok(if has_command { recorded.exit_code() } else { ExitCode::FAILURE })
}

/// Writes the profile to `output`, and its summary to standard error.
///
/// # Errors
///
/// The profile cannot be written.
pub fn write<'r>(
    recorded: &'r Recorded,
    output: Output,
    summary: fn(&'r Recorded, Option<&Path>) -> Summary<'r>,
    Verbosity { quiet, verbose }: Verbosity,
) -> anyhow::Result<()> {
    let file = (!output.is_stdout()).then(|| output.path().to_owned());
    let stays = output.stays();
    let bytes = output.write(&recorded.profile).map_err(|e| {
        if recorded.names && stays {
            e.context("the recording was kept, but without names")
        } else {
            e
        }
    })?;
    if quiet {
        return Ok(());
    }
    let summary = summary(recorded, file.as_deref());
    summary.write(&mut Stderr, verbose)?;
    if let Some(file) = file {
        let next = stays && recorded.diagnostics.samples > 0;
        let next = next.then(|| NextCommand::new(recorded));
        summary::written(&mut Stderr, &file, bytes, next)?;
    }
    summary.advice(&mut Stderr, verbose)?;
    Ok(())
}

/// Records, looks up `names` if given, and adds the figures to the comments.
///
/// A COMMAND does not write to `output`, even if that is its standard output too.
///
/// # Errors
///
/// The recording is not possible; the message is one line.
pub fn record(
    target: &TargetArgs,
    last: &LastArgs,
    names: Option<symbols::SymbolOptions>,
    Verbosity { quiet, verbose }: Verbosity,
    output: &mut Output,
) -> anyhow::Result<Recorded> {
    let (mut options, types, mut window) = target.options()?;
    last.apply(target, &mut window)?;
    options.stdout_to_stderr = output.is_stdout();
    let command = matches!(options.target, Target::Command(_));
    let interrupts = Interrupts::install(command)?;
    if let Some(path) = output.temporary() {
        interrupts.remove_when_giving_up(path);
    }
    let bars = if quiet {
        Bars::Quiet
    } else if command {
        Bars::Symbols
    } else {
        Bars::All
    };
    let progress = Progress::new(window.duration, bars);
    let watched = Watched::new(last, &options.target, &interrupts)?;
    if let Some(time) = target.sleep_time().filter(|_| verbose) {
        progress
            .print(&format!("'sleep {time}' sets the length of the recording, as -d {time} does"));
    }
    if command && options.stdout_to_stderr {
        progress.print(
            "the command's standard output goes to standard error, because the profile goes to \
             standard output; use -o FILE to separate them",
        );
    }
    let mut print_note = |note: &Message| {
        if verbose || note.level() < Level::Detail {
            progress.print(&note.to_string());
        }
    };
    let mut print_start = |preparation: Duration| {
        watched.begin();
        if verbose {
            progress.print(&format!("sampling began after {} ms", preparation.as_millis()));
        }
    };
    let mut observer = Observer {
        note: &mut print_note,
        started: &mut print_start,
        tick: &mut |tick| progress.tick(tick),
    };
    let recording = sampler::record(&options, types, window, &interrupts, &mut observer);
    let noted = watched.end();
    let mut recording = recording?;
    let noted = noted?;
    noted.iter().for_each(|note| progress.print(&note.to_string()));
    recording.notes.at_end.extend(noted);
    let requested = target.requested_types();
    show_requested(&mut recording.aggregated.profile, requested);
    let named = super::naming::name(recording, names, &interrupts, &progress, Some(output));
    let mut recorded = named?;
    // Without names, waits for work are among those for locks.
    show_requested(&mut recorded.profile, requested);
    Ok(recorded)
}

/// Sentences about the binaries that most samples without a name are of; without those about
/// code made at run time if that is `explained`.
pub fn reasons(
    outcome: &symbols::Outcome,
    d: &Diagnostics,
    all: u64,
    explained: bool,
) -> Vec<String> {
    const SHOWN: usize = 3;
    let much = |n: u64| n.saturating_mul(100) >= all;
    let worst = d.unsymbolized.iter().take(SHOWN).filter(|b| much(b.samples));
    worst
        .filter_map(|b| {
            let mut outcomes = outcome.binaries.iter().filter(|o| o.file == b.binary);
            let why = outcomes.find_map(|o| o.why.as_ref())?;
            // The remedy for a stripped one is printed with the figures of each binary.
            let is_elsewhere = *why == Cause::Stripped || explained && *why == Cause::Anonymous;
            (!is_elsewhere).then(|| format!("{}: {why}", b.binary))
        })
        .collect()
}

/// Advice for names of code that is made at run time, for the process with most of it, when more
/// than 5 % of the samples go through such code.
pub fn run_time_code(profile: &Profile, samples: u64) -> Option<String> {
    let all = symbols::run_time_code(profile).into_iter();
    let mut most = all.filter(|(.., share)| share.saturating_mul(20) > samples);
    let (process, share, remedy) = most.find_map(|(process, pid, share)| {
        let remedy = run_time::names_of_process(profile, &process, pid)?;
        Some((process, share, remedy))
    })?;
    let share = percent(share, samples);
    Some(format!(
        "{share} of the samples go through code that {process} made at run time; for its names, \
         {remedy}"
    ))
}
