//! `prof report` on a terminal: the interactive views.

use std::fs::File;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;

use super::super::address_names::AddressNames;
use super::super::diff::{Sides, common_types};
use super::super::filter::{FilterArgs, failed};
use super::super::sort::check_labels;
use super::super::source::{ComparedSources, Loaded, ProfileSource};
use super::super::symbol_args::{SymbolArgs, debuginfod_client};
use super::command::CommandOptions;
use super::{Args, Plan};
use crate::report::diff::renamed_line;
use crate::report::terminal::{self, Base, CodeOptions, Opened, PageCommand, Start};
use code::text::SourcePaths;
use profile::Profile;
use symbols::SymbolOptions;
use sys::printed::{self, Stderr};
use view::query::{Groups, Query, QueryError, Rows, Shown, Table, Timed};
use view::{ColumnRequest, Diff, Granularity};

/// True if an option selects text.
pub(super) fn selects_text(args: &Args) -> bool {
    args.stdio
        || args.json
        || args.header
        || args.header_only
        || args.output.is_some()
        || args.nodecount.is_some()
        || args.percent_limit.is_some()
        || args.no_children
}

/// True if the terminal can show the interactive views: it can move its cursor, and there are keys.
pub fn has_terminal() -> bool {
    // Without a terminal on standard input, keys come from that of the session, as with less.
    let has_keys = || std::io::stdin().is_terminal() || File::open("/dev/tty").is_ok();
    if !printed::stdout_is_terminal() || !has_keys() {
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

/// The first page of the interactive views; `None`: text is printed, because an option selects it,
/// the terminal cannot show them, or they do not have what the options select.
pub(super) fn start(args: &Args, plan: &Plan) -> anyhow::Result<Option<Start>> {
    let Some(query) = query(args, plan).filter(|_| has_terminal()) else { return Ok(None) };
    let options = CommandOptions::new(&plan.source, args.fixed_options());
    let write = move |profile: &Profile, query: &Query| options.lines(profile, query);
    let command = PageCommand(Some(Arc::new(write)));
    Ok(Some(Start { file: listed(&plan.source), query, code: args.code.options()?, command }))
}

/// The query of the first page, but for what follows from the profile; `None`: text is printed.
fn query(args: &Args, plan: &Plan) -> Option<Query> {
    let filtered = args.filter.query(shown(args, plan)?);
    let collapses_recursion = args.collapse_recursion;
    let value_options = args.value_options();
    Some(Query { granularity: None, collapses_recursion, value_options, ..filtered })
}

/// The query of the first page; `None`: text is printed.
pub(super) fn page_query(
    args: &Args,
    plan: &Plan,
    profile: &Profile,
) -> anyhow::Result<Option<Query>> {
    let Some(mut query) = query(args, plan) else { return Ok(None) };
    let is_plain = |table: &Table| !has_columns(args) && table.is_plain();
    let is_drawn = matches!(&query.shown, Shown::Table(table) if is_plain(table));
    args.complete(plan, &mut query, profile)?;
    if let Shown::Table(table) = &mut query.shown
        && is_drawn
    {
        // A table without columns of its own, such as those of ratios, is drawn from its model.
        table.columns = ColumnRequest::default();
    }
    Ok(Some(Query { granularity: None, ..query }))
}

fn shown(args: &Args, plan: &Plan) -> Option<Shown> {
    // The interactive views find functions by their names.
    let is_table = args.view.option().is_none() && plan.direction.is_none();
    if selects_text(args) || plan.limits.has_limit() || plan.groups.granularity.package && !is_table
    {
        return None;
    }
    let has_columns = has_columns(args);
    if has_columns && !is_table {
        return None;
    }
    match (args.view.shown(plan.order), plan.direction, plan.groups.labels.as_slice()) {
        (Some(shown), ..) => Some(shown),
        (None, Some(direction), []) => Some(Shown::Tree(direction)),
        (None, Some(_), _) => None,
        (None, None, _) => {
            let rows = rows(plan.groups.clone()).filter(|_| !has_columns);
            Some(Shown::Table(match rows {
                Some(rows) => Table::new(rows, plan.order.into()),
                None => args.table(plan),
            }))
        }
    }
}

/// True if a table with columns of other sample types, of ratios or of intervals is requested.
fn has_columns(args: &Args) -> bool {
    let has_types = args.filter.sample_type.as_ref().is_some_and(|kinds| kinds.contains(','));
    args.over.is_some() || args.columns.is_given() || has_types
}

/// The names of the profiles, for the line at the top.
fn listed(source: &ProfileSource) -> String {
    printed::line(&source.names().join(" ")).into_owned()
}

/// The rows of a table that the interactive views draw for these groups; `None`: they show text, as
/// a difference and `prof top` do for packages.
pub(in crate::cli) fn rows(groups: Groups) -> Option<Rows> {
    match Rows::from(groups) {
        Rows::Groups(Groups {
            granularity: Granularity { line: true, address: false, .. },
            labels,
        }) if labels.is_empty() => Some(Rows::Lines),
        Rows::Groups(_) | Rows::Packages => None,
        rows => Some(rows),
    }
}

/// The first page of a difference; `None`: text is printed.
pub(in crate::cli) fn start_of_difference(
    sources: &ComparedSources,
    query: Query,
) -> Option<Start> {
    if !has_terminal() {
        return None;
    }
    let file = format!("{} → {}", listed(&sources.before), listed(&sources.after));
    Some(Start { file, query: Query { granularity: None, ..query }, ..Start::default() })
}

/// Shows a difference.
pub(in crate::cli) fn compare(
    filter: FilterArgs,
    sources: ComparedSources,
    start: Start,
) -> anyhow::Result<ExitCode> {
    filter.check()?;
    terminal::run(start, move || open_difference(&filter, &sources))
}

/// Reads the profiles of a comparison.
fn open_difference(filter: &FilterArgs, sources: &ComparedSources) -> anyhow::Result<Opened> {
    let mut notes = Vec::new();
    let read = |part: &ProfileSource| -> anyhow::Result<Profile> {
        let opened = filter.open(part)?;
        notes.extend(opened.notes);
        Ok(opened.profile)
    };
    let Sides { before, mut after, renamed, note } = Sides::new(sources, read)?;
    notes.extend(note);
    notes.extend(renamed.as_ref().map(renamed_line));
    let files = sources.names();
    let profiles: Vec<&Profile> = before.iter().chain(&after).collect();
    let types = common_types(&profiles, &files.concat(), filter)?;
    let type_after = types[before.len()];
    let (profile, type_index) = match after.as_slice() {
        [_] => (after.remove(0), type_after),
        several => {
            let merged = profile::merge(several.to_vec());
            let merged = merged.context("the profiles cannot be merged")?;
            // It has only the sample types that all of them have.
            let types = Diff::common_type(&[&several[0], &merged], 0, type_after);
            (merged, types.map_or(0, |types| types[1]))
        }
    };
    let shared = |side: Vec<Profile>| side.into_iter().map(Arc::new).collect();
    let (before, after) = (shared(before), shared(after));
    let base = Some(Base { before, after, files, renamed });
    Ok(Opened { profile, base, shown: None, type_index, notes })
}

/// Places of source files and binaries, for the views of source.
#[derive(Clone, Debug, Default, clap::Args)]
pub(in crate::cli) struct CodeArgs {
    /// On a terminal, look for source files in DIR (repeatable)
    ///
    /// As in prof annotate.
    #[arg(long, alias = "source_path", value_name = "DIR", help_heading = "Source")]
    source_path: Vec<PathBuf>,

    /// On a terminal, remove PREFIX from recorded paths of source files (repeatable)
    #[arg(long, alias = "trim_path", value_name = "PREFIX", help_heading = "Source")]
    trim_path: Vec<String>,

    /// Look for binaries and debug files in DIR (repeatable)
    ///
    /// On a terminal, and for the names of files whose frames are addresses, such as perf.data.
    #[arg(long, value_name = "DIR", help_heading = "Source")]
    symbol_path: Vec<PathBuf>,

    /// Fetch missing source and debug files (repeatable)
    ///
    /// On a terminal, and for the names of files whose frames are addresses, such as perf.data.
    /// From the debuginfod server at URL. Without it, the servers are those in the environment
    /// variable DEBUGINFOD_URLS.
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "",
          help_heading = "Source")]
    debuginfod: Vec<String>,
}

