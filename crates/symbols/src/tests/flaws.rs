//! Reported causes for a binary whose debug information is damaged, incomplete or another's.

use object::ObjectSection;

use super::*;

/// A program with all of its debug information, and addresses of it: inlined functions, `main`, and
/// code that the compiler did not make.
fn program(flags: &[&str]) -> (Lab, PathBuf, [u64; 3]) {
    let lab = Lab::new();
    let binary = lab.compile("prog", C, flags);
    let addresses = ["mark_inner", "main", "_start"].map(|name| marks(&binary)(name));
    (lab, binary, addresses)
}

/// The causes, and the names of all addresses.
fn reasons(lab: &Lab, binary: &Path, of: &Path, addresses: &[u64]) -> (Vec<String>, Vec<String>) {
    let mut p = profile(binary, mapping_of(of, 0), 0, addresses);
    let outcome = symbolize(&mut p, &lab.options(), &quiet);
    let reasons = outcome.reasons().iter().map(|r| format!("{:?}: {}", r.lack, r.gap)).collect();
    (reasons, (0..addresses.len() as u32).flat_map(|n| names(&p, n)).collect())
}

/// Overwrites bytes of a copy of the binary.
fn overwritten(lab: &Lab, binary: &Path, range: std::ops::Range<usize>, with: u8) -> PathBuf {
    let mut data = fs::read(binary).unwrap();
    data[range].fill(with);
    let copy = lab.path("copy");
    fs::write(&copy, data).unwrap();
    copy
}

fn section(binary: &Path, name: &str) -> std::ops::Range<usize> {
    let data = fs::read(binary).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    let (start, size) = elf.section_by_name(name).unwrap().file_range().unwrap();
    start as usize..(start + size) as usize
}

#[test]
fn an_intact_binary_has_no_reasons() {
    let (lab, binary, addresses) = program(&["-g"]);
    let (reasons, names) = reasons(&lab, &binary, &binary, &addresses);
    assert!(reasons.is_empty(), "{reasons:?}");
    assert_eq!(names, ["inner", "middle", "outer", "main", "_start"]);
}

#[test]
fn damaged_debug_sections_are_named() {
    let (lab, binary, addresses) = program(&["-g"]);
    for name in [".debug_line", ".debug_abbrev", ".debug_info"] {
        let range = section(&binary, name);
        for with in [0, 0xff] {
            let copy = overwritten(&lab, &binary, range.start..range.start + 32, with);
            let (reasons, names) = reasons(&lab, &copy, &binary, &addresses);
            let is_named =
                reasons.iter().any(|r| r.starts_with("Lines: ") && r.contains("damaged: "));
            assert!(is_named, "{name} {with}: {reasons:?}");
            // The symbol table is intact.
            assert!(names.iter().any(|n| n == "main"), "{name} {with}: {names:?}");
            let right = |n: &String| ["inner", "middle", "outer", "main", "_start"].contains(&&**n);
            assert!(names.iter().all(|n| right(n) || n.starts_with("mark_")), "{name}: {names:?}");
        }
    }
}

#[test]
fn damaged_section_headers_are_named() {
    let (lab, binary, addresses) = program(&["-g"]);
    let copy = overwritten(&lab, &binary, 40..48, 0xff);
    let (reasons, _) = reasons(&lab, &copy, &binary, &addresses);
    let expected = "Names: 3 of 3 addresses: damaged: its section headers: ";
    assert!(reasons.len() == 1 && reasons[0].starts_with(expected), "{reasons:?}");
}

#[test]
fn parts_that_are_missing_are_named() {
    let (lab, binary, addresses) = program(&["-g", "-gsplit-dwarf"]);
    for file in fs::read_dir(lab.dir.path()).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|e| e == "dwo") {
            fs::remove_file(path).unwrap();
        }
    }
    let (found, _) = reasons(&lab, &binary, &binary, &addresses);
    let named = |r: &String| r.starts_with("Lines: ") && r.contains(".dwo is missing");
    assert!(found.iter().any(named), "{found:?}");

    let (lab, binary, addresses) = program(&["-g"]);
    lab.compile("other", C, &["-g"]);
    lab.run("dwz", &["-m", "common", "-M", "common", "prog", "other"]);
    assert!(reasons(&lab, &binary, &binary, &addresses).0.is_empty());
    fs::remove_file(lab.path("common")).unwrap();
    let (found, _) = reasons(&lab, &binary, &binary, &addresses);
    assert!(found.iter().any(|r| r.contains("common is missing")), "{found:?}");
}

#[test]
fn a_debug_file_of_another_build_is_named() {
    let (lab, binary, addresses) = program(&["-g"]);
    lab.compile("old", &C.replace("return 0", "return 1"), &["-g"]);
    lab.run("objcopy", &["--only-keep-debug", "old", "prog.debug"]);
    for keep in ["--strip-debug", "--strip-all"] {
        lab.run("strip", &[keep, "-o", "less", "prog"]);
        lab.run("objcopy", &["--add-gnu-debuglink=prog.debug", "less"]);
        let (reasons, _) = reasons(&lab, &lab.path("less"), &binary, &addresses);
        let lack = if keep == "--strip-debug" { "Lines: 3 of 3" } else { "Names: 3 of 3" };
        assert!(reasons.iter().any(|r| r.starts_with(lack)), "{keep}: {reasons:?}");
        assert!(
            reasons.iter().all(|r| r.contains("prog.debug is of another build")),
            "{reasons:?}"
        );
    }
}
