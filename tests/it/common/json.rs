//! JSON that prof prints.

use std::collections::BTreeSet;

use serde_json::Value;

/// Names of the members of all objects in a value. Those below a member of `from_profiles` come
/// from a profile, and are left out.
pub fn members(value: &Value, from_profiles: &[&str]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        match value {
            Value::Object(object) => {
                for (name, member) in object {
                    names.insert(name.clone());
                    if !from_profiles.contains(&name.as_str()) {
                        pending.push(member);
                    }
                }
            }
            Value::Array(values) => pending.extend(values),
            _ => {}
        }
    }
    names
}
