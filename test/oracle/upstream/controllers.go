package upstream

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/endpoint"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/endpointslicemirroring"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/replication"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"
)

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
	"endpoint": func(ctx context.Context, w world) (func(context.Context), error) {
		core := w.informers.Core().V1()
		c := endpoint.NewEndpointController(ctx, core.Pods(), core.Services(), core.Endpoints(), w.client, 0)
		return func(ctx context.Context) { c.Run(ctx, workers) }, nil
	},
	"endpointslicemirroring": func(ctx context.Context, w world) (func(context.Context), error) {
		core := w.informers.Core().V1()
		c := endpointslicemirroring.NewController(ctx, core.Endpoints(), w.informers.Discovery().V1().EndpointSlices(),
			core.Services(), 1000, w.client, 0)
		return func(ctx context.Context) { c.Run(ctx, workers) }, nil
	},
	"disruption": func(ctx context.Context, w world) (func(context.Context), error) {
		core, apps := w.informers.Core().V1(), w.informers.Apps().V1()
		scales, err := scale.NewForConfig(w.config, w.mapper, dynamic.LegacyAPIPathResolverFunc,
			scale.NewDiscoveryScaleKindResolver(w.client.Discovery()))
		if err != nil {
			return nil, err
		}
		c := disruption.NewDisruptionController(ctx, core.Pods(), w.informers.Policy().V1().PodDisruptionBudgets(),
			core.ReplicationControllers(), apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(), w.client, w.mapper,
			scales, w.client.Discovery())
		return c.Run, nil
	},
	"ttl-after-finished": func(ctx context.Context, w world) (func(context.Context), error) {
		c := ttlafterfinished.New(ctx, w.informers.Batch().V1().Jobs(), w.client)
		return func(ctx context.Context) { c.Run(ctx, workers) }, nil
	},
	"podgc": func(ctx context.Context, w world) (func(context.Context), error) {
		core := w.informers.Core().V1()
		return podgc.NewPodGC(ctx, w.client, core.Pods(), core.Nodes(), 12500).Run, nil
	},
	"node-lifecycle": func(ctx context.Context, w world) (func(context.Context), error) {
		core := w.informers.Core().V1()
		c, err := nodelifecycle.NewNodeLifecycleController(ctx, w.informers.Coordination().V1().Leases(), core.Pods(),
			core.Nodes(), w.informers.Apps().V1().DaemonSets(), w.client, 5*time.Second, time.Minute, 50*time.Second,
			0.1, 0.01, 50, 0.55)
		return func(ctx context.Context) { c.Run(ctx) }, err
	},
	"taint-eviction": func(ctx context.Context, w world) (func(context.Context), error) {
		core := w.informers.Core().V1()
		c, err := tainteviction.New(ctx, w.client, core.Pods(), core.Nodes(), "taint-eviction-controller")
		return func(ctx context.Context) { c.Run(ctx) }, err
	},
	"garbage-collector": func(ctx context.Context, w world) (func(context.Context), error) {
		const workers, period = 20, 30 * time.Second
		metadatas, err := metadata.NewForConfig(w.config)
		if err != nil {
			return nil, err
		}
		c, err := garbagecollector.NewGarbageCollector(ctx, w.client, metadatas, w.mapper,
			garbagecollector.DefaultIgnoredResources(), informerfactory.NewInformerFactory(w.informers,
				metadatainformer.NewSharedInformerFactory(metadatas, 0)), w.begun)
		return func(ctx context.Context) {
			var both sync.WaitGroup
			both.Go(func() { c.Run(ctx, workers, period) })
			both.Go(func() { c.Sync(ctx, w.client.Discovery(), period) })
			both.Wait()
		}, err
	},
}
