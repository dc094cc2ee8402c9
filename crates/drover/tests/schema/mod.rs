//! A checker of JSON against the schemas in `crates/drover/schemas`.

use serde_json::Value;

/// The part of JSON Schema that the published schemas use; any other keyword is an error.
pub(crate) fn check(value: &Value, schema: &Value, root: &Value, path: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{path}: {what}: {value}"));
    for (keyword, argument) in schema.as_object().ok_or("a schema is an object")? {
        match keyword.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" => {}
            "$ref" => {
                let pointer = argument.as_str().unwrap().trim_start_matches('#');
                let target = root.pointer(pointer).ok_or(format!("{pointer} is not there"))?;
                check(value, target, root, path)?;
            }
            "const" if value != argument => return wrong("not the constant"),
            "type" if !has_type(value, argument) => return wrong("has another type"),
            "minimum" if value.as_f64() < argument.as_f64() && !value.is_null() => {
                return wrong("too small");
            }
            "enum" if !argument.as_array().unwrap().contains(value) => {
                return wrong("none of those that may be");
            }
            "const" | "type" | "minimum" | "enum" => {}
            "required" => {
                for name in argument.as_array().unwrap() {
                    if value.is_object() && value.get(name.as_str().unwrap()).is_none() {
                        return wrong(&format!("lacks {name}"));
                    }
                }
            }
            "properties" | "additionalProperties" => {}
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    check(item, argument, root, &format!("{path}[]"))?;
                }
            }
            other => return Err(format!("the checker does not know '{other}'")),
        }
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        let path = format!("{path}/{name}");
        match (schema.pointer(&format!("/properties/{name}")), &schema["additionalProperties"]) {
            (Some(known), _) => check(inner, known, root, &path)?,
            (None, Value::Bool(false)) => return Err(format!("{path} is not in the schema")),
            (None, Value::Null) => {}
            (None, additional) => check(inner, additional, root, &path)?,
        }
    }
    Ok(())
}

fn has_type(value: &Value, types: &Value) -> bool {
    let one = |name: &Value| match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no such type: {other}"),
    };
    types.as_array().map_or_else(|| one(types), |types| types.iter().any(one))
}
