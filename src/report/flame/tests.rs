//! Reads drawings back as XML.

use super::picture::{CHAR_WIDTH, fitting};
use super::*;
use profile::Profile;
use view::testing::{answers, odd_names, processes, states};
use view::{Cut, Granularity, States, Top, TopOptions};

/// A drawn box: tooltip, label, colour, and `fg:w`, its value.
#[derive(Debug)]
struct DrawnBox {
    title: String,
    label: String,
    fill: String,
    value: i64,
}

impl DrawnBox {
    fn name(&self) -> &str {
        self.title.rsplit_once(" (").unwrap().0
    }
}

pub(super) fn options() -> FlameOptions {
    FlameOptions {
        title: "app <cpu> & more".into(),
        subtitle: "9.00 s".into(),
        inverted: false,
        order: Siblings::Name,
        width: None,
        min_width: 0.0,
        scheme: Scheme::Language,
    }
}

fn drawn(p: &Profile, kind: usize, roots: &[&str], options: &FlameOptions) -> String {
    let mut view = View::new(p, kind, Granularity::FUNCTION);
    let roots: Vec<_> = roots.iter().map(|r| p.strings.find(r).unwrap()).collect();
    let tree = Tree::new(&mut view, Direction::Callees, &roots, Cut::Width(options.min_width));
    let mut out = Vec::new();
    write(&mut out, &view, &tree, options).unwrap();
    String::from_utf8(out).unwrap()
}

