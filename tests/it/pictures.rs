//! Pictures in a browser, as a reader sees and uses them.

use std::path::{Path, PathBuf};

use profile::{Builder, Column, Label, LabelSetId, LabelValue};
use serde_json::{Value, json};

use crate::common::browser::{Browser, WINDOWS};
use crate::common::{Prof, Running, needs, temp_dir, until, views};
use crate::flame::with_a_deep_stack;

/// What a page can be asked.
const PAGE: &str = "
    const bar = document.querySelector('.bar');
    const box = name => [...document.querySelectorAll('#frames > g')]
        .find(g => g.querySelector('title').textContent.startsWith(name + ' ('));
    const place = e => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
    const seen = e => { const [l, t, r, b] = place(e); return r > 0 && b > 0 && l < innerWidth && t < innerHeight; };
    const middle = e => { const [l, t, r, b] = place(e); return [(l + r) / 2, (t + b) / 2]; };
";

struct Page {
    browser: Browser,
}

impl Page {
    #[track_caller]
    fn ask(&mut self, expression: &str) -> Value {
        self.browser.evaluate(&format!("(() => {{ {PAGE} return {expression}; }})()"))
    }

    #[track_caller]
    fn text(&mut self, expression: &str) -> String {
        self.ask(expression).as_str().expect(expression).to_owned()
    }

    #[track_caller]
    fn number(&mut self, expression: &str) -> f64 {
        self.ask(expression).as_f64().expect(expression)
    }

    #[track_caller]
    fn holds(&mut self, expression: &str) -> bool {
        self.ask(expression).as_bool().expect(expression)
    }

    /// Waits until an expression holds.
    #[track_caller]
    fn until(&mut self, expression: &str) {
        until(|| self.holds(expression));
    }

    /// Clicks in the middle of a box.
    #[track_caller]
    fn click(&mut self, name: &str) {
        let place = self.ask(&format!("middle(box('{name}').querySelector('rect'))"));
        self.browser.click(place[0].as_f64().unwrap(), place[1].as_f64().unwrap());
    }

    /// The text about the selected box.
    fn details(&mut self) -> String {
        self.text("bar.querySelector('.details').textContent")
    }

    /// The text about what was found.
    fn matched(&mut self) -> String {
        self.text("bar.querySelector('.matched').textContent")
    }

    /// Number of boxes that are drawn.
    fn drawn(&mut self) -> f64 {
        self.number("document.querySelectorAll('#frames > g:not(.hide)').length")
    }
}

/// `prof flame` of a profile of the tests' data, or another file.
fn picture(dir: &Path, name: &str, args: &str) -> PathBuf {
    let file = dir.join(name);
    Prof::new(dir, args).arg("-o").arg(&file).run().ok();
    file
}

/// Opens a page; `None` if there is no browser.
#[track_caller]
fn page() -> Option<Page> {
    Some(Page { browser: Browser::start()? })
}

/// Share of the window that is not of the page's colour, in percent.
fn covered(colors: &[(String, u64)], page: &str) -> f64 {
    let all: u64 = colors.iter().map(|(_, count)| count).sum();
    let empty: u64 = colors.iter().filter(|(c, _)| c == page).map(|(_, count)| count).sum();
    100.0 * (all - empty) as f64 / all as f64
}

const LIGHT: &str = "252,252,250";
const DARK: &str = "27,27,29";

/// The ten widest boxes, those of the first rows among them, and the line with the search.
#[track_caller]
fn assert_first_screen(page: &mut Page, file: &Path, what: &str) {
    for window in WINDOWS {
        page.browser.open(file, window, "light");
        let widest = page.ask(
            "[...document.querySelectorAll('#frames > g')]
                .map(g => [parseInt(g.querySelector('rect').getAttribute('fg:w')), g])
                .sort((a, b) => b[0] - a[0] || a[1].getAttribute('aria-level') - b[1].getAttribute('aria-level'))
                .slice(0, 10).filter(([_, g]) => !seen(g)).map(([_, g]) => g.textContent)",
        );
        assert_eq!(widest, json!([]), "{what}, {window:?}");
        assert!(page.holds("seen(bar)"), "{what}, {window:?}");
        let covered = covered(&page.browser.screenshot(), LIGHT);
        // A few rows, which --width makes 1000 pixels wide, and the texts.
        assert!(covered > 2.0, "{what}, {window:?}: {covered} % of the window");
    }
}

