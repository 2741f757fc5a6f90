//! `prof top`: what runs now.

mod batch;
mod cost;
mod interactive;
mod keeper;
mod names;
mod other_data;
mod recorder;

use std::process::ExitCode;
use std::time::Duration;

use super::filter::FilterArgs;
use super::hints::joined;
use super::perf_options::{PerfArgs, PerfTop};
use super::sort::{Grouping, SortKey, sort_key};
use super::summary::Verbosity;
use super::symbol_args::SymbolArgs;
use super::target::{self, ProcessArg, TargetArgs, parse_duration};
use super::values::ValueArgs;
use super::{examples, usage};
use crate::report::terminal::Start;
use crate::sampler::Rate;
use crate::sampler::types::{self, GivenOption, Registered, ValuesKnown};
use profile::LiveWindow;
use recorder::Recorder;
use sys::{printed, procfs};
use view::query::Query;

/// Arguments of `prof top`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("top"), after_long_help = examples::long("top"))]
pub struct Args {
    /// The target; without one, the whole machine
    #[command(flatten)]
    target: TargetArgs,

    #[command(flatten)]
    symbols: SymbolArgs,

    #[command(flatten)]
    values: ValueArgs,

    #[command(flatten)]
    filter: FilterArgs,

    /// Order and group rows by KEYS, separated by commas, as in prof report
    #[arg(short, long, value_name = "KEYS", value_delimiter = ',', value_parser = sort_key,
          default_value = "self", help_heading = "View")]
    sort: Vec<SortKey>,

    /// Show the last interval, the last 10 s, or all with a half-life of 30 s
    ///
    /// In 'all', a sample counts half after 30 s, a quarter after 60 s, and so on. The default is
    /// recent, or last with --batch.
    #[arg(long, value_name = "WINDOW", value_enum, help_heading = "View")]
    window: Option<WindowArg>,

    /// Show a new table after each TIME, such as 500ms or 2s
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1s",
          help_heading = "View")]
    interval: Duration,

    /// Print a table for each interval instead of the interactive views
    ///
    /// The default if standard output is no terminal.
    #[arg(long, alias = "stdio", help_heading = "Output")]
    batch: bool,

    /// With --batch, print N tables and end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..),
          help_heading = "Output")]
    iterations: Option<u64>,

    /// With --batch, print at most N rows; 0 prints all [default: 30]
    ///
    /// With --json, the default is all.
    #[arg(short, long, value_name = "N", value_parser = super::report::rows,
          allow_negative_numbers = true, help_heading = "Output")]
    nodecount: Option<usize>,

    /// Print each table as a JSON object, as prof report --json does
    #[arg(long, help_heading = "Output")]
    json: bool,

    #[command(flatten)]
    verbosity: Verbosity,

    #[command(flatten)]
    perf: PerfArgs<PerfTop>,
}

/// A value of `--window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum WindowArg {
    /// The last interval
    Last,
    /// The last 10 s
    Recent,
    /// All, with a half-life of 30 s
    All,
}

impl WindowArg {
    fn window(self) -> LiveWindow {
        match self {
            WindowArg::Last => LiveWindow::Last,
            WindowArg::Recent => LiveWindow::Recent,
            WindowArg::All => LiveWindow::Decayed,
        }
    }
}

/// True for a profile type without samples while the recording goes on.
fn is_of_the_end(known: &Registered) -> bool {
    matches!(known.values, ValuesKnown::AtTheEnd { .. })
}

/// True for an option of such a type.
fn is_option_of_the_end(argument: &clap::Arg) -> bool {
    let groups = types::ALL.iter().filter(|known| is_of_the_end(known)).filter_map(|known| {
        let add = known.options.as_ref()?.add;
        Some(add(clap::Command::new(known.name)))
    });
    groups.into_iter().any(|group| group.get_arguments().any(|a| a.get_id() == argument.get_id()))
}

/// An argument of `prof top`, changed where it differs from that of `prof record` or `prof report`.
/// What `prof top` refuses is hidden.
pub fn argument(argument: clap::Arg) -> clap::Arg {
    match argument.get_id().as_str() {
        "timestamps" | "max_samples" | "time" => argument.hide(true),
        _ if is_option_of_the_end(&argument) => argument.hide(true),
        "types" => argument.value_parser(target::profile_types_without(is_of_the_end)),
        "all_cpus" => argument.help("Record the whole machine, as without any target"),
        "duration" => argument
            .help("Record for this long [default: until you quit or the target ends]")
            .long_help(
                "Record for this long [default: until you quit or the target ends]\n\n\
                 The interactive views stay afterwards. TIME has a unit: 500ms, 10s, 5m, 1h. A \
                 number alone is seconds.",
            ),
        "freq" => {
            argument.help("Take HZ samples per second and CPU [default: 99 or less]").long_help(
                "Take HZ samples per second and CPU [default: 99 or less]\n\n\
             Of the whole machine, all CPUs together take 300 by default. 'max' is the kernel's \
             limit. Avoid round numbers such as 100 and 1000: programs that work in step with the \
             timer are then always sampled at the same place.",
            )
        }
        // --demangle none, which top has for names of files as well, replaces --no-demangle.
        "no_demangle" => argument.hide(true),
        // --no-inlines is that of recordings.
        "fold_inlined" => argument.long("noinlines").hide(true),
        _ => argument,
    }
}

