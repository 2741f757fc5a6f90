use super::*;
use crate::WriteOptions;
use crate::assembly::AddedSample;
use proptest::prelude::*;
use view::testing::{answers, processes};

fn read(text: &str) -> Result<Profile, String> {
    Speedscope.read(&mut text.as_bytes()).map_err(|error| error.to_string())
}

fn written(p: &Profile) -> String {
    let mut out = Vec::new();
    write::write(p, &WriteOptions { type_index: 0 }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Each sample as its stack, the root first, with its values.
fn content(p: &Profile) -> Vec<String> {
    let name = |line: &Line| {
        let function = &p.functions[line.function.0 as usize];
        format!("{} {}:{}", p.str(function.name), p.str(function.filename), line.line)
    };
    let mut rows: Vec<String> = (0..p.samples.len())
        .map(|row| {
            let stack = p.stacks.get(p.samples[row].stack).iter().rev();
            let names: Vec<_> = stack.flat_map(|&l| p.lines_of(l).iter().rev().map(name)).collect();
            format!("{} {:?}", names.join(";"), p.values_of(row))
        })
        .collect();
    rows.sort();
    rows
}

const FRAMES: &str =
    r#""shared":{"frames":[{"name":"main"},{"name":"work","file":"a.c","line":7}]}"#;

#[test]
fn sampled_profiles_of_several_threads_are_read() {
    let text = format!(
        r#"{{"$schema":"https://www.speedscope.app/file-format-schema.json",
        "profiles":[{{"type":"sampled","name":"t1","unit":"seconds","startValue":0,"endValue":3,
        "samples":[[0,1],[0]],"weights":[0.25,1]}},
        {{"type":"sampled","name":"t2","unit":"milliseconds","samples":[[0]],"weights":[5]}}],
        {FRAMES},"x":[[[{{}}]]]}}"#
    );
    assert!(Speedscope.detect(text.as_bytes()));
    let p = read(&text).unwrap();
    assert_eq!(p.type_names(), ["time"]);
    let expected = ["main :0 [1000000000]", "main :0 [5000000]", "main :0;work a.c:7 [250000000]"];
    assert_eq!(content(&p), expected);
    let key = p.strings.find("profile").unwrap();
    let names: Vec<_> = p.samples.iter().map(|s| p.labels.value(s.labels, key)).collect();
    assert!(names.iter().all(Option::is_some) && names[0] == names[1] && names[0] != names[2]);
}

#[test]
fn evented_profiles_of_the_first_version_are_read() {
    let text = format!(
        r#"{{"version":"0.0.1",{FRAMES},"profiles":[{{"type":"evented","name":"x","unit":"none",
        "startValue":0,"endValue":9,"events":[{{"type":"O","frame":0,"at":1}},
        {{"type":"O","frame":1,"at":3}},{{"type":"C","frame":1,"at":7}},
        {{"type":"C","frame":0,"at":8}}]}}]}}"#
    );
    assert!(Speedscope.detect(text.as_bytes()));
    assert_eq!(content(&read(&text).unwrap()), ["main :0 [3]", "main :0;work a.c:7 [4]"]);
}

fn evented(end: &str, events: &[(&str, u32, f64)]) -> Profile {
    let event = |(kind, frame, at): &(&str, u32, f64)| {
        format!(r#"{{"type":"{kind}","frame":{frame},"at":{at}}}"#)
    };
    let events: Vec<String> = events.iter().map(event).collect();
    let events = events.join(",");
    let text = format!(
        r#"{{{FRAMES},"profiles":[{{"type":"evented","unit":"none","events":[{events}]{end}}}]}}"#
    );
    read(&text).unwrap()
}

#[test]
fn rounded_values_add_up() {
    let events: Vec<_> =
        (0..40).map(|i| (["O", "C"][i as usize % 2], 0, f64::from(i) * 0.4)).collect();
    assert_eq!(evented("", &events).total(0), 8);
    let text = format!(
        r#"{{{FRAMES},"profiles":[{{"type":"sampled","unit":"none","samples":[[0],[0],[0],[0],[0]],
        "weights":[0.4,0.4,0.4,0.4,0.4]}}]}}"#
    );
    assert_eq!(read(&text).unwrap().total(0), 2);
}

