//! The words of other tools: which flag of Drover does the same, or that none does.
//!
//! A short flag is here only if all of the tools mean the same by it.

use clap::Command;

use super::{names_of, near};

/// A part of Drover whose flags other tools have under other names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Face {
    /// Servers: serve and http-server (npm), miniserve, `python -m http.server`, Caddy's `file-server`, and nginx,
    /// whose directives are keys of a file.
    Serve,
    /// Load generators: wrk, wrk2, oha, hey, k6, vegeta, ab and bombardier.
    Load,
    /// hyperfine.
    Lab,
    /// Subcommands.
    Program,
}

/// Words with one meaning, separated by blanks, and the hint for them. The flags in a hint are flags of the command
/// that the word was written for; those of another command are in quotes, with that command in front.
type Words = (&'static str, &'static str);

const HTTPS: &str = "use --tls self-signed, or --tls-cert FILE with --tls-key FILE";
const PRECOMPRESSED: &str = "use --precompressed after 'drover compress DIR'";
const ROOT: &str = "write the directory without a flag, as in 'drover serve DIR'";
const SPA: &str = "use --fallback index.html";
const STATIC: &str = "not supported: Drover serves files only";
const TO_JOURNAL: &str = "messages go to stderr; use --access-log for a line per response";
const NO_DAEMON: &str = "not supported: run Drover as a service (see deploy/README.md)";

const SERVE: &[Words] = &[
    ("--bind --address --addr --interface --interfaces --ip -l", "use --listen ADDR:PORT"),
    ("--ipv6", "use --listen '[::]:8080'"),
    ("--socket --unix --unix-socket", "use --listen unix:PATH"),
    ("--directory --dir --root --path --public --document-root", ROOT),
    ("--spa --single --try-files --history-fallback", SPA),
    ("--https --ssl --domain", HTTPS),
    ("--cert --ssl-cert --ssl-certificate", "use --tls-cert FILE"),
    ("--key --ssl-key --ssl-certificate-key", "use --tls-key FILE"),
    ("--ssl-pass", "encrypted keys are not supported: decrypt the file of --tls-key"),
    ("--ssl-protocols", "use --tls-min VERSION"),
    ("--h2 --h2c", "use --http2 on (over TLS it is spoken anyway)"),
    ("--http3 --quic", "HTTP/3 is not supported: put Caddy in front (see docs/http2.md)"),
    (
        "--autoindex --browse --list --indexes --show-dir --dir-listing --directory-listing",
        "use --listing",
    ),
    ("--disable-indexing", "folders are not listed without --listing"),
    ("--index", "not supported: the index of a folder is index.html"),
    ("--dotfiles --show-hidden -H", "use --hidden"),
    ("--no-dotfiles", "names that begin with a dot are not served without --hidden"),
    ("--gzip --brotli --zstd --compress --compression --compress-response", PRECOMPRESSED),
    ("--gzip-static --brotli-static --enable-compression", PRECOMPRESSED),
    ("--no-compression", "nothing is compressed without --precompressed"),
    ("--ext --extensions --clean-urls --pretty-urls --html-extension", "use --html-suffix"),
    ("--follow --follow-symlinks", "use --symlinks any"),
    ("--no-symlinks --disable-symlinks", "use --symlinks never"),
    ("--cache-time --max-age --expires", "use --cache-control '* 1h'"),
    ("--no-cache", "use --cache-control '* no-cache'"),
    ("--no-etag", "use --etag off"),
    ("--mime-types --mimetypes --default-type --add-type", "use --types EXT=TYPE"),
    ("--add-header", "use --header 'PATTERN NAME: VALUE'"),
    ("--rewrite --return", "use --redirect 'FROM TO'"),
    ("--not-found --404", "use --error-page 404=FILE"),
    ("--auth-file --auth-basic --auth-basic-user-file --basic-auth --htpasswd", "use --auth FILE"),
    ("--username --password", "use --auth FILE"),
    ("--server-name --vhost --virtual-host", "use --host NAME=ROOT"),
    ("--proxy --proxy-pass --reverse-proxy --upstream", STATIC),
    ("--cgi --php --ssi --templates --fastcgi-pass", STATIC),
    ("--upload --upload-files --mkdir --client-max-body-size", STATIC),
    ("--open", "not supported: open the address that Drover prints in a browser"),
    ("--qrcode --title --color-scheme --theme", "not supported; --listing has one look"),
    (
        "--random-route --route-prefix --base-path --base-dir",
        "not supported: a path is a file's name",
    ),
    ("--silent --quiet --error-log --no-request-logging --log-file", TO_JOURNAL),
    ("--debug --log-level", "use --verbose"),
    ("--daemon --pid --pidfile --pid-file --background", NO_DAEMON),
    ("--worker-processes --threads --procs", "use --workers N"),
    ("--worker-connections", "use --max-connections N"),
    ("--cpu-affinity --worker-cpu-affinity", "use --pin"),
    ("--keepalive-timeout --keep-alive-timeout --keep-alive", "use --idle-timeout T"),
    ("--timeout --send-timeout", "use --idle-timeout T, or --min-rate BYTES for slow clients"),
    ("--client-header-timeout --request-timeout", "use --header-timeout T"),
    ("--keepalive-requests", "use --max-requests N"),
    ("--client-header-buffer-size --large-client-header-buffers", "use --max-line and --max-head"),
    ("--limit-conn", "use --max-per-address N"),
    (
        "--limit-rate --limit-req --rate-limit",
        "not supported; --max-per-address limits connections",
    ),
    ("--sendfile --aio --directio", "use --files BACKEND"),
    ("--open-file-cache --cache-size", "use --cache SIZE"),
    ("--reuseport", "use --accept reuseport"),
    ("--real-ip-header", "use --forwarded-field with --trusted-proxies"),
    ("--set-real-ip-from --proxy-headers --trust-proxy", "use --trusted-proxies LIST"),
    ("--metrics --prometheus --stub-status --status --health", "use --admin ADDR"),
    ("--test --dry-run --validate", "use --check"),
    ("--protocol", "not supported: responses are HTTP/1.1"),
    ("--no-port-switching --no-clipboard", "not needed: this is always so"),
];

