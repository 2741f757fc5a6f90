//! Prints nodes as text: expressions.

use super::super::node::{Id, NameNode};
use super::{Printed, Printer};

impl<'a, 'p> Printer<'a, 'p> {
    /// An operand, in parentheses unless it is only a name.
    fn operand(&mut self, id: Id) -> Printed {
        let simple = match self.node(id) {
            NameNode::Name(_)
            | NameNode::Braces(..)
            | NameNode::Parameter(_)
            | NameNode::Made(_) => true,
            &NameNode::Nested(_, name) => !matches!(self.node(name), NameNode::Template(..)),
            _ => false,
        };
        if simple {
            return self.both(id);
        }
        self.text("(")?;
        self.both(id)?;
        self.text(")")
    }

    pub(super) fn expression(&mut self, node: &'p NameNode<'a>) -> Printed {
        match node {
            &NameNode::Decltype(inner) => {
                self.text("decltype (")?;
                self.both(inner)?;
                self.text(")")
            }
            NameNode::Parameter(n) => self.text(&format!("{{parm#{n}}}")),
            &NameNode::Integer(inner, value) => self.literal(inner, value),
            &NameNode::Count(pack) => {
                let count = self.length(pack);
                self.text(&count.to_string())
            }
            NameNode::CountAll(all) => {
                let count: usize = all.iter().map(|&id| self.length(id)).sum();
                self.text(&count.to_string())
            }
            &NameNode::Unnamed(inner) => {
                self.text("~")?;
                self.both(inner)
            }
            &NameNode::Global(inner) => {
                self.text("::")?;
                self.both(inner)
            }
            _ => self.operation(node),
        }
    }

    fn operation(&mut self, node: &'p NameNode<'a>) -> Printed {
        match *node {
            NameNode::Prefix(sign, inner) => {
                self.text(sign)?;
                match self.node(inner) {
                    // The address of a function has no parameters.
                    &NameNode::Encoding { name, .. }
                        if sign == "&" && matches!(self.node(name), NameNode::Nested(..)) =>
                    {
                        self.operand(name)
                    }
                    _ => self.operand(inner),
                }
            }
            NameNode::Postfix(inner, sign) => {
                self.operand(inner)?;
                self.text(sign)
            }
            NameNode::Binary(left, sign, right) => {
                // It must not look like the end of template arguments.
                let closes = sign == ">";
                self.text(if closes { "(" } else { "" })?;
                self.operand(left)?;
                self.text(sign)?;
                self.operand(right)?;
                self.text(if closes { ")" } else { "" })
            }
            NameNode::Conditional(if_, then, else_) => {
                self.operand(if_)?;
                self.text("?")?;
                self.operand(then)?;
                self.text(" : ")?;
                self.operand(else_)
            }
            NameNode::Subscript(inner, index) => {
                self.operand(inner)?;
                self.text("[")?;
                self.both(index)?;
                self.text("]")
            }
            NameNode::Enclosed(before, inner, behind) => {
                self.text(before)?;
                if behind.is_empty() {
                    self.operand(inner)?;
                } else {
                    self.both(inner)?;
                }
                self.text(behind)
            }
            NameNode::Fold(left, sign, pack, initial) => self.fold(left, sign, pack, initial),
            _ => self.call(node),
        }
    }

    /// Calls, conversions and new objects: what has arguments.
    fn call(&mut self, node: &'p NameNode<'a>) -> Printed {
        match node {
            &NameNode::Cast(word, to, inner) => {
                self.text(word)?;
                self.text("<")?;
                self.both(to)?;
                self.text(">(")?;
                self.both(inner)?;
                self.text(")")
            }
            NameNode::Convert(to, all) => {
                self.text("(")?;
                self.both(*to)?;
                self.text(")")?;
                match all[..] {
                    [element] => self.operand(element),
                    _ => self.parenthesized(all),
                }
            }
            NameNode::Braces(inner, all) => {
                if let Some(inner) = *inner {
                    self.both(inner)?;
                }
                self.text("{")?;
                self.list(all)?;
                self.text("}")
            }
            NameNode::Call(callee, arguments) => {
                match self.node(*callee) {
                    // Its arguments follow.
                    &NameNode::Encoding { name, .. } => self.operand(name)?,
                    _ => self.operand(*callee)?,
                }
                self.parenthesized(arguments)
            }
            NameNode::New(word, placement, inner, arguments) => {
                self.text(word)?;
                self.text(" ")?;
                if !placement.is_empty() {
                    self.parenthesized(placement)?;
                    self.text(" ")?;
                }
                self.both(*inner)?;
                arguments.as_ref().map_or(Ok(()), |all| self.parenthesized(all))
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
            NameNode::Pack(elements) | NameNode::PackElement(elements) => elements.len(),
            &NameNode::Argument(inner) | &NameNode::Expansion(inner) => match self.node(inner) {
                NameNode::Pack(elements) | NameNode::PackElement(elements) => elements.len(),
                _ => 1,
            },
            _ => 1,
        }
    }

    fn fold(&mut self, left: bool, sign: &str, pack: Id, initial: Option<Id>) -> Printed {
        // Packs in it are not expanded.
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

    fn literal(&mut self, inner: Id, value: &str) -> Printed {
        let builtin = match self.node(inner) {
            &NameNode::Builtin(name) => name,
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
        self.both(inner)?;
        self.text(")")?;
        self.text(sign)?;
        self.text(if float { "[" } else { "" })?;
        self.text(digits)?;
        self.text(if float { "]" } else { "" })
    }
}
