package scheduler

import (
	"fmt"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client/record"
	"monoplane.dev/scheduler/framework"
)

// profile is a profile with the recorder of its events, which bear its name.
type profile struct {
	*framework.Profile
	events *record.Recorder
}

// profiles are those of a scheduler by name. Their methods are for pods that have one.
type profiles map[string]*profile

func newProfiles(cfg Config) (profiles, error) {
	all := profiles{}
	for _, p := range cfg.Profiles {
		if all[p.Name()] != nil {
			return nil, fmt.Errorf("scheduler: two profiles are named %q", p.Name())
		}
		all[p.Name()] = &profile{p, record.New(record.Config{
			Events: cfg.Client.Events, Controller: p.Name(), Instance: cfg.Instance, Logger: cfg.Logger,
			NewForm: true,
		})}
	}
	return all, nil
}

// of returns the profile that the pod chose, nil when it is another scheduler's.
func (p profiles) of(pod *corev1.Pod) *profile { return p[pod.GetSpec().GetSchedulerName()] }

func (p profiles) preEnqueue(pod *framework.PodInfo) *framework.Status {
	return p.of(pod.Pod).PreEnqueue(pod)
}

func (p profiles) interest(plugins []string, pod *framework.PodInfo) framework.Event {
	return p.of(pod.Pod).Interest(plugins)
}

func (p profiles) helps(plugins []string, pod *framework.PodInfo, change *framework.Change) bool {
	return p.of(pod.Pod).Helps(plugins, pod, change)
}
