package main

import (
	"fmt"
	"os"

	"github.com/OpenPeeDeeP/depguard/v2"
	"golang.org/x/tools/go/analysis"
)

// Components meet only at the API (docs/architecture.md).
const (
	apart    = "components do not call each other"
	byClient = "components know the API only through its clients"
	etcd     = "only apiserver/store talks to etcd"
	shared   = "rules are shared by all components and know none of them"
	upstream = "upstream's types are an oracle for tests"
	ofTests  = "servers of tests are for tests"
)

var imports = depguard.LinterSettings{
	"scheduler": {
		Files: []string{"**/scheduler/**", "!**/test/**", "!$test"},
		Deny: map[string]string{"monoplane.dev/apiserver": byClient, "go.etcd.io": etcd,
			"monoplane.dev/controllers": apart, "monoplane.dev/nodeagent": apart},
	},
	"controllers": {
		Files: []string{"**/controllers/**", "!$test"},
		Deny: map[string]string{"monoplane.dev/apiserver": byClient, "go.etcd.io": etcd,
			"monoplane.dev/scheduler": apart, "monoplane.dev/nodeagent": apart},
	},
	"nodeagent": {
		Files: []string{"**/nodeagent/**", "!$test"},
		Deny: map[string]string{"monoplane.dev/apiserver": byClient, "go.etcd.io": etcd,
			"monoplane.dev/controllers": apart, "monoplane.dev/scheduler": apart},
	},
	"rules": {
		Files: []string{"**/rules/**", "!$test"},
		Deny: map[string]string{"monoplane.dev/client": "rules look at objects and ask nobody", "go.etcd.io": etcd,
			"monoplane.dev/apiserver": shared, "monoplane.dev/controllers": shared,
			"monoplane.dev/nodeagent": shared, "monoplane.dev/scheduler": shared},
	},
	"client": {
		Files: []string{"**/client/**", "!$test"},
		Deny:  map[string]string{"monoplane.dev/apiserver": "the client knows the API only", "go.etcd.io": etcd},
	},
	"apiserver": {
		Files: []string{"**/apiserver/**", "!**/apiserver/store/**", "!**/apiserver/test/**", "!$test"},
		Deny: map[string]string{"go.etcd.io": etcd,
			"monoplane.dev/controllers": "the server is told what controllers may do by who starts both"},
	},
	"behind the front": {
		Files: []string{"**/apiserver/registry/**", "**/apiserver/kinds/**", "**/apiserver/validation/**",
			"**/apiserver/store/**", "!$test"},
		Deny: map[string]string{"monoplane.dev/apiserver/rest": "the REST front is one client of the services"},
	},
	"shared by kinds": {
		Files: []string{"**/apiserver/registry/**", "**/apiserver/validation/**", "**/apiserver/store/**", "!$test"},
		Deny:  map[string]string{"monoplane.dev/apiserver/kinds": "what all kinds share knows none of them"},
	},
	"product": {
		Files: []string{"!$test", "!**/test/**", "!**/tools/**"},
		Deny: map[string]string{"k8s.io/api$": upstream, "k8s.io/api/": upstream,
			"testing$": "test code lives in tests", "monoplane.dev/apiserver/test/": ofTests,
			"monoplane.dev/apiserver/store/test/": ofTests},
	},
	"libcontainer": {
		Files: []string{"!**/cmd/ocihelper/**"},
		Deny: map[string]string{
			"github.com/opencontainers/runc/libcontainer": "its constructor re-executes the embedder's binary"},
	},
}

func layers() *analysis.Analyzer {
	a, err := depguard.NewAnalyzer(&imports)
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint: layers.go:", err)
		os.Exit(2)
	}
	return a
}
