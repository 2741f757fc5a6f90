//! What a peer sends: another version, or a hostile one.

use serde_json::{Value, json};

use super::*;

/// A server may be older or newer than the agent.
#[test]
fn a_message_of_another_version_is_kept() {
    let newer = json!({"code": "of-tomorrow", "facts": {"n": 1}, "level": "detail"});
    let message: Message = serde_json::from_value(newer.clone()).unwrap();
    assert_eq!((message.code(), message.level()), ("of-tomorrow", Level::Detail));
    assert_eq!(message.to_string(), r#"of-tomorrow {"n":1}"#);
    assert_eq!(serde_json::to_value(&message).unwrap(), newer);

    let bare: Message = serde_json::from_value(json!({"code": "x", "level": "fatal"})).unwrap();
    assert_eq!((bare.to_string().as_str(), bare.level()), ("x", Level::Missing));

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

/// Also the first one of a code that has none.
#[test]
fn a_code_may_get_further_optional_facts() {
    for message in entries().iter().flat_map(Entry::examples) {
        let mut newer = serde_json::to_value(&message).unwrap();
        newer["facts"]["x"] = json!({"y": [1]});
        assert_eq!(serde_json::from_value::<Message>(newer).unwrap(), message);
    }
    for entry in entries().iter().filter(|entry| entry.facts.is_empty()) {
        for older in [json!({"code": entry.code}), json!({"code": entry.code, "facts": null})] {
            assert_eq!(serde_json::from_value::<Message>(older).unwrap(), entry.example());
        }
    }
}

/// As an older version sends it, which had no facts for the code.
#[test]
fn facts_that_are_all_optional_may_be_missing_together() {
    // No code has only such facts yet: they are an empty object, of which each may be missing.
    assert_eq!(json::with_facts("x", &Value::Null), json!({"code": "x", "facts": {}}));
    assert_eq!(json::with_facts("no-event", &json!({"x": 1})), json!({"code": "no-event"}));
    let hidden = json!({"code": "hidden-mappings", "facts": {"sudo": true}});
    let expected = Message::HiddenMappings { program: None, sudo: true };
    assert_eq!(serde_json::from_value::<Message>(hidden).unwrap(), expected);
}

/// Seven reasons within each other are read and shown; a depth that only an attacker sends is an
/// error, also in a parser that has no limit of its own.
#[test]
fn messages_are_nested_at_most_eight_deep() {
    let nested = |depth: usize| {
        let reason = |why, _| json!({"code": "stacks-end-early", "facts": {"why": why}});
        (1..depth).fold(json!({"code": "open-files", "facts": {"limit": 9, "sudo": false}}), reason)
    };
    let message: Message = serde_json::from_value(nested(8)).unwrap();
    let line = message.to_string();
    assert_eq!(line.matches("stacks end after 64 KiB: ").count(), 7);
    assert!(line.contains("too many open files"), "{line}");
    for depth in [9, 100] {
        let error = serde_json::from_value::<Message>(nested(depth)).unwrap_err().to_string();
        assert!(error.contains("at most 16 deep"), "{error}");
    }
    // In facts of another version, and beside the facts.
    let list = (0..20).fold(json!(1), |list, _| json!([list]));
    for message in [json!({"code": "x", "facts": list}), json!({"code": "no-event", "x": list})] {
        assert!(serde_json::from_value::<Message>(message).is_err());
    }
}

#[test]
fn a_hostile_peers_message_is_one_line() {
    let text = "a\nb\x1b[2J\u{9b}\u{202e}";
    for sent in [
        json!({"code": text, "level": "detail"}),
        json!({"code": "x", "facts": {"y": text, text: 1}}),
        json!({"code": "system-error", "facts": {"error": text}}),
        json!({"code": "other-user", "facts": {"program": text, "sudo": true}}),
        json!({"code": "cannot-record", "facts": {
            "wanted": {"probe": text}, "why": {"code": "x", "facts": text},
        }}),
    ] {
        let message: Message = serde_json::from_value(sent).unwrap();
        let remedy = message.remedy().unwrap_or_default();
        for part in [message.headline(), message.sentence(), remedy, message.to_string()] {
            let is_hidden = |c: char| c.is_control() || c == '\u{202e}';
            assert!(!part.contains(is_hidden), "{part:?}");
        }
    }
}

/// The commands that a user copies are prof's own.
#[test]
fn a_peer_sends_no_commands() {
    let none = json!({"code": "no-debug-symbols", "facts": {"install": "reboot", "sudo": true}});
    assert_eq!(serde_json::from_value::<Message>(none).unwrap().remedy(), None);
    let apt = json!({"code": "no-debug-symbols", "facts": {"manager": "apt", "sudo": true}});
    let apt: Message = serde_json::from_value(apt).unwrap();
    assert_eq!(apt.remedy().unwrap(), "sudo apt-get install libc6-dbg");
    let facts = json!({"pid": 9, "processes": 1, "arguments": "; reboot;"});
    let outlived = json!({"code": "command-outlived", "facts": facts});
    let outlived: Message = serde_json::from_value(outlived).unwrap();
    assert!(outlived.remedy().unwrap().ends_with("prof record -p 9"), "{outlived}");
    let facts = json!({"event": "x}'; reboot '", "nearest": "y"});
    let event = json!({"code": "event-not-sampled", "facts": facts});
    let event: Message = serde_json::from_value(event).unwrap();
    assert!(event.sentence().contains(r"-e '{cpu-clock,x}'\''; reboot '\''}'"), "{event}");
}

#[test]
fn an_unknown_level_is_the_most_important() {
    for level in [json!("fatal"), json!(3), json!(null), json!({"x": 1})] {
        let message = json!({"code": "x", "level": level});
        let message: Message = serde_json::from_value(message).unwrap();
        assert_eq!(message.level(), Level::Missing, "{level}");
    }
    assert_eq!(serde_json::from_str::<Level>("\"fatal\"").unwrap(), Level::Missing);
}

/// Writers of JSON make null of a number that is not finite.
#[test]
fn numbers_with_a_fraction_are_finite() {
    for seconds in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let parent = Message::IdleParent { pid: 1, seconds };
        let json = serde_json::to_value(&parent).unwrap();
        assert_eq!(json["facts"]["seconds"], json!(0.0));
        assert_eq!(sent(&parent), Message::IdleParent { pid: 1, seconds: 0.0 });
        let amount = Amount { objects: seconds, bytes: seconds };
        let zero = Amount { objects: 0.0, bytes: 0.0 };
        assert_eq!(sent(&Message::Reachable { amount }), Message::Reachable { amount: zero });
    }
    let mut nulls = 0;
    for message in entries().iter().flat_map(Entry::examples) {
        let mut json = serde_json::to_value(&message).unwrap();
        let facts = json["facts"].as_object_mut().into_iter().flatten();
        for (_, fact) in facts.filter(|(_, fact)| fact.is_f64()) {
            *fact = Value::Null;
            nulls += 1;
        }
        let read: Message = serde_json::from_value(json).unwrap();
        assert!(!matches!(read, Message::Unknown { .. }), "{read:?}");
    }
    assert!(nulls > 4);
}
