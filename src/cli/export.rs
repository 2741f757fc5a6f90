//! `prof export`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::address_names::{AddressNames, BinaryArgs};
use super::filter::{FilterArgs, samples};
use super::output::Output;
use super::source::{FileArgs, Loaded};
use super::{examples, summary, usage};
use formats::{Format, LeftOut, Part, WriteOptions};
use messages::Message;
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

    /// Print errors only
    #[arg(short, long, help_heading = HEADING)]
    quiet: bool,

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
    let names = AddressNames::from(&args.binaries);
    args.filter.names = if args.quiet { names.quiet() } else { names };
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
    let Loaded { mut profile, notes } = args.filter.load_for_file(&source)?;
    let notes = if args.quiet { Vec::new() } else { notes };
    notes.iter().for_each(|note| Stderr::line(&format!("prof: {note}")));
    let type_index = args.filter.type_index(&profile)?;
    if args.filter.no_inlines {
        view::fold_inlined(&mut profile);
    }
    let to_stdout = output.is_stdout();
    let left_out =
        (!args.quiet).then(|| LeftOut::new(&profile, format, &WriteOptions { type_index }));
    let bytes = if format.name() == formats::pprof::NAME {
        output.write(&profile::into_compact(profile))?
    } else {
        let cut = shorten(&mut profile, format);
        cut.filter(|_| !args.quiet).iter().for_each(|note| Stderr::line(note));
        write(&profile, format, WriteOptions { type_index }, output)?
    };
    let Some(left_out) = left_out else { return Ok(ExitCode::SUCCESS) };
    if !to_stdout {
        summary::written(&mut Stderr, path, bytes, None)?;
    }
    if !left_out.is_nothing() {
        Stderr::line(&format!("prof: {}", message(left_out, format)));
    }
    Ok(ExitCode::SUCCESS)
}

/// The message about what a file lacks.
fn message(left_out: LeftOut, format: &dyn Format) -> Message {
    let word = |part: Part| match part {
        Part::Stacks => "whole stacks",
        Part::Times => "times",
        Part::Lines => "source lines",
        Part::Binaries => "binaries",
    };
    Message::LeftOutOfFile {
        format: format.name().to_owned(),
        sample_types: left_out.sample_types,
        labels: left_out.labels,
        parts: left_out.parts.into_iter().map(|part| word(part).to_owned()).collect(),
    }
}

/// Cleans and shortens the texts of a profile for a format. Returns the line about cut names.
fn shorten(profile: &mut Profile, format: &dyn Format) -> Option<String> {
    if format.is_text() {
        profile.strings.replace(printed::line);
    }
    let cut = view::cut_long_texts(profile);
    let s = if cut == 1 { "" } else { "s" };
    (cut > 0).then(|| format!("prof: {cut} long name{s} cut in the middle"))
}

/// Writes a profile in another format than pprof. Returns the number of bytes.
fn write(
    profile: &Profile,
    format: &dyn Format,
    options: WriteOptions,
    output: Output,
) -> anyhow::Result<u64> {
    let Some(write) = format.writer() else { anyhow::bail!("{} cannot be written", format.name()) };
    if profile.samples.is_empty() {
        anyhow::bail!("nothing to write: the profile has no samples, or none passes the filters");
    }
    let content = |out: &mut dyn std::io::Write| write(profile, &options, out);
    if format.is_text() { output.write_text(content) } else { output.write_bytes(content) }
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
                if let Some(way) = other_way(path) {
                    return Err(usage(format!("{name}: {way}")));
                }
                Err(usage(format!("{name}: the name has no format's ending: {}", known())))
            }
        }
    }
}

/// The subcommand that writes files of this name, if `prof export` does not.
pub(super) fn other_way(path: &Path) -> Option<String> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    let file = |ending: &str| {
        let path = path.with_extension(ending);
        super::shell_word(&path.to_string_lossy()).into_owned()
    };
    let svg = file("svg");
    Some(match extension.as_str() {
        "svg" => format!("pictures are drawn by prof flame -o {svg} and prof graph -o {svg}"),
        "html" | "htm" | "png" | "pdf" | "jpg" | "jpeg" | "gif" | "webp" => {
            format!("prof draws SVG: prof flame -o {svg}, or prof graph -o {svg}")
        }
        "dot" | "gv" => format!("a call graph is written by prof graph -o {}", file(&extension)),
        "txt" => format!("text is written by prof report > {}; {}", file(&extension), known()),
        "json" => format!(
            "the answers of views are written by prof report --json > {}; {}",
            file(&extension),
            known()
        ),
        _ => return None,
    })
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
        for words in [&["-o", "a.xyz"][..], &["-o", "a.json"], &["-o", "-"], &[]] {
            let error = format(words).unwrap_err();
            assert!(error.contains("--to collapsed (.folded, .collapsed"), "{error}");
        }
    }

    #[test]
    fn names_of_pictures_and_texts_name_the_subcommand_that_writes_them() {
        for (name, way) in [
            ("a.svg", "prof flame -o a.svg and prof graph -o a.svg"),
            ("a b.PNG", "prof flame -o 'a b.svg'"),
            ("a.dot", "prof graph -o a.dot"),
            ("a.txt", "prof report > a.txt"),
            ("a.json", "prof report --json > a.json; --to "),
        ] {
            let error = format(&["-o", name]).unwrap_err();
            assert!(error.contains(way), "{error}");
        }
    }
}
