//go:build kubernetes

package oracle

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	apps1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/daemon/util"
	clocktesting "k8s.io/utils/clock/testing"
)

// syncDaemons takes the DaemonSet with a key a step further.
//
//go:linkname syncDaemons k8s.io/kubernetes/pkg/controller/daemon.(*DaemonSetsController).syncDaemonSet
func syncDaemons(c *daemon.DaemonSetsController, ctx context.Context, key string) error

func theirPlacedDaemon(t testing.TB, d *apps1.DaemonSet, n *v1.Node) (out placedDaemon) {
	out.Run, out.Stay = daemon.NodeShouldRunDaemonPod(klog.Background(), n, d)
	generation, err := util.GetTemplateGeneration(d)
	if err != nil {
		t.Fatal(err)
	}
	out.Template = util.CreatePodTemplate(d.Spec.Template, generation, "hash")
	out.Template.Spec.Affinity = util.ReplaceDaemonSetPodNodeNameNodeAffinity(out.Template.Spec.Affinity, n.Name)
	return out
}

func theirDaemonTemplate(_ testing.TB, from v1.PodTemplateSpec, hash, node string) v1.PodTemplateSpec {
	template := util.CreatePodTemplate(from, nil, hash)
	template.Spec.Affinity = util.ReplaceDaemonSetPodNodeNameNodeAffinity(template.Spec.Affinity, node)
	return template
}

func theirTarget(_ testing.TB, p *v1.Pod) targetNode {
	name, err := util.GetTargetNodeName(p)
	return targetNode{name, err == nil}
}

// backoff is what Kubernetes' controllers of the steps of a course remember.
type backoff struct {
	*flowcontrol.Backoff
	clock *clocktesting.FakeClock
}

// theirDaemonStep takes Kubernetes' controller a step further. It is a new one each time, which waits for nothing of
// before.
func theirDaemonStep(
	t testing.TB, past *course, set *apps1.DaemonSet, nodes map[string]*v1.Node, pods map[string]*v1.Pod,
	revisions map[string]*apps1.ControllerRevision, now time.Time,
) did {
	if past.theirs == nil {
		clock := clocktesting.NewFakeClock(now)
		past.theirs = backoff{flowcontrol.NewFakeBackOff(time.Second, 15*time.Minute, clock), clock}
	}
	remembered := past.theirs.(backoff)
	remembered.clock.SetTime(now)
	out := did{Revisions: maps.Clone(revisions)}
	ctx, cancel := context.WithCancel(t.Context())
	client := fake.NewClientset()
	f := informers.NewSharedInformerFactory(client, 0)
	client.PrependReactor("*", "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
		switch kind := a.GetResource().Resource; a := a.(type) {
		case k8stesting.CreateActionImpl:
			if kind == "pods" {
				p := a.GetObject().(*v1.Pod).DeepCopy()
				node, err := util.GetTargetNodeName(p)
				if err != nil {
					t.Fatal(err)
				}
				out.Create = append(out.Create, node)
				p.Name = "made-for-" + node
				return true, p, nil
			}
			rev := a.GetObject().(*apps1.ControllerRevision)
			out.Revisions[rev.Name] = rev
			return true, rev, nil
		case k8stesting.DeleteActionImpl:
			if kind == "pods" {
				out.Remove = append(out.Remove, a.GetName())
			} else {
				delete(out.Revisions, a.GetName())
			}
			return true, nil, nil
		case k8stesting.UpdateActionImpl:
			if kind == "controllerrevisions" {
				rev := a.GetObject().(*apps1.ControllerRevision)
				out.Revisions[rev.Name] = rev
			} else {
				s := a.GetObject().(*apps1.DaemonSet).Status
				out.Status = &s
			}
			return true, a.GetObject(), nil
		}
		t.Fatalf("Kubernetes asks for %v", a)
		return false, nil, nil
	})
	c, err := daemon.NewDaemonSetsController(ctx, f.Apps().V1().DaemonSets(), f.Apps().V1().ControllerRevisions(),
		f.Core().V1().Pods(), f.Core().V1().Nodes(), client, remembered.Backoff)
	if err != nil {
		t.Fatal(err)
	}
	add := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	add(f.Apps().V1().DaemonSets().Informer().GetStore().Add(set.DeepCopy()))
	for _, rev := range out.Revisions {
		add(f.Apps().V1().ControllerRevisions().Informer().GetStore().Add(rev.DeepCopy()))
	}
	for _, p := range pods {
		add(f.Core().V1().Pods().Informer().GetStore().Add(p.DeepCopy()))
	}
	for _, n := range nodes {
		add(f.Core().V1().Nodes().Informer().GetStore().Add(n.DeepCopy()))
	}
	err = syncDaemons(c, ctx, "default/d")
	cancel()
	c.Run(ctx, 0) // ends its queues
	if err != nil {
		if !strings.Contains(err.Error(), "couldn't get node for nodeName") {
			t.Fatal(err)
		}
		out.Wrong = err.Error()
	}
	slices.Sort(out.Create)
	slices.Sort(out.Remove)
	return out
}
