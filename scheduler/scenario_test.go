package scheduler_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/test/scenario"
)

var rewrite = flag.Bool("rewrite", false, "write what happened into the scenario files")

// What happens in the scenario files is what they say: package scenario has their language. Nodes start their pods at
// once, and let them end when their grace is over; the controller of claims and volumes runs, too. Run the test with
// -rewrite to write down what happens now, and read the difference.
//
// spec: SCHED-2, SCHED-4, SCHED-6, SPREAD-5, PRIO-3, PREEMPT-1, PREEMPT-2, PREEMPT-3, PREEMPT-4, ATT-2
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("test/scenario/testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			inWorld(t, scheduler.Config{}, func(w *world) {
				defer w.agents()()
				defer runStorage(w, w.c)()
				got := scenario.Play(w, w.server, string(want))
				if *rewrite {
					if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
						t.Fatal(err)
					}
				} else if got != string(want) {
					t.Errorf("got:\n%s\nwant:\n%s", got, want)
				}
			})
		})
	}
}
