//! Which interpreters there are.

use sys::{FileAddress, LoadBias, ProcessAddress};

use crate::candidate::{Candidate, Kind, without_pointers};
use crate::images::LoadedImage;
use crate::{Process, Refusal, cpython, hotspot, php, ruby, v8};

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

    /// It among the files of a process, if the process has it.
    ///
    /// # Errors
    ///
    /// It is of a version or kind that is not supported, or what is read is not as expected.
    pub fn find(self, process: &Process) -> Result<Option<Box<dyn Candidate>>, Refusal> {
        fn boxed<K: Kind + Send + 'static>(
            process: &Process,
        ) -> Result<Option<Box<dyn Candidate>>, Refusal> {
            let found = K::find(process).map_err(without_pointers)?;
            Ok(found.map(|found| Box::new(found) as Box<dyn Candidate>))
        }
        match self {
            Interpreter::Cpython => boxed::<cpython::Found>(process),
            Interpreter::Ruby => boxed::<ruby::Found>(process),
            Interpreter::Php => boxed::<php::Found>(process),
            Interpreter::V8 => boxed::<v8::Found>(process),
            Interpreter::HotSpot => boxed::<hotspot::Found>(process),
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