#[test]
fn a_window_opens_on_the_roots_and_the_widest_boxes() {
    let Some(mut page) = page() else { return };
    let dir = temp_dir();
    with_a_deep_stack(dir.path());
    for (name, options) in [
        ("plain.svg", ""),
        ("stacked.svg", "--flame"),
        ("diff.svg", "--diff deep.pb.gz"),
        ("sandwich.svg", "--sandwich main"),
        ("fixed.svg", "--width 1000"),
    ] {
        let args = format!("flame deep.pb.gz --min-width 0 {options}");
        let file = picture(dir.path(), name, &args);
        assert_first_screen(&mut page, &file, options);
    }
    // With 300 callers above, the function is in the middle.
    let file = picture(dir.path(), "deep.svg", "flame deep.pb.gz --min-width 0 --sandwich deep299");
    page.browser.open(&file, WINDOWS[0], "light");
    assert!(page.holds("seen(box('deep299')) && seen(bar) && scrollY > 3000"));
}

/// Of real programs: an interpreter and a whole machine have deep stacks.
#[test]
fn a_window_opens_on_the_widest_boxes_of_a_machine() {
    let Some(mut page) = page() else { return };
    let dir = temp_dir();
    let script = "import json\nwhile True: json.loads(json.dumps([{'a': [1] * 100}] * 100))";
    let _python = Running::start(std::process::Command::new("python3").args(["-c", script]));
    for args in ["flame -a -d 1", "flame -a -T wall -d 1"] {
        let file = picture(dir.path(), "out.svg", args);
        assert_first_screen(&mut page, &file, args);
        for scheme in ["light", "dark"] {
            page.browser.open(&file, WINDOWS[0], scheme);
            assert_contrast(&mut page, &format!("{args}, {scheme}"));
        }
    }
}

/// Opens the flame graph of [`views::known`]; `None` if there is no browser.
#[track_caller]
fn known_page(options: &str) -> Option<(Page, tempfile::TempDir, PathBuf)> {
    let mut page = page()?;
    let dir = temp_dir();
    views::known(dir.path());
    let args = format!("flame known.pb.gz --type cpu {options}");
    let file = picture(dir.path(), "known.svg", &args);
    page.browser.open(&file, WINDOWS[0], "light");
    Some((page, dir, file))
}

