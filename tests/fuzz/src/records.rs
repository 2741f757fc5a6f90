//! Input from the kernel and `/proc`: records of perf events, lines of `maps`, ELF notes.

use sys::record::{self, Header, Layout};
use sys::{elf, maps, usdt};

/// Takes an input.
pub fn run(data: &[u8]) {
    let Some((&kind, data)) = data.split_first() else { return };
    match kind % 3 {
        0 => records(data),
        1 => {
            let text = String::from_utf8_lossy(data);
            let _ = text.lines().filter_map(maps::parse_line).count();
        }
        _ => {
            let _ = usdt::markers(data);
            let _ = elf::build_id_in_notes(data);
        }
    }
}

fn records(data: &[u8]) {
    let Some((&flags, bytes)) = data.split_first() else { return };
    let Some(&header) = bytes.first_chunk::<8>() else { return };
    let header = Header::parse(header);
    let layout = Layout {
        period: flags & 1 != 0,
        group: flags & 2 != 0,
        callchain: flags & 4 != 0,
        raw: flags & 8 != 0,
        user_stack: flags & 16 != 0,
        interrupted: flags & 32 != 0,
        cgroup: flags & 64 != 0,
    };
    let _ = record::time_of(header, bytes);
    let _ = record::sample_id(bytes);
    if let Some(sample) = record::sample(header, bytes, layout) {
        let (mut kernel, mut user) = (Vec::new(), Vec::new());
        sample.callchain.split(&mut kernel, &mut user);
        let _ = sample.group.iter().count();
    }
    let _ = record::other(header, bytes);
}
