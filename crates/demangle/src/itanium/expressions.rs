//! Parses mangled names: operators and expressions.

use super::node::{Id, NameNode};
use super::parse::{NameTraits, Parser};

/// Operands of an operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operands {
    One,
    Two,
    /// One: a postfix or, with `_` before it, a prefix operator.
    Step,
    /// Only as a function's name, or with a special form.
    Other,
}

/// Code, name and operands of the operators, sorted by code.
const OPERATORS: [(&str, &str, Operands); 58] = [
    ("aN", "&=", Operands::Two),
    ("aS", "=", Operands::Two),
    ("aa", "&&", Operands::Two),
    ("ad", "&", Operands::One),
    ("an", "&", Operands::Two),
    ("at", "alignof ", Operands::Other),
    ("aw", "co_await ", Operands::One),
    ("az", "alignof ", Operands::Other),
    ("cc", "const_cast", Operands::Other),
    ("cl", "()", Operands::Other),
    ("cm", ",", Operands::Two),
    ("co", "~", Operands::One),
    ("dV", "/=", Operands::Two),
    ("da", "delete[] ", Operands::One),
    ("dc", "dynamic_cast", Operands::Other),
    ("de", "*", Operands::One),
    ("dl", "delete ", Operands::One),
    ("ds", ".*", Operands::Two),
    ("dt", ".", Operands::Two),
    ("dv", "/", Operands::Two),
    ("eO", "^=", Operands::Two),
    ("eo", "^", Operands::Two),
    ("eq", "==", Operands::Two),
    ("ge", ">=", Operands::Two),
    ("gt", ">", Operands::Two),
    ("ix", "[]", Operands::Other),
    ("lS", "<<=", Operands::Two),
    ("le", "<=", Operands::Two),
    ("ls", "<<", Operands::Two),
    ("lt", "<", Operands::Two),
    ("mI", "-=", Operands::Two),
    ("mL", "*=", Operands::Two),
    ("mi", "-", Operands::Two),
    ("ml", "*", Operands::Two),
    ("mm", "--", Operands::Step),
    ("na", "new[]", Operands::Other),
    ("ne", "!=", Operands::Two),
    ("ng", "-", Operands::One),
    ("nt", "!", Operands::One),
    ("nw", "new", Operands::Other),
    ("oR", "|=", Operands::Two),
    ("oo", "||", Operands::Two),
    ("or", "|", Operands::Two),
    ("pL", "+=", Operands::Two),
    ("pl", "+", Operands::Two),
    ("pm", "->*", Operands::Two),
    ("pp", "++", Operands::Step),
    ("ps", "+", Operands::One),
    ("pt", "->", Operands::Two),
    ("qu", "?", Operands::Other),
    ("rM", "%=", Operands::Two),
    ("rS", ">>=", Operands::Two),
    ("rc", "reinterpret_cast", Operands::Other),
    ("rm", "%", Operands::Two),
    ("rs", ">>", Operands::Two),
    ("sc", "static_cast", Operands::Other),
    ("ss", "<=>", Operands::Two),
    ("te", "typeid ", Operands::Other),
];

impl<'a> Parser<'a> {
    fn operator(&mut self) -> Option<(&'static str, &'static str, Operands)> {
        let code = [self.peek(0), self.peek(1)];
        let found =
            OPERATORS.binary_search_by(|(operator, ..)| operator.as_bytes().cmp(&code)).ok()?;
        self.at += 2;
        Some(OPERATORS[found])
    }

    pub fn operator_name(&mut self, seen: Option<&mut NameTraits>) -> Option<Id> {
        if self.eat("cv") {
            // `operator T<…>` has its arguments after it, and may use them before.
            let follow = std::mem::replace(&mut self.arguments_follow, false);
            let permit = self.permit_forward;
            self.permit_forward |= seen.is_some();
            let to = self.type_();
            (self.arguments_follow, self.permit_forward) = (follow, permit);
            if let Some(seen) = seen {
                seen.no_result = true;
            }
            return Some(self.add(NameNode::Conversion(to?)));
        }
        if self.eat("li") {
            let name = self.source_name()?;
            return Some(self.add(NameNode::Literal(name)));
        }
        if self.peek(0) == b'v' && self.peek(1).is_ascii_digit() {
            self.at += 2;
            let name = self.source_name()?;
            return Some(self.add(NameNode::Conversion(name)));
        }
        let (_, name, _) = self.operator()?;
        let name = name.trim_end();
        let space = if name.starts_with(|c: char| c.is_ascii_lowercase()) { " " } else { "" };
        Some(self.add(NameNode::Made(format!("operator{space}{name}"))))
    }

