//! CPU time of prof for a sample of interpreted programs whose stacks have a hundred functions,
//! compared with that of a native program of the same shape.
//!
//! cargo bench --bench interpreters [-- --seconds 6 --rounds 3 --hz 999]
//!
//! It is the difference of a long recording and a short one: what prof does once, such as the analysis
//! of code, is not part of it. In each round, all programs are recorded one after the other.

mod support;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use support::units::{number, time};
use support::{Busy, Figures, claim, median, option, running_time, target};

/// A language, and the program in it.
struct Language {
    name: &'static str,
    /// What executes the program; `None`: it is compiled.
    interpreter: Option<&'static str>,
    script: &'static str,
}

const LANGUAGES: [Language; 5] = [
    Language { name: "C", interpreter: None, script: "deep.c" },
    Language { name: "Python", interpreter: Some("/usr/bin/python3"), script: "deep.py" },
    Language { name: "Ruby", interpreter: Some("ruby"), script: "deep.rb" },
    Language { name: "PHP", interpreter: Some("php"), script: "deep.php" },
    Language { name: "JavaScript", interpreter: Some("node"), script: "deep.js" },
];

/// The cost of interpreted programs in multiples of that of native ones that is aimed at.
const AIM: f64 = 1.5;

impl Language {
    fn is_installed(&self) -> bool {
        self.interpreter.is_none_or(support::has)
    }

    /// The program, which waits for its work.
    fn start(&self, rounds: u64) -> Busy {
        let source = format!("deep/{}", self.script);
        let mut command = match self.interpreter {
            None => Command::new(target(&source, "gcc", &["-O2", "-fomit-frame-pointer"])),
            Some(interpreter) => {
                let targets = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/targets"));
                let mut command = Command::new(interpreter);
                command.arg(targets.join(source));
                command
            }
        };
        Busy::command(command.arg(rounds.to_string()))
    }

    /// Rounds of work that take about that time here.
    fn rounds_for(&self, seconds: f64) -> u64 {
        let scaled = |rounds: u64, seconds: f64| {
            let took = self.start(rounds).work().cpu;
            (rounds as f64 * seconds / took.max(1e-4)).clamp(1.0, 1e9) as u64
        };
        // The first rounds are slow: compilers of the interpreter have not done their work.
        scaled(scaled(scaled(10, 0.1), 0.5), seconds)
    }
}

/// A recording of a program's work.
struct Run {
    /// CPU seconds of prof.
    profiler: f64,
    /// CPU seconds of the work.
    work: f64,
}

struct Bench {
    hz: u32,
    dir: tempfile::TempDir,
    /// A process that keeps recordings from ending with the program.
    sleeper: Child,
}

impl Bench {
    fn run(&self, language: &Language, rounds: u64) -> Run {
        let busy = language.start(rounds);
        let mut prof = support::prof();
        prof.args(["record", "--no-symbolize", "-e", "cpu-clock", "-d", "1h", "-o", "out"]);
        prof.args(["-F", &self.hz.to_string(), "-p", &busy.pid(), "-p"]);
        prof.arg(self.sleeper.id().to_string()).current_dir(self.dir.path());
        let prof = support::start(prof.stdout(Stdio::null()).stderr(Stdio::null()));
        support::settle(1000);
        let before = running_time(prof.pid());
        let work = busy.work().cpu;
        support::settle(100);
        let profiler = (running_time(prof.pid()) - before) as f64 * 1e-9;
        prof.signal(libc::SIGINT);
        assert!(prof.finish().0.ok, "prof record fails");
        Run { profiler, work }
    }

    /// CPU seconds of prof for a sample.
    fn cost(&self, language: &Language, rounds: u64) -> f64 {
        let long = self.run(language, rounds);
        let short = self.run(language, (rounds / 4).max(1));
        (long.profiler - short.profiler) / ((long.work - short.work) * f64::from(self.hz))
    }
}

fn main() {
    let rounds: usize = option("rounds", 3);
    let seconds: f64 = option("seconds", 6.0);
    let hz: u32 = option("hz", 999);
    let sleeper = Command::new("sleep").arg("infinity").spawn().expect("sleep starts");
    let mut bench = Bench { hz, dir: support::temp_dir(), sleeper };
    let installed: Vec<&Language> = LANGUAGES.iter().filter(|it| it.is_installed()).collect();
    let work: Vec<u64> = installed.iter().map(|language| language.rounds_for(seconds)).collect();
    let mut costs = vec![Vec::new(); installed.len()];
    for _ in 0..rounds {
        for ((language, work), costs) in installed.iter().zip(&work).zip(&mut costs) {
            costs.push(bench.cost(language, *work));
        }
    }
    bench.sleeper.kill().and_then(|()| bench.sleeper.wait()).expect("sleep ends");
    let mut figures = Figures::new(&["100 functions in", "CPU time of a sample", "against C"]);
    figures.conditions(&format!(
        "{seconds} s of work at {hz} Hz, medians of {rounds} rounds and of the ratios in each of them."
    ));
    for (language, times) in installed.iter().zip(&costs) {
        let pairs = times.iter().zip(&costs[0]);
        let ratio = median(pairs.map(|(cost, native)| cost / native).collect());
        figures.row(language.name, [time(median(times.clone())), number(ratio)]);
        let name = language.name;
        claim(ratio <= AIM, &format!("{name}: {ratio:.2} times the cost of C, at most {AIM}"));
    }
    figures.publish();
}
