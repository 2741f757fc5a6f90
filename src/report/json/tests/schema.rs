//! The schema of the JSON of all views, made from the types of the answers: `docs/json.schema.json`.

use std::path::Path;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use view::answer::{
    BoxesAnswer, CoverageAnswer, DiffAnswer, DiffBoxesAnswer, GraphAnswer, HeaderAnswer,
    OverAnswer, PeekAnswer, QualityAnswer, SandwichAnswer, SandwichBoxesAnswer, StatesAnswer,
    TableAnswer, TagsAnswer, ThreadsAnswer, TracesAnswer, TreeAnswer,
};

/// The type of the answer of each command.
fn answers(generator: &mut SchemaGenerator) -> Map<String, Value> {
    fn subschema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
        generator.subschema_for::<T>().into()
    }
    let g = generator;
    let answers = [
        ("prof report", subschema::<TableAnswer<'static>>(g)),
        ("prof report --over", subschema::<OverAnswer<'static>>(g)),
        ("prof report -g", subschema::<TreeAnswer<'static>>(g)),
        ("prof report --sandwich", subschema::<SandwichAnswer<'static>>(g)),
        ("prof report --peek", subschema::<PeekAnswer<'static>>(g)),
        ("prof report --traces", subschema::<TracesAnswer<'static>>(g)),
        ("prof report --tags", subschema::<TagsAnswer<'static>>(g)),
        ("prof report --states", subschema::<StatesAnswer<'static>>(g)),
        ("prof report --quality", subschema::<QualityAnswer<'static>>(g)),
        ("prof report --coverage", subschema::<CoverageAnswer<'static>>(g)),
        ("prof report --header-only", subschema::<HeaderAnswer<'static>>(g)),
        ("prof threads", subschema::<ThreadsAnswer<'static>>(g)),
        ("prof graph", subschema::<GraphAnswer<'static>>(g)),
        ("prof flame", subschema::<BoxesAnswer<'static>>(g)),
        ("prof flame --sandwich", subschema::<SandwichBoxesAnswer<'static>>(g)),
        ("prof flame --diff", subschema::<DiffBoxesAnswer<'static>>(g)),
        ("prof diff", subschema::<DiffAnswer<'static>>(g)),
        ("prof annotate", crate::report::annotate::schema(g)),
    ];
    answers.into_iter().map(|(command, schema)| (command.to_owned(), schema)).collect()
}

/// The schema, as a text.
fn schema() -> String {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let commands = answers(&mut generator);
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "JSON of prof's views",
        "description": "The member `commands` has the schema of each command with --json. \
                        Later versions may add members.",
        "anyOf": commands.values().collect::<Vec<_>>(),
        "commands": commands,
        "$defs": generator.take_definitions(true),
    });
    // In Rust's words in the documentation of the types.
    serde_json::to_string_pretty(&schema).unwrap().replace("`None`", "null") + "\n"
}

fn docs(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name)
}

/// `UPDATE_SCHEMA=1` writes the file.
#[test]
fn the_schema_is_that_of_the_answers() {
    let (path, schema) = (docs("json.schema.json"), schema());
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(
        written == schema,
        "UPDATE_SCHEMA=1 cargo test -p prof schema writes docs/json.schema.json"
    );
}

#[test]
fn all_members_of_answers_are_documented() {
    let text = std::fs::read_to_string(docs("json.md")).unwrap();
    let schema: Value = serde_json::from_str(&schema()).unwrap();
    let mut missing = Vec::new();
    let mut pending: Vec<&Value> = vec![&schema];
    while let Some(value) = pending.pop() {
        if let Some(Value::Object(properties)) = value.get("properties") {
            let names = properties.keys();
            missing.extend(names.filter(|name| !text.contains(&format!("`{name}`"))));
        }
        match value {
            Value::Object(members) => pending.extend(members.values()),
            Value::Array(items) => pending.extend(items),
            _ => {}
        }
    }
    assert!(missing.is_empty(), "docs/json.md has not {missing:?}");
}
