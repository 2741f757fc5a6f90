//! `prof doctor`, as this user and as an unprivileged one.

use std::process::{Command, Stdio};

use crate::common;
use crate::common::unprivileged::can_drop_rights;
use crate::common::{Prof, temp_dir};

fn checks(json: &str) -> Vec<serde_json::Value> {
    let checks: serde_json::Value = serde_json::from_str(json).expect("JSON");
    checks.as_array().expect("a list").clone()
}

/// The exit code reports whether your own processes can be recorded.
fn assert_honest(out: &common::Output) -> Vec<serde_json::Value> {
    let checks = checks(&out.text());
    assert_eq!(checks[0]["name"], "own processes");
    assert_eq!(checks[0]["code"], "own-processes");
    assert_eq!(out.code() == 0, checks[0]["ok"] == true, "{}", out.text());
    for check in &checks {
        assert!(!check["why"].as_str().unwrap().is_empty(), "{check}");
        assert!(check["ok"] == false || check["unlock"].is_null(), "{check}");
    }
    checks
}

#[test]
fn every_check_has_a_row() {
    let dir = temp_dir();
    let checks = assert_honest(&Prof::new(&dir, "doctor --json").run());
    let text = Prof::new(&dir, "doctor").run().text();
    for check in &checks {
        let name = check["name"].as_str().unwrap();
        let row = text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{name}"));
        let answer = if check["ok"] == true { "yes" } else { "no" };
        assert_eq!(row[name.len()..].split_whitespace().next(), Some(answer), "{row}");
        if let Some(unlock) = check["unlock"].as_str() {
            assert!(text.lines().any(|l| l.trim() == unlock), "{unlock}");
        }
    }
}

#[test]
fn an_unprivileged_user_sees_what_unlocks_the_rest() {
    if !can_drop_rights() {
        return;
    }
    let dir = temp_dir();
    // The build directory may be closed to others.
    let prof = dir.path().join("prof");
    common::copy_program(env!("CARGO_BIN_EXE_prof"), &prof);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
    command.arg(&prof).args(["doctor", "--json"]).current_dir("/").stdin(Stdio::null());
    let checks = assert_honest(&common::run::run(command));
    let find = |name: &str| checks.iter().find(|c| c["name"] == name).unwrap();
    // The test itself is another user's process.
    let others = find("others' processes");
    assert_eq!(others["ok"], false);
    let unlock = others["unlock"].as_str().unwrap();
    let by_root = unlock.find(&format!("sudo {} …", prof.display()));
    let setcap = unlock.find("sudo setcap cap_perfmon");
    assert!(by_root.is_some() && by_root < setcap, "{others}");
    assert!(unlock.ends_with("every user who may execute it profile every process"), "{others}");
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    if level.trim().parse::<i32>().unwrap() > 0 {
        let unlock = find("whole machine")["unlock"].as_str().unwrap();
        assert_eq!(unlock, "sudo sysctl kernel.perf_event_paranoid=0");
    }
}
