package job_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/rules/jobs"

	batchv1 "monoplane.dev/api/batch/v1"
	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

func TestAJobCompletes(t *testing.T) {
	inWorld(t, &controllertest.Nodes{Ends: always("Succeeded", 5*time.Second)}, func(w *world) {
		w.create(func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = proto.Int32(5), proto.Int32(2) })
		time.Sleep(time.Second)
		w.want(w.get(), "2 active, 0 succeeded, 0 failed")
		if s := w.get().GetStatus(); s.GetReady() != 2 || s.GetTerminating() != 0 || s.GetStartTime() == nil {
			t.Errorf("status %v", s)
		}
		j := w.ends()
		w.want(j, "0 active, 5 succeeded, 0 failed, SuccessCriteriaMet CompletionsReached, Complete CompletionsReached")
		w.untracked()
		if n := len(w.pods()); n != 5 {
			t.Errorf("%d pods were made", n)
		}
		if took := j.Status.CompletionTime.Seconds - j.Status.StartTime.Seconds; took < 15 || took > 16 {
			t.Errorf("the Job took %d s", took)
		}
		if got := w.events(); got != "Completed SuccessfulCreate" {
			t.Errorf("events %s", got)
		}
	})
}

func TestWithoutCompletionsTheFirstSuccessIsEnough(t *testing.T) {
	first := true
	ends := func(*corev1.Pod) (string, time.Duration) {
		if first {
			first = false
			return "Succeeded", time.Second
		}
		return "Failed", 10 * time.Second
	}
	inWorld(t, &controllertest.Nodes{Ends: ends}, func(w *world) {
		w.create(func(s *batchv1.JobSpec) { s.Parallelism = proto.Int32(3) })
		time.Sleep(5 * time.Second)
		w.want(w.get(), "2 active, 1 succeeded, 0 failed")
		w.want(w.ends(), "0 active, 1 succeeded, 2 failed, SuccessCriteriaMet CompletionsReached, "+
			"Complete CompletionsReached")
		w.untracked()
	})
}

func TestPodsThatFailAreReplacedMoreAndMoreSlowly(t *testing.T) {
	inWorld(t, &controllertest.Nodes{Ends: always("Failed", 0)}, func(w *world) {
		w.create(func(s *batchv1.JobSpec) { s.BackoffLimit = proto.Int32(4) })
		began := time.Now()
		w.want(w.ends(), "0 active, 0 succeeded, 5 failed, FailureTarget BackoffLimitExceeded, "+
			"Failed BackoffLimitExceeded")
		// Pauses of 10, 20, 40 and 80 s.
		if took := time.Since(began); took < 150*time.Second || took > 155*time.Second {
			t.Errorf("the Job failed after %s", took)
		}
		w.untracked()
		if got := w.events(); got != "BackoffLimitExceeded SuccessfulCreate" {
			t.Errorf("events %s", got)
		}
	})
}

func TestIndexedPodsKnowTheirIndex(t *testing.T) {
	inWorld(t, &controllertest.Nodes{Ends: always("Succeeded", 5*time.Second)}, func(w *world) {
		w.create(func(s *batchv1.JobSpec) { indexed(s, 4, 3) })
		time.Sleep(time.Second)
		var seen []string
		for _, p := range w.pods() {
			m, i := p.GetMetadata(), indexOf(p)
			seen = append(seen, i)
			env := p.GetSpec().GetContainers()[0].GetEnv()[0]
			if m.GetLabels()[jobs.Index] != i || p.GetSpec().GetHostname() != "j-"+i ||
				!strings.HasPrefix(m.GetName(), "j-"+i+"-") || env.GetName() != "JOB_COMPLETION_INDEX" ||
				env.GetValueFrom().GetFieldRef().GetFieldPath() !=
					"metadata.labels['batch.kubernetes.io/job-completion-index']" {
				t.Errorf("pod %v", p)
			}
		}
		if slices.Sort(seen); fmt.Sprint(seen) != "[0 1 2]" {
			t.Errorf("indexes %v", seen)
		}
		w.want(w.ends(), "0 active, 4 succeeded, 0 failed, completed 0-3, SuccessCriteriaMet CompletionsReached, "+
			"Complete CompletionsReached")
		w.untracked()
	})
}

func TestIndexesFailOneByOne(t *testing.T) {
	ends := func(p *corev1.Pod) (string, time.Duration) {
		if i := indexOf(p); i == "1" || i == "3" && p.GetMetadata().GetAnnotations()[jobs.Failures] == "0" {
			return "Failed", time.Second
		}
		return "Succeeded", time.Second
	}
	inWorld(t, &controllertest.Nodes{Ends: ends}, func(w *world) {
		w.create(func(s *batchv1.JobSpec) { indexed(s, 5, 5); s.BackoffLimitPerIndex = proto.Int32(2) })
		w.want(w.ends(), "0 active, 4 succeeded, 4 failed, completed 0,2-4, lost 1, FailureTarget FailedIndexes, "+
			"Failed FailedIndexes")
		w.untracked()
	})
	inWorld(t, &controllertest.Nodes{Ends: ends}, func(w *world) {
		w.create(func(s *batchv1.JobSpec) {
			indexed(s, 5, 1)
			s.BackoffLimitPerIndex, s.MaxFailedIndexes = proto.Int32(0), proto.Int32(0)
		})
		w.want(w.ends(), "0 active, 1 succeeded, 1 failed, completed 0, lost 1, FailureTarget MaxFailedIndexesExceeded, "+
			"Failed MaxFailedIndexesExceeded")
		w.untracked()
	})
}

