//! Forked processes have the walks of their parents before they run: a program copies them.

use std::io;

use crate::sampler::bpf::btf::Btf;
use crate::sampler::bpf::code::{AccessSize, AluOp, BpfCode, Helper, If, Reg};
use crate::sampler::bpf::snippets::{self, KEY};
use crate::sampler::bpf::syscall::{Map, Programs};

use Reg::{R0, R1, R2, R3, R4, R6, R10};

/// Offset of the PID of the current process on the stack.
const OWN: i16 = KEY - 8;

/// The program, which runs as long as this is not dropped.
#[derive(Debug)]
pub struct WalkForks {
    _programs: Programs,
}

impl WalkForks {
    /// Follows the forks of the processes in a map, whose values are copied.
    ///
    /// # Errors
    ///
    /// This kernel is too old, or the user lacks the privilege.
    pub fn follow(processes: &Map) -> io::Result<WalkForks> {
        let kernel = Btf::running()?;
        let code = on_fork(processes, kernel.field("task_struct", &["tgid"])?);
        let mut programs = Programs::load(&kernel, &[("sched_process_fork", code)])?;
        programs.attach()?;
        Ok(WalkForks { _programs: programs })
    }
}

/// `sched_process_fork(parent, child)`, in the parent. `tgid`: offset of the process ID in a thread.
fn on_fork(processes: &Map, tgid: i16) -> Vec<u64> {
    let mut c = BpfCode::default();
    let [other, out] = [(); 2].map(|()| c.label());
    c.load(AccessSize::Long, R6, R1, 8);
    c.load(AccessSize::Word, R6, R6, tgid);
    c.call(Helper::PidTgid);
    c.op_value(AluOp::Rsh, R0, 32);
    // A thread of the same process.
    c.jump_if(If::Equal, R0, R6, out);
    c.store(AccessSize::Word, R10, OWN, R0);
    c.store(AccessSize::Word, R10, KEY, R6);
    snippets::look_up_at(&mut c, processes, OWN, other);
    c.op(AluOp::Mov, R3, R0);
    c.map(R1, processes.fd());
    c.op(AluOp::Mov, R2, R10);
    c.op_value(AluOp::Add, R2, KEY.into());
    c.op_value(AluOp::Mov, R4, 0);
    c.call(Helper::MapUpdate);
    c.jump(out);
    c.put(other);
    // The process that had the number before may have had walks.
    snippets::delete(&mut c, processes);
    c.put(out);
    c.exit();
    c.finish()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::super::testing::skip_programs;
    use super::*;
    use crate::sampler::bpf::syscall::{EntrySize, MapKind};

    /// Size of a value of the map; a large one is not copied word by word.
    const SIZE: usize = 1024;

    fn ended(mut command: Command) -> i32 {
        let mut child = command.spawn().unwrap();
        child.wait().unwrap();
        child.id() as i32
    }

    #[test]
    fn a_forked_process_has_the_walks_of_its_parent_before_it_runs() {
        let processes = Map::new(MapKind::Hash, EntrySize::by_number(SIZE), 1 << 14);
        let followed = processes.and_then(|map| WalkForks::follow(&map).map(|forks| (map, forks)));
        let (processes, _forks) = match followed {
            Ok(followed) => followed,
            Err(why) => return skip_programs(&why.to_string()),
        };
        let value = |pid: i32| {
            let mut value = vec![0; SIZE];
            processes.get(&pid.to_ne_bytes(), &mut value, 1).ok().map(|()| value)
        };
        assert_eq!(value(ended(Command::new("true"))), None);
        let own: Vec<u8> = (0..SIZE).map(|i| i as u8).collect();
        processes.set(&(std::process::id() as i32).to_ne_bytes(), &own).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "true; sh -c 'exit 0' & wait"]);
        assert_eq!(value(ended(shell)), Some(own));
        assert!(processes.entries().count() >= 3, "its child, too");
        // The children of other processes take the number away.
        processes.remove(&(std::process::id() as i32).to_ne_bytes());
        assert_eq!(value(ended(Command::new("true"))), None);
    }
}
