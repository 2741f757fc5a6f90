//! Parts of a parsed mangled name.

/// Index of a node.
pub type Id = u32;

/// `const`, `volatile` and `restrict`, as bits.
pub type Qualifiers = u8;

/// `restrict` among [`Qualifiers`].
pub const RESTRICT: Qualifiers = 1;
/// `volatile` among [`Qualifiers`].
pub const VOLATILE: Qualifiers = 2;
/// `const` among [`Qualifiers`].
pub const CONST: Qualifiers = 4;

/// Reference qualifier of a member function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reference {
    /// No qualifier.
    #[default]
    None,
    /// `&`
    Left,
    /// `&&`
    Right,
}

/// Exception specification of a function type.
#[derive(Clone, Debug)]
pub enum Throws {
    /// Nothing.
    Anything,
    /// `noexcept`
    Nothing,
    /// `noexcept(EXPRESSION)`
    Unless(Id),
    /// `throw(TYPES)`
    Only(Vec<Id>),
}

/// A part of a name. Repeated parts share one node.
#[derive(Clone, Debug)]
pub enum NameNode<'a> {
    /// A literal word.
    Name(&'a str),
    /// A number of the mangled name, such as an array's length.
    Number(&'a str),
    /// `{unnamed type#N}` and other generated words.
    Made(String),
    /// A standard name with an abbreviation: the name, and that used by constructors.
    Standard(&'static str, &'static str),
    /// `scope::name`
    Nested(Id, Id),
    /// An entity in a function's body.
    Local(Id, Id),
    /// An entity in the default value of a function's parameter, number N from the end.
    DefaultArgument(Id, u32, Id),
    /// `name[abi:tag]`
    Tagged(Id, &'a str),
    /// `name<arguments>`
    Template(Id, Vec<Id>),
    /// Arguments of a pack.
    Pack(Vec<Id>),
    /// The current one of those, in an expansion of the pack.
    PackElement(Vec<Id>),
    /// `pattern...`
    Expansion(Id),
    /// A template parameter whose argument follows in the name.
    Forward(usize),
    /// A template parameter: its argument.
    Argument(Id),
    /// `auto:N`, a lambda's parameter.
    Auto(usize),
    /// `vtable for` and related prefixes.
    Special(&'static str, Id),
    /// `construction vtable for A-in-B`
    Construction(Id, Id),
    /// A constructor, named after its class.
    Constructor(Id),
    /// A destructor, named after its class.
    Destructor(Id),
    /// `operator TYPE`
    Conversion(Id),
    /// `operator"" name`
    Literal(Id),
    /// `{lambda(TYPES)#N}`
    Lambda(Vec<Id>, u32),
    /// `[a, b]`
    Bindings(Vec<Id>),
    /// A type of the language.
    Builtin(&'static str),
    /// A type with `const` or other qualifiers.
    Qualified(Id, Qualifiers),
    /// A type with a vendor's qualifier.
    Vendor(Id, Id),
    /// `*`
    Pointer(Id),
    /// `&` or `&&`
    Referring(Id, Reference),
    /// `Class::*`: class and member.
    Member(Id, Id),
    /// A type with a suffix such as `_Complex`.
    Suffixed(Id, &'static str),
    /// `[N]`
    Array(Id, Option<Id>),
    /// `__vector(N)`
    Vector(Id, Id),
    /// A function's type.
    Function {
        /// Return type.
        result: Id,
        /// Parameters.
        parameters: Vec<Id>,
        /// Qualifiers of the object.
        qualifiers: Qualifiers,
        /// Reference qualifier of the object.
        reference: Reference,
        /// Exception specification.
        throws: Throws,
    },
    /// A function with its return type and parameters.
    Encoding {
        /// Return type, only for template instances.
        result: Option<Id>,
        /// Its name.
        name: Id,
        /// Parameters.
        parameters: Vec<Id>,
        /// Qualifiers of the object.
        qualifiers: Qualifiers,
        /// Reference qualifier of the object.
        reference: Reference,
    },
    /// `decltype (EXPRESSION)`
    Decltype(Id),
    /// `{parm#N}`
    Parameter(u32),
    /// `(type)value`: type and value.
    Integer(Id, &'a str),
    /// `operator operand`
    Prefix(&'static str, Id),
    /// `operand operator`
    Postfix(Id, &'static str),
    /// `left operator right`
    Binary(Id, &'static str, Id),
    /// `a ? b : c`
    Conditional(Id, Id, Id),
    /// `static_cast<TYPE>(EXPRESSION)`
    Cast(&'static str, Id, Id),
    /// `(TYPE)(EXPRESSIONS)`
    Convert(Id, Vec<Id>),
    /// `TYPE{EXPRESSIONS}`
    Braces(Option<Id>, Vec<Id>),
    /// `callee(arguments)`
    Call(Id, Vec<Id>),
    /// `left[right]`
    Subscript(Id, Id),
    /// `word (WHAT)`
    Enclosed(&'static str, Id, &'static str),
    /// The number of a pack's elements.
    Count(Id),
    /// The number of several packs' elements.
    CountAll(Vec<Id>),
    /// `(... operator pack)`: from the left, operator, pack, initial value.
    Fold(bool, &'static str, Id, Option<Id>),
    /// `new (placement) TYPE(arguments)`: word, placement, type, arguments.
    New(&'static str, Vec<Id>, Id, Option<Vec<Id>>),
    /// `~name`
    Unnamed(Id),
    /// `::name`
    Global(Id),
}
