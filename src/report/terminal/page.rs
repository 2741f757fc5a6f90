//! A page of the history: its query, its model when that is computed, and what of it is selected.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use super::boxes::{CellRows, LaidOut, NamedTree, Zoomed};
use super::cursor::{Cursor, Move};
use super::model::Model;
use super::outline::Outline;
use super::place::Place;
use super::search::Way;
use super::source::Content;
use view::query::{Query, Shown, ShownFlame};
use view::{BoxTree, Direction, Tree};

/// A page.
pub struct PageState {
    /// What it shows.
    pub query: Query,
    /// The model; `None`: not computed yet.
    pub model: Option<Arc<Model>>,
    /// The reason why there is no model.
    pub error: Option<String>,
    /// The selected row.
    pub cursor: Cursor,
    /// The lines of a call tree.
    pub outline: Outline,
    /// The node that fills a flame graph.
    pub zoom: u32,
    /// The selected node of a flame graph.
    pub chosen: u32,
    /// The boxes of a flame graph in cells.
    boxes: LaidOut,
    /// The user has selected something.
    pub is_touched: bool,
    /// The state when the model was unloaded.
    place: Option<Place>,
    /// The name of what is selected as soon as there is a model.
    pub wanted: Option<String>,
    /// The instructions whose jumps were followed.
    followed: Vec<usize>,
}

/// The size of the part of the screen that shows a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

impl Body {
    /// Rows of a list below the titles of its columns.
    pub fn rows(self) -> usize {
        usize::from(self.height.saturating_sub(1))
    }
}

/// Frees a model or a profile in the background: a large one takes longer than the answer to a key.
pub fn release<T: Send + Sync + 'static>(shared: Arc<T>) {
    thread::Builder::new().name("release".to_owned()).spawn(move || drop(shared)).ok();
}

impl Drop for PageState {
    fn drop(&mut self) {
        self.forget_model();
    }
}

impl PageState {
    /// A page without a model.
    pub fn new(query: Query) -> PageState {
        PageState {
            query,
            model: None,
            error: None,
            cursor: Cursor::default(),
            outline: Outline::default(),
            zoom: Tree::ROOT,
            chosen: Tree::ROOT,
            boxes: LaidOut::default(),
            is_touched: false,
            place: None,
            wanted: None,
            followed: Vec::new(),
        }
    }

    /// Frees the model, which the next one does not resemble.
    pub fn forget_model(&mut self) {
        self.model.take().into_iter().for_each(release);
        self.outline = Outline::default();
        self.zoom = Tree::ROOT;
        self.place = None;
        self.followed.clear();
    }

    /// Frees the model until the page is shown again. The next one is shown at the same place.
    pub fn unload(&mut self) {
        if self.model.is_some() {
            let place = Place::find(self);
            self.forget_model();
            self.place = place;
        }
    }

    /// Sets the model, and selects what was wanted of it.
    pub fn set(&mut self, model: Arc<Model>, body: Body) {
        let place = Place::find(self).or_else(|| self.place.take());
        if let Model::Graph(graph) = &*model {
            self.outline = Outline::new(graph);
            let roots = graph.ordered.children(Tree::ROOT).iter().copied();
            let widest = roots.max_by_key(|&root| graph.tree.node(root).total);
            self.chosen = widest.unwrap_or(Tree::ROOT);
        }
        if let Model::DiffFlame(flame) = &*model {
            let roots = flame.children(Tree::ROOT).iter().copied();
            let widest = roots.rev().max_by_key(|&root| flame.width(root));
            self.chosen = widest.unwrap_or(Tree::ROOT);
        }
        if let Model::Code(code) = &*model
            && self.model.is_none()
        {
            // In the middle of the screen.
            self.cursor.first = code.hottest.saturating_sub(body.rows() / 2);
            self.cursor.selected = code.hottest;
        }
        self.model.replace(model).into_iter().for_each(release);
        // Its rows may have other numbers.
        self.followed.clear();
        self.error = None;
        if let Some(place) = place {
            place.restore(self);
        }
        if let Some(name) = self.wanted.take() {
            self.select_named(&name, body);
        }
        if !self.is_flame() {
            self.cursor.fit(self.rows(), self.height(body));
        } else if let Some(tree) = self.model.clone().as_deref().and_then(Model::boxes)
            && !self.is_touched
            && !Zoomed::new(tree, self.zoom, body.width).shows(self.chosen)
        {
            self.chosen = Tree::ROOT;
        }
    }

    /// Rows of the page on a screen: those below the titles of a list, or of boxes.
    pub fn height(&self, body: Body) -> usize {
        if self.is_flame() { usize::from(body.height) } else { body.rows() }
    }

