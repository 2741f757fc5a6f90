use proptest::prelude::*;

use super::*;
use crate::testing::{answers, frames_profile, functions, mapping, processes, snapshot};
use profile::{Builder, Column, Label, LabelSetId, LabelValue, LocationId, StrId};

fn regex(text: &str) -> Option<Regex> {
    Some(text.parse().unwrap())
}

/// Each sample as `leaf<caller<root {key=value} values`, sorted.
fn rows(profile: &Profile) -> Vec<String> {
    let name = |line: &profile::Line| profile.str(profile.functions[line.function.0 as usize].name);
    let location = |&id: &LocationId| {
        let lines: Vec<&str> = profile.lines_of(id).iter().map(name).collect();
        lines.join("+")
    };
    let label =
        |l: &Label| format!("{}={}", profile.str(l.key), crate::label_text(profile, l.value));
    let mut rows: Vec<String> = (0..profile.samples.len())
        .map(|i| {
            let sample = profile.samples[i];
            let stack: Vec<String> =
                profile.stacks.get(sample.stack).iter().map(location).collect();
            let mut labels: Vec<String> =
                profile.labels.get(sample.labels).iter().map(label).collect();
            labels.sort();
            let values: Vec<String> =
                profile.values_of(i).iter().map(ToString::to_string).collect();
            let labels = if labels.is_empty() {
                String::new()
            } else {
                format!(" {{{}}}", labels.join(" "))
            };
            format!("{}{labels} {}", stack.join("<"), values.join(" "))
        })
        .collect();
    rows.sort();
    rows
}

fn kept(filter: &Filter, profile: &Profile) -> Vec<String> {
    let filtered = filter.apply(profile.clone());
    assert_eq!(filtered.unmatched, [], "{filter:?}");
    rows(&filtered.profile)
}

/// `leaf1+mid` is one location: `leaf1` inlined into `mid`.
fn inlined() -> Profile {
    let mut b = Builder::new(&[("samples", "count")]);
    let app = mapping(&mut b, "/bin/app", 0x1000);
    let lib = mapping(&mut b, "/lib/x.so", 0x20000);
    let main = functions(&mut b, Some(app), 0x1000, &[("main", "main.c", 1)]);
    let both = functions(&mut b, Some(app), 0x1010, &[("leaf1", "l.h", 2), ("mid", "m.c", 3)]);
    let outer = functions(&mut b, Some(app), 0x1020, &[("outer", "o.c", 4)]);
    let bare = b.location(Some(lib), 0x20010);
    b.add(&[both, outer, main], LabelSetId::EMPTY, 1, &[]);
    b.add(&[bare, both, outer, main], LabelSetId::EMPTY, 1, &[]);
    b.add(&[outer, outer, main], LabelSetId::EMPTY, 1, &[]);
    b.finish(None)
}

#[test]
fn frames_are_hidden_shown_and_cut() {
    let p = inlined();
    let hide = Filter { hide: regex("^leaf1$"), ..Filter::default() };
    assert_eq!(kept(&hide, &p), ["<mid<outer<main 1", "mid<outer<main 1", "outer<outer<main 1"]);
    let show = Filter { show: regex("mid|main"), ..Filter::default() };
    assert_eq!(kept(&show, &p), ["main 1", "mid<main 2"]);
    // As in pprof, a frame without a function is not shown, even if its binary matches.
    let show = Filter { show: regex("x.so|outer"), ..Filter::default() };
    assert_eq!(kept(&show, &p), ["outer 2", "outer<outer 1"]);
    let from = Filter { show_from: regex("leaf1"), ..Filter::default() };
    assert_eq!(kept(&from, &p), ["<leaf1 1", "leaf1 1"]);
    let from = Filter { show_from: regex("outer"), ..Filter::default() };
    assert_eq!(kept(&from, &p), ["<leaf1+mid<outer 1", "leaf1+mid<outer 1", "outer<outer 1"]);
    let prune = Filter { prune_from: regex("^mid$|^outer$"), ..Filter::default() };
    assert_eq!(kept(&prune, &p), ["mid<outer<main 2", "outer<outer<main 1"]);
    let binary = Filter { binary: Some(Selector::new("x.so")), ..Filter::default() };
    assert_eq!(kept(&binary, &p), ["<leaf1+mid<outer<main 1"]);
}

