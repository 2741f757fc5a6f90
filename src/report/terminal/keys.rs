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
    /// Opens the menu of the selected row.
    Menu,
    /// Opens the menu of what the rows of a table can be.
    RowsMenu,
    /// Goes to a view.
    View(ViewKey),
    /// Sorts by the next column, and after the last one by the first.
    Sort,
    /// Sorts by the column to the left.
    SortLeft,
    /// Sorts by the column to the right.
    SortRight,
    /// Reverses the order.
    Reverse,
    /// Switches between self values and totals in a difference.
    Totals,
    /// Shows calls of a function by itself as one frame, or each of them.
    CollapseRecursion,
    /// Shows all leaf frames, or leaves out those of the sample type.
    AllFrames,
    /// Shows an interpreter's own frames, or leaves them out.
    InterpreterFrames,
    /// Shows percentages of what passes the filters, or of the whole profile.
    Percentages,
    /// Shows the next sample type.
    NextType,
    /// Keeps only samples with what is selected.
    Focus,
    /// Leaves out samples with what is selected.
    Ignore,
    /// Leaves out the frames of what is selected.
    Hide,
    /// Keeps only samples in the binary of what is selected.
    ZoomBinary,
    /// Removes the filter that was added last.
    RemoveFilter,
    /// Opens the menu of filters to remove.
    FiltersMenu,
    /// Reads a filter.
    TypeFilter,
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
    /// Goes to the next line or instruction in the order of self values.
    NextHot,
    /// Goes to the previous one.
    PreviousHot,
    /// Copies the selected name.
    Copy,
    /// Shows the command line of the page.
    ShowCommand,
    /// Writes the view to a file.
    Write,
    /// Shows the next window of a recording that goes on.
    NextWindow,
    /// Stops the views of a recording that goes on, or continues.
    Pause,
    /// Records other events or another profile type.
    Record,
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

/// A view that has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewKey {
    /// The table of functions.
    Functions,
    /// The call tree.
    CallTree,
    /// The tree of callers.
    Callers,
    /// The flame graph.
    Flame,
    /// The callers and callees of the selected function.
    Sandwich,
    /// The source of the selected function; there, its instructions.
    Source,
    /// The table of source lines.
    Lines,
    /// The table of source files.
    Files,
    /// The table of binaries.
    Binaries,
    /// The table of processes.
    Processes,
    /// The table of threads.
    Threads,
    /// Threads by state, or the stacks of a snapshot.
    States,
    /// The difference to another profile.
    Difference,
    /// The names and lines of each binary.
    Coverage,
    /// Confidence intervals.
    Quality,
    /// The metadata of the file.
    Header,
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
    binding("j k, arrows", "move; PgUp PgDn, Space b, ^U ^D: by pages; g G: to the ends"),
    binding("Enter", "expand the row, zoom in, follow the jump; in tables, the menu"),
    binding("m", "menu: what can be done with the selected row"),
    binding("l Right, h Left", "expand and collapse the row, or move the text"),
    binding("e c", "expand all below the row, collapse all"),
    binding("1 or f", "functions, with the labels that matter to the sample type"),
    binding("2 or t, 3 or r", "call tree; callers of functions"),
    binding("4 or F", "flame graph"),
    binding("5 to 9, L", "lines, binaries, processes, threads, files; rows by any label"),
    binding("a", "source of the selected function; there, assembly"),
    binding("Tab, Shift-Tab", "in source: next hottest line, and back (also H)"),
    binding("S", "sandwich: its callers and its callees"),
    binding("X", "threads by state, or the stacks of a snapshot"),
    binding("D o F", "difference (prof diff); its totals; its flame graph"),
    binding("C Q i", "coverage, quality, header"),
    binding("s, < >", "sort by the next column, the one to the left or right"),
    binding("R", "reverse the order; turn a flame graph upside down"),
    binding("z", "collapse recursion"),
    binding("A I", "all leaf frames; the interpreter's own: show, or leave out"),
    binding("T %", "next sample type; percentages of what passes filters, or all"),
    binding("+ - x d", "filter by the selected row: focus, ignore, hide, binary"),
    binding("&", "type a filter: CONDITION=VALUE; Tab: next condition"),
    binding("u U", "remove the last filter, choose one to remove"),
    binding("/ n N", "search, next match, previous match"),
    binding("Backspace, [ ]", "back and forward in the history (also Alt-arrows)"),
    binding("y Y w", "copy the name, show the page's command, write it to a file"),
    binding("Esc ? q", "cancel or zoom out, this help, quit"),
];