func TestASuccessPolicyEndsAJobEarly(t *testing.T) {
	ends := func(p *corev1.Pod) (string, time.Duration) {
		if i := indexOf(p); i == "0" || i == "2" {
			return "Succeeded", time.Second
		}
		return "", 0
	}
	inWorld(t, &controllertest.Nodes{Ends: ends, StopsIn: func(*corev1.Pod) time.Duration { return 10 * time.Second }},
		func(w *world) {
			w.create(func(s *batchv1.JobSpec) {
				indexed(s, 4, 4)
				s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []*batchv1.SuccessPolicyRule{
					{SucceededIndexes: proto.String("0,2")},
				}}
			})
			time.Sleep(5 * time.Second)
			// The others are ending.
			w.want(w.get(), "0 active, 2 succeeded, 0 failed, completed 0,2, SuccessCriteriaMet SuccessPolicy")
			if n := w.get().GetStatus().GetTerminating(); n != 2 {
				t.Errorf("%d pods are terminating", n)
			}
			w.want(w.ends(), "0 active, 2 succeeded, 0 failed, completed 0,2, SuccessCriteriaMet SuccessPolicy, "+
				"Complete SuccessPolicy")
			w.untracked()
		})
}

func TestADeadline(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.create(func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds, s.Parallelism = proto.Int64(60), proto.Int32(2) })
		time.Sleep(59 * time.Second)
		w.want(w.get(), "2 active, 0 succeeded, 0 failed")
		j := w.ends()
		w.want(j, "0 active, 0 succeeded, 2 failed, FailureTarget DeadlineExceeded, Failed DeadlineExceeded")
		w.untracked()
	})
}

func TestSuspendAndResume(t *testing.T) {
	inWorld(t, &controllertest.Nodes{Ends: always("Succeeded", 5*time.Minute)}, func(w *world) {
		w.create(func(s *batchv1.JobSpec) {
			s.Completions, s.Parallelism, s.Suspend = proto.Int32(2), proto.Int32(2), proto.Bool(true)
			s.ActiveDeadlineSeconds = proto.Int64(600)
		})
		time.Sleep(5 * time.Minute)
		w.want(w.get(), "0 active, 0 succeeded, 0 failed, Suspended JobSuspended")
		for range 2 {
			w.update(func(s *batchv1.JobSpec) { s.Suspend = proto.Bool(false) })
			time.Sleep(2 * time.Minute)
			w.want(w.get(), "2 active, 0 succeeded, 0 failed")
			w.update(func(s *batchv1.JobSpec) { s.Suspend = proto.Bool(true) })
			time.Sleep(5 * time.Minute)
			w.want(w.get(), "0 active, 0 succeeded, 0 failed, Suspended JobSuspended")
			if n := len(w.pods()); n > 0 || w.get().GetStatus().GetStartTime() != nil {
				t.Errorf("%d pods while suspended, %v", n, w.get().GetStatus())
			}
		}
		w.update(func(s *batchv1.JobSpec) { s.Suspend = proto.Bool(false) })
		w.want(w.ends(), "0 active, 2 succeeded, 0 failed, SuccessCriteriaMet CompletionsReached, "+
			"Complete CompletionsReached")
		if got := w.events(); got != "Completed Resumed SuccessfulCreate SuccessfulDelete Suspended" {
			t.Errorf("events %s", got)
		}
	})
}

func TestAnotherControllersJobIsLeftAlone(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.create(func(s *batchv1.JobSpec) { s.ManagedBy = proto.String("example.com/mine") })
		time.Sleep(time.Hour)
		if n := len(w.pods()); n > 0 || w.get().GetStatus().GetStartTime() != nil {
			t.Errorf("%d pods, %v", n, w.get().GetStatus())
		}
	})
}

func TestPodsOfAJobThatIsGoneAreFreed(t *testing.T) {
	inWorld(t, &controllertest.Nodes{}, func(w *world) {
		w.create(func(s *batchv1.JobSpec) { s.Parallelism = proto.Int32(3) })
		time.Sleep(time.Second)
		_, err := w.c.Jobs.Delete(w.Context(), &metav1.DeleteRequest{
			Namespace: "ns", Name: "j", Options: &metav1.DeleteOptions{PropagationPolicy: proto.String("Background")},
		})
		w.must(err)
		time.Sleep(time.Minute)
		w.untracked()
		if n := len(w.pods()); n != 3 {
			t.Errorf("%d pods are left; without a collector it should be 3", n)
		}
	})
}

func TestElasticIndexes(t *testing.T) {
	inWorld(t, &controllertest.Nodes{Ends: func(p *corev1.Pod) (string, time.Duration) {
		if indexOf(p) == "0" {
			return "Succeeded", time.Second
		}
		return "Succeeded", time.Hour
	}}, func(w *world) {
		w.create(func(s *batchv1.JobSpec) { indexed(s, 3, 3) })
		time.Sleep(time.Minute)
		w.want(w.get(), "2 active, 1 succeeded, 0 failed, completed 0")
		w.update(func(s *batchv1.JobSpec) { indexed(s, 5, 5) })
		time.Sleep(time.Minute)
		w.want(w.get(), "4 active, 1 succeeded, 0 failed, completed 0")
		w.update(func(s *batchv1.JobSpec) { indexed(s, 2, 2) })
		time.Sleep(time.Minute)
		w.want(w.get(), "1 active, 1 succeeded, 0 failed, completed 0")
		w.want(w.ends(), "0 active, 2 succeeded, 0 failed, completed 0,1, SuccessCriteriaMet CompletionsReached, "+
			"Complete CompletionsReached")
		w.untracked()
	})
}
