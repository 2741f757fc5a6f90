use super::*;
use profile::{Builder, Label, LabelSetId, LabelValue, Profile};
use view::TopOptions;
use view::testing::{answers, functions as functions_at, mapping, odd_names, processes};

fn table(p: &Profile, options: &TableOptions<'_>, top: &TopOptions) -> String {
    let view = View::new(p, p.default_type_index(), options.granularity);
    let top = Top::new(&view, top);
    let mut out = Vec::new();
    write_summary(&mut out, &view, LineWidth::Unlimited).unwrap();
    write_table(&mut out, &view, &top, options).unwrap();
    String::from_utf8(out).unwrap()
}

fn functions(children: bool, columns: &Columns) -> TableOptions<'_> {
    let width = LineWidth::Unlimited;
    TableOptions { granularity: Granularity::FUNCTION, children, labels: &[], columns, width }
}

/// All of a tree, with whole names.
fn whole() -> TreeOptions {
    TreeOptions { limit: 0, min_percent: 0.0, width: LineWidth::Unlimited }
}

#[test]
fn a_table_has_the_shares_of_each_function() {
    let expected = "\
File: app
Type: cpu [nanoseconds]; --type also: samples
Samples: 18
Total: 9.00 s
Showing 3 of 4 rows: 8.50 s, 94.44% (1 left out, -n 0 shows all)

  self   self%   total   total%  binary  function
5.00 s  55.56%  5.00 s   55.56%  app     bar
2.00 s  22.22%  9.00 s  100.00%  app     main
1.50 s  16.67%  4.00 s   44.44%  app     foo1
";
    let limit = TopOptions { limit: 3, ..TopOptions::default() };
    assert_eq!(table(&answers(), &functions(true, &Columns::default()), &limit), expected);
    let got = table(&answers(), &functions(false, &Columns::default()), &limit);
    assert!(got.contains("\n5.00 s  55.56%  app     bar\n"), "{got}");
    assert!(!got.contains("total%"));
}

#[test]
fn labels_and_odd_names_are_one_line() {
    let labels = vec!["process".to_string()];
    let none = Columns::default();
    let options = TableOptions { labels: &labels.clone(), ..functions(true, &none) };
    let got = table(&processes(), &options, &TopOptions { labels, ..TopOptions::default() });
    assert!(got.contains("3  75.00%      3  75.00%  web;1    app     serve"), "{got}");
    let got = table(&odd_names(), &functions(true, &Columns::default()), &TopOptions::default());
    assert!(got.contains("tab new line 7"), "{got}");
    assert_eq!(got.lines().count(), 6 + 5, "{got}");
}

#[test]
fn columns_align_by_the_width_on_a_terminal() {
    let cells = |texts: [&str; 2]| texts.map(str::to_owned).into_iter();
    let columns = [
        TextColumn::new("name", Align::Left, cells(["数据", "ab"])),
        TextColumn::new("n", Align::Right, cells(["1", "22"])),
    ];
    let mut out = Vec::new();
    write_columns(&mut out, &columns).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "name   n\n数据   1\nab    22\n");
}

#[test]
fn a_tree_of_callers_has_self_values_only() {
    let p = answers();
    let mut view = View::new(&p, 1, Granularity::FUNCTION);
    let tree = Tree::new(&mut view, Direction::Callers, &[], Cut::Nothing);
    let mut out = Vec::new();
    let options = TreeOptions { limit: 5, ..whole() };
    write_tree(&mut out, &view, &tree, options).unwrap();
    let got = String::from_utf8(out).unwrap();
    let expected = "
      self    self%  function, its callers below it
    5.00 s   55.56%  bar  [app]
    2.50 s   27.78%  ├─foo1  [app]
    2.50 s   27.78%  │ │ main  [app]
    2.50 s   27.78%  └─foo2  [app]
    2.50 s   27.78%    │ main  [app]
";
    assert!(got.starts_with(expected), "{got}");
}

