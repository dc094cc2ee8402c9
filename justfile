# Short names for what CONTRIBUTING.md describes; `just --list` shows them.

# Everything that must pass before a change lands.
check:
    .ci/run

# The tests.
test *ARGS:
    cargo test --workspace {{ARGS}}

# The soak: mixed traffic, with a reload again and again, for so many seconds: just soak 600
soak SECONDS="600":
    DROVER_SOAK={{SECONDS}} cargo test --release -p drover --test server soak -- --nocapture

# Format and lint.
lint:
    cargo fmt --all
    cargo clippy --workspace --all-targets -- -D warnings

# The conformance suites alone, with each mechanism's name.
conformance:
    cargo test -p drover-mech --tests -- --nocapture

# What a request costs in user space, against the budget; just budget --accept writes it anew.
budget *ARGS:
    cargo bench -p drover --bench instructions -- {{ARGS}}

# The quick lab.
lab:
    cargo run --release -- lab

# The pictures and findings of docs/experiments from a session's folder, of the experiments that it has run: just pictures drover-lab/SESSION "a note"
pictures SESSION NOTE="":
    cargo run -p drover-lab --example pictures -- "{{SESSION}}" "{{NOTE}}"

# The sessions of the emulated machine that ship with Drover, anew: three hours.
claims:
    cargo build --release
    target/release/drover lab run --vm kernel/*.toml --preset claims --out target/claims
    cargo run -p drover-lab --example claims -- target/claims

# One fuzz target for a minute: just fuzz request
fuzz TARGET:
    cargo +nightly fuzz run {{TARGET}} -- -max_total_time=60

# The modules of kernel/ in emulated machines with Debian's kernels, and the tests over them: just kernel [6.1|6.12]
kernel *SERIES:
    cargo run -p drover-vm -- {{SERIES}}

# All fuzz targets for so many seconds, side by side, with the compiler that there is; needs a C++ compiler.
smoke SECONDS="60":
    fuzz/smoke {{SECONDS}}

# Licences, sources and advisories of the dependencies, and dependencies that nothing uses; needs cargo-deny and
# cargo-machete (cargo install).
dependencies:
    cargo deny check
    cargo machete --with-metadata
