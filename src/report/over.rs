//! Values over time, as text and JSON.

use std::io::{self, Write};

use serde_json::{Map, Value};

use super::json;
use super::text::{self, Align, TableOptions, TextColumn};
use super::units;
use view::{Name, Over, OverRow, TimePoint, TimeRange, View};

/// Most intervals of a table of text.
pub const MOST_IN_TEXT: usize = 60;
/// Most intervals in JSON.
pub const MOST_IN_JSON: usize = 3600;
/// Rows of a table of text without `-n`.
pub const DEFAULT_ROWS: usize = 15;

/// The request for a table of values over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverRequest {
    /// The interval in microseconds.
    pub interval: u64,
    /// Start of the profile, in microseconds since that of the recording.
    pub from: u64,
    /// Totals instead of self values.
    pub totals: bool,
}

/// Reads an interval as microseconds: `100ms`, `1s`.
pub fn parse_interval(text: &str) -> Option<u64> {
    // The end of a range has the same form.
    match TimeRange::parse(&format!("..{text}")).ok()?.until {
        TimePoint::Micros(micros) if !text.trim().is_empty() => Some(micros).filter(|&n| n > 0),
        _ => None,
    }
}

/// A moment in microseconds as `1.5s`.
fn moment(micros: u64) -> String {
    match micros {
        _ if micros.is_multiple_of(1_000_000) => format!("{}s", micros / 1_000_000),
        _ if micros.is_multiple_of(1000) && micros < 1_000_000 => format!("{}ms", micros / 1000),
        _ if micros < 1000 => format!("{micros}us"),
        _ => {
            let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
            format!("{}s", text.trim_end_matches('0'))
        }
    }
}

/// Writes a table of text, with a column for each interval.
pub fn write_text(
    out: &mut dyn Write,
    view: &View,
    over: &Over,
    request: OverRequest,
    options: &TableOptions,
) -> io::Result<()> {
    let value = |v: i64| match v {
        0 => "-".to_owned(),
        v => units::format(v, view.unit()),
    };
    let kind = if request.totals { "totals" } else { "self values" };
    let shown = over.rows.len();
    let of = if shown < over.row_count { format!(" of {}", over.row_count) } else { String::new() };
    let interval = moment(over.interval);
    write!(out, "Showing {shown}{of} rows: {kind} in intervals of {interval}")?;
    if over.interval != request.interval {
        let requested = moment(request.interval);
        write!(out, ", because those of {requested} would be more than {MOST_IN_TEXT}")?;
    }
    writeln!(out)?;
    if over.without_time != 0 {
        let without = units::format(over.without_time, view.unit());
        writeln!(out, "Without a time, and in no interval: {without}")?;
    }
    writeln!(out)?;
    let of_row = |row: &OverRow| if request.totals { row.total } else { row.self_value };
    let name = if request.totals { "total" } else { "self" };
    let all = std::iter::once(value(view.kept_total));
    let values = over.rows.iter().map(|row| value(of_row(row)));
    let mut columns = vec![TextColumn::new(name, Align::Right, all.chain(values))];
    for (i, &sum) in over.sums.iter().enumerate() {
        let cell =
            |row: &OverRow| value(if request.totals { row.totals[i] } else { row.self_values[i] });
        let cells = std::iter::once(value(sum)).chain(over.rows.iter().map(cell));
        let start = request.from.saturating_add(over.interval.saturating_mul(i as u64));
        columns.push(TextColumn::new(&moment(start), Align::Right, cells));
    }
    for (i, key) in options.labels.iter().enumerate() {
        let cell = |row: &OverRow| text::label_cell(view, over.groups[row.group as usize][i]);
        let cells = std::iter::once("[all]".to_owned()).chain(over.rows.iter().map(cell));
        columns.push(TextColumn::new(key, Align::Left, cells));
    }
    let granularity = options.granularity;
    if granularity.function || granularity.binary {
        let cell = |row: &OverRow| {
            let frame = view.frames.get(row.frame);
            let name = text::clean(&frame.display(view.profile));
            match frame.place(view.profile) {
                place if granularity.line && !place.is_empty() => {
                    format!("{name} {}", text::clean(&place))
                }
                _ if !granularity.function && frame.name == Name::Any => {
                    text::clean(frame.binary_name(view.profile))
                }
                _ => name,
            }
        };
        let title = if granularity.function { "function" } else { "binary" };
        let cells = std::iter::once("[all]".to_owned()).chain(over.rows.iter().map(cell));
        columns.push(TextColumn::new(title, Align::Left, cells));
    }
    text::write_columns(out, &columns)
}

