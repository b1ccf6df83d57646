//go:build rootonly

package e2e_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod that fills the node's disk, or takes its last inodes, is evicted with the reason; its neighbour goes on, the
// node says so while it lasts, and takes pods again afterwards. spec: QOS-2
func TestRootBadDisk(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, options, threshold, script string }{
		{"full", "", "nodefs.available<128Mi", `head -c 280000000 /dev/zero >/v/x; exec sleep 3600`},
		{"no inodes", ",nr_inodes=6000", "nodefs.inodesFree<2000",
			`i=0; while [ $i -lt 4500 ]; do : >/v/$i; i=$((i+1)); done; exec sleep 3600`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := startIn(t, smallDisk(t, 384, tc.options)+"/data", "--eviction-hard", tc.threshold,
				"--eviction-pressure-transition-period", "10s")
			p := c.pods(t, "default")
			before := p.run(t, sleeper("neighbour"))
			greedy := podOf("greedy", tc.script)
			greedy.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			greedy.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
			p.create(t, greedy)
			eventually(t, "the node is under pressure", func() (bool, string) { return c.pressed(t, corev1.ConditionTrue) })
			got := p.untilPhase(t, "greedy", corev1.PodFailed).Status
			if got.Reason != "Evicted" || !strings.HasPrefix(got.Message, "The node was low on resource: ") {
				t.Errorf("its status: %s: %s", got.Reason, got.Message)
			}
			reasons := map[string]bool{}
			eventually(t, "events", func() (bool, string) {
				list, err := c.client(t).CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
				if err != nil {
					return false, err.Error()
				}
				for _, e := range list.Items {
					reasons[e.InvolvedObject.Kind+" "+e.Reason] = true
				}
				return reasons["Pod Evicted"] && reasons["Node EvictionThresholdMet"], ""
			})
			eventually(t, "no pressure", func() (bool, string) { return c.pressed(t, corev1.ConditionFalse) })
			p.run(t, sleeper("late"))
			now, err := p.Get(t.Context(), "neighbour", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if was, is := before.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]; is.State.Running == nil ||
				is.ContainerID != was.ContainerID || is.RestartCount != 0 {
				t.Errorf("the neighbour: %+v", is)
			}
		})
	}
}

// pressed reports whether the node says of its disk's pressure what is wanted.
func (c *cluster) pressed(t *testing.T, want corev1.ConditionStatus) (is bool, detail string) {
	t.Helper()
	nodes, err := c.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return false, err.Error()
	}
	return slices.ContainsFunc(nodes.Items[0].Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeDiskPressure && c.Status == want
	}), ""
}
