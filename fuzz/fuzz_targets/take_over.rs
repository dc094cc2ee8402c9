//! A message of a server that takes over is none, or says all that the JSON has that is no message of ours says, and the same when
//! it is sent again. The reason of a refusal comes back, as far as a message takes it.
#![no_main]

use drover_server::fuzzing;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

/// The message that JSON is, by the shapes that there are.
fn shape(value: &Value) -> Option<Value> {
    if ["Sockets", "Leave", "Left"].iter().any(|it| value == *it) {
        return Some(value.clone());
    }
    let (kind, body) = value.as_object().filter(|it| it.len() == 1)?.iter().next()?;
    let number = |key: &str, most: u64| body.get(key)?.as_u64().filter(|it| *it <= most);
    let text = |key: &str| body.get(key)?.as_str();
    let (u32_most, usize_most) = (u64::from(u32::MAX), usize::MAX as u64);
    Some(match kind.as_str() {
        "Refused" => json!({ "Refused": body.as_str()? }),
        "Serving" => json!({ "Serving": { "process": number("process", u32_most)? } }),
        "Offer" => json!({ "Offer": {
            "protocol": number("protocol", u32_most)?, "process": number("process", u32_most)?,
            "dispatch": text("dispatch")?, "accept": text("accept")?, "sockets": number("sockets", usize_most)?,
        } }),
        _ => return None,
    })
}

fuzz_target!(|input: &[u8]| {
    let read = |message: &[u8]| fuzzing::take_over_message(message);
    let value = serde_json::from_slice::<Value>(input).ok();
    match read(input) {
        Some(again) => {
            assert_eq!(read(&again).as_ref(), Some(&again));
            let value = value.expect("a message is JSON");
            let said: Value = serde_json::from_slice(&again).expect("a message is JSON");
            assert_eq!(shape(&said).as_ref(), Some(&said));
            if let Some(shape) = shape(&value) {
                assert_eq!(shape, said);
            }
        }
        // An object that names a key twice is refused as well.
        None => {
            let plain = value.as_ref().and_then(shape).map(|it| it.to_string());
            assert!(
                plain.is_none_or(|it| input.len() > 16 * 1024 || read(it.as_bytes()).is_some())
            );
        }
    }

    let Ok(reason) = std::str::from_utf8(input) else { return };
    let again = read(&fuzzing::take_over_refusal(reason)).expect("a refusal is a message");
    let again: Value = serde_json::from_slice(&again).expect("a message is JSON");
    let told = again["Refused"].as_str().expect("a refusal has its reason");
    assert!(reason.starts_with(told) && (told == reason || told.chars().count() == 500));
});
