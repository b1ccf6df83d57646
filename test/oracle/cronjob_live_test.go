//go:build kubernetes

package oracle

import (
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/robfig/cron/v3"
	batch1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/controller/cronjob" // whose functions go:linkname names
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/util/parsers"
)

//go:linkname newestTheirs k8s.io/kubernetes/pkg/controller/cronjob.mostRecentScheduleTime
func newestTheirs(
	cj *batch1.CronJob, now time.Time, s cron.Schedule, deadline bool,
) (time.Time, *time.Time, int, error)

//go:linkname waitTheirs k8s.io/kubernetes/pkg/controller/cronjob.nextScheduleTimeDuration
func waitTheirs(cj *batch1.CronJob, now time.Time, s cron.Schedule) *time.Duration

// theirSchedule says what is wrong with a schedule.
func theirSchedule(_ testing.TB, text string) string {
	_, err := parsers.ParseCronScheduleWithPanicRecovery(text)
	return errorText(err)
}

func theirDueTime(t testing.TB, cj *batch1.CronJob, now time.Time, text string) dueTime {
	s, err := parsers.ParseCronScheduleWithPanicRecovery(text)
	if err != nil {
		t.Fatal(err)
	}
	_, due, missed, err := newestTheirs(cj, now, s, true)
	if err != nil {
		return dueTime{None: err.Error()}
	}
	return dueTime{Due: due, Many: missed == 2, Next: *waitTheirs(cj, now, s)}
}

// theirYear walks from one time to another as Kubernetes does, and returns how long after each other times are due.
func theirYear(t testing.TB, text string, now, end time.Time) (all []time.Duration) {
	s, err := parsers.ParseCronScheduleWithPanicRecovery(text)
	if err != nil {
		t.Fatal(err)
	}
	cj, last := &batch1.CronJob{}, now
	cj.CreationTimestamp = metav1.NewTime(now)
	for ; now.Before(end); now = now.Add(*waitTheirs(cj, now, s)) {
		_, due, _, err := newestTheirs(cj, now, s, true)
		if err != nil {
			t.Fatal(err)
		}
		if due != nil {
			all = append(all, due.Sub(last))
			last, cj.Status.LastScheduleTime = *due, ptr(metav1.NewTime(*due))
		}
	}
	return all
}

func theirCronJob(t testing.TB, k, old *batch1.CronJob) verdict {
	now, was := internal(t, k, &batch.CronJob{}), internal(t, old, &batch.CronJob{})
	return verdict{
		Created: theirFaults(cronjob.Strategy.Validate(ofGroup("batch"), now)),
		Updated: theirFaults(cronjob.Strategy.ValidateUpdate(ofGroup("batch"), now, was)),
	}
}
