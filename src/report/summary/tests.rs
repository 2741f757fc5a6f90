use std::sync::Arc;

use super::*;
use profile::Mapping;
use view::testing::answers;
use view::{Filter, Granularity};

fn with_comments(comments: &[&str]) -> Profile {
    let mut p = answers();
    p.comments = comments.iter().map(|c| p.strings.intern(c)).collect();
    p
}

/// Nine seconds in whole stacks, and these in a truncated one.
fn with_truncated(seconds: i64, comments: &[&str]) -> Profile {
    let mut p = with_comments(comments);
    let name = p.strings.intern("[truncated: no rules]");
    let function = profile::FunctionId(p.functions.len() as u32);
    p.functions.push(profile::Function { name, ..Default::default() });
    let end = profile::LocationId(p.locations.len() as u32);
    p.locations.push(profile::Location::default());
    p.set_lines(end, &[profile::Line { function, line: 0, column: 0 }]);
    let stack = p.stacks.push(&[end]);
    p.samples.push(profile::SampleRow { stack, ..p.samples[0] });
    p.values.extend([1, seconds * 1_000_000_000]);
    p
}

fn warned(p: &Profile, index: usize) -> Option<String> {
    warning(&View::new(p, index, Granularity::FUNCTION))
}

#[test]
fn lost_and_truncated_samples_cause_a_warning() {
    assert_eq!(warned(&with_comments(&["lost: 0", "folded: 0"]), 1), None);
    let p = with_truncated(3, &["lost: 1200", "lost: 34", "truncated: 1 of 900"]);
    // By the value that is shown: 3 of 12 s, or 3 of 21 samples. One of 19 samples is chance.
    assert_eq!(
        warned(&p, 1).unwrap(),
        "Warning: 1,234 samples were lost, 25.0% of the value is in truncated stacks; \
         see prof report --header"
    );
    assert!(!warned(&p, 0).unwrap().contains("truncated"), "{:?}", warned(&p, 0));
    let mut three = p;
    *three.values.iter_mut().rev().nth(1).unwrap() = 3;
    let several = warned(&three, 0).unwrap();
    assert!(several.contains("lost, 14.3% of the value"), "{several}");
    // Below 1 %, whatever the number of stacks.
    let mut p = with_truncated(0, &["truncated: 800 of 900"]);
    *p.values.last_mut().unwrap() = 90_000_000;
    assert_eq!(warned(&p, 1), None);
    let one = warned(&with_comments(&["lost: 1", "folded: 1"]), 1).unwrap();
    assert!(one.starts_with("Warning: 1 sample was lost, 1 stack was cut (too many);"), "{one}");
}

#[test]
fn the_period_of_time_and_counts_is_that_of_time() {
    let mut b = profile::Builder::new(&[
        ("samples", "count"),
        ("syscalls", "count"),
        ("wall", "nanoseconds"),
    ]);
    let comment = b.profile.strings.intern("samples: 7");
    b.profile.comments.push(comment);
    b.profile.period = 10_101_010;
    let mut p = b.finish(None);
    p.period_type = p.sample_types[1];
    assert_eq!(period(&p), "10.10 ms (99 Hz)");
    // A file of another tool, or no time.
    let comments = std::mem::take(&mut p.comments);
    assert_eq!(period(&p), "10,101,010 syscalls");
    p.comments = comments;
    p.sample_types.pop();
    assert_eq!(period(&p), "10,101,010 syscalls");
}

#[test]
fn a_subtitle_is_short() {
    let whole = |p: &Profile| subtitle(&View::new(p, 1, Granularity::FUNCTION));
    let mut p = answers();
    assert_eq!(whole(&p), "18 samples");
    p = with_truncated(3, &["lost: 1200", "truncated: 65 of 338"]);
    p.duration_nanos = 1_150_000_000;
    p.period = 2_004_008;
    let kind = p.strings.intern("cpu");
    let unit = p.strings.intern("nanoseconds");
    p.period_type = profile::ValueType { kind, unit };
    assert_eq!(
        whole(&p),
        "19 samples in 1.15 s at 499 Hz · 1,200 samples lost · 25.0% in truncated stacks"
    );
    p.least_period = 1_001_001;
    assert!(whole(&p).starts_with("19 samples in 1.15 s at 999 to 499 Hz ·"), "{}", whole(&p));
    assert_eq!(period(&p), "1.00 ms to 2.00 ms (999 to 499 Hz)");
    p.least_period = 0;
    let filter = Filter { focus: Some("^foo2$".parse().unwrap()), ..Filter::default() };
    let mut p = filter.apply(p).profile;
    let filtered = subtitle(&View::new(&p, 1, Granularity::FUNCTION));
    assert!(filtered.ends_with("lost · filtered: 25.00% of 12.00 s"), "{filtered}");
    let kind = p.strings.intern("cycles");
    let unit = p.strings.intern("count");
    p.period_type = profile::ValueType { kind, unit };
    p.period = 1000;
    assert!(whole(&p).starts_with("19 samples in 1.15 s every 1,000 cycles ·"), "{}", whole(&p));
}

