//! Threads: their values by state, and their stacks.

use serde::Serialize;

use super::head::by_state;
use super::{FrameAnswer, Head, List, Members, known, known_text};
use crate::{ListedThread, StatesModel, ThreadGroup, ThreadRow, Threads, View};

/// Threads with their values by state.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatesAnswer<'a> {
    /// The members of all answers.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// Number of threads before limits.
    pub row_count: usize,
    /// True if samples have states; if not, all values are those of `other`.
    pub has_states: bool,
    /// The threads.
    pub rows: List<'a, StatesRow<'a>>,
}

/// The values of a thread by state.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatesRow<'a> {
    /// The thread.
    #[serde(flatten)]
    pub thread: ThreadAnswer<'a>,
    /// Value of its samples.
    pub total: i64,
    /// The values that are not 0, by state.
    pub states: Members<i64>,
}

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadAnswer<'a> {
    /// Name of its process.
    pub process: Option<&'a str>,
    /// PID of its process.
    pub pid: Option<i64>,
    /// Its name.
    pub thread: Option<&'a str>,
    /// Its TID.
    pub tid: Option<i64>,
}

impl<'a> From<&'a ListedThread> for ThreadAnswer<'a> {
    fn from(listed: &'a ListedThread) -> ThreadAnswer<'a> {
        ThreadAnswer {
            process: known_text(&listed.process),
            pid: known(listed.pid),
            thread: known_text(&listed.name),
            tid: known(listed.tid),
        }
    }
}

impl<'a> StatesAnswer<'a> {
    /// The threads of a view.
    pub fn new(view: &'a View<'a>, model: &'a StatesModel) -> StatesAnswer<'a> {
        let StatesModel { threads, row_count } = model;
        let row = |row: &'a ThreadRow| StatesRow {
            thread: (&row.thread).into(),
            total: view.shown(row.total),
            states: by_state(view, row.by_state),
        };
        StatesAnswer {
            head: Head::new(view),
            row_count: *row_count,
            has_states: threads.has_states,
            rows: List::new(move || threads.rows.iter().map(row)),
        }
    }
}

/// Threads with their stacks.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadsAnswer<'a> {
    /// The members of all answers.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// Number of threads.
    pub thread_count: usize,
    /// The threads with equal stacks and states.
    pub groups: List<'a, GroupAnswer<'a>>,
}

/// Threads with one stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GroupAnswer<'a> {
    /// Their state.
    pub state: Option<&'a str>,
    /// The threads.
    pub threads: Vec<ThreadAnswer<'a>>,
    /// Their stack, the innermost frame first.
    pub frames: Vec<FrameAnswer<'a>>,
}

impl<'a> ThreadsAnswer<'a> {
    /// The threads of a view.
    pub fn new(view: &'a View<'a>, threads: &'a Threads) -> ThreadsAnswer<'a> {
        let group = |group: &'a ThreadGroup| GroupAnswer {
            state: known_text(&group.state),
            threads: group.threads.iter().map(ThreadAnswer::from).collect(),
            frames: group.frames.iter().map(|&frame| FrameAnswer::new(view, frame)).collect(),
        };
        ThreadsAnswer {
            head: Head::new(view),
            thread_count: threads.count(),
            groups: List::new(move || threads.groups.iter().map(group)),
        }
    }
}
