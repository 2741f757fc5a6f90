//! What the arguments of `prof report` select together.

use super::super::sort::Grouping;
use super::super::source::ProfileSource;
use super::super::usage;
use super::Args;
use super::call_graph::CallGraph;
use view::query::Groups;
use view::{Direction, Granularity, Sort};

/// The profiles and the view that the arguments select.
#[derive(Debug)]
pub(super) struct Plan {
    /// The profiles.
    pub(super) source: ProfileSource,
    /// The order of a call tree; `None`: no tree is requested.
    pub(super) direction: Option<Direction>,
    /// The rows of a table; the labels are the roots of a tree.
    pub(super) groups: Groups,
    /// The order of rows.
    pub(super) order: Sort,
    /// The rows are those that are usual for the sample type.
    pub(super) has_usual_rows: bool,
    /// The subset of the labels that have to be labels of the profile.
    pub(super) must_exist: Vec<String>,
    /// The limits of `-g`.
    pub(super) limits: CallGraph,
}

impl Args {
    /// Resolves arguments that depend on each other.
    ///
    /// # Errors
    ///
    /// `-g` has a value that prof has elsewhere, or a tree has columns of a table.
    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        let mut file = None;
        let limits = match self.call_graph.as_deref() {
            None => CallGraph { direction: None, ..CallGraph::DEFAULT },
            Some(text) => match CallGraph::parse(text) {
                Some(found) => found.map_err(usage)?,
                // `prof report -g FILE`: not a value of -g, so a FILE.
                None => {
                    file = Some(text.into());
                    CallGraph::DEFAULT
                }
            },
        };
        let direction = limits.direction;
        if let Some(option) = self.columns.given().filter(|_| direction.is_some()) {
            return Err(usage(format!(
                "{option} cannot be used with -g: a call tree has columns of its own; -g none \
                 prints a table"
            )));
        }
        let keys: Vec<_> = self.sort.iter().cloned().chain(self.columns.rows()).collect();
        let grouping = Grouping::parse(&keys);
        let groups = grouping.resolved(self.filter.granularity());
        let has_usual_rows = !self.lines
            && self.filter.granularity.is_none()
            && self.over.is_none()
            && !grouping.is_grouped();
        let Grouping { order, must_exist, .. } = grouping;
        let order = if self.cum { Sort::Total } else { order };
        let source = self.files.source_with(file);
        let mut plan =
            Plan { source, direction, groups, order, has_usual_rows, must_exist, limits };
        let granularity = &mut plan.groups.granularity;
        if direction.is_some() && !granularity.function && self.filter.granularity.is_none() {
            *granularity = Granularity::FUNCTION;
        }
        if self.lines {
            (granularity.function, granularity.line) = (true, true);
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// The plan of a command line, or the error.
    fn parsed(line: &str) -> Result<Plan, String> {
        let words = std::iter::once("report").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.args.plan().map_err(|error| error.to_string())
    }

    fn plan(line: &str) -> Plan {
        parsed(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    fn refused(line: &str) -> String {
        parsed(line).map(|_| ()).expect_err(line)
    }

    #[test]
    fn g_takes_a_direction_and_leaves_a_file() {
        let cases = [
            ("a.pb", None, vec!["a.pb"]),
            ("-g", Some(Direction::Callees), vec![]),
            ("-g a.pb", Some(Direction::Callees), vec!["a.pb"]),
            ("a.pb -g", Some(Direction::Callees), vec!["a.pb"]),
            ("-g callee a.pb", Some(Direction::Callers), vec!["a.pb"]),
            ("-g caller a.pb", Some(Direction::Callees), vec!["a.pb"]),
            ("a.pb -g callee", Some(Direction::Callers), vec!["a.pb"]),
            ("-g -", Some(Direction::Callees), vec!["-"]),
            ("-g -n 5 a.pb", Some(Direction::Callees), vec!["a.pb"]),
            ("-gcallee -i a.pb", Some(Direction::Callers), vec!["a.pb"]),
            ("-g a.pb b.pb", Some(Direction::Callees), vec!["b.pb", "a.pb"]),
            ("-g callee,0.5 a.pb", Some(Direction::Callers), vec!["a.pb"]),
            ("-g none a.pb", None, vec!["a.pb"]),
            ("-g ./none", Some(Direction::Callees), vec!["./none"]),
            ("--call-graph=graph,0.5,callee", Some(Direction::Callers), vec![]),
        ];
        for (line, direction, files) in cases {
            let plan = plan(line);
            assert_eq!(plan.direction, direction, "{line}");
            let expected: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
            assert_eq!(plan.source, ProfileSource::Files(expected), "{line}");
        }
        assert!(refused("-g folded").contains("prof flame --folded"));
    }

    #[test]
    fn sort_orders_and_groups() {
        let p = plan("--sort comm,dso,symbol");
        assert_eq!(p.groups.granularity, Granularity::FUNCTION);
        assert_eq!(p.groups.labels, ["process"]);
        assert_eq!(plan("--sort symbol").groups.granularity, Granularity::SYMBOL);
        assert_eq!(plan("").groups.granularity, Granularity::FUNCTION);
        let p = plan("--sort process,total");
        assert_eq!((p.groups.granularity, p.order), (Granularity::NONE, Sort::Total));
        assert_eq!(plan("-s name").order, Sort::Name);
        assert_eq!(plan("--cum").order, Sort::Total);
        assert_eq!(plan("-s overhead_children").order, Sort::Total);
        assert!(plan("--lines").groups.granularity.line);
        assert_eq!(plan("--sort label:request").groups.labels, ["request"]);
        assert!(refused("--sort label:").contains("label:KEY"));
        let p = plan("--sort request,process");
        assert_eq!((p.groups.labels.len(), p.must_exist), (2, vec!["request".to_string()]));
    }

    #[test]
    fn fields_of_perf_make_rows() {
        let p = plan("-F overhead,sample,period,comm,dso,sym");
        assert_eq!((p.groups.granularity, p.has_usual_rows), (Granularity::FUNCTION, false));
        assert_eq!(p.groups.labels, ["process"]);
        assert_eq!(plan("-F overhead,pid,tid").groups.labels, ["pid", "tid"]);
        assert!(plan("-F overhead,srcline").groups.granularity.line);
        assert!(plan("-F overhead,sample").has_usual_rows);
        assert_eq!(plan("-F overhead,comm -g none").groups.labels, ["process"]);
        assert!(refused("-F overhead,comm -g").contains("-g none prints a table"));
    }
}
