//! The symbol cache, which keeps names from one recording to the next: never other names than
//! without it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::common;
use crate::common::system::SmallDisk;
use crate::common::{Build, Output, Prof, needs, skip, target, temp_dir, unnamed, write};
use object::{Object, ObjectSymbol, SymbolKind};

/// A directory with a program, recordings of it without names, and a cache.
struct Lab {
    dir: tempfile::TempDir,
    program: PathBuf,
}

impl Lab {
    /// A lab with a program that has inlined functions, lines, and the C library's start code
    /// without lines.
    fn new() -> Lab {
        let dir = temp_dir();
        let program = dir.path().join("program");
        common::copy_program(target("known", Build::CDebug), &program);
        let lab = Lab { dir, program };
        lab.record("half.pb.gz", 4);
        lab.record("all.pb.gz", 2);
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A recording with an address at every `step` bytes of all functions, and some outside.
    fn record(&self, name: &str, step: usize) {
        let data = fs::read(&self.program).unwrap();
        let elf = object::File::parse(&*data).unwrap();
        let functions = elf.symbols().filter(|s| s.kind() == SymbolKind::Text && s.size() > 0);
        let inside =
            |s: object::Symbol<'_, '_>| (s.address()..s.address() + s.size()).step_by(step);
        let mut addresses: Vec<u64> = functions.flat_map(inside).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert!(addresses.len() > 50, "{}", addresses.len());
        // An address in no function, which is a valid result, too.
        addresses.push(addresses.last().unwrap() + 64);
        write(&unnamed(&self.program, &addresses), &self.path(name));
    }

    /// `prof symbolize INPUT -o OUTPUT OPTIONS…` with this cache.
    fn prof(&self, input: &str, output: &str, options: &str) -> Prof {
        let prof =
            Prof::new(&self.dir, "symbolize").arg(input).args("-o").arg(output).args(options);
        prof.env("PROF_CACHE_SIZE", "").env("XDG_CACHE_HOME", self.path("cache"))
    }

    /// The bytes of the resulting profile, and the output of prof.
    fn symbolize(&self, input: &str, options: &str) -> (Vec<u8>, Output) {
        let output = self.prof(input, "named.pb.gz", options).run().ok();
        (fs::read(self.path("named.pb.gz")).unwrap(), output)
    }

    /// The files of the cache.
    fn kept(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path("cache/prof")) else { return Vec::new() };
        let mut files: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
        files.sort();
        files
    }

    /// The profile that results without any cache.
    fn cold(&self, input: &str, options: &str) -> Vec<u8> {
        self.symbolize(input, &format!("--no-cache {options}")).0
    }
}

/// Inode and content of a file: another inode means that it was written again.
fn state(path: &Path) -> (u64, Vec<u8>) {
    use std::os::unix::fs::MetadataExt;
    (fs::metadata(path).unwrap().ino(), fs::read(path).unwrap())
}

#[test]
fn cached_names_equal_the_first_ones() {
    let lab = Lab::new();
    for options in ["", "--no-inlines", "--no-demangle"] {
        let (half, all) = (lab.cold("half.pb.gz", options), lab.cold("all.pb.gz", options));
        let before = lab.kept();
        // With an empty cache, with all the names needed, with a part of them, with more than
        // those.
        assert!(lab.symbolize("half.pb.gz", options).0 == half, "{options}");
        let new: Vec<PathBuf> = lab.kept().into_iter().filter(|f| !before.contains(f)).collect();
        assert_eq!(new.len(), 1, "each set of options has names of its own: {options}");
        let first = state(&new[0]);
        assert!(lab.symbolize("half.pb.gz", options).0 == half, "{options}");
        assert_eq!(state(&new[0]), first, "nothing had to be added: {options}");
        assert!(lab.symbolize("all.pb.gz", options).0 == all, "{options}");
        assert!(state(&new[0]).1.len() > first.1.len(), "{options}");
        assert!(lab.symbolize("half.pb.gz", options).0 == half, "{options}");
        assert!(lab.symbolize("all.pb.gz", options).0 == all, "{options}");
    }
    assert_eq!(lab.kept().len(), 3);
}

