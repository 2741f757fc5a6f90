//! Probes: locations in code at which the kernel inserts a breakpoint while the event is open
//! (`perf_event_open(2)`, dynamic PMUs).

// For a test.
#![cfg_attr(test, allow(unsafe_code))]

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use perf_event_open_sys::bindings::{self as abi, perf_event_attr};

use super::{EventKind, EventSpec};
use crate::sampler::probe_definitions::{Definition, Definitions};
use messages::Message;
use sys::Error;

/// Bit of `config` that selects returns (`PERF_PROBE_CONFIG_IS_RETPROBE`).
const RETURN: u64 = 1;

/// First bit of the offset of a uprobe's reference counter in `config`
/// (`PERF_UPROBE_REF_CTR_OFFSET_SHIFT`).
const COUNTER_SHIFT: u32 = 32;

/// The location of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The file, or the kernel function; `config1` has the string's address.
    subject: Arc<CString>,
    /// Offset in the file or function, in bytes.
    offset: u64,
    in_kernel: bool,
    /// A note for the user.
    pub note: Option<Message>,
}

impl Probe {
    fn new(subject: &[u8], offset: u64, in_kernel: bool) -> Result<Probe, Error> {
        let subject = CString::new(subject).map_err(|_| Error::usage("a name holds a zero"))?;
        Ok(Probe { subject: Arc::new(subject), offset, in_kernel, note: None })
    }

    /// `attr` must not be used after the probe is gone.
    pub(super) fn update_attrs(&self, attr: &mut perf_event_attr) {
        attr.__bindgen_anon_3.config1 = self.subject.as_ptr() as u64;
        attr.__bindgen_anon_4.config2 = self.offset;
    }
}

impl EventSpec {
    /// Makes a probe inheritable, by a definition in tracefs; does not change other events.
    ///
    /// # Errors
    ///
    /// Tracefs is missing, or the kernel cannot put a probe there.
    pub fn define(&mut self, definitions: &mut Definitions) -> io::Result<()> {
        let Some(probe) = &self.probe else { return Ok(()) };
        let config = definitions.add(&Definition {
            subject: &probe.subject.to_string_lossy(),
            in_kernel: probe.in_kernel,
            offset: probe.offset,
            returns: self.config & RETURN != 0,
            counter: self.config >> COUNTER_SHIFT,
        })?;
        (self.type_, self.config, self.probe) = (abi::PERF_TYPE_TRACEPOINT, config, None);
        Ok(())
    }

    /// An event for each execution of the instruction at `offset` of `file`; with `returns`, for
    /// each return of the function that begins there. `counter`: offset of the two-byte semaphore
    /// of a USDT marker, which has to be above 0 for the program to reach it.
    ///
    /// # Errors
    ///
    /// The kernel has no uprobes; the counter is beyond 4 GiB.
    pub fn uprobe(
        name: &str,
        file: &Path,
        offset: u64,
        returns: bool,
        counter: Option<u64>,
    ) -> Result<EventSpec, Error> {
        let counter = counter.unwrap_or(0);
        if counter > u64::from(u32::MAX) {
            return Err(Error::failed(format!("event '{name}': its counter is beyond 4 GiB")));
        }
        let config = (u64::from(returns) * RETURN) | (counter << COUNTER_SHIFT);
        let probe = Probe::new(file.as_os_str().as_bytes(), offset, false)?;
        let spec = EventSpec::plain(name, EventKind::Probe, probe_type("uprobe", name)?, config);
        Ok(EventSpec { probe: Some(probe), ..spec })
    }

    /// An event for each time that the kernel is at `offset` of its `function`; with `returns`, for
    /// each return of the function.
    ///
    /// # Errors
    ///
    /// The kernel has no kprobes.
    pub fn kprobe(
        name: &str,
        function: &str,
        offset: u64,
        returns: bool,
    ) -> Result<EventSpec, Error> {
        let probe = Probe::new(function.as_bytes(), offset, true)?;
        let config = u64::from(returns) * RETURN;
        let spec = EventSpec::plain(name, EventKind::Probe, probe_type("kprobe", name)?, config);
        Ok(EventSpec { probe: Some(probe), ..spec })
    }
}

/// Type of the PMU `uprobe` or `kprobe`.
fn probe_type(pmu: &str, name: &str) -> Result<u32, Error> {
    let text = fs::read_to_string(format!("/sys/bus/event_source/devices/{pmu}/type"));
    text.ok().and_then(|text| text.trim().parse().ok()).ok_or_else(|| {
        Error::failed(format!(
            "event '{name}': this kernel has no {pmu}s (it was built without CONFIG_{}_EVENTS)",
            pmu.to_uppercase()
        ))
    })
}

#[cfg(test)]
mod tests {
    use perf_event::events::Event;

    use super::*;

    #[test]
    fn the_kernel_is_told_the_place() {
        let file = Path::new("/bin/x");
        let spec = match EventSpec::uprobe("p", file, 0x1234, true, Some(0x2000)) {
            Ok(spec) => spec,
            Err(why) => return sys::testing::skip_hardware(&why.to_string()),
        };
        let mut attr = perf_event_attr::default();
        (&spec).update_attrs(&mut attr);
        assert_eq!(attr.config, (0x2000 << 32) | 1);
        // SAFETY: both unions hold plain integers of one size; the probe keeps the string.
        let (path, offset) = unsafe {
            let path = attr.__bindgen_anon_3.config1 as *const libc::c_char;
            (std::ffi::CStr::from_ptr(path), attr.__bindgen_anon_4.config2)
        };
        assert_eq!((path.to_bytes(), offset), (&b"/bin/x"[..], 0x1234));
        assert!(EventSpec::uprobe("p", file, 0, false, Some(1 << 32)).is_err());
        assert!(EventSpec::uprobe("p", Path::new("a\0b"), 0, false, None).is_err());
    }
}
