//! Listening at a path: stream sockets of unix(7), their mode and owner, and files that a server has left behind.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// The most bytes of a path: `sun_path` has 108, of which the last is a NUL.
pub const PATH_MOST: usize = 107;

/// How long to wait for another server that makes a socket in the same folder.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// How often to ask for the lock meanwhile.
const LOCK_LOOK: Duration = Duration::from_millis(10);

/// A socket to make at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixListener {
    /// The path.
    pub path: PathBuf,
    /// The permissions of the file. Whoever may write to it may connect.
    pub mode: u32,
}

impl UnixListener {
    /// A non-blocking socket that listens at the path, in place of one at which nobody listens any more. The file has
    /// its mode, and the user and group of `owner` if there is one, before the first connection: until listen(2) connects
    /// are refused. The file stays when the socket is closed.
    ///
    /// # Errors
    /// Those of [`UnixListener::check`], and of bind(2), chmod(2) and chown(2).
    pub fn listen(&self, backlog: i32, owner: Option<(u32, u32)>) -> io::Result<OwnedFd> {
        self.listen_by(SocketType::STREAM, backlog, owner)
    }

    /// The same with a socket of another kind.
    pub(crate) fn listen_by(
        &self,
        kind: SocketType,
        backlog: i32,
        owner: Option<(u32, u32)>,
    ) -> io::Result<OwnedFd> {
        // Of two servers that start at once, one would take the other's file, at which nobody listens yet, for a stale
        // one. The lock ends with its descriptor. Where the folder cannot be read there is no lock.
        let folder = self.path.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new("."))).ok();
        folder.as_ref().map(lock).transpose()?;
        self.check()?;
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = socket_of(kind)?;
        // bind(2) makes the file with the mode of the socket less the umask, which this cannot change for one thread alone. The
        // bits that the umask has taken are added to the file that was made, and to no link that has taken its place.
        rustix::fs::fchmod(&socket, Mode::from_raw_mode(self.mode))?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(&self.path)?)?;
        let ready = self
            .set_mode()
            .and_then(|()| owner.map_or(Ok(()), |(u, g)| lchown(&self.path, Some(u), Some(g))))
            .and_then(|()| Ok(rustix::net::listen(&socket, backlog)?));
        if let Err(error) = ready {
            let _removed = fs::remove_file(&self.path);
            return Err(error);
        }
        Ok(socket)
    }

    /// Gives the socket's file its mode, whatever the umask was when it was made. The file is opened first, without following
    /// a link, and must be a socket.
    fn set_mode(&self) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&self.path, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        // The magic link leads to what is open; fchmod(2) takes no O_PATH descriptor before Linux 6.6.
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::set_permissions(open, Permissions::from_mode(self.mode))
    }

    /// Finds whether a socket may be made at the path. Makes nothing.
    ///
    /// # Errors
    /// `AlreadyExists` for a file that is no socket; `AddrInUse` if somebody listens there; `EACCES` if this process may
    /// not find that out; `ENAMETOOLONG` for a path of more than [`PATH_MOST`] bytes; `ENOENT` without its folder.
    pub fn check(&self) -> io::Result<()> {
        match fs::symlink_metadata(&self.path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = self.path.parent().filter(|it| !it.as_os_str().is_empty());
                return fs::metadata(folder.unwrap_or(Path::new("."))).map(drop);
            }
            Err(error) => return Err(error),
        }
        match rustix::net::connect(
            socket_of(SocketType::STREAM)?,
            &SocketAddrUnix::new(&self.path)?,
        ) {
            // Nobody listens, or the file is gone meanwhile.
            Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(()),
            // EAGAIN: its backlog is full. EPROTOTYPE: a socket of another kind.
            Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => Err(io::ErrorKind::AddrInUse.into()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Waits for the lock on a folder, but not for long: every user who may read the folder can hold it.
fn lock(folder: &File) -> io::Result<()> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match flock(folder, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < until => thread::sleep(LOCK_LOOK),
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    format!(
                        "another process holds a lock on its folder for more than {LOCK_PATIENCE:?}; \
                         end it (see lslocks), or choose another folder"
                    ),
                ));
            }
            locked => return Ok(locked?),
        }
    }
}

fn socket_of(kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;

    #[test]
    fn a_lock_that_somebody_holds_on_the_folder_is_waited_for_and_then_told() {
        let folder = tempfile::tempdir().unwrap();
        let held = File::open(folder.path()).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let own = UnixListener { path: folder.path().join("socket"), mode: 0o600 };
        let error = own.listen(16, None).unwrap_err();
        assert!(error.to_string().contains("holds a lock on its folder"), "{error}");
        drop(held);
        own.listen(16, None).unwrap();
    }

    /// As somebody may put there who may write to the folder, between bind(2) and chmod(2).
    #[test]
    fn what_has_taken_the_place_of_the_socket_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let own = UnixListener { path: folder.path().join("socket"), mode: 0o666 };
        let target = folder.path().join("target");
        let _socket = UnixDatagram::bind(folder.path().join("other")).unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        for name in ["file", "other"] {
            fs::rename(folder.path().join(name), &target).unwrap();
            fs::set_permissions(&target, Permissions::from_mode(0o600)).unwrap();
            symlink(&target, &own.path).unwrap();
            assert_eq!(own.set_mode().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o600, "{name}");
            fs::remove_file(&own.path).unwrap();
        }
    }

    #[test]
    fn a_stale_file_is_replaced_and_a_live_socket_or_another_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| UnixListener { path: folder.path().join(name), mode: 0o620 };
        let own = at("socket");
        for _ in 0..2 {
            let socket = own.listen(16, None).unwrap();
            assert_eq!(fs::metadata(&own.path).unwrap().mode() & 0o777, 0o620);
            let _connected = UnixStream::connect(&own.path).unwrap();
            assert_eq!(own.listen(16, None).unwrap_err().kind(), io::ErrorKind::AddrInUse);
            assert_eq!(own.check().unwrap_err().kind(), io::ErrorKind::AddrInUse);
            drop(socket);
            own.check().unwrap();
        }
        fs::write(at("file").path, "").unwrap();
        assert_eq!(at("file").listen(16, None).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let _other = UnixDatagram::bind(at("datagrams").path).unwrap();
        assert_eq!(at("datagrams").listen(16, None).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(at("no/where").check().unwrap_err().kind(), io::ErrorKind::NotFound);
        at(&"x".repeat(200)).listen(16, None).unwrap_err();
    }
}
