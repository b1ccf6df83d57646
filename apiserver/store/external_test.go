package store

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"monoplane.dev/apierrors"
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

// fullElsewhere runs an etcd that somebody else has filled up, with history or with what is there, and returns its
// endpoint and a client of theirs.
func fullElsewhere(t *testing.T, history bool) (string, *clientv3.Client) {
	t.Helper()
	e := etcdtest.StartWith(t, func(cfg *embed.Config) { cfg.QuotaBackendBytes = 4 << 20 })
	endpoint := "http://" + e.Clients[0].Addr().String()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cli.Close() })
	cfg := testConfig("")
	cfg.Connect = external.Connect(external.Config{Endpoints: []string{endpoint}})
	s := open(t, cfg)
	create(t, s, pod("default", "before"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for key := "theirs"; ; {
		for err = nil; err == nil; _, err = cli.Put(t.Context(), key, strings.Repeat("x", 50_000)) {
			if !history {
				key += "x"
			}
		}
		if !strings.Contains(err.Error(), "space exceeded") {
			t.Fatal(err)
		}
		if history {
			return endpoint, cli
		}
		// Part of the file may not be in use.
		if _, err := cli.Defragment(t.Context(), endpoint); err != nil {
			t.Fatal(err)
		}
		if size, _ := sizeOf(t, cli); !etcd.HasRoom(size, 4<<20) {
			return endpoint, cli
		}
		if _, err := cli.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
			t.Fatal(err)
		}
	}
}

// sizeOf returns how large the database is, and which alarms are on.
func sizeOf(t *testing.T, cli *clientv3.Client) (int64, []etcdserverpb.AlarmType) {
	t.Helper()
	status, err := cli.Status(t.Context(), cli.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	list, err := cli.AlarmList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var alarms []etcdserverpb.AlarmType
	for _, a := range list.Alarms {
		alarms = append(alarms, a.Alarm)
	}
	return status.DbSize, alarms
}

// An etcd of others that is full is left alone, and read: each write says what its administrator can do, and passes
// when he has. With leave to maintain it, it is given room once there is something to free, and no alarm but the one
// for that goes off.
func TestFullEtcdElsewhere(t *testing.T) {
	write := func(s *Store, name string) error {
		p := pod("default", name)
		_, err := s.Commit(t.Context(), Txn{Ops: []Op{{Key: keyOf(p), Object: p}}})
		return err
	}
	to := func(endpoint string, maintain bool) Config {
		cfg := testConfig("")
		cfg.Connect = external.Connect(external.Config{Endpoints: []string{endpoint}, Maintain: maintain})
		return cfg
	}
	t.Run("not ours", func(t *testing.T) {
		endpoint, cli := fullElsewhere(t, true)
		size, _ := sizeOf(t, cli)
		s := open(t, to(endpoint, false))
		for range 3 {
			err := write(s, "p")
			wantReason(t, err, apierrors.ServiceUnavailable)
			for _, want := range []string{"full", "etcdctl defrag", "alarm disarm", "--etcd-maintenance"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not tell of %q", err, want)
				}
			}
		}
		wantNames(t, list(t, s, ListOptions{}), "default/before")
		now, alarms := sizeOf(t, cli)
		if now < size || len(alarms) != 1 {
			t.Errorf("%d bytes became %d, the alarms are %v", size, now, alarms)
		}
		first, err := cli.Get(t.Context(), "theirs", clientv3.WithRev(4)) // not compacted
		if err != nil || len(first.Kvs) != 1 {
			t.Errorf("the history is gone: %v", err)
		}
		// The administrator does what the error says.
		if _, err = cli.Compact(t.Context(), first.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
			t.Fatal(err)
		}
		if _, err = cli.Defragment(t.Context(), endpoint); err != nil {
			t.Fatal(err)
		}
		if _, err = cli.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
			t.Fatal(err)
		}
		if err := write(s, "p"); err != nil {
			t.Error(err)
		}
	})
	t.Run("history", func(t *testing.T) {
		endpoint, cli := fullElsewhere(t, true)
		if err := write(open(t, to(endpoint, true)), "p"); err != nil {
			t.Error(err)
		}
		if now, alarms := sizeOf(t, cli); now > 1<<20 || len(alarms) > 0 {
			t.Errorf("%d bytes, the alarms are %v", now, alarms)
		}
	})
	t.Run("in use", func(t *testing.T) {
		endpoint, cli := fullElsewhere(t, false)
		s := open(t, to(endpoint, true))
		for range 2 {
			err := write(s, "p")
			wantReason(t, err, apierrors.ServiceUnavailable)
			if !strings.Contains(err.Error(), "in use") {
				t.Error(err)
			}
		}
		if _, alarms := sizeOf(t, cli); len(alarms) != 1 {
			t.Errorf("the alarms are %v", alarms)
		}
	})
}

