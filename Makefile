# SPDX-License-Identifier: Apache-2.0

PREFIX    ?= /usr/local
DESTDIR   ?=
FUZZTIME  ?= 30s
BENCH     ?= .
BENCHPKGS ?= ./test/packet
BENCHARGS ?= -benchtime 1x
DEMOARGS  ?=
SYNARGS   ?=
ROOMARGS  ?=
HOSTILEARGS ?=
SOAK      ?= 10m
SEED      ?= 1
SOAKARGS  ?=

ROOT       = $(DESTDIR)$(PREFIX)
COMPLETIONS = bash-completion/completions zsh/site-functions fish/vendor_completions.d
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
test: ## all checks: generated files, lint, all tests (root)
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
	find bpf test -type f -name '*.[ch]' -not -path 'bpf/headers/bpf/*' | xargs clang-format-19 --dry-run --Werror

.PHONY: generate
generate: ## compile the eBPF programs (clang-19), write the manual pages
	@scripts/setup lint
	go generate ./...

.PHONY: bench
bench: build ## nanoseconds per decision, then the figures of a running Narthex (20 min, root)
	@scripts/setup test
	go test $(if $(SUDO),-exec '$(SUDO)') -run '^$$' -bench '$(BENCH)' $(BENCHARGS) $(BENCHPKGS)
	$(SUDO) go run ./experiments/syn -narthex bin/narthex $(SYNARGS); syn=$$?; \
	  $(SUDO) go run ./experiments/room -narthex bin/narthex $(ROOMARGS) && exit $$syn

.PHONY: hostile
hostile: build ## what attacks do to the waiting room, measured (10 min, root)
	@scripts/setup test
	$(SUDO) go run ./experiments/hostile -narthex bin/narthex $(HOSTILEARGS)

.PHONY: soak
soak: build ## everything at once in front of the real binary, for SOAK=10m, SEED=1 (root)
	@scripts/setup test
	$(SUDO) go run ./experiments/soak -narthex bin/narthex -for $(SOAK) -seed $(SEED) $(SOAKARGS)

.PHONY: model
model: ## visit all states of the larger scenarios of the model (minutes, 12 GB)
	NARTHEX_MODEL=large go test -timeout 1h ./test/model

.PHONY: campaign
campaign: ## ten million packets through the gate's source, compiled natively
	@scripts/setup test
	go run ./test/gate/campaign -n 10000000 -seed $(SEED)

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME
	@scripts/setup test
	FUZZTIME=$(FUZZTIME) scripts/fuzz

.PHONY: install
install: ## copy what was built below DESTDIR/PREFIX: binary, unit, manual pages, completions, examples
	install -D -m 755 -t $(ROOT)/bin bin/narthex
	install -D -m 644 -t $(ROOT)/share/man/man1 packaging/man/*.1
	install -D -m 644 -t $(ROOT)/share/doc/narthex/examples examples/*.yaml
	install -d $(COMPLETIONS:%=$(ROOT)/share/%) $(ROOT)/lib/systemd/system
	bin/narthex completion bash > $(ROOT)/share/bash-completion/completions/narthex
	bin/narthex completion zsh > $(ROOT)/share/zsh/site-functions/_narthex
	bin/narthex completion fish > $(ROOT)/share/fish/vendor_completions.d/narthex.fish
	sed 's|/usr/local/|$(PREFIX)/|' packaging/narthex.service > $(ROOT)/lib/systemd/system/narthex.service

.PHONY: uninstall
uninstall: ## remove what install put there
	rm -f $(ROOT)/bin/narthex $(patsubst packaging/man/%,$(ROOT)/share/man/man1/%,$(wildcard packaging/man/*.1))
	rm -f $(ROOT)/share/bash-completion/completions/narthex $(ROOT)/share/zsh/site-functions/_narthex
	rm -f $(ROOT)/share/fish/vendor_completions.d/narthex.fish $(ROOT)/lib/systemd/system/narthex.service
	rm -rf $(ROOT)/share/doc/narthex

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
