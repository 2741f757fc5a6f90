//! Columns of numbers of a table: values of one or several sample types, shares,
//! ratios.

use super::text::{Align, TextColumn};
use super::units;
use view::{Columns, Measure, Ratio, TableColumn, Top, TypeColumn, View, percent};

/// The columns of numbers; `children`: with totals.
pub(super) fn text(view: &View, top: &Top, columns: &Columns, children: bool) -> Vec<TextColumn> {
    let alone = alone(view, top, columns);
    let types = alone.as_ref().map_or(columns.types.as_slice(), std::slice::from_ref);
    let row_types = if alone.is_some() { 1 } else { columns.row_types };
    if columns.chosen.is_empty() {
        let shown = Measure::ALL.into_iter().filter(|measure| children || !measure.is_total());
        let shown: Vec<Measure> = shown.collect();
        let mut out = Vec::new();
        for column in &types[..row_types] {
            for (number, &measure) in shown.iter().enumerate() {
                let begins = row_types > 1 && number == 0;
                out.push(value_column(view, column, measure, begins));
            }
        }
        out.extend(columns.ratios.iter().map(|ratio| ratio_column(ratio, false)));
        return out;
    }
    let mut out = Vec::new();
    let mut last = None;
    let mut with_column = Vec::new();
    for column in &columns.chosen {
        match *column {
            TableColumn::Value { type_index, measure } => {
                let Some(column) = types.iter().find(|t| t.type_index == type_index) else {
                    continue;
                };
                // The name of the type is printed where it changes.
                let begins = types.len() > 1 && last.replace(type_index) != Some(type_index);
                out.push(value_column(view, column, measure, begins));
            }
            TableColumn::Ratio { quotient, totals } => {
                let Some(ratio) = columns.ratios.iter().find(|r| r.quotient == quotient) else {
                    continue;
                };
                last = None;
                with_column.push(quotient);
                out.push(ratio_column(ratio, totals));
            }
        }
    }
    let others = columns.ratios.iter().filter(|ratio| !with_column.contains(&ratio.quotient));
    out.extend(others.map(|ratio| ratio_column(ratio, false)));
    out
}

/// The values of the view's type, if there are no others.
fn alone(view: &View, top: &Top, columns: &Columns) -> Option<TypeColumn> {
    if !columns.types.is_empty() {
        return None;
    }
    let (kind, unit) = view.value_type();
    let rows = top.rows.iter();
    Some(TypeColumn {
        type_index: view.type_index,
        kind: kind.to_owned(),
        unit: unit.to_owned(),
        total: view.total,
        kept_total: view.kept_total,
        rows: rows.map(|r| view::RowValues { self_value: r.self_value, total: r.total }).collect(),
    })
}

/// A column of a type; `begins`: with the name of the type.
fn value_column(view: &View, column: &TypeColumn, measure: Measure, begins: bool) -> TextColumn {
    let title = match measure {
        Measure::SelfValue => "self",
        Measure::SelfShare => "self%",
        Measure::Total => "total",
        Measure::TotalShare => "total%",
    };
    let title = if begins {
        format!("{}: {title}", super::text::clean(&column.kind))
    } else {
        title.to_owned()
    };
    let whole = view.value_options.percent_of.whole(column.total, column.kept_total);
    let cell = |row: &view::RowValues| {
        let value = if measure.is_total() { row.total } else { row.self_value };
        match measure {
            Measure::SelfValue | Measure::Total => {
                units::shown(value, &column.unit, &view.value_options)
            }
            Measure::SelfShare | Measure::TotalShare => {
                format!("{:.2}%", percent(value, whole))
            }
        }
    };
    TextColumn::new(&title, Align::Right, column.rows.iter().map(cell))
}

fn ratio_column(ratio: &Ratio, totals: bool) -> TextColumn {
    let cell = |&(self_ratio, total_ratio): &(Option<f64>, Option<f64>)| {
        let quotient = if totals { total_ratio } else { self_ratio };
        quotient.map_or_else(|| "-".to_owned(), |quotient| format!("{quotient:.2}"))
    };
    let title = super::text::clean(&ratio.name);
    let title = if totals { format!("{title}: total") } else { title };
    TextColumn::new(&title, Align::Right, ratio.rows.iter().map(cell))
}
