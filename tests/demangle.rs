//! How names are written: mangled, short, with templates, in full.

mod common;

use common::{Build, Prof, needs, target, temp_dir};

#[test]
fn names_are_written_as_wished() {
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
    Prof::new(&dir, "report --demangle tall").run().refused(2, &["--demangle", "none, short"]);
    // Left as they are from the beginning.
    let mut raw = Prof::new(&dir, "record -F 999 --no-demangle");
    raw = raw.target(target("busy", Build::Cpp), "20");
    raw.run().ok();
    assert!(report("").contains("_ZN12_GLOBAL__N_111count_words"), "{}", report(""));
}
