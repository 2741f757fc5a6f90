//! Files of one crate import each other in one direction: no circle of files, in which none can be
//! understood, moved or tested without all others.

use std::collections::{BTreeMap, BTreeSet};

use super::sources;

/// Path of a module below its crate; empty for the crate's root, which declares and exports all.
type Module = Vec<String>;

/// Crates whose files form no circles.
const WITHOUT_CIRCLES: &[&str] = &["symbols"];

/// The modules of each crate, with their code.
fn crates() -> BTreeMap<String, BTreeMap<Module, String>> {
    let mut all: BTreeMap<String, BTreeMap<Module, String>> = BTreeMap::new();
    for source in sources() {
        let Some((name, file)) = source.path.strip_prefix("crates/").and_then(|path| {
            let (name, file) = path.split_once("/src/")?;
            Some((name.to_owned(), file.trim_end_matches(".rs").to_owned()))
        }) else {
            continue;
        };
        let mut module: Module = file.split('/').map(str::to_owned).collect();
        module.pop_if(|last| ["lib", "mod"].contains(&last.as_str()));
        let code = source.code().map(|line| format!("{line}\n")).collect();
        all.entry(name).or_default().insert(module, code);
    }
    all
}

/// All paths in an import such as `super::{a, b::{C, D}}`.
fn expanded(import: &str) -> Vec<String> {
    let Some((start, rest)) = import.split_once('{') else { return vec![import.to_owned()] };
    let mut depth = 0;
    let mut parts = vec![String::new()];
    for c in rest.chars() {
        match c {
            '}' if depth == 0 => break,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        parts.last_mut().unwrap().push(c);
    }
    parts
        .iter()
        .flat_map(|part| expanded(part.trim()))
        .map(|path| start.to_owned() + &path)
        .collect()
}

/// Length of the path, with its braces, that text begins with.
fn path_length(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' if depth > 0 || text[..at].ends_with("::") => depth += 1,
            '}' if depth > 0 => depth -= 1,
            _ if depth > 0 || c.is_alphanumeric() || "_:}".contains(c) => {}
            _ => return at,
        }
    }
    text.len()
}

/// The modules that a module names.
fn imports(modules: &BTreeMap<Module, String>, module: &Module, code: &str) -> BTreeSet<Module> {
    let is_child = |m: &&Module| m.len() == module.len() + 1 && m.starts_with(module);
    let children = modules.keys().filter(is_child).filter_map(|m| m.last()).map(String::as_str);
    let mut found = BTreeSet::new();
    for start in ["crate", "super", "self"].into_iter().chain(children) {
        for (at, _) in code.match_indices(&format!("{start}::")) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let path = &code[at..at + path_length(&code[at..])];
            for path in expanded(path) {
                let mut target = module.clone();
                for part in path.split("::") {
                    match part.trim() {
                        "crate" => target.clear(),
                        "self" => {}
                        "super" => drop(target.pop()),
                        part => {
                            let below = [&target[..], &[part.to_owned()]].concat();
                            if !modules.contains_key(&below) {
                                break;
                            }
                            target = below;
                        }
                    }
                }
                found.insert(target);
            }
        }
    }
    found.remove(module);
    found.remove(&Module::new());
    found
}

/// The circles of a crate, each as its sorted files.
fn circles(modules: &BTreeMap<Module, String>) -> BTreeSet<Vec<String>> {
    let uses: BTreeMap<&Module, BTreeSet<Module>> =
        modules.iter().map(|(module, code)| (module, imports(modules, module, code))).collect();
    let reached = |from: &Module| -> BTreeSet<Module> {
        let mut seen = BTreeSet::new();
        let mut next = vec![from.clone()];
        while let Some(module) = next.pop() {
            let new = uses.get(&module).into_iter().flatten().filter(|m| seen.insert((*m).clone()));
            next.extend(new.cloned().collect::<Vec<_>>());
        }
        seen
    };
    let all: BTreeMap<&Module, BTreeSet<Module>> =
        uses.keys().map(|module| (*module, reached(module))).collect();
    let circle = |(module, reached): (&&Module, &BTreeSet<Module>)| {
        let back = |m: &&Module| all.get(m).is_some_and(|reached| reached.contains(*module));
        let files: Vec<String> = reached.iter().filter(back).map(|m| m.join("/")).collect();
        (!files.is_empty()).then_some(files)
    };
    all.iter().filter_map(circle).collect()
}

#[test]
fn files_of_a_crate_import_each_other_in_one_direction() {
    let crates = crates();
    for name in WITHOUT_CIRCLES {
        let found = circles(&crates[*name]);
        assert!(found.is_empty(), "circles of files in crates/{name}: {found:#?}");
    }
}

#[test]
fn circles_of_files_are_found() {
    let modules = |files: &[(&str, &str)]| -> BTreeMap<Module, String> {
        let path =
            |path: &str| path.split('/').filter(|p| !p.is_empty()).map(str::to_owned).collect();
        files.iter().map(|(module, code)| (path(module), (*code).to_owned())).collect()
    };
    let root = ("", "mod a; mod b; mod c; use a::A;");
    let line =
        [root, ("a", "use super::{b::B, Item};"), ("b", "use crate::c;"), ("c", "fn c() {}")];
    assert!(circles(&modules(&line)).is_empty());
    let back = "fn c() { crate::a::f() }";
    let circle = modules(&[root, line[1], line[2], ("c", back)]);
    assert_eq!(circles(&circle), [["a", "b", "c"].map(str::to_owned).to_vec()].into());
    // A part of a module that uses its parent.
    let parts = modules(&[root, ("a", "mod d; use d::{x, y};"), ("a/d", "use super::{z, w};")]);
    assert_eq!(circles(&parts), [["a", "a/d"].map(str::to_owned).to_vec()].into());
    let siblings =
        [root, ("a", "mod d; mod e; use d::x;"), ("a/d", "use super::e::z;"), ("a/e", "")];
    assert!(circles(&modules(&siblings)).is_empty());
}