const ALWAYS_PRINTED: &str = "not needed: percentiles are always printed";
const RECORDED: &str =
    "scripts are not supported; --urls, --curl and --from-har send different requests";
const CLOSING: &str = "use --calls-per-connection 1";
const RESULT: &str = "use --json FILE, or --csv FILE for a line per second";

const LOAD: &[Words] = &[
    ("--vus --concurrency --clients --workers --max-workers --max-vus", "use --connections N"),
    ("--max-connections", "use --connections N"),
    ("--rps --qps --query-per-second -R", "use --rate R"),
    ("--stage --stages", "use --rate with steps (100,200,500) or a ramp (100..1000)"),
    ("--iterations --number --num-requests", "use --requests N"),
    ("--time --timelimit --time-limit -z", "use --duration T"),
    ("--cpus --procs", "use --threads N"),
    ("--latency --latencies --summary-trend-stats", ALWAYS_PRINTED),
    (
        "--latency-correction --correct-latency",
        "not needed: with --rate, latencies count from the intended start",
    ),
    ("--u-latency -U", "not needed: --json FILE has both kinds of latency"),
    ("--script --lua", RECORDED),
    ("--targets --urls-from-file --url-file --rand-regex-url", "use --urls FILE"),
    ("--lazy", "not needed: --urls FILE is read once"),
    ("--data --post-data", "use --body TEXT"),
    ("--body-file --body-path --postfile --post-file -D", "use --body @FILE"),
    ("--post --put --head", "use --method, and --body for a body"),
    ("--content-type", "use --header 'Content-Type: TYPE'"),
    ("--user-agent --accept --cookie --referer", "use --header 'NAME: VALUE'"),
    (
        "--auth --basic-auth --user",
        "use --header 'Authorization: …', or http://USER:PASSWORD@HOST/",
    ),
    ("--disable-keepalive --no-keepalive --no-connection-reuse --no-vu-connection-reuse", CLOSING),
    ("--keepalive --keep-alive", "connections are kept open; --calls-per-connection 1 closes them"),
    ("--disable-compression", "not needed: nothing is compressed unless --header asks for it"),
    ("--h2", "use --http2 (https:// URLs) or --h2c (http:// URLs)"),
    ("--http3", "not supported: requests are HTTP/1.1 or HTTP/2"),
    ("--http1 --h1 --fasthttp", "not needed: requests are HTTP/1.1 without --http2 or --h2c"),
    ("--http-version", "use --http2 (https:// URLs) or --h2c (http:// URLs)"),
    ("--max-concurrent-streams --http2-parallel", "use --streams N"),
    ("--https --tls --ssl", "use an https:// URL"),
    ("--ca --ca-file --cacerts --root-certs", "use --cacert FILE"),
    ("--insecure-skip-tls-verify --no-verify", "use --insecure"),
    ("--tls-version", "use --tls-max VERSION"),
    ("--session-tickets", "use --tls-resume on, off or N"),
    ("--redirect --redirects --max-redirects --disable-redirects", "redirects are not followed"),
    ("--follow --follow-redirects", "not supported: redirects are not followed"),
    (
        "--proxy --http-proxy --proxy-header",
        "proxies are not supported; --target URL sends all requests to a server",
    ),
    ("--connect-to --resolve --resolvers", "use --target URL"),
    ("--unix-socket", "use --unix PATH"),
    ("--laddr --local-address --local-ips --interface", "use --source ADDRS"),
    ("--connect-timeout --socket-timeout", "use --timeout T"),
    ("--burst-delay --burst-rate", "use --burst N with --think-time T"),
    ("--thresholds --threshold", "use --slo 'p99<5ms,errors<0.1%'"),
    ("--read-bandwidth --throttle", "use --read-rate BYTES"),
    ("--out --output --output-format --format --summary-export --print --db-url", RESULT),
    (
        "--no-tui --quiet --no-print --no-progress --fps",
        "not needed: progress is shown on a terminal only",
    ),
    ("--ipv4 --ipv6", "write the address in the URL, as in http://[::1]:8080/"),
];

