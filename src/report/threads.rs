//! Stacks of threads, grouped by stack and state: a better `pstack`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::text::clean;
use profile::{LabelSetId, LabelValue, label};
use view::{View, base_name, label_text};

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedThread {
    /// Name and PID of its process.
    pub process: (String, i64),
    /// Its name.
    pub name: String,
    /// Its TID.
    pub tid: i64,
}

/// Threads with the same stack and state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadGroup {
    /// Their state, from the label `state`.
    pub state: String,
    /// Their frames in [`View::frames`], innermost first.
    pub frames: Vec<u32>,
    /// The threads, sorted by process and TID.
    pub threads: Vec<ListedThread>,
}

/// The threads of a profile of type `threads`: largest groups first, and running ones first among
/// equals.
pub fn groups(view: &View) -> Vec<ThreadGroup> {
    let mut found: FxHashMap<(String, Vec<u32>), Vec<ListedThread>> = FxHashMap::default();
    for sample in view.samples() {
        let frames = sample.stack.iter().flat_map(|&l| view.frames.of(l)).copied().collect();
        let state = text(view, sample.labels, label::STATE);
        found.entry((state, frames)).or_default().push(thread(view, sample.labels));
    }
    let mut groups: Vec<ThreadGroup> = found
        .into_iter()
        .map(|((state, frames), mut threads)| {
            threads.sort_unstable_by(|a, b| {
                (a.process.1, a.tid, &a.name).cmp(&(b.process.1, b.tid, &b.name))
            });
            ThreadGroup { state, frames, threads }
        })
        .collect();
    let runs = |group: &ThreadGroup| group.state != "running";
    let first = |group: &ThreadGroup| group.threads.first().map(|t| (t.process.1, t.tid));
    groups.sort_by(|a, b| {
        let most = b.threads.len().cmp(&a.threads.len());
        most.then(runs(a).cmp(&runs(b))).then_with(|| first(a).cmp(&first(b)))
    });
    groups
}

fn value(view: &View, labels: LabelSetId, key: &str) -> Option<LabelValue> {
    view.profile.labels.value(labels, view.profile.strings.find(key)?)
}

fn text(view: &View, labels: LabelSetId, key: &str) -> String {
    value(view, labels, key).map_or(String::new(), |v| label_text(view.profile, v))
}

fn thread(view: &View, labels: LabelSetId) -> ListedThread {
    let number = |key| match value(view, labels, key) {
        Some(LabelValue::Num { value, .. }) => value,
        _ => 0,
    };
    ListedThread {
        process: (text(view, labels, label::PROCESS), number(label::PID)),
        name: text(view, labels, label::THREAD),
        tid: number(label::TID),
    }
}

/// Writes the groups; `each`: a group for each thread, in their order.
pub fn write(out: &mut dyn Write, view: &View, each: bool) -> io::Result<()> {
    let mut groups = groups(view);
    if each {
        let alone = |group: ThreadGroup| {
            let ThreadGroup { state, frames, threads } = group;
            threads.into_iter().map(move |thread| ThreadGroup {
                state: state.clone(),
                frames: frames.clone(),
                threads: vec![thread],
            })
        };
        groups = groups.into_iter().flat_map(alone).collect();
        groups.sort_by_key(|group| (group.threads[0].process.1, group.threads[0].tid));
    }
    let processes: BTreeMap<i64, &str> = groups
        .iter()
        .flat_map(|group| &group.threads)
        .map(|thread| (thread.process.1, thread.process.0.as_str()))
        .collect();
    let count: usize = groups.iter().map(|group| group.threads.len()).sum();
    match processes.first_key_value() {
        Some((pid, name)) if processes.len() == 1 => {
            writeln!(out, "{} {pid}: {}", clean(name), threads(count))?;
        }
        _ => writeln!(out, "{} processes: {}", processes.len(), threads(count))?,
    }
    for group in &groups {
        let who = members(&group.threads, processes.len() > 1);
        writeln!(out, "\n{} {}: {}", threads(group.threads.len()), group.state, clean(&who))?;
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
    }
    Ok(())
}

fn threads(count: usize) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}

/// Names with TIDs, a name once for all threads that have it.
fn members(threads: &[ListedThread], with_process: bool) -> String {
    let mut out = String::new();
    for run in threads.chunk_by(|a, b| (a.process.1, &a.name) == (b.process.1, &b.name)) {
        let ListedThread { process, name, .. } = &run[0];
        out += if out.is_empty() { "" } else { "; " };
        // The first thread of a process has its name.
        if with_process && (&process.0, process.1) != (name, run[0].tid) {
            out += &format!("{} {}, ", process.0, process.1);
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
        ListedThread { process: ("server".into(), pid), name: name.into(), tid }
    }

    #[test]
    fn names_are_printed_once() {
        let of_one = [thread(1, "main", 1), thread(1, "worker", 2), thread(1, "worker", 3)];
        assert_eq!(members(&of_one, false), "main 1; worker 2 3");
        let of_two = [thread(1, "worker", 2), thread(7, "worker", 8), thread(9, "server", 9)];
        assert_eq!(members(&of_two, true), "server 1, worker 2; server 7, worker 8; server 9");
    }
}
