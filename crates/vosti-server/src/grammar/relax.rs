//! A schema of a function's arguments without the parts that no grammar says: the model is still told of them.
//!
//! The result is a function of the schema: a receipt holds the client's schema, and a replay leaves out the same parts. A schema
//! that compiles is never changed. Nothing here is applied to `response_format` or to a function with `strict`.

use serde_json::{Map, Value, json};

/// Keywords that no grammar says.
const UNSAID: [&str; 16] = [
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];
/// Keywords whose value is a map of schemas, a list of schemas or a schema.
const MAPS: [&str; 4] = ["$defs", "definitions", "properties", "patternProperties"];
const LISTS: [&str; 5] = ["allOf", "anyOf", "items", "oneOf", "prefixItems"];
const SINGLE: [&str; 3] = ["additionalItems", "additionalProperties", "items"];
/// The last keywords to go: without them a value may be anything.
const CORE: [&str; 6] = ["$defs", "$ref", "definitions", "items", "properties", "type"];

/// Most schemas that are compiled for one function.
const COMPILED_MAX: usize = 300;

/// A schema that compiles, and the places of what was left out, such as `properties.tags.uniqueItems`.
pub struct Relaxed {
    pub schema: Value,
    pub left_out: Vec<String>,
}

/// Leaves out of `schema` what keeps it from compiling.
pub fn relaxed(schema: &Value, compiles: &dyn Fn(&Value) -> bool) -> Relaxed {
    let mut relaxing = Relaxing { compiles, left: COMPILED_MAX, definitions: Map::new(), left_out: Vec::new() };
    let mut schema = schema.clone();
    relaxing.prune(&mut schema, "");
    for name in ["$defs", "definitions"] {
        let Some(Value::Object(definitions)) = schema.get(name).cloned() else { continue };
        relaxing.definitions.insert(name.into(), definitions.clone().into());
        for (key, definition) in definitions {
            let definition = relaxing.relax(definition, &format!("{name}.{key}"));
            relaxing.definitions[name][&key] = definition.clone();
            schema[name][&key] = definition;
        }
    }
    let schema = relaxing.relax(schema, "");
    Relaxed { schema, left_out: relaxing.left_out }
}

struct Relaxing<'a> {
    compiles: &'a dyn Fn(&Value) -> bool,
    left: usize,
    /// The root's, for references.
    definitions: Map<String, Value>,
    left_out: Vec<String>,
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}

/// The schemas directly below a schema, with their places.
fn children<'a>(members: &'a mut Map<String, Value>, path: &str) -> Vec<(String, &'a mut Value)> {
    let mut found = Vec::new();
    for (keyword, value) in members {
        let at = below(path, keyword);
        let is = |of: &[&str]| of.contains(&keyword.as_str());
        let (map, list, single) = (is(&MAPS), is(&LISTS) && value.is_array(), is(&SINGLE));
        if map {
            let schemas = value.as_object_mut().into_iter().flatten();
            found.extend(schemas.map(|(name, schema)| (below(&at, name), schema)));
        } else if list {
            let schemas = value.as_array_mut().into_iter().flatten().enumerate();
            found.extend(schemas.map(|(index, schema)| (format!("{at}[{index}]"), schema)));
        } else if single {
            found.push((at, value));
        }
    }
    found
}

impl Relaxing<'_> {
    /// Removes the keywords of [`UNSAID`], and those that are null, everywhere.
    fn prune(&mut self, schema: &mut Value, path: &str) {
        let Some(members) = schema.as_object_mut() else { return };
        let unsaid = |name: &str, value: &Value| match name {
            "const" | "default" | "examples" => false,
            _ => UNSAID.contains(&name) || value.is_null(),
        };
        members.retain(|name, value| {
            let out = unsaid(name, value);
            if out {
                self.left_out.push(below(path, name));
            }
            !out
        });
        children(members, path).into_iter().for_each(|(at, child)| self.prune(child, &at));
    }

    fn compiles(&mut self, schema: &Value) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let mut alone = schema.clone();
        if let Some(members) = alone.as_object_mut() {
            for (name, definitions) in &self.definitions {
                members.entry(name).or_insert_with(|| definitions.clone());
            }
        }
        (self.compiles)(&alone)
    }

    fn relax(&mut self, schema: Value, path: &str) -> Value {
        if self.compiles(&schema) {
            return schema;
        }
        let Value::Object(mut members) = schema else { return self.nothing(path) };
        for (at, child) in children(&mut members, path) {
            let schema = std::mem::take(child);
            *child = self.relax(schema, &at);
        }
        let mut members = match self.without_keywords(members, path) {
            Ok(schema) => return schema,
            Err(members) => members,
        };
        // Not even its type, if it has one, compiles with the rest.
        members.retain(|name, _| name == "type");
        let bare = Value::Object(members);
        self.left_out.push(below(path, "*"));
        if self.compiles(&bare) { bare } else { json!({}) }
    }

    /// Leaves out as few keywords as it takes; the members if none is enough.
    fn without_keywords(&mut self, mut members: Map<String, Value>, path: &str) -> Result<Value, Map<String, Value>> {
        if self.compiles(&Value::Object(members.clone())) {
            return Ok(members.into());
        }
        if let Some(any) = members.shift_remove("oneOf") {
            self.left_out.push(below(path, "oneOf (as anyOf)"));
            members.entry("anyOf").or_insert(any);
            if self.compiles(&Value::Object(members.clone())) {
                return Ok(members.into());
            }
        }
        let names: Vec<String> = members.keys().filter(|name| !CORE.contains(&name.as_str())).cloned().collect();
        for name in &names {
            let mut fewer = members.clone();
            fewer.shift_remove(name);
            if self.compiles(&Value::Object(fewer.clone())) {
                self.left_out.push(below(path, name));
                return Ok(fewer.into());
            }
        }
        for name in &names {
            members.shift_remove(name);
            self.left_out.push(below(path, name));
            if self.compiles(&Value::Object(members.clone())) {
                return Ok(members.into());
            }
        }
        Err(members)
    }

    /// A value that may be anything, in the place of one that is no schema.
    fn nothing(&mut self, path: &str) -> Value {
        self.left_out.push(path.to_string());
        json!({})
    }
}
