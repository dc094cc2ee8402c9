//! The account at a CA, and signed requests: each needs a nonce that the CA has handed out (RFC 8555 section 6.5).

use serde_json::{Value, json};

use crate::error::{AcmeError, AcmeErrorKind};
use crate::http::{CaRequest, CaResponse, CaTransport};
use crate::jws::AccountKey;
use crate::messages::{CaDirectory, url};
use crate::problem::CaProblem;
use crate::url::CaUrl;

/// How often a request is sent whose nonce the CA does not know any more.
const NONCES_MOST: u32 = 4;

/// Whose account it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountOptions {
    /// The directory of the CA.
    pub directory: CaUrl,
    /// The address that the CA writes to, such as `admin@example.org`.
    pub mail: String,
}

/// An account as the CA knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredAccount {
    /// Its URL, which is its name in requests.
    pub url: String,
    /// The address that the CA writes to.
    pub mail: String,
}

/// A client of one CA, with the key of an account.
#[derive(Debug)]
pub struct AcmeClient {
    transport: CaTransport,
    pub(crate) directory: CaDirectory,
    pub(crate) key: AccountKey,
    account: Option<RegisteredAccount>,
    /// For the next request.
    nonce: Option<String>,
}

impl AcmeClient {
    /// Asks a CA for its directory. `account`: as it was registered earlier with the same key.
    ///
    /// # Errors
    /// The CA cannot be reached, or is none.
    pub fn connect(
        transport: CaTransport,
        directory: &CaUrl,
        key: AccountKey,
        account: Option<RegisteredAccount>,
    ) -> Result<AcmeClient, AcmeError> {
        let response = transport.exchange(directory, CaRequest::Get)?;
        if !response.is_success() {
            return Err(refused(directory.as_str(), &response));
        }
        let directory = CaDirectory::parse(&response.body)?;
        Ok(AcmeClient { transport, directory, key, account, nonce: None })
    }

    /// The terms that the account agrees to: a URL, if the CA names one.
    #[must_use]
    pub fn terms(&self) -> Option<&str> {
        self.directory.terms.as_deref()
    }

    /// The account, if the CA knows it.
    #[must_use]
    pub fn account(&self) -> Option<&RegisteredAccount> {
        self.account.as_ref()
    }

    /// Sees to it that the CA knows the account, with `mail` as its address: agrees to the CA's terms and registers the key (RFC
    /// 8555 section 7.3). A key that the CA knows keeps its account.
    ///
    /// # Errors
    /// The CA refuses.
    pub fn register(&mut self, mail: &str) -> Result<(), AcmeError> {
        const DOING: &str = "account";
        let contact = json!([format!("mailto:{mail}")]);
        if let Some(account) = &self.account {
            if account.mail == mail {
                return Ok(());
            }
            let own = url(DOING, &account.url)?;
            self.post(DOING, &own, Some(&json!({ "contact": contact })), None)?;
            self.account =
                self.account.take().map(|it| RegisteredAccount { mail: mail.to_owned(), ..it });
            return Ok(());
        }
        let payload = json!({ "termsOfServiceAgreed": true, "contact": contact });
        let new_account = self.directory.new_account.clone();
        let response = self.post(DOING, &new_account, Some(&payload), None)?;
        let location = response.field("Location");
        let location = location.ok_or_else(|| AcmeError::unexpected(DOING, "no Location"))?;
        let url = url(DOING, location)?.as_str().to_owned();
        self.account = Some(RegisteredAccount { url, mail: mail.to_owned() });
        Ok(())
    }

    /// Forgets an account that the CA does not know any more, so that its key is registered again.
    pub fn forget_account(&mut self) {
        self.account = None;
    }

    /// Sends a signed request: `payload`, or without one a POST-as-GET. `doing`: for messages.
    ///
    /// # Errors
    /// The CA cannot be reached, or refuses.
    pub(crate) fn post(
        &mut self,
        doing: &str,
        url: &CaUrl,
        payload: Option<&Value>,
        accept: Option<&'static str>,
    ) -> Result<CaResponse, AcmeError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let nonce = self.nonce()?;
            let account = self.account.as_ref().map(|it| it.url.as_str());
            let body = self.key.sign(url.as_str(), &nonce, account, payload)?;
            let response = self.transport.exchange(url, CaRequest::Post(&body, accept))?;
            self.keep_nonce(&response);
            if response.is_success() {
                return Ok(response);
            }
            let refused = refused(doing, &response);
            if !refused.is_problem("badNonce") || tries >= NONCES_MOST {
                return Err(refused);
            }
        }
    }

    /// A nonce that was not used: the one of the last response, or a new one (RFC 8555 section 7.2).
    fn nonce(&mut self) -> Result<String, AcmeError> {
        if let Some(nonce) = self.nonce.take() {
            return Ok(nonce);
        }
        let response = self.transport.exchange(&self.directory.new_nonce, CaRequest::Head)?;
        if !response.is_success() {
            return Err(refused("nonce", &response));
        }
        self.keep_nonce(&response);
        self.nonce.take().ok_or_else(|| AcmeError::unexpected("nonce", "no Replay-Nonce"))
    }

    fn keep_nonce(&mut self, response: &CaResponse) {
        // Characters of base64 for URLs; a client ignores anything else (RFC 8555 section 6.5.1).
        let is_plain = |it: u8| it.is_ascii_alphanumeric() || it == b'-' || it == b'_';
        let nonce = response.field("Replay-Nonce");
        let nonce = nonce.filter(|it| !it.is_empty() && it.bytes().all(is_plain));
        self.nonce = nonce.map(str::to_owned);
    }
}

/// Why a CA has refused.
fn refused(doing: &str, response: &CaResponse) -> AcmeError {
    let problem = CaProblem::parse(&response.body, response.status);
    AcmeError::new(AcmeErrorKind::Refused(problem), doing).with_retry_after(response.retry_after())
}
