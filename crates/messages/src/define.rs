//! The macro that makes [`Message`](crate::Message) of the tables.

/// Makes the enum and its methods of entries:
///
/// ```text
/// /// The meaning.
/// Variant "code" Level if (CONDITION) { fact: Type = "what it is", … } ("headline", args…) [rest];
/// ```
///
/// A fact that is a number with a fraction has `#[serde(with = "json::finite")]` before it. Without
/// its condition, the level is [`Level::Detail`](crate::Level). The rest is one of
///
/// - `"; ", "remedy", args…`: the remedy, after what joins it with the sentence
/// - `"; " => OPTION`: a remedy that there is not always
/// - `because FACT`: the fact is the reason, a message that has a remedy of its own or none
macro_rules! define {
    (; $(
        $(#[doc = $meaning:literal])+
        $variant:ident $code:literal $level:ident $(if ($certain:expr))?
        $({ $($(#[$read:meta])* $fact:ident: $type:ty = $about:literal),+ $(,)? })?
        ($($headline:tt)+) $([$($rest:tt)+])?;
    )+) => {
        /// What is reported: a code with facts. [`Display`](fmt::Display) is its line.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(remote = "Self", tag = "code", content = "facts")]
        pub enum Message {
            $(
                $(#[doc = $meaning])+
                #[serde(rename = $code)]
                $variant $({ $(#[doc = $about] $(#[$read])* $fact: $type),+ })?,
            )+
            /// A message of another version of prof.
            #[serde(untagged, skip_deserializing)]
            Unknown {
                /// its code
                code: String,
                /// its facts as JSON
                #[serde(skip_serializing_if = "serde_json::Value::is_null")]
                facts: serde_json::Value,
                /// its level
                #[serde(skip_serializing)]
                level: Level,
            },
        }

        impl Message {
            /// The code, which never changes.
            pub fn code(&self) -> &str {
                match self {
                    $(Message::$variant { .. } => $code,)+
                    Message::Unknown { code, .. } => code,
                }
            }

            /// True if this version has facts for the code.
            fn has_facts(code: &str) -> bool {
                match code {
                    $($code => define!(@has_facts $($($fact)+)?),)+
                    _ => true,
                }
            }

            /// The importance to the reader of the figures.
            #[allow(unused_variables)]
            pub fn level(&self) -> Level {
                match self {
                    $(Message::$variant { $($($fact),+)? } => define!(@level $level $(, $certain)?),)+
                    Message::Unknown { level, .. } => *level,
                }
            }

            /// The headline, and what follows it.
            #[allow(unused_variables)]
            fn parts(&self) -> (String, Rest<'_>) {
                match self {
                    $(Message::$variant { $($($fact),+)? } =>
                        (format!($($headline)+), define!(@rest $($($rest)+)?)),)+
                    Message::Unknown { code, facts, .. } if facts.is_null() =>
                        (code.clone(), Rest::default()),
                    Message::Unknown { code, facts, .. } =>
                        (format!("{code} {facts}"), Rest::default()),
                }
            }
        }

        /// All entries of the tables.
        #[cfg(test)]
        fn entries() -> Vec<tests::Entry> {
            vec![$(tests::Entry {
                make: |pick| {
                    let _ = &pick;
                    Message::$variant { $($($fact: pick.value()),+)? }
                },
                code: $code,
                levels: define!(@levels $level $(, $certain)?),
                meaning: [$($meaning.trim()),+].join(" "),
                facts: vec![$($((stringify!($fact), $about)),+)?],
            }),+]
        }
    };
    (@has_facts) => { false };
    (@has_facts $($fact:ident)+) => { true };
    (@level $level:ident) => { Level::$level };
    (@level $level:ident, $certain:expr) => {
        if $certain { Level::$level } else { Level::Detail }
    };
    (@levels $level:ident) => { vec![Level::$level] };
    (@levels $level:ident, $certain:expr) => { vec![Level::$level, Level::Detail] };
    (@rest) => { Rest::default() };
    (@rest because $cause:ident) => { Rest { cause: Some($cause), remedy: None } };
    (@rest $join:literal, $($remedy:tt)+) => {
        Rest { cause: None, remedy: Some(($join, format!($($remedy)+))) }
    };
    (@rest $join:literal => $remedy:expr) => {
        Rest { cause: None, remedy: $remedy.map(|remedy| ($join, String::from(remedy))) }
    };
}
