//! A difference of profiles as lines of text.

use super::summary::{folded_line, interpreter_line};
use super::text::{Align, TextColumn, clean, lines_of};
use super::units;
use sys::printed::Emphasis;
use view::{ByName, Change, Diff, DiffFrame, DiffName, DiffRow, Granularity, Renamed, Scale, Side};

/// Contents of the output.
#[derive(Clone, Debug)]
pub struct DiffLayout {
    /// Files before and after, as the user named them.
    pub files: [Vec<String>; 2],
    /// Granularity of the frames, as in the views.
    pub granularity: Granularity,
    /// Keys of the labels that distinguish rows, as in the model.
    pub labels: Vec<String>,
    /// Totals next to self values.
    pub children: bool,
    /// Most rows; 0: all.
    pub rows: usize,
}

impl DiffLayout {
    /// The contents of a difference of these files without labels: all rows.
    pub fn for_frames(files: [Vec<String>; 2], granularity: Granularity) -> DiffLayout {
        DiffLayout { files, granularity, labels: Vec::new(), children: true, rows: 0 }
    }
}

/// A line of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportLine {
    /// Its text.
    pub text: String,
    /// Its importance: rows that did not change are faint.
    pub emphasis: Emphasis,
}

/// Ratio of the lengths of recordings from which on rates are suggested.
const UNEQUAL: f64 = 1.1;

/// The lines of a difference.
pub fn lines(diff: &Diff, layout: &DiffLayout) -> Vec<ReportLine> {
    let line = |text: String| ReportLine { text, emphasis: Emphasis::Normal };
    let mut out: Vec<ReportLine> = header(diff, layout).into_iter().map(line).collect();
    let shown = shown(diff, layout);
    out.push(line(String::new()));
    for (index, text) in lines_of(&columns(diff, layout, shown)).enumerate() {
        let is_faint = index > 0 && !shown[index - 1].is_significant();
        let emphasis = if is_faint { Emphasis::Faint } else { Emphasis::Normal };
        out.push(ReportLine { text, emphasis });
    }
    let left = diff.rows.len() - shown.len();
    if left > 0 {
        let rows = if left == 1 { "row" } else { "rows" };
        out.push(line(format!("… and {} more {rows}; -n 0 shows all", count(left))));
    }
    out
}

fn shown<'d>(diff: &'d Diff, layout: &DiffLayout) -> &'d [DiffRow] {
    let rows = if layout.rows == 0 { diff.rows.len() } else { layout.rows };
    &diff.rows[..rows.min(diff.rows.len())]
}

fn count(number: usize) -> String {
    units::thousands(number as i64)
}

fn header(diff: &Diff, layout: &DiffLayout) -> Vec<String> {
    let mut out = Vec::new();
    for (name, side, files) in
        [("Before", &diff.before, &layout.files[0]), ("After", &diff.after, &layout.files[1])]
    {
        out.push(format!("{name}: {}: {}", clean(&listed(files)), side_line(diff, side)));
    }
    out.extend(diff.renamed.as_ref().map(|renamed| clean(&renamed_line(renamed))));
    out.extend(sides_lines(diff));
    out.extend(names_lines(diff).iter().map(|line| clean(line)));
    out.extend(diff.folded.map(folded_line));
    out.extend(interpreter_line(diff.hides_interpreters));
    let total = diff.total();
    let unit = match diff.scale {
        Scale::AsRecorded if diff.before.recordings + diff.after.recordings > 2 => {
            "means of the recordings"
        }
        Scale::AsRecorded if unequal_lengths(diff).is_some() => {
            "as recorded, in recordings of unequal lengths (--per-second compares rates)"
        }
        Scale::AsRecorded => "as recorded",
        Scale::PerSecond => "per second of the recordings",
        Scale::Total => "after is scaled to the total before",
    };
    out.push(format!(
        "Values: {unit}; total {} → {} ({})",
        value(diff, total.before),
        value(diff, total.after),
        ratio(&total),
    ));
    out.push(verdict(diff));
    out
}

