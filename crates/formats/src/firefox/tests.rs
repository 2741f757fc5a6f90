use proptest::prelude::*;

use profile::{LabelValue, Line};
use view::testing::{answers, processes};

use super::*;
use crate::WriteOptions;
use crate::assembly::{AddedSample, ColumnValue};

fn read(text: &str) -> Result<Profile, String> {
    Firefox.read(&mut text.as_bytes()).map_err(|error| error.to_string())
}

fn written(p: &Profile, type_index: usize) -> String {
    let mut out = Vec::new();
    write::write(p, &WriteOptions { type_index }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Each sample as its thread, its stack, the root first, its values and its times.
fn content(p: &Profile) -> Vec<String> {
    let name = |line: &Line| {
        let function = &p.functions[line.function.0 as usize];
        format!("{} {}:{}", p.str(function.name), p.str(function.filename), line.line)
    };
    let mut rows: Vec<String> = (0..p.samples.len())
        .map(|row| {
            let sample = p.samples[row];
            let labels: Vec<String> = p
                .labels
                .get(sample.labels)
                .iter()
                .filter(|l| [label::PID, label::TID, label::THREAD].contains(&p.str(l.key)))
                .map(|label| view::label_text(p, label.value))
                .collect();
            let stack = p.stacks.get(sample.stack).iter().rev();
            let names: Vec<_> = stack
                .map(|&l| {
                    let names: Vec<String> = p.lines_of(l).iter().rev().map(name).collect();
                    names.join(" > ")
                })
                .collect();
            let (labels, names) = (labels.join(" "), names.join(";"));
            format!("{labels} {names} {:?} {:?}", p.values_of(row), p.times.get(sample.times))
        })
        .collect();
    rows.sort();
    rows
}

/// A file of version 55, as samply writes it.
const SAMPLY: &str = r#"{"meta":{"interval":1.0,"preprocessedProfileVersion":55,"product":"spin",
"sampleUnits":{"time":"ms","eventDelay":"ms","threadCPUDelta":"µs"},"startTime":1700000000000.5},
"libs":[{"name":"spin","path":"/bin/spin","debugName":"spin","debugPath":"/bin/spin",
"breakpadId":"66CB9472DD2834ADF62EE6720CEAE5160","codeId":"7294cb66","arch":null}],
"threads":[{"name":"spin","pid":"7","tid":"8.1","processName":"spin","samples":{"length":3,
"weightType":"samples","stack":[1,1,null],"timeDeltas":[50.5,1,1],"weight":[1,1,1],
"threadCPUDelta":[0,900,0]},"frameTable":{"length":3,"address":[4192,16,16],"inlineDepth":[0,0,1],
"func":[0,1,2],"line":[null,7,3],"column":[null,null,2]},"funcTable":{"length":3,"name":[0,1,2],
"resource":[0,0,0],"fileName":[null,3,3],"lineNumber":[null,5,1]},"resourceTable":{"length":1,
"lib":[0],"name":[4],"host":[null],"type":[1]},"stackTable":{"length":3,"prefix":[null,0,1],
"frame":[0,1,2]},"stringArray":["0x1060","work","inner","a.c","spin"]}]}"#;

/// The same stacks in version 75, whose tables are shared.
const SHARED: &str = r#"{"meta":{"interval":2,"preprocessedProfileVersion":75,"startTime":0},
"libs":[{"name":"spin","path":"/bin/spin","codeId":null}],"shared":{
"stackTable":{"frame":[0,1,2],"prefixOffset":[0,1,1],"length":3},
"frameTable":{"address":[4192,16,16],"flags":[2,18,19],"lib":[0,0,0],"func":[0,1,2],"line":[0,7,3],
"column":[0,0,0],"length":3},"funcTable":{"name":[0,1,2],"flags":[4,28,28],"resource":[0,0,0],
"source":[0,0,0],"lineNumber":[0,5,1],"length":3},"resourceTable":{"length":1,"name":[4],"host":[null],
"type":[1]},"sources":{"length":1,"id":[null],"filename":[3]},
"stringArray":["0x1060","work","inner","a.c","spin"]},
"threads":[{"name":"a","pid":1,"tid":1,"samples":{"stack":[2,2],"time":[0,2],"weight":null,
"weightType":"samples","length":2}},{"name":"b","pid":1,"tid":2,"samples":{"stack":[2],
"time":[1],"weight":[3],"weightType":"samples","length":1}}]}"#;