#[test]
fn open_calls_last_until_the_end() {
    let events = [("O", 0, 1.0), ("O", 1, 3.0), ("C", 1, 7.0)];
    let expected = ["main :0 [4]", "main :0;work a.c:7 [4]"];
    assert_eq!(content(&evented(r#","endValue":9"#, &events)), expected);
}

#[test]
fn calls_end_with_their_callers() {
    let events =
        [("O", 0, 0.0), ("O", 1, 1.0), ("C", 0, 3.0), ("C", 1, 5.0), ("O", 1, 6.0), ("C", 1, 9.0)];
    let p = evented("", &events);
    assert_eq!(content(&p), ["main :0 [1]", "main :0;work a.c:7 [2]", "work a.c:7 [3]"]);
    let comments: Vec<_> = p.comments.iter().map(|&c| p.str(c)).collect();
    assert_eq!(comments, ["note: 1 call ended with the caller, before the end event"]);
}

#[test]
fn events_of_deep_stacks_are_read_in_linear_time() {
    let deepest = 20_000;
    let mut events = Vec::new();
    let mut event = |kind: &str, frame: u32, at: usize| {
        events.push(format!(r#"{{"type":"{kind}","frame":{frame},"at":{at}}}"#));
    };
    (0..deepest).for_each(|_| event("O", 0, 0));
    let calls = 250_000;
    for call in 0..calls {
        event("O", 1, 2 * call);
        event("C", 1, 2 * call + 1);
    }
    let events = events.join(",");
    let text = format!(
        r#"{{{FRAMES},"profiles":[{{"type":"evented","unit":"none","events":[{events}]}}]}}"#
    );
    // Each stack copied and hashed: 1e10 frames.
    let p = read(&text).unwrap();
    assert_eq!((p.total(0), p.stacks.len()), (2 * calls as i64 - 1, 2));
}

#[test]
fn all_sample_types_and_inlined_functions_are_written() {
    let before = answers();
    let text = written(&before);
    assert!(Speedscope.detect(text.as_bytes()), "{text}");
    let after = read(&text).unwrap();
    assert_eq!(after.type_names(), ["samples", "cpu"]);
    assert_eq!((0..2).map(|i| after.total(i)).collect::<Vec<_>>(), [18, 9_000_000_000]);
    assert_eq!(content(&after), content(&before));
    let text = written(&processes());
    assert!(text.contains(r#"{"name":"db"}"#), "{text}");
}

#[test]
fn wrong_files_are_refused() {
    let profile = |kind: &str| {
        format!(r#"{{{FRAMES},"profiles":[{{"type":"{kind}","unit":"none","name":"x"}}]}}"#)
    };
    let with =
        |fields: &str| profile("sampled").replace(r#""name""#, &format!(r#"{fields},"name""#));
    let evented = profile("evented");
    let event = |kind: &str, frame: u32, at: u32| {
        format!(r#"{{"type":"{kind}","frame":{frame},"at":{at}}}"#)
    };
    let events = |all: &[String]| {
        let all = all.join(",");
        evented.replace(r#""name""#, &format!(r#""events":[{all}],"name""#))
    };
    for (text, what) in [
        (with(r#""samples":[[2]],"weights":[1]"#), "frame number 2 is used, but there are 2"),
        (with(r#""samples":[[0]],"weights":[]"#), "1 samples, but 0 weights"),
        (with(r#""samples":[[-1]],"weights":[1]"#), "invalid value"),
        (profile("other"), "neither sampled nor evented"),
        (format!(r#"{{{FRAMES},"profiles":[]}}"#), "no profile"),
        (events(&[event("C", 0, 1)]), "frame 0 ends, but has not begun"),
        (events(&[event("O", 0, 5), event("C", 0, 1)]), "not in the order of time"),
        (profile("sampled")[..80].to_owned(), "EOF"),
        (format!(r#"{{"shared":{{"frames":"{}"}}}}"#, "x".repeat(1000)), "… at line 1 column"),
    ] {
        let error = read(&text).unwrap_err();
        assert!(
            error.starts_with("not valid speedscope JSON: ") && error.contains(what),
            "{error}"
        );
        assert!(error.len() < 300, "{error}");
    }
    assert!(read(&with(r#""samples":[],"weights":[]"#)).is_ok());
    let deep = "[".repeat(1 << 20);
    assert!(read(&format!(r#"{{{FRAMES},"x":{deep}"#)).is_err());
}

proptest! {
    #[test]
    fn what_both_formats_hold_survives(
        samples in proptest::collection::vec(
            (proptest::collection::vec(("[a-c\"é]{1,3}", 0..3i64), 0..5), 1..999i64, 0..9i64),
            1..20,
        )
    ) {
        let mut all = Assembly::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
        for (frames, first, second) in samples {
            let stack: Vec<_> = frames
                .iter()
                .map(|(name, line)| {
                    let function = all.function(name, "x.c", 0);
                    all.location(None, 0, &[Line { function, line: *line, column: 0 }])
                })
                .collect();
            let value = |column, value| ColumnValue { column, value };
            let values = [value(0, first), value(1, second)];
            all.add(AddedSample {
                stack: &stack,
                labels: LabelSetId::EMPTY,
                values: &values,
                time: None,
            });
        }
        let before = all.finish();
        prop_assert_eq!(content(&read(&written(&before)).unwrap()), content(&before));
    }
}
