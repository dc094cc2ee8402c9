//! The pools of a cell below one root.
//!
//! With one pool the root is the pool's folder, or the modelled disk above it; with several, the root has
//! a folder for each. Files of the same size are shared by all experiments of a session and of later ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use waiters::pinned_pages::PinnedPages;

use super::pool::{Files, Shape};
use super::probe::Gain;
use crate::failure::Failure;
use crate::process::{Child, Launch};
use crate::spec::pool::{Disk, Pool};
use crate::subject::Scene;

/// How long mounting, or an answer of the modelled disk, may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many files are read to find out what a disk gains from being asked for many things at once.
const PROBED: usize = 64;

/// What a pool without a length of its own has: as much as `drover serve` would have of one small file.
const BYTES: u64 = 4096;

/// How long a pool is that does not say.
const TOTAL: u64 = 16 << 20;

/// Where the files of all sessions are.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    probed: BTreeMap<PathBuf, Gain>,
    /// The folders whose files this session has taken into the page cache.
    warmed: BTreeSet<PathBuf>,
    /// What a reader has to know of the disk, each once.
    pub notes: Vec<String>,
}

/// The files of a run, below one root, cold or warm. Dropping it unmounts what is modelled.
#[derive(Debug)]
pub struct Site {
    /// The folder to be served.
    pub root: PathBuf,
    /// For each pool a file with the paths of its files on the server, a line each.
    pub urls: BTreeMap<String, PathBuf>,
    /// Whether any of the files is read from a disk, so that a request before the window would spoil it.
    pub is_cold: bool,
    /// A folder on the device below the pools.
    pub device: PathBuf,
    disks: Vec<Child>,
    // Files that are read beside cold ones stay in memory, whoever wants it meanwhile.
    _held: Vec<PinnedPages>,
}

impl Store {
    /// Files are written below `folder`.
    #[must_use]
    pub fn new(folder: &Path) -> Store {
        Store {
            folder: folder.to_path_buf(),
            probed: BTreeMap::new(),
            warmed: BTreeSet::new(),
            notes: Vec::new(),
        }
    }

    /// Writes the files of a cell's pools, and makes them cold or warm. `None` without pools.
    ///
    /// # Errors
    /// [`Failure::NotTestable`] for too little space, or where the modelled disk cannot be mounted;
    /// [`Failure::Failed`].
    pub fn open(
        &mut self,
        pools: &[(String, Pool)],
        scene: &Scene<'_>,
    ) -> Result<Option<Site>, Failure> {
        let Some((_, first)) = pools.first() else { return Ok(None) };
        let shape = |pool: &Pool| -> Result<Shape, Failure> {
            let resolve = |size: &Option<crate::spec::setting::Size>, default| match size {
                Some(size) => size.resolve(scene.levels).map_err(Failure::failed),
                None => Ok(default),
            };
            let bytes = resolve(&pool.bytes, BYTES)?;
            Ok(Shape::of(bytes, resolve(&pool.total, TOTAL.max(bytes))?))
        };
        let single = pools.len() == 1;
        let all_shapes: Vec<Shape> =
            pools.iter().map(|(_, pool)| shape(pool)).collect::<Result<_, _>>()?;
        let parent = match single {
            true => self.folder.clone(),
            // A root of its own for each combination: mount points and folders keep their places.
            false => {
                let of_each = std::iter::zip(pools, &all_shapes).map(|((name, pool), shape)| {
                    let disk = pool.disk(scene.levels).unwrap_or_default();
                    format!("{name}-{}x{}-{disk:?}", shape.files, shape.bytes).to_lowercase()
                });
                self.folder.join(of_each.collect::<Vec<_>>().join("+"))
            }
        };
        let mut site = Site {
            root: parent.clone(),
            urls: BTreeMap::new(),
            is_cold: false,
            device: self.folder.clone(),
            disks: Vec::new(),
            _held: Vec::new(),
        };
        for ((name, pool), shape) in std::iter::zip(pools, &all_shapes) {
            let shared = self.folder.join(format!("{}x{}", shape.files, shape.bytes));
            let disk = pool.disk(scene.levels).map_err(Failure::failed)?;
            let in_place = if single { shared.clone() } else { parent.join(name) };
            let files = match disk {
                Disk::Model => Files::make(&shared, *shape)?,
                Disk::Memory | Disk::Real => Files::make(&in_place, *shape)?,
            };
            let prefix = if single { String::new() } else { format!("/{name}") };
            let urls = scene.work.join(format!("urls-{name}"));
            fs::write(&urls, files.urls(&prefix))
                .map_err(|error| Failure::failed(format!("{}: {error}", urls.display())))?;
            site.urls.insert(name.clone(), urls);
            site.device = files.folder().to_path_buf();
            site.is_cold |= disk != Disk::Memory;
            match disk {
                Disk::Memory => {
                    match self.warmed.contains(files.folder()) {
                        true => files.keep_warm()?,
                        false => files.make_warm()?,
                    }
                    self.warmed.insert(files.folder().to_path_buf());
                    if !single {
                        site._held.extend(files.hold()?);
                    }
                    site.root = if single { files.folder().to_path_buf() } else { parent.clone() };
                }
                Disk::Real => {
                    self.look_at(&files);
                    self.warmed.remove(files.folder());
                    files.make_cold()?;
                    site.root = if single { files.folder().to_path_buf() } else { parent.clone() };
                }
                Disk::Model => {
                    let mountpoint = if single { scene.work.join("disk") } else { in_place };
                    fs::create_dir_all(&mountpoint).map_err(Failure::failed)?;
                    // Served from memory where that suffices: the real disk is no part of the model.
                    let _ = files.make_warm();
                    site.disks.push(mount(&files, &mountpoint, pool, single, scene)?);
                    site.root = if single { mountpoint } else { parent.clone() };
                }
            }
        }
        if first.access_times == Some(true)
            && let Some(why) = sys::process::cannot_note_access_times()
        {
            return Err(Failure::not_testable(why));
        }
        site.root = site.root.canonicalize().map_err(Failure::failed)?;
        Ok(Some(site))
    }