#[test]
fn cached_names_are_used() {
    let lab = Lab::new();
    lab.symbolize("all.pb.gz", "");
    // The names that the file now contains cannot come from any other source.
    let file = &lab.kept()[0];
    let mut bytes = fs::read(file).unwrap();
    while let Some(at) = bytes.windows(4).position(|w| w == b"main") {
        bytes[at..at + 4].copy_from_slice(b"niam");
    }
    let mut crc = flate2::Crc::new();
    crc.update(&bytes[12..]);
    bytes[8..12].copy_from_slice(&crc.sum().to_le_bytes());
    fs::write(file, bytes).unwrap();
    let (named, _) = lab.symbolize("all.pb.gz", "");
    let names: Vec<String> = common::Pprof::decode(&named).lines.into_values().flatten().collect();
    assert!(names.iter().any(|n| n == "niam") && !names.iter().any(|n| n == "main"), "{names:?}");
    // And --no-cache does not read the cache.
    let cold = common::Pprof::decode(&lab.cold("all.pb.gz", ""));
    assert!(cold.lines.into_values().flatten().any(|n| n == "main"));
}

#[test]
fn without_a_cache_no_file_is_left() {
    let lab = Lab::new();
    lab.cold("all.pb.gz", "");
    lab.prof("all.pb.gz", "named.pb.gz", "").env("PROF_CACHE_SIZE", "0").run().ok();
    // Nor without a home directory.
    let homeless = lab.prof("all.pb.gz", "named.pb.gz", "").env("XDG_CACHE_HOME", "relative");
    homeless.env("HOME", "").run().ok();
    assert_eq!(lab.kept(), Vec::<PathBuf>::new());
    assert!(!lab.path("cache").exists() && !lab.path("relative").exists());
    let wrong = lab.prof("all.pb.gz", "named.pb.gz", "").env("PROF_CACHE_SIZE", "much");
    wrong.run().refused(2, &["PROF_CACHE_SIZE", "much"]);
    // In the home directory, for its owner alone.
    let at_home = lab.prof("all.pb.gz", "named.pb.gz", "").env("XDG_CACHE_HOME", "");
    at_home.env("HOME", lab.dir.path()).run().ok();
    let directory = lab.path(".cache/prof");
    assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(directory).unwrap().count(), 1);
}

#[test]
fn a_damaged_cache_file_changes_nothing_and_is_replaced() {
    let lab = Lab::new();
    let (cold, first) = lab.symbolize("all.pb.gz", "");
    assert!(!first.stderr.contains("damaged"));
    let file = lab.kept()[0].clone();
    let good = fs::read(&file).unwrap();
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 0x10;
    let damages: [&[u8]; 5] =
        [b"", b"prof", &good[..good.len() / 2], &flipped, &[&good[..], b"more"].concat()];
    for damaged in damages {
        fs::write(&file, damaged).unwrap();
        let (named, output) = lab.symbolize("all.pb.gz", "");
        assert!(named == cold);
        output.says(&["is damaged", "and not used"]);
        assert!(fs::read(&file).unwrap() == good);
    }
}

#[test]
fn another_build_has_a_cache_file_of_its_own() {
    let lab = Lab::new();
    lab.symbolize("all.pb.gz", "");
    fs::remove_file(&lab.program).unwrap();
    common::copy_program(target("known", Build::CFramePointers), &lab.program);
    // The recorded build is gone: its names come from the binary, which no longer exists.
    let (_, output) = lab.symbolize("all.pb.gz", "");
    output.says(&["0 of ", "another build than the recorded one"]);
    lab.record("other.pb.gz", 2);
    let cold = lab.cold("other.pb.gz", "");
    assert!(lab.symbolize("other.pb.gz", "").0 == cold);
    assert!(lab.symbolize("other.pb.gz", "").0 == cold);
    assert_eq!(lab.kept().len(), 2);
}

