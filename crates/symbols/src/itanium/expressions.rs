//! From the text of a mangled name to nodes: operators and expressions.

use super::node::{Id, Node};
use super::parse::{Parser, Seen};

/// How many operands an operator has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    One,
    Two,
    /// One behind it or, with `_` in front of that, before it.
    Step,
    /// Only as a function's name, or with a form of its own.
    Other,
}

/// Code, name and operands of the operators, sorted by code.
const OPERATORS: [(&str, &str, Kind); 58] = [
    ("aN", "&=", Kind::Two),
    ("aS", "=", Kind::Two),
    ("aa", "&&", Kind::Two),
    ("ad", "&", Kind::One),
    ("an", "&", Kind::Two),
    ("at", "alignof ", Kind::Other),
    ("aw", "co_await ", Kind::One),
    ("az", "alignof ", Kind::Other),
    ("cc", "const_cast", Kind::Other),
    ("cl", "()", Kind::Other),
    ("cm", ",", Kind::Two),
    ("co", "~", Kind::One),
    ("dV", "/=", Kind::Two),
    ("da", "delete[] ", Kind::One),
    ("dc", "dynamic_cast", Kind::Other),
    ("de", "*", Kind::One),
    ("dl", "delete ", Kind::One),
    ("ds", ".*", Kind::Two),
    ("dt", ".", Kind::Two),
    ("dv", "/", Kind::Two),
    ("eO", "^=", Kind::Two),
    ("eo", "^", Kind::Two),
    ("eq", "==", Kind::Two),
    ("ge", ">=", Kind::Two),
    ("gt", ">", Kind::Two),
    ("ix", "[]", Kind::Other),
    ("lS", "<<=", Kind::Two),
    ("le", "<=", Kind::Two),
    ("ls", "<<", Kind::Two),
    ("lt", "<", Kind::Two),
    ("mI", "-=", Kind::Two),
    ("mL", "*=", Kind::Two),
    ("mi", "-", Kind::Two),
    ("ml", "*", Kind::Two),
    ("mm", "--", Kind::Step),
    ("na", "new[]", Kind::Other),
    ("ne", "!=", Kind::Two),
    ("ng", "-", Kind::One),
    ("nt", "!", Kind::One),
    ("nw", "new", Kind::Other),
    ("oR", "|=", Kind::Two),
    ("oo", "||", Kind::Two),
    ("or", "|", Kind::Two),
    ("pL", "+=", Kind::Two),
    ("pl", "+", Kind::Two),
    ("pm", "->*", Kind::Two),
    ("pp", "++", Kind::Step),
    ("ps", "+", Kind::One),
    ("pt", "->", Kind::Two),
    ("qu", "?", Kind::Other),
    ("rM", "%=", Kind::Two),
    ("rS", ">>=", Kind::Two),
    ("rc", "reinterpret_cast", Kind::Other),
    ("rm", "%", Kind::Two),
    ("rs", ">>", Kind::Two),
    ("sc", "static_cast", Kind::Other),
    ("ss", "<=>", Kind::Two),
    ("te", "typeid ", Kind::Other),
];

impl<'a> Parser<'a> {
    fn operator(&mut self) -> Option<(&'static str, &'static str, Kind)> {
        let code = [self.look(0), self.look(1)];
        let found = OPERATORS.binary_search_by(|(known, ..)| known.as_bytes().cmp(&code)).ok()?;
        self.at += 2;
        Some(OPERATORS[found])
    }

    pub fn operator_name(&mut self, seen: Option<&mut Seen>) -> Option<Id> {
        if self.eat("cv") {
            // `operator T<…>` has its arguments behind it, and may use them before.
            let follow = std::mem::replace(&mut self.arguments_follow, false);
            let permit = self.permit_forward;
            self.permit_forward |= seen.is_some();
            let to = self.type_();
            (self.arguments_follow, self.permit_forward) = (follow, permit);
            if let Some(seen) = seen {
                seen.no_result = true;
            }
            return Some(self.add(Node::Conversion(to?)));
        }
        if self.eat("li") {
            let name = self.source_name()?;
            return Some(self.add(Node::Literal(name)));
        }
        if self.look(0) == b'v' && self.look(1).is_ascii_digit() {
            self.at += 2;
            let name = self.source_name()?;
            return Some(self.add(Node::Conversion(name)));
        }
        let (_, name, _) = self.operator()?;
        let name = name.trim_end();
        let space = if name.starts_with(|c: char| c.is_ascii_lowercase()) { " " } else { "" };
        Some(self.add(Node::Made(format!("operator{space}{name}"))))
    }

