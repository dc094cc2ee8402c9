//! Paths: how they are decoded, and that no spelling leaves the root.

use std::os::unix::fs::symlink;

use crate::harness::{Server, Site};

/// A root with something worth stealing next to it.
fn guarded() -> (Site, Server) {
    let site = Site::new();
    site.file("secret", "secret");
    site.file("root/index.html", "front");
    site.file("root/sub/page", "page");
    let root = site.path().join("root");
    symlink("../secret", root.join("link")).unwrap();
    symlink(site.path().join("secret"), root.join("absolute")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("sub/page", root.join("inside")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    let mut command = crate::harness::drover();
    command.arg("serve").arg(&root);
    let server = Server::start(command, 1);
    (site, server)
}

#[test]
fn no_spelling_of_dot_dot_leaves_the_root() {
    let (_site, server) = guarded();
    let dots = ["..", "%2e%2e", "%2E.", ".%2e", "%2e%2E", "..%00", "%252e%252e", "%c0%ae%c0%ae"];
    let slashes = ["/", "//", "/./", "%2f", "%5c", "\\", "/sub/../", "%c0%af", ";/"];
    for dot in dots {
        for slash in slashes {
            for prefix in ["/", "//", "/sub/", "/sub/..", "/./", "/nothing/"] {
                for depth in [1, 2, 8] {
                    let climb = format!("{dot}{slash}").repeat(depth);
                    let target = format!("{prefix}{climb}secret");
                    let response = server.get(&target);
                    assert!(
                        matches!(response.status, 400 | 404),
                        "{target}: {} {:?}",
                        response.status,
                        response.text()
                    );
                }
            }
        }
    }
}

#[test]
fn no_link_leaves_the_root() {
    let (_site, server) = guarded();
    for target in ["/link", "/absolute", "/up/secret", "/up", "/magic/etc/passwd", "/magic/"] {
        server.get(target).is(404);
    }
}

#[test]
fn a_link_that_stays_inside_is_followed() {
    let (_site, server) = guarded();
    assert_eq!(server.get("/inside").is(200).text(), "page");
}

#[test]
fn dots_and_slashes_inside_the_root_are_resolved() {
    let (_site, server) = guarded();
    for target in ["/sub/page", "//sub//page", "/./sub/./page", "/sub/../sub/page", "/%73ub/page"] {
        assert_eq!(server.get(target).is(200).text(), "page", "{target}");
    }
    for target in ["/..", "/../..", "/sub/..", "/sub/../", "/?query", "/."] {
        assert_eq!(server.get(target).is(200).text(), "front", "{target}");
    }
}

#[test]
fn names_are_decoded_once_and_may_have_any_byte() {
    let site = Site::new();
    for name in ["a b", "a?b", "a#b", "a%20b", "%2e%2e", "ü", "a+b", "\n", "a:b", "...", "\\"] {
        site.file(name, name);
    }
    let server = Server::on(&site, &["--hidden"]);
    for (target, name) in [
        ("/a%20b", "a b"),
        ("/a%3Fb", "a?b"),
        ("/a%23b", "a#b"),
        ("/a%2520b", "a%20b"),
        ("/%252e%252e", "%2e%2e"),
        ("/%c3%bc", "ü"),
        ("/a+b", "a+b"),
        ("/%0a", "\n"),
        ("/a:b?c=d/../e", "a:b"),
        ("/...", "..."),
        ("/%5c", "\\"),
    ] {
        assert_eq!(server.get(target).is(200).text(), name, "{target}");
    }
}

/// What was left in a directory that is served, and must not be found there in any spelling.
#[test]
fn names_that_begin_with_a_dot_are_served_only_if_asked_for() {
    let site = Site::new();
    for name in [".git/config", ".git/index.html", ".htpasswd", "sub/.env", "sub/.a/b", "..."] {
        site.file(name, "secret");
    }
    site.file(".well-known/security.txt", "contact");
    site.file(".well-known/.a", "secret");
    site.file("a", "a");
    let public = [("/.well-known/security.txt", "contact"), ("/.git/../a", "a"), ("/a?.git", "a")];
    let hidden = [
        "/.git/config",
        "/.git/",
        "/.git/index.html",
        "/.htpasswd",
        "/%2ehtpasswd",
        "/%2Egit/config",
        "//.git//config",
        "/a/../.git/config",
        "/sub/.env",
        "/sub/%2eenv",
        "/sub/.a/b",
        "/...",
        "/.well-known/.a",
        "/.well-known/../.htpasswd",
        "/.git/config?a",
    ];
    for flags in [&[][..], &["--cache", "off"]] {
        let server = Server::on(&site, flags);
        let missing = server.get("/missing").is(404);
        for target in hidden.into_iter().chain(["/.git", "/sub/.a"]) {
            // Not even a redirect says that it is there.
            assert_eq!(server.get(target).is(404).body, missing.body, "{target}");
        }
        let server_with = Server::on(&site, &[&["--hidden"], flags].concat());
        for target in hidden {
            assert_eq!(server_with.get(target).is(200).text(), "secret", "{target}");
        }
        server_with.get("/.git").is(301);
        for (target, content) in public {
            assert_eq!(server.get(target).is(200).text(), content, "{target}");
            assert_eq!(server_with.get(target).is(200).text(), content, "{target}");
        }
    }
}

#[test]
fn what_cannot_be_a_name_is_refused() {
    let site = Site::new();
    let server = Server::on(&site, &[]);
    let mut client = server.connect();
    for target in ["/%", "/%4", "/%zz", "/a%00b", "/a#b"] {
        client.get(target).is(400);
    }
    for target in [format!("/{}", "a".repeat(256)), "/a/".repeat(2000)] {
        client.get(&target).is(404);
    }
}