#[test]
fn boxes_are_found_selected_and_copied_by_keys() {
    let Some((mut page, _dir, file)) = known_page("") else { return };
    let all = page.drawn();
    // Zoom into a box and back.
    page.click("foo1");
    assert!(page.details().starts_with("foo1  cpu 4.00 s, 44.44%"), "{}", page.details());
    assert!(page.drawn() < all);
    page.browser.press("Escape");
    assert_eq!(page.drawn(), all);
    // A search as it is typed, with all matches in turn.
    page.browser.press("/");
    page.browser.write("Foo");
    assert_eq!(page.matched(), "0 boxes");
    page.browser.press("Escape");
    page.browser.press("/");
    page.browser.write("^ba");
    assert_eq!(page.matched(), "2 boxes, 55.6%");
    page.browser.press("Enter");
    assert_eq!(page.matched(), "1 of 2 boxes, 55.6%");
    page.browser.press("Enter");
    assert_eq!(page.matched(), "2 of 2 boxes, 55.6%");
    assert!(page.details().starts_with("bar "), "{}", page.details());
    assert_eq!(page.number("document.querySelectorAll('.found').length"), 2.0);
    page.browser.press("Escape");
    assert_eq!((page.matched().as_str(), page.details().is_empty()), ("", false));
    // An incomplete expression is a text.
    page.browser.press("/");
    page.browser.write("(");
    assert_eq!(page.matched(), "0 boxes");
    page.browser.press("Escape");
    // From the root along the arrows.
    page.browser.open(&file, WINDOWS[0], "light");
    let mut path = Vec::new();
    for key in ["ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowUp"] {
        page.browser.press(key);
        path.push(page.details().split(' ').next().unwrap().to_owned());
    }
    assert_eq!(path, ["all", "main", "foo1", "foo2", "foo1", "main"]);
    page.browser.press("ArrowDown");
    page.browser.press("Enter");
    assert!(page.drawn() < all, "Enter zooms");
    // The page says what it is, and which box is selected.
    assert_eq!(page.text("document.title"), page.text("frames.getAttribute('aria-label')"));
    assert_eq!(page.text("document.activeElement.getAttribute('role')"), "treeitem");
    assert_eq!(page.number("document.querySelectorAll('#frames > g[tabindex=\"0\"]').length"), 1.0);
    // The name is copied; where a page may not write to the clipboard, it is selected.
    page.browser.call("Emulation.setFocusEmulationEnabled", json!({"enabled": true}));
    let reading = json!({"permissions": ["clipboardReadWrite"]});
    page.browser.call("Browser.grantPermissions", reading);
    page.browser.press("c");
    page.until("getSelection().toString() == 'foo1'");
    let writing = json!({"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]});
    page.browser.call("Browser.grantPermissions", writing);
    page.browser.press("c");
    page.until("bar.querySelector('button').textContent == 'Copied'");
    let copied = page.browser.evaluate("navigator.clipboard.readText()");
    assert_eq!(copied, "foo1");
}

#[test]
fn both_sides_of_a_sandwich_follow_a_zoom() {
    let Some((mut page, _dir, _)) = known_page("--sandwich foo1") else { return };
    let all = page.drawn();
    page.click("bar");
    // Its function and the callers remain, the box is as wide as the page.
    assert_eq!(page.drawn(), all);
    let width = "const [l, , r] = place(box('bar').querySelector('rect')); return r - l;";
    let wide = page.browser.evaluate(&format!("(() => {{ {PAGE} {width} }})()"));
    assert!(wide.as_f64().unwrap() > 1200.0, "{wide}");
    page.browser.press("Escape");
    let wide = page.browser.evaluate(&format!("(() => {{ {PAGE} {width} }})()"));
    assert!(wide.as_f64().unwrap() < 1000.0, "{wide}");
}

/// The lowest contrast of a text to what it stands on, as the Web Content Accessibility Guidelines
/// define it, and the text.
const CONTRAST: &str = "(() => {
    const numbers = color => color.match(/[\\d.]+/g).map(Number);
    const over = (top, below) => {
        const [r, g, b, a = 1] = top;
        return [r, g, b].map((c, i) => c * a + below[i] * (1 - a));
    };
    const light = color => {
        const [r, g, b] = color.map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const page = numbers(getComputedStyle(document.documentElement).backgroundColor);
    let worst = [Infinity, ''];
    const check = (text, fill, below) => {
        const found = contrast(light(over(numbers(fill), below)), light(below));
        if (found < worst[0]) worst = [found, text + ' ' + fill + ' on ' + below];
    };
    for (const g of document.querySelectorAll('#frames > g:not(.hide)')) {
        const text = g.querySelector('text'), rect = getComputedStyle(g.querySelector('rect'));
        if (!text.textContent) continue;
        const [r, g_, b] = numbers(rect.fill);
        check(text.textContent, getComputedStyle(text).fill, over([r, g_, b, Number(rect.fillOpacity)], page));
    }
    for (const id of ['title', 'subtitle']) {
        const e = document.getElementById(id);
        check(e.textContent, getComputedStyle(e).fill, page);
    }
    for (const e of document.querySelectorAll('.bar, .bar *')) check(e.className, getComputedStyle(e).color, page);
    return worst;
})()";

#[track_caller]
fn assert_contrast(page: &mut Page, what: &str) {
    let worst = page.browser.evaluate(CONTRAST);
    assert!(worst[0].as_f64().unwrap() >= 4.5, "{what}: {worst}");
}

#[test]
fn texts_have_contrast_in_light_and_dark() {
    let Some(mut page) = page() else { return };
    let dir = temp_dir();
    let (_, _) = (views::known(dir.path()), with_a_deep_stack(dir.path()));
    let mut files = Vec::new();
    for scheme in ["language", "package", "kernel", "self", "total"] {
        let args = format!("flame known.pb.gz --type cpu --colors {scheme}");
        files.push(picture(dir.path(), &format!("{scheme}.svg"), &args));
    }
    files.push(picture(dir.path(), "deep.svg", "flame deep.pb.gz --min-width 0"));
    files.push(picture(
        dir.path(),
        "diff.svg",
        "flame known.pb.gz --diff deep.pb.gz --type samples",
    ));
    for file in &files {
        for (scheme, color) in [("light", LIGHT), ("dark", DARK)] {
            page.browser.open(file, WINDOWS[0], scheme);
            for zoomed in [false, true] {
                if zoomed {
                    // Boxes below the selected one are drawn faintly.
                    page.browser.press("ArrowDown");
                    page.browser.press("ArrowDown");
                    page.browser.press("ArrowDown");
                    page.browser.press("Enter");
                }
                let what = format!("{}, {scheme}, zoomed: {zoomed}", file.display());
                assert_contrast(&mut page, &what);
            }
            let colors = page.browser.screenshot();
            assert_eq!(colors[0].0, color, "the page has the reader's colour");
        }
    }
}

/// A program in C whose functions have no self value, so that the boxes on them touch.
fn with_cousins(dir: &Path) {
    let mut b = Builder::new(&[("samples", "count")]);
    let main = b.named_location("main");
    for parent in 0..40 {
        let caller = b.named_location(&format!("caller{parent}"));
        for child in 0..3 {
            let leaf = b.named_location(&format!("leaf{parent}_{child}"));
            b.add(&[leaf, caller, main], LabelSetId::EMPTY, 1, &[]);
        }
    }
    let file = std::fs::File::create(dir.join("cousins.pb.gz")).unwrap();
    formats::pprof::write(&b.finish(None), file).unwrap();
}

/// Boxes that touch, of a program in C: each differs from the one below it and from those beside it.
#[test]
fn boxes_of_one_language_can_be_told_apart() {
    let Some(mut page) = page() else { return };
    let dir = temp_dir();
    with_a_deep_stack(dir.path());
    with_cousins(dir.path());
    for name in ["deep", "cousins"] {
        let args = format!("flame {name}.pb.gz --min-width 0");
        let file = picture(dir.path(), "out.svg", &args);
        page.browser.open(&file, WINDOWS[0], "light");
        let found = page.ask(
            "(() => {
                const boxes = [...document.querySelectorAll('#frames > g > rect')].map(rect => ({
                    x: +rect.getAttribute('fg:x'), w: +rect.getAttribute('fg:w'),
                    y: +rect.getAttribute('y'),
                    color: getComputedStyle(rect).fill.match(/\\d+/g).map(Number),
                }));
                const alike = (a, b) => Math.hypot(...a.color.map((c, i) => c - b.color[i])) < 24;
                const touch = (a, b) => a.y == b.y ? a.x + a.w == b.x
                    : b.y - a.y == 16 && a.x <= b.x && b.x < a.x + a.w;
                const pairs = boxes.flatMap(a => boxes.filter(b => touch(a, b)).map(b => [a, b]));
                return [pairs.length, pairs.filter(([a, b]) => alike(a, b)).length];
            })()",
        );
        let pairs = found[0].as_u64().unwrap();
        assert!(pairs > 200 && found[1] == 0, "{name}: {found}");
    }
}

