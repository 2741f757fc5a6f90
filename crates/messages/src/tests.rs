use std::collections::HashSet;

use serde_json::json;

use super::*;

/// A fact for tests and for the guide.
pub trait Example {
    fn example() -> Self;
}

macro_rules! examples {
    ($($type:ty: $example:expr;)+) => {
        $(impl Example for $type {
            fn example() -> $type {
                $example
            }
        })+
    };
}

examples! {
    bool: true;
    i32: 2;
    u32: 2;
    u64: 2;
    String: "…".to_owned();
    Wanted: Wanted::WholeMachine;
    Box<Message>: Box::new(Message::System { error: "…".to_owned() });
}

impl<T: Example> Example for Option<T> {
    fn example() -> Option<T> {
        Some(T::example())
    }
}

/// A message after its way through JSON.
fn sent(message: &Message) -> Message {
    serde_json::from_str(&serde_json::to_string(message).unwrap()).unwrap()
}

#[test]
fn every_message_survives_json() {
    for (message, _) in examples() {
        let json = serde_json::to_value(&message).unwrap();
        assert_eq!(json["code"], message.code(), "{json}");
        assert_eq!(json["level"], json!(message.level()), "{json}");
        assert_eq!(sent(&message), message, "{json}");
    }
}

#[test]
fn every_code_is_unique_and_kebab_case() {
    let examples = examples();
    let codes: HashSet<&str> = examples.iter().map(|(message, _)| message.code()).collect();
    assert_eq!(codes.len(), examples.len());
    for code in codes {
        let words = code.split('-');
        let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase());
        assert!(words.into_iter().all(is_word), "{code}");
    }
}

#[test]
fn every_message_is_one_line() {
    for (message, meaning) in examples() {
        let line = message.to_string();
        let is_clean = !line.is_empty() && !line.contains(['\n', '{', '}']) && !line.contains("  ");
        assert!(is_clean && meaning.ends_with('.'), "{}: {line}", message.code());
        assert!(line.starts_with(&message.sentence()), "{line}");
        assert!(message.remedy().is_none_or(|remedy| line.ends_with(&remedy)), "{line}");
    }
}

/// A server may be older or newer than the agent.
#[test]
fn a_message_of_another_version_is_kept() {
    let newer = json!({"code": "of-tomorrow", "facts": {"n": 1}, "level": "detail"});
    let message: Message = serde_json::from_value(newer.clone()).unwrap();
    assert_eq!((message.code(), message.level()), ("of-tomorrow", Level::Detail));
    assert_eq!(message.to_string(), r#"of-tomorrow {"n":1}"#);
    assert_eq!(serde_json::to_value(&message).unwrap(), newer);

    let bare: Message = serde_json::from_value(json!({"code": "x", "level": "fatal"})).unwrap();
    assert_eq!((bare.to_string().as_str(), bare.level()), ("x", Level::Detail));

    // Fewer facts than this version needs, and more.
    let fewer = json!({"code": "open-files", "facts": {"limit": 9}, "level": "missing"});
    let message: Message = serde_json::from_value(fewer.clone()).unwrap();
    assert!(matches!(message, Message::Unknown { .. }), "{message:?}");
    assert_eq!(serde_json::to_value(&message).unwrap(), fewer);
    let more = json!({"code": "open-files", "facts": {"limit": 9, "sudo": false, "x": 1}});
    let message: Message = serde_json::from_value(more).unwrap();
    assert_eq!(message, Message::OpenFiles { limit: 9, sudo: false });

    // Within a message, too.
    let outer = json!({
        "code": "stacks-end-early", "facts": {"why": {"code": "x", "level": "figures"}},
    });
    let message: Message = serde_json::from_value(outer).unwrap();
    assert_eq!(message.to_string(), "stacks end after 64 KiB: x");
    assert!(serde_json::from_value::<Message>(json!({"level": "detail"})).is_err());
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

/// The rows of the guide's table: code, level, meaning, line.
fn rows() -> String {
    let mut rows: Vec<String> = examples()
        .into_iter()
        .map(|(message, meaning)| {
            let level = serde_json::to_value(message.level()).unwrap();
            let (code, level) = (message.code(), level.as_str().unwrap());
            let line = message.to_string().replace('|', "\\|");
            format!("| `{code}` | {level} | {meaning} | {line} |\n")
        })
        .collect();
    rows.sort();
    rows.concat()
}

/// With `UPDATE_GUIDE`, the page is written instead.
#[test]
fn the_guide_lists_every_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/messages.md");
    let page = std::fs::read_to_string(path).unwrap();
    let start = page.find("| `").expect("a table");
    let expected = format!("{}{}", &page[..start], rows());
    if std::env::var_os("UPDATE_GUIDE").is_some() {
        std::fs::write(path, &expected).unwrap();
    } else {
        assert_eq!(page, expected, "UPDATE_GUIDE=1 cargo test -p prof-messages writes the page");
    }
}
