package members

import (
	appsv1 "monoplane.dev/api/apps/v1"
	"monoplane.dev/rules/availability"
)

// status counts the pods of a set.
func status(s Seen) *appsv1.StatefulSetStatus {
	out := &appsv1.StatefulSetStatus{
		ObservedGeneration: s.Set.GetMetadata().GetGeneration(), CurrentRevision: s.Current.Name,
		UpdateRevision: s.Update.Name, CollisionCount: &s.Collisions, Conditions: s.Set.GetStatus().GetConditions(),
	}
	for _, p := range s.Pods {
		if _, ok := Ordinal(s.Set.GetMetadata().GetName(), p); !ok {
			continue
		}
		out.Replicas++
		if ready(p) {
			out.ReadyReplicas++
			if availability.Available(p, s.Set.GetSpec().GetMinReadySeconds(), s.Now) {
				out.AvailableReplicas++
			}
		}
		if going(p) {
			continue
		}
		if Revision(p) == s.Current.Name {
			out.CurrentReplicas++
		}
		if Revision(p) == s.Update.Name {
			out.UpdatedReplicas++
		}
	}
	return out
}

// Complete makes the newest revision the current one in a status when all pods are of it and ready, which ends a
// rolling update.
func Complete(set *appsv1.StatefulSet, s *appsv1.StatefulSetStatus) {
	n := set.GetSpec().GetReplicas()
	if set.GetSpec().GetUpdateStrategy().GetType() == rollingUpdate && s.UpdatedReplicas == n && s.ReadyReplicas == n &&
		s.Replicas == n {
		s.CurrentReplicas, s.CurrentRevision = s.UpdatedReplicas, s.UpdateRevision
	}
}