#[test]
fn an_address_of_another_drawing_does_no_harm() {
    let Some((mut page, _dir, file)) = known_page("") else { return };
    for address in ["?x=123456&y=92&s=bar", "?s=100%25&x=1", "?s=bar&x=%E0%A4%A"] {
        page.browser.open(Path::new(&format!("{}{address}", file.display())), WINDOWS[0], "light");
        assert!(page.holds("bar.querySelector('input').value != ''"), "{address}");
        page.click("foo1");
        assert!(page.details().starts_with("foo1 "), "{address}");
    }
    // A box beyond a zoom ends it, in the address, too.
    page.browser.open(&file, WINDOWS[0], "light");
    page.click("foo2");
    assert!(page.holds("location.search.includes('x=')"));
    page.browser.press("/");
    page.browser.write("foo1");
    page.browser.press("Enter");
    assert!(page.details().starts_with("foo1 "));
    assert!(page.holds("location.search == '?s=foo1'"), "{}", page.text("location.search"));
}

#[test]
fn a_drawing_in_another_page_leaves_that_alone() {
    let Some(mut page) = page() else { return };
    let dir = temp_dir();
    views::known(dir.path());
    for command in ["flame known.pb.gz --type cpu", "graph known.pb.gz --type cpu"] {
        if command.starts_with("graph") && !needs(&["dot"]) {
            continue;
        }
        let file = picture(dir.path(), "known.svg", command);
        let svg = std::fs::read_to_string(&file).unwrap();
        let svg = &svg[svg.find("<svg").unwrap()..];
        let svg = svg.replace("<![CDATA[", "").replace("]]>", "");
        let html = format!("<!DOCTYPE html><svg id=logo></svg><textarea></textarea>{svg}");
        let file = dir.path().join("page.html");
        std::fs::write(&file, html).unwrap();
        page.browser.open(&file, WINDOWS[0], "dark");
        page.browser.evaluate("document.querySelector('textarea').focus()");
        page.browser.write("n/c0+-");
        let typed = page.browser.evaluate("document.querySelector('textarea').value");
        assert_eq!(typed, "n/c0+-", "{command}");
        assert_eq!(page.browser.evaluate("document.getElementById('logo').childNodes.length"), 0);
        let color = "getComputedStyle(document.body).backgroundColor";
        assert_eq!(page.browser.evaluate(color), "rgba(0, 0, 0, 0)", "{command}");
    }
}

