//! Remedies for run-time code: the options of its compilers that give it names and whole stacks.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use profile::{LabelValue, Language, LocationId, MappingId, Profile, StrId, Truncation, label};
use sys::jit::file_names::is_compilers_file;

/// The remedy for code without names if its compiler is not recognized.
pub const WRITE_PERF_MAP: &str = "let the program write a perf map, /tmp/perf-PID.map";

/// The remedy for stacks that end in run-time code if its compiler is not recognized.
pub const KEEP_FRAME_POINTERS: &str =
    "let the compiler of the run-time code keep frame pointers, or run without it";

/// The compilers of the run-time code in a profile.
#[derive(Debug, Default)]
pub struct Compilers {
    /// By the file of the code: a perf map, a jitdump, or memory without a file.
    by_file: FxHashMap<StrId, BTreeSet<RunTime>>,
    /// Of stacks that are truncated in such code, with the sum of their values.
    truncated: FxHashMap<RunTime, u64>,
}

impl Compilers {
    /// Recognizes them by the binaries in the same stacks, else in those of the same process, else
    /// by the name of the process.
    pub fn find(profile: &Profile) -> Compilers {
        let mut compilers = Compilers::default();
        let files: Vec<(bool, Option<RunTime>)> = profile
            .mappings
            .iter()
            .map(|mapping| {
                let file = profile.str(mapping.file);
                let is_run_time = is_compilers_file(file) || is_made_in_memory(file);
                (is_run_time, RunTime::for_binary(file))
            })
            .collect();
        if !files.iter().any(|(is_run_time, _)| *is_run_time) {
            return compilers;
        }
        let key = profile.strings.find(label::PROCESS);
        let process_of = |labels| match key.and_then(|key| profile.labels.value(labels, key)) {
            Some(LabelValue::Str(name)) => Some(name),
            _ => None,
        };
        let mappings_of = |stack| {
            let locations = profile.stacks.get(stack).iter();
            locations.filter_map(|l| profile.locations[l.0 as usize].mapping)
        };
        let mut by_process: FxHashMap<StrId, RunTime> = FxHashMap::default();
        for sample in &profile.samples {
            let found = mappings_of(sample.stack).find_map(|mapping| files[mapping.0 as usize].1);
            if let (Some(found), Some(process)) = (found, process_of(sample.labels)) {
                by_process.entry(process).or_insert(found);
            }
        }
        for (row, sample) in profile.samples.iter().enumerate() {
            let is_run_time = |mapping: &MappingId| files[mapping.0 as usize].0;
            if !mappings_of(sample.stack).any(|mapping| is_run_time(&mapping)) {
                continue;
            }
            let process = process_of(sample.labels);
            let found = mappings_of(sample.stack)
                .find_map(|mapping| files[mapping.0 as usize].1)
                .or_else(|| by_process.get(&process?).copied())
                .or_else(|| RunTime::for_process(profile.str(process?)));
            let Some(found) = found else { continue };
            for mapping in mappings_of(sample.stack).filter(is_run_time) {
                let file = profile.mappings[mapping.0 as usize].file;
                compilers.by_file.entry(file).or_default().insert(found);
            }
            let ends = |&id: &LocationId| {
                profile.truncation_of(id) == Some(Truncation::RunTimeCode.code())
            };
            if profile.stacks.get(sample.stack).iter().any(ends) {
                let value = profile.values_of(row).first().copied().unwrap_or_default();
                let sum = compilers.truncated.entry(found).or_default();
                *sum = sum.saturating_add(u64::try_from(value).unwrap_or_default());
            }
        }
        compilers
    }

    /// Those of the code in this file.
    pub fn by_file(&self, file: StrId) -> impl Iterator<Item = RunTime> + '_ {
        self.by_file.get(&file).into_iter().flatten().copied()
    }

    /// The remedy for most of the stacks that are truncated in run-time code.
    pub fn whole_stacks(&self) -> Option<&'static str> {
        let most = self.truncated.iter().max_by_key(|(run_time, n)| (**n, **run_time));
        most.map_or(Some(KEEP_FRAME_POINTERS), |(run_time, _)| run_time.whole_stacks())
    }
}

/// True for memory without a file in which compilers put their code.
fn is_made_in_memory(file: &str) -> bool {
    ["//anon", "[anon:", "/memfd:", "/dev/zero", "/SYSV"]
        .iter()
        .any(|begin| file.starts_with(begin))
}

/// The remedy for missing names of the code that a process made at run time, if its compiler is
/// recognized: by the binaries in its stacks, since a process may have any name (npm is one of node), else
/// by its name. `None` if its functions are read without that.
pub fn names_of_process(profile: &Profile, name: &str, pid: Option<i64>) -> Option<String> {
    let found = in_process(profile, name).or_else(|| RunTime::for_process(name));
    let Some(run_time) = found else { return Some(WRITE_PERF_MAP.to_owned()) };
    (RunTime::read_in(profile) != Some(run_time)).then(|| run_time.names(pid))
}

