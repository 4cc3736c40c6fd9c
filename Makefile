# SPDX-License-Identifier: Apache-2.0

PREFIX    ?= /usr/local
DESTDIR   ?=
FUZZTIME  ?= 30s
BENCH     ?= .
BENCHPKGS ?= ./test/packet
BENCHARGS ?= -benchtime 1x
DEMOARGS  ?=

VERSION   := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
SUDO      := $(if $(filter 0,$(shell id -u)),,sudo -E env PATH=$$PATH)
export PATH := $(PATH):/usr/sbin:/sbin

.PHONY: help
help: ## list what one can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## make bin/narthex (needs Go alone)
	@scripts/setup build
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-X main.version=$(VERSION)' -o bin/narthex ./cmd/narthex

.PHONY: demo
demo: build ## show an unmodified server protected from a greedy client (root)
	@scripts/setup demo
	@$(SUDO) bin/narthex demo $(DEMOARGS)

.PHONY: test
test: ## all checks: eBPF objects as generated, lint, all tests (root)
	@scripts/setup test
	scripts/generate-check
	@$(MAKE) --no-print-directory lint
	@scripts/test

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, clang-format
	@scripts/setup lint
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt -w $$unformatted"; exit 1; }
	go vet ./...
	go tool staticcheck ./...
	find bpf -name '*.[ch]' -not -path 'bpf/headers/bpf/*' | xargs clang-format-19 --dry-run --Werror

.PHONY: generate
generate: ## compile the eBPF programs (clang-19) into Go packages
	@scripts/setup lint
	go generate ./...

.PHONY: bench
bench: ## nanoseconds per packet; BENCH=regexp, BENCHPKGS=packages (root)
	go test $(if $(SUDO),-exec '$(SUDO)') -run '^$$' -bench '$(BENCH)' $(BENCHARGS) $(BENCHPKGS)

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME
	@scripts/setup test
	FUZZTIME=$(FUZZTIME) scripts/fuzz

.PHONY: install
install: ## bin/narthex, systemd unit and completions below DESTDIR/PREFIX (after make build)
	install -D -m 755 bin/narthex $(DESTDIR)$(PREFIX)/bin/narthex

.PHONY: uninstall
uninstall: ## remove what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/narthex

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
