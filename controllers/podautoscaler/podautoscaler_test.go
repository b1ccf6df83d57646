package podautoscaler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	autoscalingv2 "monoplane.dev/api/autoscaling/v2"
	autoscalingv2rpc "monoplane.dev/api/autoscaling/v2/rpc"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/client/cache"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/deployment"
	"monoplane.dev/controllers/podautoscaler"
	"monoplane.dev/controllers/replicaset"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a Deployment with an autoscaler, in virtual time. What there is to do is shared by its pods that are ready.
type world struct {
	*testing.T
	server *apitest.Server
	c      *client.Client

	mu sync.Mutex
	// load is how much cpu all pods together use, in thousandths; silent says that the agents do not answer.
	load   int64
	silent bool
	pods   *cache.Cache[*corev1.Pod]
}

// Usage answers for the agents.
func (w *world) Usage(_ context.Context, node string) (*nodev1rpc.UsageReport, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silent {
		return nil, apierrors.New(apierrors.ServiceUnavailable, "no agent")
	}
	out := &nodev1rpc.UsageReport{Time: time.Now().UnixNano(), Window: int64(15 * time.Second), Node: &nodev1rpc.Usage{}}
	var running []*corev1.Pod
	for _, p := range w.pods.List("", nil) {
		if p.GetStatus().GetPhase() == "Running" && p.GetMetadata().GetDeletionTimestamp() == nil {
			running = append(running, p)
		}
	}
	for _, p := range running {
		if p.GetSpec().GetNodeName() != node {
			continue
		}
		out.Pods = append(out.Pods, &nodev1rpc.PodUsage{
			Namespace: p.GetMetadata().GetNamespace(), Name: p.GetMetadata().GetName(),
			Containers: []*nodev1rpc.ContainerUsage{{Name: "main", Usage: &nodev1rpc.Usage{
				NanoCores: w.load * 1_000_000 / int64(len(running)), Memory: 64 << 20,
			}}},
		})
	}
	return out, nil
}

func (w *world) uses(load int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.load = load
}

func (w *world) silence(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = on
}

func inWorld(t *testing.T, replicas int32, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t}
		w.server = apitest.StartWith(t, apitest.Config{API: apiserver.Config{Usage: w}})
		w.c = w.server.Admin()
		w.server.Namespaces(t, "ns")
		shared := controller.NewShared(w.server.Controller(controller.SharedRole().Name), nil)
		w.pods = controller.Of[*corev1.Pod](shared)
		sets, err := replicaset.New(replicaset.Config{Client: w.server.Controller("replicaset"), Shared: shared})
		w.must(err)
		deployments, err := deployment.New(deployment.Config{Client: w.server.Controller("deployment"), Shared: shared})
		w.must(err)
		c, err := podautoscaler.New(podautoscaler.Config{
			Client: w.server.Controller(podautoscaler.Declare().Name), Shared: shared})
		w.must(err)
		if c.Ready() == nil {
			w.Error("ready before it ran")
		}
		nodes := &controllertest.Nodes{Server: w.server, Names: []string{"n1", "n2", "n3"}}
		ctx, cancel := context.WithCancel(t.Context())
		wait, err := nodes.Start(ctx)
		w.must(err)
		done := make(chan error, 1)
		go func() { done <- controllertest.Run(ctx, shared, sets, deployments, c) }()
		synctest.Wait()
		w.must(c.Ready())
		w.deploy(replicas)
		time.Sleep(10 * time.Minute) // the pods have started
		f(w)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.Errorf("Run ended with %v", err)
		}
		wait()
	})
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// deploy makes Deployment "web", each pod of which requests 100 thousandths of a cpu.
func (w *world) deploy(replicas int32) {
	w.Helper()
	labels := map[string]string{"app": "web"}
	_, err := w.c.Deployments.Create(w.Context(), &appsv1rpc.CreateDeploymentRequest{Object: &appsv1.Deployment{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec: &appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: &corev1.PodTemplateSpec{
				Metadata: &metav1.ObjectMeta{Labels: labels},
				Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "main", Image: "host",
					Resources: &corev1.ResourceRequirements{
						Requests: map[string]*metav1.Quantity{"cpu": {String_: "100m"}},
					}}}},
			},
		},
	}})
	w.must(err)
}

// autoscale makes an autoscaler that holds half of the cpu that is requested, with 1 to 20 replicas.
func (w *world) autoscale(name string, change func(*autoscalingv2.HorizontalPodAutoscalerSpec)) {
	w.Helper()
	spec := &autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: &autoscalingv2.CrossVersionObjectReference{ApiVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		MaxReplicas:    20,
		Metrics: []*autoscalingv2.MetricSpec{{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu",
			Target: &autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: proto.Int32(50)}}}},
	}
	if change != nil {
		change(spec)
	}
	_, err := w.c.HorizontalPodAutoscalers.Create(w.Context(), &autoscalingv2rpc.CreateHorizontalPodAutoscalerRequest{
		Object: &autoscalingv2.HorizontalPodAutoscaler{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: spec,
		}})
	w.must(err)
	synctest.Wait()
}

