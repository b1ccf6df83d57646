package naive

import (
	"math"
	"strings"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
)

// amounts are amounts by resource: cpu in thousandths, all others in their unit.
type amounts map[string]int64

func parse(list map[string]*metav1.Quantity) amounts {
	a := amounts{}
	for name, text := range list {
		q, err := value.Quantity(text)
		if err != nil {
			panic(err)
		}
		if a[name] = q.Value(); name == "cpu" {
			a[name] = q.MilliValue()
		}
	}
	return a
}

func (a amounts) add(b amounts) {
	for name, n := range b {
		a[name] += n
	}
}

// requests is what a pod needs at once (spec: INIT-3). With counted, a container that says nothing about cpu or memory
// counts as 100m and 200Mi, as it does where nodes are compared by what is left, unless the pod as a whole requests
// something and that resource is requested somewhere.
func requests(pod *corev1.Pod, counted bool) amounts {
	said := amounts{}
	if counted && len(pod.Spec.Resources.GetRequests()) > 0 {
		said = requests(pod, false)
	}
	assume := func(a amounts, name string, n int64) {
		_, here := a[name]
		if _, anywhere := said[name]; counted && !here && !anywhere {
			a[name] = n
		}
	}
	of := func(c *corev1.Container) amounts {
		a := parse(c.Resources.GetRequests())
		assume(a, "cpu", 100)
		assume(a, "memory", 200<<20)
		return a
	}
	total, sidecars, peak := amounts{}, amounts{}, amounts{}
	for _, c := range pod.Spec.InitContainers {
		now := amounts{}
		now.add(sidecars)
		now.add(of(c))
		if c.GetRestartPolicy() == "Always" {
			sidecars = now
		}
		for name, n := range now {
			peak[name] = max(peak[name], n)
		}
	}
	for _, c := range pod.Spec.Containers {
		total.add(of(c))
	}
	total.add(sidecars)
	for name, n := range peak {
		total[name] = max(total[name], n)
	}
	for name, n := range parse(pod.Spec.Resources.GetRequests()) {
		total[name] = n // what is set for the whole pod replaces what its containers say
	}
	total.add(parse(pod.Spec.Overhead))
	return total
}

// used is what the pods of a node need in all.
func (c *Cluster) used(node *corev1.Node, counted bool) amounts {
	sum := amounts{}
	for _, p := range c.on(node) {
		sum.add(requests(p, counted))
	}
	return sum
}

func fit(c *Cluster, pod *corev1.Pod, node *corev1.Node) (hopeless bool, reasons []string) {
	have, used := parse(node.Status.Allocatable), c.used(node, false)
	if int64(len(c.on(node))+1) > have["pods"] {
		reasons = append(reasons, "Too many pods")
	}
	for name, n := range requests(pod, false) {
		if n > 0 && n > have[name]-used[name] {
			reasons = append(reasons, "Insufficient "+name)
			hopeless = hopeless || n > have[name]
		}
	}
	return hopeless, reasons
}

// leastAllocated is the mean of the per cents of cpu and memory that would be left, of those that the node has.
func leastAllocated(c *Cluster, pod *corev1.Pod, fit []*corev1.Node) []int64 {
	scores := make([]int64, len(fit))
	for i, node := range fit {
		have, used := parse(node.Status.Allocatable), c.used(node, true)
		used.add(requests(pod, true))
		sum, weights := int64(0), int64(0)
		for _, name := range []string{"cpu", "memory"} {
			if have[name] == 0 {
				continue
			}
			weights++
			if used[name] <= have[name] {
				sum += (have[name] - used[name]) * 100 / have[name]
			}
		}
		if weights > 0 {
			scores[i] = sum / weights
		}
	}
	return scores
}

// balanced says how far the pod makes the shares of cpu and memory in use more equal, 75 being no difference. There is
// no opinion on pods that request neither.
func balanced(c *Cluster, pod *corev1.Pod, fit []*corev1.Node) []int64 {
	need := requests(pod, false)
	if need["cpu"] == 0 && need["memory"] == 0 {
		return nil
	}
	scores := make([]int64, len(fit))
	for i, node := range fit {
		have, used := parse(node.Status.Allocatable), c.used(node, false)
		before := balance(used, have)
		used.add(need)
		scores[i] = 50 + (50+balance(used, have)-before)/2
	}
	return scores
}

// balance is 100 * (1 - the standard deviation of the two shares); 100 when the node has one of them only.
func balance(used, have amounts) int64 {
	if have["cpu"] == 0 || have["memory"] == 0 {
		return 100
	}
	cpu := min(1, float64(used["cpu"])/float64(have["cpu"]))
	memory := min(1, float64(used["memory"])/float64(have["memory"]))
	return int64((1 - math.Abs(cpu-memory)/2) * 100)
}

// imageScore prefers nodes that have the images of the pod's containers and image volumes, by their sizes; an image
// counts for the share of all nodes that have it, lest all pods go to the one node that has it.
func imageScore(c *Cluster, pod *corev1.Pod, fit []*corev1.Node) []int64 {
	const least = 23 << 20
	most := int64(0)
	var wanted []string
	for _, list := range [][]*corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for _, container := range list {
			wanted = append(wanted, tagged(container.Image))
			most += 1000 << 20
		}
	}
	for _, v := range pod.Spec.Volumes {
		if image := v.GetVolumeSource().GetImage(); image != nil {
			wanted = append(wanted, tagged(image.Reference))
		}
	}
	scores := make([]int64, len(fit))
	for i, node := range fit {
		sum := int64(0)
		for _, name := range wanted {
			if size, ok := imageSize(node, name); ok {
				sum += int64(float64(size) * c.shareWith(name))
			}
		}
		scores[i] = 100 * (min(max(sum, least), most) - least) / (most - least)
	}
	return scores
}

// shareWith is the share of the nodes that have an image.
func (c *Cluster) shareWith(image string) float64 {
	have := 0
	for _, node := range c.nodes {
		if _, ok := imageSize(node, image); ok {
			have++
		}
	}
	return float64(have) / float64(len(c.nodes))
}

func imageSize(node *corev1.Node, name string) (int64, bool) {
	for _, image := range node.Status.Images {
		for _, n := range image.Names {
			if n == name {
				return image.SizeBytes, true
			}
		}
	}
	return 0, false
}

// tagged adds the tag that an image without one means. The colon of a registry's port is not that of a tag.
func tagged(image string) string {
	last := image[strings.LastIndex(image, "/")+1:]
	if strings.Contains(last, ":") {
		return image
	}
	return image + ":latest"
}
