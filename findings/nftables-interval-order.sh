#!/usr/bin/env bash
# Software: nftables for Go 0.3.0 (github.com/google/nftables) and Linux (seen with 6.18); needs user namespaces, or
#   root
# Guess: the elements of a set of intervals are listed as they were added: each start, and after it its end.
# Behaviour: the kernel lists such a set backwards, so each end comes before its start, and a loop that takes a start
#   and the next element for a pair joins the start of one interval with the end of the one below.
# Seen:
#   added: 10.0.0.0, end 10.0.1.0, 10.2.0.0, end 10.3.0.0
#   listed: end 10.3.0.0, 10.2.0.0, end 10.0.1.0, 10.0.0.0
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
	github.com/google/nftables v0.3.0
	github.com/mdlayher/netlink v1.7.3-0.20250113171957-fbb4dce95f42 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"net"
	"strings"

	"github.com/google/nftables"
)

func main() {
	conn, err := nftables.New()
	check(err)
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "finding"})
	ranges := &nftables.Set{Table: table, Name: "ranges", KeyType: nftables.TypeIPAddr, Interval: true}
	added := []nftables.SetElement{
		{Key: net.IP{10, 0, 0, 0}}, {Key: net.IP{10, 0, 1, 0}, IntervalEnd: true},
		{Key: net.IP{10, 2, 0, 0}}, {Key: net.IP{10, 3, 0, 0}, IntervalEnd: true},
	}
	check(conn.AddSet(ranges, added))
	check(conn.Flush())
	fmt.Println("added:", text(added))
	listed, err := conn.GetSetElements(ranges)
	check(err)
	fmt.Println("listed:", text(listed))
}

func text(elements []nftables.SetElement) string {
	var all []string
	for _, e := range elements {
		one := net.IP(e.Key).String()
		if e.IntervalEnd {
			one = "end " + one
		}
		all = append(all, one)
	}
	return strings.Join(all, ", ")
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
EOF
go build -mod=mod -o finding .
unshare --map-root-user --net ./finding >seen
diff expected seen && echo "Still so."
