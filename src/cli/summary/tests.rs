use super::*;
use crate::report::advice::interpreters::hidden_functions;
use crate::sampler::Notes;
use messages::Message;
use messages::{CpuCoverage, Scope};
use profile::{BinaryShare, Builder, LabelSetId, Mapping, Truncation};

fn with_notes(recorded: Recorded, at_end: Vec<Message>) -> Recorded {
    let at_start = vec![Message::Snapshots { snapshots: 1 }];
    Recorded { notes: Notes { at_start, at_end }, ..recorded }
}

fn lost(lost: u64, taken: u64) -> Message {
    let remedies = vec![LossRemedy::LowerRate, LossRemedy::Root];
    Message::Lost { lost, taken, any_process: false, covered: None, remedies }
}

fn uncovered(sampled: u64) -> Message {
    let covered = CpuCoverage { sampled, used: 1_000_000_000 };
    let scope = Scope::Target;
    let why = Box::new(Message::TooFrequent);
    Message::Uncovered { covered, period: 10_000_000, scope, why }
}

fn recorded(diagnostics: Diagnostics) -> Recorded {
    let mut profile = Builder::new(&[("samples", "count")]).finish(None);
    profile.duration_nanos = 1_500_000_000;
    profile.period = 10_000_000;
    Recorded {
        profile,
        diagnostics,
        notes: Notes::default(),
        names: true,
        names_missed: None,
        run_time_code: None,
        interpreter: None,
        notes_of_names: Vec::new(),
        exit: None,
        running: None,
    }
}

fn lines(recorded: &Recorded, file: Option<&str>) -> Vec<String> {
    let mut out = Vec::new();
    let summary = Summary::for_recording(recorded, file.map(Path::new));
    summary.write(&mut out, false).unwrap();
    summary.advice(&mut out, false).unwrap();
    String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
}

/// One percent is of no account, nor are two samples.
#[test]
fn losses_are_reported_from_one_percent_on() {
    let of = |samples, lost, (truncated, user_stacks)| Diagnostics {
        samples,
        lost,
        distinct: 5,
        truncated: vec![(Truncation::SmallDump, truncated)],
        user_stacks,
        ..Diagnostics::default()
    };
    for small in [of(1000, 10, (10, 1000)), of(20, 2, (2, 20))] {
        assert_eq!(lines(&recorded(small), None).len(), 1);
    }
    let many = recorded(of(900, 100, (450, 900)));
    let all = lines(&with_notes(many, vec![lost(100, 900)]), None);
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(all[0], "prof: 900 samples in 1.5 s, 5 distinct stacks");
    assert_eq!(
        all[1],
        "prof: 10.0 % of 1000 samples were lost, 50.0 % of the value is in truncated stacks (dump \
         smaller than 65528 bytes); lower -F"
    );
    let cut = lines(&recorded(of(900, 0, (450, 900))), None);
    assert!(
        cut[1].ends_with(
            "; for whole stacks: prof record -g dwarf,65528 (up to -F 999, the default)"
        ),
        "{cut:?}"
    );
}

/// Nothing can be done about some ends, and nothing is advised then.
#[test]
fn stacks_that_cannot_be_whole_come_without_advice() {
    let truncated = vec![(Truncation::NoCaller, 50)];
    let d = Diagnostics { samples: 100, user_stacks: 100, truncated, ..Diagnostics::default() };
    let all = lines(&recorded(d), None);
    assert_eq!(
        all[1],
        "prof: 50.0 % of the value is in truncated stacks (no caller on this stack)"
    );
}

/// Ten samples of a hundred are chance.
#[test]
fn time_that_samples_do_not_cover_is_reported() {
    let with = |sampled| {
        let d = Diagnostics { samples: 50, ..Diagnostics::default() };
        lines(&with_notes(recorded(d), vec![uncovered(sampled)]), Some("x.pb.gz"))
    };
    let all = with(500_000_000);
    assert_eq!(
        all[1..],
        ["prof: the samples cover 50 % of the 1.0 s of CPU time that the target used; the \
          machine cannot take samples that often; lower -F or raise -c"]
    );
    assert_eq!(with(900_000_000)[1..], ["prof: 1 note: prof report --header x.pb.gz"]);
}

