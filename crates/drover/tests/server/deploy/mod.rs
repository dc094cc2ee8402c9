//! The files in `deploy/`: a service by systemd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Server, Site, drover};

mod booted;

fn deployed(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    fs::read_to_string(path).unwrap()
}

/// With folders and ports of the test in place of the system's.
#[test]
fn the_configuration_of_the_service_serves() {
    let site = Site::new();
    site.file("www/index.html", "index");
    site.file("www/assets/app.js", "script");
    let at = |name: &str| site.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(at("log")).unwrap();
    let text = deployed("drover.toml")
        .replace("/srv/www", &at("www"))
        .replace("/var/log/drover", &at("log"))
        .replace("\":80\", \"[::]:80\"", "\"127.0.0.1:0\"")
        .replace("127.0.0.1:9090", "127.0.0.1:0");
    let mut command = drover();
    command.arg("serve").arg("--config").arg(site.file("drover.toml", text));
    let server = Server::start(command, 1);
    assert_eq!(server.get("/").is(200).field("X-Content-Type-Options"), Some("nosniff"));
    let script = server.get("/assets/app.js").is(200);
    assert_eq!(script.field("Cache-Control"), Some("max-age=31536000, immutable"));
    assert!(Path::new(&at("log/access.log")).exists());
}

/// The values of a setting of the service, one for each line that has it.
fn setting(name: &str) -> Vec<String> {
    let unit = deployed("drover.service");
    let lines = unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    lines.map(str::to_owned).collect()
}

/// RestrictSUIDSGID, which DynamicUser implies, takes openat2(2) away: no file could be opened.
#[test]
fn the_unit_leaves_what_serving_needs_and_names_a_user_that_there_is() {
    assert!(setting("DynamicUser").is_empty() && setting("RestrictSUIDSGID").is_empty());
    let [user] = &setting("User")[..] else { panic!("one user") };
    assert!(deployed("drover.conf").lines().any(|line| line.starts_with(&format!("u {user} "))));
    // The program of ExecReload is there on every system.
    assert!(setting("ExecReload").iter().all(|line| line.starts_with("/bin/sh ")));
}

/// The sandbox of the workers is made by these calls, which not every version of systemd has in `@system-service`.
#[test]
fn the_unit_allows_the_calls_that_make_the_sandbox() {
    let filters = setting("SystemCallFilter");
    for needed in
        ["seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"]
    {
        let names = |filter: &String| filter.split(' ').any(|name| name == needed);
        assert!(filters.iter().any(names), "{needed}: {filters:?}");
        let takes_away = |filter: &&String| filter.starts_with('~');
        for filter in filters.iter().filter(takes_away) {
            assert!(!filter[1..].split(' ').any(|name| name == needed), "{filter}");
        }
    }
}

#[test]
fn the_units_are_such_that_systemd_understands() {
    let folder = tempfile::tempdir().unwrap();
    let units = ["drover.service", "drover.socket"].map(|name| folder.path().join(name));
    for unit in &units {
        // The program must exist where the unit is checked.
        let name = unit.file_name().unwrap().to_str().unwrap();
        fs::write(unit, deployed(name).replace("/usr/local/bin/drover", "/bin/true")).unwrap();
    }
    let verify = Command::new("systemd-analyze").arg("verify").args(&units).output();
    let Ok(verified) = verify else {
        return drover_testing::skip!("systemd-analyze is not installed");
    };
    let told = String::from_utf8_lossy(&verified.stderr);
    let of_units: Vec<&str> = told.lines().filter(|line| line.contains("drover.")).collect();
    assert!(of_units.is_empty(), "{told}");
}