func (w *world) get(name string) *autoscalingv2.HorizontalPodAutoscaler {
	w.Helper()
	synctest.Wait()
	o, err := w.c.HorizontalPodAutoscalers.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: name})
	w.must(err)
	return o
}

func (w *world) replicas() int32 {
	w.Helper()
	synctest.Wait()
	d, err := w.c.Deployments.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "web"})
	w.must(err)
	return d.GetSpec().GetReplicas()
}

// curve returns the number of replicas at each of some looks.
func (w *world) curve(looks int) string {
	w.Helper()
	var all []string
	for range looks {
		time.Sleep(podautoscaler.Period)
		all = append(all, fmt.Sprint(w.replicas()))
	}
	return strings.Join(all, " ")
}

func (w *world) wantsCurve(looks int, want string) {
	w.Helper()
	if got := w.curve(looks); got != want {
		w.Errorf("replicas %s, want %s", got, want)
	}
}

// wants checks the conditions: their reasons and statuses.
func (w *world) wants(name, want string) {
	w.Helper()
	var all []string
	for _, c := range w.get(name).GetStatus().GetConditions() {
		all = append(all, c.GetType()+"="+c.GetStatus()+"/"+c.GetReason())
	}
	slices.Sort(all)
	if got := strings.Join(all, " "); got != want {
		w.Errorf("conditions %s, want %s", got, want)
	}
}

// told returns the reasons and messages of the events about autoscalers.
func (w *world) told() string {
	w.Helper()
	time.Sleep(11 * time.Second)
	synctest.Wait()
	l, err := w.c.Events.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	var all []string
	for _, e := range l.GetItems() {
		if e.GetInvolvedObject().GetKind() == "HorizontalPodAutoscaler" {
			all = append(all, e.GetReason()+": "+e.GetMessage())
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "\n")
}

// Up to twice as many at once; down when five minutes have asked for less. spec: WORK-1
func TestFollowsTheLoad(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.uses(100) // half of what two pods request
		w.autoscale("web", nil)
		w.wantsCurve(3, "2 2 2")
		w.wants("web", "AbleToScale=True/ReadyForNewScale ScalingActive=True/ValidMetricFound "+
			"ScalingLimited=False/DesiredWithinRange")
		s := w.get("web").GetStatus()
		if now := s.GetCurrentMetrics()[0].GetResource().GetCurrent(); now.GetAverageUtilization() != 50 ||
			now.GetAverageValue().GetString_() != "50m" || s.GetCurrentReplicas() != 2 || s.GetDesiredReplicas() != 2 {
			w.Errorf("status %v", s)
		}

		w.uses(600) // enough for twelve
		w.wantsCurve(5, "4 8 12 12 12")
		w.uses(90)
		w.wantsCurve(22, strings.Repeat("12 ", 20)+"2 2")
		if told := w.told(); !strings.Contains(told,
			"SuccessfulRescale: New size: 4; reason: cpu resource utilization (percentage of request) above target") ||
			!strings.Contains(told, "SuccessfulRescale: New size: 2; reason: All metrics below target") {
			w.Errorf("events:\n%s", told)
		}
	})
}

// Policies bound each step, and stabilization waits in both directions.
func TestBehavior(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.uses(100)
		w.autoscale("web", func(s *autoscalingv2.HorizontalPodAutoscalerSpec) {
			s.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
				ScaleUp: &autoscalingv2.HPAScalingRules{
					StabilizationWindowSeconds: proto.Int32(30), Policies: []*autoscalingv2.HPAScalingPolicy{
						{Type: "Pods", Value: 2, PeriodSeconds: 60},
					},
				},
				ScaleDown: &autoscalingv2.HPAScalingRules{
					StabilizationWindowSeconds: proto.Int32(0), Policies: []*autoscalingv2.HPAScalingPolicy{
						{Type: "Percent", Value: 50, PeriodSeconds: 30},
					},
				},
			}
		})
		w.curve(4)
		w.uses(400)
		w.wantsCurve(12, "2 4 4 4 4 6 6 6 6 8 8 8")
		w.uses(50)
		w.wantsCurve(6, "4 4 2 2 1 1")
	})
}

