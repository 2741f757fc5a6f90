//! `prof completions` and `prof man`.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::CommandFactory;
use clap_mangen::Man;

use super::examples;
use sys::printed;

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
pub struct ManArgs {}

/// Prints the completions of a shell.
pub fn run(args: CompletionArgs) -> anyhow::Result<ExitCode> {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "prof", &mut out);
    print(&out)
}

fn print(text: &[u8]) -> anyhow::Result<ExitCode> {
    let mut out = printed::stdout();
    out.write_all(text)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the man page, the subcommands' options included.
pub fn man(_args: ManArgs) -> anyhow::Result<ExitCode> {
    print(&page()?)
}

/// One page for all: a reader of `man prof` need not know that there are subcommands.
fn page() -> io::Result<Vec<u8>> {
    let mut command = super::Cli::command();
    command.build();
    let main = Man::new(command.clone());
    let mut out = Vec::new();
    main.render_title(&mut out)?;
    main.render_name_section(&mut out)?;
    main.render_synopsis_section(&mut out)?;
    main.render_description_section(&mut out)?;
    main.render_options_section(&mut out)?;
    out.extend(b".SH COMMANDS\n");
    let names: Vec<&str> = command.get_subcommands().map(|c| c.get_name()).collect();
    out.extend(format!("Each has its part below: {}.\n", names.join(", ")).as_bytes());
    for subcommand in command.get_subcommands() {
        let name = subcommand.get_name();
        out.extend(format!(".SS prof {}\n", name.replace('-', "\\-")).as_bytes());
        let man = Man::new(subcommand.clone());
        let mut sections = Vec::new();
        man.render_description_section(&mut sections)?;
        man.render_synopsis_section(&mut sections)?;
        man.render_options_section(&mut sections)?;
        man.render_extra_section(&mut sections)?;
        out.extend(without_headings(&String::from_utf8_lossy(&sections)).as_bytes());
    }
    out.extend(include_bytes!("man.roff"));
    main.render_version_section(&mut out)?;
    Ok(out)
}

/// The sections of a subcommand, run together: headings of the page are for the page.
fn without_headings(roff: &str) -> String {
    roff.lines()
        .map(|line| match line.strip_prefix(".SH ") {
            Some("DESCRIPTION") => String::new(),
            Some("SYNOPSIS" | "OPTIONS" | "EXTRA") => ".PP\n".into(),
            Some(heading) => format!(".PP\n{heading}:\n"),
            None => format!("{line}\n"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_documents_every_option_of_every_subcommand() {
        let page = String::from_utf8(page().unwrap()).unwrap().replace("\\-", "-");
        let mut options = 0;
        for subcommand in super::super::Cli::command().get_subcommands() {
            let heading = format!(".SS prof {}\n", subcommand.get_name());
            let start = page.find(&heading).unwrap_or_else(|| panic!("no {heading}"));
            let section = &page[start + heading.len()..];
            let section = &section[..section.find(".SS ").unwrap_or(section.len())];
            for long in
                subcommand.get_arguments().filter(|a| !a.is_hide_set()).filter_map(|a| a.get_long())
            {
                assert!(section.contains(&format!("--{long}")), "{heading} --{long}");
                options += 1;
            }
        }
        assert!(options > 0);
        // One page: each of its own headings once.
        assert_eq!(page.matches(".SH SYNOPSIS").count(), 1);
    }
}