#[test]
fn threads_of_samply_have_addresses_libraries_times_and_cpu_time() {
    assert!(Firefox.detect(SAMPLY.as_bytes()));
    let p = read(SAMPLY).unwrap();
    assert_eq!(p.type_names(), ["samples", "cpu"]);
    assert_eq!(
        content(&p),
        [
            "spin 7 8  [1, 0] [2000]",
            "spin 7 8 ;work a.c:7 [1, 0] [0]",
            "spin 7 8 ;work a.c:7 [1, 900000] [1000]",
        ]
    );
    let mapping = &p.mappings[0];
    assert_eq!((p.str(mapping.file), p.str(mapping.build_id)), ("/bin/spin", "7294cb66"));
    let work = p.locations.iter().position(|l| l.address == 16).unwrap();
    assert_eq!(p.locations[work].mapping, Some(profile::MappingId(0)));
    let root = p.locations.iter().find(|l| l.address == 0x1060).unwrap();
    assert_eq!(root.line_count, 0, "an address is no name");
    assert_eq!((p.time_nanos, p.duration_nanos), (1_700_000_000_000_500_000, 2_000_000));
    let work = p.functions.iter().find(|f| p.str(f.name) == "work").unwrap();
    assert_eq!(work.start_line, 5);
}

#[test]
fn shared_tables_of_newer_versions_are_read() {
    let p = read(SHARED).unwrap();
    assert_eq!(p.type_names(), ["samples", "time"]);
    assert_eq!(
        content(&p),
        [
            "a 1 1 ;work a.c:7 > inner a.c:3 [2, 4000000] [0, 2000]",
            "b 1 2 ;work a.c:7 > inner a.c:3 [3, 6000000] [1000]",
        ]
    );
    assert_eq!(p.str(p.mappings[0].file), "/bin/spin");
    let mixed = SHARED.replace("\"name\":\"a\"", "\"frameTable\":{},\"name\":\"a\"");
    let error = read(&mixed).unwrap_err();
    assert!(error.contains("one of stackTable and frameTable, but not the other"), "{error}");
    let newer = SHARED.replace(":75", ":76");
    let p = read(&newer).unwrap();
    assert!(p.comments.iter().any(|&c| p.str(c).contains("version 76 of the format")));
}

