//! Columns of values without a scale, of many digits and below zero: as wide as the longest one.

use std::fs::File;
use std::path::Path;

use crate::common::views::UNSCALED;
use crate::common::{Prof, temp_dir, views};

/// The lines of a table from its header, the one that ends with these titles, to an empty line.
fn table<'a>(text: &'a str, titles: &str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(|line| !line.ends_with(titles));
    let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    assert!(lines.len() > 1, "no table of {titles:?} in\n{text}");
    lines
}

/// Fails unless values end where their titles do: in front of the last column, in which all lines
/// begin or are indented.
#[track_caller]
fn is_aligned(text: &str, titles: &str) {
    let lines = table(text, titles);
    let last = titles.rsplit("  ").next().unwrap();
    let column = lines[0].chars().count() - last.chars().count();
    let is_rule = |line: &str| line.chars().all(|c| c == '-');
    for line in lines.iter().filter(|line| !is_rule(line)) {
        let cells: Vec<char> = line.chars().collect();
        // A gap in the listing has no text.
        assert!(cells.len() > column || line.trim() == "…", "{line:?} in\n{text}");
        let gap: String = cells.iter().take(column).skip(column - 2).collect();
        assert!(gap.trim().is_empty(), "{line:?} in\n{text}");
    }
}

fn printed(dir: &Path, args: &str) -> String {
    Prof::new(dir, args).run().ok().text()
}

#[test]
fn long_values_keep_the_columns() {
    let dir = temp_dir();
    let profile = views::unscaled();
    formats::pprof::write(&profile, File::create(dir.path().join("long.pb.gz")).unwrap()).unwrap();
    let source: String = (1..=9).map(|line| format!("line {line};\n")).collect();
    std::fs::write(dir.path().join("long.c"), source).unwrap();
    for (args, titles) in [
        ("report long.pb.gz -g --percent-limit 0", "self%  function"),
        ("report long.pb.gz -g callee --percent-limit 0", "function, its callers below it"),
        ("report long.pb.gz --sandwich leaf --percent-limit 0", "function, its callers below it"),
        ("report long.pb.gz --sandwich leaf --percent-limit 0", "function, its callees below it"),
        ("report long.pb.gz --peek .", "calls%  function"),
        ("annotate . long.pb.gz", "line  source"),
        ("report long.pb.gz --coverage", "stacks  binary"),
        ("report long.pb.gz", "binary  function"),
    ] {
        let text = printed(dir.path(), args);
        is_aligned(&text, titles);
    }
    let tree = printed(dir.path(), "report long.pb.gz -g --percent-limit 0");
    for value in UNSCALED {
        let digits: Vec<char> = value.to_string().chars().rev().collect();
        let groups = digits.chunks(3).map(|group| group.iter().collect::<String>());
        let text: String = groups.collect::<Vec<_>>().join(",").chars().rev().collect();
        let text = text.replace("-,", "-");
        assert!(tree.contains(&format!("{text} microjoules")), "{value} in\n{tree}");
    }
}
