package clientgo_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
)

// Who reads, changes and writes until nobody has written in between loses nothing.
//
// spec: OBJ-5
func TestRetryOnConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := start(t).client(true).CoreV1().ConfigMaps("default")
		ctx := t.Context()
		if _, err := api.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "count"},
			Data: map[string]string{"n": "0"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		const clients, times = 8, 10
		for range clients {
			all.Go(func() {
				for range times {
					patient := retry.DefaultBackoff
					patient.Steps = 100
					if err := retry.RetryOnConflict(patient, func() error {
						o, err := api.Get(ctx, "count", metav1.GetOptions{})
						if err != nil {
							return err
						}
						n, _ := strconv.Atoi(o.Data["n"])
						o.Data["n"] = strconv.Itoa(n + 1)
						_, err = api.Update(ctx, o, metav1.UpdateOptions{})
						return err
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if o, err := api.Get(ctx, "count", metav1.GetOptions{}); err != nil || o.Data["n"] != strconv.Itoa(clients*times) {
			t.Errorf("counted %v, %v", o.Data, err)
		}
	})
}

// Of several candidates one leads at a time, also when the leader no longer gets through, and when the server is
// restarted.
//
// spec: OBJ-5
func TestLeaderElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		var leading atomic.Int32
		leaders := make(chan int, 10)
		candidate := func(ctx context.Context, i int, ended *sync.WaitGroup) {
			lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "default", "turn", nil,
				s.client(false).CoordinationV1(), resourcelock.ResourceLockConfig{Identity: fmt.Sprint("candidate-", i)})
			if err != nil {
				t.Fatal(err)
			}
			ended.Go(func() {
				leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
					Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
					ReleaseOnCancel: true,
					Callbacks: leaderelection.LeaderCallbacks{
						OnStartedLeading: func(ctx context.Context) {
							if leading.Add(1) > 1 {
								t.Errorf("candidate %d leads beside another", i)
							}
							leaders <- i
							<-ctx.Done()
							leading.Add(-1)
						},
						OnStoppedLeading: func() {},
					},
				})
			})
		}
		var ended sync.WaitGroup
		stops := make([]context.CancelFunc, 3)
		for i := range stops {
			var ctx context.Context
			ctx, stops[i] = context.WithCancel(t.Context())
			defer stops[i]()
			candidate(ctx, i, &ended)
		}
		first := <-leaders
		s.restart() // shorter than a lease
		time.Sleep(time.Minute)
		if leading.Load() != 1 || len(leaders) > 0 {
			t.Errorf("after a restart %d lead, and %d have begun", leading.Load(), len(leaders))
		}
		stops[first]()
		second := <-leaders
		if second == first {
			t.Errorf("candidate %d leads again after its end", first)
		}
		s.down()
		time.Sleep(time.Minute)
		if n := leading.Load(); n != 0 {
			t.Errorf("%d lead without a server", n)
		}
		s.up()
		if next := <-leaders; next == first {
			t.Errorf("candidate %d leads again after its end", first)
		}
		for _, stop := range stops {
			stop()
		}
		ended.Wait()
	})
}

// The same event again is the same object with a count.
//
// spec: OBJ-13
func TestEventRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := start(t).client(true)
		ctx := t.Context()
		o, err := client.CoreV1().ConfigMaps("default").Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		b := record.NewBroadcaster()
		defer b.Shutdown()
		b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
		r := b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "test"})
		for range 3 {
			r.Event(o, corev1.EventTypeWarning, "Strange", "it is strange")
			time.Sleep(time.Second)
		}
		events, err := client.CoreV1().Events("default").SearchWithContext(ctx, scheme.Scheme, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(events.Items) != 1 || events.Items[0].Count != 3 || events.Items[0].Reason != "Strange" {
			t.Errorf("events: %+v", events.Items)
		}
	})
}

// Apply configurations own what they state, extract it again, and conflict with what others own.
//
// spec: OBJ-9, OBJ-17
func TestApplyConfigurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := start(t).client(true).AppsV1().Deployments("default")
		ctx := t.Context()
		labels := map[string]string{"app": "web"}
		config := func(replicas int32) *appsv1ac.DeploymentApplyConfiguration {
			return appsv1ac.Deployment("web", "default").WithSpec(appsv1ac.DeploymentSpec().WithReplicas(replicas).
				WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
				WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).WithSpec(corev1ac.PodSpec().
					WithContainers(corev1ac.Container().WithName("main").WithImage("any")))))
		}
		one, two := metav1.ApplyOptions{FieldManager: "one"}, metav1.ApplyOptions{FieldManager: "two"}
		d, err := api.Apply(ctx, config(1), one)
		if err != nil || *d.Spec.Replicas != 1 {
			t.Fatalf("%v, %v", d, err)
		}
		if _, err := api.Apply(ctx, config(2), two); !apierrors.IsConflict(err) ||
			!apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
			t.Errorf("what another one owns: %v", err)
		}
		two.Force = true
		if d, err = api.Apply(ctx, config(2), two); err != nil || *d.Spec.Replicas != 2 {
			t.Errorf("by force: %v, %v", d, err)
		}
		mine, err := appsv1ac.ExtractDeployment(d, "two")
		if err != nil || mine.Spec.Replicas == nil || *mine.Spec.Replicas != 2 {
			t.Errorf("owned by two: %+v, %v", mine, err)
		}
		if mine, err = appsv1ac.ExtractDeployment(d, "one"); err != nil || mine.Spec.Replicas != nil ||
			*mine.Spec.Template.Spec.Containers[0].Image != "any" {
			t.Errorf("owned by one: %+v, %v", mine, err)
		}
	})
}

// Informers of all kinds that can be listed and watched come to know what is there, in both encodings.
//
// spec: OBJ-7, OBJ-15
func TestInformersOfEveryKind(t *testing.T) {
	for _, protobuf := range []bool{false, true} {
		t.Run(fmt.Sprintf("protobuf=%v", protobuf), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t)
				client := s.client(protobuf)
				lists, err := discovery.ServerPreferredResources(client.Discovery())
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				factory := informers.NewSharedInformerFactory(client, 0)
				synced := make(map[schema.GroupVersionResource]func() bool)
				for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, lists) {
					gv, err := schema.ParseGroupVersion(list.GroupVersion)
					if err != nil {
						t.Fatal(err)
					}
					if !scheme.Scheme.IsVersionRegistered(gv) {
						continue // of Monoplane's own
					}
					for _, resource := range list.APIResources {
						i, err := factory.ForResource(gv.WithResource(resource.Name))
						if err != nil {
							t.Errorf("client-go knows no informer of %s in %s", resource.Name, gv)
							continue
						}
						synced[gv.WithResource(resource.Name)] = i.Informer().HasSynced
					}
				}
				factory.Start(ctx.Done())
				defer factory.Shutdown()
				defer stop()
				time.Sleep(time.Minute)
				if len(synced) < 30 {
					t.Errorf("only %d kinds can be listed and watched", len(synced))
				}
				for gvr, done := range synced {
					if !done() {
						t.Errorf("the informer of %s has not come to know what is there", gvr)
					}
				}
			})
		})
	}
}
