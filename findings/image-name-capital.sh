#!/usr/bin/env bash
# Software: distribution/reference 0.6.0 (containerd, Docker) and go-containerregistry 0.22.1 (crane, ko)
# Guess: an image named MyOrg/app, as its organisation spells itself, is an error, since repositories have lower case
#   only, or means myorg/app of Docker Hub.
# Behaviour: distribution/reference takes a first part with a capital letter for the name of a host, as if it had a
#   dot: the image is "app" of the registry "MyOrg", and a pull ends in a failed look-up of that host. MyOrg/App is
#   an error, and go-containerregistry refuses both.
# Seen:
#   myorg/app: distribution/reference: app of docker.io/myorg; go-containerregistry: app of index.docker.io/myorg
#   MyOrg/app: distribution/reference: app of MyOrg; go-containerregistry: error
#   MyOrg/App: distribution/reference: error; go-containerregistry: error
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
	github.com/distribution/reference v0.6.0
	github.com/google/go-containerregistry v0.22.1
)
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"path"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/name"
)

func main() {
	for _, image := range []string{"myorg/app", "MyOrg/app", "MyOrg/App"} {
		fmt.Printf("%s: distribution/reference: ", image)
		if named, err := reference.ParseNormalizedNamed(image); err != nil {
			fmt.Print("error")
		} else {
			say(named.Name())
		}
		fmt.Print("; go-containerregistry: ")
		if named, err := name.NewRepository(image); err != nil {
			fmt.Println("error")
		} else {
			say(named.Name())
			fmt.Println()
		}
	}
}

func say(repository string) { fmt.Printf("%s of %s", path.Base(repository), path.Dir(repository)) }
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
