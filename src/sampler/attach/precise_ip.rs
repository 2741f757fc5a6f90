//! The most precise sampling of an event that the machine supports, like perf's `:P`.

use std::io;

use super::Attacher;
use crate::sampler::EventSpec;
use crate::sampler::attr::Trigger;
use crate::sampler::events::EventKind;
use crate::sampler::permissions::is_denied;
use messages::Message;

/// The highest `precise_ip`: samples have no skid (`perf_event_open(2)`).
const MOST: u8 = 3;

impl Attacher {
    /// Requests the most precise sampling of all hardware events without an explicit precision.
    pub(super) fn request_precision(&mut self) {
        let open = |spec: &&mut EventSpec| spec.kind == EventKind::Hardware && spec.precise == 0;
        self.events.iter_mut().filter(open).for_each(|spec| spec.most_precise = true);
    }

    /// Tries an event; with `:P`, it gets the highest precision that works, and a note if that is
    /// below the maximum.
    pub(super) fn try_precisely(&mut self, event: usize, trigger: Trigger) -> io::Result<()> {
        let mut spec = self.events[event].clone();
        if !spec.most_precise {
            return self.try_event(&spec, trigger);
        }
        // Other kinds of events ignore the precision.
        let most = if spec.kind == EventKind::Hardware { MOST } else { 0 };
        spec.precise = highest(most, |precise| {
            spec.precise = precise;
            self.or_restore(|attacher| attacher.try_event(&spec, trigger))
        })?;
        self.notes.extend(precision_note(&spec));
        self.events[event] = spec;
        Ok(())
    }
}

/// Opens an event with the highest precision that works, from `most` down to none, and returns it.
///
/// # Errors
///
/// The opener's error without any precision; or at once the one of a missing privilege, which no
/// precision avoids.
fn highest(most: u8, mut open: impl FnMut(u8) -> io::Result<()>) -> io::Result<u8> {
    let mut precise = most;
    loop {
        match open(precise) {
            Ok(()) => return Ok(precise),
            Err(e) if precise == 0 || is_denied(&e) => return Err(e),
            Err(_) => precise -= 1,
        }
    }
}

/// The note about a precision below the highest.
fn precision_note(spec: &EventSpec) -> Option<Message> {
    let event = spec.name.clone();
    match spec.precise {
        MOST => None,
        0 if spec.kind != EventKind::Hardware => Some(Message::NeverPrecise { event }),
        0 => Some(Message::NotPrecise { event }),
        precision => Some(Message::LessPrecise { event, precision, highest: MOST }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens with a highest precision of `best`; above it, the opener fails with this error.
    fn tried(best: Option<u8>, error: i32) -> (Vec<u8>, Result<u8, Option<i32>>) {
        let mut tried = Vec::new();
        let got = highest(MOST, |precise| {
            tried.push(precise);
            if best.is_some_and(|best| precise <= best) {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(error))
            }
        });
        (tried, got.map_err(|e| e.raw_os_error()))
    }

    #[test]
    fn precision_falls_back_step_by_step() {
        assert_eq!(tried(Some(3), libc::EOPNOTSUPP), (vec![3], Ok(3)));
        assert_eq!(tried(Some(2), libc::EOPNOTSUPP), (vec![3, 2], Ok(2)));
        assert_eq!(tried(Some(1), libc::EINVAL), (vec![3, 2, 1], Ok(1)));
        assert_eq!(tried(Some(0), libc::EOPNOTSUPP), (vec![3, 2, 1, 0], Ok(0)));
        assert_eq!(tried(None, libc::ENOENT), (vec![3, 2, 1, 0], Err(Some(libc::ENOENT))));
        assert_eq!(tried(Some(2), libc::EACCES), (vec![3], Err(Some(libc::EACCES))));
    }

    #[test]
    fn a_lower_precision_is_said() {
        let of = |event: &str, precise| {
            precision_note(&EventSpec { precise, ..EventSpec::parse(event).unwrap() })
        };
        assert_eq!(of("cycles:P", 3), None);
        let event = "cycles:P".to_owned();
        let lower = Message::LessPrecise { event, precision: 2, highest: 3 };
        assert_eq!(of("cycles:P", 2), Some(lower));
        assert_eq!(
            of("instructions", 0),
            Some(Message::NotPrecise { event: "instructions".to_owned() })
        );
        assert_eq!(
            of("cpu-clock:P", 0),
            Some(Message::NeverPrecise { event: "cpu-clock:P".to_owned() })
        );
    }
}
