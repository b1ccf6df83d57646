package configfile

import (
	"errors"
	"strings"
	"testing"
)

const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

// Every fault of a file is reported, each with its line, its path, and what was expected. Lines count from that after
// the head.
// spec: SCHED-1, PREEMPT-3
func TestFaults(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"fields": {
			"paralelism: 3\nprofiles:\n- schedulerNam: x\n  schedulerName: 5\n  pluginConfig: {}\npodMaxBackoffSeconds: ten\n",
			`1: paralelism: unknown field; known are apiVersion, kind, parallelism,
3: profiles[0].schedulerNam: unknown field; known are schedulerName, percentageOfNodesToScore, plugins, pluginConfig
4: profiles[0].schedulerName: is 5, expected a string
5: profiles[0].pluginConfig: is an object, expected a list
6: podMaxBackoffSeconds: is the string "ten", expected a whole number of at most 64 bits`,
		},
		"repeated": {
			"parallelism: 1\nparallelism: 2\nprofiles:\n- {schedulerName: a, schedulerName: a}\n",
			"2: parallelism: is there already, on line 3\n4: profiles[0].schedulerName: is there already, on line 6",
		},
		"numbers": {
			"parallelism: 0\npercentageOfNodesToScore: 101\npodInitialBackoffSeconds: 20\nprofiles:\n" +
				"- percentageOfNodesToScore: -1\n",
			`1: parallelism: is 0, expected 1 or more
2: percentageOfNodesToScore: is 101, expected 0 (adaptive) to 100
0: podMaxBackoffSeconds: is 10s, expected no less than podInitialBackoffSeconds, 20s
5: profiles[0].percentageOfNodesToScore: is -1, expected 0 (adaptive) to 100`,
		},
		"more numbers": {
			"parallelism: 3000000000\npodInitialBackoffSeconds: 0\npercentageOfNodesToScore: 1.5\n",
			`1: parallelism: is 3000000000, expected a whole number of at most 32 bits
2: podInitialBackoffSeconds: is 0, expected 1 to 86400
3: percentageOfNodesToScore: is 1.5, expected a whole number`,
		},
		"without effect": {
			"leaderElection:\n  leaderElect: true\n  resourceName: mine\nclientConnection:\n  qps: 51\nextenders:\n" +
				"- urlPrefix: x\n" +
				"profiles:\n- plugins:\n    placementScore: {enabled: [{name: x}]}\n",
			`2: leaderElection.leaderElect: true has no effect here: each cluster has one scheduler; leave it out
3: leaderElection.resourceName: mine has no effect here
5: clientConnection.qps: 51 has no effect here: the scheduler runs inside Monoplane
6: extenders: have no effect here: extend the scheduler with plugins in Go
10: profiles[0].plugins.placementScore: has no effect here: groups of pods`,
		},
		"names": {
			"profiles:\n- schedulerName: a\n- schedulerName: a\n- {}\n- schedulerName: ''\n",
			`3: profiles[1].schedulerName: "a" is the name of profiles[0] already
4: profiles[2].schedulerName: is missing; each of several profiles needs one
5: profiles[3].schedulerName: is empty, expected a name`,
		},
		"plugins": {
			"profiles:\n- plugins:\n    multiPoint:\n      enabled:\n      - name: Nope\n    filter:\n      disabled:\n" +
				"      - name: Noper\n" +
				"    score:\n      enabled:\n      - name: NodeAffinity\n        weight: -1\n      - name: NodeAffinity\n" +
				"      - name: NodePorts\n",
			`5: profiles[0].plugins.multiPoint.enabled[0].name: unknown plugin "Nope"; known are DefaultBinder,
8: profiles[0].plugins.filter.disabled[0].name: unknown plugin "Noper"; known are DefaultBinder,
12: profiles[0].plugins.score.enabled[0].weight: is -1, expected 1 or more
13: profiles[0].plugins.score.enabled[1]: plugin NodeAffinity is enabled twice, first in profiles[0].plugins.score.enabled[0]
14: profiles[0].plugins.score.enabled[2].name: plugin NodePorts does not implement Score; it implements`,
		},
		"weights": {
			"profiles:\n- plugins:\n    multiPoint:\n      enabled: [{name: NodePorts, weight: 2}]\n" +
				"    filter:\n      enabled: [{name: NodeAffinity, weight: 2}]\n    score:\n      disabled:\n" +
				"      - {name: NodeAffinity, weight: 1}\n",
			`4: profiles[0].plugins.multiPoint.enabled[0].weight: has no effect here: plugin NodePorts does not score
6: profiles[0].plugins.filter.enabled[0].weight: has no effect here: weights are for score and multiPoint
9: profiles[0].plugins.score.disabled[0].weight: has no effect here: the plugin is disabled`,
		},
		"nobody left": {
			"profiles:\n- plugins:\n    multiPoint:\n      disabled: [{name: '*'}]\n",
			"2: profiles[0].plugins: no QueueSort plugin is enabled\n2: profiles[0].plugins: no Bind plugin is enabled",
		},
		"halves": {
			"profiles:\n- plugins:\n    preFilter:\n      disabled: [{name: NodeAffinity}]\n    preScore:\n" +
				"      disabled: [{name: NodeAffinity}]\n",
			`2: profiles[0].plugins: plugin NodeAffinity is enabled at Filter but not at PreFilter, which comes before it
2: profiles[0].plugins: plugin NodeAffinity is enabled at Score but not at PreScore, which comes before it`,
		},
		"disablePreemption": {
			"disablePreemption: true\nprofiles:\n- plugins:\n    postFilter:\n      enabled: [{name: DefaultPreemption}]\n",
			"5: profiles[0].plugins.postFilter.enabled[0]: DefaultPreemption is enabled although disablePreemption is true",
		},
		"args": {
			"profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      kind: FitArgs\n" +
				"      apiVersion: kubescheduler.config.k8s.io/v1beta3\n" +
				"  - name: NodeResourcesFit\n  - name: NodePorts\n    args: {a: b}\n  - name: Nope\n" +
				"  - name: DefaultPreemption\n    args:\n      minCandidateNodesPercentage: 101\n" +
				"      minCandidateNodesAbsolute: -1\n" +
				"  - name: NodeAffinity\n    args:\n      addedAffinity:\n" +
				"        requiredDuringSchedulingIgnoredDuringExecution:\n" +
				"          nodeSelectorTerms:\n          - matchExpressions:\n            - key: a\n              operator: Inn\n",
			`5: profiles[0].pluginConfig[0].args.kind: is "FitArgs", expected NodeResourcesFitArgs
6: profiles[0].pluginConfig[0].args.apiVersion: is "kubescheduler.config.k8s.io/v1beta3", expected kubescheduler.config.k8s.io/v1
7: profiles[0].pluginConfig[1].name: plugin NodeResourcesFit is configured twice
9: profiles[0].pluginConfig[2].args: plugin NodePorts takes no arguments
10: profiles[0].pluginConfig[3].name: unknown plugin "Nope"
13: profiles[0].pluginConfig[4].args.minCandidateNodesPercentage: 101 is not within 0..100
14: profiles[0].pluginConfig[4].args.minCandidateNodesAbsolute: -1 is negative
22: profiles[0].pluginConfig[5].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].` +
				`matchExpressions[0].operator: "Inn" is none of In,`,
		},
		"args of volumes": {
			"profiles:\n- pluginConfig:\n  - name: VolumeBinding\n    args:\n      bindTimeoutSeconds: -1\n" +
				"      shape: [{utilization: 0, score: 1}]\n",
			`5: profiles[0].pluginConfig[0].args.bindTimeoutSeconds: -1 is negative
6: profiles[0].pluginConfig[0].args.shape: nodes are not scored by their storage`,
		},
		"args of resources": {
			"profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      scoringStrategy:\n        type: Best\n" +
				"        resources:\n        - name: cpu\n" +
				"          weight: 101\n          wait: 3\n  - name: NodeResourcesBalancedAllocation\n    args:\n" +
				"      resources:\n      - name: cpu\n        weight: 2\n",
			`10: profiles[0].pluginConfig[0].args.scoringStrategy.resources[0].wait: unknown field; known are name, weight
15: profiles[0].pluginConfig[1].args.resources[0].weight: is 2, must be 1`,
		},
		"args of NodeResourcesFit": {
			"profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      scoringStrategy:\n        type: Best\n" +
				"        resources:\n        - name: cpu\n" +
				"          weight: 101\n",
			`6: profiles[0].pluginConfig[0].args.scoringStrategy.type: "Best" is none of LeastAllocated,
9: profiles[0].pluginConfig[0].args.scoringStrategy.resources[0].weight: 101 is not within 1..100`,
		},
		"args of PodTopologySpread": {
			"profiles:\n- pluginConfig:\n  - name: PodTopologySpread\n    args:\n      defaultConstraints:\n" +
				"      - maxSkew: 0\n        topologyKey: a b\n" +
				"        whenUnsatisfiable: Never\n        labelSelector: {}\n",
			`6: profiles[0].pluginConfig[0].args.defaultConstraints[0].maxSkew: 0 is not more than 0
7: profiles[0].pluginConfig[0].args.defaultConstraints[0].topologyKey: "a b" is not the name of a label
8: profiles[0].pluginConfig[0].args.defaultConstraints[0].whenUnsatisfiable: "Never" is neither
9: profiles[0].pluginConfig[0].args.defaultConstraints[0].labelSelector: must not be set
4: profiles[0].pluginConfig[0].args.defaultingType: must be List when there are defaultConstraints`,
		},
		"more args of PodTopologySpread": {
			"profiles:\n- pluginConfig:\n  - name: PodTopologySpread\n    args:\n      defaultingType: List\n" +
				"      defaultConstraints:\n" +
				"      - {maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway, minDomains: 2}\n" +
				"      - {maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, minDomains: 0}\n" +
				"      - {maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway, nodeAffinityPolicy: Honour}\n" +
				"      - {maxSkew: 1, topologyKey: b, whenUnsatisfiable: ScheduleAnyway, nodeTaintsPolicy: ignore}\n" +
				"      - {maxSkew: 1, whenUnsatisfiable: ScheduleAnyway, matchLabelKeys: [x]}\n" +
				"      - {maxSkew: -1, topologyKey: c}\n",
			`7: profiles[0].pluginConfig[0].args.defaultConstraints[0].minDomains: has no effect with ScheduleAnyway
8: profiles[0].pluginConfig[0].args.defaultConstraints[1].minDomains: 0 is not more than 0
9: profiles[0].pluginConfig[0].args.defaultConstraints[2].nodeAffinityPolicy: "Honour" is neither
9: profiles[0].pluginConfig[0].args.defaultConstraints[2]: a, ScheduleAnyway is listed twice
10: profiles[0].pluginConfig[0].args.defaultConstraints[3].nodeTaintsPolicy: "ignore" is neither
11: profiles[0].pluginConfig[0].args.defaultConstraints[4].topologyKey: "" is not the name of a label
11: profiles[0].pluginConfig[0].args.defaultConstraints[4].matchLabelKeys: have no effect
12: profiles[0].pluginConfig[0].args.defaultConstraints[5].maxSkew: -1 is not more than 0
12: profiles[0].pluginConfig[0].args.defaultConstraints[5].whenUnsatisfiable: "" is neither`,
		},
		"fields of PodTopologySpread": {
			"profiles:\n- pluginConfig:\n  - name: PodTopologySpread\n    args:\n      defaultConstraints:\n" +
				"      - maxskew: 1\n      defaultType: List\n",
			`6: profiles[0].pluginConfig[0].args.defaultConstraints[0].maxskew: unknown field; known are
7: profiles[0].pluginConfig[0].args.defaultType: unknown field; known are defaultConstraints, defaultingType`,
		},
		"type of PodTopologySpread": {
			"profiles:\n- pluginConfig:\n  - name: PodTopologySpread\n    args:\n      defaultingType: None\n",
			`5: profiles[0].pluginConfig[0].args.defaultingType: "None" is neither System nor List`,
		},
		"args of InterPodAffinity": {
			"profiles:\n- pluginConfig:\n  - name: InterPodAffinity\n    args:\n      hardPodAffinityWeight: 101\n",
			"5: profiles[0].pluginConfig[0].args.hardPodAffinityWeight: ",
		},
		"two documents": {"---\nkind: Other\n", "1: a second document, expected one KubeSchedulerConfiguration"},
		"an alias": {"leaderElection: &a {}\nclientConnection: *a\n",
			"2: clientConnection: is an alias, which is not accepted"},
		"a hole":   {"profiles:\n-\n", "2: profiles[0]: is empty, expected a value"},
		"not YAML": {"profiles: [\n", "1: is neither YAML nor JSON: did not find expected node content"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("f.yaml", []byte(head+tc.text), nil)
			var faults Faults
			if !errors.As(err, &faults) {
				t.Fatalf("error %v", err)
			}
			want := strings.Split(tc.want, "\n")
			if len(faults) != len(want) {
				t.Fatalf("%d faults, want %d:\n%v", len(faults), len(want), err)
			}
			for _, w := range want {
				if !mentions(faults, w) {
					t.Errorf("no fault %q in\n%v", w, err)
				}
			}
			last := 0
			for _, f := range faults {
				if f.Line < last || f.File != "f.yaml" {
					t.Errorf("out of order or of another file: %v", f)
				}
				last = f.Line
			}
		})
	}
}

