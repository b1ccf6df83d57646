package workloads

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// state is what there is in a namespace, and what there was.
type state struct {
	objects map[string]metav1.Object // by lower-case kind and name
	made    map[string]map[string]bool
	known   map[string]bool // by the same, what no controller has made, and is no pod
	events  []event
	heard   map[string]bool // versions of events
	counts  map[string]counts
}

// event says something about an object.
type event struct{ about, reason string }

func newState() *state {
	return &state{
		objects: map[string]metav1.Object{}, made: map[string]map[string]bool{}, known: map[string]bool{},
		heard: map[string]bool{}, counts: map[string]counts{},
	}
}

// keyOf names an object, as kubectl does.
func keyOf(o metav1.Object) string {
	_, kind, _ := strings.Cut(fmt.Sprintf("%T", o), ".")
	return strings.ToLower(kind) + "/" + o.GetName()
}

// saw notes that an object is so, or is gone.
func (s *state) saw(o metav1.Object, gone bool) {
	if e, ok := o.(*corev1.Event); ok {
		if !gone {
			s.hear(e)
		}
		return
	}
	key := keyOf(o)
	s.count(s.objects[key], -1)
	if gone {
		delete(s.objects, key)
		return
	}
	s.objects[key] = o
	s.count(o, 1)
	owner := metav1.GetControllerOf(o)
	if _, pod := o.(*corev1.Pod); owner == nil && !pod {
		s.known[key] = true
	}
	if owner != nil && owner.Kind == "CronJob" {
		if s.made[owner.Name] == nil {
			s.made[owner.Name] = map[string]bool{}
		}
		s.made[owner.Name][o.GetName()] = true
	}
}

// hear notes an event, each version once.
func (s *state) hear(e *corev1.Event) {
	if version := string(e.UID) + e.ResourceVersion; !s.heard[version] {
		s.heard[version] = true
		s.events = append(s.events, event{strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name, e.Reason})
	}
}

// told returns the events since the last call that are about what the scenario has made. Events and objects come on
// watches of their own, in any order.
func (s *state) told() []string {
	var out []string
	for _, e := range s.events {
		if s.known[e.about] {
			out = append(out, e.about+" "+e.reason)
		}
	}
	s.events = nil
	slices.Sort(out)
	return slices.Compact(out)
}

// of returns the objects of a type, by name.
func of[T metav1.Object](s *state) []T {
	var out []T
	for _, o := range s.objects {
		if t, ok := o.(T); ok {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out
}

// lines says what there is to see, by what it is about.
func (s *state) lines() map[string]string {
	out := make(map[string]string)
	pods := make(map[string][]*corev1.Pod) // by the uid of who controls them
	for _, p := range of[*corev1.Pod](s) {
		if owner := metav1.GetControllerOf(p); owner != nil {
			pods[string(owner.UID)] = append(pods[string(owner.UID)], p)
		}
	}
	for key, o := range s.objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			out[key] = s.deployment(o)
		case *appsv1.ReplicaSet:
			if metav1.GetControllerOf(o) == nil {
				out[key] = fmt.Sprintf("%d/%d", o.Status.ReadyReplicas, *o.Spec.Replicas)
				for _, c := range o.Status.Conditions {
					out[key] += trouble(string(c.Type), c.Status, c.Reason)
				}
			}
		case *corev1.ReplicationController:
			out[key] = fmt.Sprintf("%d/%d", o.Status.ReadyReplicas, *o.Spec.Replicas)
		case *appsv1.StatefulSet:
			out[key] = fmt.Sprintf("available %d/%d: ", o.Status.AvailableReplicas, *o.Spec.Replicas) +
				s.each(pods[string(o.UID)], func(p *corev1.Pod) string { return strings.TrimPrefix(p.Name, o.Name+"-") })
		case *appsv1.DaemonSet:
			out[key] = fmt.Sprintf("available %d/%d: ", o.Status.NumberAvailable, o.Status.DesiredNumberScheduled) +
				s.each(pods[string(o.UID)], func(p *corev1.Pod) string { return cmp.Or(p.Spec.NodeName, nodeWanted(p)) })
		case *batchv1.Job:
			if metav1.GetControllerOf(o) == nil {
				out[key] = job(o)
			}
		case *batchv1.CronJob:
			out[key] = s.cronJob(o)
		case *autoscalingv2.HorizontalPodAutoscaler:
			out[key] = autoscaler(o)
		case *corev1.PersistentVolumeClaim:
			out["claims"] = ""
		}
	}
	if _, any := out["claims"]; any {
		var names []string
		for _, c := range of[*corev1.PersistentVolumeClaim](s) {
			names = append(names, c.Name)
		}
		out["claims"] = strings.Join(names, " ")
	}
	return out
}

// deployment shows the sets of its revisions.
func (s *state) deployment(d *appsv1.Deployment) string {
	sets := make(map[int]string)
	for _, rs := range of[*appsv1.ReplicaSet](s) {
		if owner := metav1.GetControllerOf(rs); owner == nil || owner.UID != d.UID ||
			*rs.Spec.Replicas == 0 && rs.Status.Replicas == 0 {
			continue
		}
		revision, _ := strconv.Atoi(rs.Annotations["deployment.kubernetes.io/revision"])
		sets[revision] = fmt.Sprintf("r%d %d/%d", revision, rs.Status.ReadyReplicas, *rs.Spec.Replicas)
	}
	var all []string
	for _, revision := range slices.Sorted(maps.Keys(sets)) {
		all = append(all, sets[revision])
	}
	out := fmt.Sprintf("available %d/%d: %s", d.Status.AvailableReplicas, *d.Spec.Replicas, strings.Join(all, ", "))
	for _, c := range d.Status.Conditions {
		out += trouble(string(c.Type), c.Status, c.Reason)
	}
	return out
}

