//! What is selected on a page: a function, a line, a file, a binary or a label's value, and the
//! filters that keep it, leave it out or hide it.

use super::difference::DiffTable;
use super::model::{Model, Table, ThreadTable};
use super::page::PageState;
use profile::{LabelValue, Profile, StrId, label};
use view::query::{AddedFilter, Rows, Shown, ShownSource, exactly};
use view::{Condition, Frame, Name, Tree, base_name, is_run_time};

/// A label's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labelled {
    /// The key.
    pub key: String,
    /// The value as a condition of `tagfocus`: a regular expression, or a number with its unit.
    /// `None`: samples without this label.
    condition: Option<String>,
    /// The value as text.
    value: String,
}

/// What is selected; parts that are not known are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// A function.
    pub function: Option<String>,
    /// A source file.
    pub file: Option<String>,
    /// A binary: its name if that is unique, else its path.
    pub binary: Option<String>,
    /// An address without a function, as tables show it.
    pub address: Option<String>,
    /// A label's value.
    pub label: Option<Labelled>,
}

impl Target {
    /// What is selected on a page; nothing on a page of text.
    pub fn selected(page: &PageState) -> Target {
        match page.model.as_deref() {
            Some(Model::Table(table)) => Target::in_table(table, page.cursor.selected),
            Some(Model::Graph(graph)) => match page.node() {
                Tree::ROOT => Target::default(),
                node => {
                    let frame = graph.facts.frame(graph.tree.node(node).frame);
                    Target::for_frame(&graph.facts.profile, frame)
                }
            },
            Some(Model::States(threads)) => Target::in_thread(threads, page.cursor.selected),
            Some(Model::Code(code)) => {
                let row = code.rows.get(page.cursor.selected);
                let function = row.and_then(|row| row.function.clone());
                match &page.query.shown {
                    Shown::Source(ShownSource { name, .. }) if code.is_unnamed => {
                        let address = function.is_none().then(|| name.clone());
                        Target { function, address, ..Target::default() }
                    }
                    Shown::Source(ShownSource { name, .. }) => {
                        let function = function.or_else(|| Some(name.clone()));
                        Target { function, ..Target::default() }
                    }
                    _ => Target { function, ..Target::default() },
                }
            }
            Some(Model::Diff(found)) => Target::in_difference(found, page.cursor.selected),
            Some(Model::DiffFlame(flame)) => match flame.function(page.node()) {
                Some(frame) => Target {
                    function: Some(frame.name.to_string()),
                    binary: (!frame.binary.is_empty()).then(|| frame.binary.to_string()),
                    ..Target::default()
                },
                None => Target::default(),
            },
            Some(Model::Text(_)) | None => Target::default(),
        }
    }

    fn in_table(table: &Table, row: usize) -> Target {
        let Some(row) = table.rows.get(row) else { return Target::default() };
        let profile = &*table.facts.profile;
        if let Rows::Label(key) = &table.kind {
            let value = table.groups[row.group as usize].first().copied().flatten();
            let label = Some(Labelled::new(profile, key, value));
            return Target { label, ..Target::default() };
        }
        if table.kind == Rows::Packages {
            // No condition selects the functions of a package.
            return Target::default();
        }
        let frame = table.facts.frame(row.frame);
        let target = Target::for_frame(profile, frame);
        match table.kind {
            Rows::Files => Target { function: None, binary: None, ..target },
            Rows::Binaries => Target { function: None, file: None, ..target },
            _ => target,
        }
    }

    fn for_frame(profile: &Profile, frame: &Frame) -> Target {
        let text = |id: StrId| (id != StrId::EMPTY).then(|| profile.str(id).to_owned());
        let function = match frame.name {
            Name::Function(name) => text(name),
            Name::Label(value, key) => {
                let label = Some(Labelled::new(profile, profile.str(key), value));
                return Target { label, ..Target::default() };
            }
            _ => None,
        };
        let binary = text(frame.binary).map(|path| short(profile, path));
        let is_address = matches!(frame.name, Name::Address(_)) && binary.is_some();
        let address = is_address.then(|| frame.display(profile).into_owned());
        Target { function, file: text(frame.file), binary, address, label: None }
    }

