// Package etcdtest runs an etcd for tests of what an external one is used for.
package etcdtest

import (
	"net/url"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// Start runs an etcd with listeners on the loopback interface until the test ends, and returns its client URL.
func Start(t testing.TB) string {
	t.Helper()
	return "http://" + StartWith(t, func(*embed.Config) {}).Clients[0].Addr().String()
}

// StartWith is Start for an etcd that configure has changed something of.
func StartWith(t testing.TB, configure func(*embed.Config)) *embed.Etcd {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.UnsafeNoFsync = true
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	any := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.ListenPeerUrls = any, any
	configure(cfg)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		t.Fatal("etcd is not ready")
	}
	return e
}
