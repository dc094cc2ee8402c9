//! Pools: the files that servers serve, and the disk that they are on.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::setting::{self, SizeSetting, TimeSetting, level_of};
use crate::model::Level;

/// A pool: files of one size. If the experiment has a single pool, `{root}` is the folder of the pool. If the
/// experiment has several pools, `{root}` has a folder for each pool, with the pool's name. The files are
/// called `000000`, `000001` and so on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// The length of each file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<SizeSetting>,
    /// The length of all files together. The pool has at least one file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<SizeSetting>,
    /// Where the files are read from: `memory` (the page cache), `model` (a modelled disk: two mirrored
    /// spindles of 2007, behind a FUSE file system), `real` (the machine's disk) or `"{factor}"`; `memory` if
    /// the key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "disk"))]
    pub disk: Option<String>,
    /// How many times as fast as a disk of 2007 the modelled disk is; 1 if the key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// How long the modelled disk takes to look up a name at speed 1; as long as a seek if the key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TimeSetting>,
    /// Whether the subject reads the files through a mount that records every access time (strictatime). Only
    /// root can make such a mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_times: Option<bool>,
}

impl PoolSpec {
    /// This pool with every key that the other one sets.
    #[must_use]
    pub fn with(&self, other: &PoolSpec) -> PoolSpec {
        PoolSpec {
            bytes: other.bytes.clone().or_else(|| self.bytes.clone()),
            total: other.total.clone().or_else(|| self.total.clone()),
            disk: other.disk.clone().or_else(|| self.disk.clone()),
            speed: other.speed.or(self.speed),
            metadata: other.metadata.clone().or_else(|| self.metadata.clone()),
            access_times: other.access_times.or(self.access_times),
        }
    }

    /// Where the files are read from in the cell with these levels.
    ///
    /// # Errors
    /// What is wrong with the key, and what would be right.
    pub fn disk(&self, levels: &BTreeMap<String, Level>) -> Result<PoolDisk, String> {
        let Some(disk) = &self.disk else { return Ok(PoolDisk::default()) };
        disk_named(&setting::fill(disk, level_of(levels)).map_err(|unfilled| unfilled.to_string())?)
    }
}

/// Where files are read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolDisk {
    /// The page cache: every page is in memory before each window.
    #[default]
    Memory,
    /// The modelled disk: two mirrored spindles of 2007 behind a FUSE file system, cold before each window.
    Model,
    /// The disk that the pools are on, cold before each window.
    Real,
}

/// Reads the name of a disk.
pub(super) fn disk_named(text: &str) -> Result<PoolDisk, String> {
    match text {
        "memory" => Ok(PoolDisk::Memory),
        "model" => Ok(PoolDisk::Model),
        "real" => Ok(PoolDisk::Real),
        _ => Err(format!("'{text}' is no disk; write \"memory\", \"model\" or \"real\"")),
    }
}
