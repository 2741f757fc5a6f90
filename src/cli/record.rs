//! `prof record`.

use std::io::Write;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};

use super::progress::Progress;
use super::target::TargetArgs;
use crate::format::Output;
use crate::profile::{Diagnostics, Profile};
use crate::recorder::{self, Interrupts, Recording};
use crate::sampler::{Target, os};
use crate::symbolize;

/// Arguments of `prof record`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: TargetArgs,
    /// Write the profile here; - is standard output
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "profile.pb.gz",
        help_heading = "Output"
    )]
    output: PathBuf,
    /// Leave addresses without names; 'prof symbolize FILE' completes them later
    #[arg(long, help_heading = "Output")]
    no_symbolize: bool,
    /// Say nothing but errors
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
}

/// What a recording made in one go with a view is made of.
pub struct Recorded {
    /// The profile, with the diagnostics as comments.
    pub profile: Profile,
    /// The figures.
    pub diagnostics: Diagnostics,
    /// Notes that the user has been told already.
    said: usize,
    exit: Option<ExitStatus>,
    running: Option<i32>,
}

/// Runs `prof record`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let to_stdout = args.output.as_os_str() == "-";
    // Before recording: a file that cannot be written is found out now.
    let output = Output::create(&args.output)?;
    let recorded = record(&args.target, !args.no_symbolize, args.quiet, output.temporary())?;
    let bytes = output.write(&recorded.profile)?;
    if !args.quiet {
        let written = (!to_stdout).then_some((args.output.as_path(), bytes));
        summary(&recorded, written)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Records, symbolizes and puts the figures into the comments.
///
/// `temporary` is a file to remove if a second signal gives up.
///
/// Errors: whatever is in the way of the recording, in one line.
pub fn record(
    target: &TargetArgs,
    names: bool,
    quiet: bool,
    temporary: Option<PathBuf>,
) -> anyhow::Result<Recorded> {
    let (options, window) = target.options()?;
    let command = matches!(options.target, Target::Command(_));
    let interrupts = Interrupts::install(command)?;
    if let Some(path) = temporary {
        interrupts.remove_when_giving_up(path);
    }
    let progress = Progress::new(window.duration, quiet);
    let mut said = 0;
    let mut say = |line: &str| {
        said += 1;
        progress.say(line);
    };
    let mut tick = |tick| progress.tick(tick);
    let recording = recorder::record(&options, window, &interrupts, &mut say, &mut tick)?;
    let Recording { aggregated, mut diagnostics, exit, running, .. } = recording;
    let mut profile = aggregated.profile;
    if names {
        let options =
            symbolize::Options { files: aggregated.files, ..symbolize::Options::default() };
        let outcome = symbolize::symbolize(&mut profile, &options, &|done, all| {
            progress.symbols(done, all);
        });
        diagnostics.unsymbolized = symbolize::unsymbolized(&profile);
        let why = reasons(&outcome, &diagnostics);
        diagnostics.notes.extend(why);
    }
    progress.finish();
    (diagnostics.own_cpu_seconds, diagnostics.own_peak_bytes) = os::own_usage();
    let comments = diagnostics.to_comments();
    profile.comments.extend(comments.iter().map(|c| profile.strings.intern(c)));
    Ok(Recorded { profile, diagnostics, said, exit, running })
}

/// The few lines at the end, and where the profile was `written` with how many bytes.
pub fn summary(
    recorded: &Recorded,
    written: Option<(&std::path::Path, u64)>,
) -> anyhow::Result<()> {
    let mut err = std::io::stderr().lock();
    let Recorded { profile, diagnostics: d, .. } = recorded;
    let seconds = profile.duration_nanos as f64 / 1e9;
    writeln!(
        err,
        "prof: {} samples in {seconds:.1} s, {} distinct stacks; {} lost, {} throttled",
        d.samples, d.distinct, d.lost, d.throttled
    )?;
    if d.truncated_total() > 0 {
        let why: Vec<String> = d.truncated.iter().map(|(why, n)| format!("{why} {n}")).collect();
        writeln!(
            err,
            "prof: {} of {} user stacks truncated ({}): {}",
            d.truncated_total(),
            d.user_stacks,
            percent(d.truncated_total(), d.user_stacks),
            why.join(", ")
        )?;
    }
    if d.completed_later > 0 {
        writeln!(
            err,
            "prof: {} stacks deeper than their copy were completed from memory a moment later \
             (label unwound)",
            d.completed_later
        )?;
    }
    if d.folded > 0 {
        writeln!(err, "prof: {} stacks were cut: too many distinct ones", d.folded)?;
    }
    unsymbolized(&mut err, d)?;
    for note in d.notes.iter().skip(recorded.said) {
        writeln!(err, "prof: {note}")?;
    }
    // Attaching and symbolizing cost the same however short the window is.
    let share = match seconds >= 1.0 {
        true => format!(" ({:.1} % of a core)", 100.0 * d.own_cpu_seconds / seconds),
        false => String::new(),
    };
    writeln!(
        err,
        "prof: own CPU time {:.2} s{share}, peak memory {} MiB",
        d.own_cpu_seconds,
        d.own_peak_bytes >> 20
    )?;
    command_end(&mut err, recorded)?;
    if let Some((path, bytes)) = written {
        let name = path.display();
        let arg =
            if name.to_string() == "profile.pb.gz" { String::new() } else { format!(" {name}") };
        let size = bytes.div_ceil(1024);
        writeln!(err, "prof: wrote {name} ({size} KiB); next: prof report{arg}")?;
        writeln!(err, "prof:   or a picture: prof flame{arg} > out.svg")?;
    }
    Ok(())
}

fn unsymbolized(err: &mut impl Write, d: &Diagnostics) -> std::io::Result<()> {
    const SHOWN: usize = 3;
    if d.unsymbolized.is_empty() {
        return Ok(());
    }
    let share = |n| percent(n, d.samples);
    let mut binaries: Vec<String> = d.unsymbolized[..d.unsymbolized.len().min(SHOWN)]
        .iter()
        .map(|b| format!("{} {}", b.binary, share(b.samples)))
        .collect();
    if d.unsymbolized.len() > SHOWN {
        binaries.push(format!("{} more", d.unsymbolized.len() - SHOWN));
    }
    let all = share(d.unsymbolized_total());
    writeln!(err, "prof: {all} of the samples have no function name: {}", binaries.join(", "))
}

/// How the COMMAND ended, in words: its exit code is not prof's.
pub fn command_end(err: &mut impl Write, recorded: &Recorded) -> std::io::Result<()> {
    use std::os::unix::process::ExitStatusExt;
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
    crate::process::procfs::stat(pid).is_some_and(|s| s.state != 'Z')
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// Sentences about the binaries that most samples without a name are of.
fn reasons(outcome: &symbolize::Outcome, d: &Diagnostics) -> Vec<String> {
    const SHOWN: usize = 3;
    let much = |n: u64| n * 100 >= d.samples;
    let worst = d.unsymbolized.iter().take(SHOWN).filter(|b| much(b.samples));
    worst
        .filter_map(|b| {
            let mut of_it = outcome.binaries.iter().filter(|o| o.file == b.binary);
            Some(format!("{}: {}", b.binary, of_it.find_map(|o| o.why.as_ref())?))
        })
        .collect()
}
