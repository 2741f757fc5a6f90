//! Models of pages, computed in the background from a profile and a [`Query`].

use std::borrow::Cow;
use std::sync::Arc;

use unicode_width::UnicodeWidthStr;

use super::boxes::NamedTree;
use super::diff_flame::DiffFlame;
use super::difference::{Base, DiffTable, compare};
use super::sandwich;
use super::source::{self, Code, CodeOptions};
use super::written::render;
use crate::report::{annotate, answer, states, units};
use profile::{LabelValue, Profile};
use view::query::{
    AddedFilter, Limits, Query, QueryError, Rows, Shown, ShownFlame, Statistic, ValueOptions,
    Wanted, regex_reason,
};
use view::{
    Answer, Cancel, Cut, Difference, Frame, Frames, Ordered, Part, PartCache, Row, Siblings,
    StatesModel, TableModel, ThreadRow, ThreadStates, Tree, View, label_text,
};

/// The profiles and files that pages are computed from.
#[derive(Clone)]
pub struct Context {
    /// The profile.
    pub profile: Arc<Profile>,
    /// The profiles that it is compared with.
    pub base: Option<Arc<Base>>,
    /// Parts of profiles.
    pub cache: Arc<PartCache>,
    /// Places of source and binaries.
    pub code: Arc<CodeOptions>,
    /// Ends the computation early.
    pub cancel: Cancel,
}

impl Context {
    /// A context of this profile alone.
    pub fn new(profile: &Arc<Profile>) -> Context {
        Context {
            profile: profile.clone(),
            base: None,
            cache: Arc::default(),
            code: Arc::default(),
            cancel: Cancel::default(),
        }
    }

    /// Fails if the result is no longer waited for.
    pub fn check(&self) -> Result<(), String> {
        if self.cancel.is_canceled() { Err("canceled".to_owned()) } else { Ok(()) }
    }

    /// The part of the profile that a query is about.
    pub fn part(&self, query: &Query) -> Result<Part, String> {
        self.part_of(&self.profile, query)
    }

    /// The part of a profile that a query is about.
    pub fn part_of(&self, profile: &Arc<Profile>, query: &Query) -> Result<Part, String> {
        self.cache.part(profile, query, &self.cancel).map_err(|error| reason(&error))
    }

    /// The answer to a query about this part.
    pub fn answer(&self, part: &Part, query: &Query) -> Result<Answer, String> {
        let answer = annotate::answer(part.clone(), query, &self.code, &self.cancel);
        answer.map_err(|error| reason(&error))
    }
}

/// Width of a column of values, unless one is longer, and if one is very long.
const VALUE_WIDTH: usize = 11;
const MEAN_WIDTH: usize = 16;
const MAX_VALUE_WIDTH: usize = 40;

/// The sample type of a page, its frames and its totals.
pub struct Facts {
    /// The profile.
    pub profile: Arc<Profile>,
    /// Its frames.
    pub frames: Arc<Frames>,
    /// Unit of the values.
    pub unit: String,
    /// Sum before the filters.
    pub total: i64,
    /// Sum of what passes the filters.
    pub kept: i64,
    /// What values and percentages are.
    pub value_options: ValueOptions,
    /// The filters that nothing in the profile meets.
    pub unmatched: Vec<AddedFilter>,
    /// Sum of samples without a time that a filter by time has left out.
    pub without_time: i64,
    /// Number of samples with negative values that the page does not show.
    pub left_out: usize,
    /// The value of idle kernel threads that are left out.
    pub idle: i64,
}

impl Facts {
    /// The facts of a view of this part.
    pub fn new(part: &Part, view: View<'_>) -> Facts {
        Facts {
            profile: part.profile.clone(),
            unmatched: part.unmatched.clone(),
            without_time: part.without_time.get(view.type_index).copied().unwrap_or(0),
            unit: view.unit().to_owned(),
            total: view.total,
            kept: view.kept_total,
            value_options: view.value_options,
            left_out: view.left_out,
            idle: view.idle,
            frames: view.frames,
        }
    }

    /// The order of a tree's nodes.
    pub fn ordered(&self, tree: &Tree, siblings: Siblings, cancel: &Cancel) -> Ordered {
        Ordered::cancelable(tree, &self.frames, &self.profile, siblings, cancel)
    }

    /// A frame.
    pub fn frame(&self, id: u32) -> &Frame {
        self.frames.get(id)
    }

    /// The name of a frame.
    pub fn name(&self, id: u32) -> Cow<'_, str> {
        self.frames.get(id).display(&self.profile)
    }

    /// A value with its unit.
    pub fn value(&self, value: i64) -> String {
        units::shown(value, &self.unit, &self.value_options)
    }

    /// Width of a column of values, with the space before it.
    pub fn value_width(&self) -> usize {
        // No value is larger than the sum of all magnitudes, but a mean; it may be negative.
        let longest = self.value(self.total.saturating_neg()).width();
        let is_mean = self.value_options.statistic == Statistic::Mean;
        let least = if is_mean { MEAN_WIDTH } else { VALUE_WIDTH };
        (longest + 1).clamp(least, MAX_VALUE_WIDTH)
    }

    /// A value in percent of what the query has as 100 %.
    pub fn percent(&self, value: i64) -> f64 {
        view::percent(value, self.value_options.percent_of.whole(self.total, self.kept))
    }
}