    /// A literal.
    pub fn primary(&mut self) -> Option<Id> {
        self.expect("L")?;
        if self.eat("_Z") || self.eat("Z") {
            let encoding = self.encoding(false)?;
            self.expect("E")?;
            return Some(encoding);
        }
        let inner = self.type_()?;
        let start = self.at;
        while self.peek(0) != b'E' {
            if self.peek(0) == 0 {
                return None;
            }
            self.at += 1;
        }
        let value = std::str::from_utf8(self.text.get(start..self.at)?).ok()?;
        self.at += 1;
        Some(self.add(NameNode::Integer(inner, value)))
    }

    pub fn expression(&mut self) -> Option<Id> {
        self.deeper(Self::any_expression)
    }

    fn any_expression(&mut self) -> Option<Id> {
        match (self.peek(0), self.peek(1)) {
            (b'L', _) => return self.primary(),
            (b'T', _) => return self.template_parameter(),
            (b'f', b'p') => return self.function_parameter(),
            (b'f', b'L') if self.peek(2).is_ascii_digit() => return self.function_parameter(),
            (b'f', _) => return self.fold(),
            (b'0'..=b'9', _) | (b's', b'r') | (b'o' | b'd', b'n') => {
                return self.unresolved_name();
            }
            _ => {}
        }
        if self.eat("gs") {
            let inner = match (self.peek(0), self.peek(1)) {
                (b'n', b'w' | b'a') | (b'd', b'l' | b'a') => self.expression()?,
                _ => self.unresolved_name()?,
            };
            return Some(self.add(NameNode::Global(inner)));
        }
        if let Some(word) = self.word_of_code() {
            return word;
        }
        let (code, name, kind) = self.operator()?;
        match kind {
            Operands::One => {
                let inner = self.expression()?;
                Some(self.add(NameNode::Prefix(name, inner)))
            }
            Operands::Two => {
                let left = self.expression()?;
                let right = self.expression()?;
                Some(self.add(NameNode::Binary(left, name, right)))
            }
            Operands::Step => {
                let before = self.eat("_");
                let inner = self.expression()?;
                Some(self.add(if before {
                    NameNode::Prefix(name, inner)
                } else {
                    NameNode::Postfix(inner, name)
                }))
            }
            Operands::Other => self.other(code, name),
        }
    }

    /// Expressions that are not operators.
    fn word_of_code(&mut self) -> Option<Option<Id>> {
        let code = [self.peek(0), self.peek(1)];
        Some(match &code {
            b"cv" => {
                self.at += 2;
                self.conversion()
            }
            b"il" => {
                self.at += 2;
                self.until_end(Self::expression).map(|all| self.add(NameNode::Braces(None, all)))
            }
            b"tl" => {
                self.at += 2;
                self.type_().and_then(|inner| {
                    let all = self.until_end(Self::expression)?;
                    Some(self.add(NameNode::Braces(Some(inner), all)))
                })
            }
            b"nx" => self.enclosed("noexcept(", ")", Self::expression),
            b"st" => self.enclosed("sizeof (", ")", Self::type_),
            b"sz" => self.enclosed("sizeof ", "", Self::expression),
            b"at" => self.enclosed("alignof (", ")", Self::type_),
            b"az" => self.enclosed("alignof ", "", Self::expression),
            b"ti" => self.enclosed("typeid ", "", Self::type_),
            b"te" => self.enclosed("typeid ", "", Self::expression),
            b"tw" => self.enclosed("throw ", "", Self::expression),
            b"tr" => {
                self.at += 2;
                Some(self.add(NameNode::Name("throw")))
            }
            b"sp" => {
                self.at += 2;
                self.expression().map(|pattern| self.add(NameNode::Expansion(pattern)))
            }
            b"sZ" => {
                self.at += 2;
                let pack = match self.peek(0) {
                    b'T' => self.template_parameter(),
                    _ => self.function_parameter(),
                };
                pack.map(|pack| self.add(NameNode::Count(pack)))
            }
            b"sP" => {
                self.at += 2;
                self.until_end(Self::template_argument).map(|all| self.add(NameNode::CountAll(all)))
            }
            _ => return None,
        })
    }

    fn enclosed(
        &mut self,
        before: &'static str,
        behind: &'static str,
        parse: fn(&mut Self) -> Option<Id>,
    ) -> Option<Id> {
        self.at += 2;
        let inner = parse(self)?;
        Some(self.add(NameNode::Enclosed(before, inner, behind)))
    }

