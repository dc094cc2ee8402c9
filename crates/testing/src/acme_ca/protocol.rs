//! What the CA answers to a request: RFC 8555 section 7.

use std::sync::Mutex;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{CaOrder, CaState, locked, validate};

/// A request.
pub(super) struct CaAsked {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) body: Vec<u8>,
}

/// A response.
pub(super) struct CaAnswer {
    pub(super) status: u16,
    pub(super) fields: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

impl CaAnswer {
    fn json(status: u16, body: &Value) -> CaAnswer {
        let fields = vec![("Content-Type", "application/json".to_owned())];
        CaAnswer { status, fields, body: body.to_string().into_bytes() }
    }

    fn at(mut self, location: String) -> CaAnswer {
        self.fields.push(("Location", location));
        self
    }
}

/// A signed request that was verified.
struct Signed {
    /// The public key.
    jwk: Value,
    /// The account; `None`: the request names a key.
    account: Option<String>,
    /// `None`: a POST-as-GET.
    payload: Option<Value>,
}

pub(super) fn answer(asked: &CaAsked, state: &Mutex<CaState>) -> CaAnswer {
    let base = locked(state).base.clone();
    match (asked.method.as_str(), asked.path.as_str()) {
        ("GET", "/directory") => CaAnswer::json(
            200,
            &json!({
                "newNonce": format!("{base}/new-nonce"),
                "newAccount": format!("{base}/new-account"),
                "newOrder": format!("{base}/new-order"),
                "meta": { "termsOfService": format!("{base}/terms") },
                "more": "members that a client does not know",
            }),
        ),
        ("HEAD", "/new-nonce") => CaAnswer { status: 200, fields: vec![], body: vec![] },
        ("POST", path) => match verified(asked, &format!("{base}{path}"), state) {
            Ok(signed) => signed_answer(path, &signed, state),
            Err(answer) => answer,
        },
        _ => CaAnswer { status: 404, fields: vec![], body: vec![] },
    }
}

fn decoded(value: &Value) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(value.as_str()?).ok()
}

/// Verifies what is signed, once: RFC 8555 section 6.
fn verified(asked: &CaAsked, url: &str, state: &Mutex<CaState>) -> Result<Signed, CaAnswer> {
    let mut state = locked(state);
    let malformed = |state: &mut CaState, why: &str| state.problem(400, "malformed", why);
    let Ok(body) = serde_json::from_slice::<Value>(&asked.body) else {
        return Err(malformed(&mut state, "no JSON"));
    };
    let header = decoded(&body["protected"]).and_then(|it| serde_json::from_slice(&it).ok());
    let header: Value = header.unwrap_or_default();
    if header["url"] != url || header["alg"] != "ES256" {
        return Err(malformed(&mut state, "the URL is another one"));
    }
    let nonce = header["nonce"].as_str().unwrap_or_default().to_owned();
    if state.script.bad_nonces > 0 || !state.nonces.remove(&nonce) {
        state.script.bad_nonces = state.script.bad_nonces.saturating_sub(1);
        return Err(state.problem(400, "badNonce", "unknown nonce"));
    }
    let account = header["kid"].as_str().map(str::to_owned);
    let jwk = match &account {
        None => header["jwk"].clone(),
        Some(_) if state.script.forgets_accounts => Value::Null,
        Some(account) => state.accounts.get(account).map(|it| it.0.clone()).unwrap_or_default(),
    };
    if jwk.is_null() {
        return Err(state.problem(400, "accountDoesNotExist", "no such account"));
    }
    let key = decoded(&jwk["x"]).zip(decoded(&jwk["y"]));
    let key = key.map(|(x, y)| [&[4][..], &x, &y].concat()).unwrap_or_default();
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let input = format!("{}.{}", text("protected"), text("payload"));
    let signature = decoded(&body["signature"]).unwrap_or_default();
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key);
    if key.verify(input.as_bytes(), &signature).is_err() {
        return Err(malformed(&mut state, "the signature is wrong"));
    }
    let payload = decoded(&body["payload"]).filter(|it| !it.is_empty());
    let payload = payload.and_then(|it| serde_json::from_slice(&it).ok());
    Ok(Signed { jwk, account, payload })
}

