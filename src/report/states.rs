//! Threads by state as text.

use std::io::{self, Write};

use super::text::{Align, TextColumn, clean, write_columns};
use super::{units, values};
use profile::ThreadState;
use view::{ListedThread, ThreadRow, ThreadStates, View};

/// The name of a thread: of its process, with PID, and its own, with TID.
pub fn thread_name(thread: &ListedThread) -> String {
    let process = match (&*thread.process, thread.pid) {
        ("", 0) => "[no process]".to_owned(),
        (name, 0) => name.to_owned(),
        (name, pid) => format!("{name} {pid}"),
    };
    match (&*thread.name, thread.tid) {
        ("", 0) => process,
        (name, tid) => format!("{process}, {name} {tid}"),
    }
}

/// The titles of the columns of states. The last is that of other states, or of all samples if none
/// has a state.
pub fn titles(has_states: bool) -> Vec<&'static str> {
    let other = if has_states { "other" } else { "no state" };
    ThreadState::ALL.map(ThreadState::name).into_iter().chain([other]).collect()
}

/// The share of a value in the whole.
pub fn share(percent: f64, value: i64) -> String {
    if value == 0 { ".".to_owned() } else { format!("{percent:.2}%") }
}

/// Writes threads; `all` is their number before rows were left out.
pub fn write_text(
    out: &mut dyn Write,
    view: &View,
    threads: &ThreadStates,
    all: usize,
) -> io::Result<()> {
    let rows = || threads.rows.iter();
    let number = |number: usize| units::thousands(number as i64);
    let s = if all == 1 { "" } else { "s" };
    match all - threads.rows.len() {
        0 => writeln!(out, "Showing {} thread{s}", number(all))?,
        left => writeln!(
            out,
            "Showing {} of {} thread{s} ({} left out, -n 0 shows all)",
            number(threads.rows.len()),
            number(all),
            number(left)
        )?,
    }
    writeln!(out)?;
    let total = |row: &ThreadRow| values::text(view, row.total);
    let percent = |row: &ThreadRow| format!("{:.2}%", view.percent(row.total));
    let mut columns = vec![
        TextColumn::new("total", Align::Right, rows().map(total)),
        TextColumn::new("total%", Align::Right, rows().map(percent)),
    ];
    for (state, title) in titles(threads.has_states).into_iter().enumerate() {
        if rows().any(|row| row.by_state[state] != 0) {
            let cell = |row: &ThreadRow| {
                let value = row.by_state[state];
                share(view.percent(value), value)
            };
            columns.push(TextColumn::new(title, Align::Right, rows().map(cell)));
        }
    }
    let name = |row: &ThreadRow| clean(&thread_name(&row.thread));
    columns.push(TextColumn::new("thread", Align::Left, rows().map(name)));
    write_columns(out, &columns)
}
