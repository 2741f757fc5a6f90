//! An example profile type, recorded in a test: page faults, by the stack that caused them.
//!
//! A new type is a file like this one, and a line in [`ALL`](super::ALL). Its options, if it has
//! any, are a struct in its file, as in `lock.rs`, and a line in
//! [`TypeOptions`](super::TypeOptions).

use perf_event_open_sys::bindings as abi;

use super::{
    EventTrial, ProfileType, ProfileTypes, Registered, SampleType, TypeEvent, TypeStart,
    ValuesKnown,
};
use crate::sampler::events::EventKind;
use crate::sampler::stack_maker::StackMaker;
use crate::sampler::{
    EventSpec, Interrupts, Observer, Options, Rate, StackMethod, Target, TypeName, Window, record,
};
use profile::Column;
use sys::Error;
use sys::record::Sample;

const REGISTERED: Registered = Registered {
    name: "faults",
    help: "Page faults",
    shown_first: &["faults"],
    values: ValuesKnown::WhileRecording,
    options: None,
    clean_up: None,
    new: |selection| {
        let new = || Box::new(Faults { column: Column::default() }) as Box<dyn ProfileType>;
        selection.has("faults").then(new)
    },
};

struct Faults {
    column: Column,
}

impl ProfileType for Faults {
    fn name(&self) -> TypeName {
        TypeName::Plural("page faults")
    }

    fn sample_types(&self) -> Vec<SampleType> {
        vec![SampleType::count("faults")]
    }

    fn events(&mut self, _trial: &mut EventTrial<'_>) -> Result<Vec<TypeEvent>, Error> {
        let config = u64::from(abi::PERF_COUNT_SW_PAGE_FAULTS);
        let faults = EventSpec::plain("faults", EventKind::OfType, abi::PERF_TYPE_SOFTWARE, config);
        Ok(vec![TypeEvent::each_time(EventSpec { kernel: false, ..faults })])
    }

    fn start(&mut self, _maker: &mut StackMaker, start: &TypeStart<'_>) {
        self.column = start.first;
    }

    fn sample(&mut self, maker: &mut StackMaker, _event: usize, sample: &Sample<'_>, weight: u64) {
        maker.add_sample(sample, 0, &[(self.column, weight as i64)]);
    }
}

#[test]
fn a_type_of_one_file_is_recorded_with_others() {
    let selection = super::Selection {
        names: ["cpu", "faults"].map(str::to_owned).into(),
        ..super::Selection::default()
    };
    let known = super::ALL.iter().chain([&REGISTERED]);
    let types =
        ProfileTypes::from_types(known.filter_map(|known| (known.new)(&selection)).collect());
    let target = Target::Command(["true"].map(str::to_owned).into());
    let options = Options {
        stdout_to_stderr: true,
        ..Options::new(target, Rate::Frequency(99), StackMethod::FramePointer)
    };
    let window = Window::default();
    let interrupts = Interrupts::install(true).unwrap();
    let mut observer = Observer { note: &mut |_| {}, started: &mut |_| {}, tick: &mut |_| {} };
    let recorded = record(&options, types, window, &interrupts, &mut observer);
    let profile = match recorded {
        Ok(recording) => recording.aggregated.profile,
        Err(why) => return sys::testing::skip(&why.to_string()),
    };
    let kinds: Vec<&str> = profile.sample_types.iter().map(|t| profile.str(t.kind)).collect();
    assert_eq!(kinds, ["samples", "cpu", "faults"]);
    let faults: i64 = profile.values.chunks(kinds.len()).map(|values| values[2]).sum();
    assert!(faults > 10, "a program that starts has more page faults than {faults}");
}
