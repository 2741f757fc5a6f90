//! Forms of names: mangled, short, with templates, in full.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::common;
use crate::common::{Build, Prof, needs, target, temp_dir, unnamed, write};
use object::{Object, ObjectSymbol};

#[test]
fn demangle_selects_the_form_of_names() {
    if !needs(&["g++"]) {
        return;
    }
    let dir = temp_dir();
    Prof::new(&dir, "record -F 999").target(target("busy", Build::Cpp), "60").run().ok();
    let report = |style: &str| {
        let args = format!("report --sort symbol,total -n 0 {style}");
        Prof::new(&dir, &args).run().ok().text()
    };
    // One template, of which the program has two instances.
    let rows = |text: &str, name: &str| {
        text.lines().filter(|l| l.split("  ").any(|column| column.trim() == name)).count()
    };
    let plain = "(anonymous namespace)::count_words";
    let long = format!("{plain}<unsigned long>");
    for style in ["", "--demangle templates"] {
        assert_eq!(rows(&report(style), &long), 1, "{}", report(style));
    }
    let short = report("--demangle short");
    assert_eq!((rows(&short, plain), rows(&short, &long)), (1, 0), "{short}");
    let full = report("--demangle full");
    assert!(full.contains("count_words<unsigned long>((anonymous namespace)::Random&"), "{full}");
    let none = report("--demangle none");
    assert!(none.contains("_ZN12_GLOBAL__N_111count_wordsImEE"), "{none}");
    let flame = Prof::new(&dir, "flame --folded --demangle short").run().ok().text();
    assert!(flame.contains(&format!(";{plain};")) && !flame.contains(&long), "{flame}");
    let tall = Prof::new(&dir, "report --demangle tall").run();
    tall.refused(2, &["--demangle"]);
    tall.says(&["none, short, templates, full"]);
    // Mangled in the recording already.
    let mut raw = Prof::new(&dir, "record -F 999 --no-demangle");
    raw = raw.target(target("busy", Build::Cpp), "20");
    raw.run().ok();
    assert!(report("").contains("_ZN12_GLOBAL__N_111count_words"), "{}", report(""));
}

/// The mangled names of C++ in the dynamic symbols of a library, each once.
fn mangled_names(library: &Path) -> Vec<String> {
    let data = std::fs::read(library).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    let names = elf.dynamic_symbols().filter_map(|s| s.name().ok().map(str::to_owned));
    let mut names: Vec<String> = names.filter(|name| name.starts_with("_Z")).collect();
    names.sort();
    names.dedup();
    names
}

/// Names as `c++filt` demangles them.
fn filtered(names: &[String]) -> Vec<String> {
    let mut command = Command::new("c++filt");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = names.join("\n") + "\n";
    let writer =
        std::thread::spawn(move || std::io::Write::write_all(&mut stdin, input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// A name in a form common to both: `c++filt` spells out the abbreviations of the standard library,
/// and leaves out a blank behind an empty pack.
fn normal(name: &str) -> String {
    let mut name = name.to_owned();
    while name.contains("> >") {
        name = name.replace("> >", ">>");
    }
    let of_char = "<char, std::char_traits<char>";
    let name =
        name.replace(&format!("std::basic_string{of_char}, std::allocator<char>>"), "std::string");
    ["istream", "ostream", "iostream"].iter().fold(name, |name, stream| {
        name.replace(&format!("std::basic_{stream}{of_char}>"), &format!("std::{stream}"))
    })
}

#[test]
fn full_names_equal_those_of_cxxfilt() {
    if !needs(&["c++filt"]) {
        return;
    }
    let lib = Path::new("/usr/lib/x86_64-linux-gnu");
    let mut compared = 0;
    for library in ["libstdc++.so.6", "libLLVM-14.so.1"] {
        let path = lib.join(library);
        if !path.exists() {
            common::skip(&format!("{} is not installed", path.display()));
            continue;
        }
        let names = mangled_names(&path);
        let theirs = filtered(&names);
        assert_eq!(names.len(), theirs.len());
        let mut different = Vec::new();
        for (name, theirs) in names.iter().zip(&theirs) {
            let ours = symbols::demangle_full(name).unwrap_or_else(|| name.clone());
            if normal(&ours) != normal(theirs) {
                different.push((name, ours, theirs));
            }
        }
        let (n, all) = (different.len(), names.len());
        assert!(n == 0, "{library}: {n} of {all} differ: {:#?}", &different[..n.min(3)]);
        compared += all;
    }
    assert!(compared == 0 || compared > 3000, "{compared}");
}

/// A program with such a name stops neither its recording nor the report of it.
#[test]
fn a_name_that_expands_too_much_stays_mangled_and_is_counted() {
    if !needs(&["gcc", "objcopy"]) {
        return;
    }
    let dir = temp_dir();
    let built = target("known", Build::CDebug);
    // Each template argument has the one before it twice.
    let tail: String = "3456789ABC".chars().map(|n| format!("S2_IS{n}_S{n}_E")).collect();
    let doubled = format!("_Z1fI1AIiiE1BIS1_S1_E{tail}Evv");
    // Incomplete, with many continuations after each step back.
    let open = format!("_ZNSt6vectorIi{}", "SaIjSt6vectorIi".repeat(14));
    let program = dir.path().join("program");
    let mut objcopy = Command::new("objcopy");
    objcopy.arg("--strip-debug").arg(format!("--redefine-sym=foo1={doubled}"));
    objcopy.arg(format!("--redefine-sym=foo2={open}")).arg(&built).arg(&program);
    common::run::run(objcopy).ok();
    let data = std::fs::read(&program).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    let address = |name: &str| elf.symbols().find(|s| s.name() == Ok(name)).unwrap().address();
    let addresses = [address(&doubled), address(&open), address("bar")];
    write(&unnamed(&program, &addresses), &dir.path().join("profile.pb.gz"));
    let note = "1 name is left mangled";
    Prof::new(&dir, "symbolize").run().ok().says(&[note]);
    for style in ["full", "templates", "short"] {
        let report = Prof::new(&dir, &format!("report -n 0 --demangle {style}")).run().ok();
        assert!(report.stderr.contains(note), "{}", report.stderr);
        assert!(report.text().contains("_Z1fI1AIiiE1BIS1_S1_E"), "{}", report.text());
    }
}
