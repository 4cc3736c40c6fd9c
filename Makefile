# SPDX-License-Identifier: Apache-2.0

PREFIX    ?= /usr/local
DESTDIR   ?=
NATIVE    ?= bin/narthex
FUZZTIME  ?= 30s
BENCH     ?= .
BENCHPKGS ?= ./test/packet
BENCHARGS ?= -benchtime 1x
DEMOARGS  ?=
SYNARGS   ?=
ROOMARGS  ?=
RULESARGS ?=
HOSTILEARGS ?=
ADAPTARGS ?=
ONLY      ?=
QUICK     ?=
EXPERIMENTARGS ?=
SOAK      ?= 10m
SEED      ?= 1
SOAKARGS  ?=
KERNELS   ?= 6.1 6.12 6.16 6.17 6.18 6.19 7.0 7.2 newest 6.12-arm64
KERNELARGS ?=
PREVIOUS  ?=
VERIFIERARGS ?=
MACHINEARGS ?=

ROOT       = $(DESTDIR)$(PREFIX)
COMPLETIONS = bash-completion/completions zsh/site-functions fish/vendor_completions.d
RELEASE    = 0.1.0
VERSION   := $(patsubst v%,%,$(shell git describe --tags --match 'v*' --dirty 2>/dev/null || echo $(RELEASE)-dev+$$(git describe --always --dirty 2>/dev/null || echo unknown)))
SUDO      := $(if $(filter 0,$(shell id -u)),,sudo -E env PATH=$$PATH)
export PATH := $(PATH):/usr/sbin:/sbin

.PHONY: help
help: ## list what one can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## make bin/narthex (needs Go alone)
	@scripts/setup build
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS) -X main.version=$(VERSION)' -o bin/narthex ./cmd/narthex

.PHONY: demo
demo: build ## show an unmodified server protected from a greedy client (root)
	@scripts/setup demo
	@$(SUDO) bin/narthex demo $(DEMOARGS)

.PHONY: test
test: ## all checks: generated files, lint, verifier, all tests, two minutes of soak (root)
	@scripts/setup test
	scripts/generate-check
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory verifier
	@scripts/test

.PHONY: vulnerabilities
vulnerabilities: ## known vulnerabilities that our code reaches, in modules and in Go (network)
	@scripts/vulnerabilities

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, clang-format
	@scripts/setup lint
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt -w $$unformatted"; exit 1; }
	go vet -tags vm ./...
	go tool staticcheck -tags vm ./...
	find bpf test -type f -name '*.[ch]' -not -path 'bpf/headers/bpf/*' | xargs clang-format-19 --dry-run --Werror

.PHONY: generate
generate: ## compile the eBPF programs (clang-19), write the manual pages
	@scripts/setup lint
	go generate ./...

.PHONY: verifier
verifier: ## what the kernel's verifier makes of each program; UPDATE=1 accepts it, FUNCTIONS=1 says more (root)
	@scripts/setup build
	$(SUDO) go run ./test/verifier $(if $(UPDATE),-update test/verifier/baseline.json) $(if $(FUNCTIONS),-functions) $(VERIFIERARGS)

.PHONY: bench
bench: build ## nanoseconds per decision, then the figures of a running Narthex (30 min, root)
	@scripts/setup test
	go test $(if $(SUDO),-exec '$(SUDO)') -run '^$$' -bench '$(BENCH)' $(BENCHARGS) $(BENCHPKGS)
	$(SUDO) go run ./experiments/syn -narthex bin/narthex $(SYNARGS); syn=$$?; \
	  $(SUDO) go run ./experiments/room -narthex bin/narthex $(ROOMARGS); room=$$?; \
	  $(SUDO) go run ./experiments/rules -narthex bin/narthex $(RULESARGS) && exit $$((syn + room))

.PHONY: hostile
hostile: build ## what attacks do to the waiting room, measured (10 min, root)
	@scripts/setup test
	$(SUDO) go run ./experiments/hostile -narthex bin/narthex $(HOSTILEARGS)

.PHONY: adapt
adapt: build ## what limits that set themselves are worth, measured (90 min, root)
	@scripts/setup test
	$(SUDO) go run ./experiments/adapt -narthex bin/narthex $(ADAPTARGS)

.PHONY: experiments
experiments: build ## the papers' experiments beside today's tools, a report; ONLY=fig12, QUICK=1 (150 min, root)
	@scripts/setup test
	$(SUDO) go run ./experiments/papers -narthex bin/narthex $(if $(ONLY),-only $(ONLY)) $(if $(QUICK),-quick) $(EXPERIMENTARGS)

