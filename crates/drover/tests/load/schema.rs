//! Real results conform to the published schema, and say what it says they do.

use std::collections::HashSet;

use base64::Engine;
use drover_load::warning::{Warning, WarningCode};
use serde_json::{Value, json};

use crate::checker::check;
use crate::run::load;
use crate::server::{Action, Nobody, Server, response};
use crate::tls::result_with_tls;

const SCHEMA: &str = include_str!("../../schemas/drover.load-3.schema.json");

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

#[track_caller]
fn conforms(value: &Value) {
    let schema = schema();
    if let Err(fault) = check(value, &schema, &schema, "") {
        panic!("{fault}\n{value:#}");
    }
}

#[test]
fn results_of_every_kind_conform() {
    let server = Server::always(Action::Response(response("200 OK", 3)));
    let url = server.url();
    conforms(&load(&[&url, "-c", "2", "-n", "20"]).json);
    conforms(&load(&[&url, "-c", "2", "--rate", "50", "-d", "2s", "--idle", "1"]).json);
    conforms(&load(&[&url, "-c", "2", "-n", "4", "--expect-size", "4"]).json);
    conforms(&load(&[&Nobody::anywhere().url(), "-c", "2"]).json);
    let not_http = Server::always(Action::Response("SSH-2.0-x\r\n".to_string()));
    conforms(&load(&[&not_http.url(), "-c", "1", "-n", "2"]).json);
    let secure = result_with_tls();
    conforms(&secure);
    let fields = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let schema = schema();
    let of_schema = |pointer: &str| fields(schema.pointer(pointer).unwrap());
    assert_eq!(fields(&secure["tls"]), of_schema("/properties/tls/properties"));
    let agreed = "/properties/tls/properties/agreed/items/properties";
    assert_eq!(fields(&secure["tls"]["agreed"][0]), of_schema(agreed));
}

#[test]
fn the_schema_refuses_what_it_does_not_describe() {
    let server = Server::always(Action::Response(response("200 OK", 3)));
    let good = load(&[&server.url(), "-c", "2", "-n", "20"]).json;
    let schema = schema();
    let refuses = |change: fn(&mut Value)| {
        let mut bad = good.clone();
        change(&mut bad);
        check(&bad, &schema, &schema, "").unwrap_err();
    };
    refuses(|json| json["schema"] = "drover.load/1".into());
    refuses(|json| json["requests"] = Value::Null);
    refuses(|json| json["requests"] = (-1).into());
    refuses(|json| json["tls"] = json!({}));
    refuses(|json| json["errors"]["another"] = 0.into());
    refuses(|json| json["status"]["200"] = "many".into());
    refuses(|json| json["client"].as_object_mut().unwrap().clear());
    refuses(|json| json["warnings"] = ["interrupted"].into());
    refuses(|json| json["warnings"] = json!([{ "code": "new", "count": null, "text": "" }]));
}

#[test]
fn the_fields_of_the_schema_are_those_of_the_result() {
    let server = Server::always(Action::Response(response("200 OK", 3)));
    let json = load(&[&server.url(), "-c", "1", "-n", "2"]).json;
    let names =
        |value: &Value| -> HashSet<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(names(&json), names(&schema()["properties"]));
    for part in ["errors", "bytes", "connections", "client"] {
        assert_eq!(names(&json[part]), names(&schema()["properties"][part]["properties"]));
    }
}

/// The codes of warnings are those of the schema and of the page about `drover load`.
#[test]
fn every_code_of_a_warning_is_published() {
    let schema = schema();
    let of_warning = &schema["properties"]["warnings"]["items"];
    for code in WarningCode::ALL {
        let warning = Warning::uncounted(*code, "text");
        check(&serde_json::to_value(&warning).unwrap(), of_warning, &schema, "").unwrap();
    }
    let names: Vec<&str> = WarningCode::ALL.iter().map(|code| code.name()).collect();
    assert_eq!(of_warning["properties"]["code"]["enum"], json!(names));
    let page = include_str!("../../../../docs/load.md");
    let table = page.split("### Warnings").nth(1).unwrap().split("\n#").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(rows.collect::<Vec<_>>(), names);
}

#[test]
fn the_histogram_holds_every_response() {
    let server = Server::always(Action::Response(response("200 OK", 3)));
    let run = load(&[&server.url(), "-c", "2", "-n", "200", "-t", "2"]);
    let text = run.json["histogram"].as_str().unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    let mut reader = hdrhistogram::serialization::Deserializer::new();
    let times: hdrhistogram::Histogram<u64> = reader.deserialize(&mut &bytes[..]).unwrap();
    assert_eq!(times.len(), 200);
    for (name, quantile) in [("p50", 0.5), ("p95", 0.95)] {
        let value = times.value_at_quantile(quantile) as f64 / 1000.0;
        assert_eq!(value, run.float(&format!("/latency_us/{name}")));
    }
}