    /// Selects the row, the box or the node with this name that has the largest total. Of a tree of
    /// callers, this is a root.
    fn select_named(&mut self, name: &str, body: Body) {
        let Some(model) = self.model.clone() else { return };
        if let Model::DiffFlame(flame) = &*model {
            let named = (1..flame.count()).filter(|&at| flame.box_name(flame.node_at(at)) == name);
            if let Some(at) = named.rev().max_by_key(|&at| flame.width(flame.node_at(at))) {
                self.select_found(at, body);
            }
            return;
        }
        let Model::Graph(graph) = &*model else {
            let found = (0..self.rows()).find(|&row| self.text_at(row) == name);
            if let Some(row) = found {
                self.cursor.go(Move::To(row), self.rows(), body.rows());
            }
            return;
        };
        let among = match self.query.shown {
            Shown::Tree(Direction::Callers) => graph.ordered.children(Tree::ROOT),
            _ => graph.ordered.nodes(),
        };
        if let Some(node) = graph.largest(name, among) {
            self.select_found(graph.ordered.position(node), body);
        }
    }

    /// True if it is drawn as boxes.
    pub fn is_flame(&self) -> bool {
        matches!(self.query.shown, Shown::Flame(_) | Shown::DiffFlame(_))
    }

    /// True if it is the table of a difference.
    pub fn is_difference(&self) -> bool {
        matches!(self.query.shown, Shown::Diff { .. })
    }

    /// The number of rows that the cursor moves through.
    pub fn rows(&self) -> usize {
        match self.model.as_deref() {
            None => 0,
            Some(Model::Table(table)) => table.rows.len(),
            Some(Model::Graph(_)) => self.outline.lines().len(),
            Some(Model::DiffFlame(_)) => 0,
            Some(Model::States(threads)) => threads.rows.len(),
            Some(Model::Code(code)) => code.rows.len(),
            Some(Model::Diff(found)) => found.diff.rows.len(),
            Some(Model::Text(lines)) => lines.len(),
        }
    }

    /// The number of the things that a search goes through: all nodes of a tree, not those that are
    /// shown only.
    pub fn searched(&self) -> usize {
        match self.model.as_deref() {
            Some(model) => model.boxes().map_or_else(|| self.rows(), NamedTree::count),
            None => 0,
        }
    }

