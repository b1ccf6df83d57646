package e2e_test

import (
	"strings"
	"testing"
)

// Its own cluster, because a global default is everybody's.
// spec: PRIO-1, PRIO-2, PRIO-4, CLI-2, CLI-3
func TestPriorityClasses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--runtime", "fake")
	k := c.kubectl(t, "default")
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME}\nspec:\n  priorityClassName: CLASS\n" +
		"  containers: [{name: c, image: nginx}]\n"
	classed := func(name, class string) string { return strings.NewReplacer("NAME", name, "CLASS", class).Replace(pod) }
	const show = "-o 'jsonpath={.spec.priorityClassName} {.spec.priority} {.spec.preemptionPolicy}'"
	k.tour(t, []step{
		{line: "get priorityclasses", want: []string{
			`^NAME +VALUE +GLOBAL-DEFAULT +AGE +PREEMPTIONPOLICY$`,
			`^system-cluster-critical +2000000000 +false +[\dms]+ +PreemptLowerPriority$`,
			`^system-node-critical +2000001000 +false +[\dms]+ +PreemptLowerPriority$`,
		}},
		{line: "api-resources --api-group=scheduling.k8s.io",
			want: []string{`^priorityclasses +pc +scheduling\.k8s\.io/v1 +false +PriorityClass$`}},
		{line: "explain priorityclass.value", want: []string{`^FIELD: value <integer>`,
			`Priority of the pods of the class`}},
		{line: "create priorityclass high --value=1000 --description=important --preemption-policy=Never", want: []string{
			`^priorityclass\.scheduling\.k8s\.io/high created$`,
		}},
		{line: "get pc high", want: []string{`^high +1000 +false +[\dms]+ +Never$`}},
		{line: "describe pc high", want: []string{
			`^Name: +high$`, `^Value: +1000$`, `^GlobalDefault: +false$`, `^PreemptionPolicy: +Never$`,
			`^Description: +important$`,
		}},
		{line: "get pc --field-selector metadata.name=high -o name",
			want: []string{`^priorityclass\.scheduling\.k8s\.io/high$`}},
		{line: "create priorityclass higher --value=1000000001", code: 1, want: []string{
			`value: Forbidden: maximum allowed value of a user defined priority is 1000000000`,
		}},
		{line: `patch pc high --type=merge -p '{"value":5}'`, code: 1,
			want: []string{`value: Forbidden: may not be changed in an update\.`}},
		{line: `patch pc high --type=merge -p '{"description":"vital"}'`,
			want: []string{`^priorityclass\.scheduling\.k8s\.io/high patched$`}},

		{line: "apply -f -", stdin: classed("urgent", "high"), want: []string{`^pod/urgent created$`}},
		{line: "apply -f -", stdin: classed("urgent", "high"), want: []string{`^pod/urgent unchanged$`}},
		{line: "get pod urgent " + show, want: []string{`^high 1000 Never$`}},
		{line: "describe pod urgent", want: []string{`^Priority: +1000$`, `^Priority Class Name: +high$`}},
		{line: "apply -f -", stdin: classed("lost", "nope"), code: 1, want: []string{
			`pods "lost" is forbidden: no PriorityClass with name nope was found`,
		}},
		{line: "run plain --image=nginx", want: []string{`^pod/plain created$`}},
		{line: "get pod plain " + show, want: []string{`^ 0 PreemptLowerPriority$`}},

		{line: "create priorityclass usual --value=50 --global-default", want: []string{`created$`}},
		{line: "create priorityclass other --value=60 --global-default", code: 1, want: []string{
			`^error: failed to create priorityclass: priorityclasses\.scheduling\.k8s\.io "other" is forbidden: ` +
				`PriorityClass usual is already marked as default\. Only one default can exist$`,
		}},
		{line: "run ordinary --image=nginx", want: []string{`^pod/ordinary created$`}},
		{line: "get pod ordinary " + show, want: []string{`^usual 50 PreemptLowerPriority$`}},
		{line: "delete pc system-node-critical", code: 1, want: []string{
			`^Error from server \(Forbidden\): priorityclasses\.scheduling\.k8s\.io "system-node-critical" is forbidden: ` +
				`this is a system priority class and cannot be deleted$`,
		}},
		{line: "delete --raw /apis/scheduling.k8s.io/v1/priorityclasses", code: 1, want: []string{`cannot be deleted$`}},
		{line: "delete pc usual high", want: []string{`"usual" deleted`, `"high" deleted`}},
		{line: "get pod ordinary " + show, want: []string{`^usual 50 PreemptLowerPriority$`}},
		{line: "label pod urgent a=b", want: []string{`^pod/urgent labeled$`}},
		{line: "get pod urgent " + show, want: []string{`^high 1000 Never$`}},
	})
}
