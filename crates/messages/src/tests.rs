use std::collections::HashSet;

use serde_json::json;

use super::*;

mod examples;
mod lines;
mod peers;

pub use examples::Entry;

/// A message after its way through JSON.
fn sent(message: &Message) -> Message {
    serde_json::from_str(&serde_json::to_string(message).unwrap()).unwrap()
}

#[test]
fn every_message_survives_json() {
    let messages =
        |entry: Entry| entry.examples().into_iter().map(move |m| (m, entry.levels.clone()));
    for (message, levels) in entries().into_iter().flat_map(messages) {
        assert!(levels.contains(&message.level()), "{}", message.code());
        let json = serde_json::to_value(&message).unwrap();
        assert_eq!(json["code"], message.code(), "{json}");
        assert_eq!(json["level"], json!(message.level()), "{json}");
        assert_eq!(sent(&message), message, "{json}");
    }
}

#[test]
fn every_code_is_unique_and_kebab_case() {
    let entries = entries();
    let codes: HashSet<&str> = entries.iter().map(|entry| entry.code).collect();
    assert_eq!(codes.len(), entries.len());
    for code in codes {
        let words = code.split('-');
        let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase());
        assert!(words.into_iter().all(is_word), "{code}");
    }
}

#[test]
fn every_message_is_one_line() {
    for entry in entries() {
        assert!(entry.meaning.ends_with('.'), "{}", entry.meaning);
    }
    for message in entries().iter().flat_map(Entry::examples) {
        let line = message.to_string();
        let is_clean = !line.is_empty() && !line.contains('\n') && !line.contains("  ");
        assert!(is_clean, "{}: {line}", message.code());
        assert!(line.starts_with(&message.sentence()), "{line}");
        assert!(message.remedy().is_none_or(|remedy| line.ends_with(&remedy)), "{line}");
    }
}

#[test]
fn a_remedy_is_apart_from_its_sentence() {
    let why = Box::new(Message::OpenFiles { limit: 9, sudo: true });
    let refused = Message::Refused { wanted: Wanted::WholeMachine, why };
    assert_eq!(refused.headline(), "cannot record the whole machine");
    assert_eq!(
        refused.sentence(),
        "cannot record the whole machine: too many open files (limit 9)"
    );
    assert_eq!(refused.remedy().unwrap(), "sudo prlimit --pid $$ --nofile=1048576");
    assert_eq!(
        refused.to_string(),
        format!("{}; try: {}", refused.sentence(), refused.remedy().unwrap())
    );
    assert!(Level::Missing < Level::Figures && Level::Figures < Level::Detail);
}

/// The rows of the guide's table: code, level, meaning, line, facts.
fn rows() -> String {
    let mut rows: Vec<String> = entries()
        .into_iter()
        .map(|entry| {
            let example = entry.example();
            let Entry { levels, meaning, facts, .. } = entry;
            let level = |level| serde_json::to_value(level).unwrap().as_str().unwrap().to_owned();
            let levels: Vec<String> = levels.into_iter().map(level).collect();
            let (code, levels) = (example.code(), levels.join(" or "));
            let line = example.to_string().replace('|', "\\|");
            let facts: Vec<String> =
                facts.iter().map(|(name, about)| format!("`{name}`: {about}")).collect();
            let facts = if facts.is_empty() { "–".to_owned() } else { facts.join("; ") };
            format!("| `{code}` | {levels} | {meaning} | {line} | {facts} |\n")
        })
        .collect();
    rows.sort();
    rows.concat()
}

/// Compares a file with what it should be. With `UPDATE_GUIDE`, it is written instead.
fn assert_written(path: &str, expected: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE_GUIDE").is_some() {
        std::fs::write(path, expected).unwrap();
    } else {
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, expected, "UPDATE_GUIDE=1 cargo test -p prof-messages writes the file");
    }
}

#[test]
fn the_guide_lists_every_code() {
    let page = include_str!("../../../docs/guide/messages.md");
    let start = page.find("| `").expect("a table");
    assert_written("../../docs/guide/messages.md", &format!("{}{}", &page[..start], rows()));
}

#[test]
fn a_loss_matters_from_one_percent_on() {
    assert!(!matters(10, 1000) && matters(11, 1000));
    assert!(!matters(2, 20) && matters(3, 20));
    let lost = |lost| Message::AllocationsLost { lost, sampled: 990, bytes: 1 << 20 };
    assert_eq!([lost(10).level(), lost(990).level()], [Level::Detail, Level::Figures]);
    let precise = |precise| Message::ClockInsteadOfCycles { precise }.level();
    assert_eq!([precise(false), precise(true)], [Level::Detail, Level::Figures]);
}

