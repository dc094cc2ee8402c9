//! A guard that ends the lab's processes when the lab has ended, however it ended.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::tree::MARK;

/// The guard's shell script. It reads what to end, a line each, until its stdin ends, which happens when the lab
/// ends. Then it kills process groups, control groups, and all processes with the mark.
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

/// A shell that waits for the end of the lab. Dropping the value makes the shell end what is left, and waits for the
/// shell.
#[derive(Debug)]
pub struct Guard {
    shell: Mutex<Child>,
    mark: String,
}

impl Guard {
    /// Starts the guard.
    ///
    /// # Errors
    /// What the kernel says; `NotFound` if there is no shell.
    pub fn start() -> io::Result<Guard> {
        super::tree::become_subreaper()?;
        let mark = format!("{}-{:08x}", std::process::id(), rand::random::<u32>());
        let mut shell = Command::new("sh");
        // The dot at the end makes sure that no mark is the beginning of another mark.
        shell.args(["-c", SCRIPT, "drover-lab-guard", &format!("{MARK}={mark}.")]);
        shell.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C on a terminal reaches the lab only.
        shell.process_group(0);
        let shell = shell.spawn()?;
        super::tree::note_own(shell.id());
        Ok(Guard { shell: Mutex::new(shell), mark })
    }

    /// The value of the environment variable [`MARK`] for child `number`.
    pub(super) fn mark(&self, number: u32) -> String {
        format!("{}.{number}", self.mark)
    }

    /// Adds or removes something to end with the lab: `+group 42`, `-group 42`, `+cgroup /folder`, `-cgroup /folder`.
    ///
    /// Errors are ignored: a guard that was killed cannot be told, and the lab ends its own children itself.
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
    /// The pipe whose end tells the guard that the lab has ended.
    pub(super) fn shell_stdin(&self) -> Option<std::process::ChildStdin> {
        self.shell.lock().unwrap().stdin.take()
    }
}
