package cronjob_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	batchv1 "monoplane.dev/api/batch/v1"
	batchv1rpc "monoplane.dev/api/batch/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/cronjob"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the controller on a server, in virtual time, which begins with the year 2000. Jobs run until the test ends
// them.
type world struct {
	*testing.T
	server *apitest.Server
	c      *client.Client
	// stop ends the controller.
	stop func()
}

func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: apitest.Start(t)}
		w.c = w.server.Admin()
		w.server.Namespaces(t, "ns")
		w.stop = w.start()
		f(w)
		w.stop()
	})
}

func (w *world) start() (stop func()) {
	w.Helper()
	shared := controller.NewShared(w.server.Controller(controller.SharedRole().Name), nil)
	c, err := cronjob.New(cronjob.Config{Client: w.server.Controller("cronjob"), Shared: shared})
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

// create makes CronJob "c".
func (w *world) create(schedule string, change func(*batchv1.CronJobSpec)) {
	w.Helper()
	spec := &batchv1.CronJobSpec{Schedule: schedule, TimeZone: proto.String("UTC"), JobTemplate: &batchv1.JobTemplateSpec{
		Metadata: &metav1.ObjectMeta{Labels: map[string]string{"app": "c"}, Annotations: map[string]string{"team": "a"}},
		Spec: &batchv1.JobSpec{Template: &corev1.PodTemplateSpec{Spec: &corev1.PodSpec{
			RestartPolicy: "Never", Containers: []*corev1.Container{{Name: "main", Image: "host"}},
		}}},
	}}
	if change != nil {
		change(spec)
	}
	_, err := w.c.CronJobs.Create(w.Context(), &batchv1rpc.CreateCronJobRequest{Object: &batchv1.CronJob{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "c"}, Spec: spec,
	}})
	w.must(err)
}

func (w *world) get() *batchv1.CronJob {
	w.Helper()
	synctest.Wait()
	o, err := w.c.CronJobs.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: "c"})
	w.must(err)
	return o
}

func (w *world) change(f func(*batchv1.CronJob)) {
	w.Helper()
	for {
		o := object.Clone(w.get())
		f(o)
		_, err := w.c.CronJobs.Update(w.Context(), &batchv1rpc.UpdateCronJobRequest{Object: o})
		if !apierrors.Is(err, apierrors.Conflict) {
			w.must(err)
			return
		}
	}
}

// jobs returns the Jobs by the minute of their time since the beginning: "+" complete, "-" failed, "x" on its way out,
// "?" not of a time.
func (w *world) jobs() string {
	w.Helper()
	synctest.Wait()
	l, err := w.c.Jobs.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	var all []string
	for _, j := range l.GetItems() {
		name := j.GetMetadata().GetName()
		var minute int
		if _, err := fmt.Sscanf(name, "c-%d", &minute); err != nil {
			all = append(all, "?"+name)
			continue
		}
		text := fmt.Sprintf("%02d", minute-int(epoch.Unix()/60))
		for _, c := range j.GetStatus().GetConditions() {
			switch {
			case c.GetType() == "Complete" && c.GetStatus() == "True":
				text += "+"
			case c.GetType() == "Failed" && c.GetStatus() == "True":
				text += "-"
			}
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// epoch is when virtual time begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// wants checks the Jobs, and how many of them run by the status.
func (w *world) wants(jobs string, active int) {
	w.Helper()
	if got := w.jobs(); got != jobs {
		w.Errorf("after %s: jobs %q, want %q", time.Since(epoch), got, jobs)
	}
	if got := w.get().GetStatus().GetActive(); len(got) != active {
		w.Errorf("after %s: %d are active, want %d: %v", time.Since(epoch), len(got), active, got)
	}
}

// end ends the Job of a minute.
func (w *world) end(minute int, condition string) {
	w.Helper()
	name := fmt.Sprint("c-", int(epoch.Unix()/60)+minute)
	j, err := w.c.Jobs.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: name})
	w.must(err)
	j = object.Clone(j)
	now := value.Time(time.Now())
	j.Status = &batchv1.JobStatus{StartTime: j.GetMetadata().GetCreationTimestamp()}
	before := "FailureTarget"
	if condition == "Complete" {
		before, j.Status.CompletionTime = "SuccessCriteriaMet", now
	}
	for _, c := range []string{before, condition} {
		j.Status.Conditions = append(j.Status.Conditions,
			&batchv1.JobCondition{Type: c, Status: "True", LastTransitionTime: now})
	}
	_, err = w.c.Jobs.UpdateStatus(w.Context(), &batchv1rpc.UpdateJobRequest{Object: j})
	w.must(err)
	synctest.Wait()
}

// told returns the reasons of the events about the CronJob, each once.
func (w *world) told() string {
	w.Helper()
	time.Sleep(11 * time.Second)
	synctest.Wait()
	l, err := w.c.Events.List(w.Context(), &metav1.ListRequest{Namespace: "ns"})
	w.must(err)
	var all []string
	for _, e := range l.GetItems() {
		if e.GetInvolvedObject().GetKind() == "CronJob" {
			all = append(all, e.GetReason())
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

func minutes(n int) { time.Sleep(time.Duration(n) * time.Minute) }
