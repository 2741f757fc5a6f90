//! Events of the PMUs that sysfs describes (`Documentation/ABI/testing/sysfs-bus-event_source-*`).

#![allow(unsafe_code)]

use perf_event::events::{Dynamic, Event};
use perf_event_open_sys::bindings::perf_event_attr;

use super::{EventKind, EventSpec, unknown};
use sys::Error;

/// `cpu/cache-misses/` or `cpu/event=0x3c,umask=1/`, from the description of the PMU in sysfs.
pub fn event(pmu: &str, terms: &str, text: &str) -> Result<EventSpec, Error> {
    let failed = |why: String| Error::usage(format!("event '{text}': {why}"));
    let valid = |s: &str| !s.is_empty() && !s.contains(['/', '.']);
    if !valid(pmu) {
        return Err(unknown(text));
    }
    let mut builder = Dynamic::builder(pmu)
        .map_err(|e| failed(format!("this machine has no PMU '{pmu}' ({e})")))?;
    for term in terms.split(',') {
        let result = match term.split_once('=') {
            Some((field, value)) => {
                let digits = value.trim_start_matches("0x");
                let radix = if digits.len() == value.len() { 10 } else { 16 };
                let value = u64::from_str_radix(digits, radix)
                    .map_err(|_| failed(format!("'{value}' is not a number")))?;
                builder.field(field, value).err().map(|e| e.to_string())
            }
            // A name, or a flag of the format that is set.
            None if valid(term) => match builder.event(term).map(|_| ()) {
                Err(_) if builder.field(term, 1).is_ok() => None,
                result => result.err().map(|e| e.to_string()),
            },
            None => Some("no event is named".to_owned()),
        };
        if let Some(why) = result {
            return Err(failed(format!("PMU '{pmu}' has no '{term}' ({why})")));
        }
    }
    let event = builder.build().map_err(|e| failed(e.to_string()))?;
    let mut attr = perf_event_attr::default();
    event.update_attrs(&mut attr);
    let mut spec = EventSpec::plain(text, EventKind::Hardware, attr.type_, attr.config);
    // SAFETY: both unions hold plain integers of one size; every bit pattern is valid.
    unsafe {
        spec.config1 = attr.__bindgen_anon_3.config1;
        spec.config2 = attr.__bindgen_anon_4.config2;
    }
    Ok(spec)
}
