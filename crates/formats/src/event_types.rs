//! The sample types of perf's events, the same for its recordings and for their text.

use crate::assembly::Assembly;

/// Most events of a file.
const EVENTS: usize = 256;

/// An event of a file.
struct Event {
    name: Box<str>,
    column: usize,
}

/// The events of a file, and their sample types.
#[derive(Default)]
pub(crate) struct EventTypes(Vec<Event>);

impl EventTypes {
    /// The column of an event, whose sample type is added to the profile if it is new.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub(crate) fn column(
        &mut self,
        all: &mut Assembly,
        name: &str,
        has_period: bool,
    ) -> Result<usize, String> {
        if let Some(event) = self.0.iter().find(|event| &*event.name == name) {
            return Ok(event.column);
        }
        if self.0.len() == EVENTS {
            return Err(format!("there are more than {EVENTS} events"));
        }
        let column = add_type(all, name, has_period);
        self.0.push(Event { name: name.into(), column });
        Ok(column)
    }
}

/// True if the period of an event is a time.
pub(crate) fn is_clock(event: &str) -> bool {
    let clock = event.split(':').next().unwrap_or(event);
    ["cpu-clock", "task-clock"].contains(&clock)
}

/// Adds the sample type of an event, whose name differs from those before.
fn add_type(all: &mut Assembly, event: &str, has_period: bool) -> usize {
    let is_time = has_period && is_clock(event);
    let unit = if is_time { "nanoseconds" } else { "count" };
    let names = all.profile.type_names();
    let is_free = |name: &&str| !names.iter().any(|taken| &**taken == *name);
    let name = match Some("cpu").filter(|_| is_time).filter(is_free) {
        Some(name) => name.to_owned(),
        None if is_free(&event) => event.to_owned(),
        None => format!("event {event}"),
    };
    all.add_type(&name, unit)
}
