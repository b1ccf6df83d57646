package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// A pod of a high class takes the place of one without, which ends gracefully. One that must not preempt waits until
// there is room.
//
// spec: PRIO-3, PREEMPT-1, PREEMPT-2, PREEMPT-4
func TestPreemption(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--runtime", "fake")
	k := c.kubectl(t, "default")
	room := resource.MustParse(strings.TrimSpace(k.ok(t, "get nodes -o jsonpath={.items[0].status.allocatable.cpu}")))
	node := strings.TrimSpace(k.ok(t, "get nodes -o jsonpath={.items[0].metadata.name}"))
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  priorityClassName: %s\n" +
		"  containers: [{name: c, image: nginx, resources: {requests: {cpu: %dm}}}]\n"
	apply := func(name, class string) step {
		return step{line: "apply -f -", stdin: fmt.Sprintf(pod, name, class, room.MilliValue()*6/10),
			want: []string{`^pod/` + name + ` created$`}}
	}
	k.tour(t, []step{
		{line: "create priorityclass high --value=1000", want: []string{`created$`}},
		{line: "create priorityclass patient --value=500 --preemption-policy=Never", want: []string{`created$`}},
		apply("low", `""`),
		{line: "wait --for=condition=Ready pod/low --timeout=2m", want: []string{`^pod/low condition met$`}},
		apply("patient", "patient"),
	})
	k.until(t, "describe pod patient", `preemption: not eligible due to preemptionPolicy=Never\.`)
	k.tour(t, []step{apply("high", "high")})
	uid := strings.TrimSpace(k.ok(t, "get pod high -o jsonpath={.metadata.uid}"))
	k.until(t, "get events --field-selector involvedObject.name=low,reason=Preempted",
		`Preempted by pod `+uid+` on node `+node)
	k.tour(t, []step{{line: "wait --for=delete pod/low --timeout=2m"}})
	k.until(t, "get pod high -o wide", `(?m)^high +1/1 +Running .* `+node+` +<none> `)
	k.tour(t, []step{{line: "delete pod high", want: []string{`"high" deleted`}}})
	k.until(t, "get pod patient -o wide", `(?m)^patient +1/1 +Running .* `+node+` +<none> `)
}
