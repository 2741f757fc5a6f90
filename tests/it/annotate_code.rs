//! `prof annotate`: instructions against `go tool pprof -disasm`, names in them, stripped programs,
//! code made at run time, text that is not in a file, and hostile input.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use profile::{Builder, Column, Function, FunctionId, LabelSetId, Line, Mapping};
use serde_json::Value;

use crate::common::json::members;
use crate::common::{Prof, go, needs, run::run, targets, temp_dir, until_file_times_advance};

/// Calls a function of another library, reads a table and has inlined code.
const CODE: &str = "#include <stdio.h>
#include <stdlib.h>
int table[64];
static inline __attribute__((always_inline)) long mix(long x) {
    return (x ^ x >> 7) * 31;
}
__attribute__((noinline)) long work(long n) {
    long s = 1;
    for (long i = 0; i < n; i++)
        s += mix(s + i) / (i + 3) + table[i & 63] + labs(s) + rand();
    return s;
}
int main(void) {
    long t = 0;
    for (long i = 0; i < 20; i++)
        t += work(1000000 + i);
    printf(\"%ld\\n\", t);
    return 0;
}
";

fn tool(dir: &Path, name: &str, args: &str) {
    let mut command = Command::new(name);
    command.current_dir(dir).args(args.split_whitespace());
    run(command).ok();
}

/// Compiles the program with these options, as `code`.
pub fn compiled(dir: &Path, compiler: &str, options: &str) {
    fs::write(dir.join("code.c"), CODE).unwrap();
    tool(dir, compiler, &format!("-O2 -g {options} -o code code.c"));
}

pub fn record(dir: &Path) {
    Prof::new(dir, "record -q -F 999").target(dir.join("code"), "").run().ok();
}

fn annotated(dir: &Path, args: &str) -> Value {
    let out = Prof::new(dir, "annotate --json").args(args).run().ok();
    serde_json::from_str(&out.text()).unwrap()
}

/// The instructions of all listings.
fn instructions(v: &Value) -> Vec<Value> {
    let list = |v: &Value, name: &str| v[name].as_array().cloned().unwrap_or_default();
    let code = list(v, "listings").into_iter().flat_map(move |listing| list(&listing, "code"));
    let pieces = code.flat_map(move |code| list(&code, "pieces"));
    pieces.flat_map(move |piece| list(&piece, "instructions")).collect()
}

/// Self value and total of the instructions with a value, by address.
type Values = BTreeMap<u64, (i64, i64)>;

fn of_pprof(file: &Path, function: &str) -> Values {
    let text = go::pprof(&[&format!("-disasm={function}"), "-unit=ns"], file).text();
    let value = |text: &str| match text.trim_end_matches("ns") {
        "." => Some(0),
        digits => digits.parse::<i64>().ok(),
    };
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let values = (value(words.next()?)?, value(words.next()?)?);
        let address = words.next()?.strip_suffix(':')?;
        Some((u64::from_str_radix(address, 16).ok()?, values))
    };
    text.lines().filter_map(row).filter(|row| row.1 != (0, 0)).collect()
}

fn of_prof(v: &Value) -> Values {
    let row = |i: &Value| {
        let number = |name: &str| i[name].as_i64().unwrap();
        (i["address"].as_u64().unwrap(), (number("self"), number("total")))
    };
    instructions(v).iter().map(row).filter(|row| row.1 != (0, 0)).collect()
}

#[test]
fn instructions_have_the_values_of_go_tool_pprof() {
    if !needs(&["go", "gcc", "rustc", "g++"]) {
        return;
    }
    let dir = temp_dir();
    let program = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    program("c.c", CODE);
    program(
        "cpp.cpp",
        &CODE.replace("long work(", "long work(int, long n) { return n; }\nlong work("),
    );
    program("go.go", GO);
    program("rust.rs", RUST);
    tool(dir.path(), "gcc", "-O2 -g -o c c.c");
    tool(dir.path(), "g++", "-O2 -g -o cpp cpp.cpp");
    tool(dir.path(), "go", "build -o go go.go");
    tool(dir.path(), "rustc", "-O -g -o rust rust.rs");
    for (name, function) in
        [("c", "work"), ("cpp", "work"), ("go", "main.work"), ("rust", "rust::work")]
    {
        Prof::new(&dir, "record -q -F 999").target(dir.path().join(name), "").run().ok();
        let v = annotated(dir.path(), &format!("{function} --asm"));
        let found = of_prof(&v);
        let pattern = function.rsplit([':', '.']).next().unwrap();
        let expected = of_pprof(&dir.path().join("profile.pb.gz"), pattern);
        // The loop, and a call: where `rand` takes most of the time, there are few others.
        assert!(found.len() >= 2, "{name}: {found:?}");
        for (address, values) in &found {
            assert_eq!(expected.get(address), Some(values), "{name}: {address:#x}");
        }
    }
}

