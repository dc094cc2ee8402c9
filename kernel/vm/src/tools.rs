//! The programs that building and booting need, and their packages.

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::packages::output;

/// A program, and Debian's package that has it. Debian builds its kernels 6.1 and 6.12 for bookworm with gcc 12, and modules
/// need the same compiler.
const TOOLS: [(&str, &str); 6] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("make", "make"),
    ("gcc-12", "gcc-12"),
    ("strip", "binutils"),
    ("dpkg-deb", "dpkg"),
];

/// Fails unless all tools are there. With `install`, those that are missing are installed by apt, which only root may.
///
/// # Errors
/// Names the packages that are missing and how to install them, or what apt says.
pub fn require(install: bool) -> anyhow::Result<()> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.join(" ");
    if !install {
        bail!("programs are missing; install them: apt-get install {packages}");
    }
    output(Command::new("apt-get").arg("update"))?;
    let mut apt = Command::new("apt-get");
    apt.args(["install", "--yes", "--no-install-recommends"]).args(&missing);
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    output(&mut apt).with_context(|| format!("cannot install {packages}"))?;
    Ok(())
}

/// The packages of the tools that are not in `PATH`.
fn missing() -> Vec<&'static str> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = env::split_paths(&path).collect();
    let is_there = |tool: &str| folders.iter().any(|folder: &_| Path::join(folder, tool).exists());
    TOOLS.into_iter().filter(|(tool, _)| !is_there(tool)).map(|(_, package)| package).collect()
}