/// A table.
pub struct Table {
    /// Its frames and totals.
    pub facts: Facts,
    /// Its rows.
    pub rows: Vec<Row>,
    /// Values of labels, by [`Row::group`].
    pub groups: Vec<Vec<Option<LabelValue>>>,
    /// What the rows are.
    pub kind: Rows,
}

impl Table {
    /// True for functions, also by labels.
    pub fn are_functions(&self) -> bool {
        match &self.kind {
            Rows::Functions => true,
            Rows::Groups(groups) => groups.are_functions(),
            _ => false,
        }
    }

    /// The values of the labels that group a row of functions.
    pub fn labels(&self, row: usize) -> Vec<String> {
        let group = &self.groups[self.rows[row].group as usize];
        let text = |value: &Option<LabelValue>| match value {
            Some(value) => label_text(&self.facts.profile, *value),
            None => "-".to_owned(),
        };
        match &self.kind {
            Rows::Groups(_) => group.iter().map(text).collect(),
            _ => Vec::new(),
        }
    }

    /// The name of a row.
    pub fn name(&self, row: usize) -> Cow<'_, str> {
        let row = &self.rows[row];
        let profile = &*self.facts.profile;
        let frame = self.facts.frame(row.frame);
        match &self.kind {
            // Code without a file has the name of its binary.
            Rows::Functions | Rows::Files | Rows::Packages | Rows::Groups(_) => {
                frame.display(profile)
            }
            Rows::Lines => {
                let name = frame.display(profile);
                match frame.place(profile) {
                    place if place.is_empty() => name,
                    place => format!("{name} {place}").into(),
                }
            }
            Rows::Binaries => match frame.binary_name(profile) {
                "" => "[unknown]".into(),
                name => name.into(),
            },
            Rows::Label(key) => match self.groups[row.group as usize].first() {
                Some(Some(value)) => label_text(profile, *value).into(),
                _ => format!("[no {key}]").into(),
            },
        }
    }
}

/// A call tree or a flame graph.
pub struct Graph {
    /// Its frames and totals.
    pub facts: Facts,
    /// The tree.
    pub tree: Tree,
    /// The order of its nodes.
    pub ordered: Ordered,
    /// In a sandwich, the nodes before this one are chains of callers; else 0.
    pub callers_end: u32,
}

impl Graph {
    /// True for a node of a chain of callers in a sandwich, which has no self value.
    pub fn is_caller(&self, node: u32) -> bool {
        node < self.callers_end
    }

    /// The node of the function with this name that has the largest total; `among`: the candidates.
    pub fn largest(&self, name: &str, among: &[u32]) -> Option<u32> {
        let is_it = |&&node: &&u32| {
            node != Tree::ROOT && self.facts.name(self.tree.node(node).frame) == name
        };
        let total = |&&node: &&u32| self.tree.node(node).total;
        // The first of equal ones.
        among.iter().rev().filter(is_it).max_by_key(total).copied()
    }
}

/// Threads by state.
pub struct ThreadTable {
    /// Its totals.
    pub facts: Facts,
    /// Its rows, in their order.
    pub rows: Vec<ThreadRow>,
    /// Samples have states.
    pub has_states: bool,
}

impl ThreadTable {
    /// The name of a row.
    pub fn name(&self, row: usize) -> String {
        states::thread_name(&self.rows[row].thread)
    }
}

/// A computed page.
pub enum Model {
    /// A table.
    Table(Table),
    /// A tree, to be drawn as lines or as boxes.
    Graph(Graph),
    /// Threads by state.
    States(ThreadTable),
    /// Source or instructions.
    Code(Code),
    /// A difference.
    Diff(DiffTable),
    /// A difference as boxes.
    DiffFlame(DiffFlame),
    /// Lines of text.
    Text(Vec<String>),
}

impl Model {
    /// Its totals, if it has them.
    pub fn facts(&self) -> Option<&Facts> {
        match self {
            Model::Table(table) => Some(&table.facts),
            Model::Graph(graph) => Some(&graph.facts),
            Model::States(threads) => Some(&threads.facts),
            Model::Code(code) => Some(&code.facts),
            Model::Diff(_) | Model::DiffFlame(_) | Model::Text(_) => None,
        }
    }

    /// The filters that nothing in the profile meets. Lines of text begin with them instead.
    pub fn unmatched(&self) -> &[AddedFilter] {
        match self {
            Model::Diff(difference) => &difference.unmatched,
            Model::DiffFlame(flame) => &flame.unmatched,
            _ => self.facts().map_or(&[], |facts| &facts.unmatched),
        }
    }

