//! Names of the addresses of a recording that goes on: looked up on a thread of its own, each
//! address once, what is worth most first, within the CPU time that prof allows itself.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use super::recorder::{Message, Number};
use profile::{MappingId, NameRequest, Windows};
use symbols::SymbolOptions;
use sys::cpu_allowance::{CpuAllowance, Deferrable};
use sys::foreign::Root;

/// Most CPU time of a lookup, as estimated, when the recording starts and later: another one may
/// be worth more when it ends.
const MOST_AT_START: Duration = Duration::from_millis(300);
const MOST: Duration = Duration::from_millis(10);

/// Estimate of the CPU time for a file that was not looked up before.
const UNKNOWN_COST: Duration = Duration::from_millis(5);

/// Least CPU time of a lookup: a process is started for it.
const LEAST_COST: Duration = Duration::from_millis(2);

/// Most files whose costs are kept.
const MAX_COSTS: usize = 4096;

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
    allowance: Arc<CpuAllowance>,
    /// CPU time of all lookups before the current one.
    used: Duration,
    /// CPU time of the last lookup of each file.
    costs: HashMap<String, Duration>,
}

impl Names {
    /// Starts the thread, which returns names for the recording `number` to `results`.
    ///
    /// # Errors
    ///
    /// There can be no further thread.
    pub fn start(
        options: SymbolOptions,
        allowance: Arc<CpuAllowance>,
        number: Number,
        results: Sender<Message>,
    ) -> anyhow::Result<Names> {
        let (lookups, requested) = mpsc::channel();
        let options = SymbolOptions {
            // Several threads would parse what one can, and each starts a process.
            jobs: 1,
            allowance: Some(allowance.clone()),
            kernel: Some(Arc::default()),
            ..options
        };
        let stop = options.stop.clone();
        thread::Builder::new()
            .name("names".into())
            .spawn(move || run(&options, number, &requested, &results))?;
        Ok(Names {
            lookups,
            stop,
            files: HashMap::new(),
            roots: HashMap::new(),
            changed: HashSet::new(),
            is_busy: false,
            allowance,
            used: Duration::ZERO,
            costs: HashMap::new(),
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

    /// True if a lookup goes on without a pause.
    pub fn are_near(&self) -> bool {
        self.is_busy && self.allowance.allows(Deferrable::Names)
    }

    /// Looks up new addresses, if prof may use CPU time for that now. `now` is the time since the
    /// epoch in nanoseconds.
    pub fn look_up(&mut self, windows: &mut Windows, now: i64) {
        if self.is_busy || !windows.has_unnamed() || !self.allowance.allows(Deferrable::Names) {
            return;
        }
        let cost = |file: &str| self.costs.get(file).copied().unwrap_or(UNKNOWN_COST);
        let most = if self.allowance.is_starting() { MOST_AT_START } else { MOST };
        self.request(windows.request_best(cost, most), now);
    }

    /// Looks up all addresses that are left, after the end of the recording.
    pub fn look_up_rest(&mut self, windows: &mut Windows, now: i64) {
        self.allowance.lift();
        if !self.is_busy {
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
        self.used = self.allowance.used(Deferrable::Names);
        self.is_busy = self.lookups.send(Lookup { request, files, roots, changed }).is_ok();
    }

    /// Takes over the names of a lookup.
    pub fn done(&mut self, request: &NameRequest, windows: &mut Windows) {
        windows.name(request);
        self.is_busy = false;
        let profile = &request.profile;
        let used = self.allowance.used(Deferrable::Names).saturating_sub(self.used);
        let files: HashSet<&str> =
            profile.mappings.iter().map(|mapping| profile.str(mapping.file)).collect();
        if self.costs.len() > MAX_COSTS {
            self.costs.clear();
        }
        // Together they cost that much; which of them did is known when each is looked up again.
        let each = used / u32::try_from(files.len()).unwrap_or(u32::MAX).max(1);
        let costs = files.into_iter().map(|file| (file.to_owned(), each.max(LEAST_COST)));
        self.costs.extend(costs);
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
        let allowance = Arc::new(CpuAllowance::default());
        // More than the start may use.
        sys::os::count_as_own(Duration::from_secs(1));
        let mut names =
            Names::start(SymbolOptions::default(), allowance.clone(), 0, results).unwrap();
        sample(&mut windows, 0x10);
        names.look_up(&mut windows, 1);
        assert!(!names.is_busy && windows.has_unnamed(), "there is no CPU time for it");
        names.look_up_rest(&mut windows, 1);
        assert!(names.is_busy && !windows.has_unnamed());
        // One lookup at a time.
        sample(&mut windows, 0x20);
        names.look_up_rest(&mut windows, 1);
        assert!(windows.has_unnamed());
    }
}
