package configfile

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
	"monoplane.dev/scheduler/framework"
	"monoplane.dev/scheduler/plugins/podtopologyspread"
)

// The constraints by default are those of the configuration, and System's without one.
//
// spec: SPREAD-4
func TestSpreadDefaults(t *testing.T) {
	const hard = "defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: " +
		"1, nodeTaintsPolicy: Honor}]"
	s := framework.NewSnapshot()
	s.Set("a", framework.NewNodeInfo("a", &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "a"}}))
	s.SetGroups([]*framework.Group{{Namespace: "ns", Service: true,
		Selector: labels.SelectorFromSet(labels.Set{"app": "web"})}})
	p := framework.NewPodInfo(&corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "ns",
		Labels: map[string]string{"app": "web"}}})
	for args, want := range map[string]struct{ filters, scores bool }{
		"":                              {false, true},
		"defaultingType: System":        {false, true},
		"defaultingType: List":          {false, false},
		"defaultingType: List, " + hard: {true, false},
		"defaultConstraints: []":        {false, true},
		"kind: PodTopologySpreadArgs, " + hard + ", defaultingType: List": {true, false},
	} {
		c, err := Parse("f", []byte(head+"profiles: [{pluginConfig: [{name: PodTopologySpread, args: {"+args+"}}]}]"), nil)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		b := c.builder(0, client.New(nil))
		b.build()
		plugin := b.plugins[podtopologyspread.Name].(*podtopologyspread.Plugin)
		state := framework.NewCycleState(s)
		_, status := plugin.PreFilter(state, p, s)
		if got := status.Code() != framework.Skip; got != want.filters {
			t.Errorf("%s: filters: %v", args, got)
		}
		if got := plugin.PreScore(state, p, s.Nodes()).Code() != framework.Skip; got != want.scores {
			t.Errorf("%s: scores: %v", args, got)
		}
	}
}
