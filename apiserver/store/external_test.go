package store

import (
	"testing"

	"monoplane.dev/apiserver/store/etcd"
	"monoplane.dev/apiserver/store/etcd/external"
	"monoplane.dev/apiserver/store/test/etcdtest"
)

// elsewhere leads to an etcd of the test's that is not embedded.
func elsewhere(t *testing.T) etcd.Connect {
	return external.Connect(external.Config{Endpoints: []string{etcdtest.Start(t)}})
}

func TestContractExternal(t *testing.T) {
	for name, f := range contract {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig("")
			cfg.Connect = elsewhere(t)
			f(t, open(t, cfg))
		})
	}
}

// Two servers over one etcd see each other's writes, and keys outside the tree stop nobody.
func TestTwoStores(t *testing.T) {
	cfg := testConfig("")
	cfg.Connect = elsewhere(t)
	a, b := open(t, cfg), open(t, cfg)
	w := watch(t, b, WatchOptions{})
	for range 20 {
		rev := create(t, a, pod("default", "x"))
		o, err := b.Get(t.Context(), podKey("default", "x"), "")
		if err != nil || revOf(o) != itoa(rev) {
			t.Fatalf("%v, %v", o, err)
		}
		remove(t, b, podKey("default", "x"))
		if len(list(t, a, ListOptions{}).Objects) != 0 {
			t.Fatal("the other store's deletion is not seen")
		}
	}
	if n := len(collect(t, w, 40)); n != 40 {
		t.Errorf("%d events", n)
	}
	if _, err := a.client.Txn(t.Context(), foreignPut()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Revision(t.Context()); err != nil {
		t.Error(err)
	}
	list(t, b, ListOptions{})
}
