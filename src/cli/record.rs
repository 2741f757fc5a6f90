//! `prof record`.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

use super::examples;
use super::output::Output;
use super::progress::Progress;
use super::symbol_args::SymbolArgs;
use super::target::TargetArgs;
use crate::report::advice;
use crate::sampler::{self, Interrupts, Target};
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
    symbols: SymbolArgs,
    /// Write the profile to FILE; - is standard output
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
    /// List events instead of recording, as `prof list`
    #[arg(long, value_name = "SEARCH", num_args = 0..=1, hide = true)]
    list: Option<Option<String>>,
    /// Print errors only
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
}

impl Args {
    /// What is recorded.
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
    /// Whether all names were looked up.
    pub names: bool,
    /// The number of notes that are printed already.
    pub printed_notes: usize,
    /// How the COMMAND ended, if it has.
    pub exit: Option<ExitStatus>,
    /// The COMMAND, if it still ran when the window closed.
    pub running: Option<i32>,
}

impl Recorded {
    /// The exit code of the COMMAND, as in a shell: 128 + the signal that ended it. 0 without a
    /// COMMAND, or if it still runs.
    pub fn exit_code(&self) -> ExitCode {
        let exit = self.exit.or_else(|| os::reap(self.running?));
        ExitCode::from(exit.map_or(0, code_of))
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    // An exit code has eight bits, and there are 64 signals.
    status.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Runs `prof record`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(search) = &args.list {
        let search: Vec<String> = search.iter().cloned().collect();
        return super::list::list(&search, &args.target.pid);
    }
    // Before recording, so that an unwritable file is reported now.
    let mut output = Output::create(&args.output)?;
    let names = (!args.no_symbolize).then(|| args.symbols.options()).transpose()?;
    let recorded = record(&args.target, names, args.quiet, &mut output)?;
    let (to_stdout, stays) = (output.is_stdout(), output.stays());
    let bytes = output.write(&recorded.profile).map_err(|e| match recorded.names && stays {
        true => e.context("the recording was kept, but without names"),
        false => e,
    })?;
    if !args.quiet {
        let mut err = Stderr;
        let file = args.output.to_string_lossy();
        summary(&mut err, &recorded, (!to_stdout).then_some(&*file))?;
        if !to_stdout {
            let next = stays && recorded.diagnostics.samples > 0;
            let names = recorded.names;
            written(&mut err, &args.output, bytes, next.then_some(names))?;
        }
    }
    Ok(recorded.exit_code())
}

/// Records, looks up `names` if given, and adds the figures to the comments.
///
/// A COMMAND does not write to `output`, even if that is its standard output too.
///
/// Errors: what prevents the recording, in one line.
pub fn record(
    target: &TargetArgs,
    names: Option<symbols::Options>,
    quiet: bool,
    output: &mut Output,
) -> anyhow::Result<Recorded> {
    let (mut options, types, window) = target.options()?;
    options.stdout_to_stderr = output.is_stdout();
    let command = matches!(options.target, Target::Command(_));
    let interrupts = Interrupts::install(command)?;
    if let Some(path) = output.temporary() {
        interrupts.remove_when_giving_up(path);
    }
    let progress = Progress::new(window.duration, quiet, command);
    if let Some(time) = target.sleep_time() {
        progress
            .print(&format!("'sleep {time}' sets the length of the recording, as -d {time} does"));
    }
    if command && options.stdout_to_stderr {
        progress.print(
            "the command's standard output goes to standard error, because the profile goes to \
             standard output; use -o FILE to separate them",
        );
    }
    let mut printed_notes = 0;
    let mut print_note = |line: &str| {
        printed_notes += 1;
        progress.print(line);
    };
    let mut tick = |tick| progress.tick(tick);
    let recording =
        sampler::record(&options, types, window, &interrupts, &mut print_note, &mut tick)?;
    let output = Some(output);
    let recorded = super::naming::name(recording, names, &interrupts, &progress, output)?;
    Ok(Recorded { printed_notes, ..recorded })
}

/// The few lines at the end, in terms of the profile `file` if one was written.
pub fn summary(
    err: &mut impl Write,
    recorded: &Recorded,
    file: Option<&str>,
) -> std::io::Result<()> {
    let Recorded { profile, diagnostics: d, .. } = recorded;
    let seconds = profile.duration_nanos as f64 / 1e9;
    writeln!(
        err,
        "prof: {} samples in {seconds:.1} s, {} distinct stacks; {} lost, {} throttled",
        d.samples, d.distinct, d.lost, d.throttled
    )?;
    let whole = truncated(err, d)?;
    if d.folded > 0 {
        writeln!(err, "prof: {} stacks were cut: too many distinct ones", d.folded)?;
    }
    if recorded.names {
        unsymbolized(err, d, symbols::counted(profile))?;
        super::trust::summary(err, profile, file, whole)?;
    }
    notes(err, recorded)?;
    // Attaching costs the same however short the window is.
    let share = match seconds >= 1.0 {
        true => format!(", {:.1} % of a core", 100.0 * d.recording_cpu_seconds / seconds),
        false => String::new(),
    };
    writeln!(
        err,
        "prof: own CPU time {:.2} s ({:.2} s of it while recording{share}), peak memory {} MiB",
        d.own_cpu_seconds,
        d.recording_cpu_seconds,
        d.own_peak_bytes >> 20
    )?;
    command_end(err, recorded)
}

/// How many stacks are truncated, and why; returns what would help most of them.
pub fn truncated(err: &mut impl Write, d: &Diagnostics) -> std::io::Result<Option<String>> {
    if d.truncated_total() == 0 {
        return Ok(None);
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
    let most = d.truncated.iter().max_by_key(|(_, n)| n);
    let whole = most.and_then(|(why, _)| advice::whole_stacks(*why));
    whole.iter().try_for_each(|how| writeln!(err, "prof: {how}"))?;
    Ok(whole)
}

/// What else is to be said and has not been yet.
pub fn notes(err: &mut impl Write, recorded: &Recorded) -> std::io::Result<()> {
    let notes = recorded.diagnostics.notes.iter().skip(recorded.printed_notes);
    notes.into_iter().try_for_each(|note| writeln!(err, "prof: {note}"))
}

/// Which profile was written, with how many bytes, and what can be done `next` with one that has
/// names, or has not.
fn written(
    err: &mut impl Write,
    path: &Path,
    bytes: u64,
    next: Option<bool>,
) -> std::io::Result<()> {
    let (name, size) = (path.to_string_lossy(), bytes.div_ceil(1024));
    let Some(names) = next else {
        return writeln!(err, "prof: wrote {name} ({size} KiB)");
    };
    let arg = super::file_arg(&name);
    if !names {
        return writeln!(
            err,
            "prof: wrote {name} ({size} KiB), without names; next: prof symbolize {}",
            super::shell_word(&name)
        );
    }
    writeln!(err, "prof: wrote {name} ({size} KiB); next: prof report{arg}")?;
    writeln!(err, "prof:   or a picture: prof flame{arg} > out.svg")
}

/// The share of `all` samples that have no name, and where most of them are.
fn unsymbolized(err: &mut impl Write, d: &Diagnostics, all: u64) -> std::io::Result<()> {
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

/// How the COMMAND ended, in words.
pub fn command_end(err: &mut impl Write, recorded: &Recorded) -> std::io::Result<()> {
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

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
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
            let mut of_it = outcome.binaries.iter().filter(|o| o.file == b.binary);
            let why = of_it.find_map(|o| o.why.as_ref())?;
            // What helps a stripped one is said with the figures of each binary.
            let said = *why == Cause::Stripped || explained && *why == Cause::Anonymous;
            (!said).then(|| format!("{}: {why}", b.binary))
        })
        .collect()
}

/// How the process with most of it gives names to code that it makes at run time, when more
/// than 5 % of the samples go through such code.
pub fn run_time_code(profile: &Profile, samples: u64) -> Option<String> {
    let (process, pid, share) = symbols::run_time_code(profile).into_iter().next()?;
    if share.saturating_mul(20) <= samples {
        return None;
    }
    let is = |names: &[&str]| names.iter().any(|n| process.starts_with(n));
    let how = if is(&["node", "MainThread"]) {
        "start it with node --perf-basic-prof".to_owned()
    } else if is(&["chrom"]) {
        "start it with --js-flags=--perf-basic-prof --no-sandbox".to_owned()
    } else if is(&["java"]) {
        let pid = pid.map_or("PID".to_owned(), |pid| pid.to_string());
        format!(
            "start it with java -XX:+PreserveFramePointer -XX:+UnlockDiagnosticVMOptions \
             -XX:+DumpPerfMapAtExit, or before the recording ends (Java 17 or newer): \
             jcmd {pid} Compiler.perfmap"
        )
    } else if is(&["python"]) {
        "start it with python3 -X perf (3.12 or newer)".to_owned()
    } else if is(&["php"]) {
        "start it with php -d opcache.jit_debug=0x10".to_owned()
    } else if is(&["luajit"]) {
        "run it with luajit -joff: its compiler writes no perf map".to_owned()
    } else {
        "let it write a perf map, /tmp/perf-PID.map".to_owned()
    };
    let share = percent(share, samples);
    Some(format!(
        "{share} of the samples go through code that {process} made at run time; for its names, \
         {how}"
    ))
}
