//! Debug information in other files or forms: split, shared, packed.

use std::sync::Arc;

use super::*;
use crate::opener::DirectOpener;
use profile::Cause;

const ALL: [&str; 3] = ["inner", "middle", "outer"];

/// A program, its mapping, and one of its addresses with two inlined functions.
struct Case {
    lab: Lab,
    binary: PathBuf,
    mapping: (u64, u64, String),
    address: u64,
}

impl Case {
    fn new(flags: &[&str]) -> Case {
        let lab = Lab::new();
        let binary = lab.compile("prog", C, flags);
        let mapping = mapping_of(&binary, 0);
        let address = marks(&binary)("mark_inner");
        Case { lab, binary, mapping, address }
    }

    /// The functions at the address, and true if the innermost has a line.
    fn resolve(&self) -> (Vec<String>, bool) {
        let mut p = profile(&self.binary, self.mapping.clone(), 0, &[self.address]);
        symbolize(&mut p, &self.lab.options(), &quiet);
        (names(&p, 0), frames(&p, 0).first().is_some_and(|f| f.2 > 0))
    }
}

fn all() -> (Vec<String>, bool) {
    (ALL.map(str::to_owned).to_vec(), true)
}

#[test]
fn compressed_debug_sections_are_read() {
    let case = Case::new(&["-g"]);
    for how in ["zlib", "zlib-gnu", "zstd"] {
        let flag = format!("--compress-debug-sections={how}");
        case.lab.run("objcopy", &[&flag, "prog"]);
        assert_eq!(case.resolve(), all(), "{how}");
        case.lab.run("objcopy", &["--decompress-debug-sections", "prog"]);
    }
}

#[test]
fn split_debug_information_is_read() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let case = Case::new(&["-g", version, "-gsplit-dwarf"]);
        assert_eq!(case.resolve(), all(), "{version}: .dwo");
        // The dwp of Debian 12 does not support DWARF 5; see below for such a package.
        let packs = version == "-gdwarf-4";
        if packs {
            case.lab.run("dwp", &["-e", "prog", "-o", "prog.dwp"]);
        }
        for file in fs::read_dir(case.lab.dir.path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|e| e == "dwo") {
                fs::remove_file(path).unwrap();
            }
        }
        if packs {
            assert_eq!(case.resolve(), all(), "{version}: .dwp");
            fs::remove_file(case.lab.path("prog.dwp")).unwrap();
        }
        // Without either, the symbol table remains.
        assert_eq!(case.resolve().0, ["mark_inner"], "{version}: neither");
    }
}

#[test]
fn a_package_of_split_dwarf_5_is_read() {
    let lab = Lab::new();
    let source = r#"
        #![allow(named_asm_labels)]
        #[inline(always)]
        fn inner() {
            unsafe { std::arch::asm!(".globl mark_inner", "mark_inner: nop") }
        }
        #[inline(never)]
        fn outer() {
            inner()
        }
        fn main() {
            outer()
        }"#;
    fs::write(lab.path("prog.rs"), source).unwrap();
    let flags = "-O -g -Cdwarf-version=5 -Csplit-debuginfo=packed prog.rs";
    lab.run("rustc", &flags.split(' ').collect::<Vec<_>>());
    assert!(lab.path("prog.dwp").exists());
    let binary = lab.path("prog");
    let mapping = mapping_of(&binary, 0);
    let address = marks(&binary)("mark_inner");
    let case = Case { lab, binary, mapping, address };
    assert_eq!(case.resolve(), (vec!["prog::inner".to_owned(), "prog::outer".to_owned()], true));
}

/// As in Debian's debug packages: common parts of several files are in one more.
#[test]
fn debug_information_shared_by_dwz_is_read() {
    let case = Case::new(&["-g"]);
    case.lab.compile("other", C, &["-g"]);
    case.lab.run("dwz", &["-m", "common", "-M", "common", "prog", "other"]);
    assert!(case.lab.path("common").exists(), "nothing was shared");
    assert_eq!(case.resolve(), all());
}

/// As described in gdb's manual under "MiniDebugInfo".
#[test]
fn packed_symbols_of_a_stripped_binary_are_read() {
    let case = Case::new(&["-g"]);
    let lab = &case.lab;
    lab.run(
        "sh",
        &[
            "-ec",
            "nm -D prog --format=posix --defined-only | cut -d' ' -f1 | sort > dynsyms
             nm prog --format=posix --defined-only | grep ' [Tt] ' | cut -d' ' -f1 | sort > funcs
             comm -13 dynsyms funcs > keep
             objcopy --only-keep-debug prog debug
             objcopy -S --remove-section .gdb_index --remove-section .comment \\
                 --keep-symbols=keep debug mini
             strip --strip-all -R .comment prog
             xz -k mini",
        ],
    );
    assert_eq!(case.resolve().0, Vec::<String>::new());
    lab.run("objcopy", &["--add-section", ".gnu_debugdata=mini.xz", "prog"]);
    assert_eq!(case.resolve(), (vec!["mark_inner".to_owned()], false));
    // Damaged: counts as missing.
    fs::write(lab.path("bad"), b"no xz at all").unwrap();
    lab.run("objcopy", &["--update-section", ".gnu_debugdata=bad", "prog"]);
    assert_eq!(case.resolve().0, Vec::<String>::new());
}