// Whatever is measured, there are no more and no fewer than what is allowed; what somebody scaled to 0 stays there.
func TestBounds(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.uses(5000)
		w.autoscale("web", func(s *autoscalingv2.HorizontalPodAutoscalerSpec) {
			s.MinReplicas, s.MaxReplicas = proto.Int32(2), 5
		})
		w.wantsCurve(3, "4 5 5")
		w.wants("web", "AbleToScale=True/ReadyForNewScale ScalingActive=True/ValidMetricFound "+
			"ScalingLimited=True/TooManyReplicas")
		scale := func(n int32) {
			_, err := w.c.Deployments.PatchScale(w.Context(), &metav1.PatchRequest{Namespace: "ns", Name: "web",
				PatchType: "application/merge-patch+json", Patch: fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)})
			w.must(err)
		}
		scale(9)
		w.wantsCurve(1, "5")
		scale(0)
		w.wantsCurve(5, "0 0 0 0 0")
		w.wants("web", "AbleToScale=True/SucceededGetScale ScalingActive=False/ScalingDisabled "+
			"ScalingLimited=True/TooManyReplicas")
		scale(1)
		w.wantsCurve(1, "2")
	})
}

// What cannot be measured scales nothing, and is said.
func TestFailures(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		w.uses(150)
		w.silence(true)
		w.autoscale("web", nil)
		w.wantsCurve(2, "3 3")
		w.wants("web", "AbleToScale=True/SucceededGetScale ScalingActive=False/FailedGetResourceMetric")
		w.silence(false)
		w.curve(1)
		w.wants("web", "AbleToScale=True/ReadyForNewScale ScalingActive=True/ValidMetricFound "+
			"ScalingLimited=False/DesiredWithinRange")

		w.autoscale("other", func(s *autoscalingv2.HorizontalPodAutoscalerSpec) {
			s.ScaleTargetRef.Kind = "Widget"
		})
		w.wants("other", "AbleToScale=False/FailedGetScale")
		w.autoscale("gone", func(s *autoscalingv2.HorizontalPodAutoscalerSpec) { s.ScaleTargetRef.Name = "gone" })
		w.wants("gone", "AbleToScale=False/FailedGetScale")

		// Two over the same pods hold each other up.
		w.autoscale("second", nil)
		w.wants("second", "AbleToScale=True/SucceededGetScale ScalingActive=False/AmbiguousSelector")
		w.curve(1)
		w.wants("web", "AbleToScale=True/SucceededGetScale ScalingActive=False/AmbiguousSelector "+
			"ScalingLimited=False/DesiredWithinRange")
		_, err := w.c.HorizontalPodAutoscalers.Delete(w.Context(),
			&metav1.DeleteRequest{Namespace: "ns", Name: "second"})
		w.must(err)
		w.curve(1)

		// A metric that nothing serves keeps the number from going down, and not from going up.
		o := object.Clone(w.get("web"))
		o.Spec.Metrics = append(o.Spec.Metrics, &autoscalingv2.MetricSpec{Type: "External",
			External: &autoscalingv2.ExternalMetricSource{Metric: &autoscalingv2.MetricIdentifier{Name: "queue"},
				Target: &autoscalingv2.MetricTarget{Type: "Value", Value: &metav1.Quantity{String_: "7"}}}})
		_, err = w.c.HorizontalPodAutoscalers.Update(w.Context(),
			&autoscalingv2rpc.UpdateHorizontalPodAutoscalerRequest{Object: o})
		w.must(err)
		w.uses(10)
		w.wantsCurve(22, strings.TrimSpace(strings.Repeat("3 ", 22)))
		w.wants("web", "AbleToScale=True/SucceededGetScale ScalingActive=False/FailedGetExternalMetric "+
			"ScalingLimited=False/DesiredWithinRange")
		w.uses(240)
		w.wantsCurve(1, "5")
		told := w.told()
		for _, want := range []string{
			"FailedGetScale: no matches for kind \"Widget\" in group \"apps\"",
			"FailedGetScale: deployments.apps \"gone\" not found", "AmbiguousSelector: pods by selector app=web are controlled",
			"FailedGetExternalMetric: unable to get metric queue: nothing serves external metrics",
			"FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 2)",
		} {
			if !strings.Contains(told, want) {
				w.Errorf("no event %q in\n%s", want, told)
			}
		}
	})
}

// Who scales at the same time is not overruled unseen.
func TestRace(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.uses(100)
		w.autoscale("web", nil)
		var raced atomic.Bool
		w.server.React(func(ctx context.Context, method string, _ any) error {
			if method == appsv1rpc.Deployments_PatchScale_FullMethodName && raced.CompareAndSwap(false, true) {
				_, err := w.c.Deployments.PatchScale(ctx, &metav1.PatchRequest{Namespace: "ns", Name: "web",
					PatchType: "application/merge-patch+json", Patch: []byte(`{"spec":{"replicas":7}}`)})
				if err != nil {
					w.Error(err)
				}
			}
			return nil
		})
		w.uses(200) // asks for four
		time.Sleep(podautoscaler.Period)
		if n := w.replicas(); n != 7 {
			w.Errorf("%d replicas, want those of somebody else", n)
		}
	})
}
