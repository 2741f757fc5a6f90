use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use proptest::prelude::*;
use prost::Message;

use profile::{Line, LocationId, label};
use view::testing::{answers, phases, processes};

use super::*;
use crate::WriteOptions;
use crate::assembly::AddedSample;

fn read(bytes: &[u8]) -> Result<Profile, String> {
    Otlp.read(&mut &*bytes).map_err(|error| error.to_string())
}

fn written(p: &Profile, type_index: usize) -> Vec<u8> {
    let mut out = Vec::new();
    write::write(p, &WriteOptions { type_index }, &mut out).unwrap();
    out
}

/// Each sample as its labels, its stack, its values by their types, and its times.
fn content(p: &Profile) -> Vec<String> {
    let frame = |&location: &LocationId| {
        let l = &p.locations[location.0 as usize];
        let binary = l.mapping.map(|id| p.str(p.mappings[id.0 as usize].file));
        let lines: Vec<String> = p
            .lines_of(location)
            .iter()
            .map(|line| {
                let f = &p.functions[line.function.0 as usize];
                let [name, system, file] = [f.name, f.system_name, f.filename].map(|id| p.str(id));
                format!("{name} {system} {file}:{}:{} {}", line.line, line.column, f.start_line)
            })
            .collect();
        format!("{binary:?}+{:x} {lines:?}", l.address)
    };
    let mut rows: Vec<String> = (0..p.samples.len())
        .map(|row| {
            let sample = p.samples[row];
            let label = |label: &Label| {
                format!("{}={}", p.str(label.key), view::label_text(p, label.value))
            };
            let mut labels: Vec<String> = p.labels.get(sample.labels).iter().map(label).collect();
            labels.sort();
            let stack: Vec<String> = p.stacks.get(sample.stack).iter().map(frame).collect();
            let names = p.sample_types.iter().map(|t| p.str(t.kind));
            let mut values: Vec<_> = names.zip(p.values_of(row)).collect();
            values.sort();
            format!("{labels:?} {stack:?} {values:?} {:?}", p.times.get(sample.times))
        })
        .collect();
    rows.sort();
    rows
}

#[test]
fn what_pprof_holds_survives() {
    for mut before in [answers(), phases(), processes()] {
        let text = before.strings.intern("note: a comment");
        before.comments.push(text);
        before.drop_frames = before.strings.intern("malloc");
        let last = before.sample_types.len() - 1;
        let bytes = written(&before, last);
        assert!(Otlp.detect(&bytes));
        let after = read(&bytes).unwrap();
        assert_eq!(content(&after), content(&before));
        assert_eq!(after.type_names()[0], "samples");
        let shown = after.default_type_index();
        assert_eq!(after.type_names()[shown], before.type_names()[last]);
        let facts = |p: &Profile| {
            let comments: Vec<_> = p.comments.iter().map(|&c| p.str(c).to_owned()).collect();
            let ids: Vec<_> = p.mappings.iter().map(|m| p.str(m.build_id).to_owned()).collect();
            let mappings: Vec<_> =
                p.mappings.iter().map(|m| (m.start, m.limit, m.file_offset)).collect();
            let drop = p.str(p.drop_frames).to_owned();
            let numbers = (p.time_nanos, p.duration_nanos, p.period);
            (comments, ids, mappings, drop, numbers)
        };
        assert_eq!(facts(&after), facts(&before));
    }
}

