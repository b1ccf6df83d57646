package e2e_test

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// dialer connects a client of the REST API.
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// ended is how kubectl ends, where as a program it would exit.
type ended struct {
	message string
	code    int
}

// intoTest has kubectl end its command instead of the process.
var intoTest = sync.OnceFunc(func() {
	util.BehaviorOnFatal(func(message string, code int) { panic(ended{message, code}) })
})

// within runs a command of the unmodified kubectl in this process, and returns what run does. The program that
// `make kubectl` builds consists of the same calls. Tests that wait for something ask hundreds of times, of which
// nearly all the time would go to the start of a process.
func (k *kubectl) within(args []string) (output string, code int) {
	intoTest()
	var out capture
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}
	flags := genericclioptions.NewConfigFlags(true).WithDiscoveryBurst(300).WithDiscoveryQPS(50).
		WithWarningPrinter(streams).WithWrapConfigFn(func(config *rest.Config) *rest.Config {
		config.Dial = k.dial
		config.WarningHandler = rest.NewWarningWriter(&out, rest.WarningWriterOptions{Deduplicate: true})
		return config
	})
	cache := filepath.Join(k.home, ".kube", "cache")
	flags.KubeConfig, flags.CacheDir = &k.kubeconfig, &cache
	args = append([]string{"--namespace", k.namespace}, args...)
	defer func() {
		switch end := recover().(type) {
		case nil:
		case ended:
			output, code = out.String()+strings.TrimSuffix(end.message, "\n")+"\n", end.code
		default:
			panic(end)
		}
	}()
	command := cmd.NewKubectlCommand(cmd.KubectlOptions{
		Arguments: append([]string{"kubectl"}, args...), ConfigFlags: flags, IOStreams: streams,
	})
	command.SetArgs(args)
	util.CheckErr(cli.RunNoErrOutput(command))
	return out.String(), 0
}
