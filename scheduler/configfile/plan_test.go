package configfile

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"monoplane.dev/client"
	"monoplane.dev/scheduler/framework"
)

// own is a plugin that is not the scheduler's.
type own struct {
	name  string
	Limit int
}

func (o *own) Name() string { return o.name }
func (o *own) Filter(*framework.CycleState, *framework.PodInfo, *framework.NodeInfo) *framework.Status {
	return nil
}
func (o *own) Score(*framework.CycleState, *framework.PodInfo, *framework.NodeInfo) int64 { return 1 }

func newOwn(name string) Factory {
	return func(args *Args, _ *client.Client) (framework.Plugin, error) {
		a := struct {
			Limit int `json:"limit"`
		}{7}
		if err := args.Decode(&a); err != nil {
			return nil, err
		}
		if a.Limit < 0 {
			return nil, errors.Join(fmt.Errorf("args.limit: %d is negative", a.Limit), errors.New("and I do not like it"))
		}
		return &own{name, a.Limit}, nil
	}
}

func owns() Registry { return Registry{"A": newOwn("A"), "B": newOwn("B")} }

// plan lists the plugins of the first profile at a point, in order, scores with their weights.
func plan(t *testing.T, text string, point framework.Points) string {
	t.Helper()
	c, err := Parse("f", []byte(head+text), owns())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	b := c.builder(0, client.New(nil))
	b.build()
	var list []string
	for _, e := range b.enabled {
		if e.Points == point && point == framework.AtScore {
			list = append(list, fmt.Sprintf("%s=%d", e.Plugin.Name(), max(e.Weight, 1)))
		} else if e.Points == point {
			list = append(list, e.Plugin.Name())
		}
	}
	return strings.Join(list, " ")
}

// Which plugins take part where, in which order and with which weight: as for kube-scheduler.
// spec: SCHED-1
func TestPlans(t *testing.T) {
	// few begins multiPoint with nothing but what every profile must have.
	const few = "multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}, {name: DefaultBinder}"
	for _, tc := range []struct {
		plugins string
		point   framework.Points
		want    string
	}{
		{few + "]}", framework.AtFilter, ""},
		{few + "]}", framework.AtBind, "DefaultBinder"},
		{few + ", {name: B}, {name: A, weight: 4}]}", framework.AtScore, "B=1 A=4"},
		// What a point enables itself comes first when multiPoint has it too, last when not.
		{few + ", {name: NodePorts}, {name: A}]}, filter: {enabled: [{name: B}, {name: A}]}", framework.AtFilter,
			"A NodePorts B"},
		{few + ", {name: A}, {name: B, weight: 2}]}, score: {enabled: [{name: B, weight: 9}]}", framework.AtScore,
			"B=9 A=1"},
		{few + ", {name: B, weight: 2}]}, score: {enabled: [{name: B}]}", framework.AtScore, "B=1"},
		// Disabled at one point, it stays at the others.
		{few + ", {name: A}, {name: B}]}, score: {disabled: [{name: A}]}", framework.AtScore, "B=1"},
		{few + ", {name: A}, {name: B}]}, score: {disabled: [{name: A}]}", framework.AtFilter, "A B"},
		{few + ", {name: A}, {name: B}]}, score: {disabled: [{name: '*'}]}", framework.AtScore, ""},
		{few + ", {name: A}, {name: B}]}, score: {disabled: [{name: '*'}], enabled: [{name: B, weight: 5}]}",
			framework.AtScore, "B=5"},
		// Disabled and enabled again, it goes to the end.
		{few + ", {name: A}, {name: B}]}, filter: {disabled: [{name: A}], enabled: [{name: A}]}", framework.AtFilter, "B A"},
		// Enabled anew in multiPoint, a default keeps its place.
		{"multiPoint: {enabled: [{name: A}, {name: TaintToleration, weight: 8}], disabled: [{name: NodeName}, {name: " +
			"PodTopologySpread}]}", framework.AtFilter,
			"NodeUnschedulable TaintToleration NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions VolumeBinding " +
				"VolumeZone InterPodAffinity A"},
		{"multiPoint: {enabled: [{name: NodeUnschedulable}], disabled: [{name: '*'}]}, queueSort: {enabled: [{name: " +
			"PrioritySort}]}, " +
			"bind: {enabled: [{name: DefaultBinder}]}",
			framework.AtFilter, "NodeUnschedulable"},
	} {
		got := plan(t, "profiles: [{plugins: {"+tc.plugins+"}}]", tc.point)
		if got != tc.want {
			t.Errorf("%s\n%s: %q, want %q", tc.plugins, tc.point, got, tc.want)
		}
	}
}