const LAB: &[Words] = &[
    ("--runs --min-runs --max-runs --iterations", "use --repeats N"),
    ("--warmup", "not needed: each run warms up before its window"),
    ("--parameter-list --parameter-scan", "use --levels FACTOR=LEVEL,…"),
    ("--duration --time", "use --window T for each run, or --budget T for all"),
    ("--time-limit --timeout --max-time", "use --budget T"),
    ("--output --export --report", "use --out DIR"),
    (
        "--export-json --export-csv --export-markdown",
        "use --out DIR; 'drover lab compare --json FILE' writes JSON",
    ),
    ("--only --filter", "use --subjects NAME,…"),
];

const PROGRAM: &[Words] = &[
    ("file-server http-server httpd miniserve static", "files are served by 'drover serve'"),
    ("attack bench benchmark wrk ab hey oha stress", "load is sent by 'drover load'"),
    ("validate adapt", "a configuration is checked by 'drover serve --check'"),
    ("reload", "a server reads its configuration again at SIGHUP (see docs/serve.md)"),
    ("list-modules", "mechanisms are listed by 'drover mechanisms'"),
    ("hash-password", "not supported: 'htpasswd -B' makes the lines of 'drover serve --auth FILE'"),
    ("version", "use 'drover --version'"),
    ("man", "there is no manual page: each command has --help"),
    ("completion completions", "shell completions are not supported"),
];

impl Face {
    /// The face that a command with this path is a part of: `drover load`.
    pub(super) fn of(path: &str) -> Face {
        match path.split(' ').nth(1) {
            Some("serve") => Face::Serve,
            Some("load" | "idle") => Face::Load,
            Some("lab") => Face::Lab,
            _ => Face::Program,
        }
    }

    fn words(self) -> &'static [Words] {
        match self {
            Face::Serve => SERVE,
            Face::Load => LOAD,
            Face::Lab => LAB,
            Face::Program => PROGRAM,
        }
    }
}

/// What a word of another tool is here. `None`: it is no such word, or `command` has not the flags that would be named.
pub(super) fn hint(command: &Command, face: Face, word: &str) -> Option<String> {
    // As nginx's directives and wrk2's flags are written.
    let word = word.replace('_', "-");
    let is_word = |words: &str| words.split(' ').any(|it| it == word);
    let (_, hint) = face.words().iter().find(|(words, _)| is_word(words))?;
    let has = |flag: &str| names_of(command).any(|it| it == flag);
    flags(hint).all(has).then(|| (*hint).to_owned())
}

