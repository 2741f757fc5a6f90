//! The line below a page: what is selected, with all that its row has no room for.

use std::borrow::Cow;

use super::model::{Facts, Graph, Model};
use super::page::PageState;
use super::source::CodeRow;
use crate::report::shorten;
use profile::{Profile, StrId};
use unicode_width::UnicodeWidthStr;
use view::query::Rows;
use view::{DiffFrame, Frame, Name, Tree};

/// Fewest columns of a longer name that is shortened, and of the places behind it.
const LEAST_NAME: usize = 30;
const LEAST_PLACES: usize = 14;

/// What is selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Its values, if the page has no columns of values.
    pub values: String,
    /// Its whole name.
    pub name: String,
    /// Its source file and line, and its binary, as far as they are known.
    pub places: Vec<String>,
}

impl Detail {
    fn new(name: impl Into<String>, places: impl IntoIterator<Item = String>) -> Detail {
        let name = name.into();
        let is_new = |place: &String| !place.is_empty() && *place != name;
        let places = places.into_iter().filter(is_new).collect();
        Detail { values: String::new(), name, places }
    }

    /// The details of what is selected on a page; `None` if nothing is.
    pub fn selected(page: &PageState) -> Option<Detail> {
        let row = page.cursor.selected;
        match page.model.as_deref()? {
            Model::Graph(graph) if page.is_flame() => Some(in_boxes(graph, page.chosen)),
            Model::DiffFlame(flame) => {
                let values = flame.details(page.chosen);
                let mut detail = flame.function(page.chosen).map(for_compared).unwrap_or_default();
                if page.chosen == Tree::ROOT {
                    detail.name = ALL.to_owned();
                } else if detail.name.is_empty() {
                    detail.name = page.name()?.into_owned();
                }
                Some(Detail { values, ..detail })
            }
            Model::Table(table) => {
                let at = table.rows.get(row)?;
                let frame = table.facts.frame(at.frame);
                let profile = &*table.facts.profile;
                Some(match &table.kind {
                    Rows::Label(key) => Detail::new(format!("{key}: {}", table.name(row)), None),
                    Rows::Packages => Detail::new(table.name(row), None),
                    Rows::Binaries => match profile.str(frame.binary) {
                        "" => Detail::new(table.name(row), None),
                        path => Detail::new(path, None),
                    },
                    _ => for_frame(profile, frame),
                })
            }
            Model::Graph(graph) => match page.node() {
                Tree::ROOT => None,
                node => {
                    let frame = graph.facts.frame(graph.tree.node(node).frame);
                    Some(for_frame(&graph.facts.profile, frame))
                }
            },
            Model::States(threads) => {
                (row < threads.rows.len()).then(|| Detail::new(threads.name(row), None))
            }
            Model::Code(code) => code.rows.get(row).map(in_code),
            Model::Diff(found) => {
                let at = found.diff.rows.get(row)?;
                let frame = &found.diff.frames[at.frame as usize];
                Some(Detail { name: found.name(row), ..for_compared(frame) })
            }
            Model::Text(_) => None,
        }
    }

    /// Its text in this many columns. If it does not fit, the name is shortened in the middle.
    pub fn text(&self, columns: usize) -> String {
        let begin =
            if self.values.is_empty() { String::new() } else { format!("{}: ", self.values) };
        let end: String = self.places.iter().map(|place| format!("  {place}")).collect();
        let whole = format!("{begin}{}{end}", self.name);
        if whole.width() <= columns {
            return whole;
        }
        let (left, name) = (columns.saturating_sub(begin.width()), self.name.width());
        let room = left.saturating_sub(end.width());
        if room >= LEAST_NAME {
            return format!("{begin}{}{end}", shorten::middle(&self.name, room));
        }
        let room = left.saturating_sub(name.min(LEAST_NAME) + 2);
        if room >= LEAST_PLACES {
            let name = shorten::middle(&self.name, name.min(LEAST_NAME));
            return format!("{begin}{name}  {}", shorten::middle(end.trim_start(), room));
        }
        shorten::middle(&format!("{begin}{}", self.name), columns)
    }
}

/// The name of the box below all others.
pub const ALL: &str = "all";

fn for_frame(profile: &Profile, frame: &Frame) -> Detail {
    let mut place = frame.place(profile);
    if frame.line == 0
        && let Some(line) = start_line(profile, frame)
    {
        place = format!("{place}:{line}");
    }
    Detail::new(frame.display(profile), [place, profile.str(frame.binary).to_owned()])
}

/// The first line of a frame's function, if it is known.
fn start_line(profile: &Profile, frame: &Frame) -> Option<i64> {
    let Name::Function(name) = frame.name else { return None };
    let is_it = |function: &&profile::Function| {
        function.name == name && function.filename == frame.file && function.start_line > 0
    };
    let found = profile.functions.iter().filter(|_| frame.file != StrId::EMPTY).find(is_it);
    found.map(|function| function.start_line)
}

fn for_compared(frame: &DiffFrame) -> Detail {
    let place = match frame.line {
        0 => frame.file.to_string(),
        line => format!("{}:{line}", frame.file),
    };
    Detail::new(&*frame.name, [place, frame.binary.to_string()])
}

fn in_boxes(graph: &Graph, node: u32) -> Detail {
    let facts: &Facts = &graph.facts;
    let at = graph.tree.node(node);
    let total = format!("{} ({:.2}%)", facts.value(at.total), facts.percent(at.total));
    if node == Tree::ROOT {
        return Detail { values: total, ..Detail::new(ALL, None) };
    }
    let values = format!("{total}, self {}", facts.value(at.self_value));
    Detail { values, ..for_frame(&facts.profile, facts.frame(at.frame)) }
}

fn in_code(row: &CodeRow) -> Detail {
    let text: Cow<'_, str> = row.text.trim().into();
    let function = row.function.clone().filter(|name| !text.contains(&**name));
    Detail::new(text, function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shortened_in_the_middle_if_it_does_not_fit() {
        let places = || ["src/map.h:12".to_owned(), "/usr/bin/app".to_owned()];
        let detail = Detail::new("std::map<int, long>::insert", places());
        let whole = "std::map<int, long>::insert  src/map.h:12  /usr/bin/app";
        assert_eq!(detail.text(55), whole);
        let long = Detail::new("x".repeat(30) + &"y".repeat(30), places());
        let expected = format!("{}…{}  src/map.h:12  /usr/bin/app", "x".repeat(16), "y".repeat(17));
        assert_eq!(long.text(62), expected);
        // On narrow screens, the places are, too, or left out.
        assert_eq!(detail.text(50), "std::map<int, long>::insert  src/map.h:…sr/bin/app");
        assert_eq!(detail.text(27), "std::map<int, long>::insert");
        assert_eq!(long.text(9), "xxxx…yyyy");
        let wide = Detail::new("中".repeat(80), None);
        assert!(wide.text(40).width() <= 40, "{}", wide.text(40));
        assert_eq!(Detail::new("a.c", places()).places.len(), 2);
        assert_eq!(Detail::new("src/map.h:12", places()).places, ["/usr/bin/app"]);
    }
}
