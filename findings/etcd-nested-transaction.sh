#!/usr/bin/env bash
# Software: etcd 3.7.3 (go.etcd.io/etcd/server/v3 and client/v3)
# Guess: operations of a transaction take effect in order, so the comparisons of a transaction inside it see what the
#   operations before it have written.
# Behaviour: a get after the put sees the put, but the comparisons of all transactions inside are evaluated before
#   the first operation is carried out. A condition on what the outer transaction has just written takes Else.
# Seen:
#   get after the put: a = 1
#   transaction inside after the put, If(a = 1): false
#   the same, sent next: true
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
	ctx := context.Background()

	is1 := clientv3.Compare(clientv3.Value("a"), "=", "1")
	inside := clientv3.OpTxn([]clientv3.Cmp{is1}, nil, nil)
	done := must(client.Txn(ctx).Then(clientv3.OpPut("a", "1"), clientv3.OpGet("a"), inside).Commit())
	kv := done.Responses[1].GetResponseRange().Kvs[0]
	fmt.Printf("get after the put: %s = %s\n", kv.Key, kv.Value)
	fmt.Println("transaction inside after the put, If(a = 1):", done.Responses[2].GetResponseTxn().Succeeded)
	fmt.Println("the same, sent next:", must(client.Txn(ctx).If(is1).Commit()).Succeeded)
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
