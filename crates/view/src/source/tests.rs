use regex::Regex;

use super::*;
use crate::query::ShownSource;
use crate::testing::{answers, frames_profile, functions, mapping};
use crate::{Filter, Granularity, Top, TopOptions};
use profile::{Builder, Column, LabelSetId, Profile};

const LINES: Granularity = Granularity { line: true, ..Granularity::SYMBOL };

fn source_with(profile: &Profile, type_index: usize, filter: &Filter, what: &str) -> Source {
    let profile = filter.apply(profile.clone()).profile;
    let view = View::new(&profile, type_index, LINES);
    let selection = Selection::find(&view, what).unwrap().unwrap();
    Source::new(&view, &selection)
}

fn source(profile: &Profile, type_index: usize, what: &str) -> Source {
    source_with(profile, type_index, &Filter::default(), what)
}

fn pair(values: RowValues) -> (i64, i64) {
    (values.self_value, values.total)
}

#[test]
fn the_sums_are_those_of_top() {
    let p = answers();
    for what in ["app.c", "main|foo|bar"] {
        let source = source(&p, 1, what);
        let view = View::new(&p, 1, LINES);
        let top = Top::new(&view, &TopOptions::default());
        let sum = source.listings.iter().map(|l| l.values.self_value).sum::<i64>();
        assert_eq!(sum, top.shown);
        if source.unit == Unit::Function {
            for row in &top.rows {
                let name = view.frames.get(row.frame).name;
                let listing = source.listings.iter().find(|l| l.function == name).unwrap();
                assert_eq!(pair(listing.values), (row.self_value, row.total));
                assert_eq!(pair(listing.lines[0].values), (row.self_value, row.total));
                assert_eq!(pair(listing.addresses[0].values), (row.self_value, row.total));
            }
        }
    }
    // All four functions are on line 10.
    let file = source(&p, 1, "app.c");
    assert_eq!((file.unit, file.listings.len()), (Unit::File, 1));
    assert_eq!(file.listings[0].lines.len(), 1);
    assert_eq!(pair(file.listings[0].values), (9_000_000_000, 9_000_000_000));
}

