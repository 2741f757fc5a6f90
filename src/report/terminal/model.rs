//! Models of pages, computed in the background from a profile and a [`Query`].

use std::borrow::Cow;
use std::sync::Arc;

use unicode_width::UnicodeWidthStr;

use super::boxes::BoxTree;
use super::diff_flame::DiffFlame;
use super::difference::{Base, Difference};
use super::filtered::FilterCache;
use super::query::{Column, Order, Page, Query, Rows, Shown};
use super::sandwich;
use super::source::{Code, CodeOptions};
use crate::report::diff::{DiffLayout, lines as diff_lines};
use crate::report::views::{self, OutputFormat, Request};
use crate::report::{states, text, threads, units};
use profile::{LabelValue, Profile};
use view::{
    Cancel, Cut, Diff, Direction, Frame, Frames, Granularity, Ordered, Row, Siblings, ThreadRow,
    ThreadStates, Top, TopOptions, Tree, View, label_text,
};

/// The profiles and files that pages are computed from.
#[derive(Clone)]
pub struct Context {
    /// The profile.
    pub profile: Arc<Profile>,
    /// The profiles that it is compared with.
    pub base: Option<Arc<Base>>,
    /// Profiles that were filtered.
    pub cache: Arc<FilterCache>,
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

    /// The view of a query's sample type, at the granularity of its page.
    pub fn view<'p>(&self, profile: &'p Profile, query: &Query) -> View<'p> {
        let Query { type_index, shown, .. } = query;
        View::cancelable(profile, *type_index, shown.granularity(), &self.cancel)
    }

    /// The part of the profile that passes the filters of a query.
    pub fn filtered(&self, query: &Query) -> Result<Arc<Profile>, String> {
        self.part_of(&self.profile, query)
    }

    /// The part of a profile that passes the filters of a query.
    pub fn part_of(&self, profile: &Arc<Profile>, query: &Query) -> Result<Arc<Profile>, String> {
        self.cache.filtered(profile, &query.filters, &self.cancel)
    }
}

/// Width of a column of values, unless one is longer, and if one is very long.
const VALUE_WIDTH: usize = 11;
const MAX_VALUE_WIDTH: usize = 40;

/// The sample type of a page, its frames and its totals.
pub struct Facts {
    /// The profile.
    pub profile: Arc<Profile>,
    /// Its frames.
    pub frames: Frames,
    /// Unit of the values.
    pub unit: String,
    /// Sum before the filters: 100 %.
    pub total: i64,
    /// Sum of what passes the filters.
    pub kept: i64,
}

impl Facts {
    /// The facts of a view.
    pub fn of(profile: &Arc<Profile>, view: View<'_>) -> Facts {
        Facts {
            profile: profile.clone(),
            unit: view.unit().to_owned(),
            total: view.total,
            kept: view.kept_total,
            frames: view.frames,
        }
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
        units::format(value, &self.unit)
    }

    /// Width of a column of values, with the space before it.
    pub fn value_width(&self) -> usize {
        // No value is larger than the sum of all magnitudes; it may be negative.
        let longest = self.value(self.total.saturating_neg()).width();
        (longest + 1).clamp(VALUE_WIDTH, MAX_VALUE_WIDTH)
    }

