//! Names of what compilers make themselves: tables, thunks, guards and aliases.

use super::super::node::{Id, NameNode};
use super::Parser;

/// Code of a special name, and its text before the name of the entity.
type Prefix = (&'static str, &'static str);

const BEFORE_TYPE: [Prefix; 5] = [
    ("TV", "vtable for "),
    ("TT", "VTT for "),
    ("TI", "typeinfo for "),
    ("TS", "typeinfo name for "),
    ("TF", "typeinfo fn for "),
];

const BEFORE_NAME: [Prefix; 3] = [
    ("TW", "TLS wrapper function for "),
    ("TH", "TLS init function for "),
    ("GV", "guard variable for "),
];

const BEFORE_ENCODING: [Prefix; 3] = [
    ("GA", "hidden alias for "),
    ("GTt", "transaction clone for "),
    ("GTn", "non-transaction clone for "),
];

impl<'a> Parser<'a> {
    pub(super) fn special(&mut self) -> Option<Id> {
        let (what, inner) = if let Some(what) = self.eat_one_of(&BEFORE_TYPE) {
            (what, self.type_()?)
        } else if let Some(what) = self.eat_one_of(&BEFORE_NAME) {
            (what, self.name(None)?)
        } else if let Some(what) = self.eat_one_of(&BEFORE_ENCODING) {
            (what, self.encoding(false)?)
        } else if self.eat("TA") {
            ("template parameter object for ", self.template_argument()?)
        } else if self.eat("TC") {
            return self.construction_vtable();
        } else if self.eat("GR") {
            return self.reference_temporary();
        } else {
            (self.thunk()?, self.encoding(false)?)
        };
        Some(self.add(NameNode::Special(what, inner)))
    }

    /// Consumes one of the codes; returns its text.
    fn eat_one_of(&mut self, prefixes: &[Prefix]) -> Option<&'static str> {
        prefixes.iter().find(|(code, _)| self.eat(code)).map(|&(_, what)| what)
    }

    fn construction_vtable(&mut self) -> Option<Id> {
        let derived = self.type_()?;
        self.number(true)?;
        self.expect("_")?;
        let base = self.type_()?;
        Some(self.add(NameNode::Construction(base, derived)))
    }

    fn reference_temporary(&mut self) -> Option<Id> {
        let inner = self.name(None)?;
        let n = self.sequence_number()?;
        let what = self.add(NameNode::Made(format!("reference temporary #{n} for ")));
        Some(self.add(NameNode::Vendor(what, inner)))
    }

    /// The kind and the offsets of a thunk; returns its text.
    fn thunk(&mut self) -> Option<&'static str> {
        if self.eat("Tc") {
            self.call_offset()?;
            self.call_offset()?;
            return Some("covariant return thunk to ");
        }
        self.expect("T")?;
        let is_virtual = self.peek(0) == b'v';
        self.call_offset()?;
        Some(if is_virtual { "virtual thunk to " } else { "non-virtual thunk to " })
    }

    fn call_offset(&mut self) -> Option<()> {
        if self.eat("h") {
            self.number(true)?;
        } else {
            self.expect("v")?;
            self.number(true)?;
            self.expect("_")?;
            self.number(true)?;
        }
        self.expect("_")
    }
}
