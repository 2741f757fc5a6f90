use std::io;

use super::facts::{self, Facts};
use super::obstacle::{no_deep_stacks, obstacle};
use super::*;
use messages::Message;

fn user(paranoid: i32) -> Facts {
    Facts {
        uid: 1000,
        paranoid: Some(paranoid),
        mlock_kb: 516,
        memlock: 8 << 20,
        open_files: (1024, 4096),
        cpus: 2,
        program: "/usr/bin/prof".into(),
        ..Facts::default()
    }
}

fn parts_of(errno: i32, what: Wanted, facts: &Facts) -> (String, String) {
    let error = io::Error::from_raw_os_error(errno);
    let why = obstacle(&error, &what, facts);
    (why.sentence(), why.remedy().unwrap_or_default())
}

#[test]
fn each_level_names_the_one_that_would_do() {
    let tracepoint = || Wanted::Tracepoint("sched:sched_switch".into());
    let tracefs = || Wanted::Tracefs("sched:sched_switch".into());
    let setcap = "sudo /usr/bin/prof …, or sudo setcap cap_perfmon,cap_sys_ptrace=ep \
                  /usr/bin/prof, which lets every user who may execute it profile every process";
    let all = &setcap.replace("=ep", ",cap_dac_read_search=ep");
    let cases = [
        (Wanted::OwnProcess, 3, "sudo sysctl kernel.perf_event_paranoid=2"),
        (Wanted::OwnProcess, 4, "sudo sysctl kernel.perf_event_paranoid=2"),
        (Wanted::Kernel, 2, "sudo sysctl kernel.perf_event_paranoid=1"),
        (Wanted::WholeMachine, 1, "sudo sysctl kernel.perf_event_paranoid=0"),
        (Wanted::Cgroup("/x".into()), 1, "sudo sysctl kernel.perf_event_paranoid=0"),
        (Wanted::OtherProcess(1), 0, setcap),
        (Wanted::OtherProcess(1), 4, setcap),
        (Wanted::OtherProcess(std::process::id()), 4, "sudo sysctl kernel.perf_event_paranoid=2"),
        (tracepoint(), 1, all),
        (tracefs(), 2, all),
        (tracefs(), -1, all),
        (Wanted::Ring(8 << 20), 2, "sudo sysctl kernel.perf_event_mlock_kb=8196"),
    ];
    for (what, paranoid, command) in cases {
        let facts = match what {
            Wanted::OtherProcess(1) => user(paranoid),
            _ => Facts { uid: facts::owner(std::process::id()).unwrap(), ..user(paranoid) },
        };
        let command = if facts.uid == 0 {
            command.replace("sudo /usr/bin/prof …, or ", "").replace("sudo s", "s")
        } else {
            command.into()
        };
        let (why, unlock) = parts_of(libc::EACCES, what.clone(), &facts);
        assert_eq!(unlock, command, "{what:?} at {paranoid}: {why}");
    }
}

#[test]
fn probes_need_a_right_at_any_level() {
    let probe = || Wanted::Probe("probe:f".into());
    let (why, unlock) = parts_of(libc::EACCES, probe(), &user(-1));
    assert!(why.contains("only root") && unlock.contains("cap_perfmon"), "{why}: {unlock}");
    let facts = Facts { capabilities: 1 << 38, ..user(2) };
    assert!(parts_of(libc::EACCES, probe(), &facts).0.contains("security policy"));
}

/// The privilege to profile does not include reading tracefs.
#[test]
fn tracefs_has_a_reason_of_its_own() {
    let tracefs = || Wanted::Tracefs("sched:sched_switch".into());
    let mut facts = Facts { capabilities: 1 << 38, ..user(2) };
    let (why, unlock) = parts_of(libc::EACCES, tracefs(), &facts);
    assert!(why.contains("readable by root only"), "{why}");
    assert!(unlock.contains("cap_dac_read_search"), "{unlock}");
    facts.capabilities |= 1 << 2;
    let (why, unlock) = parts_of(libc::EPERM, tracefs(), &facts);
    assert!(why.contains("security policy") && unlock.is_empty(), "{why}");
}

