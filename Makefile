# `make demo` and `make test` need a Rust toolchain and a C compiler, and work as root and as an ordinary user.
.PHONY: demo test test-peers lint fuzz build

CARGO ?= cargo
SOFTDPU = target/release/softdpu

demo: build
	$(SOFTDPU) lab run examples/two-tenants

build:
	$(CARGO) build --release --locked -p softdpu

test: build
	$(CARGO) test --locked --workspace

# Needs root: installs the programs of others that it tests against.
test-peers: build
	bash scripts/test-peers

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) xtask check-deps

# Needs the nightly toolchain; 20 s for each parser.
fuzz:
	$(CARGO) xtask fuzz --seconds 20
