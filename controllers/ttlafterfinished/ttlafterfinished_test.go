package ttlafterfinished_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/controllers/ttlafterfinished"
	"monoplane.dev/object"
	"monoplane.dev/rules/jobs"

	batchv1 "monoplane.dev/api/batch/v1"
	batchv1rpc "monoplane.dev/api/batch/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inWorld runs the controller on a server with Job "j", which has just ended.
func inWorld(t *testing.T, ttl *int32, f func(t *testing.T, s *apitest.Server, c *client.Client, there func() bool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Start(t)
		c := s.Admin()
		s.Namespaces(t, "ns")
		shared := controller.NewShared(s.Controller(controller.SharedRole().Name), nil)
		api := s.Controller("ttl-after-finished")
		timer, err := ttlafterfinished.New(ttlafterfinished.Config{Client: api, Shared: shared})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- controllertest.Run(ctx, shared, timer) }()
		j, err := c.Jobs.Create(t.Context(), &batchv1rpc.CreateJobRequest{Object: &batchv1.Job{
			Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "j"},
			Spec: &batchv1.JobSpec{TtlSecondsAfterFinished: ttl, Template: &corev1.PodTemplateSpec{Spec: &corev1.PodSpec{
				RestartPolicy: "Never", Containers: []*corev1.Container{{Name: "main", Image: "host"}},
			}}},
		}})
		must(t, err)
		time.Sleep(time.Hour)
		now := value.Time(time.Now())
		j = object.Clone(j)
		j.Status = &batchv1.JobStatus{StartTime: now, CompletionTime: now, Succeeded: 1}
		for _, kind := range []string{jobs.SuccessCriteriaMet, jobs.Complete} {
			j.Status.Conditions = append(j.Status.Conditions,
				&batchv1.JobCondition{Type: kind, Status: "True", LastTransitionTime: now})
		}
		_, err = c.Jobs.UpdateStatus(t.Context(), &batchv1rpc.UpdateJobRequest{Object: j})
		must(t, err)
		f(t, s, c, func() bool {
			synctest.Wait()
			j, err := c.Jobs.Get(t.Context(), &metav1.GetRequest{Namespace: "ns", Name: "j"})
			// It waits for its pods, as there is no collector here.
			return err == nil && j.GetMetadata().GetDeletionTimestamp() == nil
		})
		must(t, timer.Ready())
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAJobGoesAfterItsTime(t *testing.T) {
	inWorld(t, proto.Int32(60), func(t *testing.T, _ *apitest.Server, _ *client.Client, there func() bool) {
		if time.Sleep(59 * time.Second); !there() {
			t.Error("the Job went too early")
		}
		if time.Sleep(2 * time.Second); there() {
			t.Error("the Job did not go")
		}
	})
	inWorld(t, proto.Int32(0), func(t *testing.T, _ *apitest.Server, _ *client.Client, there func() bool) {
		if there() {
			t.Error("the Job did not go at once")
		}
	})
	inWorld(t, nil, func(t *testing.T, _ *apitest.Server, _ *client.Client, there func() bool) {
		if time.Sleep(2 * time.Hour); !there() {
			t.Error("the Job went without a time to live")
		}
	})
}

func TestAJobThatIsToLiveLongerStays(t *testing.T) {
	inWorld(t, proto.Int32(60), func(t *testing.T, s *apitest.Server, c *client.Client, there func() bool) {
		// The time is changed after the controller has looked, and before it deletes.
		once := false
		s.React(func(ctx context.Context, method string, _ any) error {
			if method != batchv1rpc.Jobs_Delete_FullMethodName || once {
				return nil
			}
			once = true
			j, err := c.Jobs.Get(ctx, &metav1.GetRequest{Namespace: "ns", Name: "j"})
			must(t, err)
			j = object.Clone(j)
			j.Spec.TtlSecondsAfterFinished = proto.Int32(3600)
			_, err = c.Jobs.Update(ctx, &batchv1rpc.UpdateJobRequest{Object: j})
			must(t, err)
			return nil
		})
		if time.Sleep(50 * time.Minute); !there() {
			t.Error("the Job went, by a time that was changed")
		}
		if time.Sleep(11 * time.Minute); there() || !once {
			t.Error("the Job did not go by its new time")
		}
		_, err := c.Jobs.Get(t.Context(), &metav1.GetRequest{Namespace: "ns", Name: "j"})
		if err != nil && !apierrors.Is(err, apierrors.NotFound) {
			t.Error(err)
		}
	})
}
