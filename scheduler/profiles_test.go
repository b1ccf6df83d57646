package scheduler_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/scheduler"
	"monoplane.dev/scheduler/configfile"
	"monoplane.dev/scheduler/framework"
)

// twoProfiles has one profile that spreads pods and one that packs them.
const twoProfiles = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: packing
  plugins:
    score:
      disabled: [{name: "*"}]
      enabled: [{name: NodeResourcesFit}]
    preScore:
      disabled: [{name: "*"}]
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy: {type: MostAllocated, resources: [{name: cpu}]}
`

// profilesOf makes the profiles of a configuration for the world's server.
func profilesOf(t *testing.T, text string) func(c *client.Client) []*framework.Profile {
	t.Helper()
	cfg, err := configfile.Parse("test.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *client.Client) []*framework.Profile {
		list, err := cfg.Profiles(c)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
}

// Pods choose their profile by spec.schedulerName; pods of other schedulers are left alone. All share one queue, one
// view of the nodes, and events bear the name of the profile.
//
// spec: SCHED-1
func TestPodsChooseProfiles(t *testing.T) {
	profiles := profilesOf(t, strings.Replace(twoProfiles, "default-scheduler", "spreading", 1))
	inWorld(t, scheduler.Config{}, func(w *world) {
		defer w.start(scheduler.Config{Profiles: profiles(w.c)})()
		for i := range 3 {
			w.addNode(newNode(fmt.Sprint("n", i), "cpu=8", "memory=8Gi", "pods=10"))
		}
		nodes := map[string]map[string]int{"packing": {}, "spreading": {}, "nobody": {}}
		for i := range 3 {
			for _, name := range []string{"packing", "spreading", "nobody"} {
				p := newPod(fmt.Sprint(name, i), "cpu=1")
				p.Spec.SchedulerName = name
				w.addPod(p)
				synctest.Wait()
				nodes[name][w.nodeOf(p.Metadata.Name)]++
			}
		}
		if len(nodes["packing"]) != 1 || len(nodes["spreading"]) < 2 || nodes["nobody"][""] != 3 {
			w.Errorf("pods on nodes: %v", nodes)
		}
		for _, name := range []string{"packing", "spreading", "default-scheduler"} {
			p := newPod("big-"+name, "cpu=9")
			p.Spec.SchedulerName = name
			w.addPod(p)
		}
		synctest.Wait()
		list, err := w.c.Events.List(context.Background(), &metav1.ListRequest{Namespace: "ns"})
		w.must(nil, err)
		seen := 0
		for _, e := range list.GetItems() {
			if name, big := strings.CutPrefix(e.GetInvolvedObject().GetName(), "big-"); big {
				seen++
				if e.GetReportingComponent() != name {
					w.Errorf("an event about %s is reported by %s", e.GetInvolvedObject().GetName(), e.GetReportingComponent())
				}
			}
		}
		if seen != 3 {
			w.Errorf("%d events about pods that fit nowhere", seen)
		}
	})
}

func TestProfilesOfOneName(t *testing.T) {
	c := client.New(nil)
	p, err := scheduler.DefaultProfile(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scheduler.New(scheduler.Config{Client: c, Profiles: []*framework.Profile{p, p}}); err == nil {
		t.Error("accepted two profiles of one name")
	}
}
