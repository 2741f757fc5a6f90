//! A terminal of any size, as one that a person can look at.

use std::io::{self, Stdout};

use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};

/// Most columns and rows that are drawn: a picture of them takes a few MiB, and the sizes that a
/// terminal may state, 65,535 each, more than 100 GiB.
const MOST: Size = Size { width: 1000, height: 500 };

/// A terminal, of which at most the upper left 1,000 columns and 500 rows are
/// drawn.
pub struct BoundedBackend {
    terminal: CrosstermBackend<Stdout>,
}

impl BoundedBackend {
    /// A part of this terminal.
    pub fn new(terminal: CrosstermBackend<Stdout>) -> BoundedBackend {
        BoundedBackend { terminal }
    }
}

/// The part of a terminal that is drawn.
fn bounded(size: Size) -> Size {
    Size { width: size.width.min(MOST.width), height: size.height.min(MOST.height) }
}

impl Backend for BoundedBackend {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        self.terminal.draw(content)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.terminal.hide_cursor()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.terminal.show_cursor()
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        self.terminal.get_cursor_position()
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.terminal.set_cursor_position(position)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.terminal.clear()
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        self.terminal.clear_region(region)
    }

    fn size(&self) -> io::Result<Size> {
        Ok(bounded(self.terminal.size()?))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        let WindowSize { columns_rows, pixels } = self.terminal.window_size()?;
        Ok(WindowSize { columns_rows: bounded(columns_rows), pixels })
    }

    fn flush(&mut self) -> io::Result<()> {
        Backend::flush(&mut self.terminal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_beyond_any_screen_are_cut() {
        for (stated, drawn) in [
            ((80, 24), (80, 24)),
            ((1000, 500), (1000, 500)),
            ((65_535, 24), (1000, 24)),
            ((65_535, 65_535), (1000, 500)),
            ((0, 0), (0, 0)),
        ] {
            let size = |(width, height)| Size { width, height };
            assert_eq!(bounded(size(stated)), size(drawn));
        }
    }
}
