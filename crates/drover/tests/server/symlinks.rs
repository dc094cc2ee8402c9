//! `--symlinks`: which links are followed, whoever looks a name up and whatever sends the file.

use std::fs;
use std::os::unix::fs::symlink;

use crate::cache::until;
use crate::harness::{Server, Site, on_every_mechanism, usable_backends};

/// A root with links of every kind, and something outside of it.
fn linked() -> Site {
    let site = Site::new();
    for (folder, content) in [("root/sub", "page"), ("outside", "secret")] {
        site.file(&format!("{folder}/small"), content);
        site.file(&format!("{folder}/large"), content.repeat(50_000));
        site.file(&format!("{folder}/index.html"), content);
    }
    let outside = site.path().join("outside");
    for (name, target) in [
        ("folder", "sub".into()),
        ("out", "../outside".into()),
        ("absolute", outside.clone()),
        ("around", site.path().join("root/sub")),
        ("magic", "/proc/self/cwd".into()),
        ("loop", "loop".into()),
    ] {
        symlink(target, site.path().join("root").join(name)).unwrap();
    }
    symlink("sub/small", site.path().join("root/file")).unwrap();
    symlink(outside.join("small"), site.path().join("root/secret")).unwrap();
    site
}

fn serve(site: &Site, flags: &[&str]) -> Server {
    let mut command = crate::harness::drover();
    command.arg("serve").arg(site.path().join("root")).args(flags);
    Server::start(command, 1)
}

#[track_caller]
fn follows_as_it_should(server: &Server, symlinks: &str, label: &str) {
    let (page, secret) = ("page", "secret");
    let inside = symlinks != "never";
    let any = symlinks == "any";
    let mut client = server.connect();
    // Twice: what is kept is looked up in another way.
    for _ in 0..2 {
        for (target, content, is_found) in [
            ("/sub/small", page, true),
            ("/folder/small", page, inside),
            ("/folder/large", &*page.repeat(50_000), inside),
            ("/folder/", page, inside),
            ("/file", page, inside),
            ("/out/small", secret, any),
            ("/out/large", &*secret.repeat(50_000), any),
            ("/out/", secret, any),
            ("/absolute/large", &*secret.repeat(50_000), any),
            ("/around/small", page, any),
            ("/secret", secret, any),
        ] {
            let response = client.get(target);
            let expected = if is_found { (200, content) } else { (404, "404 Not Found\n") };
            assert!(
                (response.status, response.text()) == expected,
                "{label} {symlinks} {target}: {}",
                response.status
            );
        }
        for target in
            ["/magic/", "/magic/small", "/loop", "/../outside/small", "/out/../../outside/small"]
        {
            client.get(target).is(404);
        }
    }
}

#[test]
fn links_are_followed_as_the_flag_says_through_every_backend() {
    let site = linked();
    for symlinks in ["never", "inside", "any"] {
        for backend in usable_backends() {
            let server = serve(&site, &["--symlinks", symlinks, "--files", backend]);
            follows_as_it_should(&server, symlinks, backend);
        }
    }
}

#[test]
fn links_are_followed_as_the_flag_says_whoever_looks_them_up() {
    let site = linked();
    for symlinks in ["never", "inside", "any"] {
        for flags in [
            &["--stat-threads", "0"][..],
            &["--cache", "off"],
            &["--revalidate", "0s"],
            &["--revalidate", "inotify"],
            &["--processes"],
            &["--no-sandbox"],
        ] {
            let server = serve(&site, &[&["--symlinks", symlinks], flags].concat());
            follows_as_it_should(&server, symlinks, &flags.join(" "));
        }
    }
    on_every_mechanism(|mechanism| {
        for symlinks in ["never", "inside", "any"] {
            let server = serve(&site, &["--symlinks", symlinks, "--dispatch", mechanism.name]);
            follows_as_it_should(&server, symlinks, mechanism.name);
        }
    });
}

/// The bytes are the same, and so is the file: the way to it is another.
#[test]
fn a_kept_file_that_a_link_leads_to_at_last_is_not_served_unless_links_are_followed() {
    for revalidate in ["0s", "inotify,0s"] {
        for threads in ["0", "2"] {
            for (symlinks, stays) in [("never", false), ("inside", true), ("any", true)] {
                let site = linked();
                let flags = ["--symlinks", symlinks, "--revalidate", revalidate];
                let server = serve(&site, &[&flags[..], &["--stat-threads", threads]].concat());
                let mut client = server.connect();
                client.get("/sub/small").is(200);
                client.get("/sub/large").is(200);
                let at = |name: &str| site.path().join("root").join(name);
                fs::rename(at("sub"), at("moved")).unwrap();
                symlink("moved", at("sub")).unwrap();
                for (target, content) in
                    [("/sub/small", "page"), ("/sub/large", &*"page".repeat(50_000))]
                {
                    until(&mut client, target, stays.then_some(content.as_bytes()));
                }
            }
        }
    }
}

/// `inotify` watches beneath the root alone.
#[test]
fn a_change_outside_of_the_root_is_seen_through_a_link() {
    let site = linked();
    let flags = ["--symlinks", "any", "--revalidate", "inotify,1h"];
    let server = serve(&site, &flags);
    let mut client = server.connect();
    // A directory of the name that the link's target has outside.
    site.file("root/outside/small", "decoy");
    for target in ["/out/small", "/absolute/small"] {
        assert_eq!(client.get(target).is(200).text(), "secret");
    }
    site.file("outside/small", "changed");
    for target in ["/out/small", "/absolute/small"] {
        until(&mut client, target, Some(b"changed"));
    }
}
