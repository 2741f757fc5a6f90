//! Parts of sentences and commands that several entries of the table have, or that depend on a
//! fact.

use crate::{CpuCoverage, LossRemedy};

/// Capabilities for events on other processes.
pub const PROFILER: &str = "cap_perfmon,cap_sys_ptrace";

/// In addition, for the files of tracefs, which are readable by root only, whatever
/// `perf_event_paranoid` is.
pub const TRACEPOINTS: &str = "cap_perfmon,cap_sys_ptrace,cap_dac_read_search";

/// Capabilities for events and BPF programs.
pub const PROGRAMS: &str = "cap_bpf,cap_perfmon,cap_sys_ptrace";

/// The replacement of BPF programs.
pub const EVENTS_INSTEAD: &str = "events report each occurrence instead, which costs more";

/// The meaning of a level of `perf_event_paranoid` for users without privileges.
pub fn paranoid(level: i32) -> &'static str {
    match level {
        ..=-1 => "which allows everything",
        0 => "which allows all but raw tracepoints",
        1 => "which allows your own processes with kernel frames, not the whole machine",
        2 => "which allows your own processes without kernel frames",
        // Only the kernels of Debian, Ubuntu and Android distinguish these from 2.
        3.. => "which allows your own processes without kernel frames, or nothing at all",
    }
}

/// A command of root's.
pub fn command(sudo: bool, command: &str) -> String {
    format!("{}{command}", if sudo { "sudo " } else { "" })
}

/// The ways to these capabilities: root runs the program, or the program gets them from its file,
/// with what that means. Root who lacks them has the second way only.
pub fn rights(capabilities: &str, program: &str, sudo: bool) -> String {
    let program = shell_word(program);
    let setcap = command(sudo, &format!("setcap {capabilities}=ep {program}"));
    let by_root = if sudo { format!("sudo {program} …, or ") } else { String::new() };
    format!("{by_root}{setcap}, which lets every user who may execute it profile every process")
}

/// A path, quoted for a shell if necessary.
fn shell_word(path: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if path.chars().all(safe) { path.to_owned() } else { shell_quoted(path) }
}

/// A word of a shell's, in quotes.
pub fn shell_quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Arguments of `prof record` from a peer, with a blank before each: flags, and `-T` with names.
/// Nothing, if any of them is something else: a file to write, a command to run.
pub fn arguments(text: &str) -> String {
    let is_flag = |word: &str| {
        let name = word.strip_prefix("--").unwrap_or_default();
        !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '-')
    };
    let is_list = |word: &str| {
        let safe = |c: char| c.is_ascii_alphanumeric() || ",:=_.-".contains(c);
        !word.starts_with('-') && word.chars().all(safe)
    };
    let mut shown = String::new();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let known = match word {
            "-T" => words.next().filter(|list| is_list(list)).map(|list| format!(" -T {list}")),
            flag => is_flag(flag).then(|| format!(" {flag}")),
        };
        let Some(known) = known else { return String::new() };
        shown.push_str(&known);
    }
    shown
}

/// The figures to which samples are scaled, in words.
pub fn scaled_to(known: Option<&str>) -> String {
    match known {
        Some(known) => format!("they are scaled to {known}"),
        None => "their sums are estimates".to_owned(),
    }
}

/// The process that fulfilled a condition, if it is one of a process's CPU time.
pub fn busy_process(process: Option<&str>, pid: Option<i32>, percent: Option<u64>) -> String {
    match (process, pid, percent) {
        (Some(process), Some(pid), Some(percent)) => {
            format!(": {process} ({pid}) used {percent} % of a CPU")
        }
        _ => String::new(),
    }
}

/// Text as a part of a line: blanks for line ends and tabs, visible characters for those that
/// control a terminal or the direction of text.
pub fn line(text: String) -> String {
    let is_hidden =
        |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(is_hidden) {
        return text;
    }
    let picture = |c: char| match c {
        '\n' | '\t' => ' ',
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
        _ => '\u{fffd}',
    };
    text.chars().map(|c| if is_hidden(c) { picture(c) } else { c }).collect()
}

/// The limits of open files, and the number of threads for which they suffice.
pub fn file_limit(hard: Option<u64>, soft: Option<u64>, threads: Option<u64>) -> String {
    let shown = |n: Option<u64>| n.map_or("unlimited".to_owned(), |n| n.to_string());
    let [hard, soft] = [hard, soft].map(shown);
    let threads = threads.map_or("unlimited threads".to_owned(), |n| counted(n, "thread"));
    format!("limit {hard} (now {soft}): enough for processes of {threads}")
}

/// The reason why prof's library is not in a number of programs.
pub fn not_loaded(programs: u64) -> String {
    let (them, their) = by_number(programs, ("it", "its"), ("them", "their"));
    format!(
        "prof's library was not loaded into {them} (linked statically, setuid, started without the \
         command's environment, or in a root directory of {their} own)"
    )
}

