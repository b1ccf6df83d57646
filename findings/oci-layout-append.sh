#!/usr/bin/env bash
# Software: go-containerregistry 0.22.1 (pkg/v1/layout, empty, mutate)
# Guess: appending to an OCI layout an image that is there already leaves it alone, as pushing it again does to a
#   registry; and an image built of an OCI layer upon the empty image is an OCI image.
# Behaviour: each AppendImage adds another entry of the same digest to index.json (ReplaceImage does not), so a
#   program that runs twice doubles them. The empty image is one of Docker's kind though the empty index is of OCI: a
#   layer of OCI upon it gives a manifest of mixed kinds, unless mutate.MediaType and ConfigMediaType are called.
# Seen:
#   appended twice: 2 entries, 1 digest
#   index: application/vnd.oci.image.index.v1+json
#   manifest: application/vnd.docker.distribution.manifest.v2+json
#   config: application/vnd.docker.container.image.v1+json
#   layer: application/vnd.oci.image.layer.v1.tar+gzip
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
	github.com/google/go-containerregistry v0.22.1
	github.com/klauspost/compress v1.20.3 // indirect
	golang.org/x/sync v0.24.0 // indirect
)
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	image := must(mutate.AppendLayers(empty.Image, static.NewLayer([]byte("layer"), types.OCILayer)))
	to := must(layout.Write("layout", empty.Index))
	for range 2 {
		if err := to.AppendImage(image); err != nil {
			panic(err)
		}
	}
	index := must(must(to.ImageIndex()).IndexManifest())
	digests := map[v1.Hash]bool{}
	for _, entry := range index.Manifests {
		digests[entry.Digest] = true
	}
	fmt.Printf("appended twice: %d entries, %d digest\n", len(index.Manifests), len(digests))
	manifest := must(image.Manifest())
	fmt.Println("index:", index.MediaType)
	fmt.Println("manifest:", manifest.MediaType)
	fmt.Println("config:", manifest.Config.MediaType)
	fmt.Println("layer:", manifest.Layers[0].MediaType)
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
