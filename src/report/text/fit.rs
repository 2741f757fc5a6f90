//! Texts of a table in the room of a line.

use unicode_width::UnicodeWidthStr;

use super::{Align, GAP, LineWidth, TextColumn};
use crate::report::shorten::{self, LEAST_NAME};
use crate::report::style;
use sys::printed;

/// Fewest columns of a terminal for a text beside the name.
const LEAST_TEXT: usize = 8;

/// Part of the room that texts beside a long name have: the name has the larger one.
const BESIDE: (usize, usize) = (2, 5);

/// Room for texts beside a name of this width.
fn beside(room: usize, name: usize) -> usize {
    let most = room.saturating_sub(name.min(LEAST_NAME));
    room.saturating_sub(name).max(room * BESIDE.0 / BESIDE.1).min(most)
}

/// Width of a function's name that is shortened only in arguments of templates.
fn needed(name: &str) -> usize {
    if name.contains('<') { style::short(name).width() } else { name.width() }
}

impl LineWidth {
    /// That of standard output, if it is a terminal.
    pub fn stdout() -> LineWidth {
        printed::stdout_width().map_or(LineWidth::Unlimited, LineWidth::Columns)
    }

    /// Shortens the texts of columns in the middle, so that `names`, which stand behind them, have
    /// room; without names, the last of these columns stands at the end.
    pub(super) fn fit<'n>(
        self,
        columns: &mut [TextColumn],
        names: Option<impl Iterator<Item = &'n str>>,
    ) {
        let LineWidth::Columns(line) = self else { return };
        let gaps = columns.len().saturating_sub(usize::from(names.is_none())) * GAP.len();
        let numbers = columns.iter().filter(|column| column.align == Align::Right);
        let numbers: usize = numbers.map(TextColumn::width).sum();
        let room = line.saturating_sub(numbers + gaps);
        let room = names.map_or(room, |names| beside(room, names.map(needed).max().unwrap_or(0)));
        let texts = || columns.iter().filter(|column| column.align == Align::Left);
        let widths: Vec<(usize, usize)> =
            texts().map(|column| (column.title.width(), column.longest())).collect();
        let taken = |most: usize| -> usize {
            widths.iter().map(|&(title, longest)| longest.min(most).max(title)).sum()
        };
        if taken(usize::MAX) <= room {
            return;
        }
        let most = (LEAST_TEXT..=room).take_while(|&most| taken(most) <= room).last();
        let most = most.unwrap_or(LEAST_TEXT);
        for column in columns.iter_mut().filter(|column| column.align == Align::Left) {
            let most = most.max(column.title.width());
            for cell in &mut column.cells {
                *cell = shorten::middle(cell, most);
            }
        }
    }

    /// A name with texts behind it, in this order, next to `taken` columns. The texts are shortened
    /// in the middle, or left out where nothing of them could be read.
    pub(super) fn with_texts(self, name: &str, texts: &[String], taken: usize) -> String {
        let LineWidth::Columns(line) = self else { return name.to_owned() + &texts.concat() };
        let room = line.saturating_sub(taken);
        let width: usize = texts.iter().map(|text| text.width()).sum();
        let most = beside(room, needed(name));
        let mut end = String::new();
        if width <= most {
            end = texts.concat();
        } else {
            let each = most / texts.len().max(1);
            let fitting = texts.iter().filter(|text| text.width() <= each || each >= LEAST_TEXT);
            end.extend(fitting.map(|text| shorten::middle(text, each)));
        }
        shorten::label(name, room.saturating_sub(end.width()).max(LEAST_NAME)) + &end
    }
}
