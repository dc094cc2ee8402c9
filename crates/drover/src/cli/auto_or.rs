//! Flags whose values are names: rows of mech's tables (`--dispatch M`, `--accept S`, `--files B`), and `on` or `off`.

use std::num::NonZeroUsize;

use anyhow::{Context, bail};
use drover_mech::accept::{self, Strategy};
use drover_mech::fileio::Backend;
use drover_mech::mechanisms::{self, DevPollModel, Mechanism};

use drover_usage::UsageError;

/// A row of one of mech's tables, or `None` for `auto`.
#[derive(Debug)]
pub(super) struct AutoOr<T: 'static>(pub(super) Option<&'static T>);

impl<T> Clone for AutoOr<T> {
    fn clone(&self) -> Self {
        AutoOr(self.0)
    }
}

/// Whether something is done: `--tuned off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OnOff {
    On,
    Off,
}

impl From<OnOff> for bool {
    fn from(whether: OnOff) -> bool {
        whether == OnOff::On
    }
}

/// Reads the name of a dispatch mechanism.
pub(super) fn mechanism(text: &str) -> Result<AutoOr<Mechanism>, String> {
    if text == "auto" {
        return Ok(AutoOr(None));
    }
    let found = mechanisms::by_name(text).ok_or_else(|| {
        let usable = names(usable().map(|mechanism| mechanism.name));
        format!("usable here are auto, {usable}; see 'drover mechanisms'")
    })?;
    Ok(AutoOr(Some(found)))
}

/// The names that [`mechanism`] reads, for help texts.
pub(super) fn mechanism_names() -> String {
    format!("auto, {}", names(mechanisms::ALL.iter().map(|mechanism| mechanism.name)))
}

/// Reads the name of an accept strategy.
pub(super) fn strategy(text: &str) -> Result<AutoOr<Strategy>, String> {
    if text == "auto" {
        return Ok(AutoOr(None));
    }
    let found = accept::by_name(text).ok_or_else(|| format!("there are {}", strategy_names()))?;
    Ok(AutoOr(Some(found)))
}

/// The names that [`strategy`] reads, for help texts.
pub(super) fn strategy_names() -> String {
    format!("auto, {}", names(accept::ALL.iter().map(|strategy| strategy.name)))
}

impl AutoOr<Strategy> {
    /// The strategy that the user asked for, or for `auto` the best one, for `workers` that wait by `mechanism`. `is_passed`:
    /// sockets were bound before. `has_unix`: some are unix sockets.
    ///
    /// # Errors
    /// Strategy and mechanism do not go together: the message has the reason, and what goes with each. Or this kernel
    /// does not offer the strategy: the message has the reason.
    pub(super) fn usable(
        self,
        workers: NonZeroUsize,
        mechanism: &Mechanism,
        is_passed: bool,
        has_unix: bool,
    ) -> anyhow::Result<&'static Strategy> {
        let auto = if is_passed || has_unix { accept::auto_for_one_socket } else { accept::auto };
        let Some(asked) = self.0 else { return Ok(auto(workers, mechanism)) };
        if let Err(reason) = asked.goes_with(mechanism) {
            let differences =
                |other: &&Mechanism| (other.features ^ mechanism.features).bits().count_ones();
            let nearest = usable().filter(|other| asked.goes_with(other).is_ok());
            let nearest = nearest.min_by_key(differences).map_or("auto", |other| other.name);
            let others = accept::ALL.iter().filter(|other| other.goes_with(mechanism).is_ok());
            bail!(UsageError::new(format!(
                "--accept {}: {reason}; use it with --dispatch {nearest}, or {} with --accept {}",
                asked.name,
                mechanism.name,
                names(others.map(|other| other.name)),
            )));
        }
        if let Err(reason) = asked.goes_with_unix_sockets(workers)
            && has_unix
        {
            let others = accept::ALL.iter().filter(|other| {
                other.goes_with(mechanism).is_ok() && other.goes_with_unix_sockets(workers).is_ok()
            });
            let others: Vec<_> = others.map(|other| other.name).collect();
            bail!(UsageError::new(format!(
                "--accept {}: {reason}; use --accept {}, or auto",
                asked.name,
                others.join(" or "),
            )));
        }
        let Err(reason) = asked.probe() else { return Ok(asked) };
        bail!("--accept {} {reason}; auto works everywhere", asked.name)
    }
}

impl AutoOr<Mechanism> {
    /// The mechanism that the user asked for, or the one that `auto` finds.
    ///
    /// # Errors
    /// This kernel does not offer the mechanism: the message has the reason, and the usable mechanism that shares
    /// most features with it.
    pub(super) fn usable(
        self,
        auto: impl FnOnce() -> Option<&'static Mechanism>,
    ) -> anyhow::Result<&'static Mechanism> {
        let Some(asked) = self.0 else {
            return auto().context("no mechanism works here; see 'drover mechanisms'");
        };
        let Err(reason) = asked.probe() else { return Ok(asked) };
        let differences =
            |other: &&Mechanism| (other.features ^ asked.features).bits().count_ones();
        let nearest = usable().min_by_key(differences).map_or("auto", |mechanism| mechanism.name);
        bail!("--dispatch {} {reason}; the nearest that works here is {nearest}", asked.name)
    }
}

impl AutoOr<Backend> {
    /// The backend that the user asked for. `None`: `auto`.
    ///
    /// # Errors
    /// This kernel does not offer the backend: the message has the reason.
    pub(super) fn usable(self) -> anyhow::Result<Option<&'static Backend>> {
        let Some(asked) = self.0 else { return Ok(None) };
        let Err(reason) = asked.probe() else { return Ok(Some(asked)) };
        bail!("--files {} {reason}; auto works everywhere", asked.name)
    }
}

fn usable() -> impl Iterator<Item = &'static Mechanism> {
    mechanisms::ALL.iter().copied().filter(|mechanism| mechanism.probe().is_ok())
}

/// `names` with commas between them.
pub(super) fn names<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// Reads the parts, separated by commas, or `none`.
pub(super) fn devpoll_model(text: &str) -> Result<DevPollModel, String> {
    let part = |name: &str| match name {
        "none" => Ok(DevPollModel::empty()),
        "apart" => Ok(DevPollModel::APART),
        "hints" => Ok(DevPollModel::HINTS),
        "walk" => Ok(DevPollModel::WALK),
        "lock" => Ok(DevPollModel::LOCK),
        "ready-list" => Ok(DevPollModel::READY_LIST),
        _ => Err("write none, or some of hints,walk,lock,apart,ready-list".to_string()),
    };
    text.split(',').try_fold(DevPollModel::empty(), |model, name| Ok(model | part(name)?))
}