/// Keys of a recording that goes on.
const LIVE_HELP: &[Binding] = &[
    binding("p", "pause the views, or go on; the recording goes on"),
    binding("E", "record other data: wall, lock, -e page-faults, -T wall -F 999"),
    binding("W", "next window: last second, 10 s, all with a half-life of 30 s"),
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
            KeyCode::Char('d') => Action::Go(Move::HalfPages(1)),
            KeyCode::Char('u') => Action::Go(Move::HalfPages(-1)),
            KeyCode::Char('e') => Action::Go(Move::Rows(1)),
            KeyCode::Char('y') => Action::Go(Move::Rows(-1)),
            _ => return None,
        });
    }
    if key.modifiers.contains(KeyModifiers::ALT) {
        return match key.code {
            KeyCode::Left => Some(Action::Back),
            KeyCode::Right => Some(Action::Forward),
            _ => None,
        };
    }
    if let KeyCode::Char(c) = key.code
        && let Some(view) = view(c)
    {
        return Some(Action::View(view));
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
        KeyCode::Char('m') => Action::Menu,
        KeyCode::Char('L') => Action::RowsMenu,
        KeyCode::Char('s') => Action::Sort,
        KeyCode::Char('<') => Action::SortLeft,
        KeyCode::Char('>') => Action::SortRight,
        KeyCode::Char('R') => Action::Reverse,
        KeyCode::Char('o') => Action::Totals,
        KeyCode::Char('z') => Action::CollapseRecursion,
        KeyCode::Char('A') => Action::AllFrames,
        KeyCode::Char('I') => Action::InterpreterFrames,
        KeyCode::Char('T') => Action::NextType,
        KeyCode::Char('%') => Action::Percentages,
        KeyCode::Char('+') => Action::Focus,
        KeyCode::Char('-') => Action::Ignore,
        KeyCode::Char('x') => Action::Hide,
        KeyCode::Char('d') => Action::ZoomBinary,
        KeyCode::Char('u') => Action::RemoveFilter,
        KeyCode::Char('U') => Action::FiltersMenu,
        KeyCode::Char('&') => Action::TypeFilter,
        KeyCode::Char('/') => Action::Search,
        KeyCode::Char('n') => Action::NextMatch,
        KeyCode::Char('N') => Action::PreviousMatch,
        KeyCode::Backspace | KeyCode::Char('[') => Action::Back,
        KeyCode::Char(']') => Action::Forward,
        KeyCode::Tab | KeyCode::Char('H') => Action::NextHot,
        KeyCode::BackTab => Action::PreviousHot,
        KeyCode::Char('y') => Action::Copy,
        KeyCode::Char('Y') => Action::ShowCommand,
        KeyCode::Char('w') => Action::Write,
        KeyCode::Char('p') => Action::Pause,
        KeyCode::Char('W') => Action::NextWindow,
        KeyCode::Char('E') => Action::Record,
        KeyCode::Char('?') | KeyCode::F(1) => Action::Help,
        KeyCode::Esc => Action::Cancel,
        KeyCode::Char('q') => Action::Quit,
        _ => return None,
    })
}

/// The view of a key.
fn view(key: char) -> Option<ViewKey> {
    Some(match key {
        '1' | 'f' => ViewKey::Functions,
        '2' | 't' => ViewKey::CallTree,
        '3' | 'r' => ViewKey::Callers,
        '4' | 'F' => ViewKey::Flame,
        '5' => ViewKey::Lines,
        '6' => ViewKey::Binaries,
        '7' => ViewKey::Processes,
        '8' => ViewKey::Threads,
        '9' => ViewKey::Files,
        'a' => ViewKey::Source,
        'S' => ViewKey::Sandwich,
        'X' => ViewKey::States,
        'D' => ViewKey::Difference,
        'C' => ViewKey::Coverage,
        'Q' => ViewKey::Quality,
        'i' => ViewKey::Header,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The title and the keys of the help take two lines.
    #[test]
    fn the_help_fits_a_screen() {
        for is_live in [false, true] {
            assert!(help(is_live).count() + 2 <= 32);
            let widest = help(is_live).map(|line| line.action.chars().count()).max().unwrap();
            assert!(widest <= 80 - 18, "{widest}");
        }
    }
}
