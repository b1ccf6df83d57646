# Monoplane's targets; `make help` explains them.

SHELL := /bin/bash
export GOTOOLCHAIN := local
# Left alone, the race detector lets every process sleep a second before it exits: each package's tests and each
# pod's shim.
export GORACE ?= atexit_sleep_ms=0

# Programs and tests, the race detector's apart, are built in the one way in which Monoplane is shipped: other settings
# would compile all that it is made of once more. Tests are not vetted on the way, since make verify vets everything.
export CGO_ENABLED := 0
export GOFLAGS := $(GOFLAGS) -trimpath

BIN        := $(CURDIR)/bin
VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS    := -s -w -X main.version=$(VERSION)
FUZZTIME   ?= 10m

# Modules that are built together find each other's packages compiled. In test/ the go command finds it by itself.
WORK := $(CURDIR)/test/go.work

# The packages whose tests take longest go first: at the end they would run alone. Some of them mostly wait, so that one
# more than there are processors runs.
HOST  := ./nodeagent/runtime/host
FIRST := $(HOST) ./nodeagent/network/nodens ./scheduler . ./apiserver

KUBECTL_VERSION := 1.36.3
KUBECTL_LDFLAGS := -s -w \
	-X k8s.io/component-base/version.gitVersion=v$(KUBECTL_VERSION) \
	-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36
OLDEST_LDFLAGS  := -s -w \
	-X k8s.io/component-base/version.gitVersion=v1.32.3 \
	-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=32

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: up
up: build ## Build Monoplane and start a cluster on this machine (Ctrl-C stops it)
	$(BIN)/monoplane up $(ARGS)

# The program that makes containers of images is the one that needs a C compiler. Without one the rest is built all the
# same, and has no runtime "oci".
HELPER := nodeagent/runtime/oci/helper/embedded/ocihelper.gz

