//! `prof report` on a terminal: the interactive views.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;

use super::super::filter::FilterArgs;
use super::super::sort::check_labels;
use super::super::symbol_args::debuginfod_client;
use super::{Args, DEFAULT_FILE, Plan};
use crate::report::terminal::{self, Base, CodeOptions, Opened, Page, Rows, Shown, Start, Values};
use code::text::SourcePaths;
use profile::Profile;
use symbols::SymbolOptions;
use sys::printed::{self, Stderr};
use view::{Granularity, Scale, Sort};

/// True if an option asks for text.
pub(super) fn asks_for_text(args: &Args) -> bool {
    args.stdio
        || args.json
        || args.header
        || args.header_only
        || args.output.is_some()
        || args.over.is_some()
        || args.collapse_recursion
        || args.nodecount.is_some()
        || args.percent_limit.is_some()
        || args.columns.is_given()
        || args.filter.sample_type.as_ref().is_some_and(|kinds| kinds.contains(','))
        || args.no_children
}

/// True if the terminal can show the interactive views: it can move its cursor, and there are keys.
pub fn has_terminal() -> bool {
    if !printed::stdout_is_terminal() || !std::io::stdin().is_terminal() {
        return false;
    }
    let term = std::env::var_os("TERM").unwrap_or_default();
    let dumb = term.is_empty() || term == "dumb";
    if dumb {
        let term = term.to_string_lossy();
        Stderr::line(&format!(
            "prof: text, because a terminal with TERM={term} cannot move its cursor; --stdio \
             prints text without this line"
        ));
    }
    !dumb
}

/// The first page of the interactive views; `None`: text is printed, because an option asks for it,
/// the terminal cannot show them, or they do not have what the options select.
pub(super) fn start(args: &Args, plan: &Plan) -> anyhow::Result<Option<Start>> {
    let Some(shown) = shown(args, plan).filter(|_| has_terminal()) else { return Ok(None) };
    Ok(Some(Start {
        file: listed(&plan.files),
        shown,
        filters: args.filter.added(),
        code: args.source.options()?,
    }))
}

fn shown(args: &Args, plan: &Plan) -> Option<Shown> {
    // The interactive views find functions by their names.
    if asks_for_text(args) || plan.granularity.package {
        return None;
    }
    let table = |rows| Some(Shown::Table { rows, order: plan.order.into() });
    match (args.view.chosen, plan.direction, plan.labels.as_slice()) {
        (Some("sandwich"), ..) => args.view.argument.clone().map(Shown::Sandwich),
        (Some("states"), ..) => Some(Shown::States(match plan.order {
            Sort::Name => Sort::Name.into(),
            _ => Sort::Total.into(),
        })),
        (Some(name), ..) => Page::named(name).map(Shown::Text),
        (None, Some(direction), []) => Some(Shown::Tree(direction)),
        (None, None, labels) => table(rows(plan.granularity, labels)?),
        _ => None,
    }
}

/// Files for the line at the top.
fn listed(files: &[PathBuf]) -> String {
    let names: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
    let file = if names.is_empty() { DEFAULT_FILE.to_owned() } else { names.join(" ") };
    printed::line(&file).into_owned()
}

/// The rows that these options select, if the interactive views have them.
pub(in crate::cli) fn rows(granularity: Granularity, labels: &[String]) -> Option<Rows> {
    match (labels, granularity) {
        ([label], Granularity::NONE) => Some(Rows::Label(label.clone())),
        ([], Granularity { line: true, .. }) => Some(Rows::Lines),
        ([], Granularity::FUNCTION) => Some(Rows::Functions),
        ([], Granularity { function: false, binary: true, .. }) => Some(Rows::Binaries),
        ([], Granularity::FILES) => Some(Rows::Files),
        _ => None,
    }
}

/// The first page of a comparison; `None`: text is printed.
pub(in crate::cli) fn start_of_difference(
    before: &[PathBuf],
    after: &[PathBuf],
    rows: Rows,
    sort: Sort,
    filter: &FilterArgs,
) -> Option<Start> {
    if !has_terminal() {
        return None;
    }
    let mut shown = Shown::diff(rows);
    if let Shown::Diff { values, order, .. } = &mut shown {
        match sort {
            Sort::Total => *values = Values::Total,
            Sort::Name => *order = sort.into(),
            Sort::SelfValue => {}
        }
    }
    let file = format!("{} → {}", listed(before), listed(after));
    Some(Start { file, shown, filters: filter.added(), ..Start::default() })
}

