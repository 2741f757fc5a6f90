//! Threads with their stacks as text: a better `pstack`.

use std::io::{self, Write};

use super::text::clean;
use view::{ListedThread, ThreadGroup, Threads, View, base_name};

/// Writes the groups of threads.
pub fn write(out: &mut dyn Write, view: &View, listed: &Threads) -> io::Result<()> {
    let processes = listed.processes();
    let count = threads(listed.count());
    match processes.first_key_value() {
        Some((pid, name)) if processes.len() == 1 => {
            writeln!(out, "{} {pid}: {count}", clean(name))?;
        }
        _ => writeln!(out, "{} processes: {count}", processes.len())?,
    }
    for group in &listed.groups {
        write_group(out, view, group, processes.len() > 1)?;
    }
    Ok(())
}

fn write_group(
    out: &mut dyn Write,
    view: &View,
    group: &ThreadGroup,
    with_process: bool,
) -> io::Result<()> {
    let members = members(&group.threads, with_process);
    let count = threads(group.threads.len());
    writeln!(out, "\n{count} {}: {}", group.state, clean(&members))?;
    for &id in &group.frames {
        let frame = view.frames.get(id);
        let mut line = frame.display(view.profile).into_owned();
        let binary = frame.binary_name(view.profile);
        match binary {
            "" => {}
            _ if binary.starts_with('[') => line += &format!("  {binary}"),
            _ => line += &format!("  [{binary}]"),
        }
        if frame.line > 0 {
            let place = frame.place(view.profile);
            line += &format!("  {}", base_name(&place));
        }
        if frame.inlined {
            line += "  (inlined)";
        }
        writeln!(out, "    {}", clean(&line))?;
    }
    Ok(())
}

fn threads(count: usize) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}

/// Names with TIDs, a name once for all threads that have it.
fn members(threads: &[ListedThread], with_process: bool) -> String {
    let mut out = String::new();
    for run in threads.chunk_by(|a, b| (a.pid, &a.name) == (b.pid, &b.name)) {
        let ListedThread { process, pid, name, tid } = &run[0];
        out += if out.is_empty() { "" } else { "; " };
        // The first thread of a process has its name.
        if with_process && (process, pid) != (name, tid) {
            out += &format!("{process} {pid}, ");
        }
        out += name;
        run.iter().for_each(|thread| out += &format!(" {}", thread.tid));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(pid: i64, name: &str, tid: i64) -> ListedThread {
        ListedThread { process: "server".into(), pid, name: name.into(), tid }
    }

    #[test]
    fn names_are_printed_once() {
        let of_one = [thread(1, "main", 1), thread(1, "worker", 2), thread(1, "worker", 3)];
        assert_eq!(members(&of_one, false), "main 1; worker 2 3");
        let of_two = [thread(1, "worker", 2), thread(7, "worker", 8), thread(9, "server", 9)];
        assert_eq!(members(&of_two, true), "server 1, worker 2; server 7, worker 8; server 9");
    }
}