// spec: SCHED-1, SCHED-5
func TestDefaults(t *testing.T) {
	scores := plan(t, "", framework.AtScore)
	const want = "TaintToleration=3 NodeAffinity=2 NodeResourcesFit=1 PodTopologySpread=2 InterPodAffinity=2 " +
		"NodeResourcesBalancedAllocation=1 ImageLocality=1"
	if scores != want {
		t.Errorf("scores %s", scores)
	}
	c, err := Parse("f", []byte(head), nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.Profiles(client.New(nil))
	if err != nil || len(list) != 1 || list[0].Name() != "default-scheduler" || c.InitialBackoff.Seconds() != 1 ||
		c.MaxBackoff.Seconds() != 10 {
		t.Errorf("%v, %v, %v, %v", list, c.InitialBackoff, c.MaxBackoff, err)
	}
}

// spec: PREEMPT-3
func TestDisablePreemption(t *testing.T) {
	if got := plan(t, "disablePreemption: false", framework.AtPostFilter); got != "DefaultPreemption" {
		t.Errorf("PostFilter: %s", got)
	}
	if got := plan(t, "disablePreemption: true", framework.AtPostFilter); got != "" {
		t.Errorf("PostFilter: %s", got)
	}
}

// What kube-scheduler writes with --write-config-to has the defaults in it, and null and 0 for what was not set.
func TestWrittenByTools(t *testing.T) {
	const text = `{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"KubeSchedulerConfiguration","parallelism":16,
	"clientConnection":{"acceptContentTypes":"","burst":100,"contentType":"application/vnd.kubernetes.protobuf","kubeconfig":"","qps":50},
	"leaderElection":{"leaderElect":false,"leaseDuration":"15s","renewDeadline":"10s","resourceLock":"leases","resourceName":"kube-scheduler",
		"resourceNamespace":"kube-system","retryPeriod":"2s"},
	"enableContentionProfiling":true,"enableProfiling":true,"delayCacheUntilActive":false,"extenders":null,
	"percentageOfNodesToScore":0,"podInitialBackoffSeconds":2,"podMaxBackoffSeconds":7,
	"profiles":[{"schedulerName":"x","pluginConfig":[
		{"name":"DefaultPreemption","args":{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"DefaultPreemptionArgs",
			"minCandidateNodesAbsolute":100,"minCandidateNodesPercentage":10}},
		{"name":"NodeAffinity","args":{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"NodeAffinityArgs"}},
		{"name":"NodeResourcesBalancedAllocation","args":{"kind":"NodeResourcesBalancedAllocationArgs","resources":[{"name":"cpu","weight":1},{"name":"memory"}]}},
		{"name":"NodeResourcesFit","args":{"scoringStrategy":{"type":"LeastAllocated","resources":[{"name":"cpu","weight":1},{"name":"memory"}]}}},
		{"name":"PodTopologySpread","args":{"defaultingType":"System"}}],
	"plugins":{"bind":{},"filter":{},"placementScore":{},"multiPoint":{"disabled":[{"name":"NodePorts","weight":0}],
		"enabled":[{"name":"PrioritySort","weight":0},{"name":"TaintToleration","weight":3}]}}}]}`
	c, err := Parse("f.json", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.InitialBackoff.Seconds() != 2 || c.MaxBackoff.Seconds() != 7 {
		t.Errorf("back-off %v to %v", c.InitialBackoff, c.MaxBackoff)
	}
}

// spec: SCHED-1
func TestOwnPlugins(t *testing.T) {
	const enable = "profiles:\n- plugins: {multiPoint: {enabled: [{name: A}]}}\n"
	for args, want := range map[string]int{"": 7, "limit: 3": 3, "kind: AArgs, apiVersion: example.com/v2, limit: 4": 4} {
		c, err := Parse("f", []byte(head+enable+"  pluginConfig: [{name: A, args: {"+args+"}}]\n"), owns())
		if err != nil {
			t.Fatal(err)
		}
		b := c.builder(0, client.New(nil))
		b.build()
		if got := b.plugins["A"].(*own).Limit; got != want {
			t.Errorf("%s: limit %d", args, got)
		}
	}
	_, err := Parse("f", []byte(
		head+enable+"  pluginConfig:\n  - name: A\n    args:\n      limit: -1\n  - name: B\n    args: {limit: x}"), owns())
	const want = "f:6: profiles[0].pluginConfig[0]: and I do not like it\n" +
		"f:8: profiles[0].pluginConfig[0].args.limit: -1 is negative\n" +
		"f:10: profiles[0].pluginConfig[1].args.limit: is the string \"x\", expected a whole number of at most 64 bits"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	for _, r := range []Registry{{"NodePorts": newOwn("NodePorts")}, {"*": newOwn("*")}, {"A": nil}} {
		if _, err := Parse("f", []byte(head), r); err == nil {
			t.Errorf("accepted %v", r)
		}
	}
	odd := Registry{"A": newOwn("B"), "B": func(*Args, *client.Client) (framework.Plugin, error) { return nil, nil }}
	_, err = Parse("f", []byte(head+"profiles: [{plugins: {filter: {enabled: [{name: A}, {name: B}]}}}]"), odd)
	if err == nil || strings.Count(err.Error(), "made something else") != 2 {
		t.Errorf("%v", err)
	}
}

// All profiles share the plugin that sorts the queue, with its arguments.
func TestOneQueueSort(t *testing.T) {
	sorter := func(name string) Factory {
		return func(args *Args, _ *client.Client) (framework.Plugin, error) {
			var a struct {
				Limit int `json:"limit"`
			}
			return sorts{name}, args.Decode(&a)
		}
	}
	r := Registry{"S": sorter("S")}
	const queue = "plugins: {queueSort: {disabled: [{name: PrioritySort}], enabled: [{name: S}]}}"
	for _, tc := range []struct{ first, second, want string }{
		{"", "", ""},
		{queue, queue, ""},
		{queue + ", pluginConfig: [{name: S, args: {limit: 1}}]", queue + ", pluginConfig: [{name: S, args: {limit: 1}}]",
			""},
		{queue + ", pluginConfig: [{name: S, args: {limit: 1}}]", queue + ", pluginConfig: [{name: S, args: {limit: 2}}]",
			"is S, expected S with the same args"},
		{queue, queue + ", pluginConfig: [{name: S, args: {limit: 2}}]", "is S, expected S with the same args"},
		{queue, "plugins: {}", "profiles[1].plugins.queueSort: is PrioritySort, expected S"},
		{"plugins: {queueSort: {enabled: [{name: S}]}}", "plugins: {}", "both sort the queue"},
	} {
		text := head + "profiles: [{schedulerName: a, " + tc.first + "}, {schedulerName: b, " + tc.second + "}]"
		_, err := Parse("f", []byte(text), r)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s | %s: %v", tc.first, tc.second, err)
		}
	}
}

type sorts struct{ name string }

func (s sorts) Name() string                      { return s.name }
func (sorts) Less(a, b *framework.QueuedPod) bool { return a.UID < b.UID }
