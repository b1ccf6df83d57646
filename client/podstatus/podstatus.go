// Package podstatus is for components that write a part of a pod's status. It writes by compare-and-swap, from the pod
// as the component knows it, and again from the newest one when that was too old: what others write meanwhile is kept,
// and a successor of the same name is never touched (spec: DEL-11).
//
//	_, err := podstatus.Write(ctx, pods, "podgc", pod, func(now *corev1.Pod, s *corev1.PodStatus) bool {
//		podstatus.SetCondition(s, &corev1.PodCondition{Type: "DisruptionTarget", Status: "True"})
//		return true
//	})
package podstatus

import (
	"context"
	"slices"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
)

// maxWrites is how often Write writes. A pod that changes more often than that is left to the caller's next try.
const maxWrites = 5

// Change changes s, a copy of the status of the pod now. What s points to is shared: it is replaced, never changed.
// False means that there is nothing to write.
type Change func(now *corev1.Pod, s *corev1.PodStatus) bool

// Write changes the status of a pod in the name of a manager of fields, and returns the pod as it is then. The pod may
// be older than the server's. Errors: NotFound when it is gone, also when another one has its name; Conflict when
// others write it all the time; what the server says.
func Write(
	ctx context.Context, pods corev1rpc.PodsClient, manager string, pod *corev1.Pod, change Change,
) (*corev1.Pod, error) {
	m := pod.GetMetadata()
	for writes := 1; ; writes++ {
		next := pod.Shallow()
		if next.Status = next.Status.Shallow(); next.Status == nil {
			next.Status = &corev1.PodStatus{}
		}
		if !change(pod, next.Status) {
			return pod, nil
		}
		out, err := pods.UpdateStatus(ctx, &corev1rpc.UpdatePodRequest{
			Namespace: m.GetNamespace(), Name: m.GetName(), Object: next, FieldManager: manager,
		})
		if !apierrors.Is(err, apierrors.Conflict) || writes == maxWrites {
			return out, err
		}
		pod, err = pods.Get(ctx, &metav1.GetRequest{Namespace: m.GetNamespace(), Name: m.GetName()})
		if err != nil {
			return nil, err
		}
		if pod.GetMetadata().GetUid() != m.GetUid() {
			return nil, apierrors.NewNotFound(corev1.PodKind, m.GetName())
		}
	}
}

// Condition returns the condition of that type, or nil.
func Condition(s *corev1.PodStatus, kind string) *corev1.PodCondition {
	if i := index(s, kind); i >= 0 {
		return s.Conditions[i]
	}
	return nil
}

// SetCondition replaces the condition of c's type, or adds c, in a list of its own. When the condition has that status
// already, c gets the time since which it has.
func SetCondition(s *corev1.PodStatus, c *corev1.PodCondition) {
	i := index(s, c.GetType())
	if i < 0 {
		s.Conditions = append(slices.Clip(s.Conditions), c)
		return
	}
	if old := s.Conditions[i]; old.GetStatus() == c.GetStatus() {
		c.LastTransitionTime = old.GetLastTransitionTime()
	}
	s.Conditions = slices.Clone(s.Conditions)
	s.Conditions[i] = c
}

func index(s *corev1.PodStatus, kind string) int {
	return slices.IndexFunc(s.GetConditions(), func(c *corev1.PodCondition) bool { return c.GetType() == kind })
}