/// Parses the SVG as strict XML and returns its boxes.
fn boxes_of(svg: &str) -> Vec<DrawnBox> {
    use quick_xml::events::Event;
    let mut reader = quick_xml::Reader::from_str(svg);
    reader.config_mut().check_end_names = true;
    let mut out = Vec::<DrawnBox>::new();
    let mut text = None;
    let mut in_frames = false;
    let mut depth = 0;
    loop {
        match reader.read_event().expect("well-formed XML") {
            Event::Eof => break,
            Event::Start(e) => {
                depth += 1;
                let id = e.try_get_attribute("id").unwrap();
                in_frames |= id.is_some_and(|id| &*id.value == b"frames");
                text = Some(String::new());
            }
            Event::Empty(e) if in_frames && e.name().as_ref() == b"rect" => {
                let attribute = |name: &str| {
                    let a = e.try_get_attribute(name).unwrap().unwrap();
                    String::from_utf8(a.value.to_vec()).unwrap()
                };
                let last = out.last_mut().unwrap();
                last.fill = attribute("fill");
                last.value = attribute("fg:w").parse().unwrap();
            }
            Event::Text(t) => {
                if let Some(s) = &mut text {
                    s.push_str(&t.decode().unwrap());
                }
            }
            Event::GeneralRef(r) => {
                let c = match &*r.decode().unwrap() {
                    "lt" => "<",
                    "gt" => ">",
                    "amp" => "&",
                    "quot" => "\"",
                    "apos" => "'",
                    other => panic!("&{other};"),
                };
                text.as_mut().unwrap().push_str(c);
            }
            Event::End(e) => {
                depth -= 1;
                let text = text.take().unwrap_or_default();
                match e.name().as_ref() {
                    b"title" if in_frames => out.push(DrawnBox {
                        title: text,
                        label: String::new(),
                        fill: String::new(),
                        value: 0,
                    }),
                    b"text" if in_frames => out.last_mut().unwrap().label = text,
                    _ => {}
                }
            }
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    out
}

#[test]
fn boxes_have_the_known_values() {
    let seen = boxes_of(&drawn(&answers(), 1, &[], &options()));
    let mut titles: Vec<_> = seen.iter().map(|b| b.title.as_str()).collect();
    titles.sort_unstable();
    let expected = [
        "all (cpu 9.00 s, 100.00%)",
        "bar (cpu 2.50 s, 27.78%, app)",
        "bar (cpu 2.50 s, 27.78%, app)",
        "foo1 (cpu 4.00 s, 44.44%, self 1.50 s, app)",
        "foo2 (cpu 3.00 s, 33.33%, self 500.0 ms, app)",
        "main (cpu 9.00 s, 100.00%, self 2.00 s, app)",
    ];
    assert_eq!(titles, expected);
    assert!(seen.iter().all(|b| b.label == b.name()), "{seen:?}");
}

#[test]
fn table_and_flame_graph_agree() {
    let p = answers();
    let seen = boxes_of(&drawn(&p, 1, &[], &options()));
    let view = View::new(&p, 1, Granularity::FUNCTION);
    for row in Top::new(&view, &TopOptions::default()).rows {
        let name = view.frames.get(row.frame).display(&p);
        let sum: i64 = seen.iter().filter(|b| b.name() == name).map(|b| b.value).sum();
        assert_eq!(sum, row.total, "{name}");
    }
    let all = seen.iter().find(|b| b.name() == "all").unwrap();
    assert_eq!(all.value, view.total);
}

#[test]
fn odd_names_are_escaped() {
    let svg = drawn(&odd_names(), 0, &[], &options());
    let seen = boxes_of(&svg);
    for name in
        ["operator;", "std::vector<int, a&b>::push(int)", "a b \"c\"", "tab new line 7", "x_[k]"]
    {
        let of_name: Vec<_> = seen.iter().filter(|b| b.name() == name).collect();
        assert_eq!(of_name.len(), 1, "{name}: {seen:?}");
        assert_eq!(of_name[0].label, name);
    }
    assert_eq!(seen.len(), 6);
    assert!(svg.contains("app &lt;cpu&gt; &amp; more"), "the title is escaped");
    assert!(
        svg.contains("<title>app &lt;cpu&gt; &amp; more</title>"),
        "so is that of the document"
    );
}

#[test]
fn labels_are_boxes_below_the_stacks() {
    let seen = boxes_of(&drawn(&processes(), 0, &["process"], &options()));
    let find = |name: &str| seen.iter().find(|b| b.name() == name).map(|b| b.value);
    assert_eq!((find("web;1"), find("db"), find("query")), (Some(3), Some(1), Some(1)));
}

#[test]
fn processes_of_one_name_are_one_box() {
    use profile::{Builder, Label, LabelValue, StrId};
    let mut b = Builder::new(&[("samples", "count")]);
    let work = b.named_location("work");
    let pid = b.profile.strings.intern("pid");
    let process = b.profile.strings.intern("process");
    let name = LabelValue::Str(b.profile.strings.intern("cc1"));
    for value in [7, 8, 9] {
        let number = LabelValue::Num { value, unit: StrId::EMPTY };
        let labels = [Label { key: pid, value: number }, Label { key: process, value: name }];
        let labels = b.profile.labels.intern(&labels);
        b.add(&[work], labels, 1, &[]);
    }
    let p = b.finish(None);
    let names = |roots: &[&str]| -> Vec<String> {
        let seen = boxes_of(&drawn(&p, 0, roots, &options()));
        seen.iter().map(|b| format!("{} {}", b.name(), b.value)).collect()
    };
    let mut one = names(&["process"]);
    one.sort();
    assert_eq!(one, ["all 3", "cc1 3", "work 3"]);
    assert_eq!(names(&["pid"]).len(), 1 + 3 + 3);
}

#[test]
fn narrow_boxes_go_but_their_value_stays() {
    let narrow = FlameOptions { min_width: 34.0, ..options() };
    let seen = boxes_of(&drawn(&answers(), 1, &[], &narrow));
    let mut names: Vec<_> = seen.iter().map(|b| (b.name(), b.value)).collect();
    names.sort_unstable();
    let s = 1_000_000_000;
    assert_eq!(names, [("all", 9 * s), ("foo1", 4 * s), ("main", 9 * s)]);
    assert_eq!(fitting("abcdefgh", 8.0 * CHAR_WIDTH + 4.0), "abcdefgh");
    assert_eq!(fitting("abcdefgh", 6.0 * CHAR_WIDTH + 5.0), "abcde…");
    assert_eq!(fitting("abcdefgh", 9.0), "");
}

#[test]
fn colours_follow_the_scheme() {
    let fills = |scheme| -> Vec<String> {
        let o = FlameOptions { scheme, ..options() };
        let mut seen = boxes_of(&drawn(&answers(), 1, &[], &o));
        seen.sort_by(|a, b| a.title.cmp(&b.title));
        seen.into_iter().map(|b| b.fill).collect()
    };
    let own = fills(Scheme::SelfValue);
    // bar has the largest self value, and one name can have two colours by total.
    assert_eq!(own[1], "rgb(244,37,37)");
    assert_ne!(own[5], own[1]);
    let total = fills(Scheme::Total);
    assert_ne!(total[3], total[4]);
    assert_eq!(total[5], "rgb(244,37,37)");
    let package = fills(Scheme::Package);
    assert_ne!(package, fills(Scheme::Kernel));
}

#[test]
fn an_empty_drawing_is_an_error() {
    let mut p = answers();
    p.values.iter_mut().for_each(|v| *v = -*v);
    let mut view = View::new(&p, 1, Granularity::FUNCTION);
    let tree = Tree::new(&mut view, Direction::Callees, &[], Cut::Nothing);
    let error = write(&mut Vec::new(), &view, &tree, &options()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_deep_recursion_is_drawn() {
    let mut b = profile::Builder::new(&[("samples", "count")]);
    let f = b.named_location("f");
    let stack = vec![f; 3000];
    b.add(&stack, Default::default(), 1, &[]);
    let seen = boxes_of(&drawn(&b.finish(None), 0, &[], &options()));
    assert_eq!(seen.len(), 3001);
}

#[test]
fn boxes_have_the_colours_of_their_states() {
    let p = states();
    let mut view = View::new(&p, 0, Granularity::FUNCTION);
    let states = States::new(&view).unwrap();
    assert_eq!(states.values(&view), [3, 1, 4, 0, 0, 0]);
    let cut = Cut::Width(0.0);
    let tree = Tree::with_states(&mut view, Direction::Callees, &[], cut, states);
    let mut out = Vec::new();
    write(&mut out, &view, &tree, &FlameOptions { scheme: Scheme::State, ..options() }).unwrap();
    let svg = String::from_utf8(out).unwrap();
    let boxes = boxes_of(&svg);
    let fill = |name: &str| {
        let seen = boxes.iter().find(|b| b.name() == name).unwrap();
        let inside = seen.fill.trim_start_matches("rgb(").trim_end_matches(')');
        inside.split(',').map(|n| n.parse().unwrap()).collect::<Vec<f64>>()
    };
    let of = |by_state| {
        let Rgb { r, g, b } = colors::mixed(&by_state);
        [r, g, b].map(f64::from)
    };
    assert_eq!(fill("nap"), of([0, 0, 4, 0, 0, 0]));
    assert_eq!(fill("work"), of([3, 1, 0, 0, 0, 0]));
    // Half of it is in one state, half in the other.
    for (main, (work, nap)) in fill("main").iter().zip(fill("work").iter().zip(fill("nap"))) {
        assert!((main - (work + nap) / 2.0).abs() <= 1.0, "{boxes:?}");
    }
    let legend = ["running", "runnable", "sleeping"];
    assert!(legend.iter().all(|name| svg.contains(&format!("</tspan> {name}"))), "{svg}");
    assert!(!svg.contains("</tspan> disk"));
}

/// Names, units, kinds, labels and titles of any characters yield well-formed XML, without
/// characters that XML 1.0 forbids or that are invisible.
#[test]
fn any_strings_yield_a_well_formed_drawing() {
    use profile::{Builder, Column, Label, LabelSetId, LabelValue};
    use view::testing::functions;
    let every: Vec<char> = ('\0'..='\u{a0}')
        .chain(['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}', '\u{fffe}', '\u{ffff}', '🦀'])
        .collect();
    for chars in every.chunks(7) {
        let odd: String = chars.iter().collect();
        let kind = format!("kind{odd}");
        let unit = format!("unit{odd}");
        let mut b = Builder::new(&[(kind.as_str(), unit.as_str())]);
        let name = format!("<f & \"{odd}\">");
        let stack = functions(&mut b, None, 1, &[(&name, "", 0)]);
        let key = b.profile.strings.intern("process");
        let value = b.profile.strings.intern(&odd);
        let labels = b.profile.labels.intern(&[Label { key, value: LabelValue::Str(value) }]);
        b.add(&[stack], labels, 0, &[(Column(0), 5)]);
        b.add(&[stack], LabelSetId::EMPTY, 0, &[(Column(0), 1)]);
        let profile = b.finish(None);
        let options = FlameOptions { title: odd.clone(), subtitle: odd.clone(), ..options() };
        let svg = drawn(&profile, 0, &["process"], &options);
        assert!(boxes_of(&svg).len() >= 3, "{odd:?}");
        let wrong = |c: char| c < ' ' && !"\n\t".contains(c) || ('\x7f'..'\u{a0}').contains(&c);
        let hidden = "\u{202e}\u{2066}\u{200b}\u{feff}\u{fffe}\u{ffff}";
        assert!(!svg.contains(|c: char| wrong(c) || hidden.contains(c)), "{odd:?}");
    }
}
