# headgate: `make` alone explains itself.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# What `make run` stands in front of, and its limits.
ORIGIN               ?= http://127.0.0.1:3000
TOTAL_ACTIVE_USERS   ?= 200
NEW_USERS_PER_MINUTE ?= 200
SESSION_DURATION     ?= 5m
LISTEN               ?= :8080
ARGS                 ?=

# How long each fuzz target runs.
FUZZTIME ?= 1s
# Steps of each random walk of package slot.
WALK_STEPS ?= 2000000
SOAK_WALK_STEPS ?= 20000000
# Which scenarios of a cluster, and which of them once more with NATS servers beside.
CLUSTER ?= .
BESIDE ?= Freeze|Rolling|Skew|LostAnswers|Limits|WorkersComeAndGo|Latency|Cost
# With TABLE=1 what was reached is written into docs/faults.md.
KEEP = $(if $(TABLE),-table $(CURDIR)/docs/faults.md)
# Cases of a hunt of the simulator.
HUNT ?= 3000

GO    ?= go
TOOL  := $(GO) tool -modfile=tools.mod
# What go test builds for the long tests only.
TAGS  := crowd kills acme cluster soak bench

.PHONY: help
help: ## say what there is
	@echo 'usage: make TARGET'
	@echo
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14
	@echo
	@echo 'example: make run ORIGIN=http://127.0.0.1:3000'

# --- run -------------------------------------------------------------------

.PHONY: build
build: ## build bin/headgate
	$(GO) build -trimpath -tags grpcnotrace -ldflags=-w -o bin/headgate ./cmd/headgate

.PHONY: run
run: build ## put a waiting room before ORIGIN (default http://127.0.0.1:3000)
	bin/headgate run --origin $(ORIGIN) --listen $(LISTEN) \
		--total-active-users $(TOTAL_ACTIVE_USERS) \
		--new-users-per-minute $(NEW_USERS_PER_MINUTE) \
		--session-duration $(SESSION_DURATION) $(ARGS)

.PHONY: demo
demo: build ## a shop, a room, a crowd and a live picture; k kills the room
	bin/headgate demo $(ARGS)

# --- tests -----------------------------------------------------------------

.PHONY: check
check: format lint quick ## what each commit must pass, within 3 min

