#!/usr/bin/env bash
# Software: etcd 3.7.3 (go.etcd.io/etcd/server/v3 and client/v3)
# Guess: the revision in the header of a watch response is the one up to which the watch has come, so a client that
#   is cut off may go on after it.
# Behaviour: a watch that starts in the past gets its events in parts, at most 1000 revisions each, and the header of
#   each part has the revision of the store at that time. Who goes on at the header's revision plus one after the
#   first part misses all the others, without an error. Only the revision of the last event (or a progress
#   notification) says how far the watch has come.
# Seen:
#   revisions written: 2 to 2501
#   part 1: last event 1001, header 2501
#   part 2: last event 2001, header 2501
#   part 3: last event 2501, header 2501
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

	for i := range 2500 {
		must(client.Put(ctx, "key", fmt.Sprint(i)))
	}
	fmt.Println("revisions written: 2 to", must(client.Get(ctx, "key")).Header.Revision)
	parts := client.Watch(ctx, "key", clientv3.WithRev(2))
	for n := 1; ; n++ {
		part := <-parts
		last := part.Events[len(part.Events)-1].Kv.ModRevision
		fmt.Printf("part %d: last event %d, header %d\n", n, last, part.Header.Revision)
		if last == 2501 {
			return
		}
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
