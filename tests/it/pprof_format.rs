//! Exchange of pprof files between prof and other tools: `go tool pprof`, `protoc`, Go's runtime.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common;
use crate::common::views;
use crate::common::{Prof, needs, temp_dir};
use formats::{pprof, read_file};
use profile::{
    Builder, Column, Function, FunctionId, Label, LabelSetId, LabelValue, Line, Mapping, Profile,
    StrId,
};

/// A profile in which every field of the format has a value.
fn everything() -> Profile {
    let mut b = Builder::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    let words = [
        "/bin/main program",
        "0123456789abcdef",
        "outer<T>",
        "_Zouter",
        "/src/a;b.rs",
        "ünlined",
        "thread",
        "w 1",
        "bytes",
        "size",
        "note: a comment",
        "samples: 3",
        "drop.*",
        "keep.*",
        "https://example.org/doc",
    ];
    let w: Vec<StrId> = words.iter().map(|w| b.profile.strings.intern(w)).collect();
    let libc = b.add_mapping(Mapping { start: 0x9000, limit: 0xa000, ..Mapping::default() });
    let main = b.add_mapping(Mapping {
        start: 0x1000,
        limit: 0x3000,
        file_offset: 0x1000,
        file: w[0],
        build_id: w[1],
        has_functions: true,
        has_filenames: true,
        has_line_numbers: true,
        has_inline_frames: true,
    });
    let p = &mut b.profile;
    p.functions = vec![
        Function { name: w[2], system_name: w[3], filename: w[4], start_line: 10 },
        Function { name: w[5], system_name: w[5], filename: w[4], start_line: 20 },
    ];
    (p.drop_frames, p.keep_frames, p.doc_url) = (w[12], w[13], w[14]);
    p.comments = vec![w[10], w[11]];
    p.default_sample_type = p.sample_types[0].kind;
    (p.period, p.period_type) = (10_101_010, p.sample_types[1]);
    (p.time_nanos, p.duration_nanos) = (1_700_000_000_123_456_789, 2_500_000_000);
    let text = Label { key: w[6], value: LabelValue::Str(w[7]) };
    let number = Label { key: w[9], value: LabelValue::Num { value: -3, unit: w[8] } };
    let labels = p.labels.intern(&[text, number]);
    let line = |f, line| Line { function: FunctionId(f), line, column: 5 };
    let inlined = b.location(Some(main), 0x1234);
    b.profile.set_lines(inlined, &[line(1, 22), line(0, 11)]);
    b.profile.locations[inlined.0 as usize].is_folded = true;
    let bare = b.location(Some(libc), 0x9abc);
    b.add(&[inlined, bare], labels, 1, &[(Column(1), 20_202_020)]);
    b.add(&[bare], LabelSetId::EMPTY, 1, &[(Column(1), 1)]);
    b.finish(Some(main))
}

fn save(profile: &Profile, path: PathBuf) -> PathBuf {
    pprof::write(profile, std::fs::File::create(&path).unwrap()).unwrap();
    path
}

/// Output of `go tool pprof` for a file, without warnings.
fn go(option: &str, file: &Path) -> String {
    let mut command = Command::new("go");
    command.args(["tool", "pprof", "-symbolize=none", option]).arg(file).stdin(Stdio::null());
    let out = common::run::run(command).ok();
    assert_eq!(out.stderr, "", "{}", file.display());
    out.text()
}

/// The uncompressed content of a file, as text by `protoc --decode`.
fn protoc(content: &[u8], dir: &Path) -> String {
    let raw = dir.join("raw.pb");
    std::fs::write(&raw, content).unwrap();
    let mut command = Command::new("protoc");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    command.arg("--proto_path").arg(&data).args(["--decode", "perftools.profiles.Profile"]);
    command.arg(data.join("profile.proto")).stdin(File::open(raw).unwrap());
    common::run::run(command).ok().text()
}

fn unpacked(file: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    let file = File::open(file).unwrap();
    flate2::read::GzDecoder::new(file).read_to_end(&mut content).unwrap();
    content
}

/// Numbers of fields that the schema does not have, in protoc's text.
fn unknown_fields(text: &str) -> Vec<&str> {
    let is_number = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
    text.lines().filter(is_number).collect()
}

#[test]
fn go_reads_every_field() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    let raw = go("-raw", &save(&everything(), dir.path().join("p.pb.gz")));
    for line in [
        "PeriodType: cpu nanoseconds",
        "Period: 10101010",
        "Duration: 2.5s",
        "samples/count[dflt] cpu/nanoseconds",
        "          1   20202020: 1 2 ",
        "                thread:[w 1]",
        "                size:[-3 bytes]",
        "          1          1: 2 ",
        "     1: 0x1234 M=1 [F] ünlined /src/a;b.rs:22 s=20",
        "             outer<T> /src/a;b.rs:11 s=10(_Zouter)",
        "     2: 0x9abc M=2 ",
        "1: 0x1000/0x3000/0x1000 /bin/main program 0123456789abcdef [FN][FL][LN][IN]",
        "2: 0x9000/0xa000/0x0   ",
    ] {
        let found = raw.lines().any(|l| l.trim_end() == line.trim_end());
        assert!(found, "{line:?} is not in:\n{raw}");
    }
    let comments = go("-comments", &dir.path().join("p.pb.gz"));
    assert_eq!(comments.trim(), "note: a comment\nsamples: 3");
}