// trouble shows a condition of a workload that stands in its way.
func trouble(kind string, status corev1.ConditionStatus, reason string) string {
	switch {
	case kind == "Progressing" && status != corev1.ConditionTrue,
		kind == "ReplicaFailure" && status == corev1.ConditionTrue:
		return "; " + kind + "=" + string(status) + " " + reason
	default:
		return ""
	}
}

// nodeWanted returns the node for which a daemon's pod is that is not bound yet.
func nodeWanted(p *corev1.Pod) string {
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, f := range term.MatchFields {
				return f.Values[0]
			}
		}
	}
	return "?"
}

// each shows single pods by a name.
func (s *state) each(pods []*corev1.Pod, name func(*corev1.Pod) string) string {
	var all []string
	for _, p := range pods {
		all = append(all, fmt.Sprintf("%s r%d %s", name(p), s.revision(p), stand(p)))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// revision returns the number of a pod's template.
func (s *state) revision(p *corev1.Pod) int64 {
	hash := p.Labels["controller-revision-hash"]
	for _, r := range of[*appsv1.ControllerRevision](s) {
		if owner := metav1.GetControllerOf(r); owner != nil && owner.UID == metav1.GetControllerOf(p).UID &&
			(r.Name == hash || strings.HasSuffix(r.Name, "-"+hash)) {
			return r.Revision
		}
	}
	return 0
}

// stand is how a pod stands, in one word.
func stand(p *corev1.Pod) string {
	switch {
	case p.DeletionTimestamp != nil:
		return "ending"
	case p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
		return strings.ToLower(string(p.Status.Phase))
	case ready(p):
		return "ready"
	case p.Spec.NodeName == "":
		return "pending"
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return w.Reason
		}
	}
	return "starting"
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func job(j *batchv1.Job) string {
	out := fmt.Sprintf("active %d, succeeded %d, failed %d", j.Status.Active, j.Status.Succeeded, j.Status.Failed)
	if j.Status.CompletedIndexes != "" {
		out += ", done " + j.Status.CompletedIndexes
	}
	if j.Status.FailedIndexes != nil && *j.Status.FailedIndexes != "" {
		out += ", given up " + *j.Status.FailedIndexes
	}
	for _, c := range j.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			out += "; " + strings.TrimSpace(string(c.Type)+" "+c.Reason)
		}
	}
	return out
}

func (s *state) cronJob(c *batchv1.CronJob) string {
	out := fmt.Sprintf("made %d, active %d", len(s.made[c.Name]), len(c.Status.Active))
	at := c.Status.LastScheduleTime
	if at == nil {
		return out
	}
	zone := time.UTC
	if c.Spec.TimeZone != nil {
		if z, err := time.LoadLocation(*c.Spec.TimeZone); err == nil {
			zone = z
		}
	}
	return out + ", last " + at.In(zone).Format("Mon 2006-01-02T15:04:05Z07:00")
}

// autoscaler shows what is used, and why there are not as many replicas as that asks for.
func autoscaler(h *autoscalingv2.HorizontalPodAutoscaler) string {
	out := fmt.Sprintf("%d, wants %d", h.Status.CurrentReplicas, h.Status.DesiredReplicas)
	for _, m := range h.Status.CurrentMetrics {
		if m.Resource == nil {
			continue
		}
		switch used := m.Resource.Current; {
		case used.AverageUtilization != nil:
			out += fmt.Sprintf(", uses %s %d%%", m.Resource.Name, *used.AverageUtilization)
		case used.AverageValue != nil:
			out += fmt.Sprintf(", uses %s %s each", m.Resource.Name, used.AverageValue)
		}
	}
	var why []string
	for _, c := range h.Status.Conditions {
		limited := c.Type == autoscalingv2.ScalingLimited
		if limited == (c.Status == corev1.ConditionTrue) || c.Reason == "ScaleDownStabilized" ||
			c.Reason == "ScaleUpStabilized" {
			why = append(why, c.Reason)
		}
	}
	if len(why) > 0 {
		out += ": " + strings.Join(why, " ")
	}
	return out
}

// counts are how many pods of an app there are, and how many are ready, without those on their way out.
type counts struct{ pods, ready int }

// count adds a pod n times.
func (s *state) count(o metav1.Object, n int) {
	p, ok := o.(*corev1.Pod)
	if !ok || p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return
	}
	c := s.counts[p.Labels["app"]]
	c.pods += n
	if ready(p) {
		c.ready += n
	}
	s.counts[p.Labels["app"]] = c
}

// breaks returns which bounds do not hold, of those whose minimum has been reached before.
func (s *state) breaks(bounds []bound, reached map[string]bool) []string {
	var out []string
	for _, b := range bounds {
		n := s.counts[b.app].pods
		if b.ready {
			n = s.counts[b.app].ready
		}
		reached[b.text] = reached[b.text] || n >= b.min
		if reached[b.text] && n < b.min || b.max > 0 && n > b.max {
			out = append(out, fmt.Sprintf("always %s: there were %d", b.text, n))
		}
	}
	return out
}
