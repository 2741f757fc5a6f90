//! Continuation of a thread that was stopped in a system call.

use super::Registers;

/// Value of `rax` after an interrupted call (include/linux/errno.h).
const ERESTARTSYS: i64 = -512;
const ERESTARTNOINTR: i64 = -513;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;

/// `syscall` is two bytes long.
const INSTRUCTION: u64 = 2;

/// The thread was stopped in a system call that has not completed.
pub fn is_cut_short(registers: &Registers) -> bool {
    let codes = [ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK];
    let failed = registers.rax as i64;
    in_call(registers) && (codes.contains(&failed) || failed == -i64::from(libc::EINTR))
}

/// The thread is returning from a system call.
fn in_call(registers: &Registers) -> bool {
    registers.orig_rax as i64 >= 0
}

/// Calls that fail with `EINTR` even at an ignored signal, if the thread is traced (see
/// `signal(7)`), and without any effect.
const FAIL: &[libc::c_long] = &[
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_io_getevents,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semop,
    libc::SYS_semtimedop,
];

/// Address of the futex that a thread waited for when it was stopped.
pub fn futex_of(registers: &Registers) -> Option<u64> {
    let in_futex = registers.orig_rax == libc::SYS_futex as u64 && is_cut_short(registers);
    in_futex.then_some(registers.rdi)
}

/// Registers for delivering a signal: the kernel then decides whether the call is restarted, or
/// fails because a signal handler has run.
pub fn for_the_kernel(registers: &Registers) -> Registers {
    let mut left = *registers;
    let fails = FAIL.iter().any(|&call| registers.orig_rax == call as u64);
    if fails && registers.rax as i64 == -i64::from(libc::EINTR) {
        left.rax = ERESTARTNOHAND as u64;
    }
    left
}

/// Registers for continuing without a signal: the call is restarted.
pub fn to_continue(registers: &Registers) -> Registers {
    let mut resumed = *registers;
    resumed.orig_rax = u64::MAX;
    if is_cut_short(registers) {
        resumed.rax = registers.orig_rax;
        resumed.rip = registers.rip.wrapping_sub(INSTRUCTION);
    }
    resumed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped(call: i64, result: i64) -> Registers {
        let mut registers = crate::inject::trace::no_registers();
        (registers.orig_rax, registers.rax, registers.rip) = (call as u64, result as u64, 100);
        registers
    }

    #[test]
    fn calls_are_made_again() {
        let goes_on = |call, result| {
            let resumed = to_continue(&stopped(call, result));
            (resumed.orig_rax as i64, resumed.rax as i64, resumed.rip)
        };
        assert_eq!(goes_on(0, ERESTARTSYS), (-1, 0, 98));
        assert_eq!(goes_on(232, -i64::from(libc::EINTR)), (-1, 232, 98));
        assert_eq!(goes_on(230, ERESTART_RESTARTBLOCK), (-1, 230, 98));
        // A completed call is not restarted; without a call, any number is possible.
        assert_eq!(goes_on(0, 17), (-1, 17, 100));
        assert_eq!(goes_on(-1, ERESTARTSYS), (-1, ERESTARTSYS, 100));
    }

    #[test]
    fn the_kernel_decides_about_a_call_that_cannot_restart() {
        let left = for_the_kernel(&stopped(232, -i64::from(libc::EINTR)));
        assert_eq!((left.rax as i64, left.orig_rax, left.rip), (ERESTARTNOHAND, 232, 100));
        assert_eq!(for_the_kernel(&stopped(232, 17)).rax, 17);
        // Closing a file twice may close another one.
        let close = stopped(libc::SYS_close, -i64::from(libc::EINTR));
        assert_eq!(for_the_kernel(&close).rax, close.rax);
    }
}
