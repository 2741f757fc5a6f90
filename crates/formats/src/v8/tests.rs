use super::*;

/// Each sample as its stack, the root first, with its values and times.
fn content(p: &Profile) -> Vec<String> {
    let name = |&location: &LocationId| {
        let line = p.lines_of(location)[0];
        let function = &p.functions[line.function.0 as usize];
        let place = format!("{}:{}:{}", p.str(function.filename), function.start_line, line.line);
        format!("{} {place}", p.str(function.name))
    };
    let row = |row: usize| {
        let sample = p.samples[row];
        let names: Vec<_> = p.stacks.get(sample.stack).iter().rev().map(name).collect();
        format!("{} {:?} {:?}", names.join(";"), p.values_of(row), p.times.get(sample.times))
    };
    (0..p.samples.len()).map(row).collect()
}

fn frame(name: &str, line: i64) -> String {
    format!(
        r#""callFrame":{{"functionName":"{name}","scriptId":"1","url":"file:///a.js","lineNumber":{line},"columnNumber":0}}"#
    )
}

fn nodes(children_of_work: &str) -> String {
    format!(
        r#""nodes":[{{"id":1,{},"hitCount":0,"children":[2]}},
        {{"id":2,{},"hitCount":1,"children":[3]}},
        {{"id":3,{},"hitCount":2,"children":[{children_of_work}],"positionTicks":[{{"line":7,"ticks":1}},{{"line":9,"ticks":1}}]}}]"#,
        frame("(root)", -1),
        frame("", 0),
        frame("work", 4),
    )
}