    fn other(&mut self, code: &'static str, name: &'static str) -> Option<Id> {
        match code {
            "cc" | "dc" | "rc" | "sc" => {
                let to = self.type_()?;
                let inner = self.expression()?;
                Some(self.add(NameNode::Cast(name, to, inner)))
            }
            "cl" => {
                let callee = self.expression()?;
                let arguments = self.until_end(Self::expression)?;
                Some(self.add(NameNode::Call(callee, arguments)))
            }
            "ix" => {
                let inner = self.expression()?;
                let index = self.expression()?;
                Some(self.add(NameNode::Subscript(inner, index)))
            }
            "qu" => {
                let if_ = self.expression()?;
                let then = self.expression()?;
                let else_ = self.expression()?;
                Some(self.add(NameNode::Conditional(if_, then, else_)))
            }
            "nw" | "na" => {
                let mut placement = Vec::new();
                while !self.eat("_") {
                    placement.push(self.expression()?);
                }
                let inner = self.type_()?;
                let arguments = if self.eat("pi") {
                    Some(self.until_end(Self::expression)?)
                } else if self.peek(0) == b'i' {
                    Some(vec![self.expression()?])
                } else {
                    self.expect("E")?;
                    None
                };
                Some(self.add(NameNode::New(name, placement, inner, arguments)))
            }
            _ => None,
        }
    }

    fn conversion(&mut self) -> Option<Id> {
        let follow = std::mem::replace(&mut self.arguments_follow, false);
        let to = self.type_();
        self.arguments_follow = follow;
        let to = to?;
        let all = if self.eat("_") {
            self.until_end(Self::expression)?
        } else {
            vec![self.expression()?]
        };
        Some(self.add(NameNode::Convert(to, all)))
    }

    fn function_parameter(&mut self) -> Option<Id> {
        if self.eat("fpT") {
            return Some(self.add(NameNode::Name("this")));
        }
        if self.eat("fL") {
            self.number(false)?;
            self.expect("p")?;
        } else {
            self.expect("fp")?;
        }
        self.qualifiers();
        let n = self.index()?;
        Some(self.add(NameNode::Parameter(n as u32 + 1)))
    }

    fn fold(&mut self) -> Option<Id> {
        self.at += 1;
        let kind = self.peek(0);
        self.at += 1;
        let (_, name, _) = self.operator()?;
        let first = self.expression()?;
        Some(match kind {
            b'l' => self.add(NameNode::Fold(true, name, first, None)),
            b'r' => self.add(NameNode::Fold(false, name, first, None)),
            b'L' | b'R' => {
                let second = self.expression()?;
                let (pack, initial) = if kind == b'L' { (second, first) } else { (first, second) };
                self.add(NameNode::Fold(kind == b'L', name, pack, Some(initial)))
            }
            _ => return None,
        })
    }

    fn unresolved_name(&mut self) -> Option<Id> {
        if self.eat("srN") {
            let mut whole = self.unresolved_type()?;
            whole = self.with_arguments(whole)?;
            while !self.eat("E") {
                let next = self.simple_name()?;
                whole = self.add(NameNode::Nested(whole, next));
            }
            let base = self.base_name()?;
            return Some(self.add(NameNode::Nested(whole, base)));
        }
        if !self.eat("sr") {
            return self.base_name();
        }
        let scope = if self.peek(0).is_ascii_digit() {
            let mut whole = self.simple_name()?;
            while !self.eat("E") {
                let next = self.simple_name()?;
                whole = self.add(NameNode::Nested(whole, next));
            }
            whole
        } else {
            let inner = self.unresolved_type()?;
            self.with_arguments(inner)?
        };
        let base = self.base_name()?;
        Some(self.add(NameNode::Nested(scope, base)))
    }

    fn with_arguments(&mut self, name: Id) -> Option<Id> {
        if self.peek(0) != b'I' {
            return Some(name);
        }
        let arguments = self.template_arguments(false)?;
        Some(self.add(NameNode::Template(name, arguments)))
    }

    fn unresolved_type(&mut self) -> Option<Id> {
        match self.peek(0) {
            b'T' => {
                let parameter = self.template_parameter()?;
                self.substitutions.push(parameter);
                Some(parameter)
            }
            b'D' => {
                let decltype = self.decltype()?;
                self.substitutions.push(decltype);
                Some(decltype)
            }
            b'S' if self.peek(1) == b't' => {
                let name = self.name(None)?;
                self.substitutions.push(name);
                Some(name)
            }
            _ => self.substitution(),
        }
    }

    fn simple_name(&mut self) -> Option<Id> {
        let name = self.source_name()?;
        self.with_arguments(name)
    }

    fn base_name(&mut self) -> Option<Id> {
        if self.peek(0).is_ascii_digit() {
            return self.simple_name();
        }
        if self.eat("dn") {
            let inner = match self.peek(0) {
                b'0'..=b'9' => self.simple_name()?,
                _ => self.unresolved_type()?,
            };
            return Some(self.add(NameNode::Unnamed(inner)));
        }
        self.eat("on");
        let name = self.operator_name(None)?;
        self.with_arguments(name)
    }
}