    /// A literal.
    pub fn primary(&mut self) -> Option<Id> {
        self.expect("L")?;
        if self.eat("_Z") || self.eat("Z") {
            let encoding = self.encoding(false)?;
            self.expect("E")?;
            return Some(encoding);
        }
        let of = self.type_()?;
        let start = self.at;
        while self.look(0) != b'E' {
            if self.look(0) == 0 {
                return None;
            }
            self.at += 1;
        }
        let value = std::str::from_utf8(self.text.get(start..self.at)?).ok()?;
        self.at += 1;
        Some(self.add(Node::Integer(of, value)))
    }

    pub fn expression(&mut self) -> Option<Id> {
        self.deeper(Self::any_expression)
    }

    fn any_expression(&mut self) -> Option<Id> {
        match (self.look(0), self.look(1)) {
            (b'L', _) => return self.primary(),
            (b'T', _) => return self.template_parameter(),
            (b'f', b'p') => return self.function_parameter(),
            (b'f', b'L') if self.look(2).is_ascii_digit() => return self.function_parameter(),
            (b'f', _) => return self.fold(),
            (b'0'..=b'9', _) | (b's', b'r') | (b'o', b'n') | (b'd', b'n') => {
                return self.unresolved_name();
            }
            _ => {}
        }
        if self.eat("gs") {
            let of = match (self.look(0), self.look(1)) {
                (b'n', b'w' | b'a') | (b'd', b'l' | b'a') => self.expression()?,
                _ => self.unresolved_name()?,
            };
            return Some(self.add(Node::Global(of)));
        }
        if let Some(word) = self.word_of_code() {
            return word;
        }
        let (code, name, kind) = self.operator()?;
        match kind {
            Kind::One => {
                let of = self.expression()?;
                Some(self.add(Node::Prefix(name, of)))
            }
            Kind::Two => {
                let (left, right) = (self.expression()?, self.expression()?);
                Some(self.add(Node::Binary(left, name, right)))
            }
            Kind::Step => {
                let before = self.eat("_");
                let of = self.expression()?;
                Some(self.add(if before {
                    Node::Prefix(name, of)
                } else {
                    Node::Postfix(of, name)
                }))
            }
            Kind::Other => self.other(code, name),
        }
    }

