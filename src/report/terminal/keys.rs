//! Keys and their actions: those of `perf report`, less and vi where these have one.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::cursor::Move;

/// An action of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Moves the cursor.
    Go(Move),
    /// To the left: collapses, or moves the text.
    Left,
    /// To the right: expands, or moves the text.
    Right,
    /// Opens the selected row: expands it, or zooms into it.
    Open,
    /// Expands everything below the selected row.
    ExpandAll,
    /// Collapses everything.
    CollapseAll,
    /// Shows the table of functions.
    Functions,
    /// Shows the call tree.
    CallTree,
    /// Shows the tree of callers.
    Callers,
    /// Shows the flame graph.
    Flame,
    /// Shows the table of source lines.
    Lines,
    /// Shows the table of binaries.
    Binaries,
    /// Shows the table of processes.
    Processes,
    /// Shows the table of threads.
    Threads,
    /// Shows what has names.
    Coverage,
    /// Shows confidence intervals.
    Quality,
    /// Shows the metadata of the file.
    Header,
    /// Sorts by the next column.
    Sort,
    /// Shows the next sample type.
    NextType,
    /// Keeps samples with the selected function only.
    Focus,
    /// Leaves out samples with the selected function.
    Ignore,
    /// Leaves out the selected function's frames.
    Hide,
    /// Removes the filter that was added last.
    RemoveFilter,
    /// Searches.
    Search,
    /// Goes to the next match.
    NextMatch,
    /// Goes to the previous match.
    PreviousMatch,
    /// Goes back in the history.
    Back,
    /// Goes forward in the history.
    Forward,
    /// Copies the selected name.
    Copy,
    /// Writes the view to a file.
    Write,
    /// Shows the next window of a recording that goes on.
    NextWindow,
    /// Stops the views of a recording that goes on, or continues.
    Pause,
    /// Shows the keys.
    Help,
    /// Draws the screen again.
    Redraw,
    /// Stops the program, as the shell's ^Z.
    Suspend,
    /// Cancels what is being done, or zooms out.
    Cancel,
    /// Ends.
    Quit,
}

/// A key in the help, and its action.
pub struct Binding {
    /// The keys, as text.
    pub keys: &'static str,
    /// Their action.
    pub action: &'static str,
}

const fn binding(keys: &'static str, action: &'static str) -> Binding {
    Binding { keys, action }
}

/// The help of all profiles.
const HELP: &[Binding] = &[
    binding("j k, arrows", "move; PgUp PgDn, space b: by pages; g G: to the ends"),
    binding("Enter, l Right", "expand the row, or zoom into the box"),
    binding("h Left", "collapse the row"),
    binding("e c", "expand all below the row, collapse all"),
    binding("1 or f", "functions"),
    binding("2 or t", "call tree"),
    binding("3 or r", "callers of functions"),
    binding("4 or F", "flame graph"),
    binding("5 to 8", "lines, binaries, processes, threads"),
    binding("C Q i", "coverage, quality, header"),
    binding("s", "sort by the next column"),
    binding("T", "next sample type"),
    binding("+ - x", "filter by the selected function: focus, ignore, hide"),
    binding("u", "remove the last filter"),
    binding("/ n N", "search, next match, previous match"),
    binding("Backspace, < >", "back and forward in the history"),
    binding("y", "copy the name to the clipboard of the terminal"),
    binding("w", "write the view to a file: .txt, .svg or .pb.gz"),
    binding("Esc", "cancel; in a flame graph: zoom out"),
    binding("? q", "this help, quit"),
];

/// Keys of a recording that goes on.
const LIVE_HELP: &[Binding] = &[
    binding("p", "pause the views, or go on; the recording goes on"),
    binding("W", "next window: last second, last 10 s, all with a half-life of 30 s"),
];

/// The help of a file, or of a recording that goes on.
pub fn help(is_live: bool) -> impl Iterator<Item = &'static Binding> + Clone {
    let live = if is_live { LIVE_HELP } else { &[] };
    live.iter().chain(HELP)
}

/// The action of a key.
pub fn action(key: KeyEvent) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return Some(match key.code {
            KeyCode::Char('c') => Action::Quit,
            KeyCode::Char('z') => Action::Suspend,
            KeyCode::Char('l') => Action::Redraw,
            KeyCode::Char('f') => Action::Go(Move::Pages(1)),
            KeyCode::Char('b') => Action::Go(Move::Pages(-1)),
            KeyCode::Char('n') => Action::Go(Move::Rows(1)),
            KeyCode::Char('p') => Action::Go(Move::Rows(-1)),
            _ => return None,
        });
    }
    Some(match key.code {
        KeyCode::Up | KeyCode::Char('k') => Action::Go(Move::Rows(-1)),
        KeyCode::Down | KeyCode::Char('j') => Action::Go(Move::Rows(1)),
        KeyCode::PageUp | KeyCode::Char('b') => Action::Go(Move::Pages(-1)),
        KeyCode::PageDown | KeyCode::Char(' ') => Action::Go(Move::Pages(1)),
        KeyCode::Home | KeyCode::Char('g') => Action::Go(Move::First),
        KeyCode::End | KeyCode::Char('G') => Action::Go(Move::Last),
        KeyCode::Left | KeyCode::Char('h') => Action::Left,
        KeyCode::Right | KeyCode::Char('l') => Action::Right,
        KeyCode::Enter => Action::Open,
        KeyCode::Char('e') => Action::ExpandAll,
        KeyCode::Char('c') => Action::CollapseAll,
        KeyCode::Char('1' | 'f') => Action::Functions,
        KeyCode::Char('2' | 't') => Action::CallTree,
        KeyCode::Char('3' | 'r') => Action::Callers,
        KeyCode::Char('4' | 'F') => Action::Flame,
        KeyCode::Char('5') => Action::Lines,
        KeyCode::Char('6') => Action::Binaries,
        KeyCode::Char('7') => Action::Processes,
        KeyCode::Char('8') => Action::Threads,
        KeyCode::Char('C') => Action::Coverage,
        KeyCode::Char('Q') => Action::Quality,
        KeyCode::Char('i') => Action::Header,
        KeyCode::Char('s') => Action::Sort,
        KeyCode::Char('T') => Action::NextType,
        KeyCode::Char('+') => Action::Focus,
        KeyCode::Char('-') => Action::Ignore,
        KeyCode::Char('x') => Action::Hide,
        KeyCode::Char('u') => Action::RemoveFilter,
        KeyCode::Char('/') => Action::Search,
        KeyCode::Char('n') => Action::NextMatch,
        KeyCode::Char('N') => Action::PreviousMatch,
        KeyCode::Backspace | KeyCode::Char('<') => Action::Back,
        KeyCode::Char('>') => Action::Forward,
        KeyCode::Char('y') => Action::Copy,
        KeyCode::Char('w') => Action::Write,
        KeyCode::Char('p') => Action::Pause,
        KeyCode::Char('W') => Action::NextWindow,
        KeyCode::Char('?') | KeyCode::F(1) => Action::Help,
        KeyCode::Esc => Action::Cancel,
        KeyCode::Char('q') => Action::Quit,
        _ => return None,
    })
}
