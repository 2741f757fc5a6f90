//! The terminal itself: entered for the interactive views, and left as it was found, whatever ends
//! them.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::panic::{self, PanicHookInfo};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{Command, cursor, execute};
use ratatui::layout::Rect;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sys::printed::Stderr;

use super::bounded_backend::BoundedBackend;

/// The terminal is in the state of the interactive views.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// Messages of panics on threads that do not draw, until the screen is left.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The screen of the interactive views; the terminal is restored when this is dropped.
pub struct Screen {
    /// Draws on it. Not dropped: on a terminal that is gone, that prints an error, and panics if
    /// standard error is the same terminal.
    pub terminal: ManuallyDrop<Terminal<BoundedBackend>>,
}

impl Screen {
    /// Enters the alternate screen. A panic of this thread leaves it before the message is printed;
    /// the messages of other threads are printed when it is left.
    ///
    /// # Errors
    ///
    /// Standard output is no terminal, or cannot be written to.
    pub fn enter() -> io::Result<Screen> {
        let print = panic::take_hook();
        let drawing = thread::current().id();
        panic::set_hook(Box::new(move |panic| {
            if sys::panics_are_caught() {
                return;
            }
            if thread::current().id() == drawing {
                leave();
                print(panic);
            } else if ENTERED.load(Ordering::SeqCst) {
                // The other thread draws on: it must not find the terminal restored.
                panics().push(message(panic));
            } else {
                print(panic);
            }
        }));
        let terminal = enter()
            .and_then(|()| Terminal::new(BoundedBackend::new(CrosstermBackend::new(io::stdout()))));
        // Raw mode may have been entered before something failed.
        let terminal = terminal.inspect_err(|_| leave())?;
        Ok(Screen { terminal: ManuallyDrop::new(terminal) })
    }

    /// Restores the terminal, stops this process as SIGTSTP does, and enters the screen again when
    /// it continues.
    ///
    /// # Errors
    ///
    /// The terminal cannot be written to.
    pub fn suspend(&mut self) -> io::Result<()> {
        leave();
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        enter()?;
        self.draw_all()
    }

    /// Lets the next picture draw every cell.
    ///
    /// # Errors
    ///
    /// The terminal cannot be written to.
    pub fn draw_all(&mut self) -> io::Result<()> {
        // Not `Terminal::clear`, which waits for the terminal to answer where its cursor is: the
        // thread that reads keys gets that answer.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }

    /// Copies text to the clipboard of the terminal (OSC 52), which may refuse.
    ///
    /// # Errors
    ///
    /// The terminal cannot be written to.
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        let mut out = io::stdout();
        write!(out, "\x1b]52;c;{}\x07", base64(text.as_bytes()))?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
        panics().drain(..).for_each(|message| Stderr::lines(&message));
    }
}

/// Waits until the terminal is gone. The thread that reads keys does not notice: crossterm reads
/// the end of the file again and again.
pub fn wait_for_hang_up() {
    let terminal = io::stdout();
    // A hang-up is reported without a flag that requests it.
    let mut waiting = [PollFd::new(&terminal, PollFlags::empty())];
    while let Err(Errno::INTR) = poll(&mut waiting, None) {}
}

/// True if the terminal is gone.
pub fn is_gone() -> bool {
    let terminal = io::stdout();
    let mut now = [PollFd::new(&terminal, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut now, Some(&at_once)).is_ok() && now[0].revents().contains(PollFlags::HUP)
}

/// Restores the terminal as far as that is possible without waiting, and without the lock of
/// standard output, which the thread that draws may hold.
pub fn abandon() {
    if !ENTERED.swap(false, Ordering::SeqCst) {
        return;
    }
    disable_raw_mode().ok();
    let terminal = io::stdout();
    let mut now = [PollFd::new(&terminal, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut now, Some(&at_once)).is_ok_and(|ready| ready > 0) {
        rustix::io::write(&terminal, restoring().as_bytes()).ok();
    }
}

/// What restores the terminal.
fn restoring() -> String {
    let mut text = String::new();
    let parts = [
        DisableBracketedPaste.write_ansi(&mut text),
        DisableMouseCapture.write_ansi(&mut text),
        LeaveAlternateScreen.write_ansi(&mut text),
        cursor::Show.write_ansi(&mut text),
    ];
    debug_assert!(parts.iter().all(Result::is_ok), "a string takes all");
    text
}

fn panics() -> std::sync::MutexGuard<'static, Vec<String>> {
    PANICS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the standard library prints about a panic.
fn message(panic: &PanicHookInfo) -> String {
    let thread = thread::current();
    let mut message = format!("thread '{}' {panic}", thread.name().unwrap_or("<unnamed>"));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        message += &format!("\nstack backtrace:\n{backtrace}");
    }
    message
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    ENTERED.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, EnableMouseCapture, EnableBracketedPaste)
}

/// Restores the terminal, once. Errors are ignored: after a hang-up there is none.
pub fn leave() {
    if ENTERED.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout();
        out.write_all(restoring().as_bytes()).and_then(|()| out.flush()).ok();
        disable_raw_mode().ok();
    }
}

/// Base64 (RFC 4648) of bytes.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let all = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let at = (all >> (18 - 6 * digit)) & 63;
            out.push(if digit <= chunk.len() { DIGITS[at as usize] as char } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of RFC 4648, section 10.
    #[test]
    fn base64_is_that_of_the_rfc() {
        let all = ["", "f", "fo", "foo", "foob", "fooba", "foobar"];
        let expected = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        assert_eq!(all.map(|text| base64(text.as_bytes())), expected);
    }
}
