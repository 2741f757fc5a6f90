//! Lines of `perf script`.

/// Most words between the CPU of a sample and its time.
const MOST_FLAGS: usize = 4;

/// Fewest digits of an address after other fields.
const SHORTEST_ADDRESS: usize = 4;

/// The line of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Header<'a> {
    /// The name of the thread; it may contain spaces.
    pub command: &'a str,
    pub pid: Option<i64>,
    pub tid: i64,
    /// In microseconds.
    pub time: Option<u64>,
    pub period: Option<i64>,
    pub event: Option<&'a str>,
    /// What follows the event: fields of a tracepoint or of memory events, or the only frame.
    pub rest: &'a str,
}

/// The beginning of the names of records that are no samples, as of mappings and new processes.
const RECORD: &str = "PERF_RECORD_";

impl Header<'_> {
    /// Whether it is a record, but no sample (`perf script --show-mmap-events`).
    pub(super) fn is_other_record(&self) -> bool {
        self.event.is_some_and(|event| event.starts_with(RECORD))
            || self.rest.trim_start().starts_with(RECORD)
    }

    /// Whether a line within a stack can be this, rather than a frame: it has a time, or an event
    /// and a frame.
    pub(super) fn is_certain(&self) -> bool {
        self.time.is_some()
            || self.event.is_some() && only_frame(self.rest).is_some_and(|f| f.binary.is_some())
    }
}

/// The line of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TextFrame<'a> {
    /// Absent if it was not printed.
    pub address: Option<u64>,
    /// Absent if it is not known.
    pub name: Option<&'a str>,
    /// Absent if it is not known.
    pub binary: Option<&'a str>,
    pub is_inlined: bool,
}

/// A word of a line, and what follows it.
fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Parses `COMMAND [PID/]TID [CPU] TIME: PERIOD EVENT: REST`, of which all but the command, the
/// number and a time or event may be absent. Samples without a stack begin with spaces: perf aligns
/// their commands to the right.
pub(super) fn header(line: &str) -> Option<Header<'_>> {
    let line = line.trim();
    let mut rest = word(line)?.1;
    // A command may contain numbers.
    while let Some((number, after)) = word(rest) {
        let command = line[..line.len() - rest.len()].trim_end();
        if let Some((pid, tid)) = ids(number)
            && let Some(header) = fields(after)
        {
            return Some(Header { command, pid, tid, ..header });
        }
        rest = after;
    }
    None
}

/// Parses `PID/TID` or `TID`.
fn ids(word: &str) -> Option<(Option<i64>, i64)> {
    match word.split_once('/') {
        Some((pid, tid)) => Some((Some(pid.parse().ok()?), tid.parse().ok()?)),
        None => Some((None, word.parse().ok()?)),
    }
}

/// Parses what follows the number of a thread.
fn fields(text: &str) -> Option<Header<'_>> {
    let mut header =
        Header { command: "", pid: None, tid: 0, time: None, period: None, event: None, rest: "" };
    let mut rest = text;
    if let Some((cpu, after)) = word(rest)
        && cpu.strip_prefix('[').and_then(|c| c.strip_suffix(']')).is_some_and(is_number)
    {
        rest = after;
    }
    // Some options print flags here.
    for _ in 0..MOST_FLAGS {
        let Some((time, after)) = word(rest) else { break };
        if let Some(micros) = time.strip_suffix(':').and_then(micros) {
            header.time = Some(micros);
            rest = after;
            break;
        }
        let is_flag = !time.ends_with(':') && ids(time).is_none();
        let next = word(after).and_then(|(next, _)| next.strip_suffix(':'));
        if !is_flag || next.and_then(micros).is_none() {
            break;
        }
        rest = after;
    }
    if let Some((period, after)) = word(rest)
        && is_number(period.strip_prefix('-').unwrap_or(period))
    {
        header.period = period.parse().ok();
        rest = after;
    }
    if let Some((event, after)) = word(rest)
        && let Some(event) = event.strip_suffix(':').filter(|event| !event.is_empty())
        && micros(event).is_none()
    {
        header.event = Some(event);
        rest = after;
    }
    header.rest = rest;
    let is_complete = header.event.is_some()
        || header.time.is_some() && header.period.is_none()
        || header.is_other_record();
    is_complete.then_some(header)
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