#[test]
fn the_user_s_directories_are_searched() {
    let case = Case::new(&["-g"]);
    let lab = &case.lab;
    lab.run("sh", &["-ec", "cp prog full; objcopy --only-keep-debug prog debug; strip prog"]);
    assert_eq!(case.resolve().0, Vec::<String>::new());
    let whole = case.binary.to_str().unwrap().trim_start_matches('/');
    let id = &case.mapping.2;
    let by_id = format!(".build-id/{}/{}.debug", &id[..2], &id[2..]);
    // (the file, its name in the directory)
    let ways = [("full", "prog"), ("full", whole), ("debug", "prog.debug"), ("debug", &by_id)];
    for (n, (file, name)) in ways.into_iter().enumerate() {
        let dir = lab.path(&format!("symbols{n}"));
        fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
        fs::copy(lab.path(file), dir.join(name)).unwrap();
        let options = SymbolOptions { symbol_path: vec![lab.path("none"), dir], ..lab.options() };
        for binary in [&case.binary, Path::new("/gone/to/prog")] {
            let mut p = profile(binary, case.mapping.clone(), 0, &[case.address]);
            symbolize(&mut p, &options, &quiet);
            let expected: &[&str] = match (binary == case.binary, name == whole) {
                (false, true) => &[],
                _ => &ALL,
            };
            assert_eq!(names(&p, 0), expected, "{name} for {}", binary.display());
        }
        // Of another build: refused.
        let other = (case.mapping.0, case.mapping.1, "00".repeat(20));
        let mut p = profile(Path::new("/gone/to/prog"), other, 0, &[case.address]);
        symbolize(&mut p, &options, &quiet);
        assert!(names(&p, 0).is_empty(), "{name}");
    }
}

