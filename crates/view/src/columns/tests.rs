use super::*;
use crate::testing::{answers, processes};
use crate::{Filter, Granularity, Sort};
use profile::{Builder, Column, LabelSetId};

/// Functions of a heap: `kept` is in use, `freed` is not, and `main` calls both.
fn heap() -> Profile {
    let mut b = Builder::new(&[
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_space", "bytes"),
    ]);
    let [main, kept, freed] = ["main", "kept", "freed"].map(|name| b.named_location(name));
    for (leaf, values) in [(kept, [10, 1000, 600]), (freed, [50, 2000, 0]), (kept, [1, 8, 0])] {
        let values = [0, 1, 2].map(|at| (Column(at), values[at]));
        b.add_stack(&[main, leaf], None, LabelSetId::EMPTY, 0, &values);
    }
    b.finish(None)
}

fn request(types: &[usize]) -> ColumnRequest {
    ColumnRequest { types: types.to_vec(), ..ColumnRequest::default() }
}

#[test]
fn rows_are_those_of_any_of_the_types() {
    let p = heap();
    let view = View::new(&p, 2, Granularity::FUNCTION);
    let (top, columns) = Columns::new(&view, &TopOptions::default(), &request(&[2, 1]));
    let names: Vec<_> =
        top.rows.iter().map(|r| view.frames.get(r.frame).display(&p).into_owned()).collect();
    assert_eq!(names, ["kept", "main", "freed"]);
    assert_eq!((top.row_count, top.shown), (3, 600));
    let values = |at: usize| {
        columns.types[at].rows.iter().map(|r| (r.self_value, r.total)).collect::<Vec<_>>()
    };
    assert_eq!(values(0), [(600, 600), (0, 600), (0, 0)]);
    assert_eq!(values(1), [(1008, 1008), (0, 3008), (2000, 2000)]);
    assert_eq!((columns.types[1].total, columns.types[1].kind.as_str()), (3008, "alloc_space"));
    // A type of a column alone makes no rows.
    let value = TableColumn::Value { type_index: 1, measure: Measure::Total };
    let request = ColumnRequest { columns: vec![value], ..request(&[2]) };
    let (top, columns) = Columns::new(&view, &TopOptions::default(), &request);
    assert_eq!((top.rows.len(), columns.types.len(), columns.row_types), (2, 2, 1));
    assert_eq!(columns.types[1].rows[0].total, 1008);
}

#[test]
fn one_type_has_the_rows_of_a_table() {
    for p in [answers(), processes(), heap()] {
        for sort in [Sort::SelfValue, Sort::Total, Sort::Name] {
            for labels in [vec![], vec!["process".to_owned()]] {
                let last = p.sample_types.len() - 1;
                let view = View::new(&p, last, Granularity::FUNCTION);
                let options =
                    TopOptions { sort, labels, limit: 2, min_percent: 1.0, self_only: false };
                let quotient = Quotient { numerator: last, denominator: 0 };
                let request =
                    ColumnRequest { quotients: vec![quotient], ..ColumnRequest::default() };
                let plain = Top::new(&view, &options);
                let (top, _) = Columns::new(&view, &options, &request);
                let named = |top: &Top| {
                    let groups = top.rows.iter().map(|r| top.groups[r.group as usize].clone());
                    let rows = top.rows.iter().map(|r| (r.frame, r.self_value, r.total));
                    rows.zip(groups).collect::<Vec<_>>()
                };
                assert_eq!(named(&top), named(&plain));
                assert_eq!((top.row_count, top.shown), (plain.row_count, plain.shown));
            }
        }
    }
}

#[test]
fn percentages_are_of_the_unfiltered_types() {
    let filter = Filter { focus: Some("kept".parse().unwrap()), ..Filter::default() };
    let p = filter.apply(heap()).profile;
    let view = View::new(&p, 2, Granularity::FUNCTION);
    let (_, columns) = Columns::new(&view, &TopOptions::default(), &request(&[2, 1]));
    let totals = columns.types.iter().map(|t| (t.total, t.kept_total)).collect::<Vec<_>>();
    assert_eq!(totals, [(600, 600), (3008, 1008)]);
}

#[test]
fn a_row_is_kept_if_it_is_large_in_one_type() {
    let p = heap();
    let view = View::new(&p, 2, Granularity::FUNCTION);
    let options = TopOptions { min_percent: 50.0, self_only: true, ..TopOptions::default() };
    let (top, _) = Columns::new(&view, &options, &request(&[2, 1]));
    // `freed` has two thirds of the allocations, and nothing in use.
    assert_eq!((top.rows.len(), top.row_count), (2, 3));
}

#[test]
fn hostile_values_do_not_overflow() {
    let mut p = heap();
    for value in [i64::MAX, i64::MIN] {
        p.values.iter_mut().for_each(|v| *v = value);
        let view = View::new(&p, 0, Granularity::FUNCTION);
        let quotients = vec![Quotient { numerator: 0, denominator: 1 }];
        let (top, _) = Columns::new(
            &view,
            &TopOptions::default(),
            &ColumnRequest { quotients, ..request(&[0, 1]) },
        );
        assert_eq!(top.rows.len(), 3);
    }
    let empty = Profile::default();
    let view = View::new(&empty, 0, Granularity::FUNCTION);
    let (top, _) = Columns::new(&view, &TopOptions::default(), &request(&[0]));
    assert!(top.rows.is_empty());
}
