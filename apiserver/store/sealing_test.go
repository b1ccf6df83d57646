package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/store/seal"
	"monoplane.dev/internal/datadir"
)

const hidden = "nobody shall read this"

// sealedConfig encrypts config maps with the keys in the directory keys.
func sealedConfig(t *testing.T, data, keys string) Config {
	cfg := testConfig(data)
	cfg.Collections = resources()
	for i := range cfg.Collections {
		cfg.Collections[i].Sealed = cfg.Collections[i].Kind == corev1.ConfigMapKind
	}
	cfg.Keys = func(used bool) (*seal.Keys, error) {
		dir, err := datadir.Make(keys)
		if err != nil {
			t.Fatal(err)
		}
		return seal.Ensure(dir, used)
	}
	return cfg
}

func secret(i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Name: fmt.Sprint("a", i), Namespace: "default"}, Data: map[string]string{"a": hidden},
	}
}

func secretKey(i int) Key {
	return Key{Kind: corev1.ConfigMapKind, Namespace: "default", Name: fmt.Sprint("a", i)}
}

// wantSecrets expects n objects with what was written.
func wantSecrets(t *testing.T, s *Store, n int) {
	t.Helper()
	for i := range n {
		o, err := s.Get(t.Context(), secretKey(i), "")
		if err != nil {
			t.Fatal(err)
		}
		if got := o.(*corev1.ConfigMap).GetData()["a"]; got != hidden {
			t.Errorf("%d: %q", i, got)
		}
	}
}

// sealedBy counts the stored values by how they are encrypted.
func sealedBy(t *testing.T, s *Store) map[string]int {
	t.Helper()
	found := map[string]int{}
	prefix := kindPrefix(corev1.ConfigMapKind)
	resp, err := s.client.Range(t.Context(), &etcdserverpb.RangeRequest{
		Key: []byte(prefix), RangeEnd: []byte(prefixEnd(prefix)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		switch id, _ := seal.SealedBy(kv.Value[headerBytes:]); kv.Value[0] {
		case formatPlain:
			found["plain"]++
		default:
			found[id.String()]++
		}
	}
	return found
}

// Nothing of a sealed kind is in the database as it was written, and everything comes back, with other keys too.
func TestSealedKinds(t *testing.T) {
	data, keys := t.TempDir(), t.TempDir()
	const n = 3
	s := open(t, testConfig(data)) // by an older version, in plain text
	for i := range n {
		create(t, s, secret(i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, sealedConfig(t, data, keys))
	wantSecrets(t, s, n)
	first := s.keys.Current().String()
	s.sealStale(t.Context()) // whoever is first, this or the one that the start began
	if got := sealedBy(t, s); len(got) != 1 || got[first] != n {
		t.Errorf("after the start: %v", got)
	}
	revision := create(t, s, secret(n))

	// What has not changed is not written.
	same, err := s.Commit(t.Context(), Txn{Ops: []Op{{Key: secretKey(n), Object: secret(n), Expect: revision}}})
	if err != nil || same != revision {
		t.Errorf("written at %d and, as it was, at %d: %v", revision, same, err)
	}

	id, written, err := s.RotateKeys(t.Context())
	if err != nil || written != n+1 || id.String() == first {
		t.Errorf("rotated to %s: %d objects, %v", id, written, err)
	}
	if got := sealedBy(t, s); len(got) != 1 || got[id.String()] != n+1 {
		t.Errorf("after the rotation: %v", got)
	}
	wantSecrets(t, s, n+1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, sealedConfig(t, data, keys))
	wantSecrets(t, s, n+1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// What was encrypted from the first write on is nowhere in the files of the database.
func TestSealedFiles(t *testing.T) {
	data := t.TempDir()
	s := open(t, sealedConfig(t, data, t.TempDir()))
	create(t, s, secret(0))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(data, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(hidden)) {
			t.Errorf("%s holds it", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Without its keys a database is not opened, even when nothing is in it that they have encrypted.
func TestKeysOfAnother(t *testing.T) {
	data, keys := t.TempDir(), t.TempDir()
	if err := open(t, sealedConfig(t, data, keys)).Close(); err != nil {
		t.Fatal(err)
	}
	refused := func(keys, want string) {
		t.Helper()
		if s, err := Open(t.Context(), sealedConfig(t, data, keys)); err == nil {
			s.Close()
			t.Errorf("opened, want %q", want)
		} else if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	missing := t.TempDir()
	refused(missing, seal.ErrMissing.Error())
	if left, err := os.ReadDir(missing); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	other := t.TempDir()
	if err := open(t, sealedConfig(t, t.TempDir(), other)).Close(); err != nil {
		t.Fatal(err)
	}
	refused(other, seal.ErrUnknown.Error())
	if err := open(t, sealedConfig(t, data, keys)).Close(); err != nil {
		t.Fatal(err)
	}
}