.PHONY: soak
soak: build ## everything at once in front of the real binary, for SOAK=10m, SEED=1 (root)
	@scripts/setup test
	$(SUDO) go run ./experiments/soak -narthex bin/narthex -for $(SOAK) -seed $(SEED) $(SOAKARGS)

.PHONY: kernels
kernels: ## try all on stock Debian kernels, in virtual machines; KERNELS="6.12 newest"; UPDATE=1 accepts what their verifiers take (root)
	@scripts/setup kernels$(if $(findstring arm64,$(KERNELS)),-arm64)
	$(SUDO) go run ./test/kernels -kernels "$(KERNELS)" $(if $(QUICK),-quick) $(if $(UPDATE),-update test/verifier/baseline.json) $(KERNELARGS)

.PHONY: machine
machine: ## install, follow the tutorial, reboot, upgrade and purge on a Debian 13 of its own, and mend an incident on another (30 min, root)
	@scripts/setup machine
	$(SUDO) go run ./test/machine $(if $(PREVIOUS),-previous $(PREVIOUS)) $(MACHINEARGS)

.PHONY: model
model: ## visit all states of the larger scenarios of the model (minutes, 12 GB)
	NARTHEX_MODEL=large go test -timeout 1h ./test/model

.PHONY: campaign
campaign: ## ten million packets through the gate's source, compiled natively, as many heads through that of rules, 100,000 through six servers (root)
	@scripts/setup test
	go run ./test/gate/campaign -n 10000000 -seed $(SEED)
	go run ./test/rules/campaign -n 10000000 -seed $(SEED)
	$(SUDO) go run ./test/reading/campaign -n 100000 -seed $(SEED)

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME
	@scripts/setup test
	FUZZTIME=$(FUZZTIME) scripts/fuzz

.PHONY: install
install: install-docs ## copy what was built below DESTDIR/PREFIX: binary, units, manual pages, completions, documentation, alert rules
	install -d $(DESTDIR)/etc/narthex
	install -D -m 755 -t $(ROOT)/bin bin/narthex
	for section in 1 5 8; do install -D -m 644 -t $(ROOT)/share/man/man$$section packaging/man/*.$$section || exit 1; done
	install -D -m 644 -t $(ROOT)/share/narthex docs/policy.schema.json
	install -d $(COMPLETIONS:%=$(ROOT)/share/%) $(ROOT)/lib/systemd/system
	$(NATIVE) completion bash > $(ROOT)/share/bash-completion/completions/narthex
	$(NATIVE) completion zsh > $(ROOT)/share/zsh/site-functions/_narthex
	$(NATIVE) completion fish > $(ROOT)/share/fish/vendor_completions.d/narthex.fish
	for unit in narthex.service narthex@.service; do \
	  sed 's|/usr/local/|$(PREFIX)/|' packaging/$$unit > $(ROOT)/lib/systemd/system/$$unit || exit 1; done
	for files in prometheus grafana kubernetes; do \
	  install -D -m 644 -t $(ROOT)/share/narthex/$$files packaging/$$files/* || exit 1; done

.PHONY: install-docs
install-docs:
	install -D -m 644 -t $(ROOT)/share/doc/narthex/examples examples/*.yaml examples/agent.py
	install -D -m 644 -t $(ROOT)/share/doc/narthex/examples/lists examples/lists/*
	install -D -m 644 -t $(ROOT)/share/doc/narthex/examples/pages examples/pages/*
	for file in README.md CHANGELOG.md SECURITY.md $(wildcard docs/*.* docs/*/*.*); do install -D -m 644 $$file $(ROOT)/share/doc/narthex/$$file || exit 1; done
	scripts/loose-links $(ROOT)/share/doc/narthex

.PHONY: uninstall
uninstall: ## remove what install put there
	rm -f $(ROOT)/bin/narthex $(foreach section,1 5 8,$(patsubst packaging/man/%,$(ROOT)/share/man/man$(section)/%,$(wildcard packaging/man/*.$(section))))
	rm -f $(ROOT)/share/bash-completion/completions/narthex $(ROOT)/share/zsh/site-functions/_narthex
	rm -f $(ROOT)/share/fish/vendor_completions.d/narthex.fish $(ROOT)/lib/systemd/system/narthex.service $(ROOT)/lib/systemd/system/narthex@.service
	rm -rf $(ROOT)/share/doc/narthex $(ROOT)/share/narthex

.PHONY: deb
deb: LDFLAGS = -s -w # without tables for debuggers, as packages are
deb: build ## make a package for Debian and Ubuntu, build/narthex_VERSION_ARCH.deb
	packaging/deb/build

.PHONY: rpm
rpm: LDFLAGS = -s -w
rpm: build ## make a package for Fedora, RHEL and their kin, build/narthex-VERSION-1.ARCH.rpm
	packaging/deb/build rpm

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
