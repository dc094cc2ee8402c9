//! Debian's kernels: which there are, downloaded and unpacked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// A kernel, unpacked with its headers.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The release as uname(1) tells it.
    pub release: String,
    /// The folder that stands for `/`.
    pub folder: PathBuf,
}

/// The packages that modules are built with, beside the image, for a release.
const BUILD_PACKAGES: [&str; 4] = [
    "linux-headers-{release}",
    "linux-headers-{common}",
    "linux-kbuild-{version}",
    "linux-compiler-gcc-12-x86",
];

impl Kernel {
    /// Finds the newest cloud kernel of `series`, such as `6.1`, downloads it and unpacks it beneath `folder`, unless it is
    /// there already.
    ///
    /// # Errors
    /// apt has no such kernel, or cannot reach its sources.
    pub fn fetch(series: &str, folder: &Path) -> anyhow::Result<Kernel> {
        let image = newest_image(series)?;
        let release = image.trim_start_matches("linux-image-").trim_end_matches("-unsigned");
        let folder = folder.join(release);
        let kernel = Kernel { release: release.to_owned(), folder };
        let done = kernel.folder.join(".unpacked");
        if done.exists() {
            return Ok(kernel);
        }
        let mut packages = vec![image.clone()];
        packages.extend(kernel.build_packages(series)?);
        let archives = kernel.folder.join("archives");
        fs::create_dir_all(&archives)?;
        let mut download = Command::new("apt-get");
        download.arg("download").args(&packages).current_dir(&archives);
        output(&mut download).with_context(|| format!("cannot download {packages:?}"))?;
        for archive in fs::read_dir(&archives)? {
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("-x").arg(archive?.path()).arg(&kernel.folder);
            output(&mut unpack)?;
        }
        fs::remove_dir_all(&archives)?;
        kernel.relocate()?;
        fs::write(done, "")?;
        Ok(kernel)
    }

    /// The compressed image that a boot loader starts.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.folder.join(format!("boot/vmlinuz-{}", self.release))
    }

    /// The file of a module that comes with the kernel, which may be compressed.
    ///
    /// # Errors
    /// There is no such module.
    pub fn module(&self, name: &str) -> anyhow::Result<PathBuf> {
        let mut folders = vec![self.folder.join("lib/modules").join(&self.release)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let file = entry.file_name().to_string_lossy().into_owned();
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                } else if file
                    .split_once('.')
                    .is_some_and(|(stem, end)| stem == name && end.starts_with("ko"))
                {
                    return Ok(entry.path());
                }
            }
        }
        bail!("{} has no module {name}", self.release)
    }

    /// The folder of the headers.
    #[must_use]
    pub fn headers(&self) -> PathBuf {
        self.folder.join(format!("usr/src/linux-headers-{}", self.release))
    }

    fn common(&self) -> String {
        self.release.replace("-cloud-amd64", "-common")
    }

    /// Those of [`BUILD_PACKAGES`] that exist: newer kernels need no package for the compiler.
    fn build_packages(&self, series: &str) -> anyhow::Result<Vec<String>> {
        let of = |template: &str, version: &str| {
            template
                .replace("{release}", &self.release)
                .replace("{common}", &self.common())
                .replace("{version}", version)
        };
        let version = self.release.trim_end_matches("-cloud-amd64");
        let known = names("^linux-(headers|kbuild|compiler)")?;
        let found = BUILD_PACKAGES.iter().filter_map(|template| {
            let candidates = [of(template, version), of(template, series)];
            candidates.into_iter().find(|name| known.contains(name))
        });
        Ok(found.collect())
    }

    /// The headers name each other by paths beneath `/`: they are made paths beneath the folder.
    fn relocate(&self) -> anyhow::Result<()> {
        let makefile = self.headers().join("Makefile");
        let text = fs::read_to_string(&makefile)?;
        let source = self.folder.join("usr/src");
        fs::write(makefile, text.replace("/usr/src", &source.display().to_string()))?;
        Ok(())
    }
}

/// The package of the newest image of a series, by the order of Debian's versions.
fn newest_image(series: &str) -> anyhow::Result<String> {
    let pattern =
        format!("^linux-image-{}\\..*-cloud-amd64(-unsigned)?$", series.replace('.', "\\."));
    let mut images = names(&pattern)?;
    // Debian signs the kernels of its releases; those of backports come unsigned too.
    let is_signed = |name: &String| !name.ends_with("-unsigned");
    let signed: Vec<String> = images.iter().filter(|name| is_signed(name)).cloned().collect();
    images.retain(|name| is_signed(name) || !signed.contains(&name.replace("-unsigned", "")));
    let newest = images.into_iter().reduce(|newest, other| {
        let is_newer = Command::new("dpkg")
            .args(["--compare-versions", version_of(&other), "gt", version_of(&newest)])
            .status()
            .is_ok_and(|status| status.success());
        if is_newer { other } else { newest }
    });
    newest.with_context(|| format!("apt knows no cloud kernel of {series} (apt-get update)"))
}

fn version_of(image: &str) -> &str {
    image
        .trim_start_matches("linux-image-")
        .trim_end_matches("-unsigned")
        .trim_end_matches("-cloud-amd64")
}

/// The names of all packages that match a regular expression.
fn names(pattern: &str) -> anyhow::Result<Vec<String>> {
    let found = output(Command::new("apt-cache").args(["search", "--names-only", pattern]))?;
    Ok(found.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

/// What a command prints.
///
/// # Errors
/// It cannot be started, or fails: with what it says.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        bail!("{name} failed ({}):\n{}", output.status, String::from_utf8_lossy(&said).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
