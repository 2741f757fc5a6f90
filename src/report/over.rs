//! Values over time as text.

use std::io::{self, Write};

use super::text::{self, Align, TableOptions, TextColumn};
use super::units;
use view::query::{Intervals, Values};
use view::{Granularity, Name, Over, OverRow, OverType, TimePoint, TimeRange, View};

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
    TimePoint::Micros(micros).to_string()
}

/// A line of the table: the sum of a sample type, or a row of it.
#[derive(Clone, Copy)]
struct Line<'a> {
    table: &'a OverType,
    row: Option<&'a OverRow>,
}

impl Line<'_> {
    fn value(self, totals: bool) -> i64 {
        match self.row {
            None => self.table.kept_total,
            Some(row) if totals => row.total,
            Some(row) => row.self_value,
        }
    }

    fn value_in(self, interval: usize, totals: bool) -> i64 {
        match self.row {
            None => self.table.over.sums[interval],
            Some(row) if totals => row.totals[interval],
            Some(row) => row.self_values[interval],
        }
    }

    fn cell(self, view: &View, value: i64) -> String {
        match value {
            0 => "-".to_owned(),
            value => units::shown(value, &self.table.unit, &view.value_options),
        }
    }
}

/// The sums of all types, then a line of each type for each row.
fn lines_of(tables: &[OverType]) -> Vec<Line<'_>> {
    let mut lines: Vec<_> = tables.iter().map(|table| Line { table, row: None }).collect();
    let rows = tables.first().map_or(0, |table| table.over.rows.len());
    for at in 0..rows {
        lines.extend(tables.iter().map(|table| Line { table, row: table.over.rows.get(at) }));
    }
    lines
}

/// Writes a table of text, with a column for each interval, and a line for each sample type; `start`:
/// that of the profile, in microseconds since that of the recording.
pub fn write_text(
    out: &mut dyn Write,
    view: &View,
    tables: &[OverType],
    intervals: Intervals,
    start: u64,
    options: &TableOptions<'_>,
) -> io::Result<()> {
    let Some(first) = tables.first() else { return Ok(()) };
    let over = &first.over;
    let totals = intervals.values == Values::Total;
    let kind = if totals { "totals" } else { "self values" };
    let shown = over.rows.len();
    let all_rows =
        if shown < over.row_count { format!(" of {}", over.row_count) } else { String::new() };
    let interval = moment(over.interval);
    write!(out, "Showing {shown}{all_rows} rows: {kind} in intervals of {interval}")?;
    if over.interval != intervals.interval {
        let most = intervals.most;
        let requested = moment(intervals.interval);
        write!(out, ", because those of {requested} would be more than {most}")?;
    }
    writeln!(out)?;
    for table in tables.iter().filter(|table| table.over.without_time != 0) {
        let without = units::shown(table.over.without_time, &table.unit, &view.value_options);
        writeln!(out, "Without a time, and in no interval: {without}")?;
    }
    writeln!(out)?;
    let lines = lines_of(tables);
    let name = if totals { "total" } else { "self" };
    let values = lines.iter().map(|line| line.cell(view, line.value(totals)));
    let mut columns = vec![TextColumn::new(name, Align::Right, values)];
    for at in 0..over.sums.len() {
        let cells = lines.iter().map(|line| line.cell(view, line.value_in(at, totals)));
        let start = start.saturating_add(over.interval.saturating_mul(at as u64));
        columns.push(TextColumn::new(&moment(start), Align::Right, cells));
    }
    if tables.len() > 1 {
        let kinds = lines.iter().map(|line| text::clean(&line.table.kind));
        columns.push(TextColumn::new("type", Align::Left, kinds));
    }
    columns.extend(name_columns(view, over, &lines, options));
    text::write_columns(out, &columns)
}

/// The columns that name a row.
fn name_columns(
    view: &View,
    over: &Over,
    lines: &[Line<'_>],
    options: &TableOptions<'_>,
) -> Vec<TextColumn> {
    let mut columns = Vec::new();
    let mut column = |title: &str, cell: &dyn Fn(&OverRow) -> String| {
        let all = || "[all]".to_owned();
        let cells = lines.iter().map(|line| line.row.map_or_else(all, cell));
        columns.push(TextColumn::new(title, Align::Left, cells));
    };
    for (i, key) in options.labels.iter().enumerate() {
        column(key, &|row| text::label_cell(view, over.groups[row.group as usize][i]));
    }
    let Granularity { function, binary, line, file, package, .. } = options.granularity;
    if function || binary || file {
        let title = match (function, package, file) {
            (true, true, _) => "package",
            (true, false, _) => "function",
            (false, _, true) => "file",
            (false, _, false) => "binary",
        };
        column(title, &|row| {
            let frame = view.frames.get(row.frame);
            let name = text::clean(&frame.display(view.profile));
            match frame.place(view.profile) {
                place if function && (line || file) && !place.is_empty() => {
                    format!("{name} {}", text::clean(&place))
                }
                _ if !function && !file && frame.name == Name::Any => {
                    text::clean(frame.binary_name(view.profile))
                }
                _ => name,
            }
        });
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::super::text::LineWidth;
    use super::*;
    use view::testing::{odd_names, phases};
    use view::{Columns, OverOptions, TopOptions};

    fn written(p: &profile::Profile, interval: u64, values: Values) -> String {
        let view = View::new(p, 1 % p.sample_types.len(), Granularity::FUNCTION);
        let top = TopOptions { limit: 3, ..TopOptions::default() };
        let options = OverOptions { interval, most: 60, top };
        let tables = Over::by_type(&view, &options, &[view.type_index]);
        let intervals = Intervals { interval, most: 60, values };
        let options = TableOptions {
            granularity: Granularity::FUNCTION,
            children: true,
            labels: &[],
            columns: &Columns::default(),
            width: LineWidth::Unlimited,
        };
        let mut out = Vec::new();
        write_text(&mut out, &view, &tables, intervals, 500_000, &options).unwrap();
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
        let text = written(&phases(), 1_000_000, Values::Own);
        let squeezed = |text: &str| {
            let words = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "));
            words.collect::<Vec<_>>()
        };
        assert_eq!(squeezed(&text)[..5], squeezed(expected)[..]);
        assert!(squeezed(&text).contains(&"2.00 s 1.00 s - 1.00 s f".to_owned()), "{text}");
        let text = written(&phases(), 1000, Values::Total);
        assert!(text.contains("intervals of 50ms, because those of 1ms would be more"), "{text}");
    }

    #[test]
    fn odd_names_stay_in_their_line() {
        let mut p = odd_names();
        let times = p.times.push([1, 2].into_iter());
        p.samples[0].times = times;
        assert_eq!(written(&p, 1, Values::Own).lines().count(), 8);
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