/// A profile whose title, subtitle and legend are long: all states, and much that is left out.
fn with_a_long_head(dir: &Path) {
    let mut b = Builder::new(&[("wall", "nanoseconds")]);
    let main = b.named_location("main");
    let keys = ["state", "process"].map(|key| b.profile.strings.intern(key));
    let states = ["running", "runnable", "sleeping", "uninterruptible", "stopped", "other"];
    for (i, state) in states.into_iter().enumerate() {
        let process = format!("process{i}");
        let labels: Vec<Label> = keys
            .iter()
            .zip([state, &process])
            .map(|(&key, text)| Label {
                key,
                value: LabelValue::Str(b.profile.strings.intern(text)),
            })
            .collect();
        let labels = b.profile.labels.intern(&labels);
        let leaf = b.named_location(&format!("leaf{i}"));
        b.add(&[leaf, main], labels, 0, &[(Column(0), 1_000_000)]);
    }
    let mut profile = b.finish(None);
    profile.duration_nanos = 98_765_432_109;
    let file = std::fs::File::create(dir.join("head.pb.gz")).unwrap();
    formats::pprof::write(&profile, file).unwrap();
}

#[test]
fn the_lines_above_the_boxes_are_whole_in_small_windows() {
    let Some(mut page) = page() else { return };
    let dir = temp_dir();
    with_a_long_head(dir.path());
    let filters = "--focus 'main|leaf[0-9]|a long expression of what is kept|another part of it' \
                   --hide 'what is not there|nor this|nor that' --ignore leaf0";
    let (mut wrapped, mut heads) = (0, Vec::new());
    for options in ["", "--flame", "--sandwich main", "--width 500", "--diff head.pb.gz"] {
        let filters = if options.starts_with("--diff") { "" } else { filters };
        let file = dir.path().join("out.svg");
        let line = format!(
            "{} flame head.pb.gz {options} {filters} -o out.svg",
            env!("CARGO_BIN_EXE_prof")
        );
        let status =
            std::process::Command::new("sh").args(["-c", &line]).current_dir(&dir).status();
        assert!(status.unwrap().success(), "{line}");
        for window in [(1024, 720), (1280, 720)] {
            page.browser.open(&file, window, "light");
            page.browser.evaluate("scrollTo(0, 0)");
            for id in ["title", "subtitle"] {
                let place = page.ask(&format!("place(document.getElementById('{id}'))"));
                let [left, right] = [0, 2].map(|i| place[i].as_f64().unwrap());
                assert!(left >= 0.0 && right <= f64::from(window.0), "{options}: {id}: {place}");
            }
            let lines = page.number("document.getElementById('subtitle').getClientRects().length");
            let lines =
                lines.max(page.number("document.querySelectorAll('#subtitle > tspan[dy]').length"));
            wrapped = wrapped.max(lines as usize);
            heads.push(page.text("document.getElementById('subtitle').innerHTML"));
            // Neither the search nor a box is over the lines.
            assert!(
                page.holds(
                    "(() => {
                        const end = place(document.getElementById('subtitle'))[3];
                        const tops = [bar, ...document.querySelectorAll('#frames > g')].map(e => place(e)[1]);
                        const below = inverted ? place(bar)[3] : 0;
                        return Math.min(...tops) >= end - 1 && Math.min(...tops.slice(1)) >= below - 1;
                    })()"
                ),
                "{options}, {window:?}"
            );
        }
    }
    assert!(wrapped > 1, "no line was wrapped: {heads:?}");
}

