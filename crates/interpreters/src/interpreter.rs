//! Which interpreters there are.

use std::sync::Arc;

use sys::{FileAddress, LoadBias, ProcessAddress};

use crate::images::LoadedImage;
use crate::{Process, Refusal, Runtime, cpython, hotspot, php, ruby, v8};

/// An interpreter whose programs' functions can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Interpreter {
    /// CPython, of Python.
    Cpython,
    /// MRI, of Ruby.
    Ruby,
    /// PHP.
    Php,
    /// V8, of JavaScript.
    V8,
    /// HotSpot, of Java.
    HotSpot,
}

impl Interpreter {
    /// All of them.
    pub const ALL: [Interpreter; 5] = [
        Interpreter::Cpython,
        Interpreter::Ruby,
        Interpreter::Php,
        Interpreter::V8,
        Interpreter::HotSpot,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Interpreter::Cpython => "CPython",
            Interpreter::Ruby => "Ruby",
            Interpreter::Php => "PHP",
            Interpreter::V8 => "V8",
            Interpreter::HotSpot => "HotSpot",
        }
    }

    /// A symbol that the file with its code exports.
    fn symbol(self) -> &'static str {
        match self {
            Interpreter::Cpython => cpython::EVALUATION,
            Interpreter::Ruby => ruby::VERSION,
            Interpreter::Php => php::EVALUATION,
            Interpreter::V8 => v8::EXPORTED,
            Interpreter::HotSpot => hotspot::EXPORTED,
        }
    }

    /// The one whose code a file has.
    pub fn of_file(file: &[u8]) -> Option<Interpreter> {
        let bias = LoadBias::between(FileAddress(0), ProcessAddress(0));
        let exported = LoadedImage { file, bias }.exported(&Interpreter::ALL.map(Self::symbol));
        exported.map(|number| Interpreter::ALL[number])
    }

    /// It in a process, if the process has it. Its structures are checked: that takes some hundred
    /// reads, or thousands.
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
            Interpreter::Ruby => ruby::detect(process).map(shared),
            Interpreter::Php => php::detect(process).map(shared),
            Interpreter::V8 => v8::detect(process).map(shared),
            Interpreter::HotSpot => hotspot::detect(process).map(shared),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_that_of_the_interpreter_whose_symbol_it_exports() {
        let found = |path: &str| {
            let file = std::fs::read(path).ok()?;
            Some(Interpreter::of_file(&file))
        };
        assert_eq!(found("/proc/self/exe"), Some(None));
        let mut tried = 0;
        for (path, interpreter) in [
            ("/usr/bin/python3", Interpreter::Cpython),
            ("/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1", Interpreter::Ruby),
            ("/usr/bin/php", Interpreter::Php),
            ("/usr/lib/jvm/default-java/lib/server/libjvm.so", Interpreter::HotSpot),
        ] {
            if let Some(found) = found(path) {
                assert_eq!(found, Some(interpreter), "{path}");
                tried += 1;
            }
        }
        println!("{tried} interpreters are installed");
    }
}
