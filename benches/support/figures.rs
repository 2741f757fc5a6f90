//! The figures of a bench: a table in Markdown, which is the bench's section of
//! `docs/benchmarks.md`.

use std::path::Path;

use super::options::{changed, flag};
use super::{document, machine};

/// The text in the column of a tool that is not installed.
pub const NOT_INSTALLED: &str = "not installed";

/// The table of one bench.
pub struct Figures {
    bench: &'static str,
    /// Sentences about the target and the runs.
    conditions: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// The figure of another tool; `None`: it is not installed.
pub fn peer(value: Option<f64>, text: fn(f64) -> String) -> String {
    value.map_or_else(|| NOT_INSTALLED.to_owned(), text)
}

impl Figures {
    /// A table without rows. The first column has their names.
    pub fn new(columns: &[&str]) -> Figures {
        Figures {
            bench: env!("CARGO_CRATE_NAME"),
            conditions: String::new(),
            columns: columns.iter().map(|c| (*c).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Sets the sentences about the target and the runs.
    pub fn conditions(&mut self, sentences: &str) {
        self.conditions = sentences.to_owned();
    }

    /// Adds a row: its name, and a cell for each other column.
    pub fn row(&mut self, name: &str, cells: impl IntoIterator<Item = String>) {
        let mut row = vec![name.to_owned()];
        row.extend(cells);
        assert_eq!(row.len(), self.columns.len(), "{row:?}");
        self.rows.push(row);
    }

    /// The section: machine, date, options, conditions and the table.
    fn markdown(&self) -> String {
        let mut text = format!("{}; {}.", machine::line(), machine::date());
        match changed().as_str() {
            "" => {}
            options => text += &format!(" Options: `{options}`."),
        }
        if !self.conditions.is_empty() {
            text += &format!("\n{}", self.conditions);
        }
        text += "\n\n";
        let rule = vec!["---".to_owned(); self.columns.len()];
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        text += &line(&self.columns);
        text += &line(&rule).replace(' ', "");
        self.rows.iter().for_each(|row| text += &line(row));
        text + "\n"
    }

    /// Prints the section; with `--update` puts it into `docs/benchmarks.md`, unless figures would
    /// get lost and `--force` is not given.
    pub fn publish(&self) {
        let section = self.markdown();
        println!("\n{}\n{section}{}", document::marker(self.bench), document::END);
        if flag("update") {
            self.update(&section);
        }
    }

    fn update(&self, section: &str) {
        let name = "docs/benchmarks.md";
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{name}: {e}"));
        let old = document::section(&text, self.bench);
        let missing = old.map(|old| document::missing(old, section)).unwrap_or_default();
        if !missing.is_empty() && !flag("force") {
            println!(
                "{name} is unchanged, because it has figures that this run has not: {}. \
                 --force replaces them.",
                missing.join("; ")
            );
            return;
        }
        let Some(text) = document::replaced(&text, self.bench, section) else {
            eprintln!("{name} has no section {}", document::marker(self.bench));
            std::process::exit(1);
        };
        std::fs::write(&file, text).unwrap_or_else(|e| panic!("{name}: {e}"));
        println!("{name}: section {} updated", self.bench);
    }
}
