//! The menus: what can be done with the selected row, rows of tables, filters to remove.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{App, Command, by_label};
use crate::report::shorten;
use crate::report::terminal::cursor::Move;
use crate::report::terminal::keys::{self, Action};
use crate::report::terminal::menu::{Choice, Menu, MenuItem};
use crate::report::terminal::page::Body;
use crate::report::terminal::target::Target;
use profile::label;
use view::Direction;
use view::query::{AddedFilter, Query, Rows, Shown, ShownSource};

/// Fewest lines of a page on which a menu has borders.
pub const WITH_BORDERS: u16 = 5;

/// Keys of rows of tables: those of their pages, and others.
const ROW_KEYS: [(char, Rows); 4] =
    [('1', Rows::Functions), ('5', Rows::Lines), ('6', Rows::Binaries), ('9', Rows::Files)];
const LABEL_KEYS: [(char, &str); 2] = [('7', label::PROCESS), ('8', label::THREAD)];
const OTHER_ROW_KEYS: &str = "abcdeghimnorstvwxyz";

/// Columns of a menu in addition to its texts.
const MENU_BORDERS: usize = 7;

/// Most lines of a text in a menu.
const MAX_PARTS: usize = 100;

/// Keys of numbered lines.
const NUMBERS: &str = "123456789abcdeghimnoprstvwxyz";

fn item(key: char, text: impl Into<String>, choice: Choice) -> MenuItem {
    MenuItem { key, text: text.into(), choice }
}

/// Lines of a menu on the screen, between its borders if it has some.
fn menu_rows(body: Body) -> usize {
    usize::from(if body.height < WITH_BORDERS { body.height } else { body.height - 2 })
}

impl App {
    /// A key while a menu is open.
    pub fn menu_key(&mut self, key: KeyEvent) -> Vec<Command> {
        let height = menu_rows(self.body);
        let Some(menu) = &mut self.menu else { return Vec::new() };
        let plain = !key.modifiers.contains(KeyModifiers::CONTROL);
        if let KeyCode::Char(c) = key.code
            && plain
            && let Some(choice) = menu.find(c).map(|item| item.choice.clone())
        {
            return self.choose(choice);
        }
        match keys::action(key) {
            Some(Action::Go(step)) => menu.go(step, height),
            Some(Action::Open | Action::Right) => {
                let choice = menu.selected().map(|item| item.choice.clone());
                return choice.map_or_else(Vec::new, |choice| self.choose(choice));
            }
            Some(action @ (Action::Suspend | Action::Redraw)) => return self.act(action),
            Some(Action::Quit) if !plain => return self.act(Action::Quit),
            _ => self.menu = None,
        }
        Vec::new()
    }

    /// Moves in the menu.
    pub fn menu_go(&mut self, step: Move) {
        let height = menu_rows(self.body);
        if let Some(menu) = &mut self.menu {
            menu.go(step, height);
        }
    }

    /// Chooses a line by its number on the screen; outside, the menu is closed.
    pub fn menu_click(&mut self, row: Option<usize>) -> Vec<Command> {
        let Some(menu) = &self.menu else { return Vec::new() };
        let item = row.and_then(|row| menu.items.get(menu.cursor.first + row));
        match item.map(|item| item.choice.clone()) {
            Some(choice) => self.choose(choice),
            None => {
                self.menu = None;
                Vec::new()
            }
        }
    }

    fn choose(&mut self, choice: Choice) -> Vec<Command> {
        self.menu = None;
        self.message = None;
        match choice {
            Choice::Act(action) => self.act(action),
            Choice::Visit(query, wanted) => self.visit_at(*query, wanted),
            Choice::Copy(text) => vec![Command::Copy(text)],
            Choice::RemoveFilter(number) => self.remove_filter(number),
            Choice::RemoveAllFilters => {
                let query = Query { filters: Vec::new(), ..self.page().query.clone() };
                self.visit(query)
            }
        }
    }

    /// Opens the menu of what is selected.
    pub(super) fn open_menu(&mut self) {
        let target = Target::selected(self.page());
        let Some(name) = target.name().map(str::to_owned) else {
            self.show_message("nothing with a name is selected".to_owned());
            return;
        };
        let mut items = Vec::new();
        if target.label.is_some() {
            self.add_items_of_label(&target, &mut items);
        } else {
            self.add_items_of_code(&target, &mut items);
        }
        for (key, text, action, added) in [
            ('+', "only samples with it", Action::Focus, target.focus()),
            ('-', "no samples with it", Action::Ignore, target.ignore()),
            ('x', "hide its frames", Action::Hide, target.hide()),
        ] {
            if let Some(added) = added {
                items.push(item(key, format!("{text}: {}", added.text()), Choice::Act(action)));
            }
        }
        items.push(item('y', "copy the name", Choice::Act(Action::Copy)));
        self.menu = Some(Menu::new(name, items));
    }

    /// The same page with another view, and perhaps one more filter.
    fn query(&self, shown: Shown, added: Option<AddedFilter>) -> Box<Query> {
        let mut query = Query { shown, ..self.page().query.clone() };
        if let Some(added) = added.filter(|added| !query.filters.contains(added)) {
            query.filters.push(added);
        }
        Box::new(query)
    }

