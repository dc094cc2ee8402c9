//! What a guest does: modules that it loads, programs that it runs, one after the other.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::boot::{BEGIN, DONE, Machine};
use crate::initramfs::Archive;
use crate::packages::Kernel;

/// The beginning of a guest's script: file systems, and the network of the guest alone. Nothing is mounted on `/tmp`, which is part of
/// the tmpfs that the archive was unpacked to: programs and files lie where they were built, and that may be there. The kernel mounts that
/// tmpfs to note every access; systems have theirs mounted with `relatime`. The kernel keeps a twentieth of a processor from threads
/// of real-time classes (since 6.12 by the scheduler's `fair_server`), 50 ms at a time, for which a load generator that goes first
/// (`SCHED_FIFO`) would be late: nothing is kept here.
pub(crate) const PREPARATION: &str = "#!/bin/busybox sh\n\
    export PATH=/bin HOME=/tmp RUST_BACKTRACE=1\n\
    /bin/busybox --install -s /bin 2>/dev/null\n\
    mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev\n\
    mount -o remount,relatime / || exit; chmod 1777 /tmp; mkdir -p /dev/pts; mount -t devpts pts /dev/pts\n\
    mount -t debugfs debugfs /sys/kernel/debug\n\
    echo -1 >/proc/sys/kernel/sched_rt_runtime_us\n\
    for cpu in /sys/kernel/debug/sched/fair_server/cpu*/runtime; do test -e $cpu && echo 0 >$cpu; done\n\
    ip link set lo up\n";

/// The command by which a guest that counts instructions waits for the end of its own start: kernel threads work on meanwhile, and
/// counts that were taken then were up to twice as high. The guest's clock skips what is slept.
pub(crate) const SETTLING: &str = "sleep 30";

/// What a guest loads and runs.
#[derive(Clone, Debug, Default)]
pub struct Guest {
    /// The files of modules, in the order in which they are loaded.
    pub modules: Vec<PathBuf>,
    /// Programs, by their names beneath `/bin` of the guest, or their paths there.
    pub programs: Vec<(String, PathBuf)>,
    /// Folders that tests expect where they were built.
    pub folders: Vec<PathBuf>,
    /// Files that tests read where they were built.
    pub files: Vec<PathBuf>,
    /// The commands that the guest's shell runs, by the name that the result has.
    pub steps: Vec<(String, String)>,
}

/// How a step has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepResult {
    /// The name of the step.
    pub name: String,
    /// The exit status; `None`: it did not end.
    pub status: Option<i32>,
    /// What it has printed, with what the kernel has said meanwhile.
    pub lines: Vec<String>,
}

impl Guest {
    /// Boots `kernel` on `machine`, does all steps, and returns how each has ended. Files of the run are beneath `folder`.
    ///
    /// # Errors
    /// A program that cannot be packed, or a guest that does not end in good order, as after a panic, or if a module does not load.
    pub fn run(
        &self,
        kernel: &Kernel,
        machine: &Machine,
        folder: &Path,
    ) -> anyhow::Result<Vec<StepResult>> {
        let initramfs = self.pack(&self.init(), kernel, folder)?;
        let lines = machine.run(&kernel.image(), &initramfs)?;
        Ok(self.steps.iter().map(|(name, _)| StepResult::among(&lines, name)).collect())
    }

    /// Writes the guest's file system, whose first program is the shell's script `init`, and returns its file.
    pub(crate) fn pack(
        &self,
        init: &str,
        kernel: &Kernel,
        folder: &Path,
    ) -> anyhow::Result<PathBuf> {
        let mut archive = Archive::with_shell()?;
        for module in &self.modules {
            let content = fs::read(module).with_context(|| module.display().to_string())?;
            archive.file(&format!("modules/{}", file_name(module)), &content);
        }
        for (name, path) in &self.programs {
            // An absolute name takes the place of what is before it.
            archive.program(&Path::new("/bin").join(name).display().to_string(), path)?;
        }
        for folder in &self.folders {
            archive.folder(&folder.display().to_string());
        }
        for file in &self.files {
            let content = fs::read(file).with_context(|| file.display().to_string())?;
            archive.file(&file.display().to_string(), &content);
        }
        let initramfs = folder.join(format!("{}.cpio", kernel.release));
        archive.write(init, &initramfs)?;
        Ok(initramfs)
    }

    /// The script of the guest's first program.
    fn init(&self) -> String {
        let mut script = PREPARATION.to_owned();
        script += &format!("echo; echo '{BEGIN}'\n{}", self.loading());
        for (name, command) in &self.steps {
            script += &format!(
                "echo 'guest: step {name}'\n( {command} ) 2>&1\nstatus=$?; echo\n\
                 echo \"guest: status $status of {name}\"\n"
            );
        }
        script + &format!("echo '{DONE}'\npoweroff -f\n")
    }

    /// The part of a script that loads the modules. A guest whose module does not load ends there: tests skip where a device
    /// is missing, and a model would be measured in its place.
    pub(crate) fn loading(&self) -> String {
        let load = |module: &PathBuf| {
            let name = file_name(module);
            format!("insmod /modules/{name} || {{ echo 'cannot load {name}'; poweroff -f; }}\n")
        };
        self.modules.iter().map(load).collect()
    }
}

impl StepResult {
    fn among(lines: &[String], name: &str) -> StepResult {
        let (begin, end) = (format!("guest: step {name}"), format!(" of {name}"));
        let from = lines.iter().position(|line| *line == begin).map_or(lines.len(), |at| at + 1);
        let told = |line: &String| {
            line.strip_prefix("guest: status ")?.strip_suffix(&end)?.parse::<i32>().ok()
        };
        let len = lines[from..].iter().position(|line| told(line).is_some());
        let to = len.map_or(lines.len(), |len| from + len);
        StepResult {
            name: name.to_owned(),
            status: lines.get(to).and_then(told),
            lines: lines[from..to].to_vec(),
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().display().to_string()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_guest_whose_module_does_not_load_ends() {
        let modules = ["good.ko", "bad.ko", "last.ko"].map(PathBuf::from).into();
        let loading = Guest { modules, ..Guest::default() }.loading();
        let script = format!(
            "insmod() {{ echo \"$1\"; test \"$1\" != /modules/bad.ko; }}; poweroff() {{ exit 3; }}\n{loading}"
        );
        let ended = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(ended.status.code(), Some(3));
        let said = String::from_utf8(ended.stdout).unwrap();
        assert_eq!(said, "/modules/good.ko\n/modules/bad.ko\ncannot load bad.ko\n");
    }
}
