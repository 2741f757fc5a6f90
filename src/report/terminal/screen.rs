//! The terminal itself: entered for the interactive views, and left as it was found, whatever ends
//! them.

use std::io::{self, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::layout::Rect;

/// The terminal is in the state of the interactive views.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// The screen of the interactive views; the terminal is restored when this is dropped.
pub struct Screen {
    /// Draws on it.
    pub terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Enters the alternate screen. A panic from now on leaves it before its message is printed.
    ///
    /// # Errors
    ///
    /// Standard output is no terminal, or cannot be written to.
    pub fn enter() -> io::Result<Screen> {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            print(panic);
        }));
        enter()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(Screen { terminal })
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
    }
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
        execute!(out, DisableBracketedPaste, DisableMouseCapture, LeaveAlternateScreen).ok();
        execute!(out, cursor::Show).ok();
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
