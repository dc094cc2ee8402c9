//! What is written: right bytes, time and permissions, in the formats and at the levels that are asked for.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

use crate::harness::{ENDINGS, Site, text};

#[test]
fn each_sibling_holds_its_file_and_has_its_time_and_permissions() {
    let site = Site::filled();
    let path = site.path("a/app.js");
    fs::set_permissions(path, fs::Permissions::from_mode(0o640)).unwrap();
    let before = site.files();
    let told = site.compress("");
    assert_eq!(site.siblings().len(), 4 * 3, "{told}");
    site.assert_whole();
    for ending in ENDINGS {
        assert!(told.contains(&format!("{ending:<4}4 written: 28.7 KB → ")), "{told}");
    }
    assert!(before.iter().all(|(name, data)| site.files()[name] == *data), "a file was touched");
}

/// What the crates have encoded, the programs of the formats' authors decode.
#[test]
fn other_programs_read_what_is_written() {
    let site = Site::filled();
    site.compress("");
    for (ending, program) in [("gz", "gzip"), ("br", "brotli"), ("zst", "zstd")] {
        let mut command = Command::new(program);
        let path = site.path(&format!("a/app.js.{ending}"));
        match command.arg("-dc").stdin(fs::File::open(path).unwrap()).output() {
            Ok(output) => assert!(output.stdout == site.read("a/app.js"), "{program}: {output:?}"),
            Err(error) => drover_testing::skip!("{program} is not installed: {error}"),
        }
    }
}

#[test]
fn a_second_run_changes_nothing_and_says_so() {
    let site = Site::filled();
    site.compress("");
    let before = site.files();
    let told = site.compress("");
    assert_eq!(told, "Nothing to do: 12 siblings of 4 files up to date\n");
    assert_eq!(site.files(), before);
    // Another level alone is no reason.
    site.compress("--level fast");
    assert_eq!(site.files(), before);
}

#[test]
fn formats_and_levels_are_those_that_are_asked_for() {
    let site = Site::filled();
    let told = site.compress("--formats gz,brotli --level fast");
    site.assert_siblings("a/app.js", &["br", "gz"]);
    assert!(told.contains("br  4 written") && !told.contains("zst"), "{told}");
    let len = |ending: &str| site.metadata(&format!("a/app.js.{ending}")).len();
    let fast = ENDINGS.map(|ending| if ending == "zst" { 0 } else { len(ending) });
    site.compress("--force --level fast,br=11,gz=9,zst=1");
    site.assert_whole();
    let best = ENDINGS.map(len);
    assert!(best[0] < fast[0] && best[2] <= fast[2], "{fast:?} {best:?}");
    site.compress("--force --formats zst --level best");
    assert!(len("zst") < best[1]);
    assert_eq!([len("br"), len("gz")], [best[0], best[2]]);
}

#[test]
fn the_bytes_are_the_same_however_many_threads_there_are() {
    let (one, many) = (Site::filled(), Site::filled());
    one.compress("--jobs 1");
    many.compress("-j 16");
    assert_eq!(one.siblings(), many.siblings());
    for sibling in one.siblings() {
        assert!(one.read(&sibling) == many.read(&sibling), "{sibling}");
    }
}

#[test]
fn force_writes_anew_what_is_up_to_date() {
    let site = Site::filled();
    site.compress("--formats gz");
    let before = site.metadata("index.html.gz").ino();
    // The old file keeps its number as long as it has a name.
    fs::hard_link(site.path("index.html.gz"), site.path("kept")).unwrap();
    site.compress("--formats gz --force");
    assert_ne!(site.metadata("index.html.gz").ino(), before);
    fs::remove_file(site.path("kept")).unwrap();
    site.assert_whole();
}

#[test]
fn a_dry_run_lists_everything_and_changes_nothing() {
    let site = Site::filled();
    site.compress("--formats gz,zst");
    site.write("index.html", &text(9, 4000));
    let time = site.metadata("a/app.js").modified().unwrap() + std::time::Duration::from_secs(9);
    site.set_time("a/app.js", time);
    fs::remove_file(site.path("a/b/data.json")).unwrap();
    let before = site.files();
    let told = site.compress("--formats gz --prune --dry-run");
    assert_eq!(site.files(), before);
    let mut lines: Vec<&str> =
        told.lines().filter(|it| it.contains(".gz") || it.contains(".zst")).collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "refresh a/app.js.gz",
            "remove a/app.js.zst",
            "remove a/b/data.json.gz",
            "remove a/b/data.json.zst",
            "remove a/größe µ.svg.zst",
            "remove index.html.gz",
            "remove index.html.zst",
            "write index.html.gz",
        ]
    );
    assert!(told.contains("1 to be written, of 4.00 KB"), "{told}");
}

/// Scripts get no progress, whatever the environment says of colours.
#[test]
fn nothing_is_drawn_where_there_is_no_terminal() {
    let site = Site::filled();
    let mut command = site.command("");
    let output = command.env("CLICOLOR_FORCE", "1").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(!output.stdout.contains(&0x1b) && !output.stdout.contains(&b'\r'), "{output:?}");
}
