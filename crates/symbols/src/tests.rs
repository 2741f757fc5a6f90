//! Symbolization of real binaries, made here by the C and C++ compilers.

mod aliases;
mod debug_files;
mod flaws;
mod servers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSegment, ObjectSymbol};

use super::*;
use profile::Cause;
use profile::{Builder, LocationId, Mapping};

const C: &str = r#"
#define MARK(name) __asm__ volatile(".globl " #name "\n" #name ": nop")
static inline __attribute__((always_inline)) void inner(void) {
    MARK(mark_inner);                    // line 4
}
static inline __attribute__((always_inline)) void middle(void) {
    inner();                             // line 7
}
__attribute__((noinline)) void outer(void) {
    MARK(mark_outer);                    // line 10
    middle();                            // line 11
}
int main(void) { outer(); return 0; }
"#;

pub(crate) struct Lab {
    dir: tempfile::TempDir,
}

impl Lab {
    pub(crate) fn new() -> Lab {
        Lab { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, command: &str, args: &[&str]) {
        let status = Command::new(command).args(args).current_dir(self.dir.path()).status();
        assert!(status.unwrap().success(), "{command} {args:?}");
    }

    /// Compiles `source` to `name`.
    pub(crate) fn compile(&self, name: &str, source: &str, args: &[&str]) -> PathBuf {
        let (compiler, file) = if source.contains("namespace") {
            ("g++", format!("{name}.cpp"))
        } else {
            ("gcc", format!("{name}.c"))
        };
        fs::write(self.path(&file), source).unwrap();
        let all = [&["-O2", "-Wl,--build-id", "-o", name, file.as_str()], args].concat();
        self.run(compiler, &all);
        self.path(name)
    }

    fn options(&self) -> SymbolOptions {
        SymbolOptions { jobs: 1, debug_dirs: vec![self.path("debug")], ..SymbolOptions::default() }
    }
}

pub(crate) fn marks(binary: &Path) -> impl Fn(&str) -> u64 {
    let data = fs::read(binary).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    let all: Vec<(String, u64)> =
        elf.symbols().filter_map(|s| Some((s.name().ok()?.to_owned(), s.address()))).collect();
    move |name| all.iter().find(|s| s.0 == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// Mapping of the code segment, loaded `bias` away from the addresses in the file.
fn mapping_of(binary: &Path, bias: u64) -> (u64, u64, String) {
    let data = fs::read(binary).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    let code = elf.segments().find(|s| matches!(s.permissions(), p if p.executable())).unwrap();
    let page = |n: u64| n & !4095;
    let id = elf.build_id().unwrap().map(sys::elf::hex).unwrap_or_default();
    (page(code.address()) + bias, page(code.file_range().0), id)
}

/// A profile with one location for each address (relative to the mapping's bias).
fn profile(name: &Path, mapping: (u64, u64, String), bias: u64, addresses: &[u64]) -> Profile {
    let mut b = Builder::new(&[("samples", "count")]);
    let file = b.profile.strings.intern(name.to_str().unwrap());
    let build_id = b.profile.strings.intern(&mapping.2);
    let start = mapping.0;
    let file_offset = mapping.1;
    let mapping = Mapping {
        start,
        limit: start + (1 << 30),
        file_offset,
        file,
        build_id,
        ..Mapping::default()
    };
    let id = b.add_mapping(mapping);
    for &address in addresses {
        b.location(Some(id), address + bias);
    }
    b.finish(None)
}

/// Names, base names of files and lines of a location.
fn frames(p: &Profile, location: u32) -> Vec<(String, String, i64)> {
    p.lines_of(LocationId(location))
        .iter()
        .map(|line| {
            let f = &p.functions[line.function.0 as usize];
            let file = p.str(f.filename).rsplit('/').next().unwrap().to_owned();
            (p.str(f.name).to_owned(), file, line.line)
        })
        .collect()
}

fn names(p: &Profile, location: u32) -> Vec<String> {
    frames(p, location).into_iter().map(|f| f.0).collect()
}

fn quiet(_: usize, _: usize) {}

#[test]
fn inlined_functions_come_innermost_first_with_their_own_lines() {
    let lab = Lab::new();
    let binary = lab.compile("prog", C, &["-g"]);
    let mark = marks(&binary);
    for bias in [0, 0x5555_5555_0000] {
        let addresses = [mark("mark_inner"), mark("mark_outer"), mark("main")];
        let mut p = profile(&binary, mapping_of(&binary, bias), bias, &addresses);
        let outcome = symbolize(&mut p, &lab.options(), &quiet);
        let f = |name: &str, line| (name.to_owned(), "prog.c".to_owned(), line);
        assert_eq!(frames(&p, 0), [f("inner", 4), f("middle", 7), f("outer", 11)]);
        assert_eq!(frames(&p, 1), [f("outer", 10)]);
        assert_eq!(names(&p, 2), ["main"]);
        assert_eq!((outcome.requested(), outcome.named(), outcome.with_line()), (3, 3, 3));
        assert_eq!(outcome.binaries[0].why, None);
        let m = &p.mappings[0];
        assert!(m.has_functions && m.has_filenames && m.has_line_numbers && m.has_inline_frames);
    }
}

#[test]
fn without_inlines_only_the_function_itself_is_named() {
    let lab = Lab::new();
    let binary = lab.compile("prog", C, &["-g"]);
    let mut p = profile(&binary, mapping_of(&binary, 0), 0, &[marks(&binary)("mark_inner")]);
    symbolize(&mut p, &SymbolOptions { inlines: false, ..lab.options() }, &quiet);
    assert_eq!(names(&p, 0), ["outer"]);
    assert!(!p.mappings[0].has_inline_frames);
}

#[test]
fn another_build_at_the_same_path_gives_no_names() {
    let lab = Lab::new();
    let binary = lab.compile("prog", C, &["-g"]);
    let address = marks(&binary)("mark_inner");
    let mapping = mapping_of(&binary, 0);
    lab.compile("prog", &C.replace("return 0", "return 1"), &["-g"]);
    let mut p = profile(&binary, mapping.clone(), 0, &[address]);
    let outcome = symbolize(&mut p, &lab.options(), &quiet);
    assert!(frames(&p, 0).is_empty());
    assert!(matches!(outcome.binaries[0].why, Some(Cause::BuildIdDiffers { .. })));
    assert!(!p.mappings[0].has_functions);
    // A file without a build ID is not the recorded one either.
    lab.compile("prog", C, &["-g", "-Wl,--build-id=none"]);
    let mut p = profile(&binary, mapping, 0, &[address]);
    let outcome = symbolize(&mut p, &lab.options(), &quiet);
    let why = Some(Cause::BuildIdDiffers { found: String::new() });
    assert_eq!(outcome.binaries[0].why, why);
}

/// A duration without a start is no time at which the recording ended.
#[test]
fn without_a_time_a_file_without_a_build_id_is_not_taken_for_changed() {
    let lab = Lab::new();
    let binary = lab.compile("a", C, &["-g", "-Wl,--build-id=none"]);
    let address = marks(&binary)("mark_outer");
    let mut p = profile(&binary, mapping_of(&binary, 0), 0, &[address]);
    p.mappings.iter_mut().for_each(|mapping| mapping.build_id = profile::StrId::EMPTY);
    p.duration_nanos = 1_000_000_000;
    // One nanosecond after the epoch.
    let mut old = Profile { time_nanos: 1, ..p.clone() };
    symbolize(&mut p, &lab.options(), &quiet);
    assert_eq!(names(&p, 0), ["outer"]);
    let outcome = symbolize(&mut old, &lab.options(), &quiet);
    assert_eq!(outcome.binaries[0].why, Some(Cause::Changed));
}

#[test]
fn addresses_outside_of_an_image_stay_as_they_are() {
    let lab = Lab::new();
    let binary = lab.compile("a", C, &["-g"]);
    let (_, _, build_id) = mapping_of(&binary, 0);
    let inside = marks(&binary)("mark_outer");
    let mut p = profile(&binary, (0, 0, build_id), 0, &[inside, 0x9999_9999, 0x8888_8888]);
    place_in_files(&mut p, &lab.options());
    let addresses: Vec<u64> = p.locations[1..].iter().map(|location| location.address).collect();
    assert_eq!(addresses, [0x9999_9999, 0x8888_8888]);
    symbolize(&mut p, &lab.options(), &quiet);
    assert_eq!(names(&p, 0), ["outer"]);
    assert!(frames(&p, 1).is_empty() && frames(&p, 2).is_empty());
}

/// perf links the binaries of each recording into its own directory, which changes their status.
#[test]
fn a_new_link_to_a_file_is_no_change_of_it() {
    use std::os::unix::fs::MetadataExt;
    let lab = Lab::new();
    let binary = lab.compile("a", C, &["-g", "-Wl,--build-id=none"]);
    let nanos = |s: i64, n: i64| s * 1_000_000_000 + n;
    let changed = || {
        let m = std::fs::metadata(&binary).unwrap();
        nanos(m.ctime(), m.ctime_nsec())
    };
    let end = changed();
    let mut links = 0;
    while changed() == end {
        links += 1;
        std::fs::hard_link(&binary, binary.with_extension(links.to_string())).unwrap();
    }
    let mut p = profile(&binary, mapping_of(&binary, 0), 0, &[marks(&binary)("mark_outer")]);
    p.mappings.iter_mut().for_each(|mapping| mapping.build_id = profile::StrId::EMPTY);
    p.time_nanos = end;
    symbolize(&mut p, &lab.options(), &quiet);
    assert_eq!(names(&p, 0), ["outer"]);
}

#[test]
fn another_path_can_replace_the_recorded_one() {
    let lab = Lab::new();
    let binary = lab.compile("prog", C, &["-g"]);
    let address = marks(&binary)("mark_outer");
    let gone = Path::new("/no/such/program");
    let mut p = profile(gone, mapping_of(&binary, 0), 0, &[address]);
    let outcome = symbolize(&mut p, &lab.options(), &quiet);
    assert_eq!(outcome.binaries[0].why, Some(Cause::FileMissing));
    let options = SymbolOptions { files: [(0, binary.clone())].into(), ..lab.options() };
    symbolize(&mut p, &options, &quiet);
    assert_eq!(names(&p, 0), ["outer"]);
    // The kernel marks the path of a file that was unlinked while mapped.
    let deleted = PathBuf::from(format!("{} (deleted)", binary.display()));
    let mut p = profile(&deleted, mapping_of(&binary, 0), 0, &[address]);
    symbolize(&mut p, &lab.options(), &quiet);
    assert_eq!(names(&p, 0), ["outer"]);
}

#[test]
fn stripped_binaries_use_their_debug_files() {
    let lab = Lab::new();
    let binary = lab.compile("prog", C, &["-g"]);
    let address = marks(&binary)("mark_inner");
    let mapping = mapping_of(&binary, 0);
    lab.run("objcopy", &["--only-keep-debug", "prog", "prog.debug"]);
    lab.run("strip", &["prog"]);
    let resolve = |name: &Path, mapping: &(u64, u64, String), bias| {
        let mapping = (mapping.0 + bias, mapping.1, mapping.2.clone());
        let mut p = profile(name, mapping, bias, &[address]);
        let outcome = symbolize(&mut p, &lab.options(), &quiet);
        (names(&p, 0), outcome.binaries[0].why.clone())
    };
    let all = (vec!["inner".to_owned(), "middle".into(), "outer".into()], None);
    assert_eq!(resolve(&binary, &mapping, 0), (vec![], Some(Cause::Stripped)));
    // By build ID, with and without the binary itself.
    let dir = lab.path("debug/.build-id").join(&mapping.2[..2]);
    fs::create_dir_all(&dir).unwrap();
    let by_id = dir.join(format!("{}.debug", &mapping.2[2..]));
    fs::rename(lab.path("prog.debug"), &by_id).unwrap();
    assert_eq!(resolve(&binary, &mapping, 0), all);
    assert_eq!(resolve(Path::new("/no/such/program"), &mapping, 0), all);
    assert_eq!(resolve(Path::new("/no/such/program"), &mapping, 0x7000_0000), all);
    // By debug link, next to the binary and in `.debug`.
    fs::rename(&by_id, lab.path("prog.debug")).unwrap();
    lab.run("objcopy", &["--add-gnu-debuglink=prog.debug", "prog"]);
    assert_eq!(resolve(&binary, &mapping, 0), all);
    fs::create_dir(lab.path(".debug")).unwrap();
    fs::rename(lab.path("prog.debug"), lab.path(".debug/prog.debug")).unwrap();
    assert_eq!(resolve(&binary, &mapping, 0), all);
    // Of another build: refused.
    let other = lab.compile("other", &C.replace("return 0", "return 1"), &["-g"]);
    fs::rename(other, lab.path(".debug/prog.debug")).unwrap();
    let other = Cause::OtherDebugFile(lab.path(".debug/prog.debug").display().to_string());
    assert_eq!(resolve(&binary, &mapping, 0), (vec![], Some(other)));
    fs::remove_dir_all(lab.path(".debug")).unwrap();
    assert_eq!(resolve(&binary, &mapping, 0), (vec![], Some(Cause::Stripped)));
}

#[test]
fn without_build_ids_a_debug_link_is_checked_by_its_checksum() {
    let lab = Lab::new();
    let no_id = ["-g", "-Wl,--build-id=none"];
    let binary = lab.compile("prog", C, &no_id);
    let address = marks(&binary)("mark_inner");
    let mapping = mapping_of(&binary, 0);
    assert_eq!(mapping.2, "");
    lab.run("objcopy", &["--only-keep-debug", "prog", "prog.debug"]);
    lab.run("strip", &["prog"]);
    lab.run("objcopy", &["--add-gnu-debuglink=prog.debug", "prog"]);
    let resolve = || {
        let mut p = profile(&binary, mapping.clone(), 0, &[address]);
        symbolize(&mut p, &lab.options(), &quiet);
        names(&p, 0)
    };
    assert_eq!(resolve(), ["inner", "middle", "outer"]);
    let other = lab.compile("other", &C.replace("return 0", "return 1"), &no_id);
    fs::rename(other, lab.path("prog.debug")).unwrap();
    assert_eq!(resolve(), Vec::<String>::new());
}

#[test]
fn a_symbol_table_alone_names_functions() {
    let lab = Lab::new();
    let binary = lab.compile("prog", C, &[]);
    let mut p = profile(&binary, mapping_of(&binary, 0), 0, &[marks(&binary)("main"), 1 << 40]);
    let outcome = symbolize(&mut p, &lab.options(), &quiet);
    assert_eq!(names(&p, 0), ["main"]);
    let found = &outcome.binaries[0];
    assert_eq!((found.requested, found.named, found.with_line), (2, 1, 0));
    assert_eq!(found.why, Some(Cause::NoSymbol));
    assert!(p.mappings[0].has_functions && !p.mappings[0].has_line_numbers);
}

#[test]
fn local_functions_of_cpp_have_their_full_names() {
    let lab = Lab::new();
    let source = r#"
        namespace lib { template <class T> __attribute__((noinline)) void run(T f) { f(); } }
        namespace { __attribute__((noinline)) void helper() { asm volatile(""); } }
        int main() {
            lib::run([]() __attribute__((noinline)) { helper(); });
        }"#;
    let binary = lab.compile("prog", source, &["-g"]);
    let mark = marks(&binary);
    let data = fs::read(&binary).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    let lambda = elf
        .symbols()
        .find(|s| s.name().is_ok_and(|n| n.starts_with("_ZZ4main") && n.contains("Ul")))
        .unwrap();
    let helper = "_ZN12_GLOBAL__N_16helperEv";
    let mut p = profile(&binary, mapping_of(&binary, 0), 0, &[mark(helper), lambda.address()]);
    symbolize(&mut p, &lab.options(), &quiet);
    assert_eq!(names(&p, 0), ["(anonymous namespace)::helper"]);
    assert_eq!(names(&p, 1).last().unwrap(), "main::{lambda()#1}::operator()");
    let function = p.functions[p.lines_of(LocationId(0))[0].function.0 as usize];
    assert_eq!(p.str(function.system_name), helper);
    let mut raw = profile(&binary, mapping_of(&binary, 0), 0, &[mark(helper)]);
    symbolize(&mut raw, &SymbolOptions { demangle: false, ..lab.options() }, &quiet);
    assert_eq!(names(&raw, 0), [helper]);
}

#[test]
fn existing_lines_stay_unless_forced() {
    let lab = Lab::new();
    let binary = lab.compile("prog", C, &["-g"]);
    let mut p = profile(&binary, mapping_of(&binary, 0), 0, &[marks(&binary)("mark_outer")]);
    let mine = p.strings.intern("mine");
    p.functions.push(profile::Function { name: mine, ..Default::default() });
    let line = profile::Line { function: profile::FunctionId(0), line: 1, column: 0 };
    p.set_lines(LocationId(0), &[line]);
    let outcome = symbolize(&mut p, &lab.options(), &quiet);
    assert_eq!((names(&p, 0), outcome.requested()), (vec!["mine".to_owned()], 0));
    symbolize(&mut p, &SymbolOptions { force: true, ..lab.options() }, &quiet);
    assert_eq!(names(&p, 0), ["outer"]);
}

#[test]
fn threads_do_not_change_the_result() {
    let lab = Lab::new();
    let binary = lab.compile("prog", C, &["-g"]);
    let (start, ..) = mapping_of(&binary, 0);
    // Enough addresses for several shares.
    let addresses: Vec<u64> = (0..70_000).map(|i| start + i).collect();
    let named = |jobs| {
        let mut p = profile(&binary, mapping_of(&binary, 0), 0, &addresses);
        let last = std::sync::Mutex::new((0, 0));
        let outcome =
            symbolize(&mut p, &SymbolOptions { jobs, ..lab.options() }, &|done, total| {
                let mut last = last.lock().unwrap();
                *last = (last.0.max(done), total);
            });
        let (done, total) = *last.lock().unwrap();
        assert_eq!(done, total);
        assert!(outcome.named() > 10);
        (p.functions, p.lines, p.locations, outcome)
    };
    assert_eq!(named(1), named(3));
}

#[test]
fn no_damage_to_a_file_is_fatal() {
    let lab = Lab::new();
    let binary = lab.compile("prog", C, &["-g"]);
    let intact = fs::read(&binary).unwrap();
    let mark = marks(&binary);
    let mapping = (mapping_of(&binary, 0).0, mapping_of(&binary, 0).1, String::new());
    let damaged = lab.path("damaged");
    let mut seed = 1u64;
    let mut random = move |n: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % n
    };
    let mut named = 0;
    for round in 0..150 {
        let mut bytes = intact.clone();
        match round % 3 {
            0 => bytes.truncate(random(intact.len())),
            1 => (0..200).for_each(|_| bytes[random(intact.len())] = random(256) as u8),
            _ => (0..8).for_each(|_| bytes[random(4096)] = random(256) as u8),
        }
        fs::write(&damaged, &bytes).unwrap();
        let addresses = [mark("mark_inner"), mark("main")];
        let mut p = profile(&damaged, mapping.clone(), 0, &addresses);
        let outcome = symbolize(&mut p, &lab.options(), &quiet);
        assert_eq!(outcome.requested(), 2);
        assert_eq!(outcome.binaries[0].why.is_none(), outcome.named() == 2);
        named += outcome.named();
    }
    // Most random damage leaves some readable data.
    assert!(named > 50, "{named}");
}

#[test]
fn files_that_are_not_binaries_are_reported() {
    let lab = Lab::new();
    fs::write(lab.path("text"), "hello").unwrap();
    let text = lab.path("text");
    let text = text.to_str().unwrap();
    let cases = [
        (text, Cause::NotElf),
        ("/dev/zero.not", Cause::Anonymous),
        ("/dev", Cause::NotElf),
        ("/proc/self/mem/x", Cause::FileMissing),
        ("//anon", Cause::Anonymous),
        ("[heap]", Cause::Anonymous),
        ("", Cause::Anonymous),
        ("/tmp/perf-0.map", Cause::PerfMapMissing),
    ];
    for (name, why) in cases {
        let mut p = profile(Path::new(name), (0, 0, String::new()), 0, &[0x1000]);
        let outcome = symbolize(&mut p, &lab.options(), &quiet);
        assert_eq!(outcome.binaries[0].why.as_ref(), Some(&why), "{name}");
        assert_eq!(outcome.binaries[0].file, name);
    }
}

#[test]
fn perf_maps_can_be_elsewhere() {
    let lab = Lab::new();
    fs::write(lab.path("map"), "1000 100 jitted;f <x>\nbad\n").unwrap();
    let name = Path::new("/tmp/perf-123456789.map");
    let mut p = profile(name, (0, 0, String::new()), 0, &[0x1010, 0x2000]);
    let options = SymbolOptions { files: [(0, lab.path("map"))].into(), ..lab.options() };
    let outcome = symbolize(&mut p, &options, &quiet);
    assert_eq!(names(&p, 0), ["jitted;f <x>"]);
    let found = &outcome.binaries[0];
    assert_eq!((found.named, found.bad_lines), (1, 1));
}