    /// Number of samples with negative values, which have no boxes.
    pub fn left_out(&self) -> usize {
        match self {
            Model::DiffFlame(flame) => flame.boxes.left_out,
            model => model.facts().map_or(0, |facts| facts.left_out),
        }
    }

    /// The tree, if it can be drawn as boxes.
    pub fn boxes(&self) -> Option<&dyn NamedTree> {
        match self {
            Model::Graph(graph) => Some(graph),
            Model::DiffFlame(flame) => Some(flame),
            _ => None,
        }
    }
}

/// Computes a page. Fails with one line.
pub fn compute(context: &Context, query: &Query) -> Result<Model, String> {
    let model = compute_until(context, query);
    // It is incomplete otherwise, and so is what it was computed from.
    context.check()?;
    model
}

fn compute_until(context: &Context, query: &Query) -> Result<Model, String> {
    if let Shown::Diff { rows, .. } = &query.shown {
        return Ok(Model::Diff(DiffTable::new(context, query, rows)?));
    }
    if let Shown::DiffFlame(_) = query.shown {
        let Difference { diff, boxes, unmatched } = compare(context, query)?;
        let mut flame = DiffFlame::new(diff, boxes);
        flame.unmatched = unmatched;
        return Ok(Model::DiffFlame(flame));
    }
    let part = context.part(query)?;
    compute_of(context, query, &part).map_err(|reason| part.explained(reason))
}

/// Computes a page of the samples that pass its filters.
fn compute_of(context: &Context, query: &Query, part: &Part) -> Result<Model, String> {
    context.check()?;
    match &query.shown {
        Shown::Table(table) if table.is_plain() => answered(context, query, part),
        Shown::Tree(_)
        | Shown::Flame(_)
        | Shown::Sandwich(_)
        | Shown::Source(_)
        | Shown::States(_) => answered(context, query, part),
        _ => {
            let mut lines: Vec<String> =
                part.unmatched.iter().map(AddedFilter::unmatched).collect();
            lines.extend(render(context, part, query)?);
            Ok(Model::Text(lines))
        }
    }
}

/// Computes a page that is drawn from the answer to its query.
fn answered(context: &Context, query: &Query, part: &Part) -> Result<Model, String> {
    let limits = match query.shown {
        Shown::Table(_) | Shown::States(_) => Limits::NONE,
        Shown::Source(_) => source::LIMITS,
        _ => Limits { cut: cut(&part.profile), ..Limits::NONE },
    };
    let query = &Query { limits, ..query.clone() };
    let answer = context.answer(part, query)?;
    if let (view::Model::Source(found), Shown::Source(shown)) = (&answer.model, &query.shown) {
        return Ok(Model::Code(Code::new(context, &answer, found, &shown.name)?));
    }
    let facts = Facts::new(&answer.part, answer.view());
    Ok(match answer.model {
        view::Model::Table(TableModel { top, .. }) => {
            let kind = query.shown.rows().cloned().unwrap_or(Rows::Functions);
            Model::Table(Table { facts, rows: top.rows, groups: top.groups, kind })
        }
        view::Model::Tree(tree) => {
            let siblings = match query.shown {
                Shown::Flame(ShownFlame { siblings, .. }) => siblings,
                _ => Siblings::LeftHeavy,
            };
            let ordered = facts.ordered(&tree, siblings, &context.cancel);
            Model::Graph(Graph { facts, tree, ordered, callers_end: 0 })
        }
        view::Model::Sandwich(found) => {
            Model::Graph(sandwich::graph(facts, &found, &context.cancel))
        }
        view::Model::States(StatesModel { threads, .. }) => {
            let ThreadStates { rows, has_states } = threads;
            Model::States(ThreadTable { facts, rows, has_states })
        }
        _ => return Err("this page is text".to_owned()),
    })
}

/// The reason why a page has no answer.
pub fn reason(error: &QueryError) -> String {
    match error {
        QueryError::NoFunction(Wanted::Sandwich(name) | Wanted::Source(name)) => {
            format!("no sample that passes the filters has {name}")
        }
        QueryError::NoRegex(Wanted::Sandwich(_), error) => regex_reason(error),
        QueryError::NoFilter(_, error) => error.to_string(),
        QueryError::NoTimes(_) => {
            "the profile has no times of samples; prof record --timestamps keeps them".to_owned()
        }
        error => answer::reason(error),
    }
}

/// Frames of all stacks above which trees have no branches that are too small to be seen.
const MANY_FRAMES: usize = 1_000_000;
/// Their percentage of the total. A filter shows them.
pub const SMALL_BRANCH: f64 = 0.001;

/// The branches of trees: all, or, of a large profile, those that can be seen.
pub fn cut(profile: &Profile) -> Cut {
    if profile.stacks.frame_count() < MANY_FRAMES {
        Cut::Nothing
    } else {
        Cut::Percent(SMALL_BRANCH)
    }
}

#[cfg(test)]
mod tests;
