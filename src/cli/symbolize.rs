//! `prof symbolize`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::address_names::place;
use super::examples;
use super::filter::samples;
use super::naming::LookupResult;
use super::output::Output;
use super::progress::Bar;
use super::symbol_args::SymbolArgs;
use formats::{Opened, UnnamedFrames, pprof};
use profile::{Cause, set_unsymbolized};
use symbols::SymbolOptions;
use sys::printed::Stderr;

/// Arguments of `prof symbolize`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("symbolize"), after_long_help = examples::long("symbolize"))]
pub struct Args {
    /// Profile to add symbols to; - is standard input
    #[arg(value_name = "FILE", default_value = "profile.pb.gz")]
    file: PathBuf,
    /// Write to FILE instead of replacing the profile; - is standard output
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Look up again addresses that already have names
    #[arg(long, help_heading = "Symbols")]
    force: bool,
    /// Use at most N threads [default: the number of CPUs]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024),
          help_heading = "Symbols")]
    jobs: Option<u16>,

    #[command(flatten)]
    symbols: SymbolArgs,

    /// Print errors only
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
}

/// Runs `prof symbolize`.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Opened { mut profile, format } =
        formats::open_file(&args.file, &args.symbols.read_options())?;
    if args.output.is_none() && format.name() != pprof::NAME {
        let file = args.file.display();
        anyhow::bail!(
            "{file} is {}: name a file for the result in pprof format with -o",
            format.title()
        );
    }
    // First, so that an unwritable path is reported before the work.
    let output = match &args.output {
        Some(path) => samples::output(path)?,
        None => Output::create(&args.file)?,
    };
    let mut options = SymbolOptions {
        force: args.force,
        at_any_time: format.unnamed_frames() == UnnamedFrames::Addresses,
        ..args.symbols.options()?
    };
    if let Some(jobs) = args.jobs {
        options.jobs = jobs.into();
    }
    place(&mut profile, format, &options);
    let bar = Bar::new(BAR, !args.quiet);
    let named = LookupResult::look_up(&mut profile, &options, &|done, total| bar.set(done, total));
    bar.finish();
    let shares = symbols::unsymbolized(&profile);
    set_unsymbolized(&mut profile, &shares, &named.outcome.reasons());
    output.write(&profile)?;
    if !args.quiet {
        summary(&named).iter().for_each(|line| Stderr::line(&format!("prof: {line}")));
    }
    Ok(ExitCode::SUCCESS)
}

/// The bar.
pub const BAR: &str = "symbolizing {wide_bar} {pos}/{len}";

/// The number of names found, and for each binary the number of missing ones, with the reason.
fn summary(named: &LookupResult) -> Vec<String> {
    let outcome = &named.outcome;
    if outcome.requested() == 0 {
        return vec!["nothing to do: all addresses have names".into()];
    }
    let waits = named.waits.sentences();
    let mut out = vec![format!(
        "{} of {} addresses have names now, {} of them with source lines",
        outcome.named(),
        outcome.requested(),
        outcome.with_line(),
    )];
    for binary in &outcome.binaries {
        let file = if binary.file.is_empty() { "[unknown]" } else { &binary.file };
        if let Some(why) = &binary.why {
            let missing = binary.requested - binary.named;
            out.push(format!("  {file}: {missing} of {} without a name: {why}", binary.requested));
        }
        if let Some(damage) = &binary.damage {
            let without = binary.requested - binary.with_line;
            out.push(format!(
                "  {file}: {without} of {} without source lines: {damage}",
                binary.requested
            ));
        }
        if binary.bad_lines > 0 && !matches!(binary.why, Some(Cause::NoPerfMap(_))) {
            out.push(format!(
                "  {file}: {} lines are not in the format of a perf map",
                binary.bad_lines
            ));
        }
    }
    out.extend(waits.iter().chain(&outcome.errors).map(|error| format!("  {error}")));
    if outcome.without_mapping > 0 {
        let belong =
            if outcome.without_mapping == 1 { "address belongs" } else { "addresses belong" };
        out.push(format!("  {} {belong} to no binary", outcome.without_mapping));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::MappingId;
    use symbols::{BinaryOutcome, Outcome};

    #[test]
    fn the_summary_says_why_names_are_missing() {
        let binary = |file: &str, requested, named, why| BinaryOutcome {
            mapping: MappingId(0),
            file: file.into(),
            requested,
            named,
            with_line: named,
            why,
            damage: None,
            bad_lines: 0,
        };
        let outcome = Outcome {
            binaries: vec![
                binary("/bin/good", 5, 5, None),
                binary("/bin/gone", 4, 0, Some(Cause::FileMissing)),
            ],
            without_mapping: 1,
            errors: vec!["http://x: timed out".into()],
        };
        assert_eq!(
            summary(&LookupResult { outcome, ..LookupResult::default() }).join("\n"),
            "5 of 10 addresses have names now, 5 of them with source lines\n  \
             /bin/gone: 4 of 4 without a name: the file is not there\n  \
             http://x: timed out\n  \
             1 address belongs to no binary"
        );
        assert!(summary(&LookupResult::default())[0].starts_with("nothing to do"));
    }
}
