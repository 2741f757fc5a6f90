//! `prof threads`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use super::filter::samples;
use super::progress::{Bars, Progress};
use super::summary::{Summary, Verbosity};
use super::symbol_args::SymbolArgs;
use super::target::{Found, ProcessArg, parse_tid};
use super::{examples, record, usage};
use crate::report::{json, threads};
use crate::sampler::{Interrupts, Target, types};
use sys::printed::{self, Stderr};
use sys::procfs;
use view::answer::ThreadsAnswer;
use view::{Cancel, Granularity, Threads, View, hide_interpreters};

/// Arguments of `prof threads`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("threads"), after_long_help = examples::long("threads"))]
pub struct Args {
    /// Print the threads of these processes, by PID or name
    ///
    /// Several are separated by commas. Names are those of prof record -p.
    #[arg(
        short,
        long,
        value_name = "PID|NAME",
        value_delimiter = ',',
        allow_negative_numbers = true,
        help_heading = "Target"
    )]
    pid: Vec<ProcessArg>,
    /// With -p, also print the threads of the children
    #[arg(long, requires = "pid", help_heading = "Target")]
    tree: bool,
    /// Print these threads only
    ///
    /// Several TIDs are separated by commas.
    #[arg(
        short,
        long,
        value_name = "TID",
        value_delimiter = ',',
        value_parser = parse_tid,
        allow_negative_numbers = true,
        conflicts_with = "pid",
        help_heading = "Target"
    )]
    tid: Vec<i32>,
    /// Print the threads of the whole machine
    #[arg(
        short,
        long,
        alias = "all",
        conflicts_with_all = ["pid", "tid"],
        help_heading = "Target"
    )]
    all_cpus: bool,
    /// Print each thread by itself, in the order of their TIDs
    #[arg(long, help_heading = "Output")]
    each: bool,
    /// Print an interpreter's own frames, too
    ///
    /// Otherwise stacks have the functions of interpreted programs in place of those of the interpreter.
    /// Profiles of -o have them.
    #[arg(long, help_heading = "Output")]
    native: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "output", help_heading = "Output")]
    json: bool,
    /// Write a profile to FILE instead; - is standard output
    ///
    /// Its sample type is threads, in counts.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    #[command(flatten)]
    symbols: SymbolArgs,
    #[command(flatten)]
    verbosity: Verbosity,
}

/// Runs `prof threads`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    procfs::check_mounted()?;
    let target = args.target()?;
    let mut output = args.output.as_deref().map(samples::output).transpose()?;
    let names = args.symbols.options()?;
    let interrupts = Interrupts::install(false)?;
    let recording = types::snapshot(&target)?;
    let progress = Progress::new(None, Bars::Quiet);
    interrupts.close_window();
    let mut recorded =
        super::naming::name(recording, Some(names), &interrupts, &progress, output.as_mut())?;
    match output {
        Some(output) => record::write(&recorded, output, Summary::for_snapshot, args.verbosity)?,
        None => {
            recorded.profile.strings.replace(printed::line);
            if !args.native {
                hide_interpreters(&mut recorded.profile, &Cancel::default());
            }
            let each = Granularity { line: true, inlined: true, ..Granularity::FUNCTION };
            let view = View::new(&recorded.profile, 0, each);
            let mut out = printed::stdout();
            let listed = if args.each { Threads::each(&view) } else { Threads::by_stack(&view) };
            if args.json {
                json::write(&mut out, &ThreadsAnswer::new(&view, &listed))?;
            } else {
                threads::write(&mut out, &view, &listed)?;
            }
            out.flush()?;
            if !args.verbosity.quiet {
                let summary = Summary::for_printed_threads(&recorded);
                summary.write(&mut Stderr, args.verbosity.verbose)?;
                summary.advice(&mut Stderr, args.verbosity.verbose)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn target(&self) -> anyhow::Result<Target> {
        if !self.tid.is_empty() {
            let Found { ids, lines } = Found::threads(&self.tid, &[])?;
            self.verbosity.show(&lines);
            return Ok(Target::Threads(ids));
        }
        if self.tree && self.pid.is_empty() {
            return Err(usage("--tree needs -p PID"));
        }
        if self.all_cpus {
            return Ok(Target::Everything);
        }
        if self.pid.is_empty() {
            return Err(usage("no target: give -p PID, -t TID, or -a for the whole machine"));
        }
        let Found { ids, lines } = Found::processes(&self.pid)?;
        self.verbosity.show(&lines);
        Ok(Target::Processes { pids: ids, tree: self.tree })
    }
}