#[test]
fn allocations_that_were_not_freed_are_in_use() {
    let table = r#""nativeAllocations":{"time":[1,2,3,4],"weight":[100,30,-100,-7],
        "weightType":"bytes","stack":[0,1,0,0],"memoryAddress":[5,6,5,9],"length":4},"samples":{"#;
    let p = read(&SAMPLY.replace(r#""samples":{"#, table).replace("[0,900,0]", "[0,0,0]")).unwrap();
    let types = p.type_names();
    assert_eq!(types[2..], ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]);
    assert_eq!((2..6).map(|i| p.total(i)).collect::<Vec<_>>(), [2, 130, 1, 30]);
}

#[test]
fn times_and_cpu_time_survive() {
    let before = view::testing::phases();
    let text = written(&before, 1);
    assert!(Firefox.detect(text.as_bytes()), "{text}");
    let after = read(&text).unwrap();
    assert_eq!(after.type_names(), ["samples", "cpu"]);
    assert_eq!((after.total(0), after.total(1)), (31, 3_100_000_000));
    let facts = |p: &Profile| (p.time_nanos, p.duration_nanos);
    assert_eq!(facts(&after), facts(&before));
    assert_eq!(after.times.len(), 31);
    let before = answers();
    let after = read(&written(&before, 1)).unwrap();
    let without_labels = |p: &Profile| -> Vec<String> {
        content(p).iter().map(|row| row[row.find("main").unwrap()..].to_owned()).collect()
    };
    assert_eq!(without_labels(&after), without_labels(&before));
    assert!(after.times.is_empty(), "the order in the file is no time");
}

#[test]
fn processes_are_threads_of_the_file() {
    let text = written(&processes(), 0);
    let p = read(&text).unwrap();
    let key = p.strings.find(label::PROCESS).unwrap();
    let mut names: Vec<String> = p
        .samples
        .iter()
        .filter_map(|sample| p.labels.value(sample.labels, key))
        .map(|value| view::label_text(&p, value))
        .collect();
    names.dedup();
    assert!(names.len() > 1 && names.contains(&"db".to_owned()), "{names:?}");
}

#[test]
fn waits_with_times_are_markers() {
    let mut all = Assembly::new(&[("samples", "count"), ("wall", "nanoseconds")]);
    let function = all.function("wait", "a.c", 0);
    let stack = [all.location(None, 0, &[Line { function, line: 1, column: 0 }])];
    for (state, time) in [("sleeping", 5000), ("running", 6000)] {
        let state = all.text_label(label::STATE, state);
        let labels = all.profile.labels.intern(&[state]);
        let value = |column, value| ColumnValue { column, value };
        let values = &[value(0, 1), value(1, 2_000_000)];
        all.add(AddedSample { stack: &stack, labels, values, time: Some(time) });
    }
    let text = written(&all.finish(), 1);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let markers = &json["threads"][0]["markers"];
    assert_eq!(markers["length"], 1);
    assert_eq!((&markers["startTime"][0], &markers["endTime"][0]), (&3.0.into(), &5.0.into()));
    assert_eq!(markers["data"][0]["state"], "sleeping");
    assert_eq!(json["threads"][0]["samples"]["weight"], serde_json::json!([2.0, 2.0]));
    let after = read(&text).unwrap();
    assert_eq!((after.type_names(), after.total(0)), (vec!["wall".to_owned()], 4_000_000));
}

#[test]
fn ids_of_processes_are_numbers_or_texts() {
    for (id, expected) in
        [("\"12.3\"", Some(12)), ("12", Some(12)), ("\"x\"", None), ("null", None)]
    {
        let p = read(&SAMPLY.replace("\"pid\":\"7\"", &format!("\"pid\":{id}"))).unwrap();
        let value =
            p.strings.find(label::PID).and_then(|key| p.labels.value(p.samples[0].labels, key));
        let number = value.map(|value| match value {
            LabelValue::Num { value, .. } => value,
            LabelValue::Str(_) => panic!("a text"),
        });
        assert_eq!(number, expected, "{id}");
    }
}

#[test]
fn wrong_files_are_refused() {
    for (old, new, what) in [
        (
            "\"prefix\":[null,0,1]",
            "\"prefix\":[null,1,1]",
            "stack number 1 comes before its prefix",
        ),
        (
            "\"prefix\":[null,0,1]",
            "\"prefix\":[null,9,1]",
            "stack number 1 comes before its prefix",
        ),
        ("\"stack\":[1,1,null]", "\"stack\":[1,9,null]", "stack number 9 is used, but not there"),
        ("\"frame\":[0,1,2]", "\"frame\":[0,7,2]", "stack number 1 has no frame"),
        ("\"func\":[0,1,2]", "\"func\":[0,9,2]", "frame number 1 has no function with a name"),
        ("\"name\":[0,1,2]", "\"name\":[0,99,2]", "frame number 1 has no function with a name"),
        ("\"weight\":[1,1,1]", "\"weight\":[1]", "3 stacks of samples, but 1 values"),
        ("\"stringArray\"", "\"x\"", "a thread has no stringArray"),
        ("\"preprocessedProfileVersion\":55,", "", "it is as Firefox recorded it"),
        ("\"spin\"]}]}", "", "EOF"),
    ] {
        assert!(SAMPLY.contains(old), "{old}");
        let error = read(&SAMPLY.replace(old, new)).unwrap_err();
        assert!(
            error.starts_with("not valid Firefox Profiler JSON: ") && error.contains(what),
            "{new}: {error}"
        );
    }
    for changed in [
        SAMPLY.replace("\"weight\":[1,1,1]", "\"weight\":[1e300,-1e300,1]"),
        SAMPLY.replace("\"timeDeltas\":[50.5,1,1]", "\"timeDeltas\":[-1e300,1e300,1]"),
        SAMPLY.replace("\"address\":[4192,16,16]", "\"address\":[1e300,-7,0.5]"),
        SAMPLY.replace("\"lib\":[0]", "\"lib\":[77]"),
    ] {
        read(&changed).unwrap();
    }
}

#[test]
fn recursion_is_not_inlining() {
    // The callee is at the address of its caller, but was not inlined.
    let p = read(&SAMPLY.replace("\"inlineDepth\":[0,0,1]", "\"inlineDepth\":[0,0,0]"));
    assert!(p.is_ok_and(|p| p.locations.iter().all(|l| l.line_count <= 1)));
}

proptest! {
    #[test]
    fn what_both_formats_hold_survives(
        samples in proptest::collection::vec(
            (proptest::collection::vec(("[a-c\"é]{1,3}", 0..3i64), 0..5), 1..999i64, 1..9i64, 0..3i64),
            1..20,
        ),
        timed in any::<bool>(),
    ) {
        let mut all = Assembly::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
        for (number, (frames, first, second, tid)) in samples.into_iter().enumerate() {
            let stack: Vec<_> = frames
                .iter()
                .map(|(name, line)| {
                    let function = all.function(name, "x.c", 0);
                    all.location(None, 0, &[Line { function, line: *line, column: 0 }])
                })
                .collect();
            let value = |column, value| ColumnValue { column, value };
            let values = [value(0, first), value(1, second)];
            let thread = all.text_label(label::THREAD, &format!("thread {tid}"));
            let ids = [all.number_label(label::PID, 1), all.number_label(label::TID, tid)];
            let labels = all.profile.labels.intern(&[thread, ids[0], ids[1]]);
            let time = timed.then_some(number as u64);
            all.add(AddedSample { stack: &stack, labels, values: &values, time });
        }
        let before = all.finish();
        prop_assert_eq!(content(&read(&written(&before, 1)).unwrap()), content(&before));
    }

    #[test]
    fn any_change_is_read_or_refused(at in 0..SAMPLY.len(), new in "[0-9,\\[\\]{}\":-]{0,3}") {
        if SAMPLY.is_char_boundary(at) && SAMPLY.is_char_boundary(at + 1) {
            let _ = read(&format!("{}{new}{}", &SAMPLY[..at], &SAMPLY[at + 1..]));
        }
    }
}
