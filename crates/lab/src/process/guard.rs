//! A guard that ends the lab's processes when the lab is gone, however it ended.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::tree::MARK;

/// What the shell does. It reads what there is to end, a line each, until its stdin ends, which is when
/// the lab ends. Then it kills process groups, control groups and whoever carries the mark.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
IFS='
'
mark=$1; groups=; cgroups=
without() { for it in $1; do [ "$it" = "$2" ] || printf '%s\n' "$it"; done; }
while read -r line; do
    value=${line#* }
    case $line in
        '+group '*) groups="$groups$IFS$value" ;;
        '-group '*) groups=$(without "$groups" "$value") ;;
        '+cgroup '*) cgroups="$cgroups$IFS$value" ;;
        '-cgroup '*) cgroups=$(without "$cgroups" "$value") ;;
    esac
done
for group in $groups; do kill -9 -- "-$group"; done 2>/dev/null
pass=0
while [ $pass -lt 50 ]; do
    pass=$((pass + 1)); found=
    for cgroup in $cgroups; do
        for pid in $(cat "$cgroup/cgroup.procs" 2>/dev/null); do kill -9 "$pid"; found=1; done
    done
    for file in $(grep -lsaF "$mark" /proc/[0-9]*/environ); do
        pid=${file#/proc/}; pid=${pid%/environ}
        kill -9 "$pid" && found=1
    done
    [ -n "$found" ] || break
done 2>/dev/null
for cgroup in $cgroups; do rmdir "$cgroup"; done 2>/dev/null
"#;

/// A shell that waits for the end of the lab. Dropping it makes it do its work and waits for it.
#[derive(Debug)]
pub struct Guard {
    shell: Mutex<Child>,
    mark: String,
}

impl Guard {
    /// Starts the guard.
    ///
    /// # Errors
    /// What the kernel says; `NotFound` without a shell.
    pub fn start() -> io::Result<Guard> {
        super::tree::become_subreaper()?;
        let mark = format!("{}-{:08x}", std::process::id(), rand::random::<u32>());
        let mut shell = Command::new("sh");
        // The trailing dot ends the mark, so that no other mark begins with it.
        shell.args(["-c", SCRIPT, "drover-lab-guard", &format!("{MARK}={mark}.")]);
        shell.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C on a terminal reaches the lab alone.
        shell.process_group(0);
        let shell = shell.spawn()?;
        super::tree::note_own(shell.id());
        Ok(Guard { shell: Mutex::new(shell), mark })
    }

    /// What the environment variable [`MARK`] of a child named `name` is to hold.
    pub(super) fn mark(&self, number: u32) -> String {
        format!("{}.{number}", self.mark)
    }

    /// Has something ended with the lab: `+group 42`, `-group 42`, `+cgroup /folder`, `-cgroup /folder`.
    ///
    /// A guard that was killed cannot be told; children that the lab itself ends need none.
    pub(super) fn tell(&self, line: &str) {
        let mut shell = self.shell.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stdin) = &mut shell.stdin {
            let _ = stdin.write_all(format!("{line}\n").as_bytes());
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let shell = self.shell.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(shell.stdin.take());
        let _ = shell.wait();
        super::tree::forget_own(shell.id());
    }
}

#[cfg(test)]
impl Guard {
    /// The pipe whose end is the end of the lab.
    pub(super) fn shell_stdin(&self) -> Option<std::process::ChildStdin> {
        self.shell.lock().unwrap().stdin.take()
    }
}
