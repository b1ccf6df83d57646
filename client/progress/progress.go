// Package progress says why a workload does not get on: what its status says, what was refused in its name, which
// budgets hold its pods, and its pods by what each of them waits for. It is what `monoplane why deployment/web` shows.
//
// A workload is whatever owns pods, at first or at second hand: the package knows no kind, and goes down by the owner
// references. It reads one namespace, with the rights of who asks, and changes nothing; what it says holds for the
// moment at which it was read.
//
//	report, err := progress.Of(ctx, api, "default", "deploy", "web")
//	fmt.Print(report)
package progress

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	policyv1 "monoplane.dev/api/policy/v1"
	schedulingv1 "monoplane.dev/api/scheduling/v1"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
	"monoplane.dev/api/services"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
	"monoplane.dev/client/generic"
	"monoplane.dev/object"
	"monoplane.dev/object/service"
)

// Report says why a workload does not get on.
type Report struct {
	// Name is that of the workload, such as "deployment.apps/web".
	Name string `json:"name"`
	// Pods is how many pods it has, Ready how many of them are ready. Wanted is how many it should have; absent for
	// workloads that have no such number, such as Jobs.
	Pods   int    `json:"pods"`
	Ready  int    `json:"ready"`
	Wanted *int32 `json:"wanted,omitempty"`
	// Holds are what holds it as a whole, a sentence each: pauses, conditions, what was refused, budgets.
	Holds []string `json:"holds,omitempty"`
	// Groups are its pods that are not ready, by what they wait for.
	Groups []Group `json:"groups,omitempty"`
}

// Group are pods that wait for the same.
type Group struct {
	// State is one word, such as "Unschedulable" or "CrashLoopBackOff".
	State string `json:"state"`
	// Why says more.
	Why string `json:"why,omitempty"`
	// Details are what there is to say of each node, a sentence each.
	Details []string `json:"details,omitempty"`
	// Pods are their names.
	Pods []string `json:"pods"`
}

// maxReviews is how many pods the scheduler is asked about. It waits for no more than that at a time, and pods of a
// workload are mostly alike.
const maxReviews = 8

// Of reports on an object of a kind, which is named as kubectl does: "deployment", "deploy", "deployments.apps".
// Errors: NotFound for the object; BadRequest for a kind that is not served; what the server says.
func Of(ctx context.Context, api *client.Client, namespace, kind, name string) (*Report, error) {
	s, err := find(kind)
	if err != nil {
		return nil, err
	}
	f, err := gather(ctx, api, namespace, s, name)
	if err != nil {
		return nil, err
	}
	f.now = time.Now()
	for _, p := range f.pods {
		if f.state(p).State != unschedulable || len(f.reviews) == maxReviews {
			continue
		}
		review, err := api.PlacementReviews.Create(ctx, &schedulingv1rpc.CreatePlacementReviewRequest{
			Namespace: namespace, Object: &schedulingv1.PlacementReview{
				Metadata: &metav1.ObjectMeta{Namespace: namespace},
				Spec:     &schedulingv1.PlacementReviewSpec{PodName: p.GetMetadata().GetName()},
			},
		})
		if err != nil {
			continue // the scheduler is busy, or the pod is gone; its condition says enough
		}
		f.reviews[p.GetMetadata().GetUid()] = review.GetStatus()
	}
	return f.report(), nil
}

// find returns the service of a kind by one of its names.
func find(name string) (*service.Service, error) {
	word, group, _ := strings.Cut(strings.ToLower(name), ".")
	for _, s := range services.All() {
		k := s.Kind
		if s.Stores() && k.Namespaced && (group == "" || group == k.Group) && (word == k.Plural || word == k.Singular ||
			word == strings.ToLower(k.Kind) || slices.Contains(k.ShortNames, word)) {
			return s, nil
		}
	}
	return nil, apierrors.New(apierrors.BadRequest, "%q is no kind of objects that own pods", name)
}

// facts are what is read of a workload.
type facts struct {
	now time.Time
	// root is the workload, owned are what it owns at first or second hand besides pods.
	root   object.Object
	owned  []object.Object
	pods   []*corev1.Pod
	events map[string][]*corev1.Event // by the uid of what they are about
	// budgets are those of the namespace.
	budgets []*policyv1.PodDisruptionBudget
	// nodes are those of the pods, by name.
	nodes   map[string]*corev1.Node
	reviews map[string]*schedulingv1.PlacementReviewStatus // by the uid of the pod
}

