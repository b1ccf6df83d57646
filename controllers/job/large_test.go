package job_test

import (
	"testing"
	"time"

	"monoplane.dev/controllers/test/controllertest"

	batchv1 "monoplane.dev/api/batch/v1"
)

// The status of a Job names its indexes in rows, so that one of many stays small all the time.
func TestAThousandIndexes(t *testing.T) {
	inWorld(t, &controllertest.Nodes{Ends: always("Succeeded", 10*time.Second)}, func(w *world) {
		w.create(func(s *batchv1.JobSpec) { indexed(s, 1_000, 500) })
		largest, began := 0, time.Now()
		for range 200 {
			j := w.get()
			largest = max(largest, len(j.GetStatus().String()))
			if j.GetStatus().GetCompletionTime() != nil {
				break
			}
			time.Sleep(time.Second)
		}
		j := w.get()
		w.want(j, "0 active, 1000 succeeded, 0 failed, completed 0-999, SuccessCriteriaMet CompletionsReached, "+
			"Complete CompletionsReached")
		if n := len(w.pods()); n != 1_000 {
			t.Errorf("%d pods were made", n)
		}
		w.untracked()
		t.Logf("the status had up to %d bytes, the Job took %s", largest, time.Since(began))
		if largest > 32<<10 {
			t.Errorf("the status had up to %d bytes", largest)
		}
	})
}