.PHONY: format
format: # gofmt and go fix have nothing to say
	@files="$$(gofmt -l $$($(GO) list -f '{{.Dir}}' ./... | sed "s|^$$PWD\$$|$$PWD/*.go|"))"; \
	if [ -n "$$files" ]; then echo "not formatted; run gofmt -w:"; echo "$$files"; exit 1; fi
	@$(GO) fix -diff ./... || { echo 'go fix has something to say: run go fix ./...'; exit 1; }

.PHONY: lint
lint: # vet and staticcheck, with the tags of the long tests too
	$(GO) vet ./...
	$(GO) vet -tags '$(TAGS)' ./tests/...
	$(TOOL) staticcheck -tags '$(TAGS)' ./...

.PHONY: house
house: ## the house rules alone
	$(GO) test -count=1 ./internal/house

# Packages slot and limit have no goroutine, and the race detector slows them tenfold.
.PHONY: quick
quick: # all quick tests, with the race detector where it can find something
	$(GO) test -shuffle=on -short ./slot ./limit ./internal/house
	$(GO) test -race -shuffle=on -short -timeout 5m \
		$$($(GO) list ./... | grep -vE '/(slot|limit|internal/house)$$')

.PHONY: all
all: setup ## every test, within 20 min; installs what it needs
	$(MAKE) check
	$(MAKE) walk
	$(MAKE) fuzz
	$(MAKE) budgets
	$(MAKE) crowd
	$(MAKE) kills
	$(MAKE) cluster CLUSTER=TestThree BESIDE=
	$(MAKE) acme
	$(MAKE) browser
	@echo
	@echo 'make all: everything passed'

.PHONY: walk
walk: # the random walk of the lending protocol, at some length
	$(GO) test -count=1 -timeout 15m -run Walk ./slot -walk-steps $(WALK_STEPS)

# Go before 1.27 may report the end of the fuzz time as a failure, without an input
# (go.dev/issue/75804): then once more.
.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (default 1s)
	@found=0; log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	for dir in $$($(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./...); do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$$dir"/*_test.go); do \
			found=$$((found + 1)); \
			echo "fuzz $${dir#"$$PWD"/} $$target"; \
			fuzz() { $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$dir"; }; \
			if fuzz 2>&1 | tee "$$log"; then continue; fi; \
			grep -q '^    context deadline exceeded$$' "$$log" || exit 1; \
			if grep -qE 'Failing input|panic' "$$log"; then exit 1; fi; \
			fuzz; \
		done; \
	done; \
	if [ $$found = 0 ]; then echo 'no fuzz target found'; exit 1; fi

# Without the race detector, which allocates on its own account.
.PHONY: budgets
budgets: # what quick cuts short at full length, with its budgets; each benchmark a little
	$(GO) test -count=1 -timeout 10m -skip Walk -bench . -benchtime 20x ./cmd/headgate \
		$$(grep -rlE 'testing\.Short\(\)|func Benchmark|AllocsPerRun' --include='*_test.go' . | \
		xargs -n1 dirname | sort -u | grep -vE '/(embedded|demo|limiters)$$') # at length in soak
	$(GO) test -count=1 -v -timeout 10m -tags bench ./tests/peers -slack 1.25
	$(MAKE) limiters SLACK=1.5 LIMITERS=Decisions # the others are in bench

SLACK    ?= 1
LIMITERS ?= .

# A module of its own: nobody who uses headgate should have to fetch the limiters of others.
# Envoy's reference service is fetched and built, and has a Redis of Debian behind it.
.PHONY: limiters
limiters: setup-redis ## limits beside the limiters of others, in one run: 2 min
	cd tests/limiters && $(GO) vet ./... && \
		$(GO) test -count=1 -v -timeout 10m -run '$(LIMITERS)' ./... -slack $(SLACK)

.PHONY: crowd
crowd: ## the real binary under 400 visitors, judged by the origin: 75 s
	$(GO) test -count=1 -v -timeout 5m -tags crowd ./tests/crowd

.PHONY: kills
kills: ## ten kills under 320 visitors, a freeze, fsync before the answer, bad days: 4 min
	$(GO) test -count=1 -v -timeout 10m -tags kills ./tests/kills ./tests/baddays

.PHONY: cluster
cluster: ## real nodes, killed, frozen, cut off and replaced under visitors: 60 min
	$(GO) test -count=1 -v -timeout 90m -tags cluster -run '$(CLUSTER)' ./tests/cluster $(KEEP)
	[ -z '$(BESIDE)' ] || \
	$(GO) test -count=1 -v -timeout 60m -tags cluster -run '$(BESIDE)' ./tests/cluster -own-nats $(KEEP)

.PHONY: acme
acme: ## certificates from a real test issuer: 75 s
	$(GO) test -count=1 -v -timeout 5m -tags acme ./tests/acme

.PHONY: browser
browser: build setup-browser ## the waiting page in a real Chromium
	cd tests/browser && node --test

.PHONY: sim
sim: build ## ten strategies before a world-wide spike, and a page with plots: bin/report.html
	bin/headgate simulate --html bin/report.html $(ARGS)

.PHONY: hunt
hunt: build ## look for a world in which a promise breaks: HUNT cases (default 3000, 15 min)
	bin/headgate simulate --hunt $(HUNT) $(ARGS)

.PHONY: soak
soak: setup ## the long rest: 5,000 visitors, 100 kills, an hour with kills, 10 million keys, long walks
	$(MAKE) all
	$(GO) test -count=1 ./embedded ./internal/demo
	$(MAKE) cluster
	$(GO) test -count=1 -v -timeout 30m -tags soak ./tests/crowd
	$(GO) test -count=1 -v -timeout 3h -tags soak ./tests/kills
	$(MAKE) walk WALK_STEPS=$(SOAK_WALK_STEPS)
	$(MAKE) hunt HUNT=15000 ARGS='--hunt-seed 1000000'
	cd tests/limiters && $(GO) test -count=1 -v -timeout 30m -run 'Overload|ManyKeys' . \
		-keys 10000000 -overload 1m
	$(MAKE) fuzz FUZZTIME=1m

.PHONY: bench
bench: ## the budgets, and all benchmarks ten times, summed up by benchstat
	@mkdir -p bin
	$(GO) test -count=1 -v -timeout 10m -tags bench ./tests/peers
	$(MAKE) limiters
	$(GO) test -count=1 -v -tags bench -run Speed ./internal/sim/baseline
	$(GO) test -run '^$$' -bench . -benchmem -count 10 -timeout 60m ./... | tee bin/bench.txt
	$(TOOL) benchstat bin/bench.txt

# --- a fresh machine ---------------------------------------------------------

.PHONY: setup
setup: setup-go setup-browser ## install what the tests need and is not there

# apt installs packages of Debian, as root or by sudo, or says what is missing.
define apt
apt() { \
	echo "installing: $$*"; \
	local sudo=; \
	if [ "$$(id -u)" != 0 ]; then sudo='sudo -n'; fi; \
	if ! command -v apt-get >/dev/null || ! { [ -z "$$sudo" ] || $$sudo true; }; then \
		echo "missing, and not to be installed from here: $$*" >&2; exit 1; \
	fi; \
	$$sudo apt-get update -qq </dev/null; \
	DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends \
		"$$@" </dev/null >/dev/null; \
}
endef

.PHONY: setup-go
setup-go:
	@$(apt); \
	command -v $(GO) >/dev/null || { echo 'Go is missing: install Go 1.26 or newer' >&2; exit 1; }; \
	command -v gcc >/dev/null || apt gcc libc6-dev; \
	command -v strace >/dev/null || apt strace; \
	command -v unshare >/dev/null || apt util-linux

.PHONY: setup-redis
setup-redis:
	@$(apt); \
	command -v redis-server >/dev/null || apt redis-server

.PHONY: setup-browser
setup-browser:
	@$(apt); \
	missing=(); \
	command -v node >/dev/null || missing+=(nodejs); \
	command -v npm >/dev/null || missing+=(npm); \
	command -v chromium >/dev/null || missing+=(chromium); \
	if [ $${#missing[@]} -gt 0 ]; then apt "$${missing[@]}"; fi; \
	if [ "$$(node -p 'process.versions.node.split(".")[0]')" -lt 20 ]; then \
		echo "Node.js $$(node -v) is too old for the browser tests: install 20 or newer" >&2; exit 1; \
	fi; \
	cd tests/browser; \
	if [ ! -e node_modules/.package-lock.json ] || \
		[ package-lock.json -nt node_modules/.package-lock.json ]; then \
		npm ci --no-audit --no-fund --loglevel=error </dev/null; \
	fi

.PHONY: clean
clean: ## remove what was built
	rm -rf bin coverage
	$(GO) clean -testcache
