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

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/replication"
	"k8s.io/kubernetes/pkg/controller/statefulset"
)

// workers is how many objects a controller works on at a time, as the controller manager has it.
const workers = 5

// world is what the controllers get.
type world struct {
	client    kubernetes.Interface
	informers informers.SharedInformerFactory
}

// start makes a controller, and returns what runs it.
type start func(context.Context, world) (func(context.Context), error)

// controllers are those that there are, by the names that Monoplane's own have.
var controllers = map[string]start{
	"deployment": func(ctx context.Context, w world) (func(context.Context), error) {
		apps := w.informers.Apps().V1()
		c, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(),
			w.informers.Core().V1().Pods(), w.client)
		return func(ctx context.Context) { c.Run(ctx, workers) }, err
	},
	"replicaset": func(ctx context.Context, w world) (func(context.Context), error) {
		c := replicaset.NewReplicaSetController(ctx, w.informers.Apps().V1().ReplicaSets(),
			w.informers.Core().V1().Pods(), w.client, replicaset.BurstReplicas)
		return func(ctx context.Context) { c.Run(ctx, workers) }, nil
	},
	"replicationcontroller": func(ctx context.Context, w world) (func(context.Context), error) {
		core := w.informers.Core().V1()
		c := replication.NewReplicationManager(ctx, core.Pods(), core.ReplicationControllers(), w.client,
			replication.BurstReplicas)
		return func(ctx context.Context) { c.Run(ctx, workers) }, nil
	},
	"statefulset": func(ctx context.Context, w world) (func(context.Context), error) {
		core, apps := w.informers.Core().V1(), w.informers.Apps().V1()
		c := statefulset.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(),
			apps.ControllerRevisions(), w.client)
		return func(ctx context.Context) { c.Run(ctx, workers) }, nil
	},
	"daemonset": func(ctx context.Context, w world) (func(context.Context), error) {
		core, apps := w.informers.Core().V1(), w.informers.Apps().V1()
		c, err := daemon.NewDaemonSetsController(ctx, apps.DaemonSets(), apps.ControllerRevisions(), core.Pods(),
			core.Nodes(), w.client, flowcontrol.NewBackOff(time.Second, 15*time.Minute))
		return func(ctx context.Context) { c.Run(ctx, workers) }, err
	},
	"job": func(ctx context.Context, w world) (func(context.Context), error) {
		scheduling := w.informers.Scheduling().V1alpha2()
		c, err := job.NewController(ctx, w.client, w.informers.Core().V1().Pods(), w.informers.Batch().V1().Jobs(),
			scheduling.Workloads(), scheduling.PodGroups())
		return func(ctx context.Context) { c.Run(ctx, workers) }, err
	},
	"cronjob": func(ctx context.Context, w world) (func(context.Context), error) {
		batch := w.informers.Batch().V1()
		c, err := cronjob.NewControllerV2(ctx, batch.Jobs(), batch.CronJobs(), w.client)
		return func(ctx context.Context) { c.Run(ctx, workers) }, err
	},
	"endpointslice": func(ctx context.Context, w world) (func(context.Context), error) {
		core := w.informers.Core().V1()
		c := endpointslice.NewController(ctx, core.Pods(), core.Services(), core.Nodes(),
			w.informers.Discovery().V1().EndpointSlices(), 100, w.client, 0)
		return func(ctx context.Context) { c.Run(ctx, workers) }, nil
	},
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
	w := world{client: client, informers: informers.NewSharedInformerFactory(client, 0)}
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
	var all sync.WaitGroup
	for _, run := range runs {
		all.Go(func() { run(ctx) })
	}
	all.Wait()
	w.informers.Shutdown()
	return context.Cause(ctx)
}
