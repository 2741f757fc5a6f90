//! Code that is freed before its names are read: of modules that are imported, and of files that are
//! included.
//!
//! The files are alike but for their names, so that the code of one is often where that of another one
//! was, with the same words. Each tenth file is loaded by the program, and loads the next ones.

use std::path::Path;

use crate::common::interpreted::{Frame, frames};
use crate::common::python::python;
use crate::common::system::{has_deep_stacks, needs_root};
use crate::common::{Pprof, Prof, needs, read, temp_dir};

const FILES: usize = 300;

/// The number of a file.
fn number(frame: &Frame) -> Option<usize> {
    let name = Path::new(frame.file).file_stem()?.to_str()?;
    name.strip_prefix("file")?.parse().ok()
}

/// Checks that files are loaded only by those which do, and that functions have names.
#[track_caller]
fn assert_chains(p: &Pprof, mapping: &str, loads: impl Fn(&str) -> bool) {
    let (mut samples, mut links, mut unnamed) = (0, 0, 0);
    for sample in &p.samples {
        let frames = frames(p, sample, mapping);
        if frames.iter().any(|frame| frame.function.starts_with('[')) {
            // On a busy machine, a ring may be full.
            unnamed += sample.values[0];
            continue;
        }
        let loaded = frames.iter().filter(|frame| loads(frame.function));
        let numbers: Vec<usize> = loaded.filter_map(number).collect();
        // The innermost first.
        for pair in numbers.windows(2) {
            assert_eq!(pair[0], pair[1] + 1, "{numbers:?} {frames:?}");
            links += 1;
        }
        if let Some(outermost) = numbers.last() {
            assert_eq!(outermost % 10, 0, "{numbers:?} {frames:?}");
            samples += sample.values[0];
        }
    }
    println!("{samples} samples in files, {links} calls between them, {unnamed} without a name");
    assert!(samples > 100 && links > 200, "{samples}, {links}");
    assert!(unnamed * 50 <= samples, "{unnamed} of {samples}");
}

#[test]
fn modules_that_are_imported_have_their_own_names() {
    let Some(python) = python() else { return };
    let dir = temp_dir();
    for n in 0..FILES {
        let next = if n % 10 < 9 { format!("import file{}\n", n + 1) } else { String::new() };
        let text = format!(
            "class Part{n}:\n    total = 0\n    for n in range(4000): total += n & 3\n\
             for n in range(8000): x = n & 7\n{next}"
        );
        std::fs::write(dir.path().join(format!("file{n}.py")), text).unwrap();
    }
    // The first time, they are compiled, and the second time, read.
    let program = "import importlib\n\
                   for n in range(0, 300, 10): importlib.import_module(f'file{n}')\n";
    for _ in 0..2 {
        let p = python.record(dir.path(), "-F 1999", program);
        assert_chains(&p, "[python]", |function| function == "<module>");
    }
}

#[test]
fn files_that_are_included_have_their_own_names() {
    if !needs_root() || !has_deep_stacks() || !needs(&["php"]) {
        return;
    }
    let dir = temp_dir();
    for n in 0..FILES {
        let next = if n % 10 < 9 {
            format!("include __DIR__ . '/file{}.php';\n", n + 1)
        } else {
            String::new()
        };
        let text = format!(
            "<?php\n$f = function ($n) {{ for ($i = 0; $i < $n; $i++) {{ $x = $i & 3; }} }};\n\
             $f(100000);\nfor ($j = 0; $j < 100000; $j++) {{ $x = $j & 7; }}\n{next}"
        );
        std::fs::write(dir.path().join(format!("file{n}.php")), text).unwrap();
    }
    let program =
        "<?php\nfor ($k = 0; $k < 300; $k += 10) { include __DIR__ . \"/file$k.php\"; }\n";
    let file = dir.path().join("program.php");
    std::fs::write(&file, program).unwrap();
    Prof::new(dir.path(), "record --timestamps -F 1999 -- php").arg(&file).run().ok();
    let p = read(dir.path().join("profile.pb.gz"));
    assert_chains(&p, "[php]", |function| function == "include");
}
