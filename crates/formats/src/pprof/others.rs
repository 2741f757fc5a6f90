//! Formats of other tools: identified, but not read, with what the user can do.

/// Description of a file that is not a profile, by its first bytes, and the remedy.
pub(super) fn guess(head: &[u8]) -> Option<&'static str> {
    binary(head).or_else(|| {
        let text = match str::from_utf8(head) {
            Ok(text) => text,
            Err(e) => str::from_utf8(&head[..e.valid_up_to()]).ok()?,
        };
        let text = text.trim_start_matches('\u{feff}').trim_start();
        match text.as_bytes().first()? {
            b'{' => Some(json(text)),
            b'[' if text[1..].trim_start().starts_with(['{', '[', '"', ']']) => Some(json(text)),
            b'<' => markup(text),
            _ => plain(text),
        }
    })
}

fn binary(head: &[u8]) -> Option<&'static str> {
    let starts = |magic: &[u8]| head.starts_with(magic);
    Some(match head {
        _ if starts(b"FLR\0") => {
            "it is a Java flight recording (JFR); convert it with jfrconv -o pprof FILE out.pb.gz, \
             of async-profiler"
        }
        _ if starts(b"go 1.") && head.get(..16).is_some_and(|head| head.ends_with(b"\0")) => {
            "it is an execution trace of Go; go tool trace -pprof=sched FILE > out.pb.gz converts \
             a part (net, sync, syscall or sched)"
        }
        _ if starts(b"PK\x03\x04") => "it is a zip archive; unpack it with unzip",
        _ if head.get(257..262) == Some(b"ustar") => "it is a tar archive; unpack it with tar -x",
        _ if starts(b"\x04\x22\x4d\x18") => "it is compressed with lz4; unpack it with lz4 -d",
        _ if starts(b"SQLite format 3\0") => "it is an SQLite database",
        _ if starts(b"\x89PNG") => "it is an image (PNG); prof reads the profile it was drawn from",
        _ => return None,
    })
}

/// JSON, by the keys at its beginning.
fn json(text: &str) -> &'static str {
    let has = |key: &str| text.contains(&format!("\"{key}\""));
    if has("traceEvents") || has("ph") && (has("ts") || has("pid")) {
        "it is a Chrome trace; open it in https://ui.perfetto.dev"
    } else if has("resourceProfiles") {
        "it is OTLP as JSON; prof reads OTLP as protobuf"
    } else if has("snapshot") {
        "it is a heap snapshot of V8; open it in Chrome's developer tools"
    } else {
        "it is JSON, but none of the formats of profiles that prof knows"
    }
}

fn markup(text: &str) -> Option<&'static str> {
    if text.contains("<svg") || text.contains("DTD SVG") {
        return Some(
            "it is an SVG image, perhaps a flame graph; open it in a browser, prof reads the \
             profile it was drawn from",
        );
    }
    let is_html = ["<!doctype html", "<!DOCTYPE html", "<html"].iter().any(|s| text.contains(s));
    is_html.then_some("it is a web page; open it in a browser")
}

fn plain(text: &str) -> Option<&'static str> {
    let mut lines = text.lines();
    let first = lines.next()?;
    let key = |name: &str| text.lines().any(|line| line.starts_with(name));
    Some(if key("desc: ") && key("time_unit: ") {
        "it is a profile of valgrind's massif; ms_print FILE shows it"
    } else if key("PeriodType: ") {
        "it is the text of go tool pprof -raw; give prof the profile itself"
    } else if first.starts_with("File: ") || key("Showing nodes accounting for ") {
        "it is the text of a report; give prof the profile itself"
    } else if first.starts_with("goroutine ") && first.trim_end().ends_with("]:") {
        "it is a dump of goroutines; prof reads that of debug=1"
    } else if text.starts_with("# To display the perf.data header info") {
        "it is the text of perf report; give prof the perf.data itself"
    } else if first.starts_with("# tracer: ") {
        "it is a trace of ftrace; prof reads profiles only"
    } else {
        return None;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_tools_are_named_with_a_remedy() {
        let cases: &[(&[u8], &str)] = &[
            (b"FLR\0\0\x02\0\0xxxx", "flight recording (JFR); convert it with jfrconv"),
            (b"{\"snapshot\":{\"meta\":{\"node_fields\"", "heap snapshot of V8"),
            (b"{\"resourceProfiles\":[", "OTLP as JSON"),
            (b"{\"traceEvents\":[{", "Chrome trace; open it"),
            (b"[\n{\"name\":\"a\",\"ph\":\"X\",\"ts\":1", "Chrome trace"),
            (b"{\"a\":1}", "it is JSON"),
            (b"desc: --massif-out-file=x\ncmd: ./a\ntime_unit: i\n", "massif; ms_print"),
            (b"go 1.22 trace\0\0\0\x01", "execution trace of Go; go tool trace"),
            (b"<?xml version=\"1.0\"?>\n<!DOCTYPE svg PUBLIC \"-//W3C//DTD SVG 1.1//EN\"", "SVG"),
            (b"<svg width=\"100\">", "SVG"),
            (b"<!DOCTYPE html>\n<html>", "web page"),
            (
                b"goroutine 1 [running]:\nmain.main()\n",
                "dump of goroutines; prof reads that of debug=1",
            ),
            (b"# To display the perf.data header info, please use --header\n", "perf report"),
            (b"PeriodType: cpu nanoseconds\nPeriod: 1\n", "pprof -raw"),
            (b"File: app\nType: cpu\n", "the text of a report"),
            (b"PK\x03\x04\x14\0", "zip archive; unpack it"),
        ];
        for (head, what) in cases {
            let found = guess(head).unwrap_or("nothing");
            assert!(found.contains(what), "{}: {found}", String::from_utf8_lossy(head));
        }
        for other in [
            "hello world\n",
            "a;b\n",
            "",
            "1 2 3\n",
            "[workspace]\nmembers = []\n",
            "to be: or not\n  to be\n",
        ] {
            assert_eq!(guess(other.as_bytes()), None, "{other}");
        }
    }
}
