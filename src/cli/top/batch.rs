//! `prof top --batch`: a table for each interval.

use std::collections::VecDeque;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::Args;
use super::keeper::Keeper;
use super::recorder::{Message, Recorder};
use crate::cli::filter::answered;
use crate::cli::record;
use crate::cli::sort::{Grouping, check_labels};
use crate::cli::time::TimeArgs;
use crate::report::answer::{self, OutputFormat};
use crate::report::summary;
use crate::sampler::Recording;
use profile::{LiveWindow, Profile};
use symbols::SymbolOptions;
use sys::printed;
use view::Cancel;
use view::query::{Query, Rows, Shown, Table};

/// Longest wait for names before a table is printed without them: for the first, and for others.
const FIRST_WAIT: Duration = Duration::from_secs(20);
const WAIT: Duration = Duration::from_secs(1);

/// Messages, of which names can be taken before the others.
struct Inbox {
    messages: Receiver<Message>,
    waiting: VecDeque<Message>,
}

impl Inbox {
    fn next(&mut self) -> Option<Message> {
        self.waiting.pop_front().or_else(|| self.messages.recv().ok())
    }

    /// Waits for the names that are looked up.
    fn wait_for_names(&mut self, keeper: &mut Keeper, most: Duration) {
        let end = Instant::now() + most;
        while keeper.is_naming() {
            let left = end.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(Message::Named(_, request)) => keeper.named(&request),
                Ok(other) => self.waiting.push_back(other),
                Err(_) => return,
            }
        }
    }
}

/// Prints tables until the recording ends.
pub fn run(
    args: &Args,
    recorder: Recorder,
    names: SymbolOptions,
    grouping: &Grouping,
) -> anyhow::Result<ExitCode> {
    let Recorder { messages, sender, running, .. } = recorder;
    let mut keeper = Keeper::new(names, sender, &running)?;
    let flags = running.flags;
    let mut inbox = Inbox { messages, waiting: VecDeque::new() };
    let mut tables = 0;
    let mut ended: Option<Recording> = None;
    while let Some(message) = inbox.next() {
        match message {
            Message::Part(_, part) => {
                let is_enough = args.iterations.is_some_and(|most| tables >= most);
                // The rest after the last whole interval.
                let is_rest = part.lasted * 2 < args.interval && tables > 0;
                keeper.add(*part);
                if is_enough || (is_rest && keeper.last.samples == 0) {
                    continue;
                }
                let wait = if tables == 0 { FIRST_WAIT } else { WAIT };
                inbox.wait_for_names(&mut keeper, wait);
                let printed = print(args, grouping, &mut keeper, tables == 0);
                if printed.is_err() {
                    flags.end();
                }
                printed?;
                tables += 1;
                flags.set_ready();
                if args.iterations == Some(tables) {
                    flags.end();
                }
            }
            Message::Named(_, request) => keeper.named(&request),
            Message::Ended(_, recorded) => {
                ended = Some((*recorded)?);
                break;
            }
            Message::Started(..) | Message::Note(_) | Message::Control(_) | Message::Quit => {}
        }
    }
    let Some(Recording { exit, running, .. }) = ended else { return Ok(ExitCode::SUCCESS) };
    Ok(record::exit_code(exit, running))
}

/// Prints the table of the window.
fn print(
    args: &Args,
    grouping: &Grouping,
    keeper: &mut Keeper,
    is_first: bool,
) -> anyhow::Result<()> {
    let mut profile = keeper.profile(args.window(LiveWindow::Last));
    args.filter.restyled(&mut profile);
    let type_index = args.filter.type_index(&profile)?;
    args.values.check(&profile, type_index)?;
    let format = if args.json { OutputFormat::Json } else { OutputFormat::WHOLE_TEXT };
    let rows = if args.has_usual_rows() {
        Rows::usual(&profile, type_index)
    } else {
        Rows::from(grouping.groups.clone())
    };
    let shown = Shown::Table(Table::new(rows, grouping.order.into()));
    let mut limits = format.limits(&shown);
    limits.rows = args.nodecount.unwrap_or(limits.rows);
    let value_options = args.values.options();
    let query = Query { type_index, limits, value_options, ..args.filter.query(shown) };
    let part = args.filter.part(Arc::new(profile), &query)?;
    if is_first {
        check_labels(&part.profile, &grouping.must_exist)?;
    }
    let mut out = printed::stdout();
    if !args.json {
        if !is_first {
            writeln!(out)?;
        }
        writeln!(out, "{}", header(keeper, &part.profile))?;
    }
    if !args.json && !part.has_values(type_index) {
        let view = query.view(&part.profile, &Cancel::default());
        writeln!(out, "{}", crate::cli::report::nothing_to_show(&view, &TimeArgs::default()))?;
    } else {
        let answer = answered(part, &query)?;
        if let Some(line) = summary::idle_line(&answer.view()).filter(|_| !args.json) {
            writeln!(out, "{line}")?;
        }
        answer::write(&mut out, &answer, &query, format, None)?;
    }
    out.flush()?;
    Ok(())
}

/// The line above a table.
fn header(keeper: &Keeper, profile: &Profile) -> String {
    let samples = keeper.last.samples;
    let window = profile.duration_nanos as f64 / 1e9;
    format!(
        "{:.1} s: {samples} sample{} and {} lost since the last table; shown: {window:.1} s; \
         prof: {:.2}% of a core",
        keeper.elapsed.as_secs_f64(),
        if samples == 1 { "" } else { "s" },
        keeper.last.lost,
        keeper.cost.percent(),
    )
}
