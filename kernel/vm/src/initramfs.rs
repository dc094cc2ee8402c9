//! The guest's file system: an archive in cpio's "newc" format (initramfs-buffer-format.rst), which the kernel unpacks.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use anyhow::{Context, bail};

use crate::packages::output;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// The users of a guest, and their groups, by the numbers that Debian has.
const USERS: &str = "root:x:0:0::/tmp:/bin/sh\nnobody:x:65534:65534::/tmp:/bin/sh\n";
const GROUPS: &str = "root:x:0:\nnogroup:x:65534:\n";

/// An archive that grows.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    /// Paths, without the slash that they begin with.
    names: BTreeSet<String>,
}

impl Archive {
    /// An archive with the folders that every guest needs, a console, users, busybox and its shell.
    ///
    /// # Errors
    /// There is no statically linked busybox (Debian's package busybox-static).
    pub fn with_shell() -> anyhow::Result<Archive> {
        let mut archive = Archive::default();
        for folder in ["dev", "proc", "sys", "tmp", "bin"] {
            archive.folder(folder);
        }
        // Without it the first program has nowhere to write.
        archive.entry("dev/console", CHARACTER_DEVICE, (5, 1), &[]);
        archive.file("etc/passwd", USERS.as_bytes());
        archive.file("etc/group", GROUPS.as_bytes());
        archive.file("etc/hostname", b"guest\n");
        let busybox = fs::read("/bin/busybox").context("busybox is missing (busybox-static)")?;
        archive.file("bin/busybox", &busybox);
        archive.file("bin/sh", b"#!/bin/busybox sh\nexec /bin/busybox sh \"$@\"\n");
        Ok(archive)
    }

    /// Adds a file that can be run, and the folders above it.
    pub fn file(&mut self, name: &str, content: &[u8]) {
        if let Some((folder, _)) = name.rsplit_once('/') {
            self.folder(folder);
        }
        self.entry(name.trim_start_matches('/'), PROGRAM, (0, 0), content);
    }

    /// Adds a folder, and those above it.
    pub fn folder(&mut self, name: &str) {
        let name = name.trim_start_matches('/');
        if name.is_empty() {
            return;
        }
        let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
        ends.for_each(|end| self.entry(&name[..end], DIRECTORY, (0, 0), &[]));
    }

    /// Adds a program as `name`, without its symbols, and the libraries that it is linked with.
    ///
    /// # Errors
    /// It cannot be read, or a library is missing.
    pub fn program(&mut self, name: &str, path: &Path) -> anyhow::Result<()> {
        // Of this process alone: others may pack the same program.
        let stripped = PathBuf::from(format!("{}.{}.stripped", path.display(), process::id()));
        output(Command::new("strip").arg("-o").arg(&stripped).arg(path))?;
        self.file(name, &fs::read(&stripped)?);
        fs::remove_file(stripped)?;
        for library in libraries(path)? {
            let content = fs::read(&library).with_context(|| library.clone())?;
            self.file(&library, &content);
        }
        Ok(())
    }

    /// Writes the archive to a file, with `init` as the first program.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn write(mut self, init: &str, path: &Path) -> io::Result<()> {
        self.file("init", init.as_bytes());
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        let mut file = fs::File::create(path)?;
        file.write_all(&self.bytes)
    }

    /// Adds what is not there yet.
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        if !self.names.insert(name.to_owned()) {
            return;
        }
        let inode = self.names.len();
        let (len, name_len) = (content.len(), name.len() + 1);
        let (major, minor) = device;
        let head = format!(
            "070701{inode:08x}{mode:08x}{0:08x}{0:08x}{1:08x}{0:08x}{len:08x}{0:08x}{0:08x}{major:08x}{minor:08x}\
             {name_len:08x}{0:08x}{name}\0",
            0, 1
        );
        for part in [head.as_bytes(), content] {
            self.bytes.extend_from_slice(part);
            self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        }
    }
}

/// The libraries that a program is linked with, and its loader, as ldd(1) tells them.
fn libraries(program: &Path) -> anyhow::Result<Vec<String>> {
    let told = output(Command::new("ldd").arg(program))?;
    let mut paths = Vec::new();
    for line in told.lines() {
        if line.contains("not found") {
            bail!("{}: {}", program.display(), line.trim());
        }
        let path = line.split_once("=> ").map_or(line, |(_, path)| path).trim();
        let path = path.split(' ').next().unwrap_or_default();
        if path.starts_with('/') {
            paths.push(path.to_owned());
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_every_name_once_and_all_parts_begin_at_a_multiple_of_four() {
        let mut archive = Archive::default();
        archive.file("/lib/deep/a", b"12345");
        archive.file("lib/deep/b", b"");
        archive.file("lib/deep/b", b"again");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("archive");
        archive.write("#!/bin/sh\n", &path).unwrap();
        let bytes = fs::read(path).unwrap();
        let mut names = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            assert!(rest.starts_with(b"070701"));
            let field = |number: usize| {
                let text = &rest[6 + 8 * number..14 + 8 * number];
                usize::from_str_radix(std::str::from_utf8(text).unwrap(), 16).unwrap()
            };
            let (len, name_len) = (field(6), field(11));
            names.push(String::from_utf8(rest[110..109 + name_len].to_vec()).unwrap());
            let content = (110 + name_len).next_multiple_of(4);
            if names.last().is_some_and(|name| name == "lib/deep/a") {
                assert_eq!(&rest[content..content + len], b"12345");
            }
            rest = &rest[(content + len).next_multiple_of(4)..];
        }
        assert_eq!(names, ["lib", "lib/deep", "lib/deep/a", "lib/deep/b", "init", "TRAILER!!!"]);
    }
}