/// The files of a comparison, and the way.
pub(in crate::cli) struct Files {
    /// Those before and those after.
    pub(in crate::cli) sides: [Vec<PathBuf>; 2],
    pub(in crate::cli) scale: Scale,
    pub(in crate::cli) absolute: bool,
}

/// Shows a comparison.
pub(in crate::cli) fn compare(
    filter: FilterArgs,
    files: Files,
    start: Start,
) -> anyhow::Result<ExitCode> {
    filter.filter()?;
    terminal::run(start, move || {
        let Files { sides, scale, absolute } = files;
        let mut notes = Vec::new();
        let mut read = |file: &PathBuf| -> anyhow::Result<Arc<Profile>> {
            let is_default = file.as_os_str() == DEFAULT_FILE;
            let files = if is_default { &[] } else { std::slice::from_ref(file) };
            let (profile, of_file) = filter.open(files)?;
            notes.extend(of_file);
            Ok(Arc::new(profile))
        };
        let [before, after] = &sides;
        let before = before.iter().map(&mut read).collect::<anyhow::Result<Vec<_>>>()?;
        let mut after = after.iter().map(&mut read).collect::<anyhow::Result<Vec<_>>>()?;
        let profile = match after.as_slice() {
            [_] => {
                let only = after.remove(0);
                Arc::try_unwrap(only).unwrap_or_else(|shared| Profile::clone(&shared))
            }
            several => {
                let several = several.iter().map(|profile| Profile::clone(profile)).collect();
                profile::merge(several).context("the profiles cannot be merged")?
            }
        };
        let type_index = filter.type_index(&profile)?;
        let names = |files: &Vec<PathBuf>| {
            files.iter().map(|file| file.to_string_lossy().into_owned()).collect()
        };
        let files = [names(&sides[0]), names(&sides[1])];
        let base = Some(Base { before, after, files, scale, absolute });
        Ok(Opened { profile, base, type_index, notes })
    })
}

/// Places of source files and binaries, for the views of source.
#[derive(Clone, Debug, Default, clap::Args)]
pub(in crate::cli) struct SourceArgs {
    /// On a terminal, look for source files in DIR (repeatable)
    ///
    /// As in prof annotate.
    #[arg(long, alias = "source_path", value_name = "DIR", help_heading = "Source")]
    source_path: Vec<PathBuf>,

    /// On a terminal, remove PREFIX from recorded paths of source files (repeatable)
    #[arg(long, alias = "trim_path", value_name = "PREFIX", help_heading = "Source")]
    trim_path: Vec<String>,

    /// On a terminal, look for binaries and debug files in DIR (repeatable)
    #[arg(long, value_name = "DIR", help_heading = "Source")]
    symbol_path: Vec<PathBuf>,

    /// On a terminal, fetch missing source and debug files (repeatable)
    ///
    /// From the debuginfod server at URL. Without it, the servers are those in the environment
    /// variable DEBUGINFOD_URLS.
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "",
          help_heading = "Source")]
    debuginfod: Vec<String>,
}

impl SourceArgs {
    /// The places. Fails if a value of `--debuginfod` is not a URL, or there is no server.
    pub(in crate::cli) fn options(&self) -> anyhow::Result<CodeOptions> {
        let paths =
            SourcePaths { directories: self.source_path.clone(), trim: self.trim_path.clone() };
        let symbol_path = self.symbol_path.clone();
        // The views have the screen: progress is not drawn.
        let debuginfod = debuginfod_client(&self.debuginfod, |_| {})?.map(Arc::new);
        let symbols = SymbolOptions { symbol_path, debuginfod, ..SymbolOptions::default() };
        Ok(CodeOptions { paths, symbols })
    }
}

/// Shows the interactive views.
pub(super) fn run(args: Args, plan: Plan, start: Start) -> anyhow::Result<ExitCode> {
    // Wrong options are an error before the screen is entered.
    args.filter.filter()?;
    terminal::run(start, move || {
        let (profile, notes) = args.filter.open(&plan.files)?;
        check_labels(&profile, &plan.must_exist)?;
        let type_index = args.filter.type_index(&profile)?;
        Ok(Opened { profile, base: None, type_index, notes })
    })
}
