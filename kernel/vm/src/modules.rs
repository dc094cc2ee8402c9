//! The modules of `kernel/`, built against the headers of a kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::packages::{Kernel, output};

/// The folders of `kernel/` with a module of the same name.
pub const ALL: &[&str] = &["devpoll", "sigperfd", "wakeq"];

/// Builds all modules, and returns their files ([`build`]).
///
/// # Errors
/// What the compiler says.
pub fn build_all(sources: &Path, kernel: &Kernel, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    ALL.iter().map(|module| build(module, sources, kernel, folder)).collect()
}

/// Builds a module of the folder `sources` (`kernel/`) in `folder`. Returns its file.
///
/// # Errors
/// What the compiler says. Warnings are errors.
pub fn build(
    module: &str,
    sources: &Path,
    kernel: &Kernel,
    folder: &Path,
) -> anyhow::Result<PathBuf> {
    let folder = folder.join(&kernel.release).join("modules").join(module);
    fs::create_dir_all(&folder)?;
    // Kbuild writes beside the sources.
    for part in [module, "include"] {
        let part = sources.join(part);
        for source in fs::read_dir(&part).with_context(|| format!("no {}", part.display()))? {
            let source = source?.path();
            if let Some(name) = source.file_name() {
                fs::copy(&source, folder.join(name))?;
            }
        }
    }
    let mut make = Command::new("make");
    make.arg("-C").arg(kernel.headers()).arg(format!("M={}", folder.display()));
    // Types for BPF need the kernel's own, which the headers do not have.
    make.args(["CONFIG_DEBUG_INFO_BTF_MODULES=", "KCFLAGS=-Werror", "modules"]);
    output(&mut make).with_context(|| format!("cannot build {module} for {}", kernel.release))?;
    Ok(folder.join(format!("{module}.ko")))
}
