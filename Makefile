# `make help` lists the targets. CI runs the same ones, see .ci/run.

# The modules of this repository. The nested ones keep heavy trees out of the root's go.mod.
MODULES := . chaos/helm chaos/linux examples examples/go-test install/images instrumentation/controlplane internal/cluster/kind/node internal/cluster/kind/program internal/report/browser nodes/aws
# Not controlplane and node: vet and linters would load all of Kubernetes for their few files. Tests that start clusters test them.
CHECKED := . chaos/helm chaos/linux examples examples/go-test install/images internal/cluster/kind/program internal/report/browser nodes/aws
# Flags of the tests; CI adds the race detector.
TESTFLAGS ?= $(if $(CI),-race)
# The race detector finds races in a process that has several goroutines, and makes it several times slower. So -race is
# for the packages whose sources, with their tests, start goroutines, or whose tests serve HTTP or run side by side.
# In cmd/trommel that is the whole program, as its scripts run it.
CONCURRENT := ^[[:space:]]*go (func|[A-Za-z_.]+)\(|\.Go\(|errgroup\.|httptest\.|t\.Parallel\(
# CI leaves two kinds of packages to `make race`. Tests of BUILDERS build or run programs, without -race, and watch them: -race
# doubles the time of their own work, such as parsing, which is not concurrent. A test that links LINKED needs a thousand
# packages a second time, compiled with -race, and most of them run a whole control plane.
BUILDERS ?= $(if $(CI),/(cmd/trommel|instrumentation/points|install/images|examples(/bugs/.*)?)$$)
LINKED ?= $(if $(CI),k8s.io/client-go/kubernetes)
# Packages that keep the machine busy by themselves, with several control planes.
ALONE := /cmd/trommel$$
FUZZTIME ?= 30s
# Without debug information the compiler needs a sixth less time. Trommel builds controllers and control planes in the same
# way, so that they share packages with the tests. Stack traces do not need it.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -gcflags=all=-dwarf=false)
comma := ,

GOLANGCI_LINT_VERSION := v2.15.0
GOLANGCI_LINT := $(CURDIR)/bin/golangci-lint-$(GOLANGCI_LINT_VERSION)

VALE_VERSION := v3.22.0
VALE := $(CURDIR)/bin/vale-$(VALE_VERSION)
# The files whose words are checked. A change in hook or wire needs a new build of the control plane, so they are left out.
WORDS_IN := '*.md' '*.go' ':!instrumentation/hook' ':!instrumentation/wire' ':!examples/bugs/*/report.md'

# The packages that programs outside of this repository may use; docs/api.md says what for.
API := plan plan/build trommeltest record expr instrumentation/wire chaos/api/v1alpha1 nodes/api/v1alpha1 \
	nodes/provider nodes/provider/providertest
APIDIFF_VERSION := v0.0.0-20261014143641-f0251eb4aa3e
APIDIFF := $(CURDIR)/bin/apidiff-$(APIDIFF_VERSION)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## run the first example's plan against its buggy and its fixed controller
	@examples/demo bin/trommel

.PHONY: picture
picture: build ## draw docs/timeline.png from a run of the demo's plan; needs Chromium
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	{ bin/trommel -p examples/database-operator/plans/stale-deletion.yaml --record "$$dir/stale-deletion" || [ $$? = 1 ]; } && \
	bin/trommel report -o html "$$dir/stale-deletion" > "$$dir/page.html" && \
	cd internal/report/browser && go run ./picture "$$dir/page.html" $(CURDIR)/docs/timeline.png

.PHONY: build
build: ## build bin/trommel
	go build -o bin/trommel ./cmd/trommel

.PHONY: images
images: ## build the images of the controllers and the injector into bin/images; IMAGES_FLAGS=--help tells more
	cd install/images && go run . --root ../.. --output $(CURDIR)/bin/images $(IMAGES_FLAGS)

.PHONY: test
test: ## run all tests of all modules; TESTFLAGS=-short leaves out the long ones
	@# Build the control plane first: this takes minutes the first time, and shows its progress.
	$(if $(filter -short,$(TESTFLAGS)),,go run ./cmd/trommel build --control-plane)
	@set -e; for v in $(if $(filter -short,$(TESTFLAGS)),,$(subst $(comma), ,$(TROMMEL_TEST_KUBERNETES))); do \
		go run ./cmd/trommel build --control-plane --kubernetes-version $$v; \
	done
	@# go list -export compiles packages without tests too, and links nothing.
	@# Two packages at a time: their tests mostly wait. With more, control planes exceed each other's timeouts on two cores.
	@failed=; \
	tested() { \
		flags=$$1; shift; \
		[ $$# = 0 ] || { \
			echo "== go test $$flags in module $$m, packages: $$#"; \
			(cd $$m && go test $$flags -timeout 40m "$$@") || failed="$$failed $$m"; \
		}; \
	}; \
	for m in $(CHECKED); do \
		plain=; race=; alone=; linked=; \
		[ -z "$(LINKED)" ] || linked=$$(cd $$m && go list -test -f '{{.Dir}} {{join .Deps " "}} ' ./... | \
			grep -F ' $(LINKED) ' | cut -d' ' -f1 | sort -u); \
		for dir in $$(cd $$m && go list -f '{{.Dir}}' ./...); do \
			if echo "$$dir" | grep -qE '$(ALONE)'; then alone="$$alone $$dir"; \
			elif [ -z "$(filter -race,$(TESTFLAGS))" ] || echo "$$dir" | grep -qE '$(or $(BUILDERS),^$$)' || \
				echo "$$linked" | grep -qxF "$$dir" || \
				! grep -qE '$(CONCURRENT)' "$$dir"/*.go; then plain="$$plain $$dir"; \
			else race="$$race $$dir"; fi; \
		done; \
		(cd $$m && go list -export ./... > /dev/null) || failed="$$failed $$m"; \
		tested "-p 2 $(filter-out -race,$(TESTFLAGS))" $$plain; \
		tested "-p 2 $(TESTFLAGS)" $$race; \
		tested "$(if $(BUILDERS),$(filter-out -race,$(TESTFLAGS)),$(TESTFLAGS))" $$alone; \
	done; \
	if [ -n "$$failed" ]; then echo "tests failed in:$$failed"; exit 1; fi

.PHONY: race
race: ## run all tests, with the race detector where there are goroutines
	@$(MAKE) --no-print-directory test TESTFLAGS="-race $(filter-out -race,$(TESTFLAGS))"

.PHONY: cover
cover: ## write coverage/<module>.html from the short tests
	@mkdir -p coverage
	@set -e; for m in . examples; do \
		name=$$(basename $$(cd $$m && pwd)); \
		(cd $$m && go test -short -coverprofile=$(CURDIR)/coverage/$$name.out ./...); \
		(cd $$m && go tool cover -html=$(CURDIR)/coverage/$$name.out -o $(CURDIR)/coverage/$$name.html); \
	done

.PHONY: versions
versions: ## test controllers of all ages on every Kubernetes version, and write docs/versions.md
	TROMMEL_TEST_VERSIONS='*' go test -v -run 'TestVersions' -count=1 -timeout 60m ./instrumentation -update
	go test -v -run 'TestEveryMinorIsPatched' -count=1 -timeout 60m ./instrumentation/points
	TROMMEL_TEST_KUBERNETES=1.35,1.36,1.37 go test -v -run 'TestKubernetesVersions' -count=1 -timeout 60m ./instrumentation

.PHONY: long
long: ## hold controllers of all ages at each point, run all plans of the examples and third-party operators', eight runs at once, runs that are disturbed at random moments, generated plans in virtual and in real time, a campaign over pods that are killed, and generated plans for our own controllers
	TROMMEL_TEST_VERSIONS='*' go test -v -run '^TestVersions$$' -count=1 -timeout 90m ./instrumentation
	TROMMEL_TEST_LONG=1 go test -v -count=1 -timeout 240m ./internal/testing/operators
	TROMMEL_TEST_LONG=1 go test -v -count=1 -run '^(TestStoppedAndKilledByTheClock|TestKeeperStoppedAndKilled)$$' -timeout 60m ./internal/cluster/embedded
	TROMMEL_TEST_LONG=1 go test -v -count=1 -timeout 30m ./chaos/controller/manager
	TROMMEL_TEST_LONG=1 go test -run '^$$' -bench '^BenchmarkMany$$' -timeout 60m ./chaos/controller/manager
	TROMMEL_TEST_LONG=1 go test -v -count=1 -timeout 300m ./nodes/controller/manager
	TROMMEL_TEST_LONG=1 go test -v -count=1 -timeout 30m -run '^TestKilledAtEveryWrite$$' ./nodes/simulated
	TROMMEL_TEST_LONG=1 go test -v -count=1 -run '^(TestDocumentedCommandsRun|TestCluster|TestCampaignOverPods)$$' -timeout 90m ./cmd/trommel
	cd examples && TROMMEL_TEST_LONG=1 go test -v -count=1 -run '^(TestPlans|TestPlansWithoutNetwork|Test(|Time|Clusters|Upgrades)WithoutPlans)$$' -timeout 200m .
	cd examples && TROMMEL_TEST_LONG=1 go test -v -count=1 -run '^TestDocumentedRights$$' -timeout 30m .
	cd examples && TROMMEL_TEST_LONG=1 go test -v -count=1 -run '^TestMutations(ByOrder)?$$' -timeout 400m .
	cd examples && TROMMEL_TEST_LONG=1 go test -v -count=1 -run '^TestTheSameScheduleMakesTheSameOrder$$' -timeout 60m .
	cd examples && TROMMEL_TEST_LONG=1 go test -v -count=1 -run '^TestOwnControllers$$' -timeout 200m .
	cd examples && TROMMEL_TEST_LONG=1 go test -v -count=1 -run '^(TestMoments|TestPoorMachines|TestClockSet)$$' -timeout 300m .

# The tests of kind build programs where there is no way to the module proxy: what they build is built before, once.
.PHONY: kind-sources
kind-sources:
	go run ./cmd/trommel build --control-plane
	cd install/images && go run . --root ../.. -o ../../bin/images trommel-injector
	cd examples && go mod download

.PHONY: kind-test
kind-test: kind-sources ## as root: bring up a container engine of Debian's packages, test clusters of type kind, and take it down again
	go test -c -o bin/kind.test ./internal/cluster/kind
	cd internal/cluster/kind && TROMMEL_TEST_KIND=1 testing/engine run $(CURDIR)/bin/kind.test -test.v -test.timeout 60m $(KINDFLAGS)

TYPES_TIMES ?= 1

.PHONY: types-test
types-test: kind-sources ## as root: run plans of the examples on clusters of all types, TYPES_TIMES each, with a table of the times, and a disruption on kind
	cd examples && TROMMEL_TEST_TYPES=$(TYPES_TIMES) ../internal/cluster/kind/testing/engine run \
		go test -v -count=1 -run '^(TestClusterTypes|TestDisruptionOnKind)$$' -timeout 0 .

SOAK ?= 1h

.PHONY: soak
soak: ## run the examples' plans again and again for SOAK, such as 8h, and see that nothing differs, grows or is left; docs/trust.md has figures
	mkdir -p bin/soak
	cd examples && TROMMEL_TEST_SOAK=$(SOAK) go test -v -count=1 -run '^TestSoak$$' -timeout 0 -artifacts -outputdir ../bin/soak .

.PHONY: bugs
bugs: build ## show all known bugs of examples/bugs, and write the results; TROMMEL_MIRROR can name a mirror of the sources
	bin/trommel bugs run --update
	go generate ./internal/bugs

.PHONY: bench
bench: ## run the benchmarks
	go test -run '^$$' -bench . -benchmem -timeout 20m ./...

FUZZED := github.com/trommel-dev/trommel/... gopkg.in/yaml.v3 github.com/alecthomas/participle/v2/... \
	github.com/google/cel-go/... github.com/hashicorp/yamux encoding/gob net/rpc helm.sh/helm/v3/...

.PHONY: fuzz
fuzz: ## fuzz each fuzz target for FUZZTIME, such as 30s or 10000000x
	@# Only what reads the inputs is instrumented: go test -fuzz instruments each package, whose counters are then
	@# looked through after each input, which takes up to ten times as long as the input.
	@# To make an input smaller takes up to a minute otherwise, in which nothing is tried if coverage varies.
	@# When the time is over, Go 1.26 now and then fails without an input that fails (go.dev/issue/75804, mended in 1.27).
	@set -e; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; log=$$dir/log; module=$$(go list -m); \
	for p in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
		go test -c $(FUZZED:%=-gcflags=%=-d=libfuzzer) -o "$$dir/test" $$p; \
		for t in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' $$p/*_test.go); do \
			echo "== $$t in $$p"; \
			(cd $$p && $(if $(wildcard /dev/shm/.),TMPDIR=/dev/shm) "$$dir/test" -test.run '^$$' -test.fuzz "^$$t$$" -test.fuzztime $(FUZZTIME) -test.fuzzminimizetime 20x \
				-test.fuzzcachedir "$$(go env GOCACHE)/fuzz/$$module/$${p#./}") 2>&1 | tee $$log; \
			tail -n 1 $$log | grep -q '^PASS' || \
				{ grep -q '^    context deadline exceeded$$' $$log && ! grep -q 'Failing input' $$log; } || exit 1; \
		done; \
	done

.PHONY: lint
lint: $(GOLANGCI_LINT) words ## golangci-lint, whose govet has all checks of go vet, and vale
	@# Without parallel runners it needs a lock file in /tmp, which it cannot open if another user has made it.
	@set -e; for m in $(CHECKED); do \
		echo "== golangci-lint in module $$m"; \
		(cd $$m && $(GOLANGCI_LINT) run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...); \
	done

.PHONY: words
words: ## vale: forbidden words and forms in Markdown and in comments, see .vale; needs a C compiler
	@if ! [ -x $(VALE) ] && ! command -v "$$(go env CC)" > /dev/null; then \
		echo "== vale: skipped, because building it needs a C compiler ($$(go env CC))"; \
		exit; \
	fi; \
	set -e; $(MAKE) --no-print-directory $(VALE); echo "== vale"; \
	git ls-files -co --exclude-standard $(WORDS_IN) | grep -v -e '/testdata/' -e '^CHANGELOG.md' | xargs $(VALE) --output=line

.PHONY: vet
vet: ## go vet alone, without building the linter
	@set -e; for m in $(CHECKED); do echo "== go vet in module $$m"; (cd $$m && go vet ./...); done

# Built from source with the installed Go toolchain: the linter must support the same language version. 80 s without caches.
$(GOLANGCI_LINT):
	@mkdir -p bin
	GOBIN=$(CURDIR)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	mv bin/golangci-lint $@

# Built from source too. Three minutes without caches, because of its parsers in C.
$(VALE):
	@mkdir -p bin
	CGO_ENABLED=1 GOBIN=$(CURDIR)/bin go install github.com/vale-cli/vale/v3/cmd/vale@$(VALE_VERSION)
	mv bin/vale $@

.PHONY: api
api: ## compare the packages that are an API with the last release, or with BASE=REF
	@base="$(BASE)"; [ -n "$$base" ] || base=$$(git tag --list 'v*' --sort=-version:refname | head -n 1); \
	if [ -z "$$base" ]; then \
		echo "There is no release yet, so there is nothing to compare with. BASE=HEAD~1 compares with that commit."; \
		exit; \
	fi; \
	set -e; $(MAKE) --no-print-directory $(APIDIFF); dir=$$(mktemp -d); \
	trap 'git worktree remove --force "$$dir/base" || true; rm -rf "$$dir"' EXIT; \
	git worktree add --quiet --detach "$$dir/base" "$$base"; \
	module=$$(go list -m); echo "== changes since $$base"; \
	for p in $(API); do \
		if [ ! -d "$$dir/base/$$p" ]; then echo "$$p: new"; continue; fi; \
		(cd "$$dir/base" && $(APIDIFF) -w "$$dir/old" "$$module/$$p"); \
		$(APIDIFF) -w "$$dir/new" "$$module/$$p"; \
		changes=$$($(APIDIFF) "$$dir/old" "$$dir/new"); \
		if [ -z "$$changes" ]; then echo "$$p: no change"; else printf '%s:\n%s\n' "$$p" "$$changes"; fi; \
	done

$(APIDIFF):
	@mkdir -p bin
	GOBIN=$(CURDIR)/bin go install golang.org/x/exp/cmd/apidiff@$(APIDIFF_VERSION)
	mv bin/apidiff $@

.PHONY: fmt
fmt: ## format the sources
	gofmt -w $$(git ls-files -co --exclude-standard '*.go' | grep -v '/testdata/')

.PHONY: verify
verify: ## check that formatting, go.mod files and generated files are up to date
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go' | grep -v '/testdata/')); \
	if [ -n "$$unformatted" ]; then echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; fi
	@set -e; for m in $(MODULES); do echo "== go mod tidy -diff in module $$m"; (cd $$m && go mod tidy -diff); done
	@set -e; cd instrumentation/controlplane && for m in go-*.mod; do echo "== go mod tidy -diff for $$m"; go mod tidy -diff -modfile=$$m; done
	@before=$$(git diff | sha256sum; git status --porcelain); \
	set -e; for m in $(MODULES); do echo "== go generate in module $$m"; (cd $$m && go generate ./...); done; \
	after=$$(git diff | sha256sum; git status --porcelain); \
	if [ "$$before" != "$$after" ]; then echo "generated files are out of date:"; git status --short; exit 1; fi

.PHONY: clean
clean: ## remove build results in this directory (caches elsewhere stay)
	rm -rf bin coverage
