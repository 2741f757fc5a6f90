//! A foreign pprof file: every view of it, and its output after reading.

use formats::{collapsed, pprof};
use prof::report::colors::Scheme;
use prof::report::{dot, flame, json, summary, text};
use view::answer::{HeaderAnswer, PeekAnswer, QualityAnswer, TableAnswer};
use view::{
    Columns, Coverage, Cut, Direction, Filter, Granularity, Graph, NodeOrder, Peek, Quality,
    Sandwich, Siblings, Sort, Top, TopOptions, Tree, Trim, View,
};

/// Takes an input.
pub fn run(data: &[u8]) {
    let Ok(profile) = pprof::read(data) else { return };
    // The regular expressions of drop_frames and keep_frames are the file's.
    let profile = Filter::default().apply(profile).profile;
    let mut out = Vec::new();
    let of = profile.default_type_index();
    let _ = text::write_header(&mut out, &profile);
    {
        let view = View::new(&profile, of, Granularity::FUNCTION);
        let _ = text::write_summary(&mut out, &view, text::LineWidth::Columns(80));
        let _ = json::write(&mut out, &HeaderAnswer::new(&view));
        let labels = vec!["process".to_owned()];
        let options = TopOptions {
            sort: Sort::SelfValue,
            labels: labels.clone(),
            limit: 20,
            min_percent: 0.0,
            self_only: false,
        };
        let top = Top::new(&view, &options);
        let columns = Columns::default();
        let layout = text::TableOptions {
            granularity: Granularity::FUNCTION,
            children: true,
            labels: &labels,
            columns: &columns,
            width: text::LineWidth::Unlimited,
        };
        let _ = text::write_table(&mut out, &view, &top, &layout);
        let mut table = Vec::new();
        let answer = TableAnswer::new(&view, &top, &columns, &labels);
        let _ = json::write(&mut table, &answer);
        assert!(std::str::from_utf8(&table).is_ok(), "JSON is UTF-8");
        let quality = Quality::new(&view, &options);
        let _ = json::write(&mut out, &QualityAnswer::new(&view, &quality));
        let _ = Coverage::new(&view);
        let graph = Graph::new(&view, NodeOrder::Drawing, Trim::default());
        let _ = dot::write(&mut out, &view, &graph, "fuzz");
        let functions: Vec<u32> = top.rows.iter().map(|row| row.frame).collect();
        let peek = Peek::new(&view, &functions);
        let _ = json::write(&mut out, &PeekAnswer::new(&view, &peek));
        let _ = Sandwich::new(&view, &functions, Cut::Nothing);
    }
    let mut view = View::new(&profile, of, Granularity::FUNCTION);
    view.leave_out_negative();
    if view.kept_total != 0 {
        let tree = Tree::new(&mut view, Direction::Callees, &[], Cut::Width(0.05));
        if tree.nodes.len() > 1 {
            draw(&view, &tree, &mut out);
        }
    }
    drop(view);
    let mut again = Vec::new();
    if pprof::write(&profile, &mut again).is_ok() {
        assert!(pprof::read(&again[..]).is_ok(), "a written profile is readable");
    }
}

fn draw(view: &View<'_>, tree: &Tree, out: &mut Vec<u8>) {
    let options = flame::FlameOptions {
        title: "fuzz".into(),
        subtitle: summary::subtitle(view),
        inverted: false,
        order: Siblings::Name,
        width: Some(1200),
        min_width: 0.05,
        scheme: Scheme::default(),
    };
    let mut svg = Vec::new();
    if flame::write(&mut svg, view, tree, &options).is_ok() {
        let svg = std::str::from_utf8(&svg).expect("SVG is UTF-8");
        let forbidden = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
        assert!(!svg.contains(forbidden), "a control character makes XML ill-formed");
    }
    let _ = collapsed::write_tree(out, view, tree);
}
