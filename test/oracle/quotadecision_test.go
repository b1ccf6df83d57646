package oracle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/admission/charge"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/store/etcd/embedded"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
)

// takers are objects of one kind that take of quotas.
type takers struct {
	resource string
	kind     *object.Kind
	random   func(*rand.Rand) taker
	// update is the subresource that changes what they take.
	update string
}

type taker interface {
	upstream
	metav1.Object
	runtime.Object
}

// quantityText finds the quantities in what is said about a quota.
var quantityText = regexp.MustCompile(`=[^,\s]+`)

// plainly is what a refusal says, with quantities as numbers: 1Gi and 1G add up to one or the other way of writing.
func plainly(err error) string {
	if err == nil {
		return ""
	}
	_, text, _ := strings.Cut(err.Error(), " is forbidden: ")
	return quantityText.ReplaceAllStringFunc(text, func(a string) string {
		q, err := resource.ParseQuantity(a[1:])
		if err != nil {
			return a
		}
		return "=" + q.AsDec().String()
	})
}

// Of a series of creations and changes the same are let in, and the others are refused for the same reason, by the
// same quota, of which as much is used.
//
// spec: OBJ-2
func TestQuotasDecideTheSame(t *testing.T) {
	r := random(t)
	clock := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	s, err := store.Open(t.Context(), store.Config{
		Connect: embedded.Connect(embedded.Config{Dir: t.TempDir(), UnsafeNoFsync: true}),
		Collections: []store.Collection{
			{Kind: corev1.PodKind}, {Kind: corev1.ServiceKind}, {Kind: corev1.PersistentVolumeClaimKind},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	kinds := []takers{
		{"pods", corev1.PodKind,
			func(r *rand.Rand) taker { return quotaPod(r, clock.Now()) }, "resize"},
		{"services", corev1.ServiceKind,
			func(r *rand.Rand) taker { return quotaService(r) }, ""},
		{"persistentvolumeclaims", corev1.PersistentVolumeClaimKind,
			func(r *rand.Rand) taker { return quotaClaim(r) }, ""},
	}
	refused, letIn := 0, 0
	for series := range max(*count/20, 5) {
		namespace := fmt.Sprint("n", series)
		var theirs []v1.ResourceQuota
		var mine []*corev1.ResourceQuota
		for i := range 1 + r.IntN(3) {
			q := roomyQuota(r)
			q.Name, q.Namespace = fmt.Sprint("q", i), namespace
			o, err := ours(q, &corev1.ResourceQuota{})
			if err != nil {
				t.Fatal(err)
			}
			theirs, mine = append(theirs, *q), append(mine, o)
		}
		ledger := charge.NewLedger(s, clock)
		live, revisions := map[string]taker{}, map[string]int64{}
		for range 20 {
			k := kinds[r.IntN(len(kinds))]
			next := k.random(r)
			next.SetNamespace(namespace)
			next.SetName(fmt.Sprint(k.resource, r.IntN(4)))
			key := next.GetName()
			w := registry.Write{Next: convertTo(t, next, k.kind)}
			operation, was := "create", live[key]
			if was != nil {
				was.SetResourceVersion("1")
				w.Live, w.Subresource, operation = convertTo(t, was, k.kind), k.update, "update"
			}
			want := ask[string](t, "quota-decisions", theirs, live, next, was, w.Subresource, clock.Now())
			c, got := ledger.Charge(t.Context(), w, func() []*corev1.ResourceQuota { return mine })
			if want != plainly(got) || (want == "") != (got == nil) {
				t.Fatalf("%s %s after %v\n%v\nquotas %v\nKubernetes %v\nMonoplane  %v", operation, key, was, next, theirs,
					want, got)
			}
			if got != nil {
				if !apierrors.Is(got, apierrors.Forbidden) {
					t.Fatal(got)
				}
				refused++
				continue
			}
			write := store.Txn{Ops: []store.Op{{Key: store.Key{Kind: k.kind, Namespace: namespace, Name: key},
				Object: w.Next, Expect: revisions[key]}}}
			if c.Settle != nil {
				write.Guards = []store.Guard{c.Guard}
				letIn++
			}
			done, err := s.Commit(t.Context(), write)
			if c.Settle != nil {
				c.Settle(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			revisions[key], live[key] = done, next
		}
	}
	if *count >= 100 && (refused < 20 || letIn < 20) {
		t.Errorf("%d were refused, and %d let in with something taken", refused, letIn)
	}
}

// roomyQuota has room for some objects.
func roomyQuota(r *rand.Rand) *v1.ResourceQuota {
	q := randomQuota(r)
	for _, name := range slices.Sorted(maps.Keys(q.Spec.Hard)) {
		if r.IntN(4) > 0 {
			q.Spec.Hard[name] = resource.MustParse(pick(r, []string{"3", "5", "2500m", "4Gi", "10G"}))
		}
	}
	q.Status.Hard = q.Spec.Hard
	return q
}

func convertTo(t *testing.T, o upstream, k *object.Kind) object.Object {
	t.Helper()
	out, err := ours(o, k.New())
	if err != nil {
		t.Fatal(err)
	}
	return out
}