#[test]
fn the_summary_describes_the_view() {
    let mut p = answers();
    p.duration_nanos = 18_000_000_000;
    let filter = Filter { focus: Some("^foo2$".parse().unwrap()), ..Filter::default() };
    let p = filter.apply(p).profile;
    let lines = lines(&View::new(&p, 1, Granularity::FUNCTION));
    assert_eq!(lines[0], "File: app");
    assert_eq!(lines[1], "Type: cpu [nanoseconds]; --type also: samples");
    assert_eq!(
        lines.last().unwrap(),
        "Total: 9.00 s (50.0% of the duration), of which the filter keeps 3.00 s (33.33%)"
    );
}

#[test]
fn a_recording_of_the_whole_machine_is_not_named_after_a_binary() {
    let p = with_comments(&["target: whole machine"]);
    let lines = lines(&View::new(&p, 1, Granularity::FUNCTION));
    assert_eq!(lines[0], "Target: whole machine");
    assert!(!lines.iter().any(|line| line.starts_with("File:")));
}

#[test]
fn lost_samples_are_reported_with_the_coverage() {
    let p = with_comments(&["lost: 30", "covered: 60 of 100"]);
    let warning = warned(&p, 1).unwrap();
    assert!(warning.starts_with("Warning: 30 samples were lost (the others cover 60.0%"));
    assert_eq!(warned(&with_comments(&["covered: 60 of 100"]), 1), None);
}

#[test]
fn frames_beyond_the_limit_are_counted() {
    let p = answers();
    let mut view = View::new(&p, 1, Granularity::FUNCTION);
    assert!(!lines(&view)[0].starts_with("Note"));
    let frames = Arc::make_mut(&mut view.frames);
    frames.expansion.frames_per_location = Some(9);
    frames.expansion.left_out = 12_345;
    assert_eq!(
        lines(&view)[0],
        "Note: 12,345 inlined frames are beyond prof's memory limit: of each address, 9 are \
         shown"
    );
    assert!(subtitle(&view).contains("12,345 inlined frames beyond the limit"));
}

#[test]
fn comments_and_mappings_that_share_a_long_text_are_counted() {
    let long = "C".repeat(1 << 20);
    let mut p = with_comments(&[long.as_str(); 100_000]);
    let mapping = Mapping { file: p.comments[0], ..Mapping::default() };
    p.mappings = vec![mapping; 50_000];
    let lines = header(&p);
    let bytes: usize = lines.iter().map(String::len).sum();
    assert!(bytes < 9 << 20, "{bytes}");
    let left = |count: &str, what: &str| {
        let text = format!("{count} further {what} left out, beyond 4 MiB of text");
        lines.contains(&text)
    };
    assert!(left("99,996", "comments") && left("49,996", "mappings"), "{:?}", lines.last());
    assert_eq!(comments(&with_comments(&["a", "b"])).left_out, 0);
    let mut json = Vec::new();
    let view = View::new(&p, 0, Granularity::FUNCTION);
    crate::report::json::write(&mut json, &view::answer::HeaderAnswer::new(&view)).unwrap();
    // And the main binary, of 1 MiB.
    assert!(json.len() < 10 << 20, "{}", json.len());
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["comments_left_out"], 99_996);
    assert_eq!(json["mappings_left_out"], 49_996);
}

#[test]
fn types_of_one_name_are_offered_by_number() {
    let p = profile::Builder::new(&[("cpu", "ns"), ("cpu", "ns"), ("cpu", "count")]);
    let p = p.finish(None);
    let line = |index| type_line(&View::new(&p, index, Granularity::FUNCTION));
    assert_eq!(line(1), "Type: cpu [ns] (--type 1); --type also: 0, cpu/count");
    assert_eq!(line(2), "Type: cpu [count] (--type cpu/count); --type also: 0, 1");
}

#[test]
fn the_header_has_comments_mappings_time_and_period() {
    let mut p = with_comments(&["note: hello"]);
    p.time_nanos = 1_000_000_000;
    p.period = 10_000_000;
    let kind = p.strings.intern("cpu");
    let unit = p.strings.intern("nanoseconds");
    p.period_type = profile::ValueType { kind, unit };
    let header = header(&p).join("\n");
    for part in [
        "time: 1970-01-01 00:00:01 UTC",
        "period: 10.00 ms (100 Hz)",
        "comment: note: hello",
        "total cpu: 9.00 s",
        "/usr/bin/app (abc123)",
    ] {
        assert!(header.contains(part), "{part} in {header}");
    }
}
