// Command kubectl is the unmodified Kubernetes command line, built from its own library. It lives in a
// module of its own, so that neither Monoplane nor its users depend on it. `make kubectl` builds it of the libraries
// that are compiled for Monoplane's tests anyway (test/go.work), which may be newer than the released kubectl's.
package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	// Credential plugins, as in the released kubectl.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
