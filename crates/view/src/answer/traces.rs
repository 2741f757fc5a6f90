//! Stacks one by one.

use serde::Serialize;

use super::table::LabelAnswer;
use super::{FrameAnswer, Head, List};
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
    /// Its labels; there may be several with one key.
    pub labels: Vec<TraceLabelAnswer<'a>>,
    /// The times among which its value is divided, in microseconds since the begin of the
    /// recording; `None` if they are not known.
    pub times_micros: Option<Vec<u64>>,
    /// Its frames, innermost first.
    pub frames: Vec<FrameAnswer<'a>>,
}

/// A label of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TraceLabelAnswer<'a> {
    /// Its key.
    pub key: &'a str,
    /// Its value.
    pub value: LabelAnswer<'a>,
}

impl<'a> TracesAnswer<'a> {
    /// Stacks of a view, whose profile begins `start` microseconds after the recording.
    pub fn new(view: &'a View<'a>, traces: &'a Traces, start: u64) -> TracesAnswer<'a> {
        let trace = move |trace: &Trace| {
            let labels = trace.labels(view).iter().map(|label| TraceLabelAnswer {
                key: view.profile.str(label.key),
                value: LabelAnswer::new(view.profile, label.value),
            });
            let times = trace.times(view).iter().map(|&time| time.saturating_add(start));
            TraceAnswer {
                value: view.shown(trace.value),
                labels: labels.collect(),
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
