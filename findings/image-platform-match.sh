#!/usr/bin/env bash
# Software: containerd/platforms 1.0.0-rc.5 and go-containerregistry 0.22.1 (pkg/v1)
# Guess: a platform names one kind of machine: linux/arm64/v8 is another spelling of linux/arm64 to both libraries,
#   and linux/amd64 matches images for amd64 alone.
# Behaviour: to containerd arm64 and arm64/v8 are one, and amd64 also matches 386, as arm64 matches 32-bit arm: of an
#   index that lacks the wanted image another is run instead of an error. To go-containerregistry arm64/v8 does not
#   match an entry for arm64, which many indexes have, though arm64 matches arm64/v8.
# Seen:
#   want linux/amd64, have linux/386: containerd true, go-containerregistry false
#   want linux/arm64, have linux/arm/v7: containerd true, go-containerregistry false
#   want linux/arm64, have linux/arm64/v8: containerd true, go-containerregistry true
#   want linux/arm64/v8, have linux/arm64: containerd true, go-containerregistry false
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
	github.com/containerd/platforms v1.0.0-rc.5
	github.com/google/go-containerregistry v0.22.1
)
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"

	"github.com/containerd/platforms"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	for _, pair := range [][2]string{
		{"linux/amd64", "linux/386"}, {"linux/arm64", "linux/arm/v7"},
		{"linux/arm64", "linux/arm64/v8"}, {"linux/arm64/v8", "linux/arm64"},
	} {
		want, have := pair[0], pair[1]
		containerd := platforms.Only(must(platforms.Parse(want))).Match(must(platforms.Parse(have)))
		google := must(v1.ParsePlatform(have)).Satisfies(*must(v1.ParsePlatform(want)))
		fmt.Printf("want %s, have %s: containerd %t, go-containerregistry %t\n", want, have, containerd, google)
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
