//! Which interpreters there are.

use std::sync::Arc;

use crate::{Process, Refusal, Runtime, cpython};

/// An interpreter whose programs' functions can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Interpreter {
    /// CPython, of Python.
    Cpython,
}

impl Interpreter {
    /// All of them.
    pub const ALL: [Interpreter; 1] = [Interpreter::Cpython];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Interpreter::Cpython => "CPython",
        }
    }

    /// The one whose code a file has.
    pub fn of_file(file: &[u8]) -> Option<Interpreter> {
        Interpreter::ALL.into_iter().find(|interpreter| match interpreter {
            Interpreter::Cpython => cpython::evaluates(file),
        })
    }

    /// It in a process, if the process has it. Its structures are checked: that takes some hundred
    /// reads.
    ///
    /// # Errors
    ///
    /// It is of a version or kind that is not supported, runs no code yet, or its structures are not as
    /// expected.
    pub fn detect(self, process: &Process) -> Result<Option<Arc<dyn Runtime>>, Refusal> {
        fn shared<R: Runtime + 'static>(found: Option<R>) -> Option<Arc<dyn Runtime>> {
            found.map(|runtime| Arc::new(runtime) as Arc<dyn Runtime>)
        }
        match self {
            Interpreter::Cpython => cpython::detect(process).map(shared),
        }
    }
}
