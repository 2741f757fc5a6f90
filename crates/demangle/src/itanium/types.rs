//! Parses mangled names: types.

use super::node::{Id, NameNode, Reference, Throws};
use super::parse::Parser;

impl<'a> Parser<'a> {
    pub fn type_(&mut self) -> Option<Id> {
        self.deeper(|p| {
            if let Some(builtin) = p.builtin() {
                return Some(builtin);
            }
            let parsed = match (p.peek(0), p.peek(1)) {
                (b'r' | b'V' | b'K', _) if !p.qualifies_a_function() => p.qualified()?,
                (b'U', b'l' | b't') => p.name(None)?,
                (b'U', _) => p.qualified()?,
                (b'r' | b'V' | b'K' | b'F', _) | (b'D', b'o' | b'O' | b'w' | b'x') => {
                    p.function()?
                }
                (b'u', _) => {
                    p.at += 1;
                    p.source_name()?
                }
                (b'D', b't' | b'T') => p.decltype()?,
                (b'D', b'v') => p.vector()?,
                (b'D', b'p') => {
                    p.at += 2;
                    let pattern = p.type_()?;
                    p.add(NameNode::Expansion(pattern))
                }
                (b'D', b'F') => p.sized_float()?,
                (b'D', b'B' | b'U') => p.sized_integer()?,
                (b'A', _) => p.array()?,
                (b'M', _) => {
                    p.at += 1;
                    let class = p.type_()?;
                    let member = p.type_()?;
                    p.add(NameNode::Member(class, member))
                }
                (b'T', b's' | b'u' | b'e') => {
                    p.at += 2;
                    p.name(None)?
                }
                (b'T', _) => return p.parameter_type(),
                (b'P', _) => p.compound(NameNode::Pointer)?,
                (b'R', _) => p.compound(|to| NameNode::Referring(to, Reference::Left))?,
                (b'O', _) => p.compound(|to| NameNode::Referring(to, Reference::Right))?,
                (b'C', _) => p.compound(|inner| NameNode::Suffixed(inner, " _Complex"))?,
                (b'G', _) => p.compound(|inner| NameNode::Suffixed(inner, " _Imaginary"))?,
                (b'S', following) if following != b't' => return p.substituted_type(),
                _ => p.name(None)?,
            };
            p.substitutions.push(parsed);
            Some(parsed)
        })
    }

    fn compound(&mut self, node: impl FnOnce(Id) -> NameNode<'a>) -> Option<Id> {
        self.at += 1;
        let to = self.type_()?;
        Some(self.add(node(to)))
    }

    fn builtin(&mut self) -> Option<Id> {
        let (name, length) = match (self.peek(0), self.peek(1)) {
            (b'v', _) => ("void", 1),
            (b'w', _) => ("wchar_t", 1),
            (b'b', _) => ("bool", 1),
            (b'c', _) => ("char", 1),
            (b'a', _) => ("signed char", 1),
            (b'h', _) => ("unsigned char", 1),
            (b's', _) => ("short", 1),
            (b't', _) => ("unsigned short", 1),
            (b'i', _) => ("int", 1),
            (b'j', _) => ("unsigned int", 1),
            (b'l', _) => ("long", 1),
            (b'm', _) => ("unsigned long", 1),
            (b'x', _) => ("long long", 1),
            (b'y', _) => ("unsigned long long", 1),
            (b'n', _) => ("__int128", 1),
            (b'o', _) => ("unsigned __int128", 1),
            (b'f', _) => ("float", 1),
            (b'd', _) => ("double", 1),
            (b'e', _) => ("long double", 1),
            (b'g', _) => ("__float128", 1),
            (b'z', _) => ("...", 1),
            (b'D', b'd') => ("decimal64", 2),
            (b'D', b'e') => ("decimal128", 2),
            (b'D', b'f') => ("decimal32", 2),
            (b'D', b'h') => ("half", 2),
            (b'D', b'i') => ("char32_t", 2),
            (b'D', b's') => ("char16_t", 2),
            (b'D', b'u') => ("char8_t", 2),
            (b'D', b'a') => ("auto", 2),
            (b'D', b'c') => ("decltype(auto)", 2),
            (b'D', b'n') => ("decltype(nullptr)", 2),
            _ => return None,
        };
        self.at += length;
        Some(self.add(NameNode::Builtin(name)))
    }