const GO: &str = "package main
import (\"fmt\"; \"math\")
//go:noinline
func work(n int) float64 {
    s := 0.0
    for i := 0; i < n; i++ { s += math.Mod(float64(i), 7.0) / float64(i+1) }
    return s
}
func main() { t := 0.0; for i := 0; i < 20; i++ { t += work(300000+i) }; fmt.Println(t) }
";

const RUST: &str = "
#[inline(never)]
fn work(n: u64) -> u64 {
    let v: Vec<u64> = (0..n).collect();
    v.iter().map(|x| (x ^ (x >> 7)) / (x + 3)).sum()
}
fn main() { println!(\"{}\", (0..60).map(|i| work(1000000 + i)).sum::<u64>()); }
";

#[test]
fn calls_and_data_have_names() {
    let dir = temp_dir();
    compiled(dir.path(), "gcc", "-fno-plt");
    record(dir.path());
    let all = instructions(&annotated(dir.path(), "work --asm"));
    if cfg!(target_arch = "x86_64") {
        let call = all.iter().find(|i| i["text"].as_str().unwrap().starts_with("call")).unwrap();
        let reference = &call["reference"];
        assert_eq!((&reference["symbol"], &reference["slot"]), (&"rand".into(), &true.into()));
        let text = Prof::new(&dir, "annotate work --asm --all-lines").run().ok().text();
        assert!(text.contains("# <rand>") && text.contains("# <table>"), "{text}");
    }
    let to_table = all.iter().any(|i| i["reference"]["symbol"] == "table");
    assert!(to_table, "{all:#?}");
    compiled(dir.path(), "gcc", "-Wl,-z,lazy");
    record(dir.path());
    let text = Prof::new(&dir, "annotate work --asm").run().ok().text();
    assert!(text.contains("<rand@plt>"), "{text}");
}

/// Address and size of a function of `code`, by its symbol table.
fn bounds_by_nm(dir: &Path, function: &str) -> (u64, u64) {
    let mut nm = Command::new("nm");
    nm.args(["-S", "code"]).current_dir(dir);
    let symbols = run(nm).ok().text();
    let bounds = symbols.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| u64::from_str_radix(word, 16).ok();
        (words.last() == Some(&function)).then(|| Some((number(words[0])?, number(words[1])?)))?
    });
    bounds.expect("the symbol")
}

#[test]
fn functions_of_stripped_programs_have_bounds() {
    let dir = temp_dir();
    fs::write(dir.path().join("go.go"), GO).unwrap();
    if needs(&["go", "nm"]) {
        tool(dir.path(), "go", "build -o code go.go");
        let (start, _) = bounds_by_nm(dir.path(), "main.work");
        let (next, _) = bounds_by_nm(dir.path(), "main.main");
        tool(dir.path(), "go", "build -ldflags=-s -o code go.go");
        record(dir.path());
        let v = annotated(dir.path(), "main.work --asm");
        assert_eq!(v["listings"].as_array().unwrap().len(), 1, "{v}");
        assert_eq!(v["listings"][0]["code"][0]["pieces"].as_array().unwrap().len(), 1);
        let piece = &v["listings"][0]["code"][0]["pieces"][0];
        assert_eq!(piece["start"], start, "{piece}");
        // Go's own table has no sizes: a function ends where the next one begins.
        assert_eq!(piece["end"], next, "{piece}");
        let total: i64 = of_prof(&v).values().map(|value| value.1).sum();
        assert!(total > 0, "{v}");
        assert_eq!(v["listings"][0]["total"], total, "{v}");
    }
    // The names are from the debug file, which is gone afterwards.
    compiled(dir.path(), "gcc", "");
    record(dir.path());
    let before = of_prof(&annotated(dir.path(), "work --asm"));
    tool(dir.path(), "strip", "code");
    let v = annotated(dir.path(), "work --asm");
    assert_eq!(v["listings"][0]["code"][0]["missing"], Value::Null);
    assert_eq!(of_prof(&v), before);
}

#[test]
fn an_address_without_a_name_selects_its_function() {
    if !needs(&["gcc", "strip", "nm"]) {
        return;
    }
    let dir = temp_dir();
    compiled(dir.path(), "gcc", "");
    let (start, size) = bounds_by_nm(dir.path(), "work");
    tool(dir.path(), "strip", "code");
    record(dir.path());
    let report = Prof::new(&dir, "report --json").run().ok();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap().iter();
    let rows: Vec<(u64, &str, i64)> = rows
        .filter_map(|row| {
            let name = row["function"].as_str()?;
            let offset = u64::from_str_radix(name.strip_prefix("code+0x")?, 16).ok()?;
            Some((offset, name, row["self"].as_i64()?))
        })
        // In this program, offsets in the file are addresses.
        .filter(|row| (start..start + size).contains(&row.0))
        .collect();
    assert!(rows.len() > 1, "{report}");
    let own: i64 = rows.iter().map(|row| row.2).sum();
    let hottest = rows[0].1;
    // Any address of the function leads to all of it, also without --asm.
    for options in [format!("{hottest} --asm"), rows[rows.len() - 1].1.to_owned()] {
        let v = annotated(dir.path(), &options);
        let listings = v["listings"].as_array().unwrap();
        assert_eq!(listings.len(), 1, "{v}");
        assert_eq!(
            Some(&listings[0]["function"]),
            options.split(' ').next().map(Value::from).as_ref()
        );
        assert_eq!(listings[0]["self"], own, "{v}");
        let piece = &listings[0]["code"][0]["pieces"][0];
        assert_eq!(piece["start"], start, "{piece}");
        let values: i64 = of_prof(&v).values().map(|value| value.0).sum();
        assert_eq!(values, own, "{v}");
    }
    let text = Prof::new(&dir, "annotate").arg(hottest).run().ok().text();
    assert!(text.contains("note: without a name, this code has no source lines"), "{text}");
    assert!(text.contains(&format!("{hottest}  [code]")) && text.contains("idiv"), "{text}");
    // No row has this address, and an expression does not match it.
    let free = (start..start + size).find(|at| rows.iter().all(|row| row.0 != *at)).unwrap();
    let missing = format!("code+{free:#x}");
    let out = Prof::new(&dir, "annotate --asm").arg(&missing).run();
    out.refused(1, &["no function or file of the profile matches", &missing]);
    let out = Prof::new(&dir, "annotate --source").arg(hottest).run();
    out.refused(1, &["no source lines; --asm"]);
}

#[test]
fn node_has_instructions() {
    if !needs(&["node"]) {
        return;
    }
    let dir = temp_dir();
    let script = targets::source("busy.js").display().to_string();
    Prof::new(&dir, "record -q -F 999")
        .target("node", &format!("--perf-prof {script} 2"))
        .run()
        .ok();
    let v = annotated(dir.path(), r"JS:\*hotFunction --asm -n 1");
    let values = of_prof(&v);
    let sum: i64 = values.values().map(|v| v.0).sum();
    let own = v["listings"][0]["self"].as_i64().unwrap();
    assert!(values.len() > 3 && sum == own, "{sum} of {own}: {v}");
    // Another file in its place, made after the recording.
    let name = v["listings"][0]["code"][0]["path"].as_str().unwrap().to_owned();
    fs::rename(&name, dir.path().join("old")).unwrap();
    until_file_times_advance();
    fs::copy(dir.path().join("old"), &name).unwrap();
    let v = annotated(dir.path(), r"JS:\*hotFunction --asm -n 1");
    assert_eq!(v["listings"][0]["code"][0]["missing"], "no_binary");
    fs::remove_file(&name).unwrap();
    let text = Prof::new(&dir, "annotate hotFunction --asm").run().ok().text();
    assert!(text.contains("note: no instructions of"), "{text}");
}

#[test]
fn embedded_source_is_shown_and_never_newer() {
    if !needs(&["clang"]) {
        return;
    }
    let dir = temp_dir();
    compiled(dir.path(), "clang", "-gdwarf-5 -gembed-source");
    record(dir.path());
    until_file_times_advance();
    fs::write(dir.path().join("code.c"), "// changed\n").unwrap();
    for _ in 0..2 {
        let v = annotated(dir.path(), "work --all-lines");
        let source = &v["listings"][0]["source"];
        assert_eq!((&source["origin"], &source["newer_than"]), (&"embedded".into(), &Value::Null));
        assert_eq!(source["text"].as_array().unwrap().len(), CODE.lines().count());
        let text = Prof::new(&dir, "annotate work --asm").run().ok().text();
        assert!(text.contains("s += mix(s + i)") && text.contains("source in the debug"), "{text}");
        let _ = fs::remove_file(dir.path().join("code.c"));
    }
}

/// A server that has only the program's source, until the test ends.
pub fn source_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = lines.next().and_then(Result::ok).unwrap_or_default();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let found = first.contains("/source/") && first.contains("code.c");
            let (status, body) = if found { ("200 OK", CODE) } else { ("404 Not Found", "") };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes());
        }
    });
    url
}