/// The same as JSON.
fn written_json(p: &Profile, type_index: usize) -> String {
    let mut out = Vec::new();
    OtlpJson.writer().unwrap()(p, &WriteOptions { type_index }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn json_has_all_of_the_protobuf() {
    for before in [answers(), phases(), processes()] {
        for type_index in 0..before.sample_types.len() {
            let text = written_json(&before, type_index);
            assert!(OtlpJson.detect(text.as_bytes()) && text.lines().count() == 1);
            let after = OtlpJson.read(&mut text.as_bytes()).unwrap();
            // The same message as without JSON.
            assert_eq!(
                written(&after, 0),
                written(&read(&written(&before, type_index)).unwrap(), 0)
            );
            assert_eq!(content(&after), content(&before));
        }
    }
}

#[test]
fn json_follows_the_mapping_of_otlp() {
    let text = written_json(&processes(), 0);
    let data: serde_json::Value = serde_json::from_str(&text).unwrap();
    let profile = &data["resourceProfiles"][0]["scopeProfiles"][0]["profiles"][0];
    let dictionary = &data["dictionary"];
    // Numbers of 64 bits are texts, indexes are numbers.
    let sample = &profile["samples"][0];
    assert!(sample["values"][0].as_str().is_some_and(|value| value.parse::<i64>().is_ok()));
    assert!(sample["stackIndex"].is_u64() && sample["attributeIndices"][0].is_u64(), "{sample}");
    assert!(dictionary["locationTable"][1]["lines"][0]["functionIndex"].is_u64());
    for table in ["mapping", "location", "function", "link", "attribute", "stack"] {
        assert_eq!(dictionary[format!("{table}Table")][0], serde_json::json!({}), "{table}");
    }
    assert_eq!(dictionary["stringTable"][0], "");
}

#[test]
fn what_is_written_follows_the_specification() {
    let data = proto::ProfilesData::decode(&*written(&processes(), 0)).unwrap();
    let dictionary = data.dictionary.unwrap();
    assert_eq!(dictionary.string_table[0], "");
    assert_eq!(dictionary.mapping_table[0], proto::Mapping::default());
    assert_eq!(dictionary.location_table[0], proto::Location::default());
    assert_eq!(dictionary.function_table[0], proto::Function::default());
    assert_eq!(dictionary.link_table, [proto::Link::default()]);
    assert_eq!(dictionary.attribute_table[0], proto::KeyValueAndUnit::default());
    assert_eq!(dictionary.stack_table[0], proto::Stack::default());
    let keys: Vec<&str> = dictionary
        .attribute_table
        .iter()
        .map(|a| dictionary.string_table[a.key_strindex as usize].as_str())
        .collect();
    assert!(keys.contains(&"process.executable.name"), "{keys:?}");
    assert!(keys.contains(&"process.executable.build_id.gnu"), "{keys:?}");
    for profile in &data.resource_profiles[0].scope_profiles[0].profiles {
        assert!(profile.samples.iter().all(|sample| sample.values.len() == 1));
    }
}

/// A profile as the agent of OpenTelemetry sends it: samples have times only, the resource names the
/// service.
fn agent() -> proto::ProfilesData {
    let text = |value: &str| AnyValue { value: Some(Value::StringValue(value.to_owned())) };
    let number = |value| AnyValue { value: Some(Value::IntValue(value)) };
    let strings =
        ["", "samples", "count", "thread.id", "process.executable.build_id.gnu", "/bin/app"];
    let attribute = |key, value| proto::KeyValueAndUnit {
        key_strindex: key,
        value: Some(value),
        unit_strindex: 0,
    };
    let dictionary = proto::ProfilesDictionary {
        mapping_table: vec![
            proto::Mapping::default(),
            proto::Mapping {
                memory_start: 0x1000,
                memory_limit: 0x2000,
                filename_strindex: 5,
                attribute_indices: vec![2],
                ..Default::default()
            },
        ],
        location_table: vec![
            proto::Location::default(),
            proto::Location { mapping_index: 1, address: 0x1010, ..Default::default() },
        ],
        function_table: vec![proto::Function::default()],
        link_table: vec![proto::Link::default()],
        string_table: strings.map(str::to_owned).to_vec(),
        attribute_table: vec![
            proto::KeyValueAndUnit::default(),
            attribute(3, number(77)),
            attribute(4, text("abcd")),
        ],
        stack_table: vec![proto::Stack::default(), proto::Stack { location_indices: vec![1] }],
    };
    let start = 1_700_000_000_000_000_000;
    let sample = proto::Sample {
        stack_index: 1,
        attribute_indices: vec![1],
        timestamps_unix_nano: vec![start + 5000, start + 9000],
        ..Default::default()
    };
    let profile = proto::Profile {
        sample_type: Some(proto::ValueType { type_strindex: 1, unit_strindex: 2 }),
        samples: vec![sample],
        time_unix_nano: start,
        ..Default::default()
    };
    let service = KeyValue {
        key: "service.name".to_owned(),
        value: Some(text("shop")),
        ..Default::default()
    };
    let scope = proto::ScopeProfiles { profiles: vec![profile], ..Default::default() };
    let resource = Resource { attributes: vec![service], ..Default::default() };
    let resource = proto::ResourceProfiles {
        resource: Some(resource),
        scope_profiles: vec![scope],
        ..Default::default()
    };
    proto::ProfilesData { resource_profiles: vec![resource], dictionary: Some(dictionary) }
}

#[test]
fn profiles_of_agents_have_attributes_and_times() {
    let bytes = agent().encode_to_vec();
    assert!(Otlp.detect(&bytes));
    let p = read(&bytes).unwrap();
    let expected =
        r#"["service.name=shop", "tid=77"] ["Some(\"/bin/app\")+1010 []"] [("samples", 2)] [5, 9]"#;
    assert_eq!(content(&p), [expected]);
    assert_eq!((p.mappings.len(), p.str(p.mappings[0].build_id)), (1, "abcd"));
    assert_eq!(p.time_nanos, 1_700_000_000_000_000_000);
    assert!(p.strings.find(label::TID).is_some());
    // The tables may come first.
    let data = agent();
    let tables = proto::ProfilesData { dictionary: data.dictionary.clone(), ..Default::default() };
    let rest = proto::ProfilesData { resource_profiles: data.resource_profiles, dictionary: None };
    let bytes = [tables.encode_to_vec(), rest.encode_to_vec()].concat();
    assert!(Otlp.detect(&bytes));
    assert_eq!(content(&read(&bytes).unwrap()), [expected]);
}

#[test]
fn files_of_pprof_are_not_taken_for_those_of_opentelemetry() {
    for profile in [answers(), phases(), processes()] {
        let mut bytes = Vec::new();
        crate::pprof::write(&profile, &mut bytes).unwrap();
        let content = crate::unpacked::head(&bytes);
        assert!(!Otlp.detect(&content) && crate::pprof::Pprof.detect(&content));
    }
    for head in [&b""[..], b"\x0a", b"\x12\x02", b"main;work 1\n", b"\n\n"] {
        assert!(!Otlp.detect(head), "{head:?}");
    }
}

#[test]
fn wrong_files_are_refused() {
    type Change = fn(&mut proto::ProfilesData);
    fn dictionary(data: &mut proto::ProfilesData) -> &mut proto::ProfilesDictionary {
        data.dictionary.as_mut().unwrap()
    }
    fn profile(data: &mut proto::ProfilesData) -> &mut proto::Profile {
        &mut data.resource_profiles[0].scope_profiles[0].profiles[0]
    }
    let cases: [(Change, &str); 7] = [
        (
            |data| profile(data).samples[0].stack_index = 2,
            "stack number 2 is used, but there are 2",
        ),
        (|data| profile(data).samples[0].stack_index = -1, "stack number -1 is used"),
        (|data| profile(data).samples[0].values = vec![1], "1 values, but 2 times"),
        (|data| profile(data).samples[0].attribute_indices = vec![9], "attribute number 9"),
        (|data| dictionary(data).stack_table[1].location_indices[0] = 7, "location number 7"),
        (|data| dictionary(data).location_table[1].mapping_index = 5, "mapping number 5"),
        (|data| dictionary(data).mapping_table[1].filename_strindex = 99, "text number 99"),
    ];
    for (change, what) in cases {
        let mut data = agent();
        change(&mut data);
        let error = read(&data.encode_to_vec()).unwrap_err();
        assert!(error.starts_with("not valid OTLP profiles: ") && error.contains(what), "{error}");
    }
    let bytes = agent().encode_to_vec();
    assert!(read(&bytes[..bytes.len() - 3]).is_err());
    assert_eq!(read(b"@[").unwrap_err(), "not valid OTLP profiles: it has no profile");
    let mut extreme = agent();
    profile(&mut extreme).samples[0].values = vec![i64::MAX, i64::MAX];
    profile(&mut extreme).samples[0].timestamps_unix_nano = vec![0, u64::MAX];
    read(&extreme.encode_to_vec()).unwrap();
}

#[test]
fn attributes_of_resources_are_bounded_and_looked_at_once() {
    let mut data = agent();
    let attribute = data.resource_profiles[0].resource.as_ref().unwrap().attributes[0].clone();
    let attributes = |count: usize| -> Vec<KeyValue> {
        let keyed = |n| KeyValue { key: format!("key{n}"), ..attribute.clone() };
        (0..count).map(keyed).collect()
    };
    data.resource_profiles[0].resource.as_mut().unwrap().attributes = attributes(257);
    let error = read(&data.encode_to_vec()).unwrap_err();
    assert!(error.contains("a resource has 257 attributes, more than 256"), "{error}");
    data.resource_profiles[0].resource.as_mut().unwrap().attributes = attributes(256);
    let profile = &mut data.resource_profiles[0].scope_profiles[0].profiles[0];
    profile.samples = vec![proto::Sample { values: vec![1], ..Default::default() }; 300_000];
    let p = read(&data.encode_to_vec()).unwrap();
    assert_eq!((p.total(0), p.samples.len(), p.labels.len()), (300_000, 1, 2));
}

#[test]
fn memory_is_bounded_while_tables_are_read() {
    use std::io::Write as _;
    // Attributes of two bytes each: packed by a factor that is allowed, with bytes that are not.
    let mut table = vec![0x12];
    let (empty, random) = ([0x32, 0].repeat(60 << 20), 1 << 20);
    prost::encoding::encode_varint((empty.len() + 4 + random) as u64, &mut table);
    table.extend(empty);
    table.push(0x7a);
    prost::encoding::encode_varint(random as u64, &mut table);
    let mut state = 1u32;
    table.extend((0..random).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    }));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&table).unwrap();
    let error = read(&gzip.finish().unwrap()).map(|p| p.locations.len()).unwrap_err();
    assert!(error.contains("MiB of memory up to here"), "{error}");
}