/// Writes the table as JSON.
pub fn write_json(
    out: &mut dyn Write,
    view: &View,
    over: &Over,
    request: OverRequest,
    options: &TableOptions,
) -> io::Result<()> {
    let mut head = json::head(view);
    head.insert("interval_micros".into(), over.interval.into());
    head.insert("from_micros".into(), request.from.into());
    head.insert("sums".into(), over.sums.clone().into());
    head.insert("without_time".into(), over.without_time.into());
    head.insert("row_count".into(), over.row_count.into());
    let rows = over.rows.iter().map(|row| {
        let mut object = json::frame(view, view.frames.get(row.frame), options.granularity);
        object.insert("self".into(), row.self_value.into());
        object.insert("total".into(), row.total.into());
        object.insert("self_over".into(), row.self_values.clone().into());
        object.insert("total_over".into(), row.totals.clone().into());
        if !options.labels.is_empty() {
            let values = over.groups[row.group as usize].iter();
            let values = values.map(|v| v.map_or(Value::Null, |v| json::label(view.profile, v)));
            let labels: Map<_, _> = options.labels.iter().cloned().zip(values).collect();
            object.insert("labels".into(), labels.into());
        }
        object
    });
    json::write_list(out, head, "rows", rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use view::testing::{odd_names, phases};
    use view::{Granularity, OverOptions, TopOptions};

    fn written(p: &profile::Profile, interval: u64, totals: bool, as_json: bool) -> String {
        let view = View::new(p, 1 % p.sample_types.len(), Granularity::FUNCTION);
        let top = TopOptions { limit: 3, ..TopOptions::default() };
        let over = Over::new(&view, &OverOptions { interval, most: MOST_IN_TEXT, top });
        let request = OverRequest { interval, from: 500_000, totals };
        let options = TableOptions {
            granularity: Granularity::FUNCTION,
            children: true,
            labels: Vec::new(),
            ratio: None,
        };
        let mut out = Vec::new();
        let write = if as_json { write_json } else { write_text };
        write(&mut out, &view, &over, request, &options).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_column_is_an_interval() {
        let expected = "\
Showing 3 rows: self values in intervals of 1s
Without a time, and in no interval: 100.0 ms

  self    500ms   1.5s     2.5s  function
3.10 s   1.00 s  1.00 s  1.00 s  [all]
";
        let text = written(&phases(), 1_000_000, false, false);
        let squeezed = |text: &str| {
            let words = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "));
            words.collect::<Vec<_>>()
        };
        assert_eq!(squeezed(&text)[..5], squeezed(expected)[..]);
        assert!(squeezed(&text).contains(&"2.00 s 1.00 s - 1.00 s f".to_owned()), "{text}");
        let text = written(&phases(), 1000, true, false);
        assert!(text.contains("intervals of 50ms, because those of 1ms would be more"), "{text}");
    }

    #[test]
    fn json_is_complete() {
        let value: Value =
            serde_json::from_str(&written(&phases(), 1_000_000, false, true)).unwrap();
        assert_eq!(value["sums"], serde_json::json!([1e9 as i64, 1e9 as i64, 1e9 as i64]));
        assert_eq!(
            (&value["interval_micros"], &value["from_micros"]),
            (&1_000_000.into(), &500_000.into())
        );
        assert_eq!(value["rows"][1]["function"], "g");
        assert_eq!(value["rows"][1]["self_over"], serde_json::json!([0, 1e9 as i64, 0]));
        assert_eq!(value["rows"][2]["total_over"][0], 1_000_000_000);
    }

    #[test]
    fn odd_names_stay_in_their_line() {
        let mut p = odd_names();
        let times = p.times.push([1, 2].into_iter());
        p.samples[0].times = times;
        assert_eq!(written(&p, 1, false, false).lines().count(), 8);
    }

    #[test]
    fn moments_and_intervals() {
        let moments = [0, 7, 1500, 20_000, 1_000_000, 1_500_000, 61_000_001].map(moment);
        assert_eq!(moments, ["0s", "7us", "0.0015s", "20ms", "1s", "1.5s", "61.000001s"]);
        let parsed = ["1s", "100ms", "5m", "2", "0s", "", "x", "10%"].map(parse_interval);
        let expected = [Some(1_000_000), Some(100_000), Some(300_000_000), Some(2_000_000)];
        assert_eq!(parsed[..4], expected);
        assert_eq!(parsed[4..], [None; 4]);
    }
}