fn signed_answer(path: &str, signed: &Signed, state: &Mutex<CaState>) -> CaAnswer {
    let mut parts = path.trim_start_matches('/').splitn(2, '/');
    let (what, id) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    match what {
        "new-account" => account(signed, &mut locked(state)),
        "account" => contact(path, signed, &mut locked(state)),
        "new-order" => new_order(signed, &mut locked(state)),
        "order" => order(id, &mut locked(state), true),
        "authorization" => authorization(id, &mut locked(state)),
        "challenge" => challenge(id, signed, state),
        "finalize" => finalize(id, signed, &mut locked(state)),
        "certificate" => certificate(id, &mut locked(state)),
        _ => locked(state).problem(404, "malformed", "no such resource"),
    }
}

fn account(signed: &Signed, state: &mut CaState) -> CaAnswer {
    let payload = signed.payload.clone().unwrap_or_default();
    if payload["termsOfServiceAgreed"] != true {
        return state.problem(403, "userActionRequired", "agree to the terms");
    }
    let known = state.accounts.iter().find(|(_, it)| it.0 == signed.jwk).map(|it| it.0.clone());
    state.script.forgets_accounts = false;
    if let Some(url) = known {
        state.log.push("account again".to_owned());
        return CaAnswer::json(200, &json!({ "status": "valid" })).at(url);
    }
    let number = state.number("a");
    let url = format!("{}/account/{number}", state.base);
    state.accounts.insert(url.clone(), (signed.jwk.clone(), payload["contact"].clone()));
    state.log.push(format!("account {}", payload["contact"][0].as_str().unwrap_or_default()));
    CaAnswer::json(201, &json!({ "status": "valid" })).at(url)
}

fn contact(path: &str, signed: &Signed, state: &mut CaState) -> CaAnswer {
    let url = format!("{}{path}", state.base);
    if signed.account.as_ref() != Some(&url) {
        return state.problem(403, "unauthorized", "another account's");
    }
    let contact = signed.payload.clone().unwrap_or_default()["contact"].clone();
    state.log.push(format!("contact {}", contact[0].as_str().unwrap_or_default()));
    CaAnswer::json(200, &json!({ "status": "valid" }))
}

fn new_order(signed: &Signed, state: &mut CaState) -> CaAnswer {
    if let Some(wait) = state.script.rate_limited {
        let mut answer = state.problem(429, "rateLimited", "too many certificates already");
        answer.fields.push(("Retry-After", wait.to_owned()));
        return answer;
    }
    if signed.account.is_none() {
        return state.problem(400, "malformed", "name the account");
    }
    let payload = signed.payload.clone().unwrap_or_default();
    let name = payload["identifiers"][0]["value"].as_str().unwrap_or_default().to_owned();
    let (id, token) = (state.number("o"), state.number("token"));
    state.log.push(format!("order {name}"));
    let undecided = (state.script.undecided, state.script.undecided);
    let made = CaOrder { name, token, authorization: Ok("pending"), undecided, certificate: None };
    state.orders.insert(id.clone(), made);
    let url = format!("{}/order/{id}", state.base);
    CaAnswer { status: 201, ..order(&id, state, false) }.at(url)
}

fn order(id: &str, state: &mut CaState, counts: bool) -> CaAnswer {
    let base = state.base.clone();
    let Some(order) = state.orders.get_mut(id) else {
        return state.problem(404, "malformed", "no such order");
    };
    let status = match (&order.authorization, &order.certificate) {
        (Err(_), _) => "invalid",
        (Ok("valid"), Some(_)) if order.undecided.1 > 0 && counts => {
            order.undecided.1 -= 1;
            "processing"
        }
        (Ok("valid"), Some(_)) => "valid",
        (Ok("valid"), None) => "ready",
        (Ok(_), _) => "pending",
    };
    let mut body = json!({
        "status": status,
        "identifiers": [{ "type": "dns", "value": order.name }],
        "authorizations": [format!("{base}/authorization/{id}")],
        "finalize": format!("{base}/finalize/{id}"),
    });
    if status == "valid" {
        body["certificate"] = json!(format!("{base}/certificate/{id}"));
    }
    CaAnswer::json(200, &body)
}

