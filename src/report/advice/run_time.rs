//! Remedies for run-time code: the options of its compilers that give it names and whole stacks.

/// The remedy for code without names if its compiler is not recognized.
pub const WRITE_PERF_MAP: &str = "let the program write a perf map, /tmp/perf-PID.map";

/// The remedy for stacks that end in run-time code if its compiler is not recognized.
pub const KEEP_FRAME_POINTERS: &str = "let the compiler of the run-time code keep frame pointers \
                                       (java: -XX:+PreserveFramePointer), or run without it";

/// The remedy for missing names of the code that a process made at run time, if its compiler is
/// recognized by the process's name.
pub fn names_of_process(name: &str, pid: Option<i64>) -> String {
    let run_time = RunTime::of_process(name);
    run_time.map_or_else(|| WRITE_PERF_MAP.to_owned(), |run_time| run_time.names(pid))
}

/// A program or library with a compiler of run-time code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    pub fn of_binary(file: &str) -> Option<RunTime> {
        let name = file.rsplit('/').next().unwrap_or(file);
        let begins = |with: &[&str]| with.iter().any(|w| name.starts_with(w));
        Some(match () {
            () if begins(&["libjvm.so"]) => RunTime::Java,
            () if begins(&["libnode.so"]) || name == "node" => RunTime::Node,
            () if begins(&["opcache.so", "php", "libphp"]) => RunTime::Php,
            () if begins(&["luajit", "libluajit"]) => RunTime::LuaJit,
            () => return None,
        })
    }

    /// The one that runs in a process with this name.
    pub fn of_process(name: &str) -> Option<RunTime> {
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
        NAMES.into_iter().find_map(|(begin, of)| name.starts_with(begin).then_some(of))
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
            // Their code keeps frame pointers.
            RunTime::Node | RunTime::Chromium | RunTime::Python => None,
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
            RunTime::LuaJit => "run luajit with -joff: its compiler writes no perf map",
        };
        remedy.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_and_processes_of_a_compiler_are_recognized() {
        let binaries = [
            ("/usr/lib/jvm/lib/server/libjvm.so", Some(RunTime::Java)),
            ("/usr/bin/node", Some(RunTime::Node)),
            ("/usr/bin/nodemon", None),
            ("/usr/bin/php8.2", Some(RunTime::Php)),
        ];
        for (file, run_time) in binaries {
            assert_eq!(RunTime::of_binary(file), run_time, "{file}");
        }
        let processes = [
            ("MainThread", Some(RunTime::Node)),
            ("chromium", Some(RunTime::Chromium)),
            ("python3.12", Some(RunTime::Python)),
            ("bash", None),
        ];
        for (name, run_time) in processes {
            assert_eq!(RunTime::of_process(name), run_time, "{name}");
        }
    }

    #[test]
    fn the_process_is_named_in_commands() {
        let names = names_of_process("java", Some(7));
        assert!(names.contains("jcmd 7 Compiler.perfmap"), "{names}");
        assert!(RunTime::Java.names(None).contains("jcmd PID "));
    }
}
