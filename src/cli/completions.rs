//! `prof completions` and `prof man`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::builder::{Resettable, Str};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::{examples, usage};
use sys::{os, printed};

/// Arguments of `prof completions`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = examples::short("completions"),
    after_long_help = examples::long("completions")
)]
pub struct CompletionArgs {
    /// Shell to print completions for
    shell: clap_complete::Shell,
}

/// Arguments of `prof man`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::short("man"), after_long_help = examples::long("man"))]
pub struct ManArgs {
    /// Print the page of this command, for example record
    #[arg(value_name = "NAME", conflicts_with = "output_dir")]
    name: Option<String>,
    /// Write all pages into DIR, which is created if necessary
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

/// Prints the completions of a shell.
pub fn run(args: CompletionArgs) -> anyhow::Result<ExitCode> {
    let mut out = Vec::new();
    let mut commands = without_hidden(&super::Cli::command());
    clap_complete::generate(args.shell, &mut commands, "prof", &mut out);
    print(&out)
}

/// A command with its arguments and subcommands that are not hidden: the scripts of clap_complete
/// offer the others, too.
fn without_hidden(command: &Command) -> Command {
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let subcommands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let version = command.get_version().map(|version| Str::from(version.to_owned()));
    let shown = Command::new(command.get_name().to_owned())
        .version(Resettable::from(version))
        .about(Resettable::from(command.get_about().cloned()))
        .args(arguments.cloned());
    shown.subcommands(subcommands.map(without_hidden))
}

fn print(text: &[u8]) -> anyhow::Result<ExitCode> {
    let mut out = printed::stdout();
    out.write_all(text)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints one man page, or writes all of them.
pub fn man(args: ManArgs) -> anyhow::Result<ExitCode> {
    if let Some(directory) = &args.output_dir {
        write_all(directory)?;
        return Ok(ExitCode::SUCCESS);
    }
    let page = match args.name.as_deref() {
        None | Some("prof") => main_page(&commands())?,
        Some(name) => command_page(&commands(), name.strip_prefix("prof-").unwrap_or(name))?,
    };
    print(page.as_bytes())
}

fn write_all(directory: &Path) -> anyhow::Result<()> {
    let failed = |path: &Path, e: io::Error| {
        anyhow!("cannot write {}: {}", path.display(), os::describe(&e))
    };
    std::fs::create_dir_all(directory).map_err(|e| failed(directory, e))?;
    let commands = commands();
    let write = |name: &str, page: String| {
        let path = directory.join(format!("{name}.1"));
        std::fs::write(&path, page).map_err(|e| failed(&path, e))
    };
    write("prof", main_page(&commands)?)?;
    names(&commands)
        .into_iter()
        .try_for_each(|name| write(&format!("prof-{name}"), command_page(&commands, name)?))
}

/// The commands of prof, complete with the arguments that clap adds.
fn commands() -> Command {
    let mut command = super::Cli::command().disable_help_subcommand(true);
    command.build();
    command
}

fn names(commands: &Command) -> Vec<&str> {
    commands.get_subcommands().map(Command::get_name).collect()
}

/// prof(1): all commands with their options in one page.
fn main_page(commands: &Command) -> anyhow::Result<String> {
    let main = Man::new(commands.clone());
    let mut out = Vec::new();
    main.render_title(&mut out)?;
    main.render_name_section(&mut out)?;
    let mut page = String::from_utf8(out)?;
    page += ".SH SYNOPSIS\n";
    page += &usage_line(commands);
    page += ".SH DESCRIPTION\n";
    page += &description(commands);
    page += ".SH OPTIONS\n";
    page += &options(commands, |heading| format!(".SS {heading}\n"))?;
    page += ".SH COMMANDS\n";
    page += &format!("Each is described below: {}.\n", names(commands).join(", "));
    for command in commands.get_subcommands() {
        page += &format!(".SS prof {}\n", escaped(command.get_name()));
        page += &description(command);
        page += ".PP\n";
        page += &usage_line(command);
        page += &options(command, |heading| format!(".PP\n{heading}:\n"))?;
    }
    page += &exit_status("prof");
    page += include_str!("man.roff");
    page += &example_section("prof");
    let pages: Vec<String> = names(commands).iter().map(|name| format!("prof-{name}")).collect();
    page += &see_also(&pages);
    let mut version = Vec::new();
    main.render_version_section(&mut version)?;
    page += &String::from_utf8(version)?;
    Ok(ascii_source(&page))
}

/// prof-NAME(1): one command.
fn command_page(commands: &Command, name: &str) -> anyhow::Result<String> {
    let command = commands.find_subcommand(name).ok_or_else(|| {
        usage(format!("man: no command '{name}'; use one of: {}", names(commands).join(", ")))
    })?;
    let version = commands.get_version().context("prof has a version")?;
    let man = Man::new(command.clone()).source(format!("prof {version}"));
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    let mut page = String::from_utf8(out)?;
    page += ".SH SYNOPSIS\n";
    page += &usage_line(command);
    page += ".SH DESCRIPTION\n";
    page += &description(command);
    page += ".SH OPTIONS\n";
    page += &options(command, |heading| format!(".SS {heading}\n"))?;
    page += &exit_status(command.get_name());
    page += &example_section(command.get_name());
    let others = names(commands).into_iter().filter(|&other| other != command.get_name());
    let mut pages = vec!["prof".to_owned()];
    pages.extend(others.map(|name| format!("prof-{name}")));
    page += &see_also(&pages);
    Ok(ascii_source(&page))
}

/// The description, in sentences.
fn description(command: &Command) -> String {
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let paragraphs = about.split("\n\n").map(|text| format!("{}.", text.trim_end_matches('.')));
    let mut roff = Roff::new();
    for (i, paragraph) in paragraphs.enumerate() {
        if i > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(paragraph)]);
    }
    roff.to_roff()
}

