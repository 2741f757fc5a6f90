use super::*;
use crate::{HEAD, WriteOptions};
use proptest::prelude::*;

fn read(text: &str) -> Profile {
    PerfScript.read(&mut text.as_bytes()).unwrap()
}

fn written(p: &Profile) -> String {
    let mut out = Vec::new();
    write::write(p, &WriteOptions { type_index: 0 }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The samples as text: labels, values, times, and the frames of each location, leaf first.
fn content(p: &Profile) -> Vec<String> {
    let names = |location: &LocationId| {
        let at = &p.locations[location.0 as usize];
        let binary = at.mapping.map_or("", |m| p.str(p.mappings[m.0 as usize].file));
        let name = |line: &Line| {
            let function = &p.functions[line.function.0 as usize];
            let place = match line.line {
                0 => String::new(),
                number => format!("@{}:{number}", p.str(function.filename)),
            };
            format!("{}{place}", p.str(function.name))
        };
        let names: Vec<_> = p.lines_of(*location).iter().map(name).collect();
        format!("{:x} {} {binary}", at.address, names.join("<"))
    };
    let mut rows: Vec<String> = (0..p.samples.len())
        .map(|row| {
            let sample = p.samples[row];
            let stack: Vec<_> = p.stacks.get(sample.stack).iter().map(names).collect();
            let label = |label: &Label| match label.value {
                LabelValue::Str(text) => format!("{}={}", p.str(label.key), p.str(text)),
                LabelValue::Num { value, .. } => format!("{}={value}", p.str(label.key)),
            };
            let labels: Vec<_> = p.labels.get(sample.labels).iter().map(label).collect();
            let (values, times) = (p.values_of(row), p.times.get(sample.times));
            format!("{} {values:?} {times:?} {}", labels.join(","), stack.join("; "))
        })
        .collect();
    rows.sort();
    rows
}

const TEXT: &str = "# a comment\n\
    t prog 12/12 5.000001:  1001001 cpu-clock: \n\
    \t 118b inner+0x12 (inlined)\n\
    \t 118b work+0x12 (/tmp/t prog)\n\
    \t ffffffff81000001 do_it+0x1 ([kernel.kallsyms])\n\
    \t 2724a [unknown] (/usr/lib/libc.so.6)\n\
    \n\
    thread 12/13 5.500000:  1001001 cpu-clock: \n\
    \t 118b work+0x14 (/tmp/t prog)\n\
    \n\
    thread 12/13 5.600000:  1 page-faults: \n\
    \t 118b work+0x14 (/tmp/t prog)\n\
    \n";

#[test]
fn samples_of_several_events_have_types_labels_and_times() {
    let p = read(TEXT);
    assert_eq!(p.type_names(), ["samples", "cpu", "page-faults"]);
    assert_eq!((p.default_type_index(), p.duration_nanos), (1, 599_999_000));
    let expected = [
        "pid=12,tid=12,process=t prog,thread=t prog [1, 1001001, 0] [0] \
         118b inner<work /tmp/t prog; ffffffff81000001 do_it [kernel.kallsyms]; \
         2724a  /usr/lib/libc.so.6",
        "pid=12,tid=13,process=t prog,thread=thread [1, 0, 1] [599999] 118b work /tmp/t prog",
        "pid=12,tid=13,process=t prog,thread=thread [1, 1001001, 0] [499999] \
         118b work /tmp/t prog",
    ];
    assert_eq!(content(&p), expected);
    let again = written(&p);
    assert!(PerfScript.detect(again.as_bytes()));
    assert_eq!(content(&read(&again)), expected);
}

#[test]
fn samples_without_times_periods_or_events_are_counted() {
    let p = read("swapper 0 cycles:\n\t1 a (/x)\n\nswapper 0 cycles:\n\t1 a (/x)\n");
    assert_eq!(
        (p.type_names(), p.values.clone()),
        (vec!["samples".into(), "cycles".into()], vec![2, 2])
    );
    let p = read("a 7 1.5: \n\t1 a+0x0 (/x)\n\na 7 2.5: \n\n");
    assert_eq!(p.type_names(), ["samples"]);
    assert_eq!(content(&p), ["tid=7,thread=a [1] [0] 1 a /x", "tid=7,thread=a [1] [1000000] "]);
    let p = read("a 7 1.5: 3 cycles:   401136 main+0x4 (/bin/a)\n");
    assert_eq!(content(&p), ["tid=7,thread=a [1, 3] [0] 401136 main /bin/a"]);
}

#[test]
fn source_lines_belong_to_the_frame_before() {
    let p = read(
        "a 7 1.5: 3 cycles:\n\t5 in+0x1 (inlined)\n  in.h:4\n\t5 out+0x1 (/x)\n  out.c:9\n\
                  \t6 main (/x)\n  ??:0\n",
    );
    assert_eq!(content(&p), ["tid=7,thread=a [1, 3] [0] 5 in@in.h:4<out@out.c:9 /x; 6 main /x"]);
}

#[test]
fn samples_without_stacks_are_lines_that_begin_with_spaces() {
    let text = "            perf  4711 12345.678901:          1 cycles:P:  ffffffff8106 native_write_msr+0x6 ([kernel.kallsyms])\n\
                \x20           sort  4712 12345.678999:     250000 cycles:P:      55d0a1b2 main+0x10 (/usr/bin/sort)\n";
    assert!(PerfScript.detect(text.as_bytes()));
    let expected = [
        "tid=4711,thread=perf [1, 1] [0] ffffffff8106 native_write_msr [kernel.kallsyms]",
        "tid=4712,thread=sort [1, 250000] [98] 55d0a1b2 main /usr/bin/sort",
    ];
    assert_eq!(content(&read(text)), expected);
}

#[test]
fn samples_with_and_without_stacks_can_alternate() {
    let p = read(
        "sort  4712 [001] 12345.678999:     250000 cycles:P: \n\
         \t            118b work+0x12 (/usr/bin/sort)\n\
         \x20           sort  4712 [001] 12345.700000:   1 page-faults:      55d0a1b2 main+0x10 (/s)\n\
         sort  4712 [001] 12345.800000:     250000 cycles:P: \n\n",
    );
    let expected = [
        "tid=4712,thread=sort [1, 0, 1] [21001] 55d0a1b2 main /s",
        "tid=4712,thread=sort [1, 250000, 0] [0] 118b work /usr/bin/sort",
        "tid=4712,thread=sort [1, 250000, 0] [121001] ",
    ];
    assert_eq!(content(&p), expected);
}

#[test]
fn records_that_are_no_samples_are_left_out() {
    let p = read(
        "sort  4712 [001] 1.1:     PERF_RECORD_MMAP2 4712/4712: [0x55d0(0x1000) @ 0 fd:00 1 2]: r-xp /usr/bin/sort\n\
         sort  4712 [001] 1.2: PERF_RECORD_COMM: sort:4712/4712\n\
         sort  4712 PERF_RECORD_FORK(4712:4712):(4711:4711)\n\
         sort  4712 1.3: PERF_RECORD_NAMESPACES 4712/4712 - nr_namespaces: 7\n\
         \t\t[0/net: 3/0xf0000075, 1/uts: 3/0xeffffffe]\n\
         sort  4712 1.5:     250000 cycles:P: \n\t  118b work+0x12 (/s)\n\n",
    );
    assert_eq!(content(&p), ["tid=4712,thread=sort [1, 250000] [0] 118b work /s"]);
}

#[test]
fn fields_of_memory_events_are_no_frames() {
    let fields = "7ffe1234         5080022 N/A|SNP N/A|TLB N/A|LCK N/A";
    let event = "mem  4712 [001] 12345.7:     250000 cpu/mem-loads,ldlat=30/P:     ";
    let p = read(&format!("{event}{fields} \n\t            118b work+0x12 (/s)\n\n"));
    assert_eq!(content(&p), ["tid=4712,thread=mem [1, 250000] [0] 118b work /s"]);
    let p = read(&format!("{event}{fields} \n\n{event}{fields}  0  55d0 main+0x1 (/s)\n"));
    let expected =
        ["", "55d0 main /s"].map(|stack| format!("tid=4712,thread=mem [1, 250000] [0] {stack}"));
    assert_eq!(content(&p), expected);
}

#[test]
fn places_of_code_without_lines_are_no_frames() {
    let p = read(
        "sort  4712 [001] 1.5:     250000 cycles:P: \n\
         \t            118b work+0x12 (/usr/bin/sort)\n  work.c:9\n\
         \t           2724a __libc_start_call_main+0x7a (/usr/lib/libc.so.6)\n  libc.so.6[2724a]\n\n",
    );
    let stack = "118b work@work.c:9 /usr/bin/sort; 2724a __libc_start_call_main /usr/lib/libc.so.6";
    assert_eq!(content(&p), [format!("tid=4712,thread=sort [1, 250000] [0] {stack}")]);
    let p = read("a 7 1.5: 3 cycles:\n\tleaf\n\tmain\n\n");
    assert_eq!(content(&p), ["tid=7,thread=a [1, 3] [0] 0 leaf ; 0 main "]);
}

#[test]
fn sample_types_of_events_have_different_names() {
    let sample = |event: &str| format!("a 7 1.5: 3 {event}:\n\t5 f (/x)\n\n");
    let events = ["cpu-clock", "task-clock", "cpu-clock:u", "cpu", "samples"];
    let p = read(&events.map(sample).concat());
    let names = ["samples", "cpu", "task-clock", "cpu-clock:u", "event cpu", "event samples"];
    assert_eq!(p.type_names(), names);
    assert_eq!(p.str(p.sample_types[2].unit), "nanoseconds");
}

#[test]
fn inlined_frames_belong_to_the_function_at_their_address() {
    let p = read("a 7 1.5: 3 cycles:\n\t5 in (inlined)\n\t6 main (/x)\n\t7 last (inlined)\n");
    assert_eq!(content(&p), ["tid=7,thread=a [1, 3] [0] 5 in ; 6 main /x; 7 last "]);
}

#[test]
fn wrong_lines_are_named() {
    let error = PerfScript.read(&mut &b"a 7 1.5: 3 cycles:\n\t5 f (/x)\n\nwhat is this\n"[..]);
    let start = "not valid text of perf script: line 4: it is neither a sample";
    assert!(error.unwrap_err().to_string().starts_with(start));
    let many: String = (0..300).map(|i| format!("a 7 1.5: 3 e{i}:\n\n")).collect();
    let error = PerfScript.read(&mut many.as_bytes()).unwrap_err().to_string();
    assert!(error.ends_with("there are more than 256 events"), "{error}");
}

#[test]
fn texts_of_perf_script_are_recognized() {
    assert!(PerfScript.detect(TEXT.as_bytes()));
    for text in [
        "known 1234 100.123456:     250000 cpu-clock:uhH: \n\t  4011d6 bar+0x10 (/k)\n",
        "a b 12/13 [001] 5.000001: cycles:P:  \n\tffffffff81 x ([k])\n",
        "swapper     0 cycles:\n\tffffffff8106 native+0x6 ([kernel.kallsyms])\n",
    ] {
        assert!(PerfScript.detect(text.as_bytes()), "{text}");
    }
    for text in ["hello world\n", "to be: or not\n  to be\n", "a;b 1\n", "1 2 3\n", "# x\n"] {
        assert!(!PerfScript.detect(text.as_bytes()), "{text}");
    }
    assert!(!PerfScript.detect(&vec![b'x'; HEAD]));
}

#[test]
fn samples_of_one_stack_are_written_one_by_one() {
    let mut all = Assembly::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    let function = all.function("main", "", 0);
    let main = all.location(None, 0, &[Line { function, line: 0, column: 0 }]);
    let value = |column, value| ColumnValue { column, value };
    let values = &[value(0, 3), value(1, 10)];
    all.add(AddedSample { stack: &[main], labels: LabelSetId::EMPTY, values, time: None });
    let text = written(&all.finish());
    let periods: Vec<_> = text.lines().filter(|line| line.starts_with('[')).collect();
    let expected = [3, 3, 4].map(|n| format!("[unknown] 0          {n:>2} cpu-clock: "));
    assert_eq!(periods.len(), 3, "{text}");
    assert_eq!(content(&read(&text)), [" [3, 10] [] 0 main "], "{expected:?}");
}

proptest! {
    #[test]
    fn what_both_formats_hold_survives(
        samples in proptest::collection::vec(
            (proptest::collection::vec((0..9u64, "[a-c<>:]{1,3}", 0..3usize), 0..5), 0..3i64, 1..9i64, 0..99u64),
            1..20,
        )
    ) {
        let mut all = Assembly::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
        let binaries = ["/bin/x", "/a b (deleted)"].map(|name| all.mapping(name));
        for (frames, tid, value, time) in samples {
            let mut stack = Vec::new();
            for (address, name, binary) in frames {
                let line = Line { function: all.function(&name, "", 0), line: 0, column: 0 };
                let outer = Line { function: all.function("outer", "", 0), line: 0, column: 0 };
                // Neighbours at one address would be one location.
                let address = 100 * stack.len() as u64 + address;
                let lines = [line, outer];
                let mapping = binaries.get(binary).copied();
                stack.push(all.location(mapping, address, &lines[..1 + address as usize % 2]));
            }
            let labels = [
                all.number_label("pid", 1),
                all.number_label("tid", tid),
                all.text_label("process", "p"),
                all.text_label("thread", if tid == 1 { "p" } else { "t 1" }),
            ];
            let labels = all.profile.labels.intern(&labels);
            let values = [(0, 1), (1, value)].map(|(column, value)| ColumnValue { column, value });
            all.add(AddedSample { stack: &stack, labels, values: &values, time: Some(time) });
        }
        let has_process = all.profile.labels.len() > 1;
        all.begin_times_at_zero();
        let before = all.finish();
        let text = written(&before);
        let after = read(&text);
        let known = |rows: Vec<String>| -> Vec<String> {
            rows.into_iter().map(|row| row.replace("process=p,", "")).collect()
        };
        prop_assert!(has_process);
        prop_assert_eq!(known(content(&after)), known(content(&before)));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(a 7 1.5: 3 x:|[ -~\n\t]{0,20}\n){0,20}") {
        if let Ok(p) = PerfScript.read(&mut text.as_bytes()) {
            written(&p);
        }
    }
}
