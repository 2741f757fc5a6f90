//! Examples of messages, for tests and for the guide.

use super::*;

/// An entry of the table.
pub struct Entry {
    pub code: &'static str,
    /// Makes a message with facts that are examples.
    pub make: fn(&mut Pick) -> Message,
    /// The levels that it may have.
    pub levels: Vec<Level>,
    pub meaning: String,
    /// The names of its facts, and what they are.
    pub facts: Vec<(&'static str, &'static str)>,
}

impl Entry {
    /// The message with the first value of each fact.
    pub fn example(&self) -> Message {
        (self.make)(&mut Pick::default())
    }

    /// Messages in which each fact has each of its values once, with the first ones of the others.
    pub fn examples(&self) -> Vec<Message> {
        let mut messages = vec![self.example()];
        for fact in 0..self.facts.len() {
            for value in 1.. {
                let mut pick = Pick { fact, value, ..Pick::default() };
                let message = (self.make)(&mut pick);
                if pick.is_beyond {
                    break;
                }
                messages.push(message);
            }
        }
        messages
    }
}

/// The choice of the values of a message's facts: one fact has another value than its first.
#[derive(Default)]
pub struct Pick {
    /// The position of that fact.
    fact: usize,
    /// The position of its value.
    value: usize,
    /// The position of the next fact.
    next: usize,
    /// The fact has fewer values.
    is_beyond: bool,
}

impl Pick {
    /// The value of the next fact.
    pub fn value<T: Example>(&mut self) -> T {
        let mut values = T::examples();
        let at = if self.next == self.fact { self.value } else { 0 };
        self.next += 1;
        self.is_beyond |= at >= values.len();
        values.swap_remove(if at < values.len() { at } else { 0 })
    }
}

/// A fact for tests and for the guide.
pub trait Example: Sized {
    /// Its values: all, or those that have different sentences.
    fn examples() -> Vec<Self>;
}

macro_rules! examples {
    ($($type:ty: $($example:expr),+;)+) => {
        $(impl Example for $type {
            fn examples() -> Vec<$type> {
                vec![$($example),+]
            }
        })+
    };
}

fn ellipsis() -> String {
    "…".to_owned()
}

examples! {
    bool: true, false;
    i32: 2, -1, 0, 1, 3;
    u32: 2;
    u8: 2;
    f64: 2.0;
    u64: 2, 1, 4_000_000;
    String: ellipsis();
    Amount: Amount { objects: 2.0, bytes: 64.0 }, Amount { objects: 1.0, bytes: 64.0 },
        Amount { objects: 2.0, bytes: 1048576.0 };
    CpuCoverage: CpuCoverage { sampled: 1_000_000_000, used: 2_000_000_000 };
    PackageManager: PackageManager::Apt, PackageManager::Dnf, PackageManager::Zypper;
    SampledPlace: SampledPlace::Kernel, SampledPlace::Everywhere, SampledPlace::SomeCpus,
        SampledPlace::User;
    Scope: Scope::Target, Scope::Machine;
    UncheckedLeaks: UncheckedLeaks::Running, UncheckedLeaks::Ended,
        UncheckedLeaks::Failed(ellipsis());
    Wanted: Wanted::WholeMachine, Wanted::OwnProcess, Wanted::OtherProcess(2), Wanted::Kernel,
        Wanted::Tracepoint(ellipsis()), Wanted::Tracefs(ellipsis()), Wanted::Probe(ellipsis()),
        Wanted::Cgroup(ellipsis()), Wanted::Ring(2);
    Box<Message>: Box::new(Message::System { error: ellipsis() }),
        Box::new(Message::OpenFiles { limit: 2, sudo: true }), Box::new(Message::LateTimers);
    Vec<String>: vec![ellipsis()], vec![ellipsis(); 5];
    Vec<u32>: vec![2], vec![1, 2];
    Vec<LossRemedy>: vec![LossRemedy::LowerRate], vec![], vec![LossRemedy::FewerProcesses],
        vec![LossRemedy::LongerPeriod], vec![LossRemedy::AnyPeriod],
        vec![LossRemedy::LowerRateOrLongerPeriod], vec![LossRemedy::SmallerCopies],
        vec![LossRemedy::Root], vec![LossRemedy::LongerHeapInterval],
        vec![LossRemedy::LowerRate, LossRemedy::Root];
}

impl<T: Example> Example for Option<T> {
    fn examples() -> Vec<Option<T>> {
        T::examples().into_iter().map(Some).chain([None]).collect()
    }
}