/// `recordings of unequal lengths: 16.00 s before, 8.00 s after`, if their values are compared as they
/// were recorded.
pub fn unequal_lengths(diff: &Diff) -> Option<String> {
    let mean = |side: &Side| side.duration_nanos / side.recordings.max(1) as i64;
    let (before, after) = (mean(&diff.before), mean(&diff.after));
    let known = before > 0 && after > 0;
    let uneven = before.max(after) as f64 > UNEQUAL * before.min(after) as f64;
    let format = |nanos: i64| units::format(nanos, "nanoseconds");
    (diff.scale == Scale::AsRecorded && known && uneven).then(|| {
        let (before, after) = (format(before), format(after));
        format!("recordings of unequal lengths: {before} before, {after} after")
    })
}

/// The sentence about main binaries that are compared as one.
pub fn renamed_line(renamed: &Renamed) -> String {
    format!("Binaries {} and {} are compared as one", renamed.before, renamed.after)
}

/// Sentences about what the file of one side lacks.
fn sides_lines(diff: &Diff) -> Vec<String> {
    let mut out = Vec::new();
    let sides = [("before", &diff.before), ("after", &diff.after)];
    for (name, _) in sides.into_iter().filter(|(_, side)| side.is_estimated) {
        out.push(format!("Stacks {name} are estimates: totals are, too; self values are exact"));
    }
    if diff.before.has_binaries != diff.after.has_binaries {
        let without = if diff.before.has_binaries { "after" } else { "before" };
        out.push(format!("Functions {without} have no binaries: all are compared by name alone"));
    }
    out
}

/// Sentences about functions that have another binary after than before.
fn names_lines(diff: &Diff) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(ByName { before, after }) = diff.by_name.first() {
        let more = match diff.by_name.len() - 1 {
            0 => String::new(),
            more => format!(", and of {} more pairs,", count(more)),
        };
        out.push(format!("Functions of {before} and {after}{more} are compared by name"));
    }
    if let Some(name) = diff.split.first() {
        let several = match diff.split.len() {
            1 => format!("{name} is"),
            all => format!("{} functions, such as {name}, are", count(all)),
        };
        out.push(format!(
            "{several} gone in one binary and new in another; --granularity functions compares by \
             name alone"
        ));
    }
    out
}

fn listed(files: &[String]) -> String {
    match files {
        [] => "-".to_owned(),
        [file] => file.clone(),
        [first, ..] => format!("{first} and {} more", count(files.len() - 1)),
    }
}

fn side_line(diff: &Diff, side: &Side) -> String {
    let mut out = format!("{} {}", clean(&diff.kind), units::format(side.recorded, &diff.unit));
    if side.duration_nanos > 0 {
        out += &format!(" in {}", units::format(side.duration_nanos, "nanoseconds"));
    }
    if side.effective.is_finite() && (side.samples > 0.0 || !side.is_estimated) {
        out += &format!(", {} samples", units::thousands(side.samples.round() as i64));
    }
    out
}

fn verdict(diff: &Diff) -> String {
    let rows = if diff.rows.len() == 1 { "row" } else { "rows" };
    let mut out = format!(
        "Changed by more than sampling error: {} of {} {rows} (p ≤ {} over all {} tests",
        count(diff.changed()),
        count(diff.rows.len()),
        Change::FAMILY_ERROR,
        count(diff.tests),
    );
    // The ratio in the unit of comparison: 1 if the total is that of what did not change.
    let common = diff.common * diff.after.factor / diff.before.factor;
    if common.is_finite() && (common - 1.0).abs() >= 0.005 {
        out += &format!(", against ×{common:.2} of the rest");
    }
    if diff.dispersion > 1.05 {
        let among = if diff.replicated { "recordings of a side" } else { "the two sides" };
        out += &format!("; variance among {among}: ×{:.1}", diff.dispersion);
    }
    out + ")"
}

