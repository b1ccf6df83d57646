package main

import (
	"fmt"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec"
)

// note makes the pods as large as the ones that the targets were set with: 2.1 KB of JSON once the server has
// filled them in.
const note = "One of many small pods. Its owner writes down here what whoever is on call wants to know about it: " +
	"what " +
	"it does, whom to ask, which dashboards to look at, and what may be done to it at night. Pods in real clusters " +
	"carry such notes, or a copy of the configuration that they were last applied from, and are no smaller than this " +
	"one: the longer half of an object is often what no program but the one that wrote it ever reads."

// pod returns a small pod. Scheduler "none" keeps the scheduler away from it.
func pod(name, scheduler string) *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{
			Name: name, Namespace: "default",
			Labels:      map[string]string{"app": "bench", "tier": "backend", "release": "2026-11"},
			Annotations: map[string]string{"example.com/owner": "team-bench", "example.com/note": note},
		},
		Spec: &corev1.PodSpec{
			SchedulerName: scheduler,
			Containers: []*corev1.Container{{
				Name: "main", Image: "host",
				Command: []string{"/bin/sh", "-c"}, Args: []string{"exec sleep 1000000"},
				Env: []*corev1.EnvVar{
					{Name: "MODE", Value: "bench"}, {Name: "LEVEL", Value: "info"}, {Name: "PORT", Value: "8080"},
					{Name: "DATABASE", Value: "postgres://bench.default.svc:5432/bench"}, {Name: "CACHE_SIZE", Value: "64Mi"},
				},
				Ports: []*corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP"}},
				Resources: &corev1.ResourceRequirements{Requests: map[string]*metav1.Quantity{
					"cpu": {String_: "1m"}, "memory": {String_: "1Mi"},
				}},
			}},
		},
	}
}

// podJSON returns the JSON body of a pod.
func podJSON(name, scheduler string) []byte { return codec.AppendObject(nil, pod(name, scheduler)) }

// decodePod reads the JSON of a pod.
func decodePod(body []byte) (*corev1.Pod, error) {
	p := &corev1.Pod{}
	_, err := codec.DecodeObject(body, p)
	return p, err
}

func podName(prefix string, i int) string { return fmt.Sprintf("%s-%06d", prefix, i) }