.PHONY: helper
helper: $(HELPER)
$(HELPER): $(wildcard cmd/ocihelper/*.go nodeagent/volumes/subpath/*.go) go.mod go.sum tools/helper
	@tools/helper $(CURDIR)/$@

.PHONY: build
build: helper ## Build bin/monoplane
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/monoplane ./cmd/monoplane

.PHONY: kubectl
kubectl: $(BIN)/kubectl $(BIN)/resident/kubectl ## Build the unmodified kubectl into bin/
$(BIN)/kubectl: tools/kubectl/go.mod tools/kubectl/main.go test/go.work
	cd tools/kubectl && GOWORK=$(WORK) CGO_ENABLED=0 go build -trimpath -ldflags '$(KUBECTL_LDFLAGS)' -o $@ .

# What asks processes of kubectl that stay while the conformance runs.
$(BIN)/resident/kubectl: $(wildcard test/conformance/resident/*.go test/conformance/resident/kubectl/*.go)
	cd test && go build -ldflags '-s -w' -o $@ ./conformance/resident/kubectl

# The oldest kubectl that is compared with Kubernetes. Its words are its own: they are written to a copy of the scripts.
$(BIN)/oldest/kubectl: tools/kubectl/oldest.mod tools/kubectl/main.go
	cd tools/kubectl && CGO_ENABLED=0 go build -modfile=oldest.mod -trimpath -ldflags '$(OLDEST_LDFLAGS)' -o $@ .

.PHONY: oldest
oldest: build kubectl $(BIN)/kubernetes $(BIN)/oldest/kubectl ## Run the conformance with the oldest kubectl, against Kubernetes and then against Monoplane
	rm -rf $(BIN)/oldest/testdata && cp -r test/conformance/testdata $(BIN)/oldest/
	cd test && go test -count=1 -timeout 1h ./conformance -run '^TestConformance$$' -client $(BIN)/oldest \
	  -data $(BIN)/oldest/testdata -golden $(BIN)/kubernetes
	cd test && go test -count=1 -timeout 1h ./conformance -run '^TestConformance$$' -client $(BIN)/oldest \
	  -data $(BIN)/oldest/testdata -accept

.PHONY: helm
helm: $(BIN)/helm $(BIN)/helm3 ## Build the unmodified Helm, version 4 and version 3 (helm3), into bin/
$(BIN)/helm: tools/helm/go.mod
	cd tools/helm && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $@ helm.sh/helm/v4/cmd/helm
$(BIN)/helm3: tools/helm/go.mod
	cd tools/helm && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $@ helm.sh/helm/v3/cmd/helm

.PHONY: kubecontrollers
kubecontrollers: ## Build the program that runs Kubernetes' own controllers into bin/, for make bench to compare with
	cd test/oracle && CGO_ENABLED=0 go build -trimpath -o $(BIN)/kubecontrollers ./kubecontrollers

$(BIN)/kubernetes: tools/kubernetes/go.mod tools/kubernetes/main.go
	cd tools/kubernetes && CGO_ENABLED=0 go build -trimpath -ldflags '$(KUBECTL_LDFLAGS)' -o $@ .

.PHONY: golden
golden: kubectl $(BIN)/kubernetes ## Write what kubectl prints against Kubernetes' own API server to test/conformance
	cd test && go test -count=1 -timeout 1h ./conformance -golden $(BIN)/kubernetes

.PHONY: conformance
conformance: golden ## The same, and fail where Kubernetes prints something else than the scripts say
	git diff --exit-code -- test/conformance/testdata

# Kubernetes' own suite, what runs its specs beside each other, and the programs of its images.
UPSTREAM := $(BIN)/upstream
$(UPSTREAM)/built: tools/upstream/go.mod
	cd tools/upstream && for tool in ginkgo:github.com/onsi/ginkgo/v2/ginkgo agnhost:k8s.io/kubernetes/test/images/agnhost \
	  nonewprivs:k8s.io/kubernetes/test/images/nonewprivs; do \
	  CGO_ENABLED=0 go build -trimpath -ldflags '$(KUBECTL_LDFLAGS)' -o $(UPSTREAM)/$${tool%%:*} $${tool#*:} || exit; done
	cd tools/upstream && CGO_ENABLED=0 go test -vet=off -c -trimpath -ldflags '$(KUBECTL_LDFLAGS)' \
	  -o $(UPSTREAM)/e2e.test k8s.io/kubernetes/test/e2e
	touch $@

.PHONY: conformance-upstream
conformance-upstream: build kubectl $(UPSTREAM)/built ## Run Kubernetes' own conformance suite, and compare what fails with test/upstream/failing.txt (FOCUS=regexp SKIP=regexp PROCS=6 LOGS=directory); as root
	tools/deps bind9-dnsutils busybox-static curl iproute2 netcat-openbsd
	cd test && go run ./upstream -bin $(BIN) -procs $(or $(PROCS),6) -logs '$(LOGS)' \
	  -source "$$(cd ../tools/upstream && go list -m -f '{{.Dir}}' k8s.io/kubernetes)" $(if $(FOCUS),-focus '$(FOCUS)') -skip '$(SKIP)'

.PHONY: charts
charts: build kubectl helm ## Install, upgrade, roll back and uninstall charts with Helm, and compare with Kubernetes
	cd test && go test -count=1 -timeout 1h -v -run '^TestHelm$$' ./conformance -helm

$(BIN)/buf: tools/buf/go.mod
	cd tools/buf && go build -o $@ github.com/bufbuild/buf/cmd/buf
$(BIN)/lint: $(wildcard tools/lint/*)
	cd tools/lint && go build -o $@ .
$(BIN)/deadcode: tools/deadcode/go.mod
	cd tools/deadcode && go build -o $@ golang.org/x/tools/cmd/deadcode

.PHONY: plugins
plugins:
	@go build -o $(BIN)/ ./cmd/protoc-gen-monoplane
	@cd tools/protoc && go build -o $(BIN)/ google.golang.org/protobuf/cmd/protoc-gen-go \
	  google.golang.org/grpc/cmd/protoc-gen-go-grpc

.PHONY: generate
generate: $(BIN)/buf plugins ## Generate the services in proto/ from the kinds' messages, and api/ and docs/api from proto/
	$(BIN)/buf lint
	$(BIN)/buf breaking --exclude-imports --against proto/image.binpb
	tools/generate
	go run ./tools/openapi
	tools/generated >proto/generated.sha256

.PHONY: verify
verify: $(BIN)/lint $(BIN)/deadcode ## Check that generated code is current, dead code, lint, and the builds without cgo and for macOS
	tools/verify

.PHONY: verify-generated
verify-generated: $(BIN)/buf plugins ## Generate everything anew and compare; check the proto rules and compatibility
	tools/verify generated

# Tests that run the others of their package again as a user, kill at random, or measure: test-root has them, without the
# race detector, which has seen the same code in the others.
ONCE := ^TestRoot(Images|Escapes)OfUser$$|^TestRootUnprivileged$$|^TestRootImage(Kills|Cost)$$

# The race detector makes some tests several times as long. With it, those that play hundreds of rounds play a few
# (-short), and those that read or write megabytes are left out; without it, both run as they are.
UNRACED := ^Test(LargeWritesLeaveLittleBehind|FullDisk|DamagedDatabase|DamagedLog|TooManyEvents)$$|$\
^Test(ApplyOfTooMuch|GuaranteesNameRealTests)$$
ROUNDS  := ^Test(Kill|FiftyClusters|DeletionUnderConcurrency\w*|AStormOfEvictions|\w*NeverOvercommits?|NobodyStarves)$$|$\
^Test(VolumesUnderChaos|ReviewIsWhatHappens)$$

.PHONY: test
test: build kubectl act ## Run all tests that need no privileges (race detector on, where there are goroutines)
	CGO_ENABLED=1 go test -vet=off -race -short -p $$(($$(nproc) + 1)) -timeout 45m -skip '$(ONCE)|$(UNRACED)' $(FIRST) $$(tools/raced)
	cd test && CGO_ENABLED=1 go test -vet=off -race -timeout 45m -run '^TestFake$$' ./workloads
	go test -vet=off -timeout 30m -run '$(UNRACED)|$(ROUNDS)' . ./apiserver ./apiserver/store ./nodeagent/images ./scheduler
	MONOPLANE_TEST_UNRACED=1 go test -vet=off -timeout 30m $(HOST) $$(tools/raced not)
# crash is second, since e2e and conformance beside each other take more than twice as long.
	cd test && go test -vet=off -timeout 45m ./e2e ./crash ./...
	cd test/oracle && go test -vet=off .
	cd examples/controllertest && GOWORK=$(WORK) go test -vet=off ./...

.PHONY: race
race: build act ## Run the tests of all packages with the race detector, as root those of root too (TIMES=1)
	CGO_ENABLED=1 go test -vet=off -race -count=$${TIMES:-1} -timeout 2h -skip '$(ONCE)' ./...

.PHONY: test-root
test-root: build kubectl act ## Run the tests that need root (cgroups, other users, full disks, containerd); `make deps` first (REPEAT=no: but those that `make test` runs as root)
	MONOPLANE_TEST_ONCE=1 go test -vet=off -tags rootonly -timeout 25m -run Root -skip "$$(tools/rooted $(REPEAT))" \
	  $(HOST) $$(grep -rlE --include='*_test.go' '^func Test\w*Root' . | grep -vE '^\./(test|tools)/' | xargs -r dirname | sort -u)
	CGO_ENABLED=1 go test -vet=off -tags "rootonly seccomp netgo osusergo" -run Root ./cmd/ocihelper
	MONOPLANE_TEST_ONCE=1 MONOPLANE_TEST_IMAGES=1 go test -vet=off -short -timeout 20m -skip '^TestRoot' $(HOST)
	cd test && go test -vet=off -tags rootonly -short -timeout 40m -run Root ./e2e ./crash ./cridiff

.PHONY: test-vm
test-vm: build kubectl act ## Run tests of cgroup2, systemd's delegation and AppArmor in a virtual machine of Debian's (RUN=group ONLY=test MINUTES=180); as root
	tools/vm/run

.PHONY: kills-images
kills-images: helper ## Kill agent, shims and helpers of containers of images at random moments, and count what is left (ROUNDS=500); as root
	MONOPLANE_TEST_ROUNDS=$${ROUNDS:-500} go test -vet=off -tags rootonly -count=1 -timeout 24h -v \
	  -run '^TestRootImageKills$$' ./nodeagent/runtime/host

.PHONY: images
images: helper ## Run the tests of runtime "host" on containers of an image, all of them; as root
	MONOPLANE_TEST_IMAGES=1 go test -vet=off -count=1 -timeout 20m -skip '^TestRoot' $(HOST)

.PHONY: host-all
host-all: images ## Run the tests of runtime "host" in all ways, also where it is the same code: race detector, root, user, images; as root
	CGO_ENABLED=1 go test -vet=off -race -count=1 -timeout 45m -run . -skip '$(ONCE)' $(HOST)
	go test -vet=off -tags rootonly -count=1 -timeout 45m $(HOST)

.PHONY: act
act: # The processes of the tests' scenarios of pods
	@cd test && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $(BIN)/act ./lifecycle/act && \
	  CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $(BIN)/act-health ./lifecycle/act/health

.PHONY: deps
deps: ## Install the Debian packages that test-root needs
	tools/deps

.PHONY: bench
bench: build ## Print the speed table, each row beside its limit measured in the same run
	-@$(MAKE) --no-print-directory kubecontrollers # where its modules can be had
	cd test && go run ./bench $(ARGS)
	go test ./scheduler ./scheduler/internal/queue -run '^$$' -bench 'Decisions|Preemption|Unschedulable|Waiting'

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (10m)
	tools/fuzz $(FUZZTIME)

.PHONY: histories
histories: $(BIN)/lint ## Give the same histories to the controllers and to Kubernetes' own, and compare (COUNT=5 SEED=random)
	GOWORK=$(WORK) $(BIN)/lint -tags rootonly ./test/oracle/...
	cd test/oracle && go test -count=1 -timeout=2h ./histories -args -count $${COUNT:-5} -seed $${SEED:-0}

.PHONY: oracle
oracle: ## Compare defaults, validation and the rules of pods with Kubernetes' own code (COUNT=2000 SEED=random), record its answers for `make test` and say what changed
	cd test/oracle && go test -c -tags kubernetes -o $(BIN)/oracle.test . && \
	  $(BIN)/oracle.test -count $${COUNT:-2000} -seed $${SEED:-0} && $(BIN)/oracle.test -record && go test -count=1 .

.PHONY: crash
crash: build ## Kill, pause and starve everything while pods come and go (ROUNDS=500 DURATION=0s SEED=random KINDS=all)
	cd test && MONOPLANE_CRASH_ROUNDS=$${ROUNDS:-500} MONOPLANE_CRASH_DURATION=$${DURATION:-0s} \
	  MONOPLANE_CRASH_SEED=$${SEED:-0} MONOPLANE_CRASH_KINDS=$${KINDS:-} \
	  go test -count=1 -timeout 24h -v -run '^TestCrash$$' ./crash

.PHONY: crash-network
crash-network: build ## The same for pods of images with a network of their own, and the node namespace's helpers; as root (ROUNDS=500 SEED=random KINDS=all USERS=yes for a cluster without root)
	cd test && MONOPLANE_CRASH_ROUNDS=$${ROUNDS:-500} MONOPLANE_CRASH_SEED=$${SEED:-0} \
	  MONOPLANE_CRASH_KINDS=$${KINDS:-} go test -tags rootonly -count=1 -timeout 24h -v \
	  -run '^TestRoot$(if $(USERS),User)NetworkCrash$$' ./crash

.PHONY: leftovers
leftovers: build ## Kill the processes of clusters, as root and as a user, remove their directories or not, and compare what is on the machine after the next start; as root (ROUNDS=200 SEED=random)
	cd test && MONOPLANE_CRASH_ROUNDS=$${ROUNDS:-200} MONOPLANE_CRASH_SEED=$${SEED:-0} \
	  go test -tags rootonly -count=1 -timeout 24h -v -run '^TestRootLeftovers$$' ./crash

.PHONY: kills
kills: build act ## Play scenarios of pods while the server is killed at random moments (COUNT=300 SEED=random IMAGES=yes for containers of images, as root)
	cd test && go test $(if $(IMAGES),-tags rootonly) -count=1 -timeout 24h -v \
	  -run '^Test$(if $(IMAGES),RootImage)LifecycleUnderKills$$' ./e2e -kills $${COUNT:-300} -killseed $${SEED:-0}

.PHONY: kills-workloads
kills-workloads: build ## Change a StatefulSet and run Jobs while the server is killed at random moments (COUNT=300 SEED=random)
	cd test && go test -count=1 -timeout 24h -v -run '^TestWorkloadsUnderKills$$' ./e2e -workloadkills $${COUNT:-300} \
	  -workloadseed $${SEED:-0}

.PHONY: scenarios-large
scenarios-large: ## Play the scenarios of workloads in virtual time, those with 10 000 pods too
	cd test && go test -count=1 -timeout 2h -v -run '^TestFake$$' ./workloads -large

.PHONY: scenarios-images
scenarios-images: build act ## Play all scenarios of a pod's life with images, as root, as a user and on containerd; as root
	cd test && go test -tags rootonly -count=1 -timeout 1h -v -run '^TestRoot(User)?ImageLifecycle$$|^TestRootContainerd$$/^lifecycle$$' \
	  ./e2e -imagescenes 0

.PHONY: kills-containerd
kills-containerd: build act ## Play scenarios of pods while containerd is killed at random moments (COUNT=100 SEED=random); as root
	cd test && go test -tags rootonly -count=1 -timeout 24h -v -run '^TestRootContainerdUnderKills$$' ./e2e \
	  -runtimekills $${COUNT:-100} -runtimekillseed $${SEED:-0}

.PHONY: differences
differences: helper ## Give the same CRI calls to containerd and to runtime "oci", a table and random ones, and compare (COUNT=300 SEED=random); as root
	cd test && go test -vet=off -tags rootonly -count=1 -timeout 24h -v ./cridiff \
	  -cases $${COUNT:-300} -caseseed $${SEED:-0}

.PHONY: lies-containerd
lies-containerd: build act ## Play scenarios of pods while containerd seems to hang, fail and lie (COUNT=100 SEED=random); as root
	cd test && go test -tags rootonly -count=1 -timeout 24h -v -run '^TestRootContainerdLies$$' ./e2e \
	  -runtimelies $${COUNT:-100} -runtimelieseed $${SEED:-0}

.PHONY: flood
flood: build ## Let a pod write a flood of logs as fast as it can, and see what of it stays on the disk (SIZE=1000, in MB)
	cd test && MONOPLANE_FLOOD=$${SIZE:-1000} go test -count=1 -v -run '^TestBadLogFlood$$' ./e2e

.PHONY: nightly
nightly: ## Run all suites that CI leaves out, a line each (SUITES='"crash ROUNDS=10" oracle' LOGS=directory); as root
	@tools/nightly $(SUITES)

.PHONY: clean
clean: ## Remove what was built
	rm -rf $(BIN)
