//! A child that is run instruction by instruction (`ptrace(2)`). Only its first thread is traced.

use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use libc::c_ulong;

/// The reason why the thread stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The instruction was executed, or the address reached.
    There,
    /// A signal is about to be delivered.
    Signal(i32),
    /// The process has ended.
    Ended,
}

/// A child that stands at an instruction; killed when dropped.
pub struct Tracee {
    child: Child,
    memory: std::fs::File,
    /// A signal that is delivered with the next instruction.
    signal: i32,
}

impl Tracee {
    /// Starts a program, with the same addresses each time; it stands at the first instruction of
    /// its dynamic linker, or of its own if it has none.
    #[track_caller]
    pub fn start(command: &mut Command) -> Tracee {
        super::machine::share();
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // SAFETY: both calls may be made between fork and exec, and take numbers only.
        unsafe {
            command.pre_exec(|| {
                libc::personality(libc::ADDR_NO_RANDOMIZE as c_ulong);
                match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let memory = std::fs::File::open(format!("/proc/{}/mem", child.id())).unwrap();
        let mut tracee = Tracee { child, memory, signal: 0 };
        assert_eq!(tracee.wait(), Stop::There, "{command:?} does not start");
        tracee.request(libc::PTRACE_SETOPTIONS, 0, libc::PTRACE_O_EXITKILL as u64);
        tracee
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Executes an instruction, or enters the handler of the signal that is to be delivered.
    pub fn step(&mut self) -> Stop {
        self.go(libc::PTRACE_SINGLESTEP)
    }

    /// Runs to one of these addresses (two at most), by breakpoints of the CPU: other threads do not
    /// notice.
    pub fn run_to(&mut self, addresses: &[u64]) -> Stop {
        for (number, &address) in addresses.iter().enumerate() {
            self.set_debug_register(number, address);
        }
        // Bits 0 and 2: enabled.
        self.set_debug_register(7, if addresses.len() > 1 { 0b101 } else { 1 });
        let stop = self.go(libc::PTRACE_CONT);
        if stop != Stop::Ended {
            self.set_debug_register(7, 0);
        }
        stop
    }

    /// Delivers a signal with the next instruction.
    pub fn deliver(&mut self, signal: i32) {
        self.signal = signal;
    }

    pub fn registers(&self) -> libc::user_regs_struct {
        // SAFETY: plain numbers; the request fills them.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        self.request(libc::PTRACE_GETREGS, 0, &raw mut registers as u64);
        registers
    }

    /// Memory from an address on; less than `length` bytes if not all of it is readable.
    pub fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let got = self.memory.read_at(&mut bytes, address).unwrap_or(0);
        bytes.truncate(got);
        bytes
    }

    #[track_caller]
    pub fn word(&self, address: u64) -> u64 {
        let bytes = self.read(address, 8);
        u64::from_ne_bytes(bytes.try_into().unwrap_or_else(|_| panic!("no word at {address:x}")))
    }

    fn set_debug_register(&self, number: usize, value: u64) {
        let at = std::mem::offset_of!(libc::user, u_debugreg) + number * 8;
        self.request(libc::PTRACE_POKEUSER, at as u64, value);
    }

    fn go(&mut self, how: libc::c_uint) -> Stop {
        let signal = std::mem::take(&mut self.signal);
        self.request(how, 0, signal as u64);
        self.wait()
    }

    #[track_caller]
    fn request(&self, request: libc::c_uint, address: u64, data: u64) {
        // SAFETY: the child stands; `data` is a number, or a structure as the request takes it.
        let done = unsafe { libc::ptrace(request, self.pid(), address, data) };
        assert_eq!(done, 0, "ptrace {request}: {}", std::io::Error::last_os_error());
    }

    fn wait(&mut self) -> Stop {
        let mut status = 0;
        // SAFETY: the status has room.
        let waited = unsafe { libc::waitpid(self.pid(), &raw mut status, libc::__WALL) };
        assert_eq!(waited, self.pid(), "{}", std::io::Error::last_os_error());
        if !libc::WIFSTOPPED(status) {
            return Stop::Ended;
        }
        match libc::WSTOPSIG(status) {
            libc::SIGTRAP => Stop::There,
            signal => Stop::Signal(signal),
        }
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
