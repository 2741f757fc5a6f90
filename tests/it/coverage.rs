//! `prof report --coverage`, and names from directories that the user gives.

use std::fs;
use std::path::Path;

use crate::common;
use crate::common::{Build, Prof, needs, target, temp_dir};

/// The row of a binary in the coverage report, as JSON.
fn row(dir: impl AsRef<Path>, binary: &str) -> serde_json::Value {
    let out = Prof::new(dir, "report --coverage --json --type samples").run().ok();
    let all: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let rows = all["rows"].as_array().unwrap();
    let found = rows.iter().find(|r| r["binary"].as_str().is_some_and(|b| b.ends_with(binary)));
    found.unwrap_or_else(|| panic!("no {binary} in {all}")).clone()
}

#[test]
fn a_stripped_binary_is_reported_and_its_symbols_name_it() {
    if !needs(&["strip"]) {
        return;
    }
    let dir = temp_dir();
    let symbols = dir.path().join("symbols");
    fs::create_dir(&symbols).unwrap();
    let known = target("known", Build::CDebug);
    common::copy_program(&known, symbols.join("known"));
    let stripped = dir.path().join("known");
    common::copy_program(&known, &stripped);
    common::run::tool("strip", &[stripped.as_ref()]);
    let out = Prof::new(&dir, "record -F 999").target(&stripped, "1").run().ok();
    let before = row(&dir, "/known");
    assert!(before["total"].as_i64().unwrap() > 100, "{before}");
    assert_eq!(before["with_names"], 0, "{before}");
    assert_eq!(before["build_id"].as_str().unwrap().len(), 40, "{before}");
    let remedy = before["remedies"][0].as_str().unwrap();
    assert!(remedy.starts_with("for names: build it with -g"), "{remedy}");
    assert!(before["why_without_names"].as_str().unwrap().contains("stripped"), "{before}");
    assert_eq!(before["no_unwind_information"], false, "{before}");
    // The few lines after the recording contain it, too.
    let stderr = &out.stderr;
    let line = stderr.lines().find(|l| l.ends_with("/known")).expect(stderr);
    let fields: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(fields[2..5], ["0%", "0%", "yes"], "{stderr}");
    assert_eq!(fields[5], &before["build_id"].as_str().unwrap()[..8], "{stderr}");
    assert!(stderr.contains(remedy), "{stderr}");
    let text = Prof::new(&dir, "report --coverage").run().ok().text();
    assert!(text.contains(remedy) && text.contains("build ID"), "{text}");

    Prof::new(&dir, "symbolize --symbol-path none").run().refused(2, &["none", "not a directory"]);
    Prof::new(&dir, "symbolize --symbol-path symbols").run().ok();
    let after = row(&dir, "/known");
    let most = |row: &serde_json::Value, part: &str| {
        let [part, all] = [part, "frames"].map(|key| row[key].as_i64().unwrap());
        part * 10 > all * 5
    };
    assert!(after["with_names"] == after["frames"] && most(&after, "with_lines"), "{after}");
    assert_eq!(after["remedies"].as_array().unwrap().len(), 0, "{after}");
    // The same with the directory given to the recording.
    Prof::new(&dir, "record -F 999 --symbol-path symbols").target(&stripped, "1").run().ok();
    let at_once = row(&dir, "/known");
    assert!(most(&at_once, "with_names") && most(&at_once, "with_lines"), "{at_once}");
}

#[test]
fn options_about_names_need_a_recording() {
    let dir = temp_dir();
    let out = Prof::new(&dir, "flame --no-cache some.pb.gz").run();
    out.refused(2, &["--no-cache", "applies to recordings"]);
}

/// To build the program again is no remedy: the names would be another build's.
#[test]
fn for_a_replaced_binary_the_advice_names_the_recorded_build() {
    let dir = temp_dir();
    let program = dir.path().join("known");
    common::copy_program(target("known", Build::CDebug), &program);
    Prof::new(&dir, "record -F 999 --no-symbolize").target(&program, "0.2").run().ok();
    fs::remove_file(&program).unwrap();
    common::copy_program(target("known", Build::CFramePointers), &program);
    Prof::new(&dir, "symbolize").run().ok();
    let row = row(&dir, "/known");
    let why = row["why_without_names"].as_str().unwrap();
    assert!(why.contains("another build than the recorded one"), "{row}");
    let remedies = row["remedies"].as_array().unwrap();
    let id = row["build_id"].as_str().unwrap();
    let expected = format!(
        "for names: put the recorded build (build ID {id}) into a directory: \
         prof symbolize --force --symbol-path DIR profile.pb.gz"
    );
    assert_eq!(remedies[0].as_str(), Some(&*expected), "{row}");
    assert!(remedies.iter().all(|r| !r.as_str().unwrap().contains("-g ")), "{row}");
}

/// Servers of debug files are the machine's configuration, not prof's.
#[test]
fn no_server_of_a_distribution_is_built_in() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut directories = vec![root.join("src"), root.join("crates")];
    let hosts = ["deb.debian.", "debuginfod.debian", "ddebs.ubuntu", "debuginfod.ubuntu"];
    let more = ["elfutils.org", "fedoraproject.org", "archlinux.org", "opensuse.org", "centos.org"];
    let mut files = 0;
    while let Some(directory) = directories.pop() {
        for path in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                directories.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                files += 1;
                for host in hosts.iter().chain(&more) {
                    assert!(!text.contains(host), "{host} is in {}", path.display());
                }
            }
        }
    }
    assert!(files > 100, "{files} files");
}
