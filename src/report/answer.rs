//! Answers to queries, as text or JSON.

use std::io::{self, Write};

use super::advice::binaries::{advisor, once, remedies};
use super::annotate::{self, CodeOptions, Layout};
use super::text::{LineWidth, TableOptions, TreeOptions, quoted};
use super::{
    coverage, dot, json, over, peek, quality, sandwich, states, summary, tags, text, threads,
    traces,
};
use view::answer::AnswerData;
use view::query::{
    AddedFilter, FilterError, Limits, OwnRows, Query, QueryError, Shown, Table, Timed, Values,
    Wanted, regex_reason,
};
use view::{
    Answer, Columns, CoverageModel, Cut, Model, SandwichModel, Scale, StatesModel, TableModel,
};

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// Text, with this room for a line.
    Text(LineWidth),
    /// JSON, with exact values.
    Json,
}

impl OutputFormat {
    /// Text with whole names.
    pub const WHOLE_TEXT: OutputFormat = OutputFormat::Text(LineWidth::Unlimited);

    /// Most intervals of a table of values over time.
    pub fn most_intervals(self) -> usize {
        match self {
            OutputFormat::Text(_) => 60,
            OutputFormat::Json => 3600,
        }
    }

    /// What is left out of a view without options: of text, what few would read.
    pub fn limits(self, shown: &Shown) -> Limits {
        let (rows, cut) = match (self, shown) {
            (OutputFormat::Json, _) | (_, Shown::Peek(_)) => (0, Cut::Nothing),
            // The percentage is perf's default.
            (_, Shown::Tree(_) | Shown::Flame(_) | Shown::Sandwich(_)) => (200, Cut::Percent(0.5)),
            (_, Shown::Table(Table { over: Some(_), .. })) => (15, Cut::Nothing),
            _ => (30, Cut::Nothing),
        };
        Limits { rows, cut, values: Values::Total }
    }
}

/// The sentence of an error in a query, in the words of the command line.
pub fn reason(error: &QueryError) -> String {
    match error {
        QueryError::NoFilter(added, error) => wrong_filter(added, error),
        QueryError::NoTimes(timed) => {
            let option = match timed {
                Timed::Filter => "--time",
                Timed::Table => "--over",
            };
            format!(
                "{option}: the profile has no times of samples; record with prof record \
                 --timestamps"
            )
        }
        QueryError::NeedsFunctions => {
            "--sandwich and --peek need functions: leave out --sort and --granularity, or use \
             --sort symbol or --granularity functions"
                .to_owned()
        }
        QueryError::HasOwnRows(OwnRows::Quality) => {
            "--quality reports functions: use --sort self, total or name".to_owned()
        }
        QueryError::HasOwnRows(OwnRows::States) => {
            "--states reports threads: use --sort total or name".to_owned()
        }
        QueryError::HasOwnRows(OwnRows::Tags) => {
            "--tags prints labels: leave out --sort and --granularity; --sort KEY alone prints a \
             table of one label"
                .to_owned()
        }
        QueryError::HasOwnRows(OwnRows::Traces) => {
            "--traces prints stacks: leave out labels in --sort; --tagfocus selects by label"
                .to_owned()
        }
        QueryError::NoRegex(Wanted::Sandwich(name), error) => format!(
            "--sandwich: no function has the name {}, and it is not a regular expression: {}",
            quoted(name),
            regex_reason(error)
        ),
        QueryError::NoRegex(Wanted::Peek(regex), error) => {
            let reason = regex_reason(error);
            format!("--peek: {}: it is not a regular expression: {reason}", quoted(regex))
        }
        QueryError::NoRegex(Wanted::Source(what), error) => format!(
            "{} is no function or file, and not a regular expression: {}",
            quoted(what),
            regex_reason(error)
        ),
        QueryError::NoFunction(Wanted::Sandwich(name)) => {
            format!("--sandwich: no function matches {}", quoted(name))
        }
        QueryError::NoFunction(Wanted::Peek(regex)) => {
            format!("--peek: no function matches {}", quoted(regex))
        }
        QueryError::NoFunction(Wanted::Source(what)) => {
            format!("no function or file of the profile matches {what:?}")
        }
        QueryError::NoLabel(key) => format!("--root: no sample has a label {key:?}"),
        QueryError::NoUnit(Scale::PerSecond) => {
            "--per-second: a profile does not contain the length of its recording".to_owned()
        }
        QueryError::NoUnit(_) => "--normalize: the total of a profile is 0".to_owned(),
        QueryError::NotAnswered => "this view has an answer of its own".to_owned(),
        QueryError::Canceled => "canceled".to_owned(),
    }
}

