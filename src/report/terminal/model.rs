//! Models of pages, computed in the background from a profile and a [`Query`].

use std::borrow::Cow;
use std::sync::Arc;

use super::query::{AddedFilter, Page, Query, Rows, Shown};
use crate::report::views::{self, OutputFormat, Request};
use crate::report::{text, units};
use profile::{LabelValue, Profile};
use view::{
    Cut, Direction, Filter, Frame, Frames, Granularity, Ordered, Row, Siblings, Top, TopOptions,
    Tree, View, label_text,
};

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
    fn of(profile: &Arc<Profile>, view: View<'_>) -> Facts {
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
}

/// A computed page.
pub enum Model {
    /// A table.
    Table(Table),
    /// A tree, to be drawn as lines or as boxes.
    Graph(Graph),
    /// Lines of text.
    Text(Vec<String>),
}

/// Computes a page. Fails with one line.
pub fn compute(profile: &Arc<Profile>, query: &Query) -> Result<Model, String> {
    let profile = &filtered(profile, &query.filters)?;
    let view = |granularity| View::new(profile, query.type_index, granularity);
    Ok(match &query.shown {
        Shown::Table { rows, sort } => {
            let labels = query.shown.labels();
            let view = view(query.shown.granularity());
            let top = Top::new(&view, &TopOptions { sort: *sort, labels, ..TopOptions::default() });
            let facts = Facts::of(profile, view);
            Model::Table(Table { facts, rows: top.rows, groups: top.groups, kind: rows.clone() })
        }
        Shown::Tree(direction) => {
            graph(profile, view(Granularity::FUNCTION), *direction, Siblings::LeftHeavy)
        }
        Shown::Flame(direction) => {
            graph(profile, view(Granularity::FUNCTION), *direction, Siblings::Name)
        }
        Shown::Text(_) => Model::Text(render(profile, query)?),
    })
}

fn graph(
    profile: &Arc<Profile>,
    mut view: View<'_>,
    direction: Direction,
    siblings: Siblings,
) -> Model {
    let tree = Tree::new(&mut view, direction, &[], Cut::Nothing);
    let ordered = Ordered::new(&tree, &view.frames, profile, siblings);
    Model::Graph(Graph { facts: Facts::of(profile, view), tree, ordered })
}

/// The part of a profile that passes the filters, one after the other.
pub fn filtered(profile: &Arc<Profile>, added: &[AddedFilter]) -> Result<Arc<Profile>, String> {
    if added.is_empty() {
        return Ok(profile.clone());
    }
    let filters = added.iter().map(AddedFilter::filter);
    let filters = filters.collect::<Result<Vec<Filter>, String>>()?;
    let mut part = Profile::clone(profile);
    for filter in filters {
        part = filter.apply(part).profile;
    }
    Ok(Arc::new(part))
}

/// The lines that `prof report` prints for a page.
pub fn rendered(profile: &Arc<Profile>, query: &Query) -> Result<Vec<String>, String> {
    let part = filtered(profile, &query.filters)?;
    render(&part, query)
}

/// The lines of a page of a profile that has been filtered.
fn render(profile: &Profile, query: &Query) -> Result<Vec<String>, String> {
    let mut out = Vec::new();
    let (name, direction) = match &query.shown {
        Shown::Table { .. } => (None, None),
        Shown::Tree(direction) | Shown::Flame(direction) => (None, Some(*direction)),
        Shown::Text(page) => (Some(page.name()), None),
    };
    let written = if query.shown == Shown::Text(Page::Header) {
        text::write_header(&mut out, profile)
    } else {
        let granularity = query.shown.granularity();
        let labels = query.shown.labels();
        let request = Request {
            format: OutputFormat::Text,
            direction,
            granularity,
            labels: &labels,
            sort: query.shown.sort(),
            children: true,
            rows: Some(0),
            min_percent: None,
            columns: view::ColumnRequest::default(),
            over: None,
            argument: None,
            file: None,
        };
        let mut view = View::new(profile, query.type_index, granularity);
        (views::find(name, &request).write)(&request, &mut view, &mut out)
    };
    written.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&out);
    Ok(text.lines().map(|line| sys::printed::line(line).into_owned()).collect())
}
