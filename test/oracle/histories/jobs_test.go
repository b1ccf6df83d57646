package histories

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func batch(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: resource}
}

// one returns one of several values.
func one(r *rand.Rand, of ...any) any { return of[r.IntN(len(of))] }

// jobTemplate is that of pods on the node without an agent.
func jobTemplate() fields {
	return fields{"metadata": fields{"labels": fields{"app": "w"}}, "spec": fields{
		"nodeName": hand, "restartPolicy": "Never", "terminationGracePeriodSeconds": int64(1),
		"containers": []any{fields{"name": "c", "image": "image:1"}}}}
}

// newJob is a Job with whatever fields go together.
func newJob(r *rand.Rand) fields {
	spec := fields{"parallelism": int64(r.IntN(5)), "template": jobTemplate(), "backoffLimit": int64(r.IntN(6))}
	if r.IntN(5) > 0 {
		spec["completions"] = int64(1 + r.IntN(7))
	}
	indexed := r.IntN(2) == 0
	perIndex := indexed && r.IntN(2) == 0
	if indexed {
		spec["completionMode"] = "Indexed"
		spec["completions"] = int64(1 + r.IntN(7))
		if r.IntN(3) == 0 {
			spec["parallelism"] = spec["completions"]
		}
		if r.IntN(3) == 0 {
			spec["successPolicy"] = fields{"rules": []any{one(r, fields{"succeededCount": int64(1)},
				fields{"succeededIndexes": "0"})}}
		}
	}
	if perIndex {
		delete(spec, "backoffLimit")
		spec["backoffLimitPerIndex"] = int64(r.IntN(3))
		if r.IntN(2) == 0 {
			spec["maxFailedIndexes"] = min(int64(r.IntN(3)), spec["completions"].(int64))
		}
	}
	switch r.IntN(3) {
	case 0:
		rules := []any{
			fields{"action": "FailJob", "onExitCodes": fields{"operator": "In", "values": []any{int64(3)}}},
			fields{"action": "Ignore", "onExitCodes": fields{"operator": "In", "values": []any{int64(4)}}},
			fields{"action": "Count", "onExitCodes": fields{"operator": "In", "values": []any{int64(5)}}},
			fields{"action": "Ignore", "onPodConditions": []any{fields{"type": "DisruptionTarget", "status": "True"}}},
		}
		if perIndex {
			rules = append(rules,
				fields{"action": "FailIndex", "onExitCodes": fields{"operator": "NotIn", "values": []any{int64(0), int64(1)}}})
		}
		spec["podFailurePolicy"] = fields{"rules": rules}
	case 1:
		spec["podReplacementPolicy"] = one(r, "Failed", "TerminatingOrFailed")
	}
	if r.IntN(3) == 0 {
		spec["suspend"] = true
	}
	if r.IntN(4) == 0 {
		spec["activeDeadlineSeconds"] = int64(200 + r.IntN(600))
	}
	if r.IntN(3) == 0 {
		spec["ttlSecondsAfterFinished"] = int64(r.IntN(300))
	}
	return fields{"apiVersion": "batch/v1", "kind": "Job", "metadata": fields{"name": "w"}, "spec": spec}
}

// podsEnd ends some pods with an exit code.
func podsEnd(name string, phase string, code func(*rand.Rand) int64, conditions ...any) step {
	return step{name, func(t *testing.T, r *rand.Rand, w *world) {
		exit := code(r)
		for _, p := range w.some(t, r) {
			w.report(t, p, phase, ended(exit, conditions...))
			time.Sleep(3 * time.Second) // virtual: how fast they are seen one after the other is everybody's own affair
		}
	}}
}

func always(code int64) func(*rand.Rand) int64 { return func(*rand.Rand) int64 { return code } }

var (
	podsRun = step{"pods run", func(t *testing.T, r *rand.Rand, w *world) {
		for _, p := range w.some(t, r) {
			w.report(t, p, "Running", isReady(r.IntN(3) > 0))
		}
	}}
	podsSucceed = podsEnd("pods succeed", "Succeeded", always(0))
	podsFail    = podsEnd("pods fail", "Failed", func(r *rand.Rand) int64 {
		return one(r, int64(1), int64(3), int64(4),
			int64(5), int64(6)).(int64)
	})
	podsDisrupted = podsEnd("pods disrupted", "Failed", always(137), fields{"type": "DisruptionTarget", "status": "True",
		"reason": "PreemptionByScheduler", "lastTransitionTime": "2000-01-01T00:00:00Z"})
)

