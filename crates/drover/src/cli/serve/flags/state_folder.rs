//! Where a server keeps what it has made or got itself.

use std::path::PathBuf;

use anyhow::Context;
use drover_usage::UsageError;

/// Where the certificates of `flag` are kept: the folder `own` of this program's.
pub(super) fn state_folder(flag: &str, own: &str) -> anyhow::Result<PathBuf> {
    let folder = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from).filter(|path| path.is_absolute())
    };
    // systemd gives a service folders of its own, with colons between them (systemd.exec(5)).
    let of_service = folder("STATE_DIRECTORY").map(|folders| {
        let first = folders.to_string_lossy().split(':').next().unwrap_or_default().to_owned();
        PathBuf::from(first).join(own)
    });
    let of_user = || {
        let state = folder("XDG_STATE_HOME");
        let state = state.or_else(|| Some(folder("HOME")?.join(".local/state")));
        state.map(|state| state.join("drover").join(own))
    };
    of_service.or_else(of_user).context(UsageError::new(format!(
        "{flag}: nowhere to keep the certificate; set XDG_STATE_HOME or HOME",
    )))
}