#[test]
fn a_profile_drops_its_own_frames() {
    let mut p = inlined();
    p.drop_frames = p.strings.intern("leaf.|outer");
    p.keep_frames = p.strings.intern("outer");
    // The location of leaf1 keeps its outer frame; frames below it are gone.
    assert_eq!(kept(&Filter::default(), &p), ["mid<outer<main 2", "outer<outer<main 1"]);
    p.keep_frames = StrId::EMPTY;
    assert_eq!(kept(&Filter::default(), &p), ["main 3"]);
    p.drop_frames = p.strings.intern("main");
    // No frame before the first one that stays.
    assert_eq!(rows(&Filter::default().apply(p.clone()).profile), rows(&inlined()));
    p.drop_frames = p.strings.intern("(");
    assert_eq!(rows(&Filter::default().apply(p).profile), rows(&inlined()));
}

#[test]
fn frames_are_dropped_once() {
    let mut p = processes();
    // The outermost frame, which stays until another one is below it.
    p.drop_frames = p.strings.intern("serve");
    let filters = [
        Filter { tag_root: vec!["process".to_owned()], ..Filter::default() },
        Filter { focus: regex("query"), ..Filter::default() },
    ];
    let both = Filter { focus: filters[1].focus.clone(), ..filters[0].clone() };
    let expected = kept(&both, &p);
    assert!(!expected.is_empty());
    let [root, focus] = filters.map(|filter| move |p: Profile| filter.apply(p).profile);
    assert_eq!(rows(&focus(root(p))), expected);
}

/// Samples with `bytes` 1024 to 4096, `request` without a unit, and `key`.
fn tagged() -> Profile {
    let mut b = Builder::new(&[("objects", "count")]);
    let main = functions(&mut b, None, 1, &[("main", "", 0)]);
    for (bytes, text) in [(1024, "a"), (2048, "b"), (4096, "ab")] {
        let strings = &mut b.profile.strings;
        let unit = strings.intern("bytes");
        let text = LabelValue::Str(strings.intern(text));
        let number = |value, unit| LabelValue::Num { value, unit };
        let labels = [
            Label { key: strings.intern("bytes"), value: number(bytes, unit) },
            Label { key: strings.intern("request"), value: number(bytes, StrId::EMPTY) },
            Label { key: strings.intern("key"), value: text },
        ];
        let labels = b.profile.labels.intern(&labels);
        b.add(&[main], labels, 0, &[(Column(0), 1)]);
    }
    b.finish(None)
}

#[test]
fn labels_select_as_in_pprof() {
    let p = tagged();
    let count = |text: &str| {
        let focus = Filter { tag_focus: Some(TagMatch::parse(text).unwrap()), ..Filter::default() };
        let ignore =
            Filter { tag_ignore: Some(TagMatch::parse(text).unwrap()), ..Filter::default() };
        let count = focus.apply(p.clone()).profile.samples.len();
        assert_eq!(ignore.apply(p.clone()).profile.samples.len(), 3 - count, "{text}");
        count
    };
    for (text, expected) in [
        ("1kb", 1),
        ("1kb:2kb", 2),
        (":2kb", 2),
        ("2kb:", 2),
        ("bytes=2048b", 1),
        ("request=2kb:", 2),
        ("other=2kb:", 0),
        ("1s:", 0),
        // Regular expressions: all of them have to match one of `key:value`.
        ("a", 2),
        ("a,b", 1),
        ("key:b", 1),
        // One of them has to match the value of the key.
        ("key=a,b", 3),
        ("key=^b", 1),
        ("bytes=a", 0),
        ("=a", 2),
    ] {
        assert_eq!(count(text), expected, "{text}");
    }
    assert!(matches!(TagMatch::parse("99999999999999999999kb"), Err(TagError::TooLarge(_))));
    assert!(matches!(TagMatch::parse("a,("), Err(TagError::Regex(part, _)) if part == "("));
}

#[test]
fn labels_are_shown_hidden_and_made_frames() {
    let p = tagged();
    let show = Filter { tag_show: regex("key|bytes"), tag_hide: regex("b"), ..Filter::default() };
    assert_eq!(kept(&show, &p), ["main {key=ab} 1", "main {key=a} 1", "main {key=b} 1"]);
    let hide = Filter { tag_hide: regex(""), ..Filter::default() };
    assert_eq!(kept(&hide, &p), ["main 3"]);
    let frames = Filter {
        tag_root: vec!["key".into(), "bytes".into()],
        tag_leaf: vec!["request".into(), "none".into()],
        tag_hide: regex(""),
        ..Filter::default()
    };
    assert_eq!(
        kept(&frames, &p),
        [
            "[no none]<1024<main<1kB<a 1",
            "[no none]<2048<main<2kB<b 1",
            "[no none]<4096<main<4kB<ab 1",
        ]
    );
    // Filters by name apply to these frames.
    let focus = Filter { focus: regex("^ab$"), tag_root: vec!["key".into()], ..Filter::default() };
    assert_eq!(focus.apply(p).profile.samples.len(), 1);
}