/// A value in the unit of comparison.
pub fn value(diff: &Diff, value: f64) -> String {
    let text = units::format(value.round() as i64, &diff.unit);
    if diff.scale == Scale::PerSecond { text + "/s" } else { text }
}

/// The ratio of the values after and before.
pub fn ratio(change: &Change) -> String {
    match change.ratio() {
        _ if change.before == change.after => "=".to_owned(),
        _ if change.before == 0.0 => "new".to_owned(),
        _ if change.after == 0.0 => "gone".to_owned(),
        Some(ratio) => format!("×{ratio:.2}"),
        None => "-".to_owned(),
    }
}

/// The probability that sampling alone makes such a change.
pub fn p_value(change: &Change) -> String {
    match change.adjusted_p {
        None => "-".to_owned(),
        Some(p) if p < 0.0001 => "<0.0001".to_owned(),
        Some(p) => format!("{p:.4}"),
    }
}

/// A change with its sign.
pub fn difference(diff: &Diff, change: &Change) -> String {
    let text = value(diff, change.difference());
    if change.difference() > 0.0 { format!("+{text}") } else { text }
}

fn columns(diff: &Diff, layout: &DiffLayout, shown: &[DiffRow]) -> Vec<TextColumn> {
    let rows = || shown.iter();
    let mut columns = Vec::new();
    let mut value_columns = |title: &str, get: fn(&DiffRow) -> &Change| {
        let mut column = |title: &str, cell: &dyn Fn(&Change) -> String| {
            columns.push(TextColumn::new(title, Align::Right, rows().map(|row| cell(get(row)))));
        };
        column(&format!("{title}before"), &|change| value(diff, change.before));
        column("after", &|change| value(diff, change.after));
        column("change", &|change| difference(diff, change));
        column("ratio", &ratio);
        column("p", &p_value);
    };
    value_columns("self: ", |row| &row.itself);
    if layout.children {
        value_columns("total: ", |row| &row.total);
    }
    for (index, key) in layout.labels.iter().enumerate() {
        let text = |row: &DiffRow| or_unknown(diff.groups[row.group as usize][index].as_deref());
        columns.push(TextColumn::new(key, Align::Left, rows().map(text)));
    }
    let frame = |row: &DiffRow| &diff.frames[row.frame as usize];
    let Granularity { function, binary, file, address, package, .. } = layout.granularity;
    if binary {
        let name = |row: &DiffRow| or_unknown(Some(&frame(row).binary));
        columns.push(TextColumn::new("binary", Align::Left, rows().map(name)));
    }
    if address {
        let place = |row: &DiffRow| format!("{:#x}", frame(row).address);
        columns.push(TextColumn::new("address", Align::Right, rows().map(place)));
    }
    if function || file {
        let name = |row: &DiffRow| match frame_name(frame(row)) {
            name if binary || frame(row).kind != DiffName::Unnamed => clean(&name),
            name => clean(format!("{} {name}", frame(row).binary).trim()),
        };
        let title = match (function, package) {
            (true, true) => "package",
            (true, false) => "function",
            (false, _) => "file",
        };
        columns.push(TextColumn::new(title, Align::Left, rows().map(name)));
    }
    columns
}

fn or_unknown(text: Option<&str>) -> String {
    match text {
        None | Some("") => "-".to_owned(),
        Some(text) => clean(text),
    }
}

/// A frame as text, with its line if lines are distinguished.
pub fn frame_name(frame: &DiffFrame) -> String {
    let name = match frame.kind {
        DiffName::Unnamed => "[without names]",
        _ => &frame.name,
    };
    match (&*frame.file, frame.line) {
        ("", _) => name.to_owned(),
        (file, 0) => format!("{name} {file}").trim_start().to_owned(),
        (file, line) => format!("{name} {file}:{line}").trim_start().to_owned(),
    }
}