proptest! {
    /// All numbers and texts: as JSON, they are those of the protobuf.
    #[test]
    fn json_and_protobuf_hold_the_same(
        samples in proptest::collection::vec(
            (("[a-c\"\\\\\n\u{7f}é☺]{0,4}", any::<u64>(), any::<i64>()), -1i64 << 58..1 << 58, any::<u32>()),
            1..20,
        ),
        start in 0..i64::MAX / 2,
        timed in any::<bool>(),
    ) {
        let mut all = Assembly::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
        all.profile.time_nanos = start;
        for ((name, address, line), value, number) in samples {
            let function = all.function(&name, "x.c", line);
            let mapping = Some(all.mapping("/bin/é"));
            let location = all.location(mapping, address, &[Line { function, line, column: 0 }]);
            let labels = [all.text_label(label::THREAD, &name), all.number_label("key", line)];
            let labels = all.profile.labels.intern(&labels);
            let values = [ColumnValue { column: (number % 2) as usize, value }];
            let time = timed.then_some(u64::from(number));
            all.add(AddedSample { stack: &[location], labels, values: &values, time });
        }
        let before = all.finish();
        let text = written_json(&before, 1);
        let after = OtlpJson.read(&mut text.as_bytes()).map_err(|e| e.to_string());
        let [after, same] = [after, read(&written(&before, 1))].map(|read| {
            read.map(|p| (content(&p), p.time_nanos, p.default_type_index()))
        });
        prop_assert_eq!(after, same);
    }

    #[test]
    fn any_change_is_read_or_refused(at in 0..300usize, new in any::<u8>(), length in 0..400usize) {
        let mut bytes = agent().encode_to_vec();
        if let Some(byte) = bytes.get_mut(at) {
            *byte = new;
        }
        bytes.truncate(length.max(10));
        let _ = read(&bytes);
    }
}
