package job_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/job"
	"monoplane.dev/controllers/job/plan"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
	"monoplane.dev/rules/jobs"

	batchv1 "monoplane.dev/api/batch/v1"
	batchv1rpc "monoplane.dev/api/batch/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the controller on a server with some nodes, in virtual time.
type world struct {
	*testing.T
	server *apitest.Server
	c      *client.Client
	nodes  *controllertest.Nodes
	// metrics are those of the controller that was started last.
	metrics *prometheus.Registry
	// stop ends the controller.
	stop func()
}

func inWorld(t *testing.T, nodes *controllertest.Nodes, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: apitest.Start(t), nodes: nodes}
		w.c = w.server.Admin()
		w.server.Namespaces(t, "ns")
		ctx, cancel := context.WithCancel(t.Context())
		nodes.Server, nodes.Names = w.server, []string{"n1", "n2", "n3"}
		wait, err := nodes.Start(ctx)
		w.must(err)
		w.stop = w.start()
		f(w)
		w.stop()
		cancel()
		wait()
	})
}

// start starts the controller.
func (w *world) start() (stop func()) {
	w.Helper()
	shared := controller.NewShared(w.server.Controller(controller.SharedRole().Name), nil)
	w.metrics = prometheus.NewRegistry()
	c, err := job.New(job.Config{Client: w.server.Controller("job"), Shared: shared, Registerer: w.metrics})
	w.must(err)
	if c.Ready() == nil {
		w.Error("ready before it ran")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- controllertest.Run(ctx, shared, c) }()
	synctest.Wait()
	w.must(c.Ready())
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.Errorf("Run ended with %v", err)
		}
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// create makes Job "j".
func (w *world) create(change func(*batchv1.JobSpec)) *batchv1.Job {
	w.Helper()
	j := &batchv1.Job{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "j"},
		Spec: &batchv1.JobSpec{Template: &corev1.PodTemplateSpec{Spec: &corev1.PodSpec{
			RestartPolicy: "Never", Containers: []*corev1.Container{{Name: "main", Image: "host"}},
		}}},
	}
	change(j.Spec)
	out, err := w.c.Jobs.Create(w.Context(), &batchv1rpc.CreateJobRequest{Namespace: "ns", Object: j})
	w.must(err)
	return out
}

// get returns Job "j".
func (w *world) get() *batchv1.Job {
	w.Helper()
	j, err := w.c.Jobs.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "j"})
	w.must(err)
	return j
}

// update changes the spec of Job "j".
func (w *world) update(change func(*batchv1.JobSpec)) {
	w.Helper()
	for {
		j := object.Clone(w.get())
		change(j.Spec)
		_, err := w.c.Jobs.Update(w.Context(), &batchv1rpc.UpdateJobRequest{Object: j})
		if !apierrors.Is(err, apierrors.Conflict) {
			w.must(err)
			return
		}
	}
}

func (w *world) pods() []*corev1.Pod {
	w.Helper()
	list, err := w.c.Pods.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	return list.GetItems()
}

// ends waits until Job "j" is finished, and returns it.
func (w *world) ends() *batchv1.Job {
	w.Helper()
	for range 15_000 {
		if j := w.get(); jobs.Finished(j.GetStatus()) {
			return j
		}
		time.Sleep(time.Second)
	}
	for _, p := range w.pods() {
		w.Logf("pod %s: %v", p.GetMetadata().GetName(), p)
	}
	w.Fatalf("the Job does not end: %v", w.get())
	return nil
}

// sum writes what a status says in short: its counts, and the conditions that are true with their reasons.
func sum(j *batchv1.Job) string {
	s := j.GetStatus()
	out := fmt.Sprintf("%d active, %d succeeded, %d failed", s.GetActive(), s.GetSucceeded(), s.GetFailed())
	if s.GetCompletedIndexes() != "" {
		out += ", completed " + s.GetCompletedIndexes()
	}
	if s.GetFailedIndexes() != "" {
		out += ", lost " + s.GetFailedIndexes()
	}
	for _, c := range s.GetConditions() {
		if c.GetStatus() == "True" {
			out += ", " + c.GetType() + " " + c.GetReason()
		}
	}
	return out
}

func (w *world) want(j *batchv1.Job, want string) {
	w.Helper()
	if got := sum(j); got != want {
		w.Errorf("the Job has %s; want %s", got, want)
	}
}

// untracked checks that no pod waits to be counted.
func (w *world) untracked() {
	w.Helper()
	for _, p := range w.pods() {
		if plan.Tracked(p) {
			w.Errorf("pod %s still has the finalizer: %v", p.GetMetadata().GetName(), p.GetStatus())
		}
	}
}

// events returns the reasons of the events about Job "j", each once, in the order of their names.
func (w *world) events() string {
	w.Helper()
	time.Sleep(time.Minute) // they are written later
	list, err := w.c.Events.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	var reasons []string
	for _, e := range list.GetItems() {
		if e.GetInvolvedObject().GetKind() == "Job" {
			reasons = append(reasons, e.GetReason())
		}
	}
	slices.Sort(reasons)
	return strings.Join(slices.Compact(reasons), " ")
}

// always returns an end that is the same for all pods.
func always(phase string, after time.Duration) func(*corev1.Pod) (string, time.Duration) {
	return func(*corev1.Pod) (string, time.Duration) { return phase, after }
}

func indexed(s *batchv1.JobSpec, n, parallelism int32) {
	s.CompletionMode, s.Completions, s.Parallelism = proto.String(jobs.Indexed), &n, &parallelism
}

func indexOf(p *corev1.Pod) string { return p.GetMetadata().GetAnnotations()[jobs.Index] }