#[test]
fn notes_that_matter_are_printed_and_others_counted() {
    let hidden = Message::HiddenMappings { program: None, sudo: false };
    let detail = || Message::Snapshots { snapshots: 3 };
    let figures = || Message::StacksWithoutMappings { why: Box::new(hidden.clone()) };
    let missing = || Message::SpillUnreadable { error: "full".to_owned() };
    let d = || Diagnostics { samples: 100, ..Diagnostics::default() };
    let of = |notes| with_notes(recorded(d()), notes);
    let last = |recorded: &Recorded, file| lines(recorded, file)[1..].join("; ");
    assert_eq!(last(&of(Vec::new()), None), "", "those of the start are not repeated");
    let some = of(vec![detail(), detail(), detail()]);
    assert_eq!(last(&some, Some("profile.pb.gz")), "prof: 3 notes: prof report --header");
    let end = "prof: stacks of other users' processes end at once: /proc/PID/maps cannot be read";
    assert_eq!(last(&of(vec![figures()]), None), end);
    let all = of(vec![detail(), figures(), missing()]);
    let spill = "prof: samples are missing: the spill file cannot be read: full";
    assert_eq!(last(&all, None), format!("{spill}; 2 more: -v prints them"));
    let hint = || Some("for names: x".to_owned());
    let names = vec!["for names: x".to_owned(), "another".to_owned()];
    let all = Recorded { run_time_code: hint(), notes_of_names: names, ..of(vec![detail()]) };
    assert_eq!(last(&all, None), "prof: for names: x; prof: 2 notes: -v prints them");
}

/// One allocation that was lost says nothing about the samples of a clock.
#[test]
fn the_remedy_is_that_of_the_largest_loss() {
    let d = Diagnostics { samples: 900, lost: 101, ..Diagnostics::default() };
    let heap = Message::AllocationsLost { lost: 1, sampled: 400, bytes: 64 };
    let all = lines(&with_notes(recorded(d), vec![heap, lost(100, 500)]), None);
    assert_eq!(all[1], "prof: 10.1 % of 1001 samples were lost; lower -F");
    assert_eq!(all.len(), 2, "{all:?}");
}

/// A loss that is too small for a line of its own is a note like others.
#[test]
fn small_losses_are_counted() {
    let d = Diagnostics { samples: 999, lost: 1, ..Diagnostics::default() };
    let all = lines(&with_notes(recorded(d), vec![lost(1, 999)]), None);
    assert_eq!(all[1..], ["prof: 1 note: -v prints them"]);
}

/// Whatever happened: with the line about the file there are five.
#[test]
fn there_are_four_lines_around_the_file_at_most() {
    let unsymbolized = vec![BinaryShare { binary: "/no/such".to_owned(), samples: 500 }];
    let d = Diagnostics {
        samples: 500,
        lost: 500,
        throttled: 100,
        folded: 100,
        truncated: vec![(Truncation::RunTimeCode, 50), (Truncation::DumpTooSmall, 300)],
        user_stacks: 500,
        unsymbolized,
        ..Diagnostics::default()
    };
    let notes = || {
        let spill = Message::SpillUnreadable { error: "full".to_owned() };
        vec![lost(500, 500), uncovered(1), spill, Message::Snapshots { snapshots: 3 }]
    };
    let all = lines(&with_notes(recorded(d.clone()), notes()), None);
    assert_eq!(all.len(), 4, "{all:?}");
    // Behind the file, because package managers run for it.
    assert!(all[3].contains(" of the samples have no function name (such "), "{all:?}");
    let d = Diagnostics { unsymbolized: Vec::new(), ..d };
    let names_missed = Some("interrupted: names are missing".to_owned());
    let nameless = Recorded { names: false, names_missed, ..recorded(d) };
    let all = lines(&with_notes(nameless, notes()), None);
    assert_eq!((all.len(), &*all[2]), (4, "prof: interrupted: names are missing"));
}

/// A program that starts an interpreter, like a shell, has few samples without names.
#[test]
fn hidden_functions_come_before_fewer_missing_names() {
    for (of_python, of_shell, hidden) in [(28, 2, true), (12, 18, false), (1, 29, false)] {
        let mut builder = Builder::new(&[("samples", "count")]);
        let mut mapping = |path| {
            let file = builder.profile.strings.intern(path);
            builder.add_mapping(Mapping { file, limit: 1 << 20, ..Mapping::default() })
        };
        let [python, shell] = ["/usr/bin/python3.11", "/usr/bin/bash"].map(&mut mapping);
        let named = builder.named_location_in("PyEval_EvalCode", Some(python));
        let nameless = builder.location(Some(shell), 1);
        for (location, samples) in [(named, of_python), (nameless, of_shell)] {
            for _ in 0..samples {
                builder.add(&[location], LabelSetId::EMPTY, 1, &[]);
            }
        }
        let profile = builder.finish(None);
        let interpreter = hidden_functions(&profile, &[]);
        let d = Diagnostics { samples: 30, ..Diagnostics::default() };
        let all = lines(&Recorded { profile, interpreter, ..recorded(d) }, None);
        assert_eq!(all.len(), 2, "{all:?}");
        let lines = ["Python's functions are not shown", "have no function name (bash "];
        assert_eq!(lines.map(|line| all[1].contains(line)), [hidden, !hidden], "{all:?}");
    }
}
