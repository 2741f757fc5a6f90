//! Parses mangled names: template parameters and arguments, and substitutions.

use super::super::node::{Id, NameNode};
use super::Parser;

impl<'a> Parser<'a> {
    pub fn substitution(&mut self) -> Option<Id> {
        self.expect("S")?;
        if !self.peek(0).is_ascii_lowercase() {
            let n = self.sequence_number()?;
            let id = *self.substitutions.get(n)?;
            // A parameter refers to the argument of the function that it is used in.
            return Some(match self.used_parameters.get(&id) {
                Some(&index) if !self.in_lambda => self.argument(index).unwrap_or(id),
                _ => id,
            });
        }
        let (short, full) = match self.peek(0) {
            b'a' => ("std::allocator", "std::allocator"),
            b'b' => ("std::basic_string", "std::basic_string"),
            b's' => (
                "std::string",
                "std::basic_string<char, std::char_traits<char>, std::allocator<char> >",
            ),
            b'i' => ("std::istream", "std::basic_istream<char, std::char_traits<char> >"),
            b'o' => ("std::ostream", "std::basic_ostream<char, std::char_traits<char> >"),
            b'd' => ("std::iostream", "std::basic_iostream<char, std::char_traits<char> >"),
            _ => return None,
        };
        self.at += 1;
        let name = self.add(NameNode::Standard(short, full));
        let tagged = self.tags(name)?;
        if tagged != name {
            self.substitutions.push(tagged);
        }
        Some(tagged)
    }

    pub fn template_parameter(&mut self) -> Option<Id> {
        self.expect("T")?;
        let level = if self.eat("L") { self.index()? + 1 } else { 0 };
        let index = self.index()?;
        if self.permit_forward && level == 0 {
            self.forward.push((index, None));
            return Some(self.add(NameNode::Forward(self.forward.len() - 1)));
        }
        // The parameters of a generic lambda have no arguments.
        if self.in_lambda {
            let node = self.add(NameNode::Auto(index + 1));
            self.used_parameters.insert(node, index);
            return Some(node);
        }
        let argument = match level {
            0 => self.argument(index)?,
            _ => return None,
        };
        // A separate node, as a target of substitutions.
        let node = self.add(NameNode::Argument(argument));
        self.used_parameters.insert(node, index);
        Some(node)
    }

    fn argument(&self, index: usize) -> Option<Id> {
        self.parameters.as_ref()?.get(index).copied()
    }

    /// Arguments in `I…E`; those of the outermost function are the targets of `T_`.
    pub fn template_arguments(&mut self, outermost: bool) -> Option<Vec<Id>> {
        self.expect("I")?;
        if outermost {
            self.parameters = Some(Vec::new());
        }
        let follow = std::mem::replace(&mut self.arguments_follow, true);
        let all = self.arguments(outermost);
        self.arguments_follow = follow;
        all
    }

    fn arguments(&mut self, outermost: bool) -> Option<Vec<Id>> {
        let mut all = Vec::new();
        while !self.eat("E") {
            if !outermost {
                all.push(self.template_argument()?);
                continue;
            }
            let argument = self.template_argument()?;
            let meant = match self.node(argument) {
                NameNode::Pack(elements) => {
                    let elements = elements.clone();
                    self.add(NameNode::PackElement(elements))
                }
                _ => argument,
            };
            self.parameters.as_mut()?.push(meant);
            all.push(argument);
        }
        Some(all)
    }

    pub fn template_argument(&mut self) -> Option<Id> {
        match self.peek(0) {
            b'X' => {
                self.at += 1;
                let expression = self.expression()?;
                self.expect("E")?;
                Some(expression)
            }
            b'J' => {
                self.at += 1;
                let elements = self.until_end(Self::template_argument)?;
                Some(self.add(NameNode::Pack(elements)))
            }
            b'L' if self.peek(1) == b'Z' => {
                self.at += 2;
                let encoding = self.encoding(false)?;
                self.expect("E")?;
                Some(encoding)
            }
            b'L' => self.primary(),
            _ => self.type_(),
        }
    }
}