impl CodeArgs {
    /// The options that were given.
    pub(super) fn words(&self) -> Vec<String> {
        let path = |option: &str, path: &PathBuf| format!("--{option}={}", path.display());
        let source = self.source_path.iter().map(|value| path("source-path", value));
        let trim = self.trim_path.iter().map(|value| format!("--trim-path={value}"));
        let symbol = self.symbol_path.iter().map(|value| path("symbol-path", value));
        let servers = self.debuginfod.iter().map(|url| format!("--debuginfod={url}"));
        source.chain(trim).chain(symbol).chain(servers).collect()
    }

    /// Where the names of files with addresses are looked up.
    pub(in crate::cli) fn names(&self) -> AddressNames {
        SymbolArgs::with_places(self.symbol_path.clone(), self.debuginfod.clone()).into()
    }

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
    args.filter.check()?;
    terminal::run(start, move || {
        let Loaded { profile, notes } = args.filter.open(&plan.source)?;
        check_labels(&profile, &plan.must_exist)?;
        if args.over.is_some() && profile.times.is_empty() {
            return Err(failed(&QueryError::NoTimes(Timed::Table)));
        }
        let query = page_query(&args, &plan, &profile)?.unwrap_or_default();
        let Query { shown, type_index, .. } = query;
        args.values.check(&profile, type_index)?;
        Ok(Opened { profile, base: None, shown: Some(shown), type_index, notes })
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::diff::load;
    use super::*;
    use clap::Parser;
    use profile::{Builder, Column, LabelSetId};
    use std::fs::File;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        filter: FilterArgs,
    }

    /// A file with these sample types; the first is the default.
    fn file(directory: &tempfile::TempDir, name: &str, kinds: &[&str]) -> PathBuf {
        let types: Vec<(&str, &str)> = kinds.iter().map(|kind| (*kind, "count")).collect();
        let mut builder = Builder::new(&types);
        let main = builder.named_location("main");
        builder.add(&[main], LabelSetId::EMPTY, 0, &[(Column(0), 1)]);
        builder.profile.default_sample_type = builder.profile.strings.intern(kinds[0]);
        let path = directory.path().join(name);
        formats::pprof::write(&builder.finish(None), File::create(&path).unwrap()).unwrap();
        path
    }

    #[test]
    fn a_table_on_a_terminal_has_all_parts_of_its_rows() {
        let rows = |granularity: Granularity, labels: &[&str]| {
            let labels = labels.iter().map(|&key| key.to_owned()).collect();
            rows(Groups { granularity, labels })
        };
        let binaries = Granularity { binary: true, ..Granularity::NONE };
        let lines = Granularity { line: true, ..Granularity::FUNCTION };
        assert_eq!(rows(Granularity::FUNCTION, &[]), Some(Rows::Functions));
        assert_eq!(rows(lines, &[]), Some(Rows::Lines));
        assert_eq!(rows(Granularity::LINES, &[]), Some(Rows::Lines));
        assert_eq!(rows(binaries, &[]), Some(Rows::Binaries));
        assert_eq!(rows(Granularity::NONE, &["tid"]), Some(Rows::Label("tid".to_owned())));
        // Not the files alone, nor the binaries.
        assert_eq!(rows(Granularity { file: true, ..binaries }, &[]), None);
        assert_eq!(rows(binaries, &["tid"]), None);
        assert_eq!(rows(Granularity::PACKAGES, &[]), None);
        // Not the lines of the addresses: the page is a table of addresses.
        assert_eq!(rows(Granularity::ADDRESSES, &[]), None);
        let addresses = Groups { granularity: Granularity::ADDRESSES, labels: Vec::new() };
        assert_eq!(Rows::from(addresses).name(), "addresses");
    }

    #[test]
    fn a_range_of_time_needs_times() {
        let directory = tempfile::tempdir().unwrap();
        let source = ProfileSource::Files(vec![file(&directory, "none", &["cpu"])]);
        let open = |arguments: &[&str]| {
            let Line { filter } = Line::parse_from(["x"].iter().chain(arguments));
            filter.open(&source).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(open(&[]), Ok(()));
        let error = open(&["--time", "1s..2s"]).unwrap_err();
        assert!(error.starts_with("--time: the profile has no times of samples"), "{error}");
    }

    #[test]
    fn a_terminal_compares_the_sample_type_that_text_does() {
        let directory = tempfile::tempdir().unwrap();
        let base = file(&directory, "base", &["cpu", "samples"]);
        let more = file(&directory, "more", &["wall", "samples", "cpu"]);
        let swapped = file(&directory, "swapped", &["samples", "cpu"]);
        let open = |[before, after]: [Vec<PathBuf>; 2], kind: &str| {
            let Line { filter } =
                Line::parse_from(["x", "--type", kind].into_iter().take(if kind.is_empty() {
                    1
                } else {
                    3
                }));
            let (before, after) = (ProfileSource::Files(before), ProfileSource::Files(after));
            let sources = ComparedSources { before, after };
            let query = filter.query(Shown::diff_flame());
            let text = load(&sources, &filter, &query).map(|compared| compared.types);
            (
                text.map_err(|e| e.to_string()),
                open_difference(&filter, &sources).map_err(|e| e.to_string()),
            )
        };
        let one = |file: &PathBuf| vec![file.clone()];
        for (after, kind, expected) in [(&more, "", 2), (&swapped, "", 1), (&more, "samples", 1)] {
            let (text, opened) = open([one(&base), one(after)], kind);
            assert_eq!(text.unwrap()[1], expected, "{after:?}");
            assert_eq!(opened.unwrap().type_index, expected, "{after:?}");
        }
        // The sum of both has samples and cpu.
        let (text, opened) = open([one(&base), vec![more.clone(), swapped.clone()]], "");
        assert_eq!(text.unwrap(), [0, 2, 1]);
        let Opened { profile, type_index, .. } = opened.unwrap();
        assert_eq!(profile.str(profile.sample_types[type_index].kind), "cpu");
        let (text, opened) = open([one(&more), one(&base)], "");
        let error = text.unwrap_err();
        assert!(error.contains("has no sample type \"wall\""), "{error}");
        assert_eq!(opened.err(), Some(error));
    }
}
