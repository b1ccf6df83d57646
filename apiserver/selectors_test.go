package apiserver_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"monoplane.dev/apierrors"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// FuzzSelectors lists pods by any selectors, in any namespace, at once and in pages. What is refused is refused as a
// bad request, and exactly what is too long, cannot be parsed or names a field that pods cannot be selected by. What
// is accepted selects the pods that a look at each of them finds, and printed again it selects the same.
//
// spec: OBJ-6
func FuzzSelectors(f *testing.F) {
	for _, label := range []string{
		"", "app", "!app", "app=web", "app==web", "app = web , tier", "app!=web", "app in (web, db),tier notin (front)",
		"app in ()", "app=", "app in (,web)", "size>2", "size<10", "size>-1", "example.com/app=web", "in in (in)", "notin",
		"app=web,app!=web", "app in (web", "app=web=db", "=", ",", "!", "!!", "app in", "size>x", "Ä=ö", "a/b/c", "\x00",
		"-=1",
		"app=" + strings.Repeat("x", 64), strings.Repeat("a,", 5000) + "a", strings.Repeat("(", 5000),
		"app in (" + strings.Repeat("web,", 5000) + ")",
	} {
		f.Add("", label, "")
	}
	for _, field := range []string{
		"metadata.name=a", "metadata.name==a", "metadata.name!=a", "metadata.name=", "metadata.name!=",
		"metadata.name=a,metadata.name=b",
		"metadata.namespace=default", "metadata.namespace!=default", "metadata.namespace=", "metadata.namespace=x/a",
		"metadata.name=a,metadata.namespace=default", "spec.nodeName=n1", "spec.nodeName=", "spec.nodeName!=n1",
		"spec.nodeName=n1,spec.nodeName=n2",
		"spec.nodeName!=n1,spec.nodeName=n1", "status.phase=Pending,spec.hostNetwork=false",
		"spec.schedulerName=default-scheduler,",
		",,", "=", "!=", "a", "spec.foo=1", "spec.nodeName", "spec.nodeName=a=b", `spec.nodeName=a\=b`, `spec.nodeName=a\,b`,
		`spec.nodeName=\\`,
		`spec.nodeName=\`, `spec.nodeName=\x`, "spec.nodeName=\xff", "spec.nodeName=n1/", " spec.nodeName=n1",
		"spec.nodeName= n1", "\x00=",
		"spec.nodeName=n1/default/", strings.Repeat("spec.nodeName=n1,", 5000), strings.Repeat(`\`, 5000),
	} {
		f.Add("default", "", field)
		f.Add("", "app", field)
	}
	f.Add("other", "app=web,tier", "spec.nodeName=n1,metadata.name!=b")
	f.Add("nowhere", "app", "metadata.namespace=default")
	f.Add("default/", "", "metadata.name=a")
	c, pods := selectable(f)
	f.Fuzz(func(t *testing.T, namespace, label, field string) {
		got, err := c.list(t, &metav1.ListRequest{Namespace: namespace, LabelSelector: label, FieldSelector: field})
		wanted, ok := parseSelectors(label, field)
		if !ok || max(len(label), len(field)) > 64<<10 {
			if !apierrors.Is(err, apierrors.BadRequest) {
				t.Errorf("selected %v, %v, want BadRequest", got, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, p := range pods {
			if (namespace == "" || namespace == p.Metadata.Namespace) && wanted.selects(p) {
				want = append(want, key(p))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("selected %v, want %v", got, want)
		}
		for name, req := range map[string]*metav1.ListRequest{
			"in pages": {Namespace: namespace, LabelSelector: label, FieldSelector: field, Limit: 2},
			"printed":  {Namespace: namespace, LabelSelector: wanted.label.String(), FieldSelector: wanted.field.String()},
		} {
			if again, err := c.list(t, req); err != nil || !slices.Equal(again, got) {
				t.Errorf("%s, by %q and %q: selected %v, %v, want %v", name, req.LabelSelector, req.FieldSelector, again, err, got)
			}
		}
	})
}

// selectable starts a server with pods that differ in what one selects by, and returns them in the order of lists.
func selectable(f *testing.F) (*cluster, []*corev1.Pod) {
	c := start(f)
	must(c.admin().Namespaces.Create(ctx(f), &corev1rpc.CreateNamespaceRequest{
		Object: &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "other"}}}))(f)
	for _, n := range []string{"n1", "n2"} {
		c.register(n)
	}
	var pods []*corev1.Pod
	for _, namespace := range []string{"default", "other"} {
		for i, set := range []labels.Set{
			nil, {"app": "web"}, {"app": "db", "tier": "front"}, {"app": "", "size": "3"}, {"tier": "back", "size": "x"},
			{"example.com/app": "web", "in": "in", "notin": "", "size": "10"},
		} {
			p := newPod(string(rune('a' + i)))
			p.Metadata.Namespace, p.Metadata.Labels = namespace, set
			p.Spec.HostNetwork = i == 0
			if i == 1 {
				p.Spec.SchedulerName = "mine"
			}
			p = c.createPod(p)
			if i%3 > 0 {
				if err := c.bind(p, "n"+strconv.Itoa(i%3)); err != nil {
					f.Fatal(err)
				}
			}
			pods = append(pods, must(c.admin().Pods.Get(ctx(f),
				&metav1.GetRequest{Namespace: namespace, Name: p.Metadata.Name}))(f))
		}
	}
	return c, pods
}

func key(p *corev1.Pod) string { return p.Metadata.Namespace + "/" + p.Metadata.Name }

// list returns the keys of the pods that a list, with all of its pages, selects.
func (c *cluster) list(t *testing.T, req *metav1.ListRequest) ([]string, error) {
	var keys []string
	for {
		page, err := c.admin().Pods.List(ctx(t), req)
		if err != nil {
			return nil, err
		}
		for _, p := range page.Items {
			keys = append(keys, key(p))
		}
		if req.Continue = page.Metadata.GetContinue(); req.Continue == "" {
			return keys, nil
		}
	}
}

// selectors judges pods as the specification says, one by one, and with nothing of the server's.
type selectors struct {
	label labels.Selector
	field fields.Selector
}

// parseSelectors says whether the selectors are ones for pods.
func parseSelectors(label, field string) (selectors, bool) {
	l, err := labels.Parse(label)
	if err != nil {
		return selectors{}, false
	}
	f, err := fields.ParseSelector(field)
	if err != nil {
		return selectors{}, false
	}
	for _, r := range f.Requirements() {
		if _, ok := fieldOf(&corev1.Pod{}, r.Field); !ok {
			return selectors{}, false
		}
	}
	return selectors{l, f}, true
}

func (s selectors) selects(p *corev1.Pod) bool {
	for _, r := range s.field.Requirements() {
		if v, _ := fieldOf(p, r.Field); (v == r.Value) != (r.Operator != selection.NotEquals) {
			return false
		}
	}
	required, _ := s.label.Requirements()
	for _, r := range required {
		v, has := p.Metadata.Labels[r.Key()]
		if !fits(r, v, has) {
			return false
		}
	}
	return true
}

// fits says whether a label that an object has, or has not, is what r requires.
func fits(r labels.Requirement, v string, has bool) bool {
	switch r.Operator() {
	case selection.Exists:
		return has
	case selection.DoesNotExist:
		return !has
	case selection.Equals, selection.DoubleEquals, selection.In:
		return has && r.Values().Has(v)
	case selection.NotEquals, selection.NotIn:
		return !has || !r.Values().Has(v)
	case selection.GreaterThan, selection.LessThan:
		bound, _ := strconv.ParseInt(r.Values().List()[0], 10, 64)
		n, err := strconv.ParseInt(v, 10, 64)
		return has && err == nil &&
			(r.Operator() == selection.GreaterThan && n > bound || r.Operator() == selection.LessThan && n < bound)
	default:
		return false
	}
}

// fieldOf returns a field that pods can be selected by.
func fieldOf(p *corev1.Pod, field string) (string, bool) {
	switch field {
	case "metadata.name":
		return p.GetMetadata().GetName(), true
	case "metadata.namespace":
		return p.GetMetadata().GetNamespace(), true
	case "spec.nodeName":
		return p.GetSpec().GetNodeName(), true
	case "spec.restartPolicy":
		return p.GetSpec().GetRestartPolicy(), true
	case "spec.schedulerName":
		return p.GetSpec().GetSchedulerName(), true
	case "spec.serviceAccountName":
		return p.GetSpec().GetServiceAccountName(), true
	case "spec.hostNetwork":
		return strconv.FormatBool(p.GetSpec().GetHostNetwork()), true
	case "status.phase":
		return p.GetStatus().GetPhase(), true
	case "status.podIP", "status.nominatedNodeName":
		return "", true // no pod here has one
	default:
		return "", false
	}
}