/// What a key of a server's configuration file that sets no flag is meant to be. `None`: nothing is known of it.
pub(in crate::cli) fn key_hint<'n>(
    command: &Command,
    key: &str,
    keys: impl IntoIterator<Item = &'n str>,
) -> Option<String> {
    hint(command, Face::Serve, &format!("--{key}"))
        .or_else(|| near(key, keys).map(|key| format!("the nearest is '{key}'")))
}

/// The names of the flags that a hint names for the command itself: outside of quotes.
fn flags(hint: &str) -> impl Iterator<Item = &str> {
    let words = hint.split('\'').step_by(2).flat_map(str::split_whitespace);
    words
        .filter_map(|word| word.strip_prefix("--"))
        .map(|word| word.trim_end_matches([',', ';', ':']))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// The command, with the flags that every command has.
    fn command(path: &str) -> Command {
        let mut program = Cli::command();
        program.build();
        path.split(' ')
            .fold(program, |command, name| command.find_subcommand(name).unwrap().clone())
    }

    fn all() -> impl Iterator<Item = (&'static str, Command, Words)> {
        let serve = ("serve", SERVE);
        [serve, ("load", LOAD), ("lab run", LAB)].into_iter().flat_map(|(path, words)| {
            let command = command(path);
            words.iter().map(move |words| (path, command.clone(), *words))
        })
    }

    #[track_caller]
    fn has(command: &Command, flag: &str, hint: &str) {
        let found = names_of(command).any(|it| it == flag);
        assert!(found, "'{}' has no --{flag}: {hint}", command.get_name());
    }

    #[test]
    fn every_flag_of_a_hint_is_one_of_the_command() {
        let mut count = 0;
        for (_, command, (_, hint)) in all() {
            for flag in flags(hint) {
                has(&command, flag, hint);
                count += 1;
            }
        }
        assert!(count > 70, "{count}");
    }

    /// A hint that names another command, in quotes, names one that exists, with flags that it has.
    #[test]
    fn every_command_of_a_hint_exists() {
        let hints =
            all().map(|(_, _, (_, hint))| hint).chain(PROGRAM.iter().map(|(_, hint)| *hint));
        let mut count = 0;
        for hint in hints {
            for quoted in hint.split('\'').skip(1).step_by(2) {
                let Some(words) = quoted.strip_prefix("drover ") else { continue };
                let (mut program, mut path) = (Cli::command(), Vec::new());
                program.build();
                for word in words.split(' ') {
                    if let Some(flag) = word.strip_prefix("--") {
                        has(&program, flag, hint);
                    } else if let Some(next) = program.find_subcommand(word).cloned() {
                        path.push(word);
                        program = next;
                    }
                }
                assert!(!path.is_empty() || words == "--version", "{hint}");
                count += 1;
            }
        }
        assert!(count > 7, "{count}");
    }

    #[test]
    fn no_word_of_another_tool_is_one_of_ours_and_none_has_two_hints() {
        let mut seen = BTreeSet::new();
        for (path, command, (words, _)) in all() {
            for word in words.split(' ') {
                assert!(seen.insert((path, word)), "{path} {word}");
                let is_short = |flag: &clap::Arg| {
                    flag.get_short().is_some_and(|short| word == format!("-{short}"))
                };
                assert!(!command.get_arguments().any(is_short), "{path} has {word}");
                let ours = word
                    .strip_prefix("--")
                    .is_some_and(|it| names_of(&command).any(|name| name == it));
                assert!(!ours, "{path} has {word}");
            }
        }
        for word in PROGRAM.iter().flat_map(|(words, _)| words.split(' ')) {
            assert!(seen.insert(("", word)), "{word}");
            assert!(Cli::command().find_subcommand(word).is_none(), "there is 'drover {word}'");
        }
    }

    #[test]
    fn a_face_is_named_by_the_command() {
        for (path, face) in [
            ("drover", Face::Program),
            ("drover serve", Face::Serve),
            ("drover idle", Face::Load),
            ("drover lab serve", Face::Lab),
            ("drover compress", Face::Program),
        ] {
            assert_eq!(Face::of(path), face, "{path}");
        }
    }
}
