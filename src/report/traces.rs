//! Stacks one by one as text, in the layout of pprof's `traces`.

use std::io::{self, Write};

use super::text::clean;
use super::units;
use super::values::{ValueCells, ValueColumns};
use view::{TimePoint, Trace, Traces, View, label_text};

/// Times of a stack that are written.
const TIMES: usize = 8;

/// Writes a block for each stack: labels, times, and frames from the innermost; `start`: begin of the
/// profile, in microseconds since that of the recording.
pub fn write_text(out: &mut dyn Write, view: &View, traces: &Traces, start: u64) -> io::Result<()> {
    let number = |number: usize| units::thousands(number as i64);
    let s = if traces.count == 1 { "" } else { "s" };
    let shown = traces.traces.len();
    match traces.count - shown {
        0 => writeln!(out, "Showing {} stack{s}", number(shown))?,
        left => writeln!(
            out,
            "Showing {} of {} stack{s} ({} left out, -n 0 shows all)",
            number(shown),
            number(traces.count),
            number(left)
        )?,
    }
    let columns = ValueColumns::for_values(view, traces.traces.iter().map(|trace| trace.value));
    let title = columns.titles("value");
    writeln!(out, "\n{title}  stack")?;
    let block = Block { view, start, columns, width: title.len() };
    traces.traces.iter().try_for_each(|trace| block.write(out, *trace))
}

/// Writes the block of a stack.
struct Block<'a> {
    view: &'a View<'a>,
    start: u64,
    columns: ValueColumns,
    /// Of the columns of values.
    width: usize,
}

impl Block<'_> {
    fn write(&self, out: &mut dyn Write, trace: Trace) -> io::Result<()> {
        let Block { view, width, .. } = *self;
        writeln!(out, "{}", "-".repeat(width + 10))?;
        for label in trace.labels(view) {
            let value = clean(&label_text(view.profile, label.value));
            writeln!(out, "{:>width$}  {value}", clean(view.profile.str(label.key)) + ":")?;
        }
        if let Some(times) = self.times(trace) {
            writeln!(out, "{:>width$}  {times}", "time:")?;
        }
        let values = self.columns.pad(&ValueCells::new(view, trace.value));
        for (number, frame) in trace.frames(view).enumerate() {
            let frame = view.frames.get(frame);
            let values = if number == 0 { values.as_str() } else { "" };
            let mut name = clean(&frame.display(view.profile));
            let place = frame.place(view.profile);
            if frame.line != 0 && !place.is_empty() {
                name = format!("{name} {}", clean(&place));
            }
            let inlined = if frame.inlined { " (inlined)" } else { "" };
            writeln!(out, "{values:>width$}  {name}{inlined}")?;
        }
        Ok(())
    }

    /// The first times of a stack, if they are known.
    fn times(&self, trace: Trace) -> Option<String> {
        let times = trace.times(self.view);
        let text = |&time: &u64| TimePoint::Micros(time.saturating_add(self.start)).to_string();
        let mut texts: Vec<String> = times.iter().take(TIMES).map(text).collect();
        if times.len() > TIMES {
            texts.push(format!("… and {} more", units::thousands((times.len() - TIMES) as i64)));
        }
        (!texts.is_empty()).then(|| texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use view::Granularity;
    use view::testing::{answers, odd_names, phases};

    fn written(p: &profile::Profile, limit: usize) -> String {
        let granularity = Granularity { inlined: true, ..Granularity::FUNCTION };
        let view = View::new(p, 1 % p.sample_types.len(), granularity);
        let mut out = Vec::new();
        write_text(&mut out, &view, &Traces::new(&view, limit), 500_000).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_block_is_a_stack() {
        let expected = "\
Showing 1 of 5 stacks (4 left out, -n 0 shows all)

     value   value%  stack
-----------------------------
    2.50 s   27.78%  bar
                     foo1
                     main
";
        assert_eq!(written(&answers(), 1), expected);
    }

    #[test]
    fn times_are_those_of_the_recording() {
        let text = written(&phases(), 0);
        assert!(text.lines().any(|line| line.trim_start().starts_with("time:  ")), "{text}");
    }

    #[test]
    fn odd_names_stay_in_their_line() {
        let frames = |p: &profile::Profile| {
            let text = written(p, 0);
            text.lines().skip(3).filter(|line| !line.starts_with('-')).count()
        };
        let p = odd_names();
        let view = View::new(&p, 0, Granularity::FUNCTION);
        let traces = Traces::new(&view, 0).traces;
        let lines: usize = traces
            .iter()
            .map(|trace| trace.frames(&view).count() + trace.labels(&view).len())
            .sum();
        assert_eq!(frames(&p), lines);
    }
}