#[test]
fn protoc_reads_every_field() {
    if !needs(&["protoc"]) {
        return;
    }
    let dir = temp_dir();
    let mut content = unpacked(&save(&everything(), dir.path().join("p.pb.gz")));
    let text = protoc(&content, dir.path());
    assert_eq!(unknown_fields(&text), Vec::<&str>::new(), "{text}");
    for field in [
        "location_id: 1",
        "num_unit: ",
        "build_id: ",
        "has_inline_frames: true",
        "column: 5",
        "is_folded: true",
        "start_line: 20",
        "drop_frames: ",
        "keep_frames: ",
        "time_nanos: ",
        "duration_nanos: ",
        "period: ",
        "comment: ",
        "default_sample_type: ",
        "doc_url: ",
    ] {
        assert!(text.contains(field), "{field:?} is not in:\n{text}");
    }
    // A check of the test: an unknown field is found.
    content.extend([0x98, 0x06, 7]);
    assert_eq!(unknown_fields(&protoc(&content, dir.path())), ["99: 7"]);
}

#[test]
fn files_of_go_survive_reading_and_writing() {
    if !needs(&["go"]) {
        return;
    }
    let dir = temp_dir();
    views::go_profiles(&dir);
    for name in ["cpu", "heap"] {
        let theirs = dir.path().join(format!("{name}.pb.gz"));
        let profile = read_file(&theirs).unwrap();
        let ours = save(&profile, dir.path().join(format!("{name}-ours.pb.gz")));
        for option in ["-raw", "-top"] {
            let (before, after) = (go(option, &theirs), go(option, &ours));
            assert!(before.lines().count() > 10, "{before}");
            assert!(before == after, "{name} {option}:\n{before}\n---\n{after}");
        }
        assert_eq!(profile.sample_types.len(), if name == "heap" { 4 } else { 2 });
    }
}

/// Runs `prof report` on a file, with 1.5 GiB of address space.
fn report(file: &Path) -> common::Output {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "ulimit -v 1572864; exec \"$0\" report \"$1\"",
        env!("CARGO_BIN_EXE_prof"),
    ]);
    command.arg(file).stdin(Stdio::null());
    common::run::run(command)
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    e.write_all(content).unwrap();
    e.finish().unwrap()
}

/// 10 MB of gzip that unpack to 10 GB: a valid beginning, then `unit`, repeated.
fn bomb(unit: &[u8]) -> Vec<u8> {
    let block = gzip(&unit.repeat((16 << 20) / unit.len()));
    [gzip(&[0x0a, 2, 8, 1, 0x32, 0, 0x32, 1, b'x']), block.repeat((10_000_000_000usize >> 24) + 1)]
        .concat()
}

#[test]
fn bombs_are_refused_in_bounded_memory() {
    let dir = temp_dir();
    let samples = [&[0x12, 19, 0x0a, 15][..], &[1; 15], &[0x10, 1]].concat();
    let long_text = [&[0x32, 0xff, 0x3f][..], &[b'x'; 0x1fff]].concat();
    let wide_line = [&[0xfa, 0x3f, 0x80, 0x08][..], &[0; 1024]].concat();
    for unit in [samples, long_text, wide_line] {
        let file = dir.path().join("bomb.pb.gz");
        std::fs::write(&file, bomb(&unit)).unwrap();
        report(&file).refused(1, &["bomb.pb.gz", "refused at byte"]);
    }
    // A string with a length of 3 GiB, of which four bytes are present.
    let file = dir.path().join("lies.pb");
    std::fs::write(&file, [0x32, 0x80, 0x80, 0x80, 0x80, 0x0c, 1, 2, 3, 4]).unwrap();
    report(&file).refused(1, &["lies.pb", "a message of 3221225472 bytes"]);
}

#[test]
fn damaged_files_are_refused_in_one_line() {
    let dir = temp_dir();
    let whole = std::fs::read(save(&everything(), dir.path().join("p.pb.gz"))).unwrap();
    let file = dir.path().join("damaged.pb.gz");
    let refused = |content: &[u8], words: &[&str]| {
        std::fs::write(&file, content).unwrap();
        let out = Prof::new(&dir, "report").arg(&file).run();
        out.refused(1, &["damaged.pb.gz"]);
        out.refused(1, words);
        assert_eq!(out.stderr.trim_end().lines().count(), 1, "{}", out.stderr);
    };
    refused(&[], &["the file is empty"]);
    refused(&whole[..whole.len() / 2], &["cut off"]);
    let content = unpacked(&dir.path().join("p.pb.gz"));
    refused(&gzip(&content[..content.len() / 2]), &["byte"]);
    let mut checksum = whole.clone();
    let at = checksum.len() - 8;
    checksum[at] ^= 1;
    refused(&checksum, &["the gzip stream is damaged"]);
    let mut index = content.clone();
    index.extend([0x70, 0xff, 0x7f]);
    refused(&gzip(&index), &["string number 16383 is used"]);
    refused(&[content.clone(), content].concat(), &["pprof file"]);
    refused(b"PERFILE2........", &["not valid perf.data"]);
}
