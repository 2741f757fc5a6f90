//! The answer to a query.

use std::sync::Arc;

use regex::Regex;

use super::query::{
    Intervals, Query, QueryError, Shown, ShownFlame, ShownSource, Table, Timed, Wanted,
};
use super::source::{CodeBounds, NoBounds, Selection, Source, Unit};
use super::{
    Cancel, Columns, Coverage, Cut, Graph, NodeOrder, Over, OverOptions, OverType, Part, Peek,
    Quality, Sandwich, States, Tags, ThreadStates, Threads, Top, Traces, Tree, Trim, View,
    ViewData, matching_frames, named_frames,
};
use profile::Profile;

/// The answer to a query: a model, with the view that it is of.
pub struct Answer {
    /// The part of the profile that the query is about.
    pub part: Part,
    /// The model of the query's view.
    pub model: Model,
    view: ViewData,
}

/// The model of a query's view.
pub enum Model {
    /// A table.
    Table(TableModel),
    /// Tables of values over time, of each sample type.
    Over(Vec<OverType>),
    /// A call tree or the tree of a flame graph.
    Tree(Tree),
    /// A call graph.
    Graph(Graph),
    /// The callers and the callees of functions.
    Sandwich(SandwichModel),
    /// Direct callers and callees.
    Peek(Peek),
    /// Stacks one by one.
    Traces(Traces),
    /// The values of all labels.
    Tags(Tags),
    /// Threads by state.
    States(StatesModel),
    /// Threads with their stacks.
    Threads(Threads),
    /// The values of lines and instructions.
    Source(SourceModel),
    /// Confidence intervals.
    Quality(Quality),
    /// Names and lines of each binary.
    Coverage(CoverageModel),
    /// Metadata of the file, which the view has.
    Header,
}

/// A table.
pub struct TableModel {
    /// The rows, with the values of the query's sample type.
    pub top: Top,
    /// Columns of other sample types, and ratios.
    pub columns: Columns,
}

/// A sandwich of functions.
pub struct SandwichModel {
    /// The frames of the functions; at least one.
    pub functions: Vec<u32>,
    /// Their callers and callees.
    pub sandwich: Sandwich,
}

/// Threads by state.
pub struct StatesModel {
    /// The threads.
    pub threads: ThreadStates,
    /// Their number before limits.
    pub row_count: usize,
}

/// Names and lines of each binary.
pub struct CoverageModel {
    /// The binaries that are large enough.
    pub coverage: Coverage,
    /// Their number before the limit of rows.
    pub row_count: usize,
}

/// The values of lines and instructions.
pub struct SourceModel {
    /// The functions or files; none of a profile without values.
    pub source: Source,
    /// Their number before the limit of rows.
    pub listing_count: usize,
    /// Instructions are shown: they were requested, or there is nothing else.
    pub assembly: bool,
    /// It is code without a name, which has instructions only.
    pub is_unnamed: bool,
}

/// The answer to `query` about a profile.
///
/// # Errors
///
/// A filter is none; the view cannot have such frames; no function has the requested name; the
/// profile lacks times of samples; the view has an answer of its own; `cancel`.
pub fn answer(profile: Arc<Profile>, query: &Query, cancel: &Cancel) -> Result<Answer, QueryError> {
    Answer::new(Part::new(profile, query, cancel)?, query, cancel)
}

impl Answer {
    /// The same, about the part of a profile that the query is about.
    ///
    /// # Errors
    ///
    /// As of [`answer`].
    pub fn new(part: Part, query: &Query, cancel: &Cancel) -> Result<Answer, QueryError> {
        Answer::with_bounds(part, query, &NoBounds, cancel)
    }

    /// The same; code without a name is that of a function with these bounds.
    ///
    /// # Errors
    ///
    /// As of [`answer`].
    pub fn with_bounds(
        part: Part,
        query: &Query,
        bounds: &dyn CodeBounds,
        cancel: &Cancel,
    ) -> Result<Answer, QueryError> {
        query.check()?;
        let mut view = query.view(&part.profile, cancel);
        view.set_left_out(&part);
        let model = match &query.shown {
            Shown::Table(shown) => match shown.over {
                Some(_) if !part.has_times => return Err(QueryError::NoTimes(Timed::Table)),
                Some(intervals) => over_time(&view, query, shown, intervals),
                None => table(&view, query, shown),
            },
            Shown::Tree(direction) => tree(&mut view, query, ShownFlame::new(*direction))?,
            Shown::Flame(flame) => tree(&mut view, query, *flame)?,
            Shown::Graph(trim) => Model::Graph(Graph::new(&view, NodeOrder::Drawing, *trim)),
            Shown::Sandwich(name) | Shown::SandwichFlame { name, .. } => {
                sandwich(&view, query, name)?
            }
            Shown::Peek(wanted) => peek(&view, query, wanted)?,
            Shown::Traces => Model::Traces(Traces::new(&view, query.limits.rows)),
            Shown::Tags => {
                let limits = query.limits;
                Model::Tags(Tags::new(&view, limits.rows, limits.min_percent()))
            }
            Shown::States(_) => states(&view, query),
            Shown::Source(wanted) => source(&view, query, wanted, bounds)?,
            Shown::Threads => Model::Threads(Threads::by_stack(&view)),
            Shown::Quality(_) => Model::Quality(Quality::new(&view, &query.top())),
            Shown::Coverage => coverage(&view, query),
            Shown::Header => Model::Header,
            Shown::Diff { .. } | Shown::DiffFlame(_) => {
                return Err(QueryError::NotAnswered);
            }
        };
        // It is incomplete.
        if cancel.is_canceled() {
            return Err(QueryError::Canceled);
        }
        let view = view.data();
        Ok(Answer { part, model, view })
    }

