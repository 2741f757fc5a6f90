//! Running programs, of tests.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::candidate::{Kind, detect};
use crate::{Budget, MappedFiles, Process, ProcessMemory, Refusal};

/// A running program, which ends with this value.
pub struct Program {
    child: Child,
    output: tempfile::NamedTempFile,
    budget: Budget,
}

impl Program {
    /// Starts a program, of whose memory this may be read each time.
    pub fn start(command: &mut Command, budget: Budget) -> Program {
        let output = tempfile::NamedTempFile::new().unwrap();
        let stdout = output.reopen().unwrap();
        let child = command.stdout(stdout).stderr(Stdio::null()).spawn().unwrap();
        Program { child, output, budget }
    }

    /// What it has written.
    pub fn text(&self) -> String {
        std::fs::read_to_string(self.output.path()).unwrap()
    }

    /// True if the last line that it has written is `ready`.
    pub fn is_ready(&self) -> bool {
        self.text().ends_with("ready\n")
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Its memory.
    pub fn memory(&self) -> ProcessMemory {
        ProcessMemory::new(self.pid(), self.budget)
    }

    /// Its interpreter.
    pub fn detect<K: Kind>(&self) -> Result<Option<K::Checked>, Refusal> {
        let files = MappedFiles::open(self.pid()).unwrap();
        let threads = sys::procfs::threads(self.pid()).unwrap();
        let memory = self.memory();
        detect::<K>(&Process { images: &files.images(), threads: &threads, memory: &memory })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a condition.
pub fn until(holds: impl FnMut() -> bool) {
    until_within(Duration::from_secs(60), holds);
}

/// Waits for a condition, at most for this long.
pub fn until_within(longest: Duration, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < longest, "the condition does not hold");
        std::thread::sleep(Duration::from_millis(10));
    }
}