#[test]
fn a_call_tree_has_a_line_for_each_branch() {
    let p = answers();
    let mut view = View::new(&p, 1, Granularity::FUNCTION);
    let tree = Tree::new(&mut view, Direction::Callees, &[], Cut::Nothing);
    let mut out = Vec::new();
    let options = whole();
    write_tree(&mut out, &view, &tree, options).unwrap();
    let got = String::from_utf8(out).unwrap();
    let expected = "
     total   total%        self    self%  function
    9.00 s  100.00%      2.00 s   22.22%  main  [app]
    4.00 s   44.44%      1.50 s   16.67%  ├─foo1  [app]
    2.50 s   27.78%      2.50 s   27.78%  │ │ bar  [app]
    3.00 s   33.33%    500.0 ms    5.56%  └─foo2  [app]
    2.50 s   27.78%      2.50 s   27.78%    │ bar  [app]
";
    assert_eq!(got, expected);
    let mut out = Vec::new();
    let options = TreeOptions { limit: 2, min_percent: 30.0, ..whole() };
    write_tree(&mut out, &view, &tree, options).unwrap();
    let got = String::from_utf8(out).unwrap();
    assert!(got.contains("at least 1 further branch;"), "{got}");
    assert!(!got.contains("bar"), "{got}");
    // The same from a complete tree and from one that contains only the nodes shown.
    let options = TreeOptions { min_percent: 30.0, ..whole() };
    let cut = Tree::new(&mut view, Direction::Callees, &[], Cut::Percent(30.0));
    let written = |tree: &Tree| {
        let mut out = Vec::new();
        write_tree(&mut out, &view, tree, options).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert!(written(&cut).contains("\n… 2 branches below 30% left out"), "{}", written(&cut));
    assert_eq!(written(&cut), written(&tree));
}

#[test]
fn names_are_shortened_where_a_terminal_has_no_room() {
    let mut builder = Builder::new(&[("samples", "count")]);
    let long =
        "std::vector<std::pair<int, std::string>, std::allocator<int>>::emplace_back_default";
    let main = mapping(&mut builder, "/usr/bin/app", 0x1000);
    let [leaf, root] = [(long, 0x1000), ("main", 0x1001)].map(|(name, address)| {
        functions_at(&mut builder, Some(main), address, &[(name, "a.cc", 3)])
    });
    builder.add(&[leaf, root], LabelSetId::EMPTY, 1, &[]);
    let profile = builder.finish(None);
    let table = |width| {
        let none = Columns::default();
        let options = TableOptions { width, ..functions(true, &none) };
        table(&profile, &options, &TopOptions::default())
    };
    let wide = |text: &str, most: usize| text.lines().skip(5).any(|line| line.width() > most);
    assert!(table(LineWidth::Unlimited).contains(long));
    let text = table(LineWidth::Columns(80));
    assert!(text.contains("  std::vector::emplace_back_default\n"), "{text}");
    assert!(!wide(&text, 80), "{text}");
    let text = table(LineWidth::Columns(70));
    assert!(text.contains('…') && !wide(&text, 70), "{text}");
    // On a very narrow one, enough to read something.
    assert_eq!(table(LineWidth::Columns(10)), table(LineWidth::Columns(63)));
    let mut view = View::new(&profile, 0, Granularity::FUNCTION);
    let tree = Tree::new(&mut view, Direction::Callees, &[], Cut::Nothing);
    let written = |width| {
        let mut out = Vec::new();
        write_tree(&mut out, &view, &tree, TreeOptions { width, ..whole() }).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert!(written(LineWidth::Unlimited).contains(long));
    let text = written(LineWidth::Columns(100));
    assert!(text.contains("│ std::vector::emplace_back_default  [app]"), "{text}");
}

/// A profile with long names of functions, binaries and processes.
fn long_texts() -> Profile {
    let mut builder = Builder::new(&[("samples", "count")]);
    for i in 0..9u64 {
        let path = format!("/usr/lib/librustc_driver-6108105cd7e839cf-{i}.so");
        let driver = mapping(&mut builder, &path, 0x1000 + 0x100 * i);
        let name = format!("rustc_codegen_ssa::back::write::start_executing_work_{i}");
        let [leaf, root] =
            [(&*name, 0x1000 + 0x100 * i), ("main", 0x1001 + 0x100 * i)].map(|(name, address)| {
                functions_at(&mut builder, Some(driver), address, &[(name, "a.rs", 3)])
            });
        let process = format!("a process with a long name {i}");
        let key = builder.profile.strings.intern("process");
        let value = LabelValue::Str(builder.profile.strings.intern(&process));
        let labels = builder.profile.labels.intern(&[Label { key, value }]);
        builder.add(&[leaf, root], labels, 1, &[]);
    }
    builder.finish(None)
}

#[test]
fn no_row_is_wider_than_the_terminal() {
    let profile = long_texts();
    let none = Columns::default();
    let labels = ["process".to_owned()];
    let binary = Granularity { binary: true, ..Granularity::NONE };
    for columns in [80, 100, 120] {
        let width = LineWidth::Columns(columns);
        let mut written = Vec::new();
        for (granularity, labels) in [
            (Granularity::FUNCTION, &[][..]),
            (Granularity::FUNCTION, &labels[..]),
            (Granularity { binary: true, ..Granularity::LINES }, &labels[..]),
            (Granularity::FILES, &labels[..]),
            (binary, &[][..]),
            (binary, &labels[..]),
        ] {
            let mut view = View::new(&profile, 0, granularity);
            let options =
                TableOptions { granularity, children: true, labels, columns: &none, width };
            let top = TopOptions { labels: labels.to_vec(), ..TopOptions::default() };
            let top = Top::new(&view, &top);
            write_summary(&mut written, &view, width).unwrap();
            write_table(&mut written, &view, &top, &options).unwrap();
            let tree = Tree::new(&mut view, Direction::Callees, &[], Cut::Nothing);
            write_tree(&mut written, &view, &tree, TreeOptions { width, ..whole() }).unwrap();
        }
        let text = String::from_utf8(written).unwrap();
        for line in text.lines().filter(|line| !line.starts_with("Showing")) {
            assert!(line.width() <= columns, "{columns}: {line}");
        }
        // Both ends of a binary, and the larger part for the name.
        let row = text.lines().find(|line| line.contains("rustc_c")).unwrap();
        let mut texts = row.split("  ").filter(|text| text.contains("rust"));
        let (binary, name) = (texts.next().unwrap(), texts.next().unwrap());
        assert!(binary.starts_with("librust") && binary.ends_with("-0.so"), "{row}");
        assert!(binary.width() < name.width(), "{row}");
        assert!(text.contains(" others (--sort process)"), "{text}");
    }
}