    /// A value in percent of the total before the filters.
    pub fn percent(&self, value: i64) -> f64 {
        view::percent(value, self.total)
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
    /// The name of a row.
    pub fn name(&self, row: usize) -> Cow<'_, str> {
        let row = &self.rows[row];
        let profile = &*self.facts.profile;
        let frame = self.facts.frame(row.frame);
        match &self.kind {
            Rows::Functions => frame.display(profile),
            Rows::Lines => {
                let name = frame.display(profile);
                match frame.place(profile) {
                    place if place.is_empty() => name,
                    place => format!("{name} {place}").into(),
                }
            }
            Rows::Files => match frame.place(profile) {
                place if place.is_empty() => "[unknown]".into(),
                place => place.into(),
            },
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
    Diff(Difference),
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

    /// The tree, if it can be drawn as boxes.
    pub fn boxes(&self) -> Option<&dyn BoxTree> {
        match self {
            Model::Graph(graph) => Some(graph),
            Model::DiffFlame(flame) => Some(flame),
            _ => None,
        }
    }
}

/// Computes a page. Fails with one line.
pub fn compute(context: &Context, query: &Query) -> Result<Model, String> {
    let model = compute_until(context, query)?;
    // It is incomplete otherwise.
    context.check()?;
    Ok(model)
}

fn compute_until(context: &Context, query: &Query) -> Result<Model, String> {
    if let Shown::Diff { rows, .. } = &query.shown {
        return Ok(Model::Diff(Difference::new(context, query, rows)?));
    }
    if query.shown == Shown::DiffFlame {
        let (diff, boxes) = Difference::flame(context, query, 0.0)?;
        let diff = Diff { rows: Vec::new(), ..diff };
        return Ok(Model::DiffFlame(DiffFlame::new(diff, boxes)));
    }
    let profile = &context.filtered(query)?;
    context.check()?;
    let view = context.view(profile, query);
    context.check()?;
    Ok(match &query.shown {
        Shown::Table { rows, order } => table(profile, view, rows, *order),
        Shown::Tree(direction) => graph(profile, view, *direction, Siblings::LeftHeavy),
        Shown::Flame(direction) => graph(profile, view, *direction, Siblings::Name),
        Shown::Sandwich(name) => Model::Graph(sandwich::graph(profile, view, name)?),
        Shown::Source(of) => Model::Code(Code::new(context, profile, view, of)?),
        Shown::States(order) => Model::States(thread_table(profile, view, *order)),
        Shown::Diff { .. } | Shown::DiffFlame | Shown::Text(_) => {
            Model::Text(render(profile, query, &context.cancel)?)
        }
    })
}

fn table(profile: &Arc<Profile>, view: View<'_>, rows: &Rows, order: Order) -> Model {
    let options = TopOptions { sort: order.sort(), labels: rows.labels(), ..TopOptions::default() };
    let mut top = Top::new(&view, &options);
    if order.reversed {
        top.rows.reverse();
    }
    let facts = Facts::of(profile, view);
    Model::Table(Table { facts, rows: top.rows, groups: top.groups, kind: rows.clone() })
}

fn thread_table(profile: &Arc<Profile>, view: View<'_>, order: Order) -> ThreadTable {
    let mut threads = ThreadStates::new(&view);
    let size = |value: i64| std::cmp::Reverse(value.unsigned_abs());
    match order.column {
        Column::State(state) => threads.rows.sort_by_key(|row| size(row.by_state[state])),
        Column::Name => threads.sort_by_name(),
        _ => {}
    }
    let ThreadStates { rows, has_states } = threads;
    let mut table = ThreadTable { facts: Facts::of(profile, view), rows, has_states };
    if order.reversed {
        table.rows.reverse();
    }
    table
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

fn graph(
    profile: &Arc<Profile>,
    mut view: View<'_>,
    direction: Direction,
    siblings: Siblings,
) -> Model {
    let tree = Tree::new(&mut view, direction, &[], cut(profile));
    let ordered = Ordered::cancelable(&tree, &view.frames, profile, siblings, &view.cancel);
    Model::Graph(Graph { facts: Facts::of(profile, view), tree, ordered, callers_end: 0 })
}

/// The lines that `prof report` prints for a page.
pub fn rendered(context: &Context, query: &Query) -> Result<Vec<String>, String> {
    match &query.shown {
        Shown::DiffFlame => {
            let shown = Shown::diff(Rows::Functions);
            rendered(context, &Query { shown, ..query.clone() })
        }
        Shown::Diff { rows, .. } => {
            let difference = Difference::new(context, query, rows)?;
            let layout = DiffLayout {
                files: difference.files.clone(),
                granularity: rows.granularity(),
                labels: rows.labels(),
                children: true,
                rows: 0,
            };
            let lines = diff_lines(&difference.diff, &layout);
            Ok(lines.into_iter().map(|line| line.text).collect())
        }
        Shown::Source(of) => {
            let part = context.filtered(query)?;
            let view = context.view(&part, query);
            Ok(Code::new(context, &part, view, of)?.text())
        }
        _ => render(&*context.filtered(query)?, query, &context.cancel),
    }
}

/// The lines of a page of a profile that has been filtered.
fn render(profile: &Profile, query: &Query, cancel: &Cancel) -> Result<Vec<String>, String> {
    let mut out = Vec::new();
    write_until(cancel, profile, query, OutputFormat::Text, &mut out)
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&out);
    Ok(text.lines().map(|line| sys::printed::line(line).into_owned()).collect())
}

/// Writes the threads of a snapshot with their stacks.
fn write_threads(
    cancel: &Cancel,
    profile: &Profile,
    query: &Query,
    format: OutputFormat,
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    // As prof threads.
    let each = Granularity { line: true, inlined: true, ..Granularity::FUNCTION };
    let view = |granularity| View::cancelable(profile, query.type_index, granularity, cancel);
    match format {
        OutputFormat::Json => threads::write_json(out, &view(each), each, false),
        OutputFormat::Text => threads::write(out, &view(query.shown.granularity()), false),
    }
}

/// Writes a page as `prof report` does.
pub fn write(
    profile: &Profile,
    query: &Query,
    format: OutputFormat,
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    write_until(&Cancel::default(), profile, query, format, out)
}

fn write_until(
    cancel: &Cancel,
    profile: &Profile,
    query: &Query,
    format: OutputFormat,
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    let granularity = query.shown.granularity();
    let labels = query.shown.labels();
    let mut argument = None;
    let (name, direction) = match &query.shown {
        Shown::Tree(direction) | Shown::Flame(direction) => (None, Some(*direction)),
        Shown::Sandwich(function) => {
            argument = Some(sandwich::pattern(profile, function));
            (Some("sandwich"), None)
        }
        Shown::States(_) => (Some("states"), None),
        Shown::Text(Page::Header) => return text::write_header(out, profile),
        Shown::Text(Page::Threads) => {
            return write_threads(cancel, profile, query, format, out);
        }
        Shown::Text(page) => (Some(page.name()), None),
        Shown::Table { .. } | Shown::Source(_) | Shown::Diff { .. } | Shown::DiffFlame => {
            (None, None)
        }
    };
    let request = Request {
        format,
        direction,
        granularity,
        labels: &labels,
        sort: query.shown.sort(),
        children: true,
        rows: Some(0),
        min_percent: None,
        columns: view::ColumnRequest::default(),
        over: None,
        argument: argument.as_deref(),
        file: None,
    };
    let mut view = View::cancelable(profile, query.type_index, granularity, cancel);
    (views::find(name, &request).write)(&request, &mut view, out)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::query::AddedFilter;
    use super::*;
    use profile::{Builder, Column, LabelSetId, Limits};
    use view::Condition;

    /// Stacks without common callers, which have 600,000 nodes.
    fn large() -> Arc<Profile> {
        let limits = Limits { nodes: 1 << 30, rows: 1 << 30, ..Limits::default() };
        let mut b = Builder::new(&[("samples", "count")]).with_limits(limits);
        let functions: Vec<_> = (0..997).map(|i| b.named_location(&format!("f{i}"))).collect();
        for sample in 0..10_000 {
            let stack: Vec<_> =
                (0..60).map(|i| functions[(sample + i * (sample / 997 + i)) % 997]).collect();
            b.add(&stack, LabelSetId::EMPTY, Column(0), 1 + sample as i64 % 7);
        }
        Arc::new(b.finish(None))
    }

    #[test]
    fn a_canceled_page_ends_early() {
        let profile = large();
        let base = Base { before: vec![profile.clone()], ..Base::default() };
        let context = Context { base: Some(Arc::new(base)), ..Context::new(&profile) };
        let focus = AddedFilter { condition: Condition::Focus, value: "f.*7".to_owned() };
        for (shown, filters) in [
            (Shown::Tree(Direction::Callees), Vec::new()),
            (Shown::Flame(Direction::Callers), Vec::new()),
            (Shown::Tree(Direction::Callees), vec![focus]),
        ] {
            let query = Query { type_index: 0, filters, shown };
            let compute = |cancel: &Cancel, delay: Option<Duration>| {
                let cache = Arc::default();
                let context = Context { cache, cancel: cancel.clone(), ..context.clone() };
                let mut begin = Instant::now();
                std::thread::scope(|scope| {
                    let page = scope.spawn(|| compute(&context, &query).err());
                    if let Some(delay) = delay {
                        std::thread::sleep(delay);
                        begin = Instant::now();
                        cancel.cancel();
                    }
                    (page.join().unwrap(), begin.elapsed())
                })
            };
            let whole = (0..3).map(|_| {
                let (error, whole) = compute(&Cancel::default(), None);
                assert_eq!(error, None);
                whole
            });
            let whole = whole.min().unwrap();
            let ends_early = |_| {
                let (error, rest) = compute(&Cancel::new(), Some(whole / 4));
                error.as_deref() == Some("canceled") && rest < whole / 4
            };
            assert!((0..20).any(ends_early), "{:?} takes {whole:?}", query.shown);
        }
    }
}
