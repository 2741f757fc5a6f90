//! Prints nodes as text, as `c++filt` does. Each visited part counts as a step: a short name can
//! expand to gigabytes, or take much work without any text.

mod expressions;

use super::TooLong;
use super::node::{CONST, Id, NameNode, Qualifiers, RESTRICT, Reference, Throws, VOLATILE};
use super::parse::Parser;
use crate::{Detail, MAX_LENGTH};

type Printed = Result<(), TooLong>;

/// Deepest nesting of the output.
const MAX_DEPTH: usize = 512;

/// Prints the nodes of a parser.
pub struct Printer<'a, 'p> {
    parser: &'p Parser<'a>,
    /// The function that is printed without parameters and return type.
    bare: Option<Id>,
    out: String,
    steps: usize,
    depth: usize,
    /// Index of the current element of packs; `None` outside expansions.
    element: Option<usize>,
    /// Number of elements of the pack in the expansion.
    elements: Option<usize>,
}

impl<'a, 'p> Printer<'a, 'p> {
    /// The text of `whole`, in at most `steps` steps.
    pub fn print(
        parser: &'p Parser<'a>,
        whole: Id,
        detail: Detail,
        steps: usize,
    ) -> Result<String, TooLong> {
        let mut function = whole;
        while let &NameNode::Special(_, inner) = &parser.nodes[function as usize] {
            function = inner;
        }
        let mut printer = Printer {
            parser,
            bare: (detail == Detail::Name).then_some(function),
            out: String::new(),
            steps,
            depth: 0,
            element: None,
            elements: None,
        };
        printer.both(whole)?;
        Ok(printer.out)
    }

    fn node(&self, id: Id) -> &'p NameNode<'a> {
        &self.parser.nodes[id as usize]
    }

    fn step(&mut self) -> Printed {
        self.steps = self.steps.checked_sub(1).ok_or(TooLong)?;
        Ok(())
    }

    fn text(&mut self, text: &str) -> Printed {
        if self.out.len() + text.len() > MAX_LENGTH {
            return Err(TooLong);
        }
        self.out.push_str(text);
        Ok(())
    }

    fn deeper(&mut self, print: impl FnOnce(&mut Self) -> Printed) -> Printed {
        self.step()?;
        if self.depth == MAX_DEPTH {
            return Err(TooLong);
        }
        self.depth += 1;
        let printed = print(self);
        self.depth -= 1;
        printed
    }

    /// A part in full: types surround their names.
    fn both(&mut self, id: Id) -> Printed {
        self.left(id)?;
        self.right(id)
    }

    /// Separated by commas; parts without text have none.
    fn list(&mut self, all: &[Id]) -> Printed {
        let mut first = true;
        for &id in all {
            let start = self.out.len();
            if !first {
                self.text(", ")?;
            }
            let behind = self.out.len();
            self.both(id)?;
            if self.out.len() == behind {
                self.out.truncate(start);
            } else {
                first = false;
            }
        }
        Ok(())
    }

    fn arguments(&mut self, all: &[Id]) -> Printed {
        // `operator<< <char>`
        if self.out.ends_with('<') {
            self.text(" ")?;
        }
        self.text("<")?;
        self.list(all)?;
        self.text(if self.out.ends_with('>') { " >" } else { ">" })
    }

    /// Target of a part, through template parameters.
    fn meant(&mut self, mut id: Id) -> Result<Option<Id>, TooLong> {
        loop {
            self.step()?;
            id = match self.node(id) {
                &NameNode::Argument(id) => id,
                &NameNode::Forward(n) => match self.parser.forward[n].1 {
                    Some(id) => id,
                    None => return Ok(None),
                },
                NameNode::PackElement(elements) => {
                    let Some(at) = self.element else { return Ok(Some(id)) };
                    self.elements.get_or_insert(elements.len());
                    match elements.get(at) {
                        Some(&id) => id,
                        None => return Ok(None),
                    }
                }
                _ => return Ok(Some(id)),
            };
        }
    }