#[test]
fn rings_are_refused_by_a_limit_or_by_a_policy() {
    let mut facts = Facts { mlock_kb: 8, memlock: 0, ..user(2) };
    let (why, unlock) = parts_of(libc::EPERM, Wanted::Ring(8 << 20), &facts);
    assert!(why.contains("kernel.perf_event_mlock_kb") && why.contains("ulimit -l"), "{why}");
    assert_eq!(unlock, "sudo sysctl kernel.perf_event_mlock_kb=8196");
    facts.paranoid = Some(-1);
    let (why, unlock) = parts_of(libc::EPERM, Wanted::Ring(8 << 20), &facts);
    assert!(why.contains("security policy") && unlock.is_empty(), "{why}");
}

#[test]
fn a_refusal_in_spite_of_all_rights_is_the_sandboxs() {
    let mut root = Facts { uid: 0, capabilities: u64::MAX, ..user(2) };
    let (why, unlock) = parts_of(libc::EPERM, Wanted::OwnProcess, &root);
    assert!(why.contains("security policy") && unlock.is_empty(), "{why}");
    root.seccomp = true;
    assert!(parts_of(libc::EPERM, Wanted::OwnProcess, &root).0.contains("seccomp"));
    // Root of an unprivileged container has no privileges in the kernel.
    root.user_namespace = true;
    let (why, _) = parts_of(libc::EPERM, Wanted::OwnProcess, &root);
    assert!(why.contains("--cap-add PERFMON"), "{why}");
}

#[test]
fn other_errors_have_their_own_words() {
    let facts = user(2);
    let cases = [
        (libc::EMFILE, "too many open files", true),
        (libc::ENFILE, "whole machine", true),
        (libc::EBUSY, "another program", true),
        (libc::ESRCH, "it has ended", false),
        (libc::ENODEV, "hardware", false),
        (libc::EINVAL, "option", false),
        (libc::ENOENT, "does not have the event", false),
        (libc::ENOSYS, "sandbox", false),
        (libc::EIO, "Input/output error", false),
    ];
    for (errno, words, has_command) in cases {
        let (why, unlock) = parts_of(errno, Wanted::OwnProcess, &facts);
        assert!(why.contains(words), "{errno}: {why}");
        assert_eq!(!unlock.is_empty(), has_command, "{errno}: {unlock}");
    }
    let old = Facts { paranoid: None, ..facts };
    assert!(parts_of(libc::ENOSYS, Wanted::OwnProcess, &old).0.contains("without perf events"));
}

#[test]
fn the_line_names_what_was_wanted() {
    let error = io::Error::from_raw_os_error(libc::ESRCH);
    let line = refusal(&error, Wanted::OtherProcess(42)).to_string();
    assert_eq!(line, "cannot record process 42: it has ended");
}

#[test]
fn hidden_symbols_name_the_settings_in_the_way() {
    let command =
        |kptr, paranoid| Message::HiddenSymbols { kptr, paranoid, sudo: true }.remedy().unwrap();
    assert_eq!(command(0, 2), "sudo sysctl kernel.perf_event_paranoid=1");
    assert_eq!(command(1, 1), "sudo sysctl kernel.kptr_restrict=0");
    let both = "sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1";
    assert_eq!(command(2, 4), both);
}

#[test]
fn programs_are_forbidden_or_need_capabilities() {
    let error = io::Error::from_raw_os_error(libc::EPERM);
    assert_eq!(
        no_deep_stacks(&error, &user(2)).to_string(),
        "more is copied by a BPF program, which needs CAP_BPF and CAP_PERFMON; try: sudo \
         /usr/bin/prof …, or sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace=ep /usr/bin/prof, \
         which lets every user who may execute it profile every process"
    );
    let root = Facts { uid: 0, capabilities: u64::MAX, ..user(2) };
    assert_eq!(no_deep_stacks(&error, &root), Message::NoPrograms);
}
