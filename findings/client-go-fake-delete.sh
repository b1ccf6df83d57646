#!/usr/bin/env bash
# Software: client-go 0.36.3 (k8s.io/client-go/kubernetes/fake)
# Guess: the fake clientset, which keeps what is created, also carries out a DeleteCollection and honours what a
#   Delete says, or returns an error for what it does not implement.
# Behaviour: DeleteCollection returns no error and deletes nothing, while a Delete with DryRun, with a precondition
#   that does not hold, or of an object with a finalizer deletes at once. A test of code that cleans up by
#   DeleteCollection, or that only tries, sees the opposite of what an API server does.
# Seen:
#   DeleteCollection: <nil>, left: [a b c]
#   Delete a, DryRun All: <nil>, left: [b c]
#   Delete b, UID precondition of another object: <nil>, left: [c]
#   Delete c, which has a finalizer: <nil>, left: []
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
	k8s.io/api v0.36.3
	k8s.io/apimachinery v0.36.3
	k8s.io/client-go v0.36.3
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-openapi/jsonpointer v1.0.1 // indirect
	github.com/go-openapi/jsonreference v1.0.2 // indirect
	github.com/go-openapi/swag v0.29.2 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/oauth2 v0.36.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/term v0.47.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	k8s.io/utils v0.0.0-20260707023825-cf1189d6abe3 // indirect
)
EOF
cat >main.go <<'EOF'
package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func main() {
	ctx := context.Background()
	maps := fake.NewClientset().CoreV1().ConfigMaps("default")
	for _, name := range []string{"a", "b", "c"} {
		object := metav1.ObjectMeta{Name: name, UID: "real"}
		if name == "c" {
			object.Finalizers = []string{"example.com/hold"}
		}
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: object}, metav1.CreateOptions{})
		if err != nil {
			panic(err)
		}
	}
	say := func(what string, err error) {
		list, listErr := maps.List(ctx, metav1.ListOptions{})
		if listErr != nil {
			panic(listErr)
		}
		left := []string{}
		for _, m := range list.Items {
			left = append(left, m.Name)
		}
		fmt.Printf("%s: %v, left: %v\n", what, err, left)
	}
	say("DeleteCollection", maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	say("Delete a, DryRun All", maps.Delete(ctx, "a", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
	other := metav1.NewUIDPreconditions("other")
	say("Delete b, UID precondition of another object", maps.Delete(ctx, "b", metav1.DeleteOptions{Preconditions: other}))
	say("Delete c, which has a finalizer", maps.Delete(ctx, "c", metav1.DeleteOptions{}))
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
