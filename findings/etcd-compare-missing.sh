#!/usr/bin/env bash
# Software: etcd 3.7.3 (go.etcd.io/etcd/server/v3 and client/v3)
# Guess: in a transaction, "the value of a key that does not exist is not x" holds, as the same comparison does of its
#   version, its revisions and its lease.
# Behaviour: a comparison of a value never holds when the key does not exist, whatever its operator: neither = nor !=.
#   "Write unless the value is x" therefore never creates the key, and the transaction does not fail: it takes Else.
# Seen:
#   value = "x": false
#   value != "x": false
#   version != 7: true
#   mod revision != 7: true
#   lease != 7: true
set -euo pipefail
sed -n '/^# /s/^# //p' "$0"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sed -n '/^# Seen:/,/^set/s/^#   //p' "$0" >"$dir/expected"
cd "$dir"
export GOWORK=off

cat >go.mod <<'EOF'
module finding

go 1.26

require (
	go.etcd.io/etcd/client/v3 v3.7.3
	go.etcd.io/etcd/server/v3 v3.7.3
)
EOF
cat >main.go <<'EOF'
package main

import (
	"context"
	"fmt"
	"net/url"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel = "data", "fatal"
	anyPort := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenPeerUrls, cfg.ListenClientUrls, cfg.AdvertiseClientUrls = anyPort, anyPort, anyPort
	server := must(embed.StartEtcd(cfg))
	<-server.Server.ReadyNotify()
	client := must(clientv3.New(clientv3.Config{Endpoints: []string{server.Clients[0].Addr().String()}}))

	for _, ask := range []struct {
		what string
		cmp  clientv3.Cmp
	}{
		{`value = "x"`, clientv3.Compare(clientv3.Value("missing"), "=", "x")},
		{`value != "x"`, clientv3.Compare(clientv3.Value("missing"), "!=", "x")},
		{"version != 7", clientv3.Compare(clientv3.Version("missing"), "!=", 7)},
		{"mod revision != 7", clientv3.Compare(clientv3.ModRevision("missing"), "!=", 7)},
		{"lease != 7", clientv3.Compare(clientv3.LeaseValue("missing"), "!=", 7)},
	} {
		fmt.Printf("%s: %t\n", ask.what, must(client.Txn(context.Background()).If(ask.cmp).Commit()).Succeeded)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