    /// True for each side if a type has text after its name: an array's length, or parameters.
    fn surrounds(&mut self, id: Id) -> Result<(bool, bool), TooLong> {
        let mut id = id;
        loop {
            self.step()?;
            id = match self.node(id) {
                NameNode::Array(..) => return Ok((true, false)),
                NameNode::Function { .. } => return Ok((false, true)),
                &NameNode::Qualified(inner, _) | &NameNode::Vendor(inner, _) => inner,
                NameNode::Argument(_) | NameNode::Forward(_) | NameNode::PackElement(_) => {
                    match self.meant(id)? {
                        Some(meant) if meant != id => meant,
                        _ => return Ok((false, false)),
                    }
                }
                _ => return Ok((false, false)),
            };
        }
    }

    /// Collapses references to references: the type, and the kind of reference.
    fn collapsed(&mut self, id: Id) -> Result<(Id, Reference), TooLong> {
        let mut id = id;
        let mut kind = Reference::Right;
        loop {
            self.step()?;
            match self.node(id) {
                &NameNode::Referring(to, reference) => {
                    if reference == Reference::Left {
                        kind = Reference::Left;
                    }
                    id = to;
                }
                NameNode::Argument(_) | NameNode::Forward(_) | NameNode::PackElement(_) => {
                    match self.meant(id)? {
                        Some(meant) if meant != id => id = meant,
                        _ => return Ok((id, kind)),
                    }
                }
                _ => return Ok((id, kind)),
            }
        }
    }

    fn left(&mut self, id: Id) -> Printed {
        self.deeper(|p| p.left_of(id))
    }

    fn left_of(&mut self, id: Id) -> Printed {
        let node = self.node(id);
        match node {
            &NameNode::Name(text) | &NameNode::Number(text) => self.text(text),
            NameNode::Made(text) => self.text(text),
            &NameNode::Standard(short, _) => self.text(short),
            &NameNode::Builtin(text) => self.text(text),
            &NameNode::Nested(scope, name) | &NameNode::Local(scope, name) => {
                self.both(scope)?;
                self.text("::")?;
                self.both(name)
            }
            &NameNode::DefaultArgument(function, n, entity) => {
                self.both(function)?;
                self.text(&format!("::{{default arg#{n}}}::"))?;
                self.both(entity)
            }
            &NameNode::Tagged(name, tag) => {
                self.both(name)?;
                self.text("[abi:")?;
                self.text(tag)?;
                self.text("]")
            }
            NameNode::Template(name, arguments) => {
                self.both(*name)?;
                self.arguments(arguments)
            }
            NameNode::Pack(elements) => self.list(elements),
            NameNode::PackElement(elements) => self.element(elements, Self::left),
            &NameNode::Expansion(pattern) => self.expansion(pattern),
            &NameNode::Argument(meant) => self.left(meant),
            &NameNode::Forward(n) => match self.parser.forward[n].1 {
                Some(meant) => self.left(meant),
                None => Err(TooLong),
            },
            NameNode::Auto(n) => self.text(&format!("auto:{n}")),
            NameNode::Encoding { name, .. } if self.bare == Some(id) => self.both(*name),
            NameNode::Encoding { .. } => self.encoding(node),
            _ => self.left_of_entity(node),
        }
    }

    /// A function or variable with its type.
    fn encoding(&mut self, node: &'p NameNode<'a>) -> Printed {
        let NameNode::Encoding { result, name, parameters, qualifiers, reference } = node else {
            return Ok(());
        };
        if let Some(result) = *result {
            self.left(result)?;
            let (array, function) = self.surrounds(result)?;
            if !array && !function {
                self.text(" ")?;
            }
        }
        self.both(*name)?;
        self.text("(")?;
        self.list(parameters)?;
        self.text(")")?;
        if let Some(result) = *result {
            self.right(result)?;
        }
        self.object(*qualifiers, *reference)
    }

