//! Code for one CPU architecture lies in files of that name, which have the same items.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use regex::Regex;

use super::{Source, sources, sources_below};

/// All source, including that of the preloaded library.
fn all_sources() -> Vec<Source> {
    let mut all = sources();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    all.extend(sources_below(vec![root.join("crates/heap/preload")]));
    all
}

/// Files outside of an architecture's that contain its words in code, and why.
const EXCEPTIONS: &[(&str, &str)] =
    &[("crates/heap/preload/layout.rs", "selects a file of an architecture, for two crates")];

/// True for files of an architecture, and for the one that selects it.
fn is_of_architecture(path: &str) -> bool {
    let mut parts = path.split('/');
    path.ends_with("arch/mod.rs")
        || parts.any(|part| ["x86_64", "aarch64"].contains(&part.trim_end_matches(".rs")))
}

#[test]
fn words_of_an_architecture_are_in_its_files() {
    let words = Regex::new(
        r"x86|X86|iced_x86|amd64|arm64|aarch64|AARCH64|target_arch|asm!|\b(r[abcd]x|r[sd]i|r[sbi]p)\b",
    )
    .unwrap();
    let mut found = Vec::new();
    for source in all_sources() {
        let exempt = EXCEPTIONS.iter().any(|(path, _)| *path == source.path);
        if exempt || is_of_architecture(&source.path) {
            continue;
        }
        let lines = source.code().filter(|line| words.is_match(line));
        found.extend(lines.map(|line| format!("{}: {}", source.path, line.trim())));
    }
    assert!(found.is_empty(), "move these into `arch`:\n{}", found.join("\n"));
}

/// Public items of an architecture: kind and signature by name.
type Items = BTreeMap<String, String>;

/// A public item in a line of code, before its name; its kind; its name; the rest of the line.
fn item_pattern() -> Regex {
    Regex::new(
        r#"^( *)pub (?:unsafe )?(?:extern "C" )?(const|static|fn|struct|enum|type) (\w+)(.*)$"#,
    )
    .unwrap()
}

/// Public items in a text: names of methods follow that of their type.
fn items_in(text: &str) -> Items {
    let (pattern, of_type) = (item_pattern(), Regex::new(r"^impl.*?(\w+)(<.*>)? \{$").unwrap());
    let (mut items, mut within, mut is_test) = (Items::new(), String::new(), false);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with('}') {
            within.clear();
        } else if let Some(found) = of_type.captures(line) {
            within = format!("{}::", &found[1]);
        }
        if let Some(found) = pattern.captures(line) {
            let mut rest = found[4].to_owned();
            // Until the body or the value.
            while &found[2] == "fn" && !rest.contains('{') {
                rest.push_str(lines.next().expect("a body").trim());
            }
            let prefix = if found[1].is_empty() { "" } else { &within };
            if !is_test {
                items.insert(format!("{prefix}{}", &found[3]), signature(&found[2], &rest));
            }
        }
        is_test = line.trim() == "#[cfg(test)]";
    }
    items
}

/// The part of an item that both architectures have in common: types of parameters and results, not
/// their names; types of constants, but for the length of arrays.
fn signature(kind: &str, rest: &str) -> String {
    match kind {
        "fn" => {
            let head = rest.split('{').next().unwrap().replace(",)", ")");
            let parameters = Regex::new(r"(?:mut )?(?:_?\w+|\([\w, ]+\)): ").unwrap();
            format!("fn{}", parameters.replace_all(&head, "_: ").replace(' ', ""))
        }
        "const" | "static" => {
            let length = Regex::new(r"; \w+\]").unwrap();
            length.replace_all(rest.split('=').next().unwrap(), "]").trim().to_owned()
        }
        _ => "type".to_owned(),
    }
}

/// Public items of `x86_64.rs` or `aarch64.rs` in a directory: its own, and those of files in a
/// directory of the same name that it passes on.
fn items_of(directory: &Path, name: &str) -> Items {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = root.join(directory).join(format!("{name}.rs"));
    let text = std::fs::read_to_string(&own).unwrap_or_else(|e| panic!("{}: {e}", own.display()));
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap();
    let mut items = items_in(text);
    let passed = Regex::new(r"(?s)pub use \w+(?:::\w+)*::(?:\{(.*?)\}|(\w+));").unwrap();
    let passed: BTreeSet<String> = passed
        .captures_iter(text)
        .flat_map(|found| {
            let names = found.get(1).or(found.get(2)).unwrap().as_str();
            names.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>()
        })
        .filter(|name| !name.is_empty())
        .collect();
    let below = root.join(directory).join(name);
    if below.is_dir() {
        for source in sources_below(vec![below]) {
            items.extend(items_in(&source.text).into_iter().filter(|(name, _)| {
                let owner = name.split("::").next().unwrap();
                passed.contains(owner)
            }));
        }
    }
    for name in &passed {
        assert!(items.contains_key(name), "{}: {name} was not found", own.display());
    }
    items
}

/// Directories with files of architectures.
fn pairs() -> BTreeSet<PathBuf> {
    let is_one =
        |path: &&Path| path.file_stem().is_some_and(|name| name == "x86_64" || name == "aarch64");
    let all = all_sources();
    let files = all.iter().map(|source| Path::new(&source.path)).filter(is_one);
    files.map(|path| path.parent().unwrap().to_owned()).collect()
}

#[test]
fn architectures_have_the_same_items() {
    let pairs = pairs();
    assert!(pairs.len() >= 7, "{pairs:?}");
    let mut differing = Vec::new();
    for directory in pairs {
        let [x86_64, aarch64] = ["x86_64", "aarch64"].map(|name| items_of(&directory, name));
        assert!(!x86_64.is_empty(), "{}", directory.display());
        for name in x86_64.keys().chain(aarch64.keys()) {
            let (of_one, of_other) = (x86_64.get(name), aarch64.get(name));
            if of_one != of_other {
                differing
                    .push(format!("{}: {name}: {of_one:?}, {of_other:?}", directory.display()));
            }
        }
    }
    assert!(differing.is_empty(), "x86_64, aarch64:\n{}", differing.join("\n"));
}

#[test]
fn items_are_read_from_source() {
    let text = "pub const A: [u8; 3] = [0; 3];\nimpl Way {\n    pub fn step(\n        &self,\n        \
                _at: u64,\n        mut with: impl Fn(u8) -> bool,\n    ) -> Step {\n    }\n    fn \
                own() {}\n}\npub enum Way {}\n#[cfg(test)]\npub fn test() {}\n";
    let expected = [
        ("A", ": [u8]"),
        ("Way", "type"),
        ("Way::step", "fn(&self,_:u64,_:implFn(u8)->bool)->Step"),
    ];
    let expected = expected.map(|(name, signature)| (name.to_owned(), signature.to_owned()));
    assert_eq!(items_in(text), Items::from(expected));
}
