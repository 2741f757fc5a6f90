//! Source with values.

use serde_json::Value;

use super::{squeezed, value_and_share};
use crate::report::terminal::source::{Code, Content};
use crate::report::units;
use view::answer::SourceAnswer;
use view::query::Query;
use view::{Answer, Model};

/// A line: its number, or `None` for one of an inlined function, and its values.
type Line = (Option<i64>, i64, i64);

fn line(row: &Value, number: Option<i64>) -> Line {
    (number, row["self"].as_i64().unwrap(), row["total"].as_i64().unwrap())
}

/// The lines of a listing as JSON has them, in their order.
fn lines(listing: &Value) -> Vec<Line> {
    let mut lines = Vec::new();
    for row in listing["lines"].as_array().unwrap() {
        lines.push(line(row, Some(row["line"].as_i64().unwrap_or(0).max(0))));
        lines.extend(row["inlined"].as_array().unwrap().iter().map(|row| line(row, None)));
    }
    lines
}

/// The rows below the titles of the columns, up to an empty line.
fn text_rows(text: &str) -> Vec<String> {
    let mut rows = Vec::new();
    let mut lines = text.lines().map(squeezed);
    while lines.any(|line| line == "self total line source") {
        rows.extend(lines.by_ref().take_while(|line| !line.is_empty()));
    }
    rows
}

/// Compares the lines of source, whose files nobody has. Returns their number.
pub fn assert_code(
    code: Option<&Code>,
    text: &str,
    json: &Value,
    answer: &Answer,
    query: &Query,
) -> usize {
    let listings = json["listings"].as_array().unwrap();
    assert_eq!(json["listing_count"], listings.len(), "{query:?}");
    let Model::Source(found) = &answer.model else { panic!("{query:?}") };
    let mut view = answer.view();
    view.value_options.divide_by = 1.0;
    let data = serde_json::to_value(SourceAnswer::new(&view, found)).unwrap();
    for (listing, data) in listings.iter().zip(data["listings"].as_array().unwrap()) {
        for key in ["function", "system_name", "file", "start_line", "self", "total"] {
            assert_eq!(listing[key], data[key], "{query:?}");
        }
        assert_eq!(lines(listing), lines(data), "{query:?}");
    }
    let Some(code) = code else {
        assert_eq!(listings.len(), 0, "{query:?}");
        return 0;
    };
    for listing in listings {
        let [own, total] = ["self", "total"]
            .map(|key| value_and_share(query, json, listing[key].as_i64().unwrap()));
        let head = format!("self {own}; total {total}").replace(',', "");
        let is_head = |line: &str| squeezed(&line.replace(',', "")) == head;
        assert!(text.lines().any(is_head), "{query:?}: {head} in\n{text}");
        assert!(code.rows.iter().any(|row| is_head(&row.text)), "{query:?}: {head}");
    }
    if found.assembly {
        return listings.len();
    }
    let expected: Vec<Line> = listings.iter().flat_map(lines).collect();
    let on_screen = code.rows.iter().filter_map(|row| {
        let number = match row.content {
            Content::Line(number) => Some(number),
            Content::Inlined => None,
            _ => return None,
        };
        Some((number, row.values.self_value, row.values.total))
    });
    assert_eq!(on_screen.collect::<Vec<_>>(), expected, "{query:?}");
    let unit = json["type"]["unit"].as_str().unwrap_or("");
    let value = |value: i64| match value {
        0 => ".".to_owned(),
        _ => units::shown(value, unit, &query.value_options),
    };
    let rows = text_rows(text);
    assert_eq!(rows.len(), expected.len(), "{query:?}: {text}");
    for (row, (number, own, total)) in rows.iter().zip(&expected) {
        let number = match number {
            Some(0) => "?".to_owned(),
            Some(number) => number.to_string(),
            None => String::new(),
        };
        let start = squeezed(&format!("{} {} {number}", value(*own), value(*total)));
        assert!(row.starts_with(&start), "{query:?}: {start} and {row}");
    }
    expected.len()
}