    /// Expressions that are no operators' names.
    fn word_of_code(&mut self) -> Option<Option<Id>> {
        let code = [self.look(0), self.look(1)];
        Some(match &code {
            b"cv" => {
                self.at += 2;
                self.conversion()
            }
            b"il" => {
                self.at += 2;
                self.until_end(Self::expression).map(|all| self.add(Node::Braces(None, all)))
            }
            b"tl" => {
                self.at += 2;
                self.type_().and_then(|of| {
                    let all = self.until_end(Self::expression)?;
                    Some(self.add(Node::Braces(Some(of), all)))
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
                Some(self.add(Node::Name("throw")))
            }
            b"sp" => {
                self.at += 2;
                self.expression().map(|pattern| self.add(Node::Expansion(pattern)))
            }
            b"sZ" => {
                self.at += 2;
                let pack = match self.look(0) {
                    b'T' => self.template_parameter(),
                    _ => self.function_parameter(),
                };
                pack.map(|pack| self.add(Node::Count(pack)))
            }
            b"sP" => {
                self.at += 2;
                self.until_end(Self::template_argument).map(|all| self.add(Node::CountAll(all)))
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
        let of = parse(self)?;
        Some(self.add(Node::Enclosed(before, of, behind)))
    }

    fn other(&mut self, code: &'static str, name: &'static str) -> Option<Id> {
        match code {
            "cc" | "dc" | "rc" | "sc" => {
                let (to, of) = (self.type_()?, self.expression()?);
                Some(self.add(Node::Cast(name, to, of)))
            }
            "cl" => {
                let callee = self.expression()?;
                let arguments = self.until_end(Self::expression)?;
                Some(self.add(Node::Call(callee, arguments)))
            }
            "ix" => {
                let (of, index) = (self.expression()?, self.expression()?);
                Some(self.add(Node::Subscript(of, index)))
            }
            "qu" => {
                let (if_, then, else_) =
                    (self.expression()?, self.expression()?, self.expression()?);
                Some(self.add(Node::Conditional(if_, then, else_)))
            }
            "nw" | "na" => {
                let mut placement = Vec::new();
                while !self.eat("_") {
                    placement.push(self.expression()?);
                }
                let of = self.type_()?;
                let arguments = if self.eat("pi") {
                    Some(self.until_end(Self::expression)?)
                } else if self.look(0) == b'i' {
                    Some(vec![self.expression()?])
                } else {
                    self.expect("E")?;
                    None
                };
                Some(self.add(Node::New(name, placement, of, arguments)))
            }
            _ => None,
        }
    }

    fn conversion(&mut self) -> Option<Id> {
        let follow = std::mem::replace(&mut self.arguments_follow, false);
        let to = self.type_();
        self.arguments_follow = follow;
        let to = to?;
        let all = match self.eat("_") {
            true => self.until_end(Self::expression)?,
            false => vec![self.expression()?],
        };
        Some(self.add(Node::Convert(to, all)))
    }

    fn function_parameter(&mut self) -> Option<Id> {
        if self.eat("fpT") {
            return Some(self.add(Node::Name("this")));
        }
        if self.eat("fL") {
            self.number(false)?;
            self.expect("p")?;
        } else {
            self.expect("fp")?;
        }
        self.qualifiers();
        let n = self.index()?;
        Some(self.add(Node::Parameter(n as u32 + 1)))
    }

    fn fold(&mut self) -> Option<Id> {
        self.at += 1;
        let kind = self.look(0);
        self.at += 1;
        let (_, name, _) = self.operator()?;
        let first = self.expression()?;
        Some(match kind {
            b'l' => self.add(Node::Fold(true, name, first, None)),
            b'r' => self.add(Node::Fold(false, name, first, None)),
            b'L' | b'R' => {
                let second = self.expression()?;
                let (pack, initial) = if kind == b'L' { (second, first) } else { (first, second) };
                self.add(Node::Fold(kind == b'L', name, pack, Some(initial)))
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
                whole = self.add(Node::Nested(whole, next));
            }
            let base = self.base_name()?;
            return Some(self.add(Node::Nested(whole, base)));
        }
        if !self.eat("sr") {
            return self.base_name();
        }
        let scope = if self.look(0).is_ascii_digit() {
            let mut whole = self.simple_name()?;
            while !self.eat("E") {
                let next = self.simple_name()?;
                whole = self.add(Node::Nested(whole, next));
            }
            whole
        } else {
            let of = self.unresolved_type()?;
            self.with_arguments(of)?
        };
        let base = self.base_name()?;
        Some(self.add(Node::Nested(scope, base)))
    }

    fn with_arguments(&mut self, name: Id) -> Option<Id> {
        if self.look(0) != b'I' {
            return Some(name);
        }
        let arguments = self.template_arguments(false)?;
        Some(self.add(Node::Template(name, arguments)))
    }

    fn unresolved_type(&mut self) -> Option<Id> {
        match self.look(0) {
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
            b'S' if self.look(1) == b't' => {
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
        if self.look(0).is_ascii_digit() {
            return self.simple_name();
        }
        if self.eat("dn") {
            let of = match self.look(0) {
                b'0'..=b'9' => self.simple_name()?,
                _ => self.unresolved_type()?,
            };
            return Some(self.add(Node::Unnamed(of)));
        }
        self.eat("on");
        let name = self.operator_name(None)?;
        self.with_arguments(name)
    }
}
