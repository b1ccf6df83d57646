package oracle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	ourmeta "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/controllers/garbagecollector"
	"monoplane.dev/object"
)

// family is an object with its owners, by their places among the objects made before.
type family struct {
	Kind, Namespace, Name string
	Owners                []parent
}

type parent struct {
	// Of is the object whose uid is meant, -1 for one that there never was.
	Of         int
	APIVersion string
	Kind, Name string
	Blocks     bool
}

func (f family) String() string { return f.Kind + " " + f.Namespace + "/" + f.Name }

// The collector leaves what Kubernetes' own leaves, with the same references, of whatever objects name whatever
// owners: some there, some not, of another uid, kind or namespace, or of a kind that nobody serves. spec: OBJ-12
func TestGarbageCollector(t *testing.T) {
	rng, n := random(t), max(*count/200, 2)
	collected := 0
	for range n {
		families := randomFamilies(rng, 40)
		ours := collectOurs(t, families)
		theirs := ask[map[string]string](t, "garbage", families)
		if !maps.Equal(ours, theirs) {
			var lines []string
			for _, f := range families {
				if a, b := ours[f.String()], theirs[f.String()]; a != b {
					lines = append(lines, fmt.Sprintf("%s with %+v: we leave %q, Kubernetes %q", f, f.Owners, a, b))
				}
			}
			t.Fatal(strings.Join(lines, "\n"))
		}
		collected += len(families) - len(ours)
	}
	if collected < 5*n {
		t.Errorf("only %d objects of %d graphs were collected", collected, n)
	}
}

func randomFamilies(rng *rand.Rand, n int) []family {
	var all []family
	for i := range n {
		f := family{Kind: []string{"ConfigMap", "ConfigMap", "Secret", "Node"}[rng.IntN(4)], Name: fmt.Sprint("o", i)}
		if f.Kind != "Node" {
			f.Namespace = []string{"ns", "ns", "ns", "other"}[rng.IntN(4)]
		}
		for range rng.IntN(3) {
			p := parent{Of: -1, APIVersion: "v1", Kind: "ConfigMap", Name: "never", Blocks: rng.IntN(2) == 0}
			if len(all) > 0 && rng.IntN(4) > 0 {
				p.Of = len(all) - 1 - rng.IntN(min(15, len(all)))
				p.Kind, p.Name = all[p.Of].Kind, all[p.Of].Name
			}
			switch rng.IntN(25) {
			case 0:
				p.Kind = "Secret"
			case 1:
				p.Name = "another"
			case 2:
				p.APIVersion, p.Kind = "example.com/v1", "Widget"
			}
			if !slices.ContainsFunc(f.Owners, func(x parent) bool { return x.Of == p.Of }) {
				f.Owners = append(f.Owners, p)
			}
		}
		all = append(all, f)
	}
	return all
}

// left describes what is left of an object.
func left(owners []string) string { return "left with " + strings.Join(owners, ", ") }

// collectOurs returns what our collector leaves, by what it is called.
func collectOurs(t *testing.T, families []family) map[string]string {
	t.Helper()
	found := map[string]string{}
	synctest.Test(t, func(t *testing.T) {
		server := apitest.Start(t)
		server.Namespaces(t, "ns", "other")
		c := server.Admin()
		uids := make([]string, len(families))
		ctx := context.Background()
		for i, f := range families {
			m := &ourmeta.ObjectMeta{Namespace: f.Namespace, Name: f.Name}
			for _, p := range f.Owners {
				uid := "never"
				if p.Of >= 0 {
					uid = uids[p.Of]
				}
				m.OwnerReferences = append(m.OwnerReferences, &ourmeta.OwnerReference{ApiVersion: p.APIVersion, Kind: p.Kind,
					Name: p.Name, Uid: uid, BlockOwnerDeletion: &p.Blocks})
			}
			var o object.Object
			var err error
			switch f.Kind {
			case "ConfigMap":
				o, err = c.ConfigMaps.Create(ctx, &corev1rpc.CreateConfigMapRequest{Object: &corev1.ConfigMap{Metadata: m}})
			case "Secret":
				o, err = c.Secrets.Create(ctx, &corev1rpc.CreateSecretRequest{Object: &corev1.Secret{Metadata: m}})
			default:
				o, err = c.Nodes.Create(ctx, &corev1rpc.CreateNodeRequest{Object: &corev1.Node{Metadata: m}})
			}
			if err != nil {
				t.Fatal(err)
			}
			uids[i] = o.GetMetadata().GetUid()
		}
		gc, err := garbagecollector.New(garbagecollector.Config{Client: server.Controller("garbage-collector")})
		if err != nil {
			t.Fatal(err)
		}
		running, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- gc.Run(running) }()
		time.Sleep(time.Hour) // virtual
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		add := func(kind string, o object.Object) {
			m := o.GetMetadata()
			var owners []string
			for _, r := range m.GetOwnerReferences() {
				owners = append(owners, r.GetKind()+" "+r.GetName())
			}
			found[family{Kind: kind, Namespace: m.GetNamespace(), Name: m.GetName()}.String()] = left(owners)
		}
		maps, err1 := c.ConfigMaps.List(ctx, &ourmeta.ListRequest{})
		secrets, err2 := c.Secrets.List(ctx, &ourmeta.ListRequest{})
		nodes, err3 := c.Nodes.List(ctx, &ourmeta.ListRequest{})
		if err := cmp.Or(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		for _, o := range maps.GetItems() {
			add("ConfigMap", o)
		}
		for _, o := range secrets.GetItems() {
			add("Secret", o)
		}
		for _, o := range nodes.GetItems() {
			add("Node", o)
		}
	})
	return found
}