/// Parses seconds with decimals.
pub(super) fn micros(word: &str) -> Option<u64> {
    let (seconds, decimals) = word.split_once('.')?;
    if !is_number(seconds) || !is_number(decimals) {
        return None;
    }
    let decimals = decimals.get(..decimals.len().min(6))?;
    let scale = 10u64.pow(6 - decimals.len() as u32);
    let fraction = decimals.parse::<u64>().ok()? * scale;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(fraction)
}

/// Parses `ADDRESS SYMBOL+0xOFFSET (BINARY)`, of which any may be absent.
pub(super) fn frame(line: &str) -> Option<TextFrame<'_>> {
    let text = line.trim();
    let (first, after) = word(text)?;
    let address = u64::from_str_radix(first, 16).ok();
    let text = if address.is_some() { after.trim() } else { text };
    let (symbol, binary) = split_binary(text);
    let (name, _) = split_offset(symbol);
    let name = Some(name).filter(|name| !name.is_empty() && *name != "[unknown]");
    let is_inlined = binary == Some("inlined");
    let binary = binary.filter(|name| !is_inlined && !name.is_empty() && *name != "[unknown]");
    Some(match binary.map(split_offset) {
        // The address in the file.
        Some((file, Some(offset))) => {
            TextFrame { address: Some(offset), name, binary: Some(file), is_inlined }
        }
        _ => TextFrame { address, name, binary, is_inlined },
    })
}

/// Parses the only frame of a sample, in the line of the sample. Memory events (`perf mem`) and
/// `-F +addr` print the address of the data and other fields before it.
pub(super) fn only_frame(rest: &str) -> Option<TextFrame<'_>> {
    let text = rest.trim();
    let (symbol, binary) = split_binary(text);
    let (first, after) = word(symbol)?;
    u64::from_str_radix(first, 16).ok()?;
    if binary.is_none() {
        // Without -F +dso.
        let (name, end) = word(after)?;
        let is_name = end.trim().is_empty() && u64::from_str_radix(name, 16).is_err();
        return is_name.then(|| frame(text)).flatten();
    }
    // A source of data such as `|OP LOAD|LVL L1 hit|LCK No`, and a weight.
    let mut fields = symbol.rfind('|').map_or(after, |bar| &symbol[bar + 1..]);
    let has_source = fields.len() < after.len();
    while let Some((address, name)) = word(fields) {
        let is_address = address.len() >= SHORTEST_ADDRESS
            && u64::from_str_radix(address, 16).is_ok()
            && !name.trim().is_empty();
        if is_address {
            return frame(&text[symbol.len() - fields.len()..]);
        }
        if !has_source {
            break;
        }
        fields = name;
    }
    frame(text)
}

/// Splits `SYMBOL (BINARY)`; the binary may contain spaces and parentheses, as in
/// `(/tmp/x (deleted))`.
fn split_binary(text: &str) -> (&str, Option<&str>) {
    if !text.ends_with(')') {
        return (text, None);
    }
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' if depth == 1 => {
                let is_word = at == 0 || text[..at].ends_with(' ');
                let binary = is_word.then(|| &text[at + 1..text.len() - 1]);
                return if is_word { (text[..at].trim_end(), binary) } else { (text, None) };
            }
            b'(' => depth -= 1,
            _ => {}
        }
    }
    (text, None)
}

/// Splits `NAME+0xOFFSET`.
fn split_offset(text: &str) -> (&str, Option<u64>) {
    let parts = text.rsplit_once("+0x");
    match parts.and_then(|(name, hex)| Some((name, u64::from_str_radix(hex, 16).ok()?))) {
        Some((name, offset)) => (name, Some(offset)),
        None => (text, None),
    }
}