    /// Entities that have no name of their own, or an operator's.
    fn left_of_entity(&mut self, node: &'p NameNode<'a>) -> Printed {
        match node {
            &NameNode::Special(what, inner) => {
                self.text(what)?;
                self.both(inner)
            }
            &NameNode::Construction(base, derived) => {
                self.text("construction vtable for ")?;
                self.both(base)?;
                self.text("-in-")?;
                self.both(derived)
            }
            &NameNode::Constructor(class) => self.class_name(class),
            &NameNode::Destructor(class) => {
                self.text("~")?;
                self.class_name(class)
            }
            &NameNode::Conversion(to) => {
                self.text("operator ")?;
                self.both(to)
            }
            &NameNode::Literal(name) => {
                self.text("operator\"\" ")?;
                self.both(name)
            }
            NameNode::Lambda(types, n) => {
                self.text("{lambda(")?;
                self.list(types)?;
                self.text(&format!(")#{n}}}"))
            }
            NameNode::Bindings(names) => {
                self.text("[")?;
                self.list(names)?;
                self.text("]")
            }
            _ => self.left_of_type(node),
        }
    }

    fn left_of_type(&mut self, node: &'p NameNode<'a>) -> Printed {
        match *node {
            NameNode::Qualified(inner, qualifiers) => {
                self.left(inner)?;
                // Qualifiers of the argument are not repeated.
                let printed = match self.meant(inner)?.map(|inner| self.node(inner)) {
                    Some(&NameNode::Qualified(_, printed)) => printed,
                    _ => 0,
                };
                self.qualifiers(qualifiers & !printed)
            }
            NameNode::Vendor(inner, qualifier) => {
                self.left(inner)?;
                if !self.out.ends_with(' ') {
                    self.text(" ")?;
                }
                self.both(qualifier)
            }
            NameNode::Pointer(to) => self.left_of_pointer(to, "*"),
            NameNode::Referring(to, reference) => {
                let (to, collapsed) = self.collapsed(to)?;
                let left = reference == Reference::Left || collapsed == Reference::Left;
                self.left_of_pointer(to, if left { "&" } else { "&&" })
            }
            NameNode::Member(class, member) => {
                self.left(member)?;
                let (array, function) = self.surrounds(member)?;
                self.text(if array || function { "(" } else { " " })?;
                self.both(class)?;
                self.text("::*")
            }
            NameNode::Suffixed(inner, suffix) => {
                self.both(inner)?;
                self.text(suffix)
            }
            NameNode::Array(inner, _) => self.left(inner),
            NameNode::Vector(inner, length) => {
                self.both(inner)?;
                self.text(" __vector(")?;
                self.both(length)?;
                self.text(")")
            }
            NameNode::Function { result, .. } => {
                self.left(result)?;
                self.text(" ")
            }
            _ => self.expression(node),
        }
    }

    fn left_of_pointer(&mut self, to: Id, sign: &str) -> Printed {
        self.left(to)?;
        let (array, function) = self.surrounds(to)?;
        if array {
            self.text(" ")?;
        }
        if array || function {
            self.text("(")?;
        }
        self.text(sign)
    }

    fn right(&mut self, id: Id) -> Printed {
        self.deeper(|p| p.right_of(id))
    }

