package oracle

import (
	"maps"
	"strings"
	"testing"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ourcoordination "monoplane.dev/apiserver/kinds/coordination"
	ourcore "monoplane.dev/apiserver/kinds/core"
	ourevents "monoplane.dev/apiserver/kinds/events"
	"monoplane.dev/apiserver/validation"

	oc "monoplane.dev/api/coordination/v1"
	corev1 "monoplane.dev/api/core/v1"
	oe "monoplane.dev/api/events/v1"
	om "monoplane.dev/api/meta/v1"
)

func TestNodesAreJudgedAlike(t *testing.T) {
	base := func() *v1.Node {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1", Labels: map[string]string{"a": "b"}}}
		n.Spec = v1.NodeSpec{PodCIDRs: []string{"10.0.0.0/24", "fd00::/64"}, ProviderID: "p",
			Taints: []v1.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "b", Value: "c", Effect: "NoExecute"}}}
		n.Status.Capacity = amounts("cpu", "2", "memory", "4Gi", "pods", "110", "example.com/gpu", "1")
		n.Status.Addresses = []v1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}, {Type: "Hostname", Address: "n"}}
		n.Status.DeclaredFeatures = []string{"A", "B/c"}
		return n
	}
	skip := func(path string) bool { return !strings.Contains(path, "Config") && !strings.Contains(path, "Time") }
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		old, k := base(), base()
		what := append(alter(r, &k.ObjectMeta, r.IntN(2), nil), append(alter(r, &k.Spec, r.IntN(3), skip),
			alter(r, &k.Status, r.IntN(3), skip)...)...)
		theirs := ask[verdict](t, "nodes", k, old)
		n, err := ours(k, &corev1.Node{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := ours(old, &corev1.Node{})
		if err != nil {
			t.Fatal(err)
		}
		ourcore.DefaultNode(n)
		ourcore.DefaultNode(o)
		onCreate := compare(theirs.Created, ourFaults(ourcore.ValidateNode(n)))
		left := onCreate[:0]
		for _, d := range onCreate {
			// We look for addresses given twice at creation already.
			if !strings.Contains(d, "FieldValueDuplicate status.addresses") {
				left = append(left, d)
			}
		}
		keep(n.Metadata, o.Metadata)
		if report(t, append(what, "create"), left) || report(t, append(what, "update"),
			compare(theirs.Updated, ourFaults(ourcore.ValidateNodeUpdate(n, o)))) {
			bad++
		}
	}
}

func TestConfigMapsAreJudgedAlike(t *testing.T) {
	base := func() *v1.ConfigMap {
		return &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default", ResourceVersion: "1"}, Immutable: ptr(true),
			Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"c": []byte("d")},
		}
	}
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		old, k := base(), base()
		old.Immutable = ptr(r.IntN(2) == 0)
		what := alter(r, k, 1+r.IntN(3), nil)
		if r.IntN(20) == 0 {
			k.Data["big"] = strings.Repeat("x", 1<<20)
		}
		theirs := ask[verdict](t, "configmaps", k, old)
		m, err := ours(k, &corev1.ConfigMap{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := ours(old, &corev1.ConfigMap{})
		if err != nil {
			t.Fatal(err)
		}
		if report(t, append(what, "create"), compare(theirs.Created,
			ourFaults(ourcore.ValidateConfigMap(m)))) ||
			report(t, append(what, "update"), compare(theirs.Updated,
				ourFaults(ourcore.ValidateConfigMapUpdate(m, o)))) {
			bad++
		}
	}
}

// namespaceVerdict has what is wrong with a change of the finalizers, too.
type namespaceVerdict struct {
	verdict
	Finalized faults
}

