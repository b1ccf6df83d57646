package podtopologyspread

import (
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/scheduler/framework"
)

// Events are the changes that can help. A pod that comes can: it may be in the emptiest domain.
func (*Plugin) Events() framework.Event {
	return framework.NodeAdded | framework.NodeLabels | framework.NodeTaints | framework.NodeGone |
		framework.PodAssigned | framework.PodGone | framework.PodShrunk
}

// Helps says whether a change can help.
func (p *Plugin) Helps(pod *framework.PodInfo, c *framework.Change) bool {
	if len(pod.Spread) == 0 {
		return p.defaults.helps(pod, c)
	}
	for i := range pod.Spread {
		s := &pod.Spread[i]
		if s.Hard && helps(s, c) {
			return true
		}
	}
	return false
}

func helps(s *framework.SpreadConstraint, c *framework.Change) bool {
	switch c.Event {
	case framework.PodAssigned:
		return s.Pods.MayCount(c.Pod)
	case framework.PodGone:
		return s.Pods.MayCount(c.OldPod) // One that was terminating has not counted since then.
	case framework.PodShrunk:
		return s.Pods.MayCount(c.Pod) != s.Pods.MayCount(c.OldPod)
	case framework.NodeTaints:
		return s.HonorTaints
	case framework.NodeLabels:
		return hasKey(c.Node, s.Key) || hasKey(c.OldNode, s.Key)
	case framework.NodeAdded:
		return hasKey(c.Node, s.Key)
	case framework.NodeGone:
		return hasKey(c.OldNode, s.Key)
	default:
		return false
	}
}

func hasKey(n *corev1.Node, key string) bool {
	_, ok := n.GetMetadata().GetLabels()[key]
	return ok
}