    fn right_of(&mut self, id: Id) -> Printed {
        match self.node(id) {
            &NameNode::Qualified(inner, _) | &NameNode::Vendor(inner, _) => self.right(inner),
            &NameNode::Pointer(to) | &NameNode::Member(_, to) => self.right_of_pointer(to),
            &NameNode::Referring(to, _) => {
                let (to, _) = self.collapsed(to)?;
                self.right_of_pointer(to)
            }
            &NameNode::Array(inner, length) => {
                self.text(if self.out.ends_with(']') { "[" } else { " [" })?;
                if let Some(length) = length {
                    self.both(length)?;
                }
                self.text("]")?;
                self.right(inner)
            }
            NameNode::Function { result, parameters, qualifiers, reference, throws } => {
                self.text("(")?;
                self.list(parameters)?;
                self.text(")")?;
                self.right(*result)?;
                self.object(*qualifiers, *reference)?;
                self.throws(throws)
            }
            &NameNode::Argument(meant) => self.right(meant),
            &NameNode::Forward(n) => match self.parser.forward[n].1 {
                Some(meant) => self.right(meant),
                None => Ok(()),
            },
            NameNode::PackElement(elements) if self.element.is_some() => {
                self.element(elements, Self::right)
            }
            _ => Ok(()),
        }
    }

    fn right_of_pointer(&mut self, to: Id) -> Printed {
        let (array, function) = self.surrounds(to)?;
        if array || function {
            self.text(")")?;
        }
        self.right(to)
    }

    fn qualifiers(&mut self, qualifiers: Qualifiers) -> Printed {
        for (bit, text) in [(RESTRICT, " restrict"), (VOLATILE, " volatile"), (CONST, " const")] {
            if qualifiers & bit != 0 {
                self.text(text)?;
            }
        }
        Ok(())
    }

    fn object(&mut self, qualifiers: Qualifiers, reference: Reference) -> Printed {
        self.qualifiers(qualifiers)?;
        match reference {
            Reference::None => Ok(()),
            Reference::Left => self.text(" &"),
            Reference::Right => self.text(" &&"),
        }
    }

    fn throws(&mut self, throws: &Throws) -> Printed {
        match throws {
            Throws::Anything => Ok(()),
            Throws::Nothing => self.text(" noexcept"),
            &Throws::Unless(expression) => {
                self.text(" noexcept(")?;
                self.both(expression)?;
                self.text(")")
            }
            Throws::Only(types) => {
                self.text(" throw(")?;
                self.list(types)?;
                self.text(")")
            }
        }
    }

    /// The pattern once for each element of the packs in it.
    fn expansion(&mut self, pattern: Id) -> Printed {
        let outer = (self.element, self.elements);
        (self.element, self.elements) = (Some(0), None);
        let start = self.out.len();
        self.both(pattern)?;
        match self.elements {
            None => self.text("...")?,
            Some(0) => self.out.truncate(start),
            Some(count) => {
                for n in 1..count {
                    self.element = Some(n);
                    self.step()?;
                    self.text(", ")?;
                    self.both(pattern)?;
                }
            }
        }
        (self.element, self.elements) = outer;
        Ok(())
    }

    /// The current element of a pack; the whole pack outside expansions.
    fn element(&mut self, elements: &'p [Id], print: fn(&mut Self, Id) -> Printed) -> Printed {
        let Some(at) = self.element else { return self.list(elements) };
        self.elements.get_or_insert(elements.len());
        elements.get(at).map_or(Ok(()), |&id| print(self, id))
    }

    /// The last word of a class's name, without arguments.
    fn class_name(&mut self, class: Id) -> Printed {
        let mut id = class;
        loop {
            self.step()?;
            id = match self.node(id) {
                &NameNode::Nested(_, name) | &NameNode::Local(_, name) => name,
                &NameNode::DefaultArgument(_, _, name) => name,
                &NameNode::Template(name, _) => name,
                &NameNode::Tagged(name, _) => name,
                &NameNode::Standard(_, full) => {
                    let bare = full.split('<').next().unwrap_or(full);
                    return self.text(bare.rsplit("::").next().unwrap_or(bare));
                }
                NameNode::Argument(_) | NameNode::Forward(_) => match self.meant(id)? {
                    Some(meant) if meant != id => meant,
                    _ => return Err(TooLong),
                },
                _ => return self.both(id),
            };
        }
    }
}
