//! The frames whose source is shown.

use regex::Regex;

use super::{CodeBounds, Unit};
use crate::query::ShownSource;
use crate::{Name, View};
use profile::StrId;

/// The frames of a view that were selected by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The unit of the listings.
    pub unit: Unit,
    /// For each frame of the view, whether it is selected.
    pub(super) frames: Vec<bool>,
    /// Of code without a name: the name of the one listing of all frames.
    pub(super) code: Option<Name>,
}

impl Selection {
    /// The frames that a query shows the source of. `None` if there are none.
    ///
    /// # Errors
    ///
    /// The name selects none, and is not a regular expression.
    pub fn new(
        view: &View,
        shown: &ShownSource,
        bounds: &dyn CodeBounds,
    ) -> Result<Option<Selection>, regex::Error> {
        let name = shown.name.as_str();
        let by_name = || Selection::function(view, name);
        let found = match by_name().or_else(|| Selection::unnamed(view, name, bounds)) {
            None if shown.is_exact && !has_file(view, name) => None,
            None => Selection::find(view, name)?,
            found => found,
        };
        Ok(found.map(|selection| {
            let has_code = shown.assembly || selection.is_unnamed();
            let unit = if has_code { Unit::Function } else { selection.unit };
            Selection { unit, ..selection }
        }))
    }

    /// The frames of the functions with this name. `None` if there are none.
    fn function(view: &View, name: &str) -> Option<Selection> {
        let is_it = |frame: usize| match view.frames.get(frame as u32).name {
            Name::Function(id) => id != StrId::EMPTY && view.profile.str(id) == name,
            _ => false,
        };
        let frames: Vec<bool> = (0..view.frames.len()).map(is_it).collect();
        frames.contains(&true).then_some(Selection { unit: Unit::Function, frames, code: None })
    }

    /// The frames that `what` selects: those of the functions with this name; else those of the
    /// source files with this path or these last parts of a path; else those of the functions whose
    /// names contain a match of it as a regular expression. `None` if there are none.
    ///
    /// # Errors
    ///
    /// It selects none by name, and is not a regular expression.
    pub fn find(view: &View, what: &str) -> Result<Option<Selection>, regex::Error> {
        let strings = view.profile.strings.len();
        let named = |id: StrId, cache: &mut Vec<Option<bool>>, test: &dyn Fn(&str) -> bool| {
            id != StrId::EMPTY
                && *cache[id.0 as usize].get_or_insert_with(|| test(view.profile.str(id)))
        };
        let select = |unit: Unit, matches: &mut dyn FnMut(usize) -> bool| {
            let frames: Vec<bool> = (0..view.frames.len()).map(matches).collect();
            frames.contains(&true).then_some(Selection { unit, frames, code: None })
        };
        if let Some(by_name) = Selection::function(view, what) {
            return Ok(Some(by_name));
        }
        let mut ends = vec![None; strings];
        let by_file = select(Unit::File, &mut |frame| {
            let file = view.frames.get(frame as u32).file;
            named(file, &mut ends, &|path| is_end_of_path(path, what))
        });
        if by_file.is_some() {
            return Ok(by_file);
        }
        let regex = Regex::new(what)?;
        let mut matches = vec![None; strings];
        Ok(select(Unit::Function, &mut |frame| match view.frames.get(frame as u32).name {
            Name::Function(name) => named(name, &mut matches, &|name| regex.is_match(name)),
            _ => false,
        }))
    }
}

/// True if a frame has the source file with this path.
fn has_file(view: &View, path: &str) -> bool {
    let file = |frame: usize| view.profile.str(view.frames.get(frame as u32).file);
    !path.is_empty() && (0..view.frames.len()).any(|frame| file(frame) == path)
}

/// True if `end` is `path`, or its last parts.
pub(super) fn is_end_of_path(path: &str, end: &str) -> bool {
    !end.is_empty()
        && path.strip_suffix(end).is_some_and(|before| {
            before.is_empty() || before.ends_with('/') || end.starts_with('/')
        })
}