#[test]
fn threads_and_processes_are_names_ids_or_expressions() {
    let p = snapshot();
    let count = |process: Option<&str>, thread: Option<&str>| {
        let process = process.map(Selector::new);
        let thread = thread.map(Selector::new);
        Filter { process, thread, ..Filter::default() }.apply(p.clone()).profile.samples.len()
    };
    assert_eq!(count(Some("server"), None), 4);
    assert_eq!(count(Some("20"), None), 1);
    assert_eq!(count(Some("^serv"), None), 4);
    assert_eq!(count(Some("server"), Some("12")), 1);
    assert_eq!(count(None, Some("(")), 0);
    let none = Filter { thread: Some(Selector::new("x")), ..Filter::default() };
    assert_eq!(none.apply(p).unmatched, [Condition::Thread]);
}

#[test]
fn conditions_without_effect_are_reported() {
    let nothing = || regex("^nothing$");
    let all = Filter {
        ignore: nothing(),
        hide: nothing(),
        tag_ignore: Some(TagMatch::parse("nothing").unwrap()),
        tag_hide: nothing(),
        prune_from: nothing(),
        tag_root: vec!["missing".into()],
        ..Filter::default()
    };
    let unmatched = all.apply(processes()).unmatched;
    use Condition::{Hide, Ignore, PruneFrom, TagHide, TagIgnore, TagRoot};
    assert_eq!(unmatched, [TagRoot, Hide, Ignore, TagIgnore, TagHide, PruneFrom]);
    let focus = Filter { focus: nothing(), ..Filter::default() }.apply(processes());
    assert_eq!(focus.unmatched, [Condition::Focus]);
    assert_eq!(focus.profile.samples.len(), 0);
    let all = focus.profile.unfiltered.unwrap();
    assert_eq!((all.samples, all.types[0].sum), (2, 4));
}

#[test]
fn a_deep_recursion_is_cut() {
    let mut b = Builder::new(&[("samples", "count")]);
    let main = functions(&mut b, None, 1, &[("main", "", 0)]);
    let again = functions(&mut b, None, 2, &[("again", "", 0)]);
    let mut stack = vec![again; 10_000];
    stack.push(main);
    b.add(&stack, LabelSetId::EMPTY, 1, &[]);
    let p = b.finish(None);
    let filter = Filter { show_from: regex("again"), hide: regex("main"), ..Filter::default() };
    let filtered = filter.apply(p).profile;
    assert_eq!(filtered.stacks.get(filtered.samples[0].stack).len(), 10_000);
}

/// A profile with stacks of some of the frames of [`frames_profile`], and values of both signs.
fn random() -> impl Strategy<Value = Profile> {
    prop::collection::vec((prop::collection::vec(0u32..5, 0..6), -20i64..100), 0..40).prop_map(
        |stacks| {
            let mut p = frames_profile();
            (p.samples, p.values) = (Vec::new(), Vec::new());
            for (stack, value) in stacks {
                let frames: Vec<_> = stack.into_iter().map(LocationId).collect();
                let stack = p.stacks.push(&frames);
                p.samples.push(profile::SampleRow {
                    stack,
                    labels: LabelSetId::EMPTY,
                    times: profile::TimesId::NONE,
                });
                p.values.push(value);
            }
            p
        },
    )
}

proptest! {
    #[test]
    fn focus_and_ignore_divide_the_whole(p in random(), text in "[a-z_.]{0,3}|inner|outer|libx") {
        let focus = Filter { focus: text.parse().ok(), ..Filter::default() };
        let ignore = Filter { ignore: text.parse().ok(), ..Filter::default() };
        let kept = [focus, ignore].map(|filter| filter.apply(p.clone()).profile);
        prop_assert_eq!(kept[0].total(0) + kept[1].total(0), p.total(0));
        for part in &kept {
            prop_assert_eq!(part.unfiltered_total(0), p.total(0));
        }
    }

    #[test]
    fn frames_go_and_values_stay(p in random(), text in "[a-z_.]{1,3}|inner|outer|libx") {
        let prune = Filter { prune_from: text.parse().ok(), ..Filter::default() };
        prop_assert_eq!(prune.apply(p.clone()).profile.total(0), p.total(0));
    }
}

#[test]
fn the_answers_stay_without_a_filter() {
    let p = answers();
    let same = Filter::default().apply(p.clone());
    assert_eq!(rows(&same.profile), rows(&p));
    assert!(same.profile.unfiltered.is_none() && same.unmatched.is_empty());
}