    /// The view, with names and totals.
    pub fn view(&self) -> View<'_> {
        View::from_data(&self.part.profile, &self.view)
    }
}

fn table(view: &View<'_>, query: &Query, shown: &Table) -> Model {
    let request = shown.columns(query.type_index);
    let (mut top, mut columns) = Columns::new(view, &query.top(), &request);
    if shown.order.reversed {
        top.rows.reverse();
        columns.reverse();
    }
    Model::Table(TableModel { top, columns })
}

fn over_time(view: &View<'_>, query: &Query, shown: &Table, intervals: Intervals) -> Model {
    let Intervals { interval, most, .. } = intervals;
    let options = OverOptions { interval, most, top: query.top() };
    Model::Over(Over::by_type(view, &options, &shown.columns(query.type_index).types))
}

fn tree(view: &mut View<'_>, query: &Query, shown: ShownFlame) -> Result<Model, QueryError> {
    let ShownFlame { direction, by_state, .. } = shown;
    let strings = &view.profile.strings;
    let keys = query.roots.keys(std::slice::from_ref(view))?;
    let roots: Vec<_> = keys.iter().filter_map(|key| strings.find(key)).collect();
    let cut = query.limits.cut;
    let states = by_state.then(|| States::new(view)).flatten();
    Ok(Model::Tree(match states {
        Some(states) => Tree::with_states(view, direction, &roots, cut, states),
        None if view.has_means() => {
            let mut tree = Tree::new(view, direction, &roots, Cut::Nothing);
            if let Some(mut counts) = view.counts() {
                tree.average(view, &Tree::new(&mut counts, direction, &roots, Cut::Nothing), cut);
            }
            tree
        }
        None => Tree::new(view, direction, &roots, cut),
    }))
}

fn sandwich(view: &View<'_>, query: &Query, name: &str) -> Result<Model, QueryError> {
    let wanted = || Wanted::Sandwich(name.to_owned());
    let found = named_frames(view, name);
    let functions = found.map_err(|error| QueryError::NoRegex(wanted(), error))?;
    if functions.is_empty() {
        return Err(QueryError::NoFunction(wanted()));
    }
    let cut = query.limits.cut;
    let sandwich = match view.counts() {
        Some(counts) => {
            let mut sandwich = Sandwich::new(view, &functions, Cut::Nothing);
            sandwich.average(view, &Sandwich::new(&counts, &functions, Cut::Nothing), cut);
            sandwich
        }
        None => Sandwich::new(view, &functions, cut),
    };
    Ok(Model::Sandwich(SandwichModel { functions, sandwich }))
}

fn peek(view: &View<'_>, query: &Query, text: &str) -> Result<Model, QueryError> {
    let wanted = || Wanted::Peek(text.to_owned());
    let regex = Regex::new(text).map_err(|error| QueryError::NoRegex(wanted(), error))?;
    let functions = matching_frames(view, &regex);
    if functions.is_empty() {
        return Err(QueryError::NoFunction(wanted()));
    }
    let mut peek = Peek::new(view, &functions);
    if let Some(counts) = view.counts() {
        peek.average(&Graph::new(&counts, NodeOrder::SelfValue, Trim::NOTHING));
    }
    peek.functions.truncate(query.limits.rows_of(peek.functions.len()));
    Ok(Model::Peek(peek))
}

fn source(
    view: &View<'_>,
    query: &Query,
    shown: &ShownSource,
    bounds: &dyn CodeBounds,
) -> Result<Model, QueryError> {
    let wanted = || Wanted::Source(shown.name.clone());
    let selection = match view.samples().next() {
        // Nothing has a name in a view without samples.
        None => None,
        Some(_) => {
            let found = Selection::new(view, shown, bounds);
            let found = found.map_err(|error| QueryError::NoRegex(wanted(), error))?;
            Some(found.ok_or_else(|| QueryError::NoFunction(wanted()))?)
        }
    };
    let mut source = match &selection {
        Some(selection) => Source::new(view, selection),
        None => Source { unit: Unit::Function, listings: Vec::new() },
    };
    let listing_count = source.listings.len();
    source.listings.truncate(query.limits.rows_of(listing_count));
    let is_unnamed = selection.is_some_and(|selection| selection.is_unnamed());
    let assembly = shown.assembly || is_unnamed;
    Ok(Model::Source(SourceModel { source, listing_count, assembly, is_unnamed }))
}

fn states(view: &View<'_>, query: &Query) -> Model {
    let mut threads = ThreadStates::new(view);
    if let Some(counts) = view.counts() {
        threads.average(&ThreadStates::new(&counts));
    }
    if let Some(order) = query.shown.order() {
        threads.sort(order);
    }
    let row_count = threads.rows.len();
    let least = query.limits.min_percent();
    threads.rows.retain(|row| view.percent(row.total).abs() >= least);
    threads.rows.truncate(query.limits.rows_of(threads.rows.len()));
    Model::States(StatesModel { threads, row_count })
}

fn coverage(view: &View<'_>, query: &Query) -> Model {
    let mut coverage = Coverage::new(view);
    let least = query.limits.min_percent();
    coverage.binaries.retain(|binary| view.percent(binary.total).abs() >= least);
    let row_count = coverage.binaries.len();
    coverage.binaries.truncate(query.limits.rows_of(row_count));
    Model::Coverage(CoverageModel { coverage, row_count })
}

#[cfg(test)]
mod tests;
