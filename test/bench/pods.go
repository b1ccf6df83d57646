package main

import (
	"fmt"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec"
)

// pod returns a small pod, about 2 KB of JSON once the server has filled it in. Scheduler "none" keeps the
// scheduler away from it.
func pod(name, scheduler string) *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{
			Name: name, Namespace: "default",
			Labels:      map[string]string{"app": "bench", "tier": "backend", "release": "2026-11"},
			Annotations: map[string]string{"example.com/owner": "team-bench", "example.com/note": "one of many small pods"},
		},
		Spec: &corev1.PodSpec{
			SchedulerName: scheduler,
			Containers: []*corev1.Container{{
				Name: "main", Image: "host",
				Command: []string{"/bin/sh", "-c"}, Args: []string{"exec sleep 1000000"},
				Env:   []*corev1.EnvVar{{Name: "MODE", Value: "bench"}, {Name: "LEVEL", Value: "info"}},
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

func podName(prefix string, i int) string { return fmt.Sprintf("%s-%06d", prefix, i) }