    fn in_thread(threads: &ThreadTable, row: usize) -> Target {
        let Some(row) = threads.rows.get(row) else { return Target::default() };
        let (key, value) = match (row.thread.tid, &*row.thread.name) {
            (0, "") => return Target::default(),
            (0, name) => (label::THREAD, name.to_owned()),
            (tid, _) => (label::TID, tid.to_string()),
        };
        let condition = Some(one_of(&value));
        let condition = if key == label::TID { Some(value.clone()) } else { condition };
        let label = Some(Labelled { key: key.to_owned(), condition, value });
        Target { label, ..Target::default() }
    }

    fn in_difference(found: &DiffTable, row: usize) -> Target {
        let Some(at) = found.diff.rows.get(row) else { return Target::default() };
        let frame = &found.diff.frames[at.frame as usize];
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        match &found.kind {
            Rows::Label(key) => {
                let value = found.label(at).map(str::to_owned);
                let condition = value.as_deref().map(one_of);
                let value = value.unwrap_or_default();
                let label = Some(Labelled { key: key.clone(), condition, value });
                Target { label, ..Target::default() }
            }
            Rows::Files => Target { file: text(&frame.name), ..Target::default() },
            Rows::Binaries => Target { binary: text(&frame.binary), ..Target::default() },
            Rows::Functions | Rows::Lines | Rows::Packages | Rows::Groups(_) => Target {
                function: found.function(row).map(str::to_owned),
                binary: text(&frame.binary),
                ..Target::default()
            },
        }
    }

    /// Its name for people; `None` if nothing is selected.
    pub fn name(&self) -> Option<&str> {
        let label = self.label.as_ref().map(|label| &label.value);
        let parts = [label, self.function.as_ref(), self.file.as_ref(), self.binary.as_ref()];
        parts.into_iter().flatten().next().map(String::as_str)
    }

    /// The filter that keeps samples with it.
    pub fn focus(&self) -> Option<AddedFilter> {
        if let Some(label) = &self.label {
            return label.focus();
        }
        match (&self.function, &self.file, &self.binary) {
            (Some(name), ..) | (None, Some(name), _) => {
                Some(filter(Condition::Focus, exactly(name)))
            }
            (None, None, Some(binary)) => Some(filter(Condition::Binary, binary.clone())),
            (None, None, None) => None,
        }
    }

    /// The filter that leaves out samples with it.
    pub fn ignore(&self) -> Option<AddedFilter> {
        match &self.label {
            Some(label) => label.ignore(),
            None => Some(filter(Condition::Ignore, self.regex()?)),
        }
    }

    /// The filter that hides its frames.
    pub fn hide(&self) -> Option<AddedFilter> {
        match &self.label {
            Some(_) => None,
            None => Some(filter(Condition::Hide, self.regex()?)),
        }
    }

    /// The filter that keeps samples with a frame in its binary.
    pub fn in_binary(&self) -> Option<AddedFilter> {
        Some(filter(Condition::Binary, self.binary.clone()?))
    }

    /// A regular expression for its frames.
    fn regex(&self) -> Option<String> {
        match (&self.function, &self.file, &self.binary) {
            (Some(name), ..) | (None, Some(name), _) => Some(exactly(name)),
            // Of a path, the last part.
            (None, None, Some(binary)) => Some(format!("(^|/){}$", regex::escape(binary))),
            (None, None, None) => None,
        }
    }
}

impl Labelled {
    fn new(profile: &Profile, key: &str, value: Option<LabelValue>) -> Labelled {
        let condition = value.map(|value| match value {
            LabelValue::Str(text) => one_of(profile.str(text)),
            LabelValue::Num { value, unit } => format!("{value}{}", profile.str(unit)),
        });
        let value = value.map_or_else(String::new, |value| view::label_text(profile, value));
        Labelled { key: key.to_owned(), condition, value }
    }

    fn focus(&self) -> Option<AddedFilter> {
        // A process and a thread by name or by number, which is what these conditions are.
        match &*self.key {
            _ if self.value.is_empty() => None,
            label::PROCESS | label::PID => Some(filter(Condition::Process, self.value.clone())),
            label::THREAD | label::TID => Some(filter(Condition::Thread, self.value.clone())),
            key => Some(filter(Condition::TagFocus, format!("{key}={}", self.condition.as_ref()?))),
        }
    }