    /// `DF16_`, `DF32x`, `DF16b`
    fn sized_float(&mut self) -> Option<Id> {
        self.at += 2;
        let bits = self.number(false)?;
        let name = match self.peek(0) {
            b'_' => format!("_Float{bits}"),
            b'x' => format!("_Float{bits}x"),
            b'b' => "std::bfloat16_t".to_owned(),
            _ => return None,
        };
        self.at += 1;
        Some(self.add(NameNode::Made(name)))
    }

    /// `DB8_`, `DU8_`
    fn sized_integer(&mut self) -> Option<Id> {
        let unsigned = if self.peek(1) == b'U' { "unsigned " } else { "" };
        self.at += 2;
        let bits = self.number(false)?;
        self.expect("_")?;
        Some(self.add(NameNode::Made(format!("{unsigned}_BitInt({bits})"))))
    }

    /// True if the qualifiers here belong to a member function's object.
    fn qualifies_a_function(&self) -> bool {
        let mut ahead = 0;
        for code in [b'r', b'V', b'K'] {
            ahead += usize::from(self.peek(ahead) == code);
        }
        match self.peek(ahead) {
            b'F' => true,
            b'D' => matches!(self.peek(ahead + 1), b'o' | b'O' | b'w' | b'x'),
            _ => false,
        }
    }

    fn qualified(&mut self) -> Option<Id> {
        self.deeper(|p| {
            if p.eat("U") {
                let mut qualifier = p.source_name()?;
                if p.peek(0) == b'I' {
                    let arguments = p.template_arguments(false)?;
                    qualifier = p.add(NameNode::Template(qualifier, arguments));
                }
                let inner = p.qualified()?;
                return Some(p.add(NameNode::Vendor(inner, qualifier)));
            }
            let qualifiers = p.qualifiers();
            let inner = p.type_()?;
            Some(if qualifiers == 0 {
                inner
            } else {
                p.add(NameNode::Qualified(inner, qualifiers))
            })
        })
    }

    fn function(&mut self) -> Option<Id> {
        let qualifiers = self.qualifiers();
        let throws = if self.eat("Do") {
            Throws::Nothing
        } else if self.eat("DO") {
            let unless = self.expression()?;
            self.expect("E")?;
            Throws::Unless(unless)
        } else if self.eat("Dw") {
            Throws::Only(self.until_end(Self::type_)?)
        } else {
            Throws::Anything
        };
        self.eat("Dx");
        self.expect("F")?;
        self.eat("Y");
        let result = self.type_()?;
        let mut parameters = Vec::new();
        let mut reference = Reference::None;
        loop {
            if self.eat("E") {
                break;
            }
            if self.eat("v") {
                continue;
            }
            if self.eat("RE") {
                reference = Reference::Left;
                break;
            }
            if self.eat("OE") {
                reference = Reference::Right;
                break;
            }
            parameters.push(self.type_()?);
        }
        Some(self.add(NameNode::Function { result, parameters, qualifiers, reference, throws }))
    }

    fn array(&mut self) -> Option<Id> {
        self.at += 1;
        let length = if self.peek(0).is_ascii_digit() {
            let number = self.number(false)?;
            Some(self.add(NameNode::Number(number)))
        } else if self.peek(0) == b'_' {
            None
        } else {
            Some(self.expression()?)
        };
        self.expect("_")?;
        let inner = self.type_()?;
        Some(self.add(NameNode::Array(inner, length)))
    }

    fn vector(&mut self) -> Option<Id> {
        self.at += 2;
        let length = if self.eat("_") {
            self.expression()?
        } else {
            let number = self.number(false)?;
            self.add(NameNode::Number(number))
        };
        self.expect("_")?;
        let inner = self.type_()?;
        Some(self.add(NameNode::Vector(inner, length)))
    }

    pub fn decltype(&mut self) -> Option<Id> {
        self.at += 2;
        let expression = self.expression()?;
        self.expect("E")?;
        Some(self.add(NameNode::Decltype(expression)))
    }

    fn parameter_type(&mut self) -> Option<Id> {
        let mut parsed = self.template_parameter()?;
        if self.arguments_follow && self.peek(0) == b'I' {
            self.substitutions.push(parsed);
            let arguments = self.template_arguments(false)?;
            parsed = self.add(NameNode::Template(parsed, arguments));
        }
        self.substitutions.push(parsed);
        Some(parsed)
    }

    fn substituted_type(&mut self) -> Option<Id> {
        let substituted = self.substitution()?;
        if self.peek(0) != b'I' {
            return Some(substituted);
        }
        let arguments = self.template_arguments(false)?;
        let whole = self.add(NameNode::Template(substituted, arguments));
        self.substitutions.push(whole);
        Some(whole)
    }
}