// Ready says whether a write would pass: not while etcd is away, and again within a second of its return, however long
// it was away. What is in the caches is served meanwhile, a write is answered with one clear error, and however many
// ask, etcd is asked seldom.
func TestEtcdElsewhereGoesAway(t *testing.T) {
	dir := t.TempDir()
	client, peer := "http://"+freeAddress(t), "http://"+freeAddress(t)
	run := func(t *testing.T) {
		etcdtest.StartWith(t, func(cfg *embed.Config) {
			cfg.Dir = dir
			cfg.ListenClientUrls, cfg.ListenPeerUrls = urls(t, client), urls(t, peer)
		})
	}
	var s *Store
	t.Run("before", func(t *testing.T) { // at its end etcd goes
		run(t)
		cfg := testConfig("")
		cfg.Connect = external.Connect(external.Config{Endpoints: []string{client}})
		var calls counter
		cfg.wrap = calls.count
		var err error
		if s, err = Open(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		create(t, s, pod("default", "a"))
		was := calls.txns.Load()
		for range 1000 {
			if err := errors.Join(s.Ready(t.Context()), s.Live(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		if n := calls.txns.Load() - was; n > 5 {
			t.Errorf("etcd was written to %d times", n)
		}
	})
	if s == nil {
		return
	}
	defer s.Close()
	gone := time.Now()
	until(t, func() bool { return s.Ready(t.Context()) != nil && s.Live(t.Context()) != nil })
	if err := s.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "etcd is not available") {
		t.Error(err)
	}
	t.Log("unready after", time.Since(gone))
	b := pod("default", "b")
	_, err := s.Commit(t.Context(), Txn{Ops: []Op{{Key: keyOf(b), Object: b}}})
	wantReason(t, err, apierrors.ServiceUnavailable)
	wantNames(t, list(t, s, ListOptions{ResourceVersion: "0"}), "default/a")
	t.Log("written after", time.Since(gone))
	_, err = s.Get(t.Context(), podKey("default", "a"), "")
	wantReason(t, err, apierrors.ServiceUnavailable)
	t.Log("read after", time.Since(gone))
	// As long as it takes gRPC's own pauses to become longer than a second.
	until(t, func() bool { return s.Ready(t.Context()) != nil && time.Since(gone) > 4*time.Second })
	run(t)
	back := time.Now()
	until(t, func() bool { return s.Ready(t.Context()) == nil })
	if took := time.Since(back); took > time.Second {
		t.Errorf("ready %v after etcd", took)
	}
	create(t, s, pod("default", "c"))
	if err := s.Live(t.Context()); err != nil {
		t.Error(err)
	}
}

// counter counts the transactions.
type counter struct {
	etcd.Client
	txns atomic.Int64
}

func (c *counter) count(inner etcd.Client) etcd.Client {
	c.Client = inner
	return c
}

func (c *counter) Txn(ctx context.Context, req *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	c.txns.Add(1)
	return c.Client.Txn(ctx, req)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func urls(t *testing.T, text string) []url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return []url.URL{*u}
}

// until waits for a condition that comes by itself.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("it does not come")
		}
	}
}