#[test]
fn a_name_precedes_a_file_and_a_regular_expression() {
    let p = answers();
    let functions = |what: &str| {
        let source = source(&p, 1, what);
        let name = |l: &Listing| match l.function {
            Name::Function(name) => p.str(name).to_owned(),
            _ => p.str(l.file).to_owned(),
        };
        source.listings.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(functions("foo1"), ["foo1"]);
    assert_eq!(functions("foo"), ["foo1", "foo2"]);
    assert_eq!(functions("app.c"), ["app.c"]);
    let view = View::new(&p, 1, LINES);
    assert_eq!(Selection::find(&view, "nothing"), Ok(None));
    assert!(Selection::find(&view, "(").is_err());
    let is_end_of_path = selection::is_end_of_path;
    assert!(is_end_of_path("/a/b/c.rs", "b/c.rs") && !is_end_of_path("/a/ab/c.rs", "b/c.rs"));
    assert!(is_end_of_path("/a/b/c.rs", "/c.rs") && !is_end_of_path("/a/b.rs", ""));
    assert_eq!(candidates(&view), ["app.c", "bar", "foo1", "foo2", "main"]);
}

#[test]
fn inlined_code_is_counted_at_its_line_and_at_the_call() {
    let p = frames_profile();
    let inner = &source(&p, 0, "inner").listings[0];
    let lines: Vec<_> = inner.lines.iter().map(|l| (l.line, pair(l.values))).collect();
    assert_eq!(lines, [(7, (1, 1)), (9, (1, 1))]);
    // Its own code, not that of `outer`.
    assert_eq!(inner.addresses.len(), 1);
    assert_eq!(inner.addresses[0].offset, 0x30);
    let outer = &source(&p, 0, "outer").listings[0];
    assert_eq!(pair(outer.values), (0, 1));
    assert_eq!(outer.lines.len(), 1);
    let below = &outer.lines[0].inlined;
    assert_eq!(below.len(), 1);
    assert_eq!((below[0].depth, below[0].line, pair(below[0].values)), (1, 7, (1, 1)));
    // The instruction was executed there, whatever it was inlined from.
    assert_eq!((outer.addresses[0].offset, pair(outer.addresses[0].values)), (0x10, (1, 1)));
}

#[test]
fn a_stack_counts_once_in_a_recursion() {
    let mut b = Builder::new(&[("samples", "count")]);
    let app = mapping(&mut b, "/usr/bin/app", 0x1000);
    let a = functions(&mut b, Some(app), 0x1000, &[("f", "f.c", 3)]);
    let c = functions(&mut b, Some(app), 0x1004, &[("f", "f.c", 4)]);
    b.add(&vec![a; 10_000], LabelSetId::EMPTY, 5, &[]);
    b.add(&[a, c, a], LabelSetId::EMPTY, 0, &[(Column(0), -2)]);
    let p = b.finish(None);
    let listing = &source(&p, 0, "f").listings[0];
    assert_eq!(pair(listing.values), (3, 3));
    let lines: Vec<_> = listing.lines.iter().map(|l| (l.line, pair(l.values))).collect();
    assert_eq!(lines, [(3, (3, 3)), (4, (0, -2))]);
}

#[test]
fn hidden_frames_give_their_value_to_callers() {
    let p = answers();
    let hide = Filter { hide: Some(Regex::new("bar").unwrap()), ..Filter::default() };
    let listing = &source_with(&p, 1, &hide, "foo1").listings[0];
    assert_eq!(pair(listing.values), (4_000_000_000, 4_000_000_000));
}

#[test]
fn a_location_of_any_number_of_inlined_functions_is_bounded() {
    let mut b = Builder::new(&[("samples", "count")]);
    // Fewer than a view leaves out.
    let lines = vec![("f", "f.c", 3); 1_000];
    let deep = functions(&mut b, None, 1, &lines);
    b.add(&[deep], LabelSetId::EMPTY, 1, &[]);
    let p = b.finish(None);
    let listing = &source(&p, 0, "f").listings[0];
    assert_eq!(pair(listing.values), (1, 1));
    assert!(listing.lines[0].inlined.len() <= MAX_INLINED);
}

/// Of a function whose code partly has no file, all of it is one listing.
#[test]
fn code_without_a_file_belongs_to_the_only_file_of_its_function() {
    let mut b = Builder::new(&[("samples", "count")]);
    let app = mapping(&mut b, "/app", 0);
    let other = mapping(&mut b, "/other", 0x10000);
    for (at, mapping, file, line) in
        [(1, app, "work.go", 3), (2, app, "", 0), (3, other, "", 0), (4, app, "work.go", 4)]
    {
        let name = b.profile.strings.intern("work");
        let filename = b.profile.strings.intern(file);
        let function = profile::FunctionId(b.profile.functions.len() as u32);
        let new = profile::Function { name, system_name: name, filename, start_line: 0 };
        b.profile.functions.push(new);
        let location = b.location(Some(mapping), at);
        b.profile.set_lines(location, &[profile::Line { function, line, column: 0 }]);
        b.add(&[location], LabelSetId::EMPTY, 0, &[(Column(0), at as i64)]);
    }
    let p = b.finish(None);
    let source = source(&p, 0, "work");
    let found: Vec<_> = source
        .listings
        .iter()
        .map(|l| (p.str(l.file), l.values.self_value, l.lines.len(), l.addresses.len()))
        .collect();
    assert_eq!(found, [("work.go", 7, 3, 3), ("", 3, 1, 1)]);
}

/// One function from the begin of each file to this offset.
struct Below(u64);

impl CodeBounds for Below {
    fn same_function(&self, _: &str, _: &str, at: u64, offsets: &[u64]) -> Vec<bool> {
        offsets.iter().map(|&offset| at < self.0 && offset < self.0).collect()
    }
}

#[test]
fn code_without_a_name_is_one_listing() {
    let mut b = Builder::new(&[("samples", "count")]);
    let lib = mapping(&mut b, "/usr/lib/libx.so", 0x1000);
    let other = mapping(&mut b, "/usr/lib/liby.so", 0x20000);
    let [a, c, far] = [0x1010, 0x1018, 0x1800].map(|at| b.location(Some(lib), at));
    let elsewhere = b.location(Some(other), 0x20018);
    for stack in [&[a, c][..], &[c, c], &[far, a], &[elsewhere, far]] {
        b.add(stack, LabelSetId::EMPTY, 1, &[]);
    }
    let p = b.finish(None);
    let view = View::new(&p, 0, LINES);
    let all = UnnamedAddress::all(&view);
    assert_eq!(all.len(), 4);
    assert!(all.iter().any(|address| address.has_name(&view, "libx.so+0x18")));
    assert!(!all.iter().any(|address| address.has_name(&view, "libx.so+0x19")));
    let shown = ShownSource::lines("libx.so+0x18".to_owned());
    let alone = Selection::new(&view, &shown, &NoBounds).unwrap().unwrap();
    assert_eq!(Source::new(&view, &alone).listings[0].addresses.len(), 1);
    let selection = Selection::new(&view, &shown, &Below(0x100)).unwrap().unwrap();
    assert!(selection.is_unnamed());
    let source = Source::new(&view, &selection);
    let [listing] = source.listings.as_slice() else { panic!("{source:?}") };
    assert_eq!(listing.name(&view), "libx.so+0x18");
    // A sample counts once.
    assert_eq!(pair(listing.values), (2, 3));
    let addresses: Vec<_> = listing.addresses.iter().map(|a| (a.offset, pair(a.values))).collect();
    assert_eq!(addresses, [(0x10, (1, 2)), (0x18, (1, 2))]);
}