#[test]
fn source_is_fetched_by_build_id() {
    let dir = temp_dir();
    compiled(dir.path(), "gcc", "-Wl,--build-id");
    record(dir.path());
    let url = source_server();
    let source = |args: &str| {
        let cache = dir.path().join("cache");
        let prof = Prof::new(&dir, "annotate --json work").args(args);
        let out = prof.env("DEBUGINFOD_CACHE_PATH", cache).run().ok();
        let v: Value = serde_json::from_str(&out.text()).unwrap();
        v["listings"][0]["source"].clone()
    };
    let fetch = format!("--debuginfod={url}");
    assert_eq!(source(&fetch)["origin"], "file");
    // Changed: only with a request, the right one is fetched.
    until_file_times_advance();
    fs::write(dir.path().join("code.c"), "// changed\n").unwrap();
    assert_eq!(
        (&source("")["origin"], &source("")["newer_than"]),
        (&"file".into(), &"binary".into())
    );
    let found = source(&fetch);
    assert_eq!((&found["origin"], &found["newer_than"]), (&"debuginfod".into(), &Value::Null));
    fs::remove_file(dir.path().join("code.c")).unwrap();
    assert_eq!(source("")["missing"], "missing");
    // From the cache: no server listens.
    let found = source("--debuginfod=http://127.0.0.1:9");
    assert_eq!(found["origin"], "debuginfod");
    assert!(found["path"].as_str().unwrap().contains("/source##"), "{found}");
}

