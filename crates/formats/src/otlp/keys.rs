//! Attributes of OpenTelemetry's semantic conventions, and the labels that they are.

use profile::{StrId, label};

use crate::assembly::Assembly;

/// An attribute and its label.
struct Key {
    attribute: &'static str,
    label: &'static str,
}

/// Those whose names differ.
const KEYS: &[Key] = &[
    Key { attribute: "process.pid", label: label::PID },
    Key { attribute: "process.executable.name", label: label::PROCESS },
    Key { attribute: "thread.id", label: label::TID },
    Key { attribute: "thread.name", label: label::THREAD },
    Key { attribute: "container.id", label: label::CONTAINER_ID },
    Key { attribute: "container.name", label: label::CONTAINER },
];

/// The key of the label that an attribute is.
pub(super) fn label(attribute: StrId, all: &mut Assembly) -> StrId {
    let name = all.profile.str(attribute);
    let found = KEYS.iter().find(|key| key.attribute == name);
    found.map_or(attribute, |key| all.string(key.label))
}

/// The name of the attribute that a label is.
pub(super) fn attribute(label: &str) -> &str {
    let found = KEYS.iter().find(|key| key.label == label);
    found.map_or(label, |key| key.attribute)
}
