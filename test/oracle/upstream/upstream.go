// Package upstream runs the controllers of Kubernetes' own controller manager against any API server, such as
// Monoplane's with its own left out (--controllers). Tests compare what both make of the same history, and benchmarks
// how long they take.
//
//	cluster, err := monoplane.Start(ctx, monoplane.Config{Controllers: upstream.Without("deployment"), ...})
//	go upstream.Run(ctx, config, "deployment")
package upstream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// workers is how many objects a controller works on at a time, as the controller manager has it.
const workers = 5

// resync is how often their DaemonSet controller looks at all DaemonSets again without being told of a change: of a
// rolling update with maxSurge it can miss the last event. The controller manager's twelve hours and more, which the
// others have, nobody waits for.
const resync = 10 * time.Minute

// world is what the controllers get.
type world struct {
	config    *rest.Config
	client    kubernetes.Interface
	informers informers.SharedInformerFactory
	// begun is closed when the informers have been started.
	begun chan struct{}
	// mapper finds the resources of kinds, as discovery tells them.
	mapper meta.ResettableRESTMapper
}

// Names returns the controllers that there are, sorted.
func Names() []string { return slices.Sorted(maps.Keys(controllers)) }

// Without returns the setting by which Monoplane leaves some of its controllers out.
func Without(names ...string) []string {
	words := []string{"*"}
	for _, name := range names {
		words = append(words, "-"+name)
	}
	return words
}

// Run runs controllers until ctx ends. No limit holds their requests back.
func Run(ctx context.Context, config *rest.Config, names ...string) error {
	config = rest.CopyConfig(config)
	config.QPS, config.UserAgent = -1, "kube-controller-manager"
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	w := world{config: config, client: client, informers: informers.NewSharedInformerFactoryWithOptions(client,
		12*time.Hour, informers.WithCustomResyncConfig(map[metav1.Object]time.Duration{&appsv1.DaemonSet{}: resync})),
		begun:  make(chan struct{}),
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))}
	var runs []func(context.Context)
	for _, name := range names {
		begin, ok := controllers[name]
		if !ok {
			return fmt.Errorf("there is no controller %q; those that there are: %v", name, Names())
		}
		run, err := begin(ctx, w)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		runs = append(runs, run)
	}
	w.informers.Start(ctx.Done())
	close(w.begun)
	var all sync.WaitGroup
	for _, run := range runs {
		all.Go(func() { run(ctx) })
	}
	all.Wait()
	w.informers.Shutdown()
	return context.Cause(ctx)
}