func TestNamespacesAreJudgedAlike(t *testing.T) {
	base := func() *v1.Namespace {
		return &v1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"},
			Spec:       v1.NamespaceSpec{Finalizers: []v1.FinalizerName{"kubernetes"}},
			Status:     v1.NamespaceStatus{Phase: "Active"},
		}
	}
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		old, k := base(), base()
		if r.IntN(2) == 0 {
			old.DeletionTimestamp = &metav1.Time{Time: time.Unix(5, 0)}
			k.DeletionTimestamp = old.DeletionTimestamp
			old.Finalizers = []string{"example.com/f"}
			k.Status.Phase = "Terminating"
		}
		what := append(alter(r, &k.ObjectMeta, r.IntN(3), nil), alter(r, &k.Spec, r.IntN(3), nil)...)
		if r.IntN(3) == 0 {
			k.Status.Phase = v1.NamespacePhase(pick(r, words))
		}
		theirs := ask[namespaceVerdict](t, "namespaces", k, old)
		n, err := ours(k, &corev1.Namespace{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := ours(old, &corev1.Namespace{})
		if err != nil {
			t.Fatal(err)
		}
		ourcore.DefaultNamespace(n)
		ourcore.DefaultNamespace(o)
		if report(t, append(what, "create"), compare(theirs.Created,
			ourFaults(ourcore.ValidateNamespace(n)))) ||
			report(t, append(what, "update"), onlyMeta(compare(theirs.Updated,
				ourFaults(ourcore.ValidateNamespaceUpdate(n, o))))) ||
			report(t, append(what, "status"),
				onlyMeta(compare(theirs.Status,
					ourFaults(ourcore.ValidateNamespaceStatusUpdate(n, o))))) ||
			report(t, append(what, "finalize"),
				onlyMeta(compare(theirs.Finalized,
					ourFaults(ourcore.ValidateNamespaceFinalizeUpdate(n, o))))) {
			bad++
		}
	}
}

// onlyMeta leaves out what we find in metadata beyond Kubernetes: the functions called here do not check
// all of it on update, other parts of the API server do.
func onlyMeta(diff []string) []string {
	var left []string
	for _, d := range diff {
		if !strings.HasPrefix(d, "only Monoplane") || !strings.Contains(d, " metadata.") {
			left = append(left, d)
		}
	}
	return left
}

func TestLeasesAreJudgedAlike(t *testing.T) {
	base := func() *coordv1.Lease {
		return &coordv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "l", Namespace: "default", ResourceVersion: "1"},
			Spec: coordv1.LeaseSpec{LeaseDurationSeconds: ptr(int32(5)), LeaseTransitions: ptr(int32(0)),
				Strategy: ptr(coordv1.OldestEmulationVersion), PreferredHolder: ptr("a")},
		}
	}
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		old, k := base(), base()
		what := append(alter(r, &k.ObjectMeta, r.IntN(2), nil), alter(r, &k.Spec, r.IntN(3),
			func(path string) bool { return !strings.Contains(path, "Time") })...)
		theirs := ask[verdict](t, "leases", k, old)
		l, err := ours(k, &oc.Lease{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := ours(old, &oc.Lease{})
		if err != nil {
			t.Fatal(err)
		}
		if report(t, append(what, "create"), compare(theirs.Created,
			ourFaults(ourcoordination.ValidateLease(l)))) ||
			report(t, append(what, "update"), onlyMeta(compare(theirs.Updated,
				ourFaults(ourcoordination.ValidateLeaseUpdate(l, o))))) {
			bad++
		}
	}
}

func TestEventsAreJudgedAlike(t *testing.T) {
	base := func(newStyle bool) *v1.Event {
		e := &v1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "e", Namespace: "default"},
			InvolvedObject: v1.ObjectReference{Namespace: "default", Name: "p", Kind: "Pod"},
			Reason:         "R", Message: "m", Type: "Normal",
		}
		if newStyle {
			e.EventTime = metav1.MicroTime{Time: time.Unix(1000, 5000)}
			e.ReportingController, e.ReportingInstance, e.Action = "example.com/c", "i", "A"
		}
		return e
	}
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		k := base(r.IntN(2) == 0)
		what := alter(r, k, r.IntN(4), func(path string) bool {
			// The name is checked elsewhere in Kubernetes, metadata in the generic part.
			return !strings.Contains(path, "Time") && !strings.HasPrefix(path, ".Name") || path == ".Namespace"
		})
		e, err := ours(k, &corev1.Event{})
		if err != nil {
			t.Fatal(err)
		}
		theirs := ask[faults](t, "events", k)
		if report(t, what, onlyMeta(compare(theirs, ourFaults(ourcore.ValidateEvent(e))))) {
			bad++
		}
	}
}