/// Parses `FILE:LINE`, the line of a frame's source.
pub(super) fn source_line(line: &str) -> Option<(&str, i64)> {
    let text = line.trim();
    // A frame has its address, or its binary.
    let (first, after) = word(text)?;
    let is_frame = !after.is_empty() && u64::from_str_radix(first, 16).is_ok();
    let (file, number) = text.rsplit_once(':')?;
    let number = Some(number).filter(|number| is_number(number))?.parse().ok()?;
    (!is_frame && !file.is_empty() && !file.ends_with(':')).then_some((file, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_all_or_some_fields() {
        let full = header("t prog  12/13 [001] 37002.118373:    1001001 cpu-clock:u: ").unwrap();
        assert_eq!((full.command, full.pid, full.tid), ("t prog", Some(12), 13));
        assert_eq!((full.time, full.period), (Some(37_002_118_373), Some(1_001_001)));
        assert_eq!(full.event, Some("cpu-clock:u"));
        let short = header("swapper     0 cycles:").unwrap();
        assert_eq!((short.command, short.tid, short.event), ("swapper", 0, Some("cycles")));
        let command = header("worker 3 of 4 77 5.1: sched:sched_switch: prev=a next=b").unwrap();
        assert_eq!((command.command, command.tid), ("worker 3 of 4", 77));
        assert_eq!(command.event, Some("sched:sched_switch"));
        assert_eq!((command.time, command.rest.trim()), (Some(5_100_000), "prev=a next=b"));
        let no_event = header("a 5 1.000001234: ").unwrap();
        assert_eq!((no_event.time, no_event.event), (Some(1_000_001), None));
        let only = header("a 5 1.0: 7 cycles:  401136 main+0x4 (/bin/a)").unwrap();
        assert_eq!(frame(only.rest).unwrap().name, Some("main"));
        for line in ["", "a", "a b", "a 5", "to be: or not", "a;b 12", "1 2 3", "a 5 6"] {
            assert_eq!(header(line), None, "{line}");
        }
    }

    #[test]
    fn headers_may_begin_with_spaces() {
        let line =
            "            sort  4712 12345.678999:     250000 cycles:P:      55d0 main+0x10 (/s)";
        let sample = header(line).unwrap();
        assert_eq!((sample.command, sample.tid, sample.period), ("sort", 4712, Some(250_000)));
        assert!(sample.is_certain() && !sample.is_other_record());
        let sample = header("   sort  4712     250000 cycles:P:      55d0 main+0x10 (/s)").unwrap();
        assert!(sample.is_certain());
        assert!(!header(" a 5 x:").unwrap().is_certain());
    }

    #[test]
    fn the_only_frame_comes_after_all_fields() {
        let parts = |rest| only_frame(rest).map(|f| (f.address.unwrap_or(0), f.name.unwrap_or("")));
        let source = "7ffe1234  5080022 |OP LOAD|LVL N/A|SNP N/A|TLB N/A|LCK N/A|BLK  N/A   12  ";
        for (rest, frame) in [
            ("   55d0 main+0x10 (/usr/bin/sort)", Some((0x55d0, "main"))),
            ("   55d0 main+0x10", Some((0x55d0, "main"))),
            ("   55d0 add (/x)", Some((0x55d0, "add"))),
            ("   55d0 [unknown] ([unknown])", Some((0x55d0, ""))),
            ("   55d0 a::operator|(int) (/x)", Some((0x55d0, "a::operator|(int)"))),
            ("   7ffe1234   55d0 main+0x10 (/usr/bin/sort)", Some((0x55d0, "main"))),
            (&format!("{source}  55d0 main+0x10 (/usr/bin/sort)"), Some((0x55d0, "main"))),
            (source, None),
            ("   7ffe1234", None),
            ("NR 1 (1, 2)", None),
            ("", None),
        ] {
            assert_eq!(parts(rest), frame, "{rest}");
        }
    }

    #[test]
    fn frames_have_all_or_some_fields() {
        let parts = |line| {
            let frame = frame(line).unwrap();
            (frame.address.unwrap_or(0), frame.name.unwrap_or(""), frame.binary.unwrap_or(""))
        };
        assert_eq!(
            parts("\t 118b work+0x12 (/a b/x (deleted))"),
            (0x118b, "work", "/a b/x (deleted)")
        );
        assert_eq!(parts(" 1f foo(int, (x)) const (/x)"), (0x1f, "foo(int, (x)) const", "/x"));
        assert_eq!(parts(" 1f a::operator()(int)"), (0x1f, "a::operator()(int)", ""));
        assert_eq!(parts(" 1f [unknown] ([unknown])"), (0x1f, "", ""));
        assert_eq!(parts(" 7f01 [unknown] (/x+0x1f)"), (0x1f, "", "/x"));
        assert_eq!(parts(" main+0x1 (/x)"), (0, "main", "/x"));
        assert!(frame(" 118b inner+0x12 (inlined)").unwrap().is_inlined);
        assert_eq!(source_line("  x y.c:12"), Some(("x y.c", 12)));
        for line in [" 12 main:5", " 118b work (/x)", " main", " std::x::5", ":4"] {
            assert_eq!(source_line(line), None, "{line}");
        }
    }
}
