//! Results as JSON files (`drover.lab/1`), written whole or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::lab::results::{Results, SCHEMA};

/// Writes `results` to `path`. A reader, and a crash, find the old file or the new one, complete.
///
/// # Errors
/// What the file system says, with the path.
pub fn save(results: &Results, path: &Path) -> anyhow::Result<()> {
    write_whole(path, &serde_json::to_vec(results)?)
}

/// Writes a file under another name first and renames it when it is complete.
///
/// # Errors
/// What the file system says, with the path.
pub fn write_whole(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let unfinished = path.with_extension("unfinished");
    fs::write(&unfinished, bytes)
        .and_then(|()| fs::rename(&unfinished, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Reads results back.
///
/// # Errors
/// When the file cannot be read, or holds something else or another version of it.
pub fn load(path: &Path) -> anyhow::Result<Results> {
    let context = || format!("cannot read results from {}", path.display());
    let text = fs::read_to_string(path).with_context(context)?;
    let value: serde_json::Value = serde_json::from_str(&text).with_context(context)?;
    let schema = value["schema"].as_str().unwrap_or("none");
    if schema != SCHEMA {
        bail!("{} has the schema {schema}, this program reads {SCHEMA}", path.display());
    }
    serde_json::from_value(value).with_context(context)
}

/// The files of results in `folder`, by name.
///
/// # Errors
/// What the file system says, with the path.
pub fn find(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::runner::tests::{results_of, sample};

    const TEXT: &str = include_str!("../lab/test-experiment.toml");

    #[test]
    fn results_survive_being_saved_and_loaded() {
        let results = results_of(TEXT, |_, round| Ok(sample(100.0, f64::from(round), 1.5)));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.json");
        save(&results, &path).unwrap();
        save(&results, &path).unwrap();
        let loaded = load(&path).unwrap();
        assert_eq!(
            serde_json::to_string(&loaded).unwrap(),
            serde_json::to_string(&results).unwrap()
        );
        assert_eq!(find(folder.path()).unwrap(), [path]);
    }

    #[test]
    fn a_file_of_another_schema_is_refused_with_both_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        fs::write(&path, "{\"schema\": \"drover.load/1\"}").unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("drover.load/1") && error.contains("drover.lab/1"), "{error}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = load(Path::new("no/such.json")).unwrap_err().to_string();
        assert!(error.contains("no/such.json"), "{error}");
    }
}