/// As in a container that has the debug package of its stripped program.
#[test]
fn debug_files_are_found_below_the_root_of_the_process() {
    let case = Case::new(&["-g"]);
    let lab = &case.lab;
    lab.run(
        "sh",
        &[
            "-ec",
            "gcc -O2 -g -Wl,--build-id=0x00112233445566778899aabbccddeeff00112233 prog.c -o other
             mkdir -p ct/bin ct/etc
             for f in prog other; do objcopy --only-keep-debug $f $f.debug; done
             objcopy --add-gnu-debuglink=prog.debug --strip-all prog ct/bin/prog
             objcopy --strip-all prog ct/bin/no-link",
        ],
    );
    let id = &case.mapping.2;
    let by_id = format!("usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]);
    let root = Arc::new(sys::foreign::Root::at(&lab.path("ct")).unwrap());
    let resolve = |binary: &str| {
        let name = Path::new("/bin").join(binary);
        let mut p = profile(&name, case.mapping.clone(), 0, &[case.address]);
        let options = SymbolOptions {
            files: [(0, lab.path("ct/bin").join(binary))].into(),
            roots: [(0, root.clone())].into(),
            debug_dirs: vec!["/usr/lib/debug".into()],
            ..lab.options()
        };
        symbolize(&mut p, &options, &quiet);
        names(&p, 0)
    };
    // (the program, the place of its debug file)
    let ways = [
        ("no-link", by_id.as_str()),
        ("prog", "usr/lib/debug/bin/prog.debug"),
        ("prog", "bin/.debug/prog.debug"),
    ];
    for (binary, place) in ways {
        let place = lab.path("ct").join(place);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        assert!(resolve(binary).is_empty(), "{binary}: nothing is there");
        fs::copy(lab.path("other.debug"), &place).unwrap();
        assert!(resolve(binary).is_empty(), "{}: of another build", place.display());
        fs::remove_file(&place).unwrap();
        lab.run("mkfifo", &[place.to_str().unwrap()]);
        assert!(resolve(binary).is_empty(), "{}: no regular file", place.display());
        fs::remove_file(&place).unwrap();
        // A link stays below the root, wherever it leads.
        std::os::unix::fs::symlink("/../../../../etc/real.debug", &place).unwrap();
        assert!(resolve(binary).is_empty(), "{}: a link to nothing", place.display());
        fs::copy(lab.path("prog.debug"), lab.path("ct/etc/real.debug")).unwrap();
        assert_eq!(resolve(binary), ALL, "{}: a link inside", place.display());
        fs::remove_file(&place).unwrap();
        fs::rename(lab.path("ct/etc/real.debug"), &place).unwrap();
        assert_eq!(resolve(binary), ALL, "{}", place.display());
        fs::remove_file(&place).unwrap();
    }
}

/// As in a container with a program of split debug information: files that it names are those of
/// the container, and no link leads out of it.
#[test]
fn split_and_shared_debug_files_are_found_below_the_root_of_the_process() {
    let inside = |case: &Case, options: SymbolOptions| {
        let root = Arc::new(sys::foreign::Root::at(&case.lab.path("ct")).unwrap());
        let mut p = profile(Path::new("/bin/prog"), case.mapping.clone(), 0, &[case.address]);
        let files = [(0, case.lab.path("ct/bin/prog"))].into();
        let options = SymbolOptions { files, roots: [(0, root)].into(), ..options };
        symbolize(&mut p, &options, &quiet);
        names(&p, 0)
    };
    // (what is made, the debug file, its places below the root)
    let dwo = "mkdir -p ct/bin; mv prog ct/bin/; mv *.dwo part";
    let pack = "dwp -e prog -o part; mkdir -p ct/bin; mv prog ct/bin/; rm *.dwo";
    let share = "gcc -O2 -g prog.c -o other; dwz -m part -M ../lib/part prog other
                 mkdir -p ct/bin; mv prog ct/bin/";
    let split = &["-g", "-gdwarf-5", "-gsplit-dwarf"][..];
    let cases = [
        (split, dwo, vec!["bin/NAME", "HERE/NAME"]),
        (&["-g", "-gdwarf-4", "-gsplit-dwarf"], pack, vec!["bin/prog.dwp"]),
        (&["-g"], share, vec!["lib/part"]),
    ];
    for (flags, script, places) in cases {
        let case = Case::new(flags);
        let lab = &case.lab;
        lab.run("sh", &["-ec", "ls *.dwo > list 2> none || true"]);
        let name = fs::read_to_string(lab.path("list")).unwrap().trim().to_owned();
        lab.run("sh", &["-ec", script]);
        let here = lab.dir.path().canonicalize().unwrap();
        let here = here.to_str().unwrap().trim_start_matches('/');
        for place in places {
            let place = lab.path("ct").join(place.replace("NAME", &name).replace("HERE", here));
            let what = place.display();
            let found = || inside(&case, lab.options());
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            assert_ne!(found(), ALL, "{what}: nothing is there");
            // A link stays below the root, wherever it leads.
            std::os::unix::fs::symlink(lab.path("part"), &place).unwrap();
            assert_ne!(found(), ALL, "{what}: a link out of the root");
            fs::remove_file(&place).unwrap();
            lab.run("mkfifo", &[place.to_str().unwrap()]);
            assert_ne!(found(), ALL, "{what}: no regular file");
            fs::remove_file(&place).unwrap();
            fs::create_dir_all(lab.path("ct/etc")).unwrap();
            std::os::unix::fs::symlink("/../../etc/part", &place).unwrap();
            fs::copy(lab.path("part"), lab.path("ct/etc/part")).unwrap();
            assert_eq!(found(), ALL, "{what}: a link inside");
            fs::remove_file(&place).unwrap();
            fs::rename(lab.path("ct/etc/part"), &place).unwrap();
            assert_eq!(found(), ALL, "{what}");
            fs::remove_file(&place).unwrap();
        }
    }
}

/// The file is truncated in place while its names are resolved.
#[test]
fn a_file_that_is_truncated_while_read_gives_no_wrong_names() {
    sys::mmap::outlive_cut_files();
    let case = Case::new(&["-g"]);
    let before = sys::mmap::cut_pages();
    let options = case.lab.options();
    let access = source::Access::default();
    let found = source::find(case.binary.to_str().unwrap(), "", access, &options);
    let layers = found.unwrap().layers;
    // The first result is reported before the second address is resolved.
    let addresses: Vec<u64> = (0..1000).map(|n| case.address - 1 + n / 999).collect();
    let cut =
        |_| fs::OpenOptions::new().write(true).open(&case.binary).unwrap().set_len(64).unwrap();
    let resolved = elf::resolve(&layers, &addresses, &options, &DirectOpener::default(), &cut);
    match resolved {
        Err(why) => assert_eq!(why, Cause::Cut),
        Ok(resolved) => {
            assert_eq!(sys::mmap::cut_pages(), before, "zeros were taken for names");
            assert_eq!(resolved.len(), addresses.len());
        }
    }
}
