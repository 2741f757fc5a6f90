//! From nodes to text: expressions.

use super::super::node::{Id, Node};
use super::{Printed, Printer};

impl<'a, 'p> Printer<'a, 'p> {
    /// An operand, in parentheses unless it is a mere name.
    fn operand(&mut self, id: Id) -> Printed {
        let simple = match self.node(id) {
            Node::Name(_) | Node::Braces(..) | Node::Parameter(_) | Node::Made(_) => true,
            &Node::Nested(_, name) => !matches!(self.node(name), Node::Template(..)),
            _ => false,
        };
        if simple {
            return self.both(id);
        }
        self.text("(")?;
        self.both(id)?;
        self.text(")")
    }

    pub(super) fn expression(&mut self, node: &'p Node<'a>) -> Printed {
        match node {
            &Node::Decltype(of) => {
                self.text("decltype (")?;
                self.both(of)?;
                self.text(")")
            }
            Node::Parameter(n) => self.text(&format!("{{parm#{n}}}")),
            &Node::Integer(of, value) => self.literal(of, value),
            &Node::Prefix(sign, of) => {
                self.text(sign)?;
                match self.node(of) {
                    // The address of a function has no parameters.
                    &Node::Encoding { name, .. }
                        if sign == "&" && matches!(self.node(name), Node::Nested(..)) =>
                    {
                        self.operand(name)
                    }
                    _ => self.operand(of),
                }
            }
            &Node::Postfix(of, sign) => {
                self.operand(of)?;
                self.text(sign)
            }
            &Node::Binary(left, sign, right) => {
                // It must not look like the end of a template's arguments.
                let closes = sign == ">";
                self.text(if closes { "(" } else { "" })?;
                self.operand(left)?;
                self.text(sign)?;
                self.operand(right)?;
                self.text(if closes { ")" } else { "" })
            }
            &Node::Conditional(if_, then, else_) => {
                self.operand(if_)?;
                self.text("?")?;
                self.operand(then)?;
                self.text(" : ")?;
                self.operand(else_)
            }
            &Node::Cast(word, to, of) => {
                self.text(word)?;
                self.text("<")?;
                self.both(to)?;
                self.text(">(")?;
                self.both(of)?;
                self.text(")")
            }
            Node::Convert(to, all) => {
                self.text("(")?;
                self.both(*to)?;
                self.text(")")?;
                match all[..] {
                    [one] => self.operand(one),
                    _ => self.parenthesized(all),
                }
            }
            Node::Braces(of, all) => {
                if let Some(of) = *of {
                    self.both(of)?;
                }
                self.text("{")?;
                self.list(all)?;
                self.text("}")
            }
            Node::Call(callee, arguments) => {
                match self.node(*callee) {
                    // What it is called with stands behind it.
                    &Node::Encoding { name, .. } => self.operand(name)?,
                    _ => self.operand(*callee)?,
                }
                self.parenthesized(arguments)
            }
            &Node::Subscript(of, index) => {
                self.operand(of)?;
                self.text("[")?;
                self.both(index)?;
                self.text("]")
            }
            &Node::Enclosed(before, of, behind) => {
                self.text(before)?;
                if behind.is_empty() {
                    self.operand(of)?
                } else {
                    self.both(of)?
                }
                self.text(behind)
            }
            &Node::Count(pack) => {
                let count = self.length(pack);
                self.text(&count.to_string())
            }
            Node::CountAll(all) => {
                let count: usize = all.iter().map(|&id| self.length(id)).sum();
                self.text(&count.to_string())
            }
            &Node::Fold(left, sign, pack, initial) => self.fold(left, sign, pack, initial),
            Node::New(word, placement, of, arguments) => {
                self.text(word)?;
                self.text(" ")?;
                if !placement.is_empty() {
                    self.parenthesized(placement)?;
                    self.text(" ")?;
                }
                self.both(*of)?;
                arguments.as_ref().map_or(Ok(()), |all| self.parenthesized(all))
            }
            &Node::Unnamed(of) => {
                self.text("~")?;
                self.both(of)
            }
            &Node::Global(of) => {
                self.text("::")?;
                self.both(of)
            }
            _ => Ok(()),
        }
    }

    fn parenthesized(&mut self, all: &[Id]) -> Printed {
        self.text("(")?;
        self.list(all)?;
        self.text(")")
    }

    fn length(&self, pack: Id) -> usize {
        match self.node(pack) {
            Node::Pack(elements) | Node::PackElement(elements) => elements.len(),
            &Node::Argument(of) | &Node::Expansion(of) => match self.node(of) {
                Node::Pack(elements) | Node::PackElement(elements) => elements.len(),
                _ => 1,
            },
            _ => 1,
        }
    }

    fn fold(&mut self, left: bool, sign: &str, pack: Id, initial: Option<Id>) -> Printed {
        // Packs stand as they are in it.
        let outer = self.element.take();
        self.text("(")?;
        match (left, initial) {
            (true, None) => {
                self.text("...")?;
                self.text(sign)?;
                self.operand(pack)?;
            }
            (false, None) => {
                self.operand(pack)?;
                self.text(sign)?;
                self.text("...")?;
            }
            (_, Some(initial)) => {
                let (first, second) = if left { (initial, pack) } else { (pack, initial) };
                self.operand(first)?;
                self.text(sign)?;
                self.text("...")?;
                self.text(sign)?;
                self.operand(second)?;
            }
        }
        self.element = outer;
        self.text(")")
    }

    fn literal(&mut self, of: Id, value: &str) -> Printed {
        let builtin = match self.node(of) {
            &Node::Builtin(name) => name,
            _ => "",
        };
        let suffix = match builtin {
            "int" => Some(""),
            "unsigned int" => Some("u"),
            "long" => Some("l"),
            "unsigned long" => Some("ul"),
            "long long" => Some("ll"),
            "unsigned long long" => Some("ull"),
            _ => None,
        };
        let (sign, digits) = value.strip_prefix('n').map_or(("", value), |digits| ("-", digits));
        if let Some(suffix) = suffix {
            self.text(sign)?;
            self.text(digits)?;
            return self.text(suffix);
        }
        match (builtin, value) {
            ("bool", "0") => return self.text("false"),
            ("bool", "1") => return self.text("true"),
            _ => {}
        }
        let float = ["float", "double", "long double", "__float128"].contains(&builtin);
        self.text("(")?;
        self.both(of)?;
        self.text(")")?;
        self.text(sign)?;
        self.text(if float { "[" } else { "" })?;
        self.text(digits)?;
        self.text(if float { "]" } else { "" })
    }
}
