//! `prof threads`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use super::output::Output;
use super::progress::Progress;
use super::symbol_args::SymbolArgs;
use super::{record, usage};
use crate::recorder::{self, Interrupts};
use crate::report::threads;
use crate::sampler::{self, Target};
use sys::printed::{self, Stderr};
use view::{Filter, Granularity, View};

/// Arguments of `prof threads`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show the threads of these processes
    #[arg(short, long, value_name = "PID", value_delimiter = ',', allow_negative_numbers = true)]
    pid: Vec<i32>,
    /// With -p: also those of the processes that they have started
    #[arg(long, requires = "pid")]
    tree: bool,
    /// Show these threads alone
    #[arg(
        short,
        long,
        value_name = "TID",
        value_delimiter = ',',
        allow_negative_numbers = true,
        conflicts_with = "pid"
    )]
    tid: Vec<i32>,
    /// Show all threads of the machine
    #[arg(short, long, conflicts_with_all = ["pid", "tid"])]
    all: bool,
    /// Show each thread for itself, in the order of their numbers
    #[arg(long)]
    each: bool,
    /// Write a profile here instead (sample type threads/count); - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    symbols: SymbolArgs,
}

/// Runs `prof threads`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let target = args.target()?;
    let mut output = args.output.as_deref().map(Output::create).transpose()?;
    let names = args.symbols.options()?;
    let interrupts = Interrupts::install(false)?;
    let recording = recorder::snapshot(&target)?;
    let progress = Progress::new(None, true, false);
    interrupts.close_window();
    let mut recorded =
        super::naming::name(recording, Some(names), &interrupts, &progress, output.as_mut())?;
    if let Some(output) = output {
        output.write(&recorded.profile)?;
    } else {
        recorded.profile.strings.replace(printed::line);
        let each = Granularity { line: true, inlined: true, ..Granularity::FUNCTION };
        let view = View::new(&recorded.profile, 0, each, &Filter::default());
        let mut out = printed::stdout();
        threads::write(&mut out, &view, args.each)?;
        out.flush()?;
    }
    let mut err = Stderr;
    record::truncated(&mut err, &recorded.diagnostics)?;
    record::notes(&mut err, &recorded)?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn target(&self) -> anyhow::Result<Target> {
        if !self.tid.is_empty() {
            sampler::check_threads(&self.tid, &[])?;
            return Ok(Target::Threads(self.tid.clone()));
        }
        if self.tree && self.pid.is_empty() {
            return Err(usage("--tree needs -p PID"));
        }
        if self.all {
            return Ok(Target::Everything);
        }
        if self.pid.is_empty() {
            return Err(usage("no target: give -p PID, -t TID, or -a for the whole machine"));
        }
        sampler::check_processes(&self.pid)?;
        Ok(Target::Processes { pids: self.pid.clone(), tree: self.tree })
    }
}
