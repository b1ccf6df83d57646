package deletion

import "fmt"

// entitled refuses what the actor may not do with this pod (DEL-8, DEL-11). guard is true when it may only if
// the pod's Node is gone at the moment of the write.
func entitled(p Pod, req Request, by Actor) (guard bool, err error) {
	switch by.Role {
	case User:
		return false, nil
	case Agent:
		return false, agent(p, req, by)
	case PodGC:
		return podGC(p, req, by)
	case Controller:
		return false, controller(p, req, by)
	default:
		return false, refuse("%s may not delete pods", by.Name)
	}
}

// agent: only the agent of the pod's own node completes a graceful deletion, and only after it has said that
// nothing runs any more (DEL-7). A mirror pod is only a picture of a static pod, so its agent may drop it at
// any time.
func agent(p Pod, req Request, by Actor) error {
	switch {
	case by.Node == "" || p.Node != by.Node:
		return refuse("%s may only delete pods that are bound to its own node; this one is bound to %q", by.Name, p.Node)
	case p.NodeKey != "" && by.NodeKey != p.NodeKey:
		return refuse("the pod was bound to another machine that was registered as node %q", p.Node)
	case !forces(req):
		return refuse("%s may only complete deletions, with gracePeriodSeconds 0", by.Name)
	case req.Expected.UID == nil:
		return refuse("%s must name the pod's uid in preconditions", by.Name)
	case p.Mirror:
		return nil
	case p.Mark == nil:
		return refuse("%s may not begin the deletion of a pod", by.Name)
	case !p.Terminal:
		return refuse("%s must report the pod Succeeded or Failed before it completes its deletion", by.Name)
	default:
		return nil
	}
}

// podGC: GC-1 and GC-3 (the node is gone, or out of service, compared in the same transaction), GC-2 (never bound and
// being deleted), GC-4 (terminal). A pod that PodGC itself failed because its node was gone has not been confirmed by
// any agent, so that the node must still be gone.
func podGC(p Pod, req Request, by Actor) (guard bool, err error) {
	switch {
	case req.Expected.UID == nil:
		return false, refuse("%s must name the pod's uid in preconditions", by.Name)
	case !forces(req):
		return false, nil
	case p.Node == "" && (p.Mark != nil || p.Terminal):
		return false, nil
	case p.Node == "":
		return false, refuse("%s may force the deletion of an unbound pod only once it is being deleted", by.Name)
	case p.Terminal && !p.NodeLost:
		return false, nil
	default:
		return true, nil
	}
}

// controller: every other component may only begin a graceful deletion, of the very pod that it means.
func controller(p Pod, req Request, by Actor) error {
	switch {
	case forces(req):
		return refuse("%s may only begin graceful deletions; only the agent of the pod's node, PodGC and users may use "+
			"gracePeriodSeconds 0", by.Name)
	case req.Expected.UID == nil:
		return refuse("%s must name the pod's uid in preconditions", by.Name)
	default:
		return nil
	}
}

func refuse(format string, args ...any) error {
	return &Refusal{Message: fmt.Sprintf(format, args...)}
}