/// A profile of one sample at each address of a binary, in `work` at these lines of `file`.
fn sampled(dir: &Path, binary: &Path, addresses: &[u64], file: &str, lines: &[i64]) {
    let mut b = Builder::new(&[("cpu", "nanoseconds")]);
    let name = b.profile.strings.intern(&binary.to_string_lossy());
    let new = Mapping { start: 0, limit: u64::MAX, file: name, ..Mapping::default() };
    let mapping = b.add_mapping(new);
    let name = b.profile.strings.intern("work");
    let filename = b.profile.strings.intern(file);
    b.profile.functions.push(Function { name, system_name: name, filename, start_line: 1 });
    for (i, address) in addresses.iter().enumerate() {
        let location = b.location(Some(mapping), *address);
        let line = lines[i % lines.len()];
        b.profile.set_lines(location, &[Line { function: FunctionId(0), line, column: 0 }]);
        b.add(&[location], LabelSetId::EMPTY, 0, &[(Column(0), 7)]);
    }
    let out = fs::File::create(dir.join("profile.pb.gz")).unwrap();
    formats::pprof::write(&b.finish(None), out).unwrap();
}

#[test]
fn odd_text_is_printed_in_short_clean_lines() {
    let dir = temp_dir();
    let path = dir.path().join("odd.c");
    let mut text = b"crlf\r\nnul\0in it\r\n\xff\xfe bad\n".to_vec();
    text.extend("bidi \u{202e}txet\u{2066}\n".bytes());
    text.extend(b"\x1b[31mred\x1b]0;title\x07\n");
    text.extend(vec![b'x'; 1 << 20]);
    text.push(b'\n');
    text.extend(vec![b'\t'; 1 << 20]);
    fs::write(&path, text).unwrap();
    let lines = [1, 2, 3, 4, 5, 6, 7, 8, 4_294_967_295, 4_294_967_296, i64::MAX, i64::MIN, -1];
    let addresses: Vec<u64> = (0..lines.len() as u64).collect();
    sampled(dir.path(), Path::new("/dev/zero"), &addresses, &path.to_string_lossy(), &lines);
    for options in ["", "--all-lines", "--percent", "--asm"] {
        let text = Prof::new(&dir, "annotate work").args(options).run().ok().text();
        let odd = ['\x1b', '\u{202e}', '\u{2066}', '\0', '\r', '\x07'];
        assert!(!text.contains(odd), "{options}");
        assert!(text.lines().all(|line| line.len() < 8_000), "{options}");
    }
    let v = annotated(dir.path(), "work");
    let of = |number: i64| {
        let lines = v["listings"][0]["lines"].as_array().unwrap();
        lines.iter().find(|line| line["line"] == number).unwrap()["text"].clone()
    };
    assert_eq!((of(1), of(3)), ("crlf".into(), "\u{fffd}\u{fffd} bad".into()));
    assert_eq!((of(8), of(4_294_967_296)), (Value::Null, Value::Null));
}