impl Args {
    /// Fails if arguments contradict each other.
    fn check(&self) -> anyhow::Result<()> {
        let TargetArgs { timestamps, max_samples, type_options, types, .. } = &self.target;
        refuse_types_of_the_end(types)?;
        if let Some(GivenOption { owner, option }) = type_options.given(is_of_the_end)
            && let ValuesKnown::AtTheEnd { lack, instead } = owner.values
        {
            return Err(usage(format!("{option}: prof top {lack}; use {instead}")));
        }
        if *timestamps || max_samples.is_some() || self.filter.samples.time.is_given() {
            return Err(usage("prof top keeps no times of samples: use prof record --timestamps"));
        }
        if self.interval < Duration::from_millis(100) {
            return Err(usage("--interval: the shortest is 100ms"));
        }
        self.filter.check()
    }

    fn window(&self, default: LiveWindow) -> LiveWindow {
        self.window.map_or(default, WindowArg::window)
    }

    /// True if no option selects rows: they are those that are usual for the sample type.
    fn has_usual_rows(&self) -> bool {
        self.filter.granularity.is_none() && !Grouping::parse(&self.sort).is_grouped()
    }

    /// The rows of the table, and their order.
    fn grouping(&self) -> Grouping {
        let grouping = Grouping::parse(&self.sort);
        let groups = grouping.resolved(self.filter.granularity());
        Grouping { groups, ..grouping }
    }
}

/// Fails if a profile type has no samples while the recording goes on.
fn refuse_types_of_the_end(names: &[String]) -> anyhow::Result<()> {
    for known in names.iter().filter_map(|name| types::ALL.iter().find(|t| t.name == name)) {
        if let ValuesKnown::AtTheEnd { instead, .. } = known.values {
            return Err(usage(format!(
                "-T {}: its values are known at the end of a recording only; use {instead}",
                known.name
            )));
        }
    }
    Ok(())
}

/// The target, for the line at the top.
fn title(target: &TargetArgs) -> String {
    let title = match target {
        TargetArgs { command, .. } if !command.is_empty() => command.join(" "),
        TargetArgs { processes, .. } if !processes.is_empty() => {
            let is_name = |arg: &ProcessArg| matches!(arg, ProcessArg::Name(_));
            let kind = if processes.iter().any(is_name) { "" } else { "PID " };
            format!("{kind}{}", joined(processes))
        }
        TargetArgs { tid, .. } if !tid.is_empty() => format!("TID {}", joined(tid)),
        TargetArgs { user: Some(user), .. } => format!("user {user}"),
        TargetArgs { cgroup: Some(cgroup), .. } => cgroup.display().to_string(),
        TargetArgs { cpu: Some(cpu), .. } => format!("CPU {cpu}"),
        _ => "whole machine".to_owned(),
    };
    printed::line(&title).into_owned()
}

/// The default rate in Hz on each CPU of a whole machine: all CPUs together have at most 300 samples
/// a second, or 5 each, whose cost stays below half a percent of a core.
fn machine_rate(cpus: u64) -> u64 {
    // Odd, so that it does not follow what happens in round numbers of milliseconds.
    ((300 / cpus.max(1)) | 1).clamp(5, 99)
}

/// Runs `prof top`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut args = args;
    args.filter.no_inlines |= args.symbols.no_inlines();
    args.perf.check()?;
    args.check()?;
    args.target.all_cpus |= !args.target.is_given();
    let grouping = args.grouping();
    let shown = (!args.batch && !args.json && super::report::has_terminal())
        .then(|| interactive::shown(&grouping))
        .flatten();
    let names = args.symbols.options()?;
    let mut target = std::mem::take(&mut args.target);
    target.find_and_show(args.verbosity)?;
    let has_chosen_rate = target.freq.is_some() || target.count.is_some();
    if !has_chosen_rate && target.all_cpus {
        target.freq = Some(Rate::Frequency(machine_rate(procfs::online_cpus().len() as u64)));
    }
    let title = title(&target);
    let given = shown.is_some().then(|| target.clone());
    let recorder =
        Recorder::start(target, args.interval, shown.is_some(), args.verbosity, has_chosen_rate)?;
    match shown.zip(given) {
        Some((shown, target)) => interactive::run(
            &args,
            target,
            recorder,
            names,
            Start {
                file: title,
                query: Query {
                    granularity: None,
                    folds_inlined: false,
                    value_options: args.values.options(),
                    ..args.filter.query(shown)
                },
                ..Start::default()
            },
        ),
        None => batch::run(&args, recorder, names, &grouping),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_of_a_whole_machine_are_bounded() {
        let rates = [1, 2, 3, 4, 8, 16, 64, 1000].map(machine_rate);
        assert_eq!(rates, [99, 99, 99, 75, 37, 19, 5, 5]);
    }
}
