//! What the server tells the service manager that has started it, such as systemd(1): sd_notify(3).
//!
//! A manager names a datagram socket in `NOTIFY_SOCKET`, and is told when the server serves and when it begins to stop. A
//! manager that sets `WATCHDOG_USEC` ends a service that has not said for so long that it is alive. A server says so only if
//! every worker has looked for events since.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tracing::warn;

/// The variables by which a manager speaks to the process that it has started; they do not concern the processes that this
/// one starts.
pub(crate) const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// The manager's end of the conversation.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: UnixDatagram,
    /// How long the server may say nothing; `None`: as long as it likes.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The manager that the environment names; `None`: there is none, or its socket cannot be reached, which is logged: serving
    /// does not depend on being watched.
    pub(crate) fn of_environment() -> Option<ServiceManager> {
        let name = env::var_os("NOTIFY_SOCKET")?;
        let socket = match connect(name.as_bytes()) {
            Ok(socket) => socket,
            Err(error) => {
                let name = name.display();
                warn!("cannot reach the service manager at NOTIFY_SOCKET {name}: {error}");
                return None;
            }
        };
        let own = |pid: String| pid.parse() == Ok(std::process::id());
        let watchdog = env::var("WATCHDOG_USEC").ok().filter(|_| {
            // Without the variable, whoever has the other one is meant.
            env::var("WATCHDOG_PID").map_or(true, own)
        });
        let watchdog = watchdog.and_then(|it| it.parse().ok()).map(Duration::from_micros);
        Some(ServiceManager { socket, watchdog: watchdog.filter(|it| !it.is_zero()) })
    }

    /// How often to call [`ServiceManager::is_alive`]: twice as often as the manager wants.
    pub(crate) fn beat(&self) -> Option<Duration> {
        self.watchdog.map(|within| within / 2)
    }

    /// The server accepts connections. `status` is shown to whoever asks the manager.
    pub(crate) fn is_ready(&self, status: &str) {
        let line = status.replace(char::is_control, " ");
        self.tell(&format!("READY=1\nSTATUS={line}\n"));
    }

    /// The server reloads its configuration, until [`ServiceManager::is_ready_again`].
    pub(crate) fn is_reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now_us = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\n"));
    }

    /// The server has reloaded its configuration, or goes on with the one before. `status`: as for
    /// [`ServiceManager::is_ready`], if it is another one.
    pub(crate) fn is_ready_again(&self, status: Option<&str>) {
        match status {
            Some(status) => self.is_ready(status),
            None => self.tell("READY=1\n"),
        }
    }

    /// Another server has taken over. The manager is not told of an end: it would give the last connections as long as it
    /// gives to a stop.
    pub(crate) fn is_succeeded(&self, successor: u32) {
        self.tell(&format!(
            "STATUS=process {successor} has taken over; the last connections end here\n"
        ));
    }

    /// The server has begun to stop.
    pub(crate) fn is_stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=requests under way may finish\n");
    }

    /// Every worker looks for events.
    pub(crate) fn is_alive(&self) {
        self.tell("WATCHDOG=1\n");
    }

    fn tell(&self, lines: &str) {
        if let Err(error) = self.socket.send(lines.as_bytes()) {
            let what = lines.lines().next().unwrap_or_default();
            warn!("cannot tell the service manager {what}: {error}");
        }
    }
}

/// A socket that reaches `name`: a path, or, behind `@`, a name that is in no file system (unix(7)).
fn connect(name: &[u8]) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match name.strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None if name.starts_with(b"/") => {
            socket.connect(std::path::Path::new(std::ffi::OsStr::from_bytes(name)))?;
        }
        None => return Err(io::ErrorKind::Unsupported.into()),
    }
    // A manager that reads nothing must not keep the server from serving.
    socket.set_nonblocking(true)?;
    Ok(socket)
}
