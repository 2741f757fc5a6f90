//! Names of the addresses of a recording that goes on: looked up on a thread of its own, each
//! address once, and the more rarely the more it costs.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::recorder::{Message, Number};
use profile::{MappingId, NameRequest, Windows};
use symbols::SymbolOptions;
use sys::foreign::Root;
use sys::os;

/// Time after the start in which names are looked up as soon as there are new addresses.
const FIRST: Duration = Duration::from_secs(5);

/// Afterwards, the pause after a lookup is its CPU time multiplied by this: at most 0.4 % of a core
/// is for names.
const PAUSE_FACTOR: f64 = 250.0;

/// Part of the samples, in percent, in a binary without any names, that makes them due.
const NEW_PERCENT: u64 = 2;

/// The pause before names of such a binary, also before it is time for all: it happens once for each.
const NEW_PAUSE_FACTOR: f64 = 20.0;

/// Longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// A lookup: the addresses, and where their files are.
struct Lookup {
    request: NameRequest,
    files: HashMap<u32, PathBuf>,
    roots: HashMap<u32, Arc<Root>>,
    changed: HashSet<u32>,
}

/// Looks up names.
pub struct Names {
    lookups: Sender<Lookup>,
    stop: Arc<AtomicBool>,
    /// Current paths of files, by mapping.
    files: HashMap<MappingId, PathBuf>,
    /// Root directories of the processes that mapped them, if not prof's own.
    roots: HashMap<MappingId, Arc<Root>>,
    /// Mappings whose files changed.
    changed: HashSet<MappingId>,
    is_busy: bool,
    began: Instant,
    /// CPU time when the lookup began.
    cpu: f64,
    /// The next lookup of all addresses.
    due: Instant,
    /// The next lookup in new binaries.
    new_due: Instant,
    /// The current lookup is one in new binaries.
    is_new: bool,
}

impl Names {
    /// Starts the thread, which returns names for the recording `number` to `results`.
    ///
    /// # Errors
    ///
    /// There can be no further thread.
    pub fn start(
        options: SymbolOptions,
        number: Number,
        results: Sender<Message>,
    ) -> anyhow::Result<Names> {
        let (lookups, requested) = mpsc::channel();
        let stop = options.stop.clone();
        thread::Builder::new()
            .name("names".into())
            .spawn(move || run(&options, number, &requested, &results))?;
        let now = Instant::now();
        Ok(Names {
            lookups,
            stop,
            files: HashMap::new(),
            roots: HashMap::new(),
            changed: HashSet::new(),
            is_busy: false,
            began: now,
            cpu: 0.0,
            due: now,
            new_due: now,
            is_new: false,
        })
    }

    /// Adds current paths of files, the root directories of their processes, and files that have
    /// changed.
    pub fn add_files(
        &mut self,
        files: Vec<(MappingId, PathBuf)>,
        roots: Vec<(MappingId, Arc<Root>)>,
        changed: Vec<MappingId>,
    ) {
        self.files.extend(files);
        self.roots.extend(roots);
        self.changed.extend(changed);
    }

    /// True while names are looked up.
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Looks up new addresses, if it is time. `now` is the time since the epoch in nanoseconds.
    pub fn look_up(&mut self, windows: &mut Windows, now: i64) {
        let at = Instant::now();
        if self.is_busy || !windows.has_unnamed() || at < self.new_due {
            return;
        }
        self.is_new = at < self.due;
        let request = if self.is_new {
            windows.request_new_binaries(NEW_PERCENT)
        } else {
            windows.request_names()
        };
        self.request(request, now);
    }

    /// Looks up all addresses that are left, after the end of the recording.
    pub fn look_up_rest(&mut self, windows: &mut Windows, now: i64) {
        if !self.is_busy {
            self.is_new = false;
            self.request(windows.request_names(), now);
        }
    }

    fn request(&mut self, request: Option<NameRequest>, now: i64) {
        let Some(mut request) = request else { return };
        // Files that are newer than the samples have no names for them.
        request.profile.time_nanos = now;
        let mappings = || (0..).zip(&request.mappings);
        let file = |(i, mapping): (u32, &MappingId)| Some((i, self.files.get(mapping)?.clone()));
        let files = mappings().filter_map(file).collect();
        let root = |(i, mapping): (u32, &MappingId)| Some((i, self.roots.get(mapping)?.clone()));
        let roots = mappings().filter_map(root).collect();
        let changed =
            mappings().filter(|(_, mapping)| self.changed.contains(mapping)).map(|(i, _)| i);
        let changed = changed.collect();
        self.cpu = os::own_usage().0;
        self.is_busy = self.lookups.send(Lookup { request, files, roots, changed }).is_ok();
    }

    /// Takes over the names of a lookup.
    pub fn done(&mut self, request: &NameRequest, windows: &mut Windows) {
        windows.name(request);
        self.is_busy = false;
        let now = Instant::now();
        if now.duration_since(self.began) > FIRST {
            let cpu = (os::own_usage().0 - self.cpu).max(0.0);
            let pause = |factor: f64| Duration::from_secs_f64(cpu * factor).min(MAX_PAUSE);
            self.new_due = now + pause(NEW_PAUSE_FACTOR);
            if !self.is_new {
                self.due = now + pause(PAUSE_FACTOR);
            }
        }
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

fn run(
    options: &SymbolOptions,
    number: Number,
    requested: &Receiver<Lookup>,
    results: &Sender<Message>,
) {
    for Lookup { mut request, files, roots, changed } in requested {
        let options = SymbolOptions { files, roots, changed, ..options.clone() };
        symbols::symbolize(&mut request.profile, &options, &|_, _| {});
        if results.send(Message::Named(number, Box::new(request))).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Builder, LabelSetId, Mapping, PartMarks};

    #[test]
    fn the_rest_is_looked_up_without_a_pause() {
        let mut builder = Builder::new(&[("samples", "count")]);
        builder.add_mapping(Mapping { limit: 0x1000, ..Mapping::default() });
        let mut windows = Windows::default();
        let mut marks = PartMarks::default();
        let mut sample = |windows: &mut Windows, address| {
            let location = builder.location(Some(MappingId(0)), address);
            builder.add(&[location], LabelSetId::EMPTY, 1, &[]);
            windows.add(builder.take_part(&mut marks).0, 1_000_000_000);
        };
        let (results, _receiver) = mpsc::channel();
        let mut names = Names::start(SymbolOptions::default(), 0, results).unwrap();
        names.due = Instant::now() + MAX_PAUSE;
        names.new_due = names.due;
        sample(&mut windows, 0x10);
        names.look_up(&mut windows, 1);
        assert!(!names.is_busy() && windows.has_unnamed(), "it is not time");
        names.look_up_rest(&mut windows, 1);
        assert!(names.is_busy() && !windows.has_unnamed());
        // One lookup at a time.
        sample(&mut windows, 0x20);
        names.look_up_rest(&mut windows, 1);
        assert!(windows.has_unnamed());
    }
}
