//! Stacks one by one.

use serde::Serialize;

use super::table::LabelAnswer;
use super::{FrameAnswer, Head, List, Members};
use crate::{Trace, Traces, View};

/// Stacks.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TracesAnswer<'a> {
    /// The members of all answers.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// Number of stacks before the limit.
    pub trace_count: usize,
    /// The stacks, largest value first.
    pub traces: List<'a, TraceAnswer<'a>>,
}

/// A stack with its labels.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TraceAnswer<'a> {
    /// Its value.
    pub value: i64,
    /// Its labels.
    pub labels: Members<LabelAnswer<'a>>,
    /// The times among which its value is divided, in microseconds since the begin of the
    /// recording; `None` if they are not known.
    pub times_micros: Option<Vec<u64>>,
    /// Its frames, innermost first.
    pub frames: Vec<FrameAnswer<'a>>,
}

impl<'a> TracesAnswer<'a> {
    /// Stacks of a view, whose profile begins `start` microseconds after the recording.
    pub fn new(view: &'a View<'a>, traces: &'a Traces, start: u64) -> TracesAnswer<'a> {
        let trace = move |trace: &Trace| {
            let labels = trace.labels(view).iter().map(|label| {
                let key = view.profile.str(label.key).to_owned();
                (key, LabelAnswer::new(view.profile, label.value))
            });
            let times = trace.times(view).iter().map(|&time| time.saturating_add(start));
            TraceAnswer {
                value: view.shown(trace.value),
                labels: Members(labels.collect()),
                times_micros: Some(times.collect()).filter(|times: &Vec<u64>| !times.is_empty()),
                frames: trace.frames(view).map(|frame| FrameAnswer::new(view, frame)).collect(),
            }
        };
        TracesAnswer {
            head: Head::new(view),
            trace_count: traces.count,
            traces: List::new(move || traces.traces.iter().map(trace)),
        }
    }
}
