//! Causes of truncated stacks.

use super::{LocationId, Profile};

/// Cause why a stack does not reach the entry of its thread.
///
/// A truncated stack ends in a frame named `[truncated: CODE]`, and the number of such stacks is in
/// a comment `truncated: CODE: N`. Unlisted codes come from other versions of prof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Truncation {
    /// The stack is deeper than its copy, whose size the user limited.
    SmallDump,
    /// The stack is deeper than its copy.
    DumpTooSmall,
    /// The kernel could not copy any of the stack.
    Unreadable,
    /// The sample was taken in the kernel while the thread had no user memory of its own: `execve`
    /// or an exit took it down, the CPU was given to another process, or the end of the stack was
    /// brought in.
    NoUserMemory,
    /// The binary could not be opened.
    NotOpened,
    /// Another binary was at its path and its addresses when it was to be opened.
    Replaced,
    /// The binary has no unwind information, and its frames could not be derived from its code.
    NoUnwindInfo,
    /// The binary has unwind information, but none for this code (mostly assembly).
    Uncovered,
    /// The code has no unwind information, and was not analysed, because too many samples waited.
    NotAnalysed,
    /// The binary's unwind information for this code cannot be read.
    DamagedUnwindInfo,
    /// Run-time code without frame pointers.
    RunTimeCode,
    /// A return address lies in no executable mapping.
    BadReturnAddress,
    /// The kernel has replaced a return address, for a return probe.
    ReturnProbe,
    /// The stack goes on in another segment (`gcc -fsplit-stack`), which was not copied.
    Segments,
    /// The first function on this stack is not the entry of a thread: the stack of a coroutine or
    /// of Go's runtime.
    NoCaller,
    /// A signal handler on an alternate stack; the stack that it interrupted was not copied.
    AlternateStack,
    /// An exception was being delivered: the registers of its handler had replaced those that lead
    /// to the caller.
    ExceptionDelivery,
    /// The mappings of the process could not be read.
    HiddenMappings,
    /// Records about mappings were lost, and the process ended before `/proc` was read again.
    LostMappings,
    /// The stack exceeds prof's limit of frames.
    TooDeep,
    /// The stack has more frames than the kernel follows along frame pointers.
    ChainTooDeep,
    /// The sample was taken in the moments in which the kernel saves the user's registers, or
    /// restores them.
    RegistersNotSaved,
    /// The thread slept, its registers were read from outside, and the code leaves open where its
    /// frame pointer is.
    PointerNotKnown,
    /// A 32-bit process.
    Compat,
}

impl Profile {
    /// The code of the reason for which stacks with this location are truncated, if it is the frame
    /// that ends them. This version may not recognize the code.
    pub fn truncation_of(&self, location: LocationId) -> Option<&str> {
        if self.locations[location.0 as usize].mapping.is_some() {
            return None;
        }
        let line = self.lines_of(location).first()?;
        let name = self.functions[line.function.0 as usize].name;
        Truncation::code_of_frame(self.str(name))
    }
}

/// Prefix of the names of frames that end truncated stacks.
const FRAME: &str = "[truncated: ";

impl Truncation {
    /// All of them.
    pub const ALL: [Truncation; 24] = [
        Truncation::SmallDump,
        Truncation::DumpTooSmall,
        Truncation::Unreadable,
        Truncation::NoUserMemory,
        Truncation::NotOpened,
        Truncation::Replaced,
        Truncation::NoUnwindInfo,
        Truncation::Uncovered,
        Truncation::NotAnalysed,
        Truncation::DamagedUnwindInfo,
        Truncation::RunTimeCode,
        Truncation::BadReturnAddress,
        Truncation::ReturnProbe,
        Truncation::Segments,
        Truncation::NoCaller,
        Truncation::AlternateStack,
        Truncation::ExceptionDelivery,
        Truncation::HiddenMappings,
        Truncation::LostMappings,
        Truncation::TooDeep,
        Truncation::ChainTooDeep,
        Truncation::RegistersNotSaved,
        Truncation::PointerNotKnown,
        Truncation::Compat,
    ];

    /// Its code in files. Part of the file format: it never changes.
    pub fn code(self) -> &'static str {
        match self {
            Truncation::SmallDump => "dump smaller than 65528 bytes",
            Truncation::DumpTooSmall => "dump too small",
            Truncation::Unreadable => "stack not readable",
            Truncation::NoUserMemory => "no user memory",
            Truncation::NotOpened => "binary could not be opened",
            Truncation::Replaced => "binary replaced",
            Truncation::NoUnwindInfo => "no unwind information",
            Truncation::Uncovered => "no unwind information for this address",
            Truncation::NotAnalysed => "code not analysed in time",
            Truncation::DamagedUnwindInfo => "damaged unwind information",
            Truncation::RunTimeCode => "run-time code without frame pointers",
            Truncation::BadReturnAddress => "bad return address",
            Truncation::ReturnProbe => "return probe",
            Truncation::Segments => "stack in segments",
            Truncation::NoCaller => "no caller on this stack",
            Truncation::AlternateStack => "signal handler on a stack of its own",
            Truncation::ExceptionDelivery => "exception being delivered",
            Truncation::HiddenMappings => "mappings not readable",
            Truncation::LostMappings => "mapping records lost",
            Truncation::TooDeep => "too deep",
            Truncation::ChainTooDeep => "deeper than kernel.perf_event_max_stack",
            Truncation::RegistersNotSaved => "registers not saved",
            Truncation::PointerNotKnown => "frame pointer not known",
            Truncation::Compat => "32-bit process",
        }
    }

    /// True if the rest of the stack did not exist when the sample was taken, so that the profile
    /// lacks nothing.
    pub fn lacks_nothing(self) -> bool {
        self == Truncation::NoUserMemory
    }

    /// The cause with this code.
    pub fn from_code(code: &str) -> Option<Truncation> {
        Truncation::ALL.into_iter().find(|t| t.code() == code)
    }

    /// Name of the frame that ends such a stack.
    pub fn frame_name(self) -> String {
        format!("{FRAME}{}]", self.code())
    }

    /// The code in the name of a frame that ends a truncated stack; `None` for any other frame.
    /// This version may not recognize the code.
    pub fn code_of_frame(name: &str) -> Option<&str> {
        name.strip_prefix(FRAME)?.strip_suffix(']')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_back() {
        for truncation in Truncation::ALL {
            let name = truncation.frame_name();
            let code = Truncation::code_of_frame(&name).unwrap();
            assert_eq!(Truncation::from_code(code), Some(truncation), "{code}");
        }
        assert_eq!(Truncation::code_of_frame("main"), None);
        assert_eq!(Truncation::from_code("another version's"), None);
    }
}