    /// The text that a search compares.
    pub fn text_at(&self, index: usize) -> Cow<'_, str> {
        match self.model.as_deref() {
            Some(Model::Table(table)) => table.name(index),
            Some(Model::Graph(graph)) => graph.box_name(graph.node_at(index)),
            Some(Model::DiffFlame(flame)) => flame.box_name(flame.node_at(index)),
            Some(Model::States(threads)) => threads.name(index).into(),
            Some(Model::Code(code)) => code.rows[index].text.as_str().into(),
            Some(Model::Diff(found)) => found.name(index).into(),
            Some(Model::Text(lines)) => lines[index].as_str().into(),
            None => "".into(),
        }
    }

    /// The index of what is selected, for a search.
    pub fn search_position(&self) -> usize {
        match self.model.as_deref().and_then(Model::boxes) {
            Some(tree) => tree.position(self.node()),
            None => self.cursor.selected,
        }
    }

    /// Selects what a search has found.
    pub fn select_found(&mut self, index: usize, body: Body) {
        let Some(model) = self.model.clone() else { return };
        self.is_touched = true;
        if let Some(tree) = self.drawn_boxes(&model) {
            self.chosen = tree.node_at(index);
            self.zoom_to_show(tree, body);
            return;
        }
        let row = match &*model {
            Model::Graph(graph) => {
                let node = graph.node_at(index);
                self.chosen = node;
                self.outline.reveal(graph, node).unwrap_or(self.cursor.selected)
            }
            _ => index,
        };
        self.cursor.go(Move::To(row), self.rows(), body.rows());
    }

    /// Zooms out until the chosen box is on the screen, or into it if it is too narrow.
    fn zoom_to_show(&mut self, tree: &dyn NamedTree, body: Body) {
        let on_screen = |zoom: u32| Zoomed::new(tree, zoom, body.width).shows(self.chosen);
        if !on_screen(self.zoom) {
            self.zoom = if on_screen(Tree::ROOT) { Tree::ROOT } else { self.chosen };
        }
        self.scroll_to_chosen(tree, body);
    }

    fn scroll_to_chosen(&mut self, tree: &dyn NamedTree, body: Body) {
        let depth = Zoomed::new(tree, self.zoom, body.width).depth(self.chosen);
        self.cursor.go(Move::To(depth), usize::MAX, self.height(body));
    }

    /// The boxes of a flame graph in cells of a screen with this width.
    pub fn cell_rows(&self, width: u16) -> Rc<CellRows> {
        let rows = self.model.as_ref().map(|model| self.boxes.rows(model, self.zoom, width));
        rows.unwrap_or_default()
    }

    /// The selected node of a tree; the root without one.
    pub fn node(&self) -> u32 {
        if self.is_flame() {
            return self.chosen;
        }
        self.outline.lines().get(self.cursor.selected).copied().unwrap_or(Tree::ROOT)
    }

    /// The name of what is selected.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        match self.model.as_deref()? {
            model @ (Model::Graph(_) | Model::DiffFlame(_)) => match self.node() {
                Tree::ROOT => None,
                node => Some(model.boxes()?.box_name(node)),
            },
            Model::Code(code) => {
                let row = code.rows.get(self.cursor.selected)?;
                let is_text = matches!(row.content, Content::Note | Content::Line(_));
                let name = row.function.as_deref().filter(|_| !is_text);
                Some(name.unwrap_or(row.text.trim()).into())
            }
            _ if self.cursor.selected >= self.rows() => None,
            _ => Some(self.text_at(self.cursor.selected)),
        }
    }

    /// Moves the selection.
    pub fn go(&mut self, step: Move, body: Body) {
        let Some(model) = self.model.clone() else { return };
        self.is_touched = true;
        match self.drawn_boxes(&model) {
            Some(tree) => self.go_in_boxes(tree, step, body),
            None => self.cursor.go(step, self.rows(), body.rows()),
        }
    }

    /// True if its boxes begin at the lower end of the screen.
    fn is_upward(&self) -> bool {
        matches!(self.query.shown, Shown::Flame(ShownFlame { is_upward: true, .. }))
    }

    /// The row of boxes on line `y` of a screen with this height.
    pub fn box_row(&self, y: u16, height: u16) -> usize {
        let line = if self.is_upward() { height.saturating_sub(1).saturating_sub(y) } else { y };
        self.cursor.first + usize::from(line)
    }

    /// The tree of a page that is drawn as boxes.
    fn drawn_boxes<'m>(&self, model: &'m Model) -> Option<&'m dyn NamedTree> {
        model.boxes().filter(|_| self.is_flame())
    }

    /// Moves between boxes: up and down along the stack.
    fn go_in_boxes(&mut self, tree: &dyn NamedTree, step: Move, body: Body) {
        let zoomed = Zoomed::new(tree, self.zoom, body.width);
        if !zoomed.shows(self.chosen) {
            let first = self.cell_rows(body.width).row(1).first().map(|b| b.node);
            self.chosen = first.unwrap_or(Tree::ROOT);
            return;
        }
        let step = match step {
            Move::Rows(by) if self.is_upward() => Move::Rows(-by),
            Move::Pages(by) if self.is_upward() => Move::Pages(-by),
            Move::HalfPages(by) if self.is_upward() => Move::HalfPages(-by),
            step => step,
        };
        let steps = match step {
            Move::Rows(by) => by,
            Move::Pages(by) => by * isize::try_from(self.height(body).max(1)).unwrap_or(1),
            Move::HalfPages(by) => {
                by * isize::try_from((self.height(body) / 2).max(1)).unwrap_or(1)
            }
            Move::First => isize::MIN,
            Move::Last | Move::To(_) => isize::MAX,
        };
        self.chosen = zoomed.along(self.chosen, steps);
        self.scroll_to_chosen(tree, body);
    }

    /// Moves to the next box at the same depth, or to the previous one.
    fn go_sideways(&mut self, tree: &dyn NamedTree, by: isize, body: Body) {
        let depth = Zoomed::new(tree, self.zoom, body.width).depth(self.chosen);
        let rows = self.cell_rows(body.width);
        let row = rows.row(depth);
        let at = row.iter().position(|b| b.node == self.chosen);
        if let Some(next) = at.and_then(|at| row.get(at.checked_add_signed(by)?)) {
            self.chosen = next.node;
        }
    }

    /// To the left: collapses a node, moves to its caller, or moves the text.
    pub fn left(&mut self, body: Body) {
        let Some(model) = self.model.clone() else { return };
        if let Some(tree) = self.drawn_boxes(&model) {
            self.go_sideways(tree, -1, body);
            return;
        }
        match &*model {
            Model::Graph(graph) => {
                let node = self.node();
                if self.outline.is_expanded(node) {
                    self.outline.collapse(graph, node);
                } else if let Some(row) = self.outline.line_of(graph.tree.node(node).parent) {
                    self.cursor.selected = row;
                }
                self.cursor.fit(self.rows(), body.rows());
            }
            _ => self.cursor.left = self.cursor.left.saturating_sub(SIDE_STEP),
        }
    }

    /// To the right: expands a node, or moves the text.
    pub fn right(&mut self, body: Body) {
        let Some(model) = self.model.clone() else { return };
        if let Some(tree) = self.drawn_boxes(&model) {
            self.go_sideways(tree, 1, body);
            return;
        }
        match &*model {
            Model::Graph(graph) => {
                let node = self.node();
                if node != Tree::ROOT {
                    self.outline.expand(graph, node);
                }
            }
            _ => self.cursor.left = (self.cursor.left + SIDE_STEP).min(MAX_SIDE),
        }
    }

    /// Opens a row: expands or collapses a node, or zooms into a box. False if there is nothing to
    /// open.
    pub fn open(&mut self, body: Body) -> bool {
        let Some(model) = self.model.clone() else { return true };
        let node = self.node();
        if self.drawn_boxes(&model).is_some() {
            if self.zoom == node {
                return false;
            }
            self.zoom = node;
            self.cursor.fit(usize::MAX, self.height(body));
            return true;
        }
        if let Model::Code(code) = &*model
            && let Some(&row) = code.jumps.get(&self.cursor.selected)
        {
            if self.followed.len() == MAX_FOLLOWED {
                self.followed.remove(0);
            }
            self.followed.push(self.cursor.selected);
            self.go(Move::To(row), body);
            return true;
        }
        let Model::Graph(graph) = &*model else { return false };
        if self.outline.is_expanded(node) {
            self.outline.collapse(graph, node);
        } else if node == Tree::ROOT || graph.ordered.children(node).is_empty() {
            return false;
        } else {
            self.outline.expand(graph, node);
        }
        self.cursor.fit(self.rows(), body.rows());
        true
    }

    /// Goes back to the jump that was followed last; false if there is none.
    pub fn unfollow(&mut self, body: Body) -> bool {
        let Some(row) = self.followed.pop() else { return false };
        self.go(Move::To(row), body);
        true
    }

    /// Selects the next row in the order of self values, the largest first, or the previous one.
    /// False if the page has none.
    pub fn go_to_hot(&mut self, way: Way, body: Body) -> bool {
        let model = self.model.clone();
        let Some(Model::Code(code)) = model.as_deref() else { return false };
        let count = code.hot.len();
        let at = code.hot.iter().position(|&row| row == self.cursor.selected);
        let next = match (way, at) {
            _ if count == 0 => return false,
            (Way::Forward, at) => at.map_or(0, |at| (at + 1) % count),
            (Way::Backward, at) => at.map_or(0, |at| (at + count - 1) % count),
        };
        self.go(Move::To(code.hot[next]), body);
        true
    }

    /// Expands everything below the selected row.
    pub fn expand_all(&mut self) {
        if let Some(Model::Graph(graph)) = self.model.clone().as_deref() {
            self.outline.expand_all(graph, self.node());
        }
    }

    /// Collapses everything.
    pub fn collapse_all(&mut self, body: Body) {
        self.zoom = Tree::ROOT;
        if let Some(Model::Graph(graph)) = self.model.clone().as_deref() {
            self.outline.collapse_all(graph);
            self.cursor.fit(self.rows(), body.rows());
        }
    }

    /// Zooms out by one box; false if everything is on the screen.
    pub fn zoom_out(&mut self) -> bool {
        let Some(model) = self.model.clone() else { return false };
        let Some(tree) = self.drawn_boxes(&model).filter(|_| self.zoom != Tree::ROOT) else {
            return false;
        };
        self.zoom = tree.parent(self.zoom);
        true
    }

    /// Selects what was clicked, in cells of the body. True if it was selected already: a second
    /// click opens it.
    pub fn click(&mut self, column: u16, row: u16, body: Body) -> bool {
        let Some(model) = self.model.clone() else { return false };
        self.is_touched = true;
        let box_row = self.box_row(row, body.height);
        let (column, row) = (usize::from(column), usize::from(row));
        let at = self.cursor.first + row;
        match self.drawn_boxes(&model) {
            Some(_) => {
                let rows = self.cell_rows(body.width);
                let hit = rows.row(box_row).iter().find(|b| {
                    let left = usize::from(b.left);
                    (left..left + usize::from(b.width)).contains(&column)
                });
                let Some(hit) = hit else { return false };
                let again = self.chosen == hit.node;
                self.chosen = hit.node;
                again
            }
            None => {
                // Below the titles of the columns.
                let Some(at) = at.checked_sub(1).filter(|&at| row > 0 && at < self.rows()) else {
                    return false;
                };
                let again = self.cursor.selected == at;
                self.cursor.go(Move::To(at), self.rows(), body.rows());
                again
            }
        }
    }
}

/// Most jumps that lead back.
const MAX_FOLLOWED: usize = 100;

/// Columns by which text is moved to the side.
const SIDE_STEP: usize = 8;

/// Most columns by which text is moved.
const MAX_SIDE: usize = 100_000;
