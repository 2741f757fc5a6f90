//! A signal frame that leads a thread back to its original code.
//!
//! The kernel saves a thread's registers in this form when it delivers a signal, and
//! `rt_sigreturn(2)` restores them. prof writes a frame before the thread does anything else: if
//! prof dies, the thread returns by itself. Before that, it sends itself a signal, at which it
//! stops for prof; without prof, it is ignored. Then it undoes the call that it made, if that left
//! something that must not stay (an open file, for example): exactly once, at whatever moment prof
//! dies. [`crate::arch`] builds the frame.

use crate::arch::Registers;

/// State that a thread is to be restored to.
pub struct Context<'a> {
    /// Its general registers.
    pub registers: &'a Registers,
    /// All other registers, see [`Tracee::other_registers`][super::trace::Tracee::other_registers].
    pub others: &'a [u8],
    /// Blocked signals.
    pub blocked: u64,
}

/// The system call that undoes another: its first argument is the result of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undo {
    /// Number of the call.
    pub call: libc::c_long,
    /// Its second argument.
    pub second: u64,
}

/// Code that a thread is led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The function at this address.
    Function(u64),
    /// The system call with this number.
    Call(libc::c_long),
}

/// The way that a thread is led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Its target.
    pub to: Target,
    /// Arguments.
    pub arguments: [u64; 6],
    /// [`SignalFrame::entry`].
    pub entry: u64,
    /// Address at which the result is stored.
    pub slot: u64,
}

/// Notification that a thread has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Back {
    /// TID in its own namespace.
    pub tid: i32,
    /// Signal that it sends itself: one that is ignored by default, and has no handler.
    pub signal: i32,
}

/// Value of [`SignalFrame::made`] without anything to undo: no descriptor, and no address.
pub const NOTHING: u64 = u64::MAX;

/// A frame and its addresses.
pub struct SignalFrame {
    /// Stack pointer on entry to the called function, which returns into the frame.
    pub entry: u64,
    /// Stack pointer after the thread has sent itself the signal.
    pub end: u64,
    /// The same after the undo as well.
    pub undone: u64,
    /// A word that the kernel does not use, for the result.
    pub slot: u64,
    /// Slot of a result that is to be undone.
    pub made: u64,
    /// Bytes to write at `entry`.
    pub bytes: Vec<u8>,
}