// mentions says whether a fault begins with "line: path: text", where lines count from that after the head and 0 is
// the first of all.
func mentions(faults Faults, want string) bool {
	for _, f := range faults {
		f.File, f.Line = "", f.Line-2
		if f.Line < 0 {
			f.Line = 0
		}
		if strings.HasPrefix(strings.TrimPrefix(f.Error(), ":"), want) {
			return true
		}
	}
	return false
}

func TestFaultyHeads(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "f:1: is empty, expected a KubeSchedulerConfiguration",
		"# nothing\n":                      "f:1: is empty, expected a KubeSchedulerConfiguration",
		"- a\n":                            "f:1: is a list, expected a KubeSchedulerConfiguration",
		"kind: KubeSchedulerConfiguration": `f:1: apiVersion: is "", expected kubescheduler.config.k8s.io/v1`,
		"\napiVersion: kubescheduler.config.k8s.io/v1\nkind: Pod": `f:3: kind: is "Pod", expected ` +
			`KubeSchedulerConfiguration`,
		strings.ReplaceAll(head, "/v1",
			"/v1beta3"): `f:1: apiVersion: is "kubescheduler.config.k8s.io/v1beta3", expected ` +
			`kubescheduler.config.k8s.io/v1`,
	} {
		if _, err := Parse("f", []byte(text), nil); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Whatever a file holds, the answer is a configuration or faults, never a panic.
func FuzzParse(f *testing.F) {
	f.Add(head)
	f.Add(head + "profiles: [{schedulerName: a, plugins: {score: {enabled: [{name: NodeAffinity, weight: 3}]}}, " +
		"pluginConfig: [{name: NodeAffinity, args: {}}]}]")
	f.Add(`{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [null, ` +
		`{"x": {1: 2}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("f", []byte(text), nil)
		if (c == nil) == (err == nil) {
			t.Errorf("%v, %v", c, err)
		}
	})
}