    /// Source, callers, sandwich, trees and binary of a function; functions of a file or binary.
    fn add_items_of_code(&self, target: &Target, items: &mut Vec<MenuItem>) {
        let visit = |shown: Shown, name: Option<&String>| {
            Choice::Visit(self.query(shown, None), name.cloned())
        };
        let name = target.function.as_ref();
        if let Some(name) = name.or(target.file.as_ref()) {
            let source = |assembly| {
                Shown::Source(ShownSource { assembly, ..ShownSource::lines(name.clone()) })
            };
            items.push(item('a', "source", visit(source(false), None)));
            if target.function.is_some() {
                items.push(item('A', "source and assembly", visit(source(true), None)));
            }
        }
        if let (None, None, Some(address)) = (name, &target.file, &target.address) {
            let code = Shown::Source(ShownSource::assembly(address.clone()));
            items.push(item('a', "instructions around it", visit(code, None)));
        }
        if let Some(function) = name {
            let sandwich = Shown::Sandwich(function.clone());
            items.push(item('S', "its callers and callees (sandwich)", visit(sandwich, None)));
            let callers = Shown::Tree(Direction::Callers);
            items.push(item('r', "its callers, from its self value", visit(callers, name)));
            let callees = Shown::Tree(Direction::Callees);
            items.push(item('t', "its place in the call tree", visit(callees, name)));
            let flame = Shown::flame(Direction::Callees);
            items.push(item('F', "its place in the flame graph", visit(flame, name)));
            items.push(item(
                'f',
                "its row in the table of functions",
                visit(Shown::functions(), name),
            ));
        } else {
            let functions = self.query(Shown::functions(), target.focus());
            items.push(item('f', "its functions", Choice::Visit(functions, None)));
            let flame = self.query(Shown::flame(Direction::Callees), target.focus());
            items.push(item('F', "its flame graph", Choice::Visit(flame, None)));
        }
        if let (Some(_), Some(binary), Some(added)) = (name, &target.binary, target.in_binary()) {
            let text = format!("only samples in {binary}: {}", added.text());
            items.push(item('d', text, Choice::Act(Action::ZoomBinary)));
        }
    }

    /// Views of the samples with a label.
    fn add_items_of_label(&self, target: &Target, items: &mut Vec<MenuItem>) {
        let Some(added) = target.focus() else { return };
        for (key, text, shown) in [
            ('f', "its functions", Shown::functions()),
            ('t', "its call tree", Shown::Tree(Direction::Callees)),
            ('F', "its flame graph", Shown::flame(Direction::Callees)),
            ('8', "its threads", by_label(label::THREAD)),
            ('6', "its binaries", Shown::table(Rows::Binaries)),
        ] {
            let query = self.query(shown, Some(added.clone()));
            items.push(item(key, text, Choice::Visit(query, None)));
        }
    }

    /// Opens the menu of what the rows of a table can be.
    pub(super) fn open_rows_menu(&mut self) {
        let Some(profile) = &self.profile else { return };
        let mut rows = ROW_KEYS.to_vec();
        let mut keys: Vec<&str> =
            profile.labels.keys().into_iter().map(|key| profile.str(key)).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut others = OTHER_ROW_KEYS.chars().chain(std::iter::repeat(' '));
        let mut more = Vec::new();
        for key in keys {
            let own = LABEL_KEYS.into_iter().find(|(_, label)| *label == key);
            let rows_of_label = Rows::Label(key.to_owned());
            match own {
                Some((number, _)) => rows.push((number, rows_of_label)),
                None => more.push((others.next().unwrap_or(' '), rows_of_label)),
            }
        }
        rows.sort_by_key(|(number, _)| *number);
        // In a difference, its rows.
        let is_diff = matches!(self.page().query.shown, Shown::Diff { .. });
        if !is_diff {
            rows.push(('p', Rows::Packages));
        }
        let usual = self.usual_rows(self.page().query.type_index);
        if !is_diff && usual != Rows::Functions {
            rows.push(('f', usual));
        }
        rows.append(&mut more);
        let mut items = Vec::new();
        for (key, rows) in rows {
            let text = rows.name();
            let shown = if is_diff { Shown::diff(rows) } else { Shown::table(rows) };
            items.push(item(key, text, Choice::Visit(self.query(shown, None), None)));
        }
        self.menu = Some(Menu::new("rows of the table".to_owned(), items));
    }

    /// Shows the command line of the page, to be copied.
    pub(super) fn open_command_menu(&mut self) {
        let (Some(profile), Some(write)) = (&self.profile, &self.command.0) else {
            self.show_message("only pages of prof report have a command".to_owned());
            return;
        };
        let lines = match write(profile, &self.page().query) {
            Ok(lines) => lines,
            Err(reason) => {
                self.show_message(reason);
                return;
            }
        };
        let Some(command) = lines.first().cloned() else { return };
        let columns = usize::from(self.body.width).saturating_sub(MENU_BORDERS).max(1);
        let mut keys = std::iter::once('y').chain(std::iter::repeat(' '));
        let mut items = Vec::new();
        for line in lines {
            for part in shorten::wrapped(&line, columns).take(MAX_PARTS) {
                let copy = Choice::Copy(command.clone());
                items.push(item(keys.next().unwrap_or(' '), part, copy));
            }
        }
        self.menu = Some(Menu::new("command of this page; y copies".to_owned(), items));
    }

    /// Opens the menu of filters, of which the chosen one is removed.
    pub(super) fn open_filters_menu(&mut self) {
        let filters = &self.page().query.filters;
        if filters.is_empty() {
            self.show_message("there is no filter".to_owned());
            return;
        }
        let mut items = Vec::new();
        for (number, (key, added)) in NUMBERS.chars().zip(filters).enumerate() {
            items.push(item(key, added.text(), Choice::RemoveFilter(number)));
        }
        if filters.len() > 1 {
            items.push(item('0', "all", Choice::RemoveAllFilters));
        }
        self.menu = Some(Menu::new("remove a filter".to_owned(), items));
    }
}