/// The sentence about a filter that is none, in the words of the command line.
pub fn wrong_filter(added: &AddedFilter, error: &FilterError) -> String {
    let option = added.condition.name();
    match error {
        FilterError::NoRegex { text, .. } => {
            format!("--{option}: {} is not a regular expression: {error}", quoted(text))
        }
        FilterError::TooLarge(_) | FilterError::NoRange(_) => format!("--{option}: {error}"),
    }
}

/// Writes the answer to a query, source from the places that the profile has; `file`: the profile's
/// file as a word of a shell, if it is a single one.
pub fn write(
    out: &mut dyn Write,
    answer: &Answer,
    query: &Query,
    format: OutputFormat,
    file: Option<String>,
) -> io::Result<()> {
    match format {
        OutputFormat::Text(width) => write_text(out, answer, query, width, file),
        OutputFormat::Json => write_json(out, answer, query, file),
    }
}

fn write_json(
    out: &mut dyn Write,
    answer: &Answer,
    query: &Query,
    file: Option<String>,
) -> io::Result<()> {
    let view = &answer.view();
    if let Model::Source(source) = &answer.model {
        return annotate::write_json(out, view, source, &CodeOptions::default(), false);
    }
    let advisor = match &answer.model {
        Model::Coverage(model) => Some(advisor(view, &model.coverage, file)),
        _ => None,
    };
    let remedies = |binary: &_| {
        advisor.as_ref().map_or_else(Vec::new, |advisor| remedies(view, binary, advisor))
    };
    let data = AnswerData::new(view, answer, query, remedies);
    data.map_or(Ok(()), |data| json::write(out, &data))
}

fn write_text(
    out: &mut dyn Write,
    answer: &Answer,
    query: &Query,
    width: LineWidth,
    file: Option<String>,
) -> io::Result<()> {
    let view = &answer.view();
    let limits = query.limits;
    let tree_options = TreeOptions { limit: limits.rows, min_percent: limits.min_percent(), width };
    match &answer.model {
        Model::Table(TableModel { top, columns }) => {
            text::write_table(out, view, top, &table_options(query, columns, width))
        }
        Model::Over(tables) => match &query.shown {
            Shown::Table(Table { over: Some(intervals), .. }) => {
                let none = Columns::default();
                let options = table_options(query, &none, width);
                over::write_text(out, view, tables, *intervals, answer.part.start, &options)
            }
            _ => Ok(()),
        },
        Model::Tree(tree) => text::write_tree(out, view, tree, tree_options),
        // Other programs draw it.
        Model::Graph(graph) => dot::write(out, view, graph, &summary::title(view)),
        Model::Sandwich(SandwichModel { functions, sandwich }) => {
            sandwich::write_text(out, view, sandwich, functions, tree_options)
        }
        Model::Peek(peek) => peek::write_text(out, view, peek),
        Model::Traces(traces) => traces::write_text(out, view, traces, answer.part.start),
        Model::Tags(tags) => tags::write_text(out, view, tags),
        Model::States(StatesModel { threads, row_count }) => {
            states::write_text(out, view, threads, *row_count)
        }
        Model::Threads(threads) => threads::write(out, view, threads),
        Model::Source(source) => {
            let places = CodeOptions::default();
            annotate::write_text(out, view, source, &places, Layout::default())
        }
        Model::Quality(quality) => quality::write_text(out, view, quality),
        Model::Coverage(CoverageModel { coverage, row_count }) => {
            let advisor = advisor(view, coverage, file);
            coverage::write_text(out, view, coverage, &mut once(view, &advisor, None))?;
            let left = row_count - coverage.binaries.len();
            if left > 0 {
                writeln!(out, "… and {left} more binaries; -n 0 shows all")?;
            }
            coverage::write_notes(out, view.profile)
        }
        Model::Header => text::write_header(out, view.profile),
    }
}

fn table_options<'a>(query: &'a Query, columns: &'a Columns, width: LineWidth) -> TableOptions<'a> {
    TableOptions {
        granularity: query.granularity(),
        children: query.limits.values == Values::Total,
        labels: query.shown.labels(),
        columns,
        width,
    }
}
