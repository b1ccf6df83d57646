package cronjob_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	batchv1 "monoplane.dev/api/batch/v1"
	batchv1rpc "monoplane.dev/api/batch/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/controllers/cronjob"
	"monoplane.dev/object"
)

// A Job is made at each time, is the CronJob's own, and the status follows it. spec: WORK-3
func TestMakesJobs(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("*/2 * * * *", func(s *batchv1.CronJobSpec) { s.TimeZone = proto.String("Asia/Kolkata") })
		minutes(1)
		w.wants("", 0)
		minutes(2)
		w.wants("02", 1)
		j, err := w.c.Jobs.Get(w.Context(), &metav1.GetRequest{Namespace: "ns", Name: w.get().Status.Active[0].Name})
		w.must(err)
		m := j.GetMetadata()
		if m.GetAnnotations()[cronjob.ScheduledAt] != "2000-01-01T05:32:00+05:30" || m.GetAnnotations()["team"] != "a" ||
			m.GetLabels()["app"] != "c" || m.GetOwnerReferences()[0].GetUid() != w.get().GetMetadata().GetUid() {
			w.Errorf("metadata %v", m)
		}
		w.end(2, "Complete")
		minutes(2)
		w.end(4, "Failed")
		minutes(2)
		w.wants("02+ 04- 06", 1)
		s := w.get().GetStatus()
		if at := value.GoTime(s.GetLastScheduleTime()); !at.Equal(epoch.Add(6 * time.Minute)) {
			w.Errorf("last schedule time %s", at)
		}
		if at := value.GoTime(s.GetLastSuccessfulTime()); !at.Equal(epoch.Add(3 * time.Minute)) {
			w.Errorf("last successful time %s", at)
		}
		if told := w.told(); told != "SawCompletedJob SuccessfulCreate" {
			w.Errorf("events %s", told)
		}
	})
}

// Jobs that have ended are kept up to a number.
func TestHistory(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("* * * * *", func(s *batchv1.CronJobSpec) { s.SuccessfulJobsHistoryLimit = proto.Int32(2) })
		for i := 1; i <= 6; i++ {
			minutes(1)
			time.Sleep(time.Second)
			if i%2 == 0 {
				w.end(i, "Failed")
			} else {
				w.end(i, "Complete")
			}
		}
		w.wants("03+ 05+ 06-", 0)
	})
}

func TestConcurrency(t *testing.T) {
	for policy, want := range map[string]struct {
		jobs, events string
		active       int
	}{
		"Allow":   {"01 02 03", "SuccessfulCreate", 3},
		"Forbid":  {"01", "JobAlreadyActive SuccessfulCreate", 1},
		"Replace": {"03", "SuccessfulCreate SuccessfulDelete", 1},
	} {
		t.Run(policy, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.create("* * * * *", func(s *batchv1.CronJobSpec) { s.ConcurrencyPolicy = policy })
				minutes(3)
				time.Sleep(time.Second)
				w.wants(want.jobs, want.active)
				if told := w.told(); told != want.events {
					w.Errorf("events %s, want %s", told, want.events)
				}
				if policy != "Forbid" {
					return
				}
				// When the one that was in the way has ended, the newest time is met late.
				minutes(2)
				w.end(1, "Complete")
				w.wants("01+ 05", 1)
			})
		})
	}
}

// What was missed is met once, and late only as far as the deadline allows.
func TestMissed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("*/10 * * * *", func(s *batchv1.CronJobSpec) { s.Suspend = proto.Bool(true) })
		suspend := func(on bool) { w.change(func(o *batchv1.CronJob) { o.Spec.Suspend = &on }) }
		minutes(35)
		w.wants("", 0)
		suspend(false)
		w.wants("30", 1)
		suspend(true)
		minutes(35) // now it is 01:10
		w.change(func(o *batchv1.CronJob) { o.Spec.StartingDeadlineSeconds = proto.Int64(60) })
		minutes(5)
		suspend(false)
		w.wants("30", 1)
		minutes(6)
		w.wants("30 80", 2)
	})
}

// Of a schedule that changes no time counts that was before the change, nor of one in another time zone; those of
// after it do. spec: WORK-3
func TestScheduleChanges(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("30 3 * * *", func(*batchv1.CronJobSpec) {})
		minutes(17)
		w.change(func(o *batchv1.CronJob) { o.Spec.Schedule = "*/5 * * * *" })
		minutes(2) // a look in between, for another reason
		w.change(func(o *batchv1.CronJob) { o.Spec.StartingDeadlineSeconds = proto.Int64(3000) })
		time.Sleep(30 * time.Second)
		w.wants("", 0)
		minutes(1)
		w.wants("20", 1)
		w.change(func(o *batchv1.CronJob) { o.Spec.Schedule = "22 10 * * *" })
		minutes(15) // long enough to look at the clock again
		w.change(func(o *batchv1.CronJob) { o.Spec.TimeZone = proto.String("Etc/GMT-10") })
		minutes(1)
		w.wants("20", 1)
	})
}