#[test]
fn new_debug_files_replace_cached_names() {
    if !needs(&["objcopy", "strip"]) {
        return;
    }
    let lab = Lab::new();
    let whole = lab.cold("all.pb.gz", "");
    let tool = |name: &str, args: &[&str]| {
        let args: Vec<_> = args.iter().map(std::ffi::OsStr::new).collect();
        common::run::tool(name, &args)
    };
    let (program, debug) = (lab.program.to_str().unwrap(), lab.path("debug"));
    tool("objcopy", &["--only-keep-debug", program, debug.to_str().unwrap()]);
    tool("strip", &[program]);
    let stripped = lab.cold("all.pb.gz", "");
    for _ in 0..2 {
        assert!(lab.symbolize("all.pb.gz", "").0 == stripped);
    }
    // The debug file is installed, and removed again.
    let id = object::File::parse(&*fs::read(&lab.program).unwrap())
        .unwrap()
        .build_id()
        .unwrap()
        .map(|id| id.iter().map(|b| format!("{b:02x}")).collect::<String>());
    let id = id.unwrap();
    let directory = lab.path("symbols").join(".build-id").join(&id[..2]);
    fs::create_dir_all(&directory).unwrap();
    let installed = directory.join(format!("{}.debug", &id[2..]));
    fs::rename(&debug, &installed).unwrap();
    for _ in 0..2 {
        assert!(lab.symbolize("all.pb.gz", "--symbol-path symbols").0 == whole);
    }
    fs::remove_file(&installed).unwrap();
    assert!(lab.symbolize("all.pb.gz", "--symbol-path symbols").0 == stripped);
}

#[test]
fn a_cache_that_cannot_be_written_is_no_error() {
    let lab = Lab::new();
    let cold = lab.cold("all.pb.gz", "");
    // A file in place of the directory; root may write anywhere else.
    fs::write(lab.path("cache"), "").unwrap();
    let (named, output) = lab.symbolize("all.pb.gz", "");
    assert_eq!(output.stderr.matches("cannot cache symbols in").count(), 1, "{}", output.stderr);
    assert!(named == cold);
    // If a cache is requested explicitly, its failure is reported, once.
    let sized = lab.prof("all.pb.gz", "named.pb.gz", "").env("PROF_CACHE_SIZE", "1M").run().ok();
    assert_eq!(sized.stderr.matches("cannot cache symbols in").count(), 1, "{}", sized.stderr);
    fs::remove_file(lab.path("cache")).unwrap();
    let Some(disk) = SmallDisk::mount(lab.path("cache"), 16) else {
        return skip("a small disk cannot be mounted");
    };
    fs::write(disk.path.join("rest"), [0; 12 << 10]).unwrap();
    let (named, output) = lab.symbolize("all.pb.gz", "");
    assert!(named == cold && !output.stderr.contains("kept"), "{}", output.stderr);
    assert_eq!(lab.kept(), Vec::<PathBuf>::new());
    drop(disk);
}

#[test]
fn the_cache_stays_within_its_size() {
    let lab = Lab::new();
    lab.symbolize("all.pb.gz", "");
    let first = lab.kept()[0].clone();
    let size = first.metadata().unwrap().len() + 1000;
    let limited = |options: &str| {
        let prof = lab.prof("all.pb.gz", "named.pb.gz", options);
        prof.env("PROF_CACHE_SIZE", size.to_string()).run().ok();
    };
    // There is room for one of the two.
    limited("--no-demangle");
    let kept = lab.kept();
    assert!(kept.len() == 1 && kept[0] != first, "{kept:?}");
    limited("");
    assert_eq!(lab.kept(), [first]);
}

#[test]
fn processes_sharing_the_cache_do_not_disturb_each_other() {
    let lab = Lab::new();
    let names = ["half.pb.gz", "all.pb.gz"];
    let cold = names.map(|input| lab.cold(input, ""));
    for round in 0..3 {
        let running: Vec<_> = (0..6)
            .map(|i| lab.prof(names[i % 2], &format!("named{i}.pb.gz"), "").start())
            .collect();
        for (i, running) in running.into_iter().enumerate() {
            let output = running.finish().ok();
            assert!(!output.stderr.contains("damaged"), "{}", output.stderr);
            let named = fs::read(lab.path(&format!("named{i}.pb.gz"))).unwrap();
            assert!(named == cold[i % 2], "round {round}, process {i}");
        }
        let kept = lab.kept();
        assert_eq!(kept.len(), 1, "{kept:?}");
    }
}
