// Command kubecontrollers runs controllers of Kubernetes' own controller manager against the API server of a
// kubeconfig until it is told to stop, for benchmarks that compare them with Monoplane's on the same work.
//
//	kubecontrollers --kubeconfig DIR/kubeconfig --controllers deployment,replicaset
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	"monoplane.dev/test/oracle/upstream"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	names := flag.String("controllers", strings.Join(upstream.Names(), ","), "controllers that run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err == nil {
		err = upstream.Run(ctx, config, strings.Split(*names, ",")...)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "kubecontrollers: %v\n", err)
		os.Exit(1)
	}
}