fn cpu(text: &str) -> Result<Profile, String> {
    CpuProfile.read(&mut text.as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn cpu_profiles_have_times_and_lines() {
    let text = format!(
        r#"{{{},"startTime":1000,"endTime":1100,"samples":[2,3,3],"timeDeltas":[10,20,-5]}}"#,
        nodes("")
    );
    assert!(CpuProfile.detect(text.as_bytes()) && !HeapProfile.detect(text.as_bytes()));
    let p = cpu(&text).unwrap();
    assert_eq!(p.type_names(), ["samples", "time"]);
    assert_eq!(p.duration_nanos, 100_000);
    let expected = [
        "(anonymous) /a.js:1:0 [1, 15000] [10]",
        "(anonymous) /a.js:1:0;work /a.js:5:7 [1, 5000] [25]",
        "(anonymous) /a.js:1:0;work /a.js:5:9 [1, 70000] [30]",
    ];
    assert_eq!(content(&p), expected);
}

#[test]
fn cpu_profiles_without_samples_have_counts_by_line() {
    let p = cpu(&format!(r#"{{{},"startTime":1000,"endTime":1100}}"#, nodes(""))).unwrap();
    let expected = [
        "(anonymous) /a.js:1:0 [1, 33333] []",
        "(anonymous) /a.js:1:0;work /a.js:5:7 [1, 33334] []",
        "(anonymous) /a.js:1:0;work /a.js:5:9 [1, 33333] []",
    ];
    assert_eq!(content(&p), expected);
    let other = nodes("").replace(r#""hitCount":2"#, r#""hitCount":5"#);
    let p = cpu(&format!("{{{other}}}")).unwrap();
    assert_eq!(content(&p)[1], "(anonymous) /a.js:1:0;work /a.js:5:0 [5, 0] []");
}

#[test]
fn cpu_profiles_without_times_have_counts() {
    let p = cpu(&format!(r#"{{{},"endTime":9,"samples":[2,3,3]}}"#, nodes(""))).unwrap();
    let expected = [
        "(anonymous) /a.js:1:0 [1, 3000] []",
        "(anonymous) /a.js:1:0;work /a.js:5:7 [1, 3000] []",
        "(anonymous) /a.js:1:0;work /a.js:5:9 [1, 3000] []",
    ];
    assert_eq!(content(&p), expected);
}

#[test]
fn nodes_may_be_linked_by_their_parents() {
    let both = nodes("").replace(r#""id":3"#, r#""id":3,"parent":2"#);
    let parents = both
        .replace(r#""id":2"#, r#""id":2,"parent":1"#)
        .replace(r#""children":[2]"#, r#""x":0"#)
        .replace(r#""children":[3]"#, r#""x":0"#);
    let expected = content(&cpu(&format!("{{{}}}", nodes(""))).unwrap());
    for nodes in [both, parents] {
        assert_eq!(content(&cpu(&format!("{{{nodes}}}")).unwrap()), expected);
    }
    let wrong = nodes("").replace(r#""id":3"#, r#""id":3,"parent":1"#);
    assert!(cpu(&format!("{{{wrong}}}")).unwrap_err().contains("node 3 has two callers"));
}

#[test]
fn samples_of_deep_stacks_are_read_in_linear_time() {
    let deepest = 20_000;
    let node = |id: usize| {
        let children = if id == deepest { String::new() } else { (id + 1).to_string() };
        format!(r#"{{"id":{id},"callFrame":{{"functionName":"f"}},"children":[{children}]}}"#)
    };
    let nodes: Vec<String> = (1..=deepest).map(node).collect();
    let count = 500_000;
    let numbers = |number: &str| vec![number; count].join(",");
    let text = format!(
        r#"{{"nodes":[{}],"samples":[{}],"timeDeltas":[{}]}}"#,
        nodes.join(","),
        numbers("20000"),
        numbers("1")
    );
    // Each stack copied and hashed: 1e10 frames.
    let p = cpu(&text).unwrap();
    assert_eq!((p.total(0), p.stacks.frame_count()), (count as i64, deepest));
}

#[test]
fn wrong_cpu_profiles_are_refused() {
    for (text, what) in [
        (format!("{{{}}}", nodes("4")), "node 3 has a child 4, which is not there"),
        (format!("{{{}}}", nodes("2")), "node 2 has two callers"),
        (format!("{{{}}}", nodes("1")), "a node is among its own callers"),
        (
            format!(r#"{{{},"samples":[1],"timeDeltas":[1,2]}}"#, nodes("")),
            "1 samples, but 2 times",
        ),
        (format!(r#"{{{},"samples":[9],"timeDeltas":[1]}}"#, nodes("")), "node 9, which is not"),
        (nodes("").replace("\"id\":2", "\"id\":1").replacen("\"nodes", "{\"nodes", 1) + "}", "two"),
    ] {
        let error = cpu(&text).unwrap_err();
        assert!(
            error.starts_with("not valid CPU profile of V8: ") && error.contains(what),
            "{error}"
        );
    }
}

#[test]
fn heap_profiles_have_bytes() {
    let text = format!(
        r#"{{"head":{{{},"selfSize":0,"id":1,"children":[{{"children":[{{{},"selfSize":40,"id":3,"children":[]}}],{},"selfSize":2,"id":2}}]}},"samples":[{{"size":1}}]}}"#,
        frame("(root)", -1),
        frame("inner", 6),
        frame("outer", 2),
    );
    assert!(HeapProfile.detect(text.as_bytes()) && !CpuProfile.detect(text.as_bytes()));
    let p = HeapProfile.read(&mut text.as_bytes()).unwrap();
    let expected = ["outer /a.js:3:0 [2] []", "outer /a.js:3:0;inner /a.js:7:0 [40] []"];
    assert_eq!(
        (p.type_names(), content(&p)),
        (vec!["inuse_space".to_owned()], expected.map(str::to_owned).to_vec())
    );
}

#[test]
fn deep_and_wrong_heap_profiles_are_refused() {
    let error = |text: &str| HeapProfile.read(&mut text.as_bytes()).unwrap_err().to_string();
    let node = r#"{"selfSize":1,"children":["#;
    let deep = |depth: usize| format!(r#"{{"head":{}{}}}"#, node.repeat(depth), "]}".repeat(depth));
    assert_eq!(HeapProfile.read(&mut deep(500).as_bytes()).unwrap().total(0), 500);
    assert!(error(&deep(100_000)).contains("a stack has more than 512 frames"));
    assert!(error("{}").contains("missing field `head`"));
    assert!(error(&format!(r#"{{"x":{}"#, "[".repeat(1 << 20))).contains("EOF"));
}
