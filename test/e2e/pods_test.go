package e2e_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// podOf returns a pod that runs a shell script once, with a grace of one second. In a command Kubernetes reads $$
// as an escaped dollar sign, so they are doubled.
func podOf(name, script string) *corev1.Pod {
	grace := int64(1)
	script = strings.ReplaceAll(script, "$$", "$$$$")
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "main", Image: "host", Command: []string{"/bin/sh", "-c", script}}},
		},
	}
}

// sleeper returns a pod that runs until it is stopped.
func sleeper(name string) *corev1.Pod { return podOf(name, "exec sleep 3600") }

func withGrace(p *corev1.Pod, seconds int64) *corev1.Pod {
	p.Spec.TerminationGracePeriodSeconds = &seconds
	return p
}

func withRestart(p *corev1.Pod, policy corev1.RestartPolicy) *corev1.Pod {
	p.Spec.RestartPolicy = policy
	return p
}

// pods wraps client-go's client of one namespace's pods with what tests do all the time.
type pods struct {
	clientcorev1.PodInterface
}

func (c *cluster) pods(t *testing.T, namespace string) pods {
	t.Helper()
	return pods{c.client(t).CoreV1().Pods(namespace)}
}

// create creates a pod. Of an answer that the write may still happen client-go tells nothing, but tries again: the pod
// that exists then is this one.
func (p pods) create(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	mark := "e2e-" + rand.Text()
	created, err := p.Create(t.Context(), pod, metav1.CreateOptions{FieldManager: mark})
	if apierrors.IsAlreadyExists(err) {
		got, gone := p.Get(t.Context(), pod.Name, metav1.GetOptions{})
		if gone == nil && slices.ContainsFunc(got.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
			return m.Manager == mark
		}) {
			return got
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// until waits until the pod is as wanted and returns it.
func (p pods) until(t *testing.T, name, what string, want func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, "pod "+name+" "+what, func() (bool, string) {
		var err error
		pod, err = p.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return want(pod), fmt.Sprintf("status: %+v", pod.Status)
	})
	return pod
}

func (p pods) untilPhase(t *testing.T, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	return p.until(t, name, string(phase), func(pod *corev1.Pod) bool { return pod.Status.Phase == phase })
}

// run creates a pod and waits until it runs.
func (p pods) run(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	p.create(t, pod)
	return p.untilPhase(t, pod.Name, corev1.PodRunning)
}

// delete begins a deletion; a negative grace leaves it to the pod.
func (p pods) delete(t *testing.T, name string, grace int64) {
	t.Helper()
	opts := metav1.DeleteOptions{}
	if grace >= 0 {
		opts.GracePeriodSeconds = &grace
	}
	if err := p.Delete(t.Context(), name, opts); err != nil {
		t.Fatal(err)
	}
}

// untilGone waits until the object is gone, or its name is another pod's.
func (p pods) untilGone(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, "end of pod "+pod.Name, func() (bool, string) {
		got, err := p.Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err), err.Error()
		}
		return got.UID != pod.UID, fmt.Sprintf("status: %+v", got.Status)
	})
}

// logs returns what a pod has printed.
func (p pods) logs(t *testing.T, name string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := p.GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// phases collects the phases that a pod goes through until its object is gone, in order.
func (p pods) phases(t *testing.T, pod *corev1.Pod) <-chan []corev1.PodPhase {
	t.Helper()
	w, err := p.Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + pod.Name, ResourceVersion: pod.ResourceVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan []corev1.PodPhase, 1)
	go func() {
		defer w.Stop()
		var seen []corev1.PodPhase
		limit := time.After(patience)
		for {
			select {
			case e, ok := <-w.ResultChan():
				got, is := e.Object.(*corev1.Pod)
				if !ok || !is || got.UID != pod.UID {
					out <- append(seen, "watch ended")
					return
				}
				if len(seen) == 0 || seen[len(seen)-1] != got.Status.Phase {
					seen = append(seen, got.Status.Phase)
				}
				if e.Type == "DELETED" {
					out <- seen
					return
				}
			case <-limit:
				out <- append(seen, "no end")
				return
			}
		}
	}()
	return out
}
