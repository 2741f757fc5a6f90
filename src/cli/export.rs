//! `prof export`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::address_names::BinaryArgs;
use super::filter::{FilterArgs, samples};
use super::output::Output;
use super::source::FileArgs;
use super::{examples, summary, usage};
use formats::{Format, WriteOptions};
use profile::Profile;
use sys::printed::{self, Stderr};

/// The heading of options for the file in help.
const HEADING: &str = "Output";

/// Arguments of `prof export`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("export"), after_long_help = examples::long("export"))]
pub struct Args {
    /// Profiles
    #[command(flatten)]
    files: FileArgs,

    /// Format to write [default: by the name of the output]
    #[arg(long, value_name = "FORMAT", value_parser = format(), help_heading = HEADING)]
    to: Option<FormatArg>,

    /// Write to FILE [default: standard output]
    #[arg(short, long, value_name = "FILE", help_heading = HEADING)]
    output: Option<PathBuf>,

    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    binaries: BinaryArgs,
}

/// A format that is written.
#[derive(Clone, Copy)]
struct FormatArg(&'static dyn Format);

impl std::fmt::Debug for FormatArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name())
    }
}

fn format() -> impl TypedValueParser<Value = FormatArg> {
    let values = formats::written().map(|format| {
        let extension = format.extensions()[0];
        PossibleValue::new(format.name()).help(format!("{} (.{extension})", format.title()))
    });
    PossibleValuesParser::new(values.collect::<Vec<_>>()).map(|name| {
        let found = formats::written().find(|format| format.name() == name);
        FormatArg(found.expect("a possible value"))
    })
}

/// Runs `prof export`.
pub fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.filter.names = (&args.binaries).into();
    args.filter.check()?;
    if args.filter.granularity.is_some() {
        return Err(usage(
            "--granularity: an export has functions, lines and addresses as they are",
        ));
    }
    let format = args.format()?;
    let path = args.output.as_deref().unwrap_or(Path::new("-"));
    // First, so that an unwritable path is reported before the work.
    let output = samples::output_as(path, format)?;
    let source = args.files.source();
    let mut profile = args.filter.load_for_file(&source)?;
    let type_index = args.filter.type_index(&profile)?;
    if args.filter.no_inlines {
        view::fold_inlined(&mut profile);
    }
    if format.name() == formats::pprof::NAME {
        samples::write(profile, output)?;
    } else {
        write(profile, format, WriteOptions { type_index }, output)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a profile in another format than pprof.
fn write(
    mut profile: Profile,
    format: &dyn Format,
    options: WriteOptions,
    output: Output,
) -> anyhow::Result<()> {
    let Some(write) = format.writer() else { anyhow::bail!("{} cannot be written", format.name()) };
    if format.is_text() {
        profile.strings.replace(printed::line);
    }
    let cut = view::cut_long_texts(&mut profile);
    if cut > 0 {
        let s = if cut == 1 { "" } else { "s" };
        Stderr::line(&format!("prof: {cut} long name{s} cut in the middle"));
    }
    if profile.samples.is_empty() {
        anyhow::bail!("nothing to write: the profile has no samples, or none passes the filters");
    }
    let path = output.path().to_owned();
    let to_stdout = output.is_stdout();
    let content = |out: &mut dyn std::io::Write| write(&profile, &options, out);
    let bytes =
        if format.is_text() { output.write_text(content)? } else { output.write_bytes(content)? };
    if !to_stdout {
        summary::written(&mut Stderr, &path, bytes, None)?;
    }
    Ok(())
}

impl Args {
    /// The format that is requested by name, or by the name of the file.
    fn format(&self) -> anyhow::Result<&'static dyn Format> {
        if let Some(FormatArg(format)) = self.to {
            return Ok(format);
        }
        let path = self.output.as_deref().filter(|path| *path != Path::new("-"));
        let Some(path) = path else {
            return Err(usage(format!("name the format: {}", known())));
        };
        match formats::format_of_name(path) {
            Some(format) if format.writer().is_some() => Ok(format),
            Some(format) => {
                let title = format.title();
                Err(usage(format!("prof reads, but does not write {title}; formats: {}", known())))
            }
            None => {
                let name = path.display();
                Err(usage(format!("{name}: the name has no format's ending: {}", known())))
            }
        }
    }
}

/// The formats that can be written, as options and as endings of names.
fn known() -> String {
    let all = formats::written().map(|format| {
        let endings = format.extensions().iter().map(|end| format!(".{end}"));
        format!("--to {} ({})", format.name(), endings.collect::<Vec<_>>().join(", "))
    });
    all.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Cli, Command};

    fn format(words: &[&str]) -> Result<&'static str, String> {
        let words = ["prof", "export"].iter().chain(words);
        let Command::Export(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("prof export")
        };
        args.format().map(|format| format.name()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_format_is_that_of_the_option_or_of_the_name() {
        assert_eq!(format(&["--to", "collapsed"]), Ok("collapsed"));
        assert_eq!(format(&["-o", "a.folded"]), Ok("collapsed"));
        assert_eq!(format(&["-o", "a.pb.gz", "--to", "collapsed"]), Ok("collapsed"));
        assert_eq!(format(&["a.folded", "-o", "a.pb.gz"]), Ok("pprof"));
        for words in [&["-o", "a.txt"][..], &["-o", "-"], &[]] {
            let error = format(words).unwrap_err();
            assert!(error.contains("--to collapsed (.folded, .collapsed"), "{error}");
        }
    }
}