fn authorization(id: &str, state: &mut CaState) -> CaAnswer {
    let (base, offers) = (state.base.clone(), state.script.offers.clone());
    let Some(order) = state.orders.get_mut(id) else {
        return state.problem(404, "malformed", "no such authorization");
    };
    let mut status = match &order.authorization {
        Ok(status) => *status,
        Err(_) => "invalid",
    };
    if status != "pending" && order.undecided.0 > 0 {
        order.undecided.0 -= 1;
        status = "pending";
    }
    let error = order.authorization.as_ref().err().filter(|_| status == "invalid");
    let challenges = offers.iter().map(|kind| {
        let mut challenge = json!({
            "type": kind, "url": format!("{base}/challenge/{id}/{kind}"), "token": order.token,
            "status": status,
        });
        if let Some(error) = error {
            challenge["error"] = error.clone();
        }
        challenge
    });
    let body = json!({
        "status": status,
        "identifier": { "type": "dns", "value": order.name },
        "challenges": challenges.collect::<Vec<_>>(),
    });
    CaAnswer::json(200, &body)
}

/// Looks for what the server shows. Nothing else is answered less for it.
fn challenge(id: &str, signed: &Signed, state: &Mutex<CaState>) -> CaAnswer {
    let (id, kind) = id.split_once('/').unwrap_or((id, ""));
    // A test learns the ports when its server has started, which may ask at once.
    let port_of = |state: &CaState| match kind {
        "http-01" => state.script.http_port,
        _ => state.script.tls_port,
    };
    crate::wait_until("the port of the challenge", || {
        let state = locked(state);
        state.script.fails_challenges || port_of(&state) != 0
    });
    let (script, name, token) = {
        let state = locked(state);
        let Some(order) = state.orders.get(id) else {
            drop(state);
            return CaAnswer { status: 404, fields: vec![], body: vec![] };
        };
        (state.script.clone(), order.name.clone(), order.token.clone())
    };
    let jwk = &signed.jwk;
    // RFC 7638 section 3.
    let canonical = format!(
        "{{\"crv\":{},\"kty\":{},\"x\":{},\"y\":{}}}",
        jwk["crv"], jwk["kty"], jwk["x"], jwk["y"]
    );
    let thumbprint = URL_SAFE_NO_PAD.encode(digest(&SHA256, canonical.as_bytes()));
    let authorization = format!("{token}.{thumbprint}");
    let found = match kind {
        _ if script.fails_challenges => Err(("dns", "no A record".to_owned())),
        "http-01" => validate::by_http(script.http_port, &name, &token, &authorization),
        "tls-alpn-01" => validate::by_tls(script.tls_port, &name, &authorization),
        _ => Err(("malformed", "not offered".to_owned())),
    };
    let mut state = locked(state);
    let outcome = if found.is_ok() { "valid" } else { "invalid" };
    state.log.push(format!("{outcome} {name} by {kind}"));
    if let Some(order) = state.orders.get_mut(id) {
        order.authorization = found.map(|()| "valid").map_err(|(kind, detail)| {
            json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": detail })
        });
    }
    CaAnswer::json(200, &json!({ "type": kind, "status": "processing" }))
}

fn finalize(id: &str, signed: &Signed, state: &mut CaState) -> CaAnswer {
    let payload = signed.payload.clone().unwrap_or_default();
    let request = decoded(&payload["csr"]).unwrap_or_default();
    let script = state.script.clone();
    let Some(open) = state.orders.get_mut(id) else {
        return state.problem(404, "malformed", "no such order");
    };
    if open.authorization != Ok("valid") {
        return state.problem(403, "orderNotReady", "the name is not proven");
    }
    let dates = (script.valid_since, script.valid_for);
    let name = open.name.clone();
    match state.issuer.issue(&request, &name, dates, script.issues_for_another_key) {
        Ok(chain) => {
            if let Some(open) = state.orders.get_mut(id) {
                open.certificate = Some(chain);
            }
            order(id, state, false)
        }
        Err(why) => state.problem(400, "badCSR", &why),
    }
}

fn certificate(id: &str, state: &mut CaState) -> CaAnswer {
    let order = state.orders.get(id);
    let found = order.and_then(|it| Some((it.name.clone(), it.certificate.clone()?)));
    let Some((name, chain)) = found else {
        return state.problem(404, "malformed", "no such certificate");
    };
    state.log.push(format!("certificate {name}"));
    let fields = vec![("Content-Type", "application/pem-certificate-chain".to_owned())];
    CaAnswer { status: 200, fields, body: chain.into_bytes() }
}