#[test]
fn many_short_lines_cost_little() {
    let dir = temp_dir();
    let path = dir.path().join("lines.c");
    fs::write(&path, vec![b'\n'; 16 << 20]).unwrap();
    sampled(dir.path(), Path::new("/dev/zero"), &[1], &path.to_string_lossy(), &[9_000_000]);
    // Each line as an allocation would take 400 MB.
    let mut bash = Command::new("bash");
    let script = format!("ulimit -v 400000; {} annotate work", env!("CARGO_BIN_EXE_prof"));
    bash.current_dir(dir.path()).args(["-c", &script]);
    assert!(run(bash).ok().text().contains("9000000"));
}

#[test]
fn a_function_of_100_mb_is_cut() {
    let dir = temp_dir();
    let source = ".globl work\n.type work, @function\nwork: .skip 104857600, 0x90\nret\n.size work, .-work\n";
    fs::write(dir.path().join("large.s"), source).unwrap();
    tool(dir.path(), "gcc", "-shared -nostdlib -o large large.s");
    let nm = run({
        let mut nm = Command::new("nm");
        nm.current_dir(dir.path()).arg("large");
        nm
    });
    let text = nm.ok().text();
    let line = text.lines().find(|line| line.ends_with(" work")).unwrap();
    let start = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let hot = start + 90_000_000;
    sampled(dir.path(), &dir.path().join("large"), &[start, hot, hot + 1], "", &[0]);
    let began = Instant::now();
    let v = annotated(dir.path(), "work --asm");
    assert!(began.elapsed() < Duration::from_secs(20));
    let piece = &v["listings"][0]["code"][0]["pieces"][0];
    assert!(piece["bytes_left_out"].as_u64().unwrap() > 100_000_000);
    assert_eq!(of_prof(&v).len(), 2, "the hottest part");
}

#[test]
fn the_hottest_lines_are_first_on_request() {
    let dir = temp_dir();
    let file = dir.path().join("a.c");
    fs::write(&file, "one\ntwo\nthree\nfour\n").unwrap();
    sampled(dir.path(), Path::new("/dev/zero"), &[1, 2, 3], &file.to_string_lossy(), &[2, 4, 4]);
    for order in ["self", "total"] {
        let args = format!("annotate work --order {order}");
        let text = Prof::new(&dir, &args).run().ok().text();
        let (four, two) = (text.find("4  four").unwrap(), text.find("2  two").unwrap());
        assert!(four < two && !text.contains("three"), "{text}");
    }
    Prof::new(&dir, "annotate work --order self --asm").run().refused(2, &["--order"]);
}

/// Fields of headers that lie about addresses, offsets and sizes.
#[test]
fn binaries_whose_headers_lie_are_reported() {
    let dir = temp_dir();
    compiled(dir.path(), "gcc", "-Wl,--build-id=none");
    let whole = fs::read(dir.path().join("code")).unwrap();
    let word = |at: usize| u64::from_le_bytes(*whole[at..].first_chunk().unwrap()) as usize;
    let (sections, count) = (word(0x28), usize::from(whole[0x3c]));
    let nm = run({
        let mut nm = Command::new("nm");
        nm.current_dir(dir.path()).arg("code");
        nm
    });
    let text = nm.ok().text();
    let line = text.lines().find(|line| line.ends_with(" T work")).unwrap();
    let start = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let binary = dir.path().join("lies");
    for section in 1..count {
        for (field, value) in
            [(0x10, u64::MAX - 5), (0x18, 1 << 62), (0x20, u64::MAX), (0x20, 1 << 40)]
        {
            let mut bytes = whole.clone();
            let at = sections + section * 64 + field;
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            fs::write(&binary, bytes).unwrap();
            sampled(dir.path(), &binary, &[start, start + 1], "", &[0]);
            let out = Prof::new(&dir, "annotate work --asm --json").run();
            assert!(!out.stderr.contains("panicked"), "{section} {field:#x}: {}", out.stderr);
            assert_eq!(out.code(), 0, "{section} {field:#x}: {}", out.stderr);
        }
    }
}

#[test]
fn each_member_of_the_json_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("docs/json.md")).unwrap();
    let (_, section) = document.split_once("## Source and assembly").unwrap();
    let (all_views, _) = document.split_once("## Table").unwrap();
    let dir = temp_dir();
    compiled(dir.path(), "gcc", "-fno-plt");
    record(dir.path());
    for args in ["work --asm", "code.c --all-lines"] {
        let v = annotated(dir.path(), args);
        assert_eq!(v["version"], 1);
        for member in members(&v, &[]) {
            let name = format!("`{member}`");
            assert!(section.contains(&name) || all_views.contains(&name), "{args}: {member}");
        }
    }
}