/// The one whose binary has most of the samples of the processes with a name.
fn in_process(profile: &Profile, name: &str) -> Option<RunTime> {
    let (key, name) = (profile.strings.find(label::PROCESS)?, profile.strings.find(name)?);
    let run_times: Vec<Option<RunTime>> =
        profile.mappings.iter().map(|m| RunTime::for_binary(profile.str(m.file))).collect();
    let mut samples: BTreeMap<RunTime, u64> = BTreeMap::new();
    for sample in &profile.samples {
        if profile.labels.value(sample.labels, key) != Some(LabelValue::Str(name)) {
            continue;
        }
        let locations = profile.stacks.get(sample.stack).iter();
        let mut mappings = locations.filter_map(|l| profile.locations[l.0 as usize].mapping);
        if let Some(found) = mappings.find_map(|mapping| run_times[mapping.0 as usize]) {
            *samples.entry(found).or_default() += 1;
        }
    }
    samples.into_iter().max_by_key(|(_, n)| *n).map(|(run_time, _)| run_time)
}

/// A program or library with a compiler of run-time code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RunTime {
    /// OpenJDK.
    Java,
    /// Node.js.
    Node,
    /// Chromium and Chrome.
    Chromium,
    /// CPython.
    Python,
    /// PHP.
    Php,
    /// LuaJIT.
    LuaJit,
}

impl RunTime {
    /// The one that a binary contains.
    pub fn for_binary(file: &str) -> Option<RunTime> {
        let name = file.rsplit('/').next().unwrap_or(file);
        let begins = |with: &[&str]| with.iter().any(|w| name.starts_with(w));
        Some(match () {
            () if begins(&["libjvm.so"]) => RunTime::Java,
            () if begins(&["libnode.so"]) || name == "node" => RunTime::Node,
            () if begins(&["python3.", "libpython3"]) || name == "python3" => RunTime::Python,
            () if ["chrome", "chromium"].contains(&name) => RunTime::Chromium,
            () if begins(&["opcache.so", "php", "libphp"]) => RunTime::Php,
            () if begins(&["luajit", "libluajit"]) => RunTime::LuaJit,
            () => return None,
        })
    }

    /// The one that runs in a process with this name.
    pub fn for_process(name: &str) -> Option<RunTime> {
        const NAMES: [(&str, RunTime); 7] = [
            ("node", RunTime::Node),
            // The main thread of node.
            ("MainThread", RunTime::Node),
            ("chrom", RunTime::Chromium),
            ("java", RunTime::Java),
            ("python", RunTime::Python),
            ("php", RunTime::Php),
            ("luajit", RunTime::LuaJit),
        ];
        NAMES.into_iter().find_map(|(begin, run_time)| name.starts_with(begin).then_some(run_time))
    }

    /// The one whose functions prof has read in a profile. Code of it without a name is that of other
    /// samples, or of patterns; node with a perf map would have its names from that alone.
    pub fn read_in(profile: &Profile) -> Option<RunTime> {
        let is_read =
            |mapping| Language::in_mapping(profile, mapping) == Some(Language::JavaScript);
        profile.mappings.iter().any(is_read).then_some(RunTime::Node)
    }

