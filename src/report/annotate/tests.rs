use super::*;

#[test]
fn rows_far_from_values_are_left_out() {
    let shown = |with_value: &[usize]| -> String {
        let rows = shown_rows(20, with_value, 1, 3);
        rows.into_iter().map(|shown| if shown { '#' } else { '.' }).collect()
    };
    assert_eq!(shown(&[]), "....................");
    assert_eq!(shown(&[0, 19]), "##................##");
    assert_eq!(shown(&[3, 8]), "..########..........");
    assert_eq!(shown(&[3, 10]), "..###....###........");
    assert_eq!(shown(&[3, 3, 99]), "..###...............");
}

#[test]
fn values_of_precise_events_are_not_moved() {
    assert!(skids("cpu", "nanoseconds") && skids("cycles", "count") && skids("cycles:u", "count"));
    assert!(!skids("cycles:pp", "count") && !skids("alloc_space", "bytes"));
}

#[test]
fn a_failing_debuginfod_server_is_named_with_the_reason() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 500 Failed\r\nContent-Length: 0\r\n\r\n");
    });
    let cache = tempfile::tempdir().unwrap();
    let environment = symbols::debuginfod::Environment {
        urls: vec![url.clone()],
        cache: cache.path().to_owned(),
        ..Default::default()
    };
    let client = symbols::debuginfod::Debuginfod::new(&environment, |_| {});
    let options = SymbolOptions { debuginfod: Some(Arc::new(client)), ..SymbolOptions::default() };
    assert_eq!(server_notes(&options), Vec::<String>::new());

    let mut profile = view::testing::answers();
    let file = profile.strings.intern("/nowhere/app.c");
    profile.functions.iter_mut().for_each(|function| function.filename = file);
    profile.mappings[0].build_id = profile.strings.intern("0123456789abcdef");
    let shown = view::query::ShownSource::lines("foo1".to_owned());
    let query = view::query::Query::new(view::query::Shown::Source(shown));
    let part = view::Part::whole(Arc::new(profile));
    let places = CodeOptions { symbols: options, ..CodeOptions::default() };
    let answer = answer(part, &query, &places, &view::Cancel::default()).unwrap();
    let view::Model::Source(found) = &answer.model else { panic!("source") };
    let mut json = Vec::new();
    write_json(&mut json, &answer.view(), found, &places, false).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let note = json["notes"][0].as_str().unwrap();
    assert!(note.starts_with(&format!("note: debuginfod: {url}: ")), "{note}");
    assert!(note.contains("500"), "{note}");
}
