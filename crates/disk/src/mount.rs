//! Mounts the disk, and unmounts it even if this process is killed.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use fuser::{BackgroundSession, Config, MountOption};

use crate::filesystem::Slow;
use crate::model::{DiskAccount, Model};
use crate::options::DiskOptions;
use crate::turning::Turning;
use drover_usage::UsageError;

/// Why this process cannot mount a FUSE file system, with the remedy; `None`: it can.
pub fn obstacle() -> Option<String> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    match device {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(
            "there is no /dev/fuse: load the kernel's module (modprobe fuse), or give the container \
             the device (--device /dev/fuse --cap-add SYS_ADMIN)"
                .to_string(),
        ),
        Err(error) => Some(format!("/dev/fuse cannot be opened ({error}): run as root")),
        // Root mounts by system calls, other users with the program of fuse3.
        Ok(_) if drover_sys::process::may_mount() => None,
        Ok(_) if !drover_sys::process::may_be_helped_to_mount() => Some(
            "this process may not mount: give the container the right to (--cap-add SYS_ADMIN)"
                .to_string(),
        ),
        Ok(_) if has_helper() => None,
        Ok(_) => {
            Some("only root may mount without fusermount3: install the package fuse3".to_string())
        }
    }
}

fn has_helper() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).exists());
    found("fusermount3") || found("fusermount")
}

/// A mounted disk. Dropping the value unmounts the disk.
pub struct Mounted {
    disk: Turning,
    unmounter: Unmounter,
    // Declared after `unmounter`, so that it is dropped after the disk is unmounted.
    _session: BackgroundSession,
}

impl std::fmt::Debug for Mounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mounted").finish_non_exhaustive()
    }
}

impl Mounted {
    /// Mounts `directory`, seen through a disk like `model`, at `mountpoint`.
    ///
    /// # Errors
    /// A [`UsageError`] if this user cannot mount, or one of the two paths is no directory. Otherwise what the kernel
    /// says of the mount.
    pub fn new(
        directory: &Path,
        mountpoint: &Path,
        model: &Model,
        options: &DiskOptions,
    ) -> anyhow::Result<Mounted> {
        if let Some(obstacle) = obstacle() {
            return Err(UsageError::new(format!("cannot mount a modelled disk: {obstacle}")).into());
        }
        let directory = absolute(directory, "DIR")?;
        let mountpoint = absolute(mountpoint, "MOUNTPOINT")?;
        let disk = Turning::start(model).context("cannot start the spindles")?;
        let filesystem = Slow::new(&directory, disk.clone(), options);
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::RO,
            MountOption::NoAtime,
            MountOption::FSName("drover".to_string()),
            MountOption::Subtype("disk".to_string()),
        ];
        let session = fuser::spawn_mount(filesystem, &mountpoint, &config)
            .with_context(|| format!("cannot mount at {}", mountpoint.display()))?;
        let unmounter = Unmounter::start(&mountpoint).context("cannot start a shell")?;
        Ok(Mounted { disk, unmounter, _session: session })
    }

    /// What the disk did since it was mounted.
    pub fn account(&self) -> DiskAccount {
        self.disk.account()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.unmounter.unmount();
    }
}

fn absolute(directory: &Path, name: &str) -> anyhow::Result<std::path::PathBuf> {
    let shown = directory.display();
    let found = directory.canonicalize().map(|path| (path.is_dir(), path));
    match found {
        Ok((true, path)) => Ok(path),
        Ok((false, _)) => Err(UsageError::new(format!("{name}: {shown} is no directory")).into()),
        Err(error) => Err(UsageError::new(format!("{name}: {shown}: {error}")).into()),
    }
}

/// A shell that unmounts the disk as soon as the shell's stdin ends: because this process closes it, or is gone. Even
/// after SIGKILL of this process no dead mount is left (every access to a dead mount would fail).
struct Unmounter(Child);

impl Unmounter {
    fn start(mountpoint: &Path) -> io::Result<Unmounter> {
        // Unmounts lazily: a process that has a file of the disk open keeps the file until it closes it.
        let script = "read line; umount -l \"$0\" 2>/dev/null || fusermount3 -uz \"$0\" \
                      2>/dev/null || fusermount -uz \"$0\"";
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).arg(mountpoint).current_dir("/");
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // The shell is not in this process's group, so that a signal to the group does not kill the shell.
        shell.process_group(0);
        Ok(Unmounter(shell.spawn()?))
    }

    fn unmount(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
