use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use super::*;
use crate::headers::Headers;
use crate::opener::Place;

/// Runs a tool in a directory.
fn tool(dir: &Path, command: &str, args: &[&str]) {
    let status = Command::new(command).args(args).current_dir(dir).status();
    assert!(status.unwrap().success(), "{command} {args:?}");
}

#[test]
fn the_key_contains_all_that_frames_depend_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("main.c"), "int main(void) { return 0; }").unwrap();
    tool(dir.path(), "gcc", &["-g", "-o", "main", "main.c"]);
    let found = |build_id: &str, has_debug_info| {
        let headers = Headers { build_id: build_id.into(), has_debug_info, ..Headers::default() };
        let path = path("main");
        let split = false;
        let file = Arc::new(fs::File::open(&path).unwrap());
        let debug_info = has_debug_info;
        let place = Place::own(&path);
        let layers = vec![Layer { place, file, debug_info, split, shared: None, unpacked: false }];
        SymbolFiles { headers, binary: true, layers, stripped: false, flaw: None }
    };
    let options = SymbolOptions { debug_dirs: vec![path("debug")], ..SymbolOptions::default() };
    let key = || for_files(&found("abcd1234", true), &options);
    let first = key().unwrap();
    assert_eq!(Some(&first), key().as_ref());
    let differs = |key: Option<CacheKey>| key.unwrap().file_name() != first.file_name();
    assert!(differs(for_files(&found("abcd1235", true), &options)));
    assert!(differs(for_files(&found("abcd1234", false), &options)));
    for other in [
        SymbolOptions { inlines: false, ..options.clone() },
        SymbolOptions { demangle: false, ..options.clone() },
    ] {
        assert!(differs(for_files(&found("abcd1234", true), &other)));
    }
    // Without a build ID, or with one that is no valid part of a file name.
    for bad in ["", "abcd", "a".repeat(400).as_str()] {
        assert_eq!(for_files(&found(bad, true), &options), None);
    }
    // Split: in other files, which are missing here.
    let mut split = found("abcd1234", true);
    split.layers[0].split = true;
    assert_eq!(for_files(&split, &options), None);
    // It is another file, with the same contents.
    fs::copy(path("main"), path("copy")).unwrap();
    fs::rename(path("copy"), path("main")).unwrap();
    assert!(differs(key()));
    let second = key().unwrap();
    // Its shared debug file is elsewhere: without it, more names may appear later.
    fs::write(path("shared.debug"), "").unwrap();
    split.layers[0].shared = Some(Arc::new(fs::File::open(path("shared.debug")).unwrap()));
    let with_shared = for_files(&split, &options).unwrap();
    assert_ne!(with_shared, second);
    fs::write(path("other.debug"), "").unwrap();
    split.layers[0].shared = Some(Arc::new(fs::File::open(path("other.debug")).unwrap()));
    assert_ne!(for_files(&split, &options).unwrap(), with_shared);
}