    /// The remedy for truncated stacks, if there is one.
    pub fn whole_stacks(self) -> Option<&'static str> {
        match self {
            RunTime::Java => Some("start java with -XX:+PreserveFramePointer"),
            RunTime::Php => Some(
                "run php with -d opcache.jit=disable: the code that its compiler makes keeps no \
                 frame pointers",
            ),
            RunTime::LuaJit => Some(
                "run luajit with -joff: the code that its compiler makes keeps no frame pointers",
            ),
            RunTime::Python => Some(
                "record as root, or as the user who runs python3, and begin before it ends: prof \
                 reads the code that -X perf makes from its memory",
            ),
            // Their code keeps frame pointers.
            RunTime::Node | RunTime::Chromium => None,
        }
    }

    /// The remedy for missing names; `pid`: the process, if it is a single one.
    pub fn names(self, pid: Option<i64>) -> String {
        let remedy = match self {
            RunTime::Java => {
                let pid = pid.map_or("PID".to_owned(), |pid| pid.to_string());
                return format!(
                    "start java with -XX:+PreserveFramePointer -XX:+UnlockDiagnosticVMOptions \
                     -XX:+DumpPerfMapAtExit, or before the recording ends (Java 17 or newer): \
                     jcmd {pid} Compiler.perfmap"
                );
            }
            RunTime::Node => "start node with --perf-basic-prof",
            RunTime::Chromium => "start it with --js-flags=--perf-basic-prof --no-sandbox",
            RunTime::Python => "start python3 with -X perf (3.12 or newer)",
            RunTime::Php => "run php with -d opcache.jit_debug=0x10",
            RunTime::LuaJit => {
                "use LuaJIT's own profiler, luajit -jp=f: its compiler writes no perf map"
            }
        };
        remedy.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Builder, Column, Label, Mapping};

    #[test]
    fn binaries_and_processes_of_a_compiler_are_recognized() {
        let binaries = [
            ("/usr/lib/jvm/lib/server/libjvm.so", Some(RunTime::Java)),
            ("/usr/bin/node", Some(RunTime::Node)),
            ("/usr/bin/nodemon", None),
            ("/usr/bin/php8.2", Some(RunTime::Php)),
        ];
        for (file, run_time) in binaries {
            assert_eq!(RunTime::for_binary(file), run_time, "{file}");
        }
        let processes = [
            ("MainThread", Some(RunTime::Node)),
            ("chromium", Some(RunTime::Chromium)),
            ("python3.12", Some(RunTime::Python)),
            ("bash", None),
        ];
        for (name, run_time) in processes {
            assert_eq!(RunTime::for_process(name), run_time, "{name}");
        }
    }

    #[test]
    fn the_process_is_named_in_commands() {
        let profile = Builder::new(&[("samples", "count")]).profile;
        let names = names_of_process(&profile, "java", Some(7)).unwrap();
        assert!(names.contains("jcmd 7 Compiler.perfmap"), "{names}");
        assert!(RunTime::Java.names(None).contains("jcmd PID "));
    }

    #[test]
    fn functions_that_are_read_need_no_perf_map() {
        let profile = |mapping: &str| {
            let mut builder = Builder::new(&[("samples", "count")]);
            let file = builder.profile.strings.intern(mapping);
            builder.add_mapping(Mapping { file, limit: 1, ..Mapping::default() });
            builder.finish(None)
        };
        let read = profile(Language::JavaScript.mapping());
        assert_eq!(names_of_process(&read, "MainThread", None), None);
        assert!(names_of_process(&read, "java", None).is_some());
        let other = profile(Language::Python.mapping());
        assert!(
            names_of_process(&other, "MainThread", None).unwrap().contains("--perf-basic-prof")
        );
    }

    #[test]
    fn a_process_that_has_renamed_itself_gets_the_advice_of_its_program() {
        let mut builder = Builder::new(&[("samples", "count")]);
        let process = builder.profile.strings.intern(label::PROCESS);
        for (name, file) in [("npm ls", "/usr/bin/node"), ("other", "/usr/bin/php8.2")] {
            let file = builder.profile.strings.intern(file);
            let mapping = builder.add_mapping(Mapping { file, limit: 100, ..Mapping::default() });
            let location = builder.location(Some(mapping), 1);
            let name = builder.profile.strings.intern(name);
            let label = Label { key: process, value: LabelValue::Str(name) };
            let labels = builder.profile.labels.intern(&[label]);
            builder.add(&[location], labels, 0, &[(Column(0), 1)]);
        }
        let profile = builder.finish(None);
        let advice = |name| names_of_process(&profile, name, None).unwrap();
        assert_eq!(advice("npm ls"), RunTime::Node.names(None));
        assert_eq!(advice("other"), RunTime::Php.names(None));
        assert_eq!(advice("third"), WRITE_PERF_MAP);
    }

    #[test]
    fn advice_is_that_of_the_program_with_the_truncated_stacks() {
        let mut builder = Builder::new(&[("samples", "count")]);
        let process = builder.profile.strings.intern(label::PROCESS);
        let truncated = builder.named_location(&Truncation::RunTimeCode.frame_name());
        let mut add = |name: &str, files: &[&str], is_truncated: bool, value| {
            let mut locations = Vec::new();
            for file in files {
                let file = builder.profile.strings.intern(file);
                let mapping = Mapping { file, limit: 100, ..Mapping::default() };
                let mapping = builder.add_mapping(mapping);
                locations.push(builder.location(Some(mapping), 1));
            }
            locations.extend(is_truncated.then_some(truncated));
            let name = builder.profile.strings.intern(name);
            let label = Label { key: process, value: LabelValue::Str(name) };
            let labels = builder.profile.labels.intern(&[label]);
            builder.add(&locations, labels, 0, &[(Column(0), value)]);
        };
        add("java", &["//anon", "/usr/lib/jvm/lib/server/libjvm.so"], false, 100);
        // Its name does not reveal it, nor do the binaries in this stack.
        add("worker", &["[anon:php]"], true, 10);
        add("worker", &["/usr/bin/php8.2"], false, 1);
        add("luajit", &["/tmp/perf-7.map"], true, 3);
        let profile = builder.finish(None);
        let compilers = Compilers::find(&profile);
        let of = |file: &str| {
            let file = profile.strings.find(file).unwrap();
            compilers.by_file(file).collect::<Vec<_>>()
        };
        assert_eq!(of("//anon"), [RunTime::Java]);
        assert_eq!(of("[anon:php]"), [RunTime::Php]);
        assert_eq!(of("/tmp/perf-7.map"), [RunTime::LuaJit]);
        assert_eq!(compilers.whole_stacks(), RunTime::Php.whole_stacks());
        assert_eq!(Compilers::find(&Profile::default()).whole_stacks(), Some(KEEP_FRAME_POINTERS));
    }
}
