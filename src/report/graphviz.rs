//! Drawing by Graphviz's `dot`.

use std::io::{self, ErrorKind, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time that a drawing may take. The layout of 80 functions takes less than a second.
const LONGEST: Duration = Duration::from_secs(60);
/// Most bytes of a drawing.
const LARGEST: u64 = 256 << 20;

/// The drawing of a graph in DOT as SVG.
///
/// # Errors
///
/// `dot` is not installed, fails, or takes too long.
pub fn svg(graph: Vec<u8>) -> io::Result<Vec<u8>> {
    let drawing = draw(Command::new("dot").arg("-Tsvg"), graph, LONGEST)?;
    let drawing = String::from_utf8(drawing).map_err(io::Error::other)?;
    let page = with_script(&drawing).ok_or_else(|| io::Error::other("unexpected output of dot"))?;
    Ok(page.into_bytes())
}

/// The drawing with a title of the document, and with what moves and scales it in a window.
fn with_script(drawing: &str) -> Option<String> {
    let root = drawing.find("<svg")?;
    let opened = root + drawing[root..].find('>')? + 1;
    let (before, content) = drawing.split_at(opened);
    let title = content.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    let title = title.map_or("", |(title, _)| title);
    let (style, script) = (include_str!("graph.css"), include_str!("graph.js"));
    Some(format!(
        "{before}\n<title>{title}</title><style>{style}</style><script><![CDATA[\n{script}]]>\
         </script>{content}"
    ))
}

fn draw(command: &mut Command, graph: Vec<u8>, longest: Duration) -> io::Result<Vec<u8>> {
    let spawned =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = spawned.map_err(|error| match error.kind() {
        ErrorKind::NotFound => io::Error::other(
            "an SVG needs Graphviz: apt-get install graphviz, or write DOT with -o out.dot",
        ),
        _ => io::Error::other(format!("cannot start Graphviz's dot: {error}")),
    })?;
    let stdin = child.stdin.take();
    let stdout = child.stdout.take();
    // Each ends when the child does.
    let writer = thread::spawn(move || stdin.map_or(Ok(()), |mut pipe| pipe.write_all(&graph)));
    let reader = thread::spawn(move || -> io::Result<Vec<u8>> {
        let mut drawing = Vec::new();
        if let Some(pipe) = stdout {
            pipe.take(LARGEST).read_to_end(&mut drawing)?;
        }
        Ok(drawing)
    });
    let ended = wait(&mut child, longest);
    let drawing = reader.join().map_err(|_| io::Error::other("a thread panicked"))?;
    let _ = writer.join();
    if !ended? {
        return Err(io::Error::other(
            "Graphviz's dot failed on this graph; write DOT with -o out.dot, or draw fewer \
             functions with -n",
        ));
    }
    drawing
}

/// Waits for the end of `child`, and kills it if that takes too long. True if it succeeded.
fn wait(child: &mut Child, longest: Duration) -> io::Result<bool> {
    let end = Instant::now() + longest;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, longest: u64) -> io::Result<Vec<u8>> {
        let graph = vec![b'x'; 1 << 20];
        draw(Command::new("sh").args(["-c", script]), graph, Duration::from_millis(longest))
    }

    #[test]
    fn a_drawing_has_a_title_and_a_script() {
        let page =
            with_script("<!-- a --><svg x=\"1\">\n<g><title>a &amp; b</title></g></svg>").unwrap();
        assert!(
            page.starts_with("<!-- a --><svg x=\"1\">\n<title>a &amp; b</title><style>"),
            "{page}"
        );
        assert!(page.contains("window.addEventListener(\"load\"") && page.ends_with("</g></svg>"));
        assert_eq!(with_script("<html>"), None);
    }

    #[test]
    fn the_output_of_the_program_is_the_drawing() {
        assert_eq!(shell("cat", 10_000).unwrap(), vec![b'x'; 1 << 20]);
        // Without reading its input.
        assert_eq!(shell("echo a", 10_000).unwrap(), b"a\n");
    }

    #[test]
    fn failures_and_endless_programs_are_errors() {
        assert!(shell("exit 3", 10_000).unwrap_err().to_string().contains("failed"));
        assert!(shell("exec sleep 100", 50).unwrap_err().to_string().contains("failed"));
        let missing = draw(&mut Command::new("/no/such/dot"), Vec::new(), LONGEST).unwrap_err();
        assert!(missing.to_string().contains("apt-get install graphviz"), "{missing}");
    }
}