    fn ignore(&self) -> Option<AddedFilter> {
        let condition = self.condition.as_ref()?;
        Some(filter(Condition::TagIgnore, format!("{}={condition}", self.key)))
    }
}

/// A regular expression for one text, without the comma that would end it.
fn one_of(text: &str) -> String {
    exactly(text).replace(',', r"\x2c")
}

fn filter(condition: Condition, value: String) -> AddedFilter {
    AddedFilter { condition, value }
}

/// The name of a binary without its directories, if no other binary has it.
fn short(profile: &Profile, path: String) -> String {
    let name = base_name(&path);
    let is_other = |other: &str| other != path && base_name(other) == name;
    if !is_run_time(&path)
        && profile.mappings.iter().any(|mapping| is_other(profile.str(mapping.file)))
    {
        return path;
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::model::{Context, compute};
    use super::super::page::Body;
    use super::*;
    use view::query::Query;
    use view::testing::{answers, processes, snapshot};

    /// The first row of a page.
    fn target(context: &Context, shown: Shown) -> Target {
        let query = Query::new(shown);
        let mut page = PageState::new(query.clone());
        page.set(Arc::new(compute(context, &query).unwrap()), Body { width: 80, height: 20 });
        Target::selected(&page)
    }

    #[test]
    fn each_kind_of_row_has_its_filters() {
        let context = Context::new(&Arc::new(processes()));
        let table = |rows| target(&context, Shown::table(rows));
        let text = |added: Option<AddedFilter>| added.map(|added| added.text());
        let function = table(Rows::Functions);
        assert_eq!(text(function.focus()).unwrap(), "focus=^serve$");
        assert_eq!(text(function.in_binary()).unwrap(), "binary=app");
        let process = table(Rows::Label("process".to_owned()));
        assert_eq!(text(process.focus()).unwrap(), "process=web;1");
        assert_eq!(text(process.ignore()).unwrap(), "tagignore=process=^web;1$");
        assert_eq!(process.hide(), None);
        let binary = table(Rows::Binaries);
        assert_eq!(text(binary.focus()).unwrap(), "binary=app");
        assert_eq!(text(binary.ignore()).unwrap(), "ignore=(^|/)app$");
        assert_eq!(text(table(Rows::Files).focus()).unwrap(), "focus=^a\\.rs$");
        let none = table(Rows::Label("none".to_owned()));
        assert_eq!((none.focus(), none.ignore()), (None, None));
    }

    #[test]
    fn an_address_leads_to_its_instructions() {
        let context = Context::new(&Arc::new(view::testing::frames_profile()));
        let shown = Shown::table(Rows::Functions);
        let query = Query::new(shown);
        let Ok(Model::Table(table)) = compute(&context, &query) else { panic!("a table") };
        let of = |name: &str| {
            let row = (0..table.rows.len()).find(|&row| table.name(row) == name).unwrap();
            Target::in_table(&table, row)
        };
        assert_eq!(of("libx.so+0x1234").address.as_deref(), Some("libx.so+0x1234"));
        assert_eq!(of("inner").address, None);
        // Nothing is known of the code at an address without a binary.
        assert_eq!(of("0xdead").address, None);
    }

    #[test]
    fn a_filter_keeps_what_its_row_has() {
        for (profile, rows) in [
            (processes(), Rows::Functions),
            (processes(), Rows::Files),
            (processes(), Rows::Binaries),
            (processes(), Rows::Label("process".to_owned())),
            (snapshot(), Rows::Label("tid".to_owned())),
            (snapshot(), Rows::Label("pid".to_owned())),
            (snapshot(), Rows::Label("state".to_owned())),
            (answers(), Rows::Lines),
        ] {
            let context = Context::new(&Arc::new(profile));
            let shown = Shown::table(rows.clone());
            let query = Query::new(shown.clone());
            let Ok(Model::Table(table)) = compute(&context, &query) else { panic!("a table") };
            let target = target(&context, shown);
            let filters = vec![target.focus().unwrap()];
            let part = context.part(&Query { filters, ..query.clone() }).unwrap().profile;
            assert_eq!(part.total(0), table.rows[0].total, "{rows:?}");
            let filters = vec![target.ignore().unwrap()];
            let part = context.part(&Query { filters, ..query }).unwrap().profile;
            assert_eq!(part.total(0), table.facts.total - table.rows[0].total, "{rows:?}");
        }
    }
}