// After ten years asleep there is one Job, and a warning; a schedule without times makes none, and no work.
func TestTenYearsAndNever(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("* * * * *", func(s *batchv1.CronJobSpec) { s.Suspend = proto.Bool(true) })
		minutes(5)
		o := object.Clone(w.get())
		o.Status.LastScheduleTime = value.Time(epoch.AddDate(-10, 0, 0))
		_, err := w.c.CronJobs.UpdateStatus(w.Context(), &batchv1rpc.UpdateCronJobRequest{Object: o})
		w.must(err)
		w.change(func(o *batchv1.CronJob) { o.Spec.Suspend = proto.Bool(false) })
		w.wants("05", 1)
		w.change(func(o *batchv1.CronJob) { o.Spec.Schedule = "0 0 30 2 *" })
		minutes(60)
		w.wants("05", 1)
		if told := w.told(); told != "InvalidSchedule SuccessfulCreate TooManyMissedTimes" {
			w.Errorf("events %s", told)
		}
	})
}

// A clock that goes back meets no time twice: one in the future is waited for.
func TestClockGoesBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("*/10 * * * *", nil)
		minutes(1)
		o := object.Clone(w.get())
		o.Status.LastScheduleTime = value.Time(epoch.Add(30 * time.Minute)) // met before the clock was set back
		_, err := w.c.CronJobs.UpdateStatus(w.Context(), &batchv1rpc.UpdateCronJobRequest{Object: o})
		w.must(err)
		minutes(38)
		w.wants("", 0)
		minutes(2)
		w.wants("40", 1)
	})
}

// A controller that is killed between a Job and its status, and two that work at once, make no Job twice. Jobs that go
// by themselves leave the status.
func TestNothingTwice(t *testing.T) {
	inWorld(t, func(w *world) {
		second := w.start()
		w.create("* * * * *", func(s *batchv1.CronJobSpec) { s.ConcurrencyPolicy = "Forbid" })
		minutes(2)
		w.wants("01", 1)
		second()
		w.end(1, "Complete")
		w.wants("01+ 02", 1)

		w.server.React(func(_ context.Context, method string, _ any) error {
			if method == batchv1rpc.CronJobs_UpdateStatus_FullMethodName {
				return apierrors.New(apierrors.ServiceUnavailable, "no status is written")
			}
			return nil
		})
		w.end(2, "Complete")
		minutes(2) // what fails is tried again every 30 s at least
		w.stop()
		w.server.React(nil)
		minutes(5)
		w.stop = w.start()
		w.wants("01+ 02+ 03", 1)

		_, err := w.c.Jobs.Delete(w.Context(), &metav1.DeleteRequest{Namespace: "ns", Name: w.get().Status.Active[0].Name,
			Options: &metav1.DeleteOptions{PropagationPolicy: proto.String("Background")}})
		w.must(err)
		w.wants("01+ 02+ 09", 1) // the newest time that it was in the way of is met
		if told := w.told(); !strings.Contains(told, "MissingJob") {
			w.Errorf("events %s", told)
		}
	})
}

// What people make of the template is not counted, and not refused. A name that somebody else has is left to them.
func TestJobsOfOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create("* * * * *", func(s *batchv1.CronJobSpec) { s.ConcurrencyPolicy = "Forbid" })
		o := w.get()
		add := func(name string, owners ...*metav1.OwnerReference) {
			_, err := w.c.Jobs.Create(w.Context(), &batchv1rpc.CreateJobRequest{Object: &batchv1.Job{
				Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: owners},
				Spec:     object.Clone(o.GetSpec().GetJobTemplate().GetSpec()),
			}})
			w.must(err)
		}
		add("by-hand", &metav1.OwnerReference{ApiVersion: "batch/v1", Kind: "CronJob", Name: "c",
			Uid: o.GetMetadata().GetUid(), Controller: proto.Bool(true)})
		add("c-15778081") // of the first minute
		minutes(1)
		time.Sleep(time.Second)
		w.wants("01 ?by-hand", 0)
		minutes(1)
		w.wants("01 02 ?by-hand", 1)
		if told := w.told(); told != "SuccessfulCreate UnexpectedJob" {
			w.Errorf("events %s", told)
		}
	})
}
