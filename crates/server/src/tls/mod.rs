//! What a server is told of TLS. The supervisor reads certificates and keys, and reads them again at a reload; workers are handed what
//! the files held, and never open one.

mod listeners;
mod settings;

pub use listeners::{HttpsPort, TlsListeners};
pub use settings::{ObtainedCertificates, TlsSettings};