/// The options, with headings of groups as `heading` writes them.
fn options(command: &Command, heading: impl Fn(&str) -> String) -> anyhow::Result<String> {
    let mut out = Vec::new();
    Man::new(command.clone()).render_options_section(&mut out)?;
    let mut text = String::from_utf8(out)?.replace(".SH OPTIONS\n", "");
    let groups = command.get_arguments().filter_map(|argument| argument.get_help_heading());
    for group in groups {
        let upper = group.to_uppercase();
        for quoted in [upper.clone(), format!("\"{upper}\"")] {
            text = text.replace(&format!(".SH {quoted}\n"), &heading(&escaped(group)));
        }
    }
    // Items of a list begin a line.
    Ok(text.replace("\n\\- ", "\n.br\n\\- "))
}

/// `prof record [OPTIONS] [-- <COMMAND>...]`
fn usage_line(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let name = command.get_bin_name().unwrap_or_default();
    let rest = usage.strip_prefix(name).unwrap_or(usage);
    Roff::new().text([bold(name), roman(rest)]).to_roff()
}

fn exit_status(name: &str) -> String {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for status in examples::statuses(name) {
        roff.control("TP", []);
        roff.text([bold(status.code)]).text([roman(status.meaning)]);
    }
    if name == "prof" {
        roff.control("PP", []);
        roff.text([bold("prof doctor"), roman(" exits with 1 if this user cannot record.")]);
    }
    if examples::runs_command(name) {
        roff.control("PP", []);
        roff.text([roman(examples::COMMAND_NOTE)]);
    }
    roff.to_roff()
}

fn example_section(name: &str) -> String {
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES"]);
    for example in examples::examples(name) {
        roff.control("TP", []);
        roff.text([bold(example.command)]);
        roff.text([roman(format!("{}.", example.effect))]);
    }
    roff.to_roff()
}

fn see_also(pages: &[String]) -> String {
    let pages: Vec<String> = pages.iter().map(|p| format!("\\fB{}\\fR(1)", escaped(p))).collect();
    format!(".SH \"SEE ALSO\"\n{}\n", pages.join(", "))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Characters that roff typesets as others than ASCII, by their names. A quote at the start of a
/// line is a control character, which the preamble of each section uses.
fn ascii_source(page: &str) -> String {
    let mut in_text = String::with_capacity(page.len());
    for line in page.lines() {
        if line.starts_with(['.', '\'']) {
            in_text += line;
        } else {
            let names = [("~", "\\(ti"), ("^", "\\(ha"), ("`", "\\(ga"), ("'", "\\(aq")];
            in_text += &names.iter().fold(line.to_owned(), |text, (c, n)| text.replace(c, n));
        }
        in_text.push('\n');
    }
    in_text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each option of a command is in this text, as it is in the page.
    fn check_options(command: &Command, text: &str) {
        let text = text.replace("\\-", "-");
        let options = command.get_arguments().filter(|argument| !argument.is_hide_set());
        let longs: Vec<&str> = options.filter_map(|argument| argument.get_long()).collect();
        assert!(!longs.is_empty());
        for long in longs {
            assert!(text.contains(&format!("--{long}")), "{} --{long}", command.get_name());
        }
    }

    #[test]
    fn the_main_page_documents_every_option_of_every_command() {
        let commands = commands();
        let page = main_page(&commands).unwrap();
        for command in commands.get_subcommands() {
            let heading = format!(".SS prof {}\n", command.get_name());
            let start = page.find(&heading).unwrap_or_else(|| panic!("no {heading}"));
            let section = &page[start + heading.len()..];
            check_options(command, &section[..section.find(".SS ").unwrap_or(section.len())]);
        }
        // Headings of the commands are not headings of the page.
        assert_eq!(page.matches(".SH SYNOPSIS").count(), 1);
        assert!(!page.contains(".SH TARGET"), "{page}");
    }

    #[test]
    fn the_page_of_a_command_documents_its_options() {
        let commands = commands();
        for command in commands.get_subcommands() {
            let page = command_page(&commands, command.get_name()).unwrap();
            check_options(command, &page);
            for heading in [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "OPTIONS",
                "\"EXIT STATUS\"",
                "EXAMPLES",
                "\"SEE ALSO\"",
            ] {
                let heading = format!("\n.SH {heading}\n");
                assert_eq!(page.matches(&heading).count(), 1, "{heading}{page}");
            }
            assert!(page.is_ascii(), "{page}");
        }
        assert!(command_page(&commands, "nosuch").is_err());
    }
}