#[test]
fn a_call_graph_opens_on_its_root_at_a_legible_size() {
    if !needs(&["dot"]) {
        return;
    }
    let Some(mut page) = page() else { return };
    let dir = temp_dir();
    views::known(dir.path());
    with_a_deep_stack(dir.path());
    with_cousins(dir.path());
    let deep = picture(dir.path(), "deep.svg", "graph deep.pb.gz --nodefraction 0 -n 200");
    let wide = picture(dir.path(), "wide.svg", "graph cousins.pb.gz --nodefraction 0 -n 200");
    let small = picture(dir.path(), "small.svg", "graph known.pb.gz --type cpu");
    // The root, and the function with the largest value of its own.
    for (file, root, largest) in
        [(deep, "main", "wide"), (wide, "main", ""), (small, "main", "bar")]
    {
        for window in WINDOWS {
            page.browser.open(&file, window, "dark");
            let node = |name: &str| {
                format!(
                    "[...document.querySelectorAll('.node')].find(n => n.querySelector('text').textContent == '{name}')"
                )
            };
            let pixels = |name: &str| {
                format!("{}.querySelector('text').getBoundingClientRect().height", node(name))
            };
            assert!(page.holds(&format!("seen({})", node(root))), "{file:?} in {window:?}");
            let height = page.number(&pixels(root));
            assert!((10.0..80.0).contains(&height), "{file:?} in {window:?}: {height} pixels");
            let title = "document.querySelector('.graph-title')";
            assert!(page.holds(&format!("seen({title})")), "{file:?} in {window:?}");
            let name = page.text(&format!("{title}.textContent"));
            assert!(!name.is_empty() && name == page.text("document.title"), "{name}");
            page.browser.press("-");
            assert!(page.number(&pixels(root)) < height, "keys scale");
            if !largest.is_empty() {
                page.browser.press("End");
                assert!(page.holds(&format!("seen({})", node(largest))), "{file:?} in {window:?}");
                let height = page.number(&pixels(largest));
                assert!((10.0..80.0).contains(&height), "{file:?} in {window:?}: {height} pixels");
            }
            page.browser.press("Home");
            assert!(page.holds(&format!("seen({})", node(root))), "{file:?} in {window:?}");
            assert_eq!(page.number(&pixels(root)), height);
            // All of it, also in a window of another size.
            page.browser.press("0");
            let all = "[...document.querySelectorAll('.node')].every(seen)";
            assert!(page.holds(all));
            page.browser.resize((window.0 / 2, window.1 / 2));
            page.until(all);
            assert_eq!(page.browser.screenshot()[0].0, DARK);
        }
    }
}

#[test]
fn functions_of_a_call_graph_are_searched() {
    if !needs(&["dot"]) {
        return;
    }
    let Some(mut page) = page() else { return };
    let dir = temp_dir();
    with_cousins(dir.path());
    let file = picture(dir.path(), "wide.svg", "graph cousins.pb.gz --nodefraction 0 -n 200");
    page.browser.open(&file, WINDOWS[0], "light");
    page.browser.press("/");
    page.browser.write("LEAF7_");
    assert_eq!(page.matched(), "0 functions");
    page.browser.press("Escape");
    assert_eq!(page.matched(), "");
    page.browser.press("/");
    page.browser.write("leaf7_");
    assert_eq!(page.matched(), "3 functions");
    for number in 1..=3 {
        page.browser.press("Enter");
        assert_eq!(page.matched(), format!("{number} of 3 functions"));
        assert!(page.holds("seen(document.querySelector('.node.current'))"));
    }
    let current = page.text("document.querySelector('.node.current text').textContent");
    assert!(current.starts_with("leaf7_"), "{current}");
    // What is typed is no key of the graph, and a part of an expression is a text.
    page.browser.press("Escape");
    page.browser.press("/");
    page.browser.write("0-(");
    assert_eq!(page.matched(), "0 functions");
}