    /// Finds out, once for each folder, whether its disk can show what asynchronous reads gain.
    fn look_at(&mut self, files: &Files) {
        if self.probed.contains_key(files.folder()) {
            return;
        }
        match Gain::probe(&files.some_paths(PROBED)) {
            Ok(gain) => {
                self.notes.push(gain.in_words());
                self.probed.insert(files.folder().to_path_buf(), gain);
            }
            Err(error) => {
                self.notes.push(format!("The disk below the pools cannot be probed ({error})."));
            }
        }
    }
}

impl Site {
    /// What the modelled disks did since this was asked last: the report of the busiest one.
    ///
    /// # Errors
    /// [`Failure::Failed`] if a disk does not answer.
    pub fn report(&mut self) -> Result<Option<Value>, Failure> {
        let mut busiest: Option<Value> = None;
        for disk in &mut self.disks {
            disk.go_on()?;
            let report: Value =
                disk.expect_line("a report", PATIENCE, |line| serde_json::from_str(line).ok())?;
            let use_of = |report: &Value| report["utilisation_percent"].as_f64().unwrap_or(0.0);
            if busiest.as_ref().is_none_or(|before| use_of(before) < use_of(&report)) {
                busiest = Some(report);
            }
        }
        Ok(busiest)
    }
}

/// Mounts files behind a modelled disk: `drover lab disk`, which unmounts when it ends, however it ends.
fn mount(
    files: &Files,
    mountpoint: &Path,
    pool: &Pool,
    is_alone: bool,
    scene: &Scene<'_>,
) -> Result<Child, Failure> {
    let mut command = Command::new(scene.drover);
    command.args(["lab", "disk"]).args([files.folder(), mountpoint]);
    if let Some(speed) = pool.speed {
        command.arg(format!("--speed={speed}"));
    }
    if let Some(metadata) = &pool.metadata {
        let metadata = metadata.resolve(scene.levels).map_err(Failure::failed)?;
        command.arg(format!("--metadata={}us", metadata.as_micros()));
    }
    let mut launch = Launch::new("modelled disk", command, scene.guard, scene.interrupt);
    // Beside the load: the disk is no part of the subject.
    launch.cpus = scene.placement.load.clone();
    // Its shell that unmounts lives until it has done so.
    launch.tidies_up = true;
    // Those who are measured beside cold files wait for the server, and not for the model's own work.
    launch.stands_back = !is_alone;
    let mut disk = Child::start(launch)?;
    let mounted = |line: &str| line.strip_prefix("mounted ").map(drop);
    match disk.expect_line("'mounted'", PATIENCE, mounted) {
        Ok(()) => Ok(disk),
        Err(Failure::Interrupted) => Err(Failure::Interrupted),
        // No FUSE, no right to mount: its last line says which.
        Err(failure) => Err(Failure::not_testable(failure)),
    }
}