func TestEventsOfTheNewGroupAreJudgedAlike(t *testing.T) {
	base := func(newStyle bool) *eventsv1.Event {
		e := &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default", ResourceVersion: "1"},
			Regarding:  v1.ObjectReference{Namespace: "default", Name: "p", Kind: "Pod"}, Reason: "R", Note: "m",
			Type: "Normal",
		}
		if newStyle {
			e.EventTime = metav1.MicroTime{Time: time.Unix(1000, 5000)}
			e.ReportingController, e.ReportingInstance, e.Action = "example.com/c", "i", "A"
			e.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: metav1.MicroTime{Time: time.Unix(1001, 0)}}
		} else {
			e.DeprecatedCount, e.DeprecatedSource.Component = 3, "c"
			e.DeprecatedFirstTimestamp = metav1.Time{Time: time.Unix(1000, 0)}
		}
		return e
	}
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		old := base(r.IntN(2) == 0)
		k := old.DeepCopy()
		what := alter(r, k, r.IntN(4), func(path string) bool {
			// The name is checked elsewhere in Kubernetes, metadata in the generic part.
			return !strings.Contains(path, "Time") && !strings.HasPrefix(path, ".Name") || path == ".Namespace"
		})
		theirs := ask[verdict](t, "events-v1", k, old)
		e, err := ours(k, &oe.Event{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := ours(old, &oe.Event{})
		if err != nil {
			t.Fatal(err)
		}
		created := onlyMeta(compare(theirs.Created,
			ourFaults(ourevents.ValidateEvent(e))))
		updated := onlyMeta(compare(theirs.Updated,
			ourFaults(ourevents.ValidateEventUpdate(e, o))))
		if report(t, append(what, "create"), created) || report(t, append(what, "update"), updated) {
			bad++
		}
	}
}

func TestDeleteOptionsAreJudgedAlike(t *testing.T) {
	r := random(t)
	for range min(*count, 2000) {
		k := &metav1.DeleteOptions{}
		if r.IntN(2) == 0 {
			policy := metav1.DeletionPropagation(pick(r, []string{"", "Foreground", "Background", "Orphan", "x"}))
			k.PropagationPolicy = &policy
		}
		if r.IntN(3) == 0 {
			k.OrphanDependents = ptr(true)
		}
		for range r.IntN(3) {
			k.DryRun = append(k.DryRun, pick(r, []string{"All", "", "x"}))
		}
		o, err := ours(k, &om.DeleteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		report(t, []string{k.String()}, compare(ask[faults](t, "delete-options", k),
			ourFaults(validation.DeleteOptions(o))))
	}
}

func TestSecretsAreJudgedAlike(t *testing.T) {
	types := []string{
		"Opaque", "example.com/x", "kubernetes.io/tls", "kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson",
		"kubernetes.io/basic-auth",
		"kubernetes.io/ssh-auth", "kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token",
	}
	keys := []string{"tls.crt", "tls.key", ".dockercfg", ".dockerconfigjson", "username", "password", "ssh-privatekey",
		"token-id"}
	base := func(kind v1.SecretType) *v1.Secret {
		return &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default", ResourceVersion: "1"}, Immutable: ptr(true),
			Type: kind,
			Data: map[string][]byte{"c": []byte("d")},
		}
	}
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		kind := v1.SecretType(pick(r, types))
		old, k := base(kind), base(kind)
		old.Immutable = ptr(r.IntN(2) == 0)
		what := append(alter(r, k, r.IntN(3), nil), string(kind))
		for range r.IntN(4) {
			if k.Data == nil {
				k.Data = map[string][]byte{}
			}
			k.Data[pick(r, keys)] = []byte(pick(r, []string{"", "{}", `{"auths":{}}`, "null", "[]", "x"}))
		}
		if r.IntN(2) == 0 {
			k.Annotations = map[string]string{"kubernetes.io/service-account.name": pick(r, []string{"", "default"})}
		}
		if r.IntN(20) == 0 && k.Data != nil {
			k.Data["big"] = make([]byte, 1<<20)
		}
		if r.IntN(3) == 0 {
			maps.Copy(old.Data, k.Data)
		}
		theirs := ask[verdict](t, "secrets", k, old)
		s, err := ours(k, &corev1.Secret{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := ours(old, &corev1.Secret{})
		if err != nil {
			t.Fatal(err)
		}
		ourcore.DefaultSecret(s)
		ourcore.DefaultSecret(o)
		created := redacted(ourFaults(ourcore.ValidateSecret(s)))
		if report(t, append(what, "create"), compare(redacted(theirs.Created), created)) ||
			report(t, append(what, "update"),
				onlyMeta(compare(redacted(theirs.Updated),
					redacted(ourFaults(ourcore.ValidateSecretUpdate(s, o)))))) {
			bad++
		}
	}
}

// redacted makes what is said of credentials for registries the same: Kubernetes repeats what its decoder says, which
// may quote from the secret.
func redacted(all faults) faults {
	out := faults{}
	for f := range all {
		if strings.Contains(f.message, "<secret contents redacted>") {
			f.message = "redacted"
		}
		out[f] = true
	}
	return out
}
