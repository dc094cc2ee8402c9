//! The FUSE file system of the mounted disk: a directory, read-only, as slow as the modelled spindles.
//!
//! Regular files and directories are shown. Opening and closing a file and listing a directory take no time of the
//! disk. Looking up a name, asking for attributes and reading take time. The kernel opens a file whose name it knows
//! by itself, without asking this process, as with a disk.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, Request,
};

use crate::model::DiskRequest;
use crate::options::DiskOptions;
use crate::turning::Turning;

/// How many reads the kernel may have under way: more than any experiment asks for at once, so that the queue is in
/// the modelled disk. The kernel's default is 12.
const MOST_READS: u16 = 4096;

thread_local! {
    /// The buffer of a spindle's thread. It is reused and as large as the longest read: the kernel would map and
    /// unmap new memory of that length page by page for each read.
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The file system: a directory that is read through spindles.
pub(crate) struct Slow {
    disk: Turning,
    options: DiskOptions,
    nodes: Mutex<Nodes>,
    open: Mutex<HashMap<u64, Arc<File>>>,
    next_handle: AtomicU64,
}

/// The paths that the kernel knows; the index is the inode number less one. Paths are never removed: there are no
/// more than the directory has files.
struct Nodes {
    paths: Vec<Arc<Path>>,
    numbers: HashMap<Arc<Path>, u64>,
}

impl Nodes {
    fn number(&mut self, path: PathBuf) -> INodeNo {
        let path: Arc<Path> = path.into();
        if let Some(&number) = self.numbers.get(&path) {
            return INodeNo(number);
        }
        self.paths.push(Arc::clone(&path));
        let number = self.paths.len() as u64;
        self.numbers.insert(path, number);
        INodeNo(number)
    }
}

impl Slow {
    /// The file system that shows `directory` through `disk`.
    pub(crate) fn new(directory: &Path, disk: Turning, options: &DiskOptions) -> Slow {
        let mut nodes = Nodes { paths: Vec::new(), numbers: HashMap::new() };
        // The kernel gives the root the number 1, so it comes first.
        nodes.number(directory.to_path_buf());
        Slow {
            disk,
            options: options.clone(),
            nodes: Mutex::new(nodes),
            open: Mutex::new(HashMap::new()),
            next_handle: AtomicU64::new(1),
        }
    }

    fn path(&self, node: INodeNo) -> io::Result<Arc<Path>> {
        let index = usize::try_from(node.0 - 1).unwrap_or(usize::MAX);
        lock(&self.nodes).paths.get(index).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The file to read from: one that was opened through this process, or one that the kernel has opened by itself.
    fn file(&self, node: INodeNo, handle: FileHandle) -> io::Result<Arc<File>> {
        if handle.0 == 0 {
            return Ok(Arc::new(File::open(self.path(node)?)?));
        }
        lock(&self.open).get(&handle.0).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let path = self.path(parent)?.join(name);
        let found = fs::symlink_metadata(&path)?;
        let kind = kind(&found).ok_or(io::ErrorKind::NotFound)?;
        Ok(attributes(lock(&self.nodes).number(path), kind, &found))
    }

    fn attributes(&self, node: INodeNo) -> io::Result<FileAttr> {
        let found = fs::symlink_metadata(self.path(node)?)?;
        let kind = kind(&found).ok_or(io::ErrorKind::NotFound)?;
        Ok(attributes(node, kind, &found))
    }

    fn list(&self, node: INodeNo, from: u64, reply: &mut ReplyDirectory) -> io::Result<()> {
        let path = self.path(node)?;
        let here = [".", ".."].map(|name| (FileType::Directory, name.into(), node));
        let below = fs::read_dir(&path)?.filter_map(|entry| {
            let entry = entry.ok()?;
            let kind = kind(&entry.metadata().ok()?)?;
            let number = lock(&self.nodes).number(entry.path());
            Some((kind, entry.file_name(), number))
        });
        for (next, (kind, name, number)) in (1..).zip(here.into_iter().chain(below)) {
            if next > from && reply.add(number, next, kind, name) {
                break;
            }
        }
        Ok(())
    }
}

impl Filesystem for Slow {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // If the kernel does not grant the value, the error has the nearest value that the kernel grants.
        if let Err(nearest) = config.set_max_readahead(self.options.read_ahead) {
            let _ = config.set_max_readahead(nearest);
        }
        // Without this capability io_submit(2) waits for each read past the page cache. Linux has it since 3.10.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_background(MOST_READS);
        let _ = config.set_congestion_threshold(MOST_READS);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let answer = self.look_up(parent, name);
        let lasting = self.options.attributes_for;
        let job = Box::new(move |end: super::turning::RequestEnd| {
            end.wait();
            match answer {
                Ok(attributes) => reply.entry(&lasting, &attributes, Generation(0)),
                Err(error) => reply.error(error.into()),
            }
        });
        self.disk.ask(DiskRequest::Metadata, job);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let answer = self.attributes(node);
        let lasting = self.options.attributes_for;
        let job = Box::new(move |end: super::turning::RequestEnd| {
            end.wait();
            match answer {
                Ok(attributes) => reply.attr(&lasting, &attributes),
                Err(error) => reply.error(error.into()),
            }
        });
        self.disk.ask(DiskRequest::Metadata, job);
    }

    fn open(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.options.keep_cache {
            // ENOSYS tells the kernel (since Linux 3.16) to open files by itself from now on. The kernel then passes
            // 0 as the handle, and keeps the cached pages of the file.
            return reply.error(Errno::ENOSYS);
        }
        match self.path(node).and_then(File::open) {
            Ok(file) => {
                let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
                lock(&self.open).insert(handle, Arc::new(file));
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = match self.file(node, handle) {
            Ok(file) => file,
            Err(error) => return reply.error(error.into()),
        };
        let fails = self.options.fails_from.is_some_and(|from| offset + u64::from(size) > from);
        let job = Box::new(move |end: super::turning::RequestEnd| {
            BYTES.with_borrow_mut(|bytes| {
                bytes.resize(bytes.len().max(size as usize), 0);
                let read = match fails {
                    true => Err(io::Error::from_raw_os_error(Errno::EIO.code())),
                    false => read_at(&file, offset, &mut bytes[..size as usize]),
                };
                end.wait();
                match read {
                    Ok(count) => reply.data(&bytes[..count]),
                    Err(error) => reply.error(error.into()),
                }
            });
        });
        self.disk.ask(DiskRequest::Read { file: node.0, offset, bytes: u64::from(size) }, job);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.open).remove(&handle.0);
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // ENOSYS tells the kernel to send no further request when a file is closed.
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match self.list(node, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }
}

/// Fills `bytes` from `offset` on, up to the end of the file. Returns the number of bytes.
fn read_at(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], offset + read as u64)? {
            0 => break,
            count => read += count,
        }
    }
    Ok(read)
}

/// The kind of a regular file or of a directory; `None` for anything else.
fn kind(found: &Metadata) -> Option<FileType> {
    match found.is_dir() {
        true => Some(FileType::Directory),
        false => found.is_file().then_some(FileType::RegularFile),
    }
}

fn attributes(node: INodeNo, kind: FileType, found: &Metadata) -> FileAttr {
    let modified = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    FileAttr {
        ino: node,
        size: found.len(),
        blocks: found.blocks(),
        atime: modified,
        mtime: modified,
        ctime: modified,
        crtime: modified,
        kind,
        perm: (found.mode() & 0o7777) as u16,
        nlink: 1,
        uid: found.uid(),
        gid: found.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}
