#!/usr/bin/env bash
# Software: etcd 3.7.3 (go.etcd.io/etcd/client/v3/concurrency)
# Guess: two mutexes made for one prefix exclude each other, as sync.Mutex does, also when they were made from one
#   session.
# Behaviour: the owner of the lock is the session, not the mutex: the second Lock returns at once, and Unlock of
#   either gives the lock up for both. Two goroutines that share a session (the usual one of the process) are both
#   inside. TryLock takes it too. Each needs a session of its own.
# Seen:
#   first mutex, Lock: <nil>
#   second mutex of the same session, Lock: <nil>
#   second mutex of the same session, TryLock: <nil>
#   mutex of another session, TryLock: mutex: Locked by another session
#   second mutex, Unlock: <nil>
#   mutex of another session, TryLock while the first has not unlocked: <nil>
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
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
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

	mine, other := must(concurrency.NewSession(client)), must(concurrency.NewSession(client))
	first, second := concurrency.NewMutex(mine, "lock"), concurrency.NewMutex(mine, "lock")
	elsewhere := concurrency.NewMutex(other, "lock")
	fmt.Println("first mutex, Lock:", first.Lock(ctx))
	soon, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	fmt.Println("second mutex of the same session, Lock:", second.Lock(soon))
	fmt.Println("second mutex of the same session, TryLock:", second.TryLock(ctx))
	fmt.Println("mutex of another session, TryLock:", elsewhere.TryLock(ctx))
	fmt.Println("second mutex, Unlock:", second.Unlock(ctx))
	fmt.Println("mutex of another session, TryLock while the first has not unlocked:", elsewhere.TryLock(ctx))
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