#[test]
fn time_without_samples_matters_unless_it_is_chance() {
    let uncovered = |sampled, why| {
        let covered = CpuCoverage { sampled, used: 1_000_000_000 };
        let why = Box::new(why);
        Message::Uncovered { covered, period: 10_000_000, scope: Scope::Target, why }
    };
    assert_eq!(uncovered(900_000_000, Message::LateTimers).level(), Level::Figures);
    let short = || Message::ShortThreads { period: 10_000_000, whole_cpus: true };
    // Forty of a hundred samples may be missing by chance.
    assert_eq!(uncovered(700_000_000, short()).level(), Level::Detail);
    let missing = uncovered(500_000_000, short());
    assert_eq!(missing.level(), Level::Figures);
    assert_eq!(
        missing.to_string(),
        "the samples cover 50 % of the 1.0 s of CPU time that the target used: threads that use \
         less than 10.0 ms each are missed; -F 999 samples them"
    );
}

#[test]
fn lost_samples_come_with_what_helps() {
    let covered = Some(CpuCoverage { sampled: 1_000_000_000, used: 2_000_000_000 });
    let remedies = vec![LossRemedy::LowerRate, LossRemedy::Root];
    let lost = Message::Lost { lost: 100, taken: 900, any_process: true, covered, remedies };
    assert_eq!(
        lost.to_string(),
        "100 samples of all processes were lost because prof could not read them in time; the \
         others cover 50 % of the 2.0 s of CPU time that the target used; lower -F, or run prof as \
         root, which gives it priority over other processes"
    );
    let bare = Message::Lost {
        covered: None,
        remedies: Vec::new(),
        lost: 3,
        taken: 9,
        any_process: false,
    };
    assert_eq!(bare.sentence(), "3 samples were lost because prof could not read them in time");
    assert_eq!(bare.remedy(), None);
}

/// A word for one, another for several.
#[test]
fn numbers_agree_with_their_nouns() {
    let outlived = |processes, name| {
        Message::Outlived { pid: 9, name, processes, arguments: " -T wall".to_owned() }.headline()
    };
    let start = "the recording ended with the command, but ";
    assert_eq!(
        [outlived(1, Some("x".to_owned())), outlived(2, None)],
        [
            format!("{start}process 9 (x), which it started, still runs"),
            format!("{start}2 processes that it started still run (one is 9)"),
        ]
    );
    let daemon = Message::Outlived {
        pid: 9,
        name: None,
        processes: 2,
        arguments: " -T heap --inject".to_owned(),
    };
    let remedy = "start it in the foreground, or record it with prof record -T heap --inject -p 9";
    assert_eq!(daemon.to_string(), format!("{}: {remedy}", daemon.sentence()));
    let ended = |threads| Message::ThreadsEnded { threads }.to_string();
    assert_eq!(ended(1), "1 thread ended before it could be read");
    assert_eq!(ended(2), "2 threads ended before they could be read");
    let refused = |threads| Message::ThreadsRefused { threads, root_may: false }.to_string();
    assert_eq!(refused(1), "this user may not read the stack of 1 thread");
    assert_eq!(refused(3), "this user may not read the stacks of 3 threads");
    let unlabelled = |threads| Message::UnlabelledThreads { threads }.to_string();
    assert!(unlabelled(1).starts_with("1 thread is labelled by name"));
    assert!(unlabelled(2).starts_with("2 threads are labelled by name"));
    let loaded = |programs| Message::LibraryNotLoaded { programs }.to_string();
    assert!(loaded(1).starts_with("the command started a program, but prof's library"));
    assert!(loaded(3).starts_with("the command started 3 programs, but"));
    assert!(loaded(1).contains("into it (") && loaded(3).contains("into them ("));
    let cpus = Message::CpusLeft { cpus: vec![1, 2], returns: false }.to_string();
    assert_eq!(
        cpus,
        "CPUs 1, 2 went offline during the recording: they were not sampled after that"
    );
}

#[test]
fn a_missing_event_has_a_substitute() {
    let (event, nearest) = ("cycles".to_owned(), "cpu-clock".to_owned());
    let missing = Message::EventMissing { event, hardware: true, nearest };
    assert_eq!(
        missing.to_string(),
        "event 'cycles' does not exist on this machine (no hardware counters, or not this one); \
         nearest that works: cpu-clock"
    );
    let (event, nearest) = ("x".to_owned(), "cpu-clock".to_owned());
    let counted = Message::EventNotSampled { event, nearest }.to_string();
    assert!(counted.contains(" -e '{cpu-clock,x}'; nearest"), "{counted}");
}
