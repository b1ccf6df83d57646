#!/usr/bin/env bash
# Software: netlink for Go 1.3.1 (github.com/vishvananda/netlink), iproute2; needs user namespaces, or root
# Guess: a default route that was added without a destination is listed without one: Dst is nil, which is how
#   programs have looked for the default route.
# Behaviour: it is listed as 0.0.0.0/0 (or ::/0), so the test for nil finds no default route and no error says so; a
#   filter for routes without a destination does find it. Routes of tables other than main are not listed at all.
# Seen:
#   added with Dst nil, listed as 0.0.0.0/0, Dst == nil: false
#   listed: 0.0.0.0/0 10.0.0.0/24
#   filter of Dst nil: 0.0.0.0/0
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
	github.com/vishvananda/netlink v1.3.1
	golang.org/x/sys v0.49.0 // indirect
)
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

func main() {
	// A pair of its own in a network namespace that ends with this program.
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "left"}, PeerName: "right"}
	check(netlink.LinkAdd(veth))
	for _, name := range []string{"left", "right"} {
		link, err := netlink.LinkByName(name)
		check(err)
		check(netlink.LinkSetUp(link))
	}
	address, err := netlink.ParseAddr("10.0.0.1/24")
	check(err)
	check(netlink.AddrAdd(veth, address))
	gateway := net.IPv4(10, 0, 0, 2)
	check(netlink.RouteAdd(&netlink.Route{LinkIndex: veth.Index, Gw: gateway}))
	_, far, err := net.ParseCIDR("10.9.0.0/16")
	check(err)
	check(netlink.RouteAdd(&netlink.Route{LinkIndex: veth.Index, Gw: gateway, Dst: far, Table: 100}))

	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	check(err)
	for _, route := range routes {
		if route.Gw != nil {
			fmt.Printf("added with Dst nil, listed as %v, Dst == nil: %t\n", route.Dst, route.Dst == nil)
		}
	}
	show("listed", routes)
	routes, err = netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{}, netlink.RT_FILTER_DST)
	check(err)
	show("filter of Dst nil", routes)
}

func show(what string, routes []netlink.Route) {
	fmt.Print(what, ":")
	for _, route := range routes {
		fmt.Print(" ", route.Dst)
	}
	fmt.Println()
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