// gather reads a workload and what it owns. Only kinds that have a status are looked for: what holds data owns
// nothing.
func gather(
	ctx context.Context, api *client.Client, namespace string, s *service.Service, name string,
) (*facts, error) {
	c, err := generic.New(s, api.Conn())
	if err != nil {
		return nil, err
	}
	f := &facts{events: map[string][]*corev1.Event{}, nodes: map[string]*corev1.Node{},
		reviews: map[string]*schedulingv1.PlacementReviewStatus{}}
	if f.root, err = c.Get(ctx, namespace, name); err != nil {
		return nil, apierrors.From(err)
	}
	var all []object.Object
	for _, s := range services.All() {
		fields := s.Kind.New().ProtoReflect().Descriptor().Fields()
		if !s.Stores() || s.Kind.View || !s.Kind.Namespaced || fields.ByName("status") == nil {
			continue
		}
		c, err := generic.New(s, api.Conn())
		if err != nil {
			return nil, err
		}
		l, err := c.List(ctx, &metav1.ListRequest{Namespace: namespace})
		if err != nil {
			return nil, fmt.Errorf("list the %s of namespace %s: %w", s.Kind.Resource(), namespace, apierrors.From(err))
		}
		for i := range l.Len() {
			all = append(all, l.At(i))
		}
	}
	f.keep(all)
	events, err := api.Events.List(ctx, &metav1.ListRequest{Namespace: namespace})
	if err != nil {
		return nil, fmt.Errorf("list the events of namespace %s: %w", namespace, apierrors.From(err))
	}
	for _, e := range events.GetItems() {
		uid := e.GetInvolvedObject().GetUid()
		f.events[uid] = append(f.events[uid], e)
	}
	for _, p := range f.pods {
		node := p.GetSpec().GetNodeName()
		if node == "" || p.GetMetadata().GetDeletionTimestamp() == nil || f.nodes[node] != nil {
			continue
		}
		n, err := api.Nodes.Get(ctx, &metav1.GetRequest{Name: node})
		if err != nil && !apierrors.Is(err, apierrors.NotFound) {
			return nil, fmt.Errorf("read node %s: %w", node, apierrors.From(err))
		}
		f.nodes[node] = n
	}
	return f, nil
}

// keep keeps, of all objects of a namespace, those that the workload owns, and the budgets.
func (f *facts) keep(all []object.Object) {
	dependents := map[string][]object.Object{}
	for _, o := range all {
		for _, r := range o.GetMetadata().GetOwnerReferences() {
			dependents[r.GetUid()] = append(dependents[r.GetUid()], o)
		}
		if b, ok := o.(*policyv1.PodDisruptionBudget); ok {
			f.budgets = append(f.budgets, b)
		}
	}
	seen := map[string]bool{f.root.GetMetadata().GetUid(): true}
	for queue := []string{f.root.GetMetadata().GetUid()}; len(queue) > 0; queue = queue[1:] {
		for _, o := range dependents[queue[0]] {
			uid := o.GetMetadata().GetUid()
			if seen[uid] {
				continue
			}
			seen[uid] = true
			queue = append(queue, uid)
			if p, ok := o.(*corev1.Pod); ok {
				f.pods = append(f.pods, p)
			} else {
				f.owned = append(f.owned, o)
			}
		}
	}
}

// nameOf returns the name of an object with its kind, such as "deployment.apps/web".
func nameOf(o object.Object) string {
	k := o.ObjectKind()
	if k.Group == "" {
		return k.Singular + "/" + o.GetMetadata().GetName()
	}
	return k.Singular + "." + k.Group + "/" + o.GetMetadata().GetName()
}

// message returns a part of an object by its name; ok is false when it has none.
func message(m protoreflect.Message, name protoreflect.Name) (part protoreflect.Message, ok bool) {
	field := m.Descriptor().Fields().ByName(name)
	if field == nil || field.Message() == nil || field.IsList() || field.IsMap() || !m.Has(field) {
		return nil, false
	}
	return m.Get(field).Message(), true
}

// text returns a text of a message by its name; empty when it has none.
func text(m protoreflect.Message, name protoreflect.Name) string {
	field := m.Descriptor().Fields().ByName(name)
	if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() {
		return ""
	}
	return m.Get(field).String()
}
