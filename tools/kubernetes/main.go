// Command kubernetes is Kubernetes' own API server, controllers and scheduler, unmodified, and an etcd for them, in one
// file, built from their own libraries: what the conformance script in test/conformance is compared with. It lives in
// a module of its own, because nothing else needs it and it takes many minutes to compile: `make golden`.
//
//	kubernetes etcd DIR CLIENT-URL
//	kubernetes kube-apiserver|kube-controller-manager|kube-scheduler FLAGS
package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	programs := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	}
	if len(os.Args) == 4 && os.Args[1] == "etcd" {
		if err := etcd(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintf(os.Stderr, "kubernetes etcd: %v\n", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: kubernetes etcd DIR URL | kube-apiserver|kube-controller-manager|kube-scheduler FLAGS")
		os.Exit(2)
	}
	command := programs[os.Args[1]]()
	command.SetArgs(os.Args[2:])
	os.Exit(cli.Run(command))
}

// etcd keeps a database in dir and serves it at the URL until it is told to stop. It forgets all if the machine stops.
func etcd(dir, client string) error {
	at, err := url.Parse(client)
	if err != nil {
		return fmt.Errorf("URL of etcd: %w", err)
	}
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.UnsafeNoFsync = dir, "error", true
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*at}, []url.URL{*at}
	config.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: "localhost:0"}}
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer server.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	select {
	case <-stop:
		return nil
	case err := <-server.Err():
		return err
	}
}
