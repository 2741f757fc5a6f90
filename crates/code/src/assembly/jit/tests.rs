use super::*;
use sys::FileOffset;
use sys::jit::jitdump::writer;

fn weight(at: u64, self_value: i64) -> Weight {
    Weight { offset: FileOffset(at), self_value, total: self_value }
}

/// Disassembles the function `foo` with these sampled addresses of a dump of these records.
fn code(name: &str, parts: &[Vec<u8>], weights: &[Weight], end: i64) -> Result<Assembly, NoCode> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, parts.concat()).unwrap();
    let binary = path.to_str().unwrap();
    let request = Request { binary, build_id: "", function: "foo", end, weights, skids: false };
    disassemble(&request, &SymbolOptions::default(), Limits::default())
}

#[test]
fn code_of_the_name_and_the_address_is_disassembled() {
    let parts = [
        writer::header(0),
        writer::lines(5, 0x1000, &[(0x1000, 3, b"/a.js"), (0x1008, 4, b"\xff")]),
        writer::load(6, 0x1000, 0x10, "foo"),
        writer::load(7, 0x2000, 0x10, "bar"),
        writer::load(8, 0x3000, 0x10, "foo"),
        writer::moved(9, 0x3000, 0x5000, 0x10),
    ];
    let weights = [weight(0x1004, 2), weight(0x5008, 7), weight(0x2000, 9)];
    let found = code("jit-77.dump", &parts, &weights, 0).unwrap();
    let pieces: Vec<_> = found.pieces.iter().map(|p| p.function.clone()).collect();
    assert_eq!(pieces, [0x5000..0x5010, 0x1000..0x1010]);
    let first = &found.pieces[1].instructions;
    assert_eq!((first.len(), first[4].self_value), (16, 2));
    assert_eq!(first[4].text.as_deref(), Some("nop"));
    let place = &first[9].places[0];
    assert_eq!((place.function.as_str(), place.file.as_str(), place.line), ("foo", "/a.js", 4));
    let none = code("jit-77.dump", &parts, &[weight(0x2000, 9)], 0);
    assert_eq!(none, Err(NoCode::NoJitCode));
}

#[test]
fn code_of_another_process_time_or_place_is_not_used() {
    let same = [writer::header(0), writer::load(6, 0x1000, 0x10, "foo")];
    let weights = [weight(0x1004, 2)];
    assert!(code("jit-77.dump", &same, &weights, 0).is_ok());
    assert!(code("jit-77.dump", &same, &weights, i64::MAX).is_ok());
    for (name, end, cause) in
        [("jit-78.dump", 0, "process 77"), ("jit-77.dump", 1, "after the recording")]
    {
        let error = code(name, &same, &weights, end).unwrap_err();
        let NoCode::NoBinary(why) = error else { panic!("{error:?}") };
        assert!(why.to_string().contains(cause), "{why}");
    }
    // Twice the same code is no doubt; other code at its addresses is.
    let twice = [same.concat(), writer::load(7, 0x1000, 0x10, "foo")];
    assert_eq!(code("jit-77.dump", &twice, &weights, 0).unwrap().pieces.len(), 1);
    let other = [same.concat(), writer::load(7, 0x1004, 0x10, "foo")];
    assert_eq!(code("jit-77.dump", &other, &weights, 0), Err(NoCode::SeveralCodes));
}

#[test]
fn damaged_dumps_have_no_code() {
    let weights = [weight(0x1004, 2)];
    let whole = [writer::header(0), writer::load(6, 0x1000, 0x10, "foo")].concat();
    for cut in [0, 10, 39, 40, 60, 100, whole.len() - 1] {
        assert!(code("jit-77.dump", &[whole[..cut].to_vec()], &weights, 0).is_err(), "{cut}");
    }
    // A size beyond the record.
    let mut large = whole;
    let size = 40 + 16 + 24;
    large[size..size + 8].copy_from_slice(&u64::MAX.to_ne_bytes());
    assert_eq!(code("jit-77.dump", &[large], &weights, 0), Err(NoCode::NoJitCode));
}

#[test]
fn code_that_is_not_shown_takes_no_memory() {
    // One code, moved again and again: all of it would take 1 GiB.
    let size = MAX_BYTES;
    let mut parts = vec![writer::header(0), writer::load(1, 0, size, "foo")];
    let moves = 1..256u64;
    parts.extend(moves.clone().map(|i| writer::moved(1 + i, (i - 1) * size, i * size, size)));
    let weights: Vec<Weight> = moves.map(|i| weight(i * size, i as i64)).collect();
    let found = code("jit-77.dump", &parts, &weights, 0).unwrap();
    assert_eq!((found.pieces.len(), found.left_out), (1, 254));
    assert_eq!(found.pieces[0].function.start, 255 * size);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 512 << 10, "{peak} KiB");
}