/// The first names of a list, and the number of the others.
pub fn first(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// What a file lacks.
pub fn left_out(sample_types: &[String], labels: &[String], parts: &[String]) -> String {
    let named = |noun: &str, names: &[String]| {
        let nouns = counted(names.len() as u64, noun);
        let noun = nouns.split_once(' ').map_or(noun, |(_, noun)| noun);
        (!names.is_empty()).then(|| format!("{noun} {}", first(names)))
    };
    let parts = (!parts.is_empty()).then(|| parts.join(", "));
    let all = [named("sample type", sample_types), named("label", labels), parts];
    all.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// CPUs by their numbers.
pub fn cpus(list: &[u32]) -> String {
    let numbers: Vec<String> = list.iter().map(u32::to_string).collect();
    format!("{} {}", by_number(list.len() as u64, "CPU", "CPUs"), numbers.join(", "))
}

/// Each CPU of a machine that has this number of them.
pub fn each_cpu(number: u64) -> String {
    if number == 1 { "the only CPU".to_owned() } else { format!("each of {number} CPUs") }
}

/// Processes that still run, one of which has this PID and name.
pub fn still_running(pid: i32, name: Option<&str>, processes: u64) -> String {
    let name = name.map_or(String::new(), |name| format!(" ({name})"));
    match processes {
        1 => format!("process {pid}{name}, which it started, still runs"),
        n => format!("{n} processes that it started still run (one is {pid}{name})"),
    }
}

/// The CPU time that the samples cover that were not lost.
pub fn others_cover(taken: u64, covered: Option<&CpuCoverage>) -> String {
    covered.map_or(String::new(), |covered| {
        format!(
            "; the {} {:.0} % of the {:.1} s of CPU time that the target used",
            by_number(taken, "other covers", "others cover"),
            covered.percent(),
            covered.used as f64 / 1e9
        )
    })
}

/// Remedies of which any helps.
pub fn any_of(remedies: &[LossRemedy]) -> Option<String> {
    let words: Vec<String> = remedies.iter().map(LossRemedy::to_string).collect();
    (!words.is_empty()).then(|| words.join(", or "))
}

/// The words for 1, or those for another number.
pub fn by_number<T>(number: u64, singular: T, plural: T) -> T {
    if number == 1 { singular } else { plural }
}

/// A number of things; `noun`: a single one of them.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", by_number(number, "", "s"))
}

/// A number of things whose plural is irregular.
pub fn counted_as(number: u64, singular: &str, plural: &str) -> String {
    format!("{number} {}", by_number(number, singular, plural))
}

/// A number of things, and the verb that agrees with it.
pub fn agreeing(number: u64, noun: &str, singular: &str, plural: &str) -> String {
    format!("{} {}", counted(number, noun), by_number(number, singular, plural))
}

/// The place in a sequence: `1st`, `2nd`, `3rd`, `4th`.
pub fn ordinal(number: u64) -> String {
    let end = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{end}")
}

/// A number of programs.
pub fn programs(number: u64) -> String {
    if number == 1 { "a program".to_owned() } else { format!("{number} programs") }
}

/// A number of processes, before what they did.
pub fn processes_that(number: u64) -> String {
    if number == 1 { "a process that".to_owned() } else { format!("{number} processes that") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_survives_a_shell() {
        assert_eq!(
            rights(PROFILER, "/a b/it's/prof", false),
            r"setcap cap_perfmon,cap_sys_ptrace=ep '/a b/it'\''s/prof'".to_owned()
                + ", which lets every user who may execute it profile every process"
        );
    }

    #[test]
    fn arguments_record_and_do_nothing_else() {
        assert_eq!(arguments(" -T heap --inject -T wall,lock"), " -T heap --inject -T wall,lock");
        assert_eq!(arguments(""), "");
        for text in ["; reboot", " -- rm -rf .", " rm", " -T $(x)", " -T", " -T -o", " -o x", " --"]
        {
            assert_eq!(arguments(text), "", "{text}");
        }
    }

    #[test]
    fn a_line_has_no_control_characters() {
        let cleaned = line("a\nb\x1b[2J\u{9b}\u{202e}\u{2028}\u{7f}\r".to_owned());
        assert_eq!(cleaned, "a b␛[2J\u{fffd}\u{fffd}\u{fffd}\u{fffd}␍");
        assert_eq!(line("12 µs …".to_owned()), "12 µs …");
    }

    #[test]
    fn words_agree_with_their_number() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "sample")), ["0 samples", "1 sample", "2 samples"]);
        assert_eq!(agreeing(1, "thread", "has", "have"), "1 thread has");
        assert_eq!([cpus(&[3]), cpus(&[3, 4])], ["CPU 3", "CPUs 3, 4"]);
        let places = [1, 2, 3, 4, 11, 12, 13, 21, 101, 112].map(ordinal);
        let expected =
            ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "101st", "112th"];
        assert_eq!(places, expected);
    }

    #[test]
    fn long_lists_are_cut() {
        let names = |n: u32| (1..=n).map(|i| format!("/{i}")).collect::<Vec<_>>();
        assert_eq!(first(&names(1)), "/1");
        assert_eq!(first(&names(5)), "/1, /2, /3 and 2 more");
    }
}
