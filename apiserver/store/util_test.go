package store

import (
	"strconv"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func second[T any](_ T, err error) error { return err }

// allKeys returns every key in etcd.
func allKeys(t testing.TB, s *Store) []string {
	t.Helper()
	resp, err := s.client.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}
