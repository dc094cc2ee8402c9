//! Certificates that the server has got from a CA, on their way to the workers.

use std::sync::Arc;

use drover_tls::certificate::Certificate;
use tracing::{error, info};

use super::Supervisor;
use crate::acme::{AcmePlan, FromKeeper, challenge_kinds};
use crate::config::Config;
use crate::reload::Reloader;
use crate::supervisor::process_crew::Message;
use crate::supervisor::renewal::CertificateRenewal;

impl Supervisor {
    /// Has certificates renewed as the configuration in force says, or no longer.
    pub(super) fn plan_renewal(&mut self) {
        let Some(renewal) = &mut self.renewal else { return };
        let Some(crew) = self.crews.get(&self.serving) else { return };
        let Some((settings, tls)) = crew.config.acme.as_ref().zip(crew.config.tls.as_ref()) else {
            return renewal.end();
        };
        let asks_clients = tls.options().client_authorities.is_some();
        let kinds = challenge_kinds(&self.addresses, &self.tls, asks_clients);
        let plan = AcmePlan { settings: (**settings).clone(), kinds };
        let sender = self.sender.clone();
        // The send fails when the server has ended already.
        let hear = move |heard| drop(sender.send(Message::Acme(heard)));
        renewal.plan(plan, tls.obtained().to_vec(), hear);
    }

    pub(super) fn hear_renewal(&mut self, heard: FromKeeper) {
        let Some(renewal) = &mut self.renewal else { return };
        if renewal.hear(heard) {
            self.admin.iter_mut().for_each(|admin| admin.renews(renewal.facts()));
        }
    }

    /// Has other workers show certificates that are new.
    pub(super) fn serve_renewed(&mut self) {
        if self.hand_over.is_under_way() || self.hand_over.is_done() {
            return;
        }
        let due = self.renewal.as_mut().and_then(CertificateRenewal::take_due);
        let Some(renewed) = due else { return };
        match self.go_on_renewed(&renewed) {
            Ok(false) => {}
            Ok(true) => {
                let names = renewed.iter().filter_map(|it| it.names().first());
                let names: Vec<&str> = names.map(String::as_str).collect();
                info!("--acme: serving the new certificates for {}", names.join(", "));
            }
            Err(reason) => {
                error!(
                    "--acme: workers cannot take the new certificates: {reason:#}; trying again in a minute"
                );
                self.renewal.iter_mut().for_each(|it| it.put_off(renewed.clone()));
            }
        }
    }

    /// Returns whether the certificates were others.
    fn go_on_renewed(&mut self, renewed: &[Arc<Certificate>]) -> anyhow::Result<bool> {
        let Some(crew) = self.crews.get(&self.serving) else { return Ok(false) };
        let tls = crew.config.tls.as_ref().map(|tls| tls.renewed(renewed)).transpose()?;
        let Some(tls) = tls.flatten().map(Arc::new) else { return Ok(false) };
        let config = Config { tls: Some(Arc::clone(&tls)), ..(*crew.config).clone() };
        let arguments = crew.arguments.clone();
        self.go_on_with(config, arguments)?;
        self.reloader.iter_mut().for_each(|it: &mut Reloader| it.renewed(Arc::clone(&tls)));
        if let (Some(admin), Some(crew)) = (&mut self.admin, self.crews.get(&self.serving)) {
            admin.renewed(&crew.config);
        }
        Ok(true)
    }
}