func jobs() map[string]kind {
	resource := batch("jobs")
	return map[string]kind{
		"Job": {
			controllers: []string{"job", "ttl-after-finished"}, without: byHand, nodes: -1,
			begin: func(t *testing.T, r *rand.Rand, w *world) {
				w.addHand(t)
				w.create(t, resource, newJob(r))
			},
			steps: []step{podsRun, podsRun, podsSucceed, podsSucceed, podsFail, podsFail, podsDisrupted, letGo, letGo,
				podDeleted,
				patched(resource, "suspended or not", func(r *rand.Rand) fields { return fields{"suspend": r.IntN(3) == 0} }),
				patched(resource, "given another parallelism", func(r *rand.Rand) fields {
					return fields{"parallelism": int64(r.IntN(6))}
				}),
				patched(resource, "made longer or shorter", func(r *rand.Rand) fields {
					n := int64(1 + r.IntN(6))
					return fields{"parallelism": n, "completions": n}
				}),
				step{"deleted and made anew", func(t *testing.T, r *rand.Rand, w *world) {
					if r.IntN(3) > 0 {
						return
					}
					background := v1.DeletePropagationBackground
					w.remove(t, resource, "w", v1.DeleteOptions{PropagationPolicy: &background})
					time.Sleep(time.Minute) // virtual
					letGo.do(t, r, w)
					w.create(t, resource, newJob(r))
				}},
			},
			shown: []shown{{resource: resource, named: true, paths: []string{"metadata.annotations", "spec", "status"}}},
		},
		"CronJob": {
			controllers: []string{"cronjob"}, without: byHand, nodes: -1,
			begin: func(t *testing.T, r *rand.Rand, w *world) {
				w.addHand(t)
				w.create(t, batch("cronjobs"), fields{"apiVersion": "batch/v1", "kind": "CronJob",
					"metadata": fields{"name": "w", "annotations": fields{"note": "of mine"}},
					"spec": fields{
						"schedule": schedule(r), "concurrencyPolicy": one(r, "Allow", "Forbid", "Replace"),
						"successfulJobsHistoryLimit": int64(r.IntN(3)), "failedJobsHistoryLimit": int64(r.IntN(3)),
						"jobTemplate": fields{"metadata": fields{"labels": fields{"app": "w"}},
							"spec": fields{"backoffLimit": int64(0), "template": jobTemplate()}},
					}})
			},
			steps: []step{podsSucceed, podsSucceed, podsFail, letGo,
				patched(batch("cronjobs"), "suspended or not", func(r *rand.Rand) fields {
					return fields{"suspend": r.IntN(2) == 0}
				}),
				patched(batch("cronjobs"), "given another schedule", func(r *rand.Rand) fields {
					// Not one of whose times some are before the change: Kubernetes meets the last of them when something else
					// has it look at the CronJob before the next.
					return fields{"schedule": one(r, "* * * * *", "0 0 31 2 *"),
						"timeZone": one(r, nil, "Europe/Berlin", "Asia/Kolkata")}
				}),
				patched(batch("cronjobs"), "given another policy", func(r *rand.Rand) fields {
					return fields{"concurrencyPolicy": one(r, "Allow", "Forbid", "Replace"),
						"startingDeadlineSeconds": one(r, nil, int64(5), int64(100), int64(4000))}
				}),
				step{"left alone for long", func(_ *testing.T, r *rand.Rand, w *world) {
					if w.name == "Kubernetes" { // once, for both
						time.Sleep(time.Duration(1+r.IntN(90)) * time.Minute) // virtual
					}
				}},
				step{"a job deleted", func(t *testing.T, r *rand.Rand, w *world) {
					if list := w.list(t, resource); len(list) > 0 {
						background := v1.DeletePropagationBackground
						w.remove(t, resource, list[r.IntN(len(list))].GetName(), v1.DeleteOptions{PropagationPolicy: &background})
					}
				}},
			},
			shown: []shown{
				{resource: batch("cronjobs"), named: true, paths: []string{"metadata.annotations", "spec", "status"}},
				{resource: resource, named: true, paths: []string{"metadata.annotations", "metadata.labels", "spec", "status"}},
			},
		},
	}
}

func schedule(r *rand.Rand) string {
	return fmt.Sprint(one(r, "* * * * *", "*/2 * * * *", "*/7 * * * *", "0 * * * *", "@hourly", "30 3 * * *",
		"0 0 31 2 *"))
}
