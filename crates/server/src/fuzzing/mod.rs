//! What the targets of `fuzz/` look into, beneath what other crates can see. It is compiled for them alone.

use std::net::IpAddr;
use std::sync::Arc;

use drover_http1::response::push_fields;
use drover_http1::{FieldList, Request};

use crate::access_log::{Form, sample};
use crate::auth::{Credentials, Users};
use crate::hosts::{self, AllowedHosts, HostPattern, HostTable};
use crate::proxies::client::ClientAddress;
use crate::proxies::forwarded::{ForwardedClients, ForwardedField};
use crate::proxies::trusted::TrustedProxies;
use crate::rules::{Cors, Redirect};
use crate::succession::messages;

/// The number of the pattern that an authority is of.
///
/// # Errors
/// Two patterns are the same.
pub fn host_of(patterns: &[HostPattern], authority: &[u8]) -> Result<Option<u32>, HostPattern> {
    let table = HostTable::new(patterns.iter().zip(0..));
    table.map(|table| table.find(authority)).map_err(Clone::clone)
}

/// Whether requests for an authority are answered where only hosts of these patterns are.
#[must_use]
pub fn is_allowed_host(patterns: &[HostPattern], authority: &[u8]) -> bool {
    AllowedHosts::new(patterns).has(Some(authority))
}

/// The host of an authority as a flag names it.
#[must_use]
pub fn nameable_host(authority: &[u8]) -> Option<HostPattern> {
    hosts::nameable(authority)
}

/// Whether a peer is trusted.
#[must_use]
pub fn is_trusted(trusted: &TrustedProxies, peer: IpAddr) -> bool {
    trusted.contains(ClientAddress::Ip(peer))
}

/// The client that a peer names in its request.
#[must_use]
pub fn forwarded_client(
    trusted: &TrustedProxies,
    field: ForwardedField,
    peer: IpAddr,
    request: &Request<'_>,
) -> Option<IpAddr> {
    let clients = ForwardedClients { trusted: Arc::new(trusted.clone()), field };
    clients.client(ClientAddress::Ip(peer), request.fields())
}

/// Name and password in the value of `Authorization`.
#[must_use]
pub fn credentials(field: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let credentials = Credentials::of(field)?;
    Some((credentials.name().to_vec(), credentials.password().to_vec()))
}

/// The names in a file of users.
///
/// # Errors
/// What is wrong with the file.
pub fn user_names(text: &str) -> Result<Vec<Vec<u8>>, String> {
    Ok(Users::parse(text)?.names().map(<[u8]>::to_vec).collect())
}

/// Where a rule sends a client.
#[must_use]
pub fn location(rule: &Redirect, path: &[u8], query: Option<&[u8]>) -> Option<Vec<u8>> {
    rule.location(path, query).map(|(_, location)| location)
}

/// All lines of the response to a request, those of them that not every response has, and whether a preflight is granted.
#[must_use]
pub fn cors_lines(cors: &Cors, request: &Request<'_>) -> (Vec<u8>, Vec<u8>, bool) {
    let (mut all, mut own) = (Vec::new(), Vec::new());
    cors.own_fields(request).into_iter().for_each(|fields| push_fields(&mut own, fields));
    push_fields(&mut all, cors.always());
    all.extend_from_slice(&own);
    (all, own, cors.is_granted_preflight(request))
}

/// The line of the access log for what a client has sent, which was answered with these fields.
#[must_use]
pub fn log_line(form: &Form, input: &[u8], user: Option<&[u8]>, fields: FieldList) -> String {
    sample::log_line(form, input, user, fields)
}

/// What a message of a server that takes over says, as it would be sent again; `None`: it is no message.
#[must_use]
pub fn take_over_message(message: &[u8]) -> Option<Vec<u8>> {
    messages::sent_again(message)
}

/// The message that a server serves on for a reason.
#[must_use]
pub fn take_over_refusal(reason: &str) -> Vec<u8> {
    messages::refusal(reason)
}
