//! Parses mangled names: names and encodings. No text is read twice, so the time is proportional to
//! its length.

mod special;
mod templates;

use rustc_hash::FxHashMap;

use super::node::{CONST, Id, NameNode, Qualifiers, RESTRICT, Reference, VOLATILE};

/// Deepest nesting. A template argument takes three levels; more than 30 nested templates are rare.
const MAX_DEPTH: usize = 384;

/// Properties of a function that its name determines.
#[derive(Default)]
pub struct NameTraits {
    /// Names of constructors and similar functions contain no return type.
    pub no_result: bool,
    /// It is a template instance, whose return type is in the name.
    ends_with_arguments: bool,
    qualifiers: Qualifiers,
    reference: Reference,
    /// Number of the first forward parameter.
    forward_from: usize,
}

/// State of parsing.
pub struct Parser<'a> {
    pub text: &'a [u8],
    pub at: usize,
    pub nodes: Vec<NameNode<'a>>,
    /// Targets of `S0_` and other substitutions.
    pub substitutions: Vec<Id>,
    /// Targets of `T0_` and other template parameters in this function.
    parameters: Option<Vec<Id>>,
    /// Nodes that are such parameters.
    used_parameters: FxHashMap<Id, usize>,
    /// Targets of [`NameNode::Forward`]: index of the parameter, then the node.
    pub forward: Vec<(usize, Option<Id>)>,
    /// Template arguments may follow a parameter that is a type here.
    pub arguments_follow: bool,
    pub permit_forward: bool,
    in_lambda: bool,
    depth: usize,
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str) -> Parser<'a> {
        Parser {
            text: text.as_bytes(),
            at: 0,
            nodes: Vec::new(),
            substitutions: Vec::new(),
            parameters: None,
            used_parameters: FxHashMap::default(),
            forward: Vec::new(),
            arguments_follow: true,
            permit_forward: false,
            in_lambda: false,
            depth: 0,
        }
    }

    pub fn add(&mut self, node: NameNode<'a>) -> Id {
        self.nodes.push(node);
        self.nodes.len() as Id - 1
    }

    pub fn node(&self, id: Id) -> &NameNode<'a> {
        &self.nodes[id as usize]
    }

    /// The byte at this distance; 0 at the end.
    pub fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    /// The rest of the text; empty after the end.
    pub fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub fn eat(&mut self, what: &str) -> bool {
        let found = self.rest().starts_with(what.as_bytes());
        if found {
            self.at += what.len();
        }
        found
    }

    pub fn expect(&mut self, what: &str) -> Option<()> {
        self.eat(what).then_some(())
    }

    /// Runs `parse` one level deeper, if the nesting allows.
    pub fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Parses with `parse` up to and including an `E`.
    pub fn until_end(&mut self, parse: fn(&mut Self) -> Option<Id>) -> Option<Vec<Id>> {
        let mut all = Vec::new();
        while !self.eat("E") {
            all.push(parse(self)?);
        }
        Some(all)
    }

    /// Digits, with `n` before them if they are negative and may be.
    pub fn number(&mut self, negative: bool) -> Option<&'a str> {
        let start = self.at;
        if negative {
            self.eat("n");
        }
        let digits = self.at;
        while self.peek(0).is_ascii_digit() {
            self.at += 1;
        }
        let text = self.text;
        let read = text.get(start..self.at).filter(|_| self.at > digits)?;
        std::str::from_utf8(read).ok()
    }

    fn small_number(&mut self) -> Option<usize> {
        self.number(false)?.parse().ok()
    }

    /// `_` is 0, `0_` is 1, `1_` is 2; at most the range of a C++ compiler.
    pub fn index(&mut self) -> Option<usize> {
        if self.eat("_") {
            return Some(0);
        }
        let n = self.small_number()?;
        self.expect("_")?;
        n.checked_add(1).filter(|&n| n < i32::MAX as usize)
    }

    /// The whole: a function, a variable or a special name.
    pub fn mangled(&mut self) -> Option<Id> {
        self.expect("_Z")?;
        self.encoding(false)
    }

    /// A function or variable; without a return type if it `encloses` the named entity.
    pub fn encoding(&mut self, encloses: bool) -> Option<Id> {
        self.deeper(|p| {
            let outer = std::mem::take(&mut p.parameters);
            let in_lambda = std::mem::take(&mut p.in_lambda);
            let encoding = if matches!(p.peek(0), b'G' | b'T') {
                p.special()
            } else {
                p.function_or_variable(encloses)
            };
            (p.parameters, p.in_lambda) = (outer, in_lambda);
            encoding
        })
    }

    fn function_or_variable(&mut self, encloses: bool) -> Option<Id> {
        let mut seen = NameTraits { forward_from: self.forward.len(), ..NameTraits::default() };
        let name = self.name(Some(&mut seen))?;
        self.resolve_forward(seen.forward_from)?;
        if self.is_end() {
            return Some(name);
        }
        let has_result = !seen.no_result && seen.ends_with_arguments;
        let result = if has_result { Some(self.type_()?) } else { None };
        let result = result.filter(|_| !encloses);
        let mut parameters = Vec::new();
        if !self.eat("v") {
            while !self.is_end() {
                parameters.push(self.type_()?);
            }
        }
        let NameTraits { qualifiers, reference, .. } = seen;
        Some(self.add(NameNode::Encoding { result, name, parameters, qualifiers, reference }))
    }

    fn is_end(&self) -> bool {
        matches!(self.peek(0), 0 | b'E' | b'.' | b'_' | b'@')
    }

    fn resolve_forward(&mut self, from: usize) -> Option<()> {
        for (index, node) in &mut self.forward[from..] {
            let arguments = self.parameters.as_ref()?;
            *node = Some(*arguments.get(*index)?);
        }
        Some(())
    }

    /// `_` is 0, `0_` is 1, `A_` is 11, in base 36.
    fn sequence_number(&mut self) -> Option<usize> {
        if self.eat("_") {
            return Some(0);
        }
        let mut n: usize = 0;
        while !self.eat("_") {
            let digit = (self.peek(0) as char)
                .to_digit(36)
                .filter(|_| !self.peek(0).is_ascii_lowercase())?;
            n = n.checked_mul(36)?.checked_add(digit as usize)?;
            self.at += 1;
        }
        n.checked_add(1)
    }

    pub fn name(&mut self, mut seen: Option<&mut NameTraits>) -> Option<Id> {
        self.deeper(|p| {
            match p.peek(0) {
                b'N' => return p.nested(seen),
                b'Z' => return p.local(seen),
                _ => {}
            }
            let substituted = p.peek(0) == b'S' && p.peek(1) != b't';
            let name =
                if substituted { p.substitution()? } else { p.unscoped(seen.as_deref_mut())? };
            if p.peek(0) != b'I' {
                return (!substituted).then_some(name);
            }
            if !substituted {
                p.substitutions.push(name);
            }
            let arguments = p.template_arguments(seen.is_some())?;
            if let Some(seen) = seen {
                seen.ends_with_arguments = true;
            }
            Some(p.add(NameNode::Template(name, arguments)))
        })
    }

    fn unscoped(&mut self, seen: Option<&mut NameTraits>) -> Option<Id> {
        let standard = self.eat("St");
        let name = self.unqualified(seen, None)?;
        if !standard {
            return Some(name);
        }
        let scope = self.add(NameNode::Name("std"));
        Some(self.add(NameNode::Nested(scope, name)))
    }

    fn local(&mut self, seen: Option<&mut NameTraits>) -> Option<Id> {
        self.expect("Z")?;
        let function = self.encoding(true)?;
        self.expect("E")?;
        if self.eat("s") {
            self.discriminator();
            let entity = self.add(NameNode::Name("string literal"));
            return Some(self.add(NameNode::Local(function, entity)));
        }
        if self.eat("d") {
            let n = self.index()?;
            let entity = self.name(seen)?;
            return Some(self.add(NameNode::DefaultArgument(function, n as u32 + 1, entity)));
        }
        let entity = self.name(seen)?;
        self.discriminator();
        Some(self.add(NameNode::Local(function, entity)))
    }

    /// Skips `_3` or `__12_`: the index of an entity among those of one name.
    fn discriminator(&mut self) {
        let start = self.at;
        if !self.eat("_") {
            return;
        }
        let long = self.eat("_");
        let good = if long {
            self.number(false).is_some() && self.eat("_")
        } else {
            self.peek(0).is_ascii_digit()
        };
        match (good, long) {
            (true, false) => self.at += 1,
            (true, true) => {}
            (false, _) => self.at = start,
        }
    }

    pub fn qualifiers(&mut self) -> Qualifiers {
        let mut found = 0;
        for (code, bit) in [("r", RESTRICT), ("V", VOLATILE), ("K", CONST)] {
            if self.eat(code) {
                found |= bit;
            }
        }
        found
    }

    fn nested(&mut self, mut seen: Option<&mut NameTraits>) -> Option<Id> {
        self.expect("N")?;
        let qualifiers = self.qualifiers();
        let reference = match (self.eat("O"), self.eat("R")) {
            (true, _) => Reference::Right,
            (false, true) => Reference::Left,
            (false, false) => Reference::None,
        };
        if let Some(seen) = &mut seen {
            (seen.qualifiers, seen.reference) = (qualifiers, reference);
        }
        let mut whole: Option<Id> = None;
        while !self.eat("E") {
            if let Some(seen) = &mut seen {
                seen.ends_with_arguments = false;
            }
            let next = match (self.peek(0), self.peek(1)) {
                (b'T', _) if whole.is_none() => self.template_parameter()?,
                (b'I', _) => {
                    let name = whole?;
                    let arguments = self.template_arguments(seen.is_some())?;
                    if let Some(seen) = &mut seen {
                        seen.ends_with_arguments = true;
                    }
                    self.add(NameNode::Template(name, arguments))
                }
                (b'D', b't' | b'T') if whole.is_none() => self.decltype()?,
                (b'S', following) if whole.is_none() => {
                    whole = Some(if following == b't' {
                        self.at += 2;
                        self.add(NameNode::Name("std"))
                    } else {
                        self.substitution()?
                    });
                    continue;
                }
                _ => {
                    let name = self.unqualified(seen.as_deref_mut(), whole)?;
                    match whole {
                        Some(scope) => {
                            let scope = self.scope_of(scope, name);
                            self.add(NameNode::Nested(scope, name))
                        }
                        None => name,
                    }
                }
            };
            whole = Some(next);
            self.substitutions.push(next);
            self.eat("M");
        }
        self.substitutions.pop()?;
        whole
    }

    /// Constructors follow the full name of a class that has an abbreviation.
    fn scope_of(&mut self, scope: Id, name: Id) -> Id {
        match (self.node(name), self.node(scope)) {
            (NameNode::Constructor(_) | NameNode::Destructor(_), &NameNode::Standard(_, full)) => {
                self.add(NameNode::Standard(full, full))
            }
            _ => scope,
        }
    }

    fn unqualified(&mut self, seen: Option<&mut NameTraits>, scope: Option<Id>) -> Option<Id> {
        self.eat("L");
        let name = match (self.peek(0), self.peek(1)) {
            (b'0'..=b'9', _) => self.source_name()?,
            (b'U', _) => self.unnamed()?,
            (b'D', b'C') => {
                self.at += 2;
                let names = self.until_end(Self::source_name)?;
                self.add(NameNode::Bindings(names))
            }
            (b'C' | b'D', b'1'..=b'5' | b'0' | b'I') if scope.is_some() => {
                self.constructor(seen, scope?)?
            }
            _ => self.operator_name(seen)?,
        };
        self.tags(name)
    }

    pub fn tags(&mut self, mut name: Id) -> Option<Id> {
        while self.eat("B") {
            let tag = self.word()?;
            name = self.add(NameNode::Tagged(name, tag));
        }
        Some(name)
    }

    fn constructor(&mut self, seen: Option<&mut NameTraits>, class: Id) -> Option<Id> {
        let kind = self.peek(0);
        self.at += 1;
        let inherited = kind == b'C' && self.eat("I");
        // Kind: complete, base, deleting.
        self.peek(0).is_ascii_digit().then(|| self.at += 1)?;
        if let Some(seen) = seen {
            seen.no_result = true;
        }
        if inherited {
            self.name(None)?;
        }
        Some(match kind {
            b'C' => self.add(NameNode::Constructor(class)),
            _ => self.add(NameNode::Destructor(class)),
        })
    }

    /// A word with its length in front.
    fn word(&mut self) -> Option<&'a str> {
        let length = self.small_number()?;
        let end = self.at.checked_add(length).filter(|_| length > 0)?;
        let word = self.text.get(self.at..end)?;
        self.at = end;
        std::str::from_utf8(word).ok()
    }

    pub fn source_name(&mut self) -> Option<Id> {
        let word = self.word()?;
        let anonymous =
            word.strip_prefix("_GLOBAL_").and_then(|rest| rest.strip_prefix(['_', '.', '$']));
        let anonymous = anonymous.is_some_and(|rest| rest.starts_with('N'));
        Some(self.add(NameNode::Name(if anonymous { "(anonymous namespace)" } else { word })))
    }

    fn unnamed(&mut self) -> Option<Id> {
        if self.eat("Ut") {
            let n = self.index()? + 1;
            let name = self.add(NameNode::Made(format!("{{unnamed type#{n}}}")));
            // Numbered as by the GNU tools.
            return Some(name);
        }
        self.expect("Ul")?;
        let outer = std::mem::replace(&mut self.in_lambda, true);
        let types = if self.eat("vE") { Some(Vec::new()) } else { self.until_end(Self::type_) };
        self.in_lambda = outer;
        let n = self.index()?;
        Some(self.add(NameNode::Lambda(types?, n as u32 + 1)))
    }
}
