#!/usr/bin/env bash
# Software: protobuf for Go 1.36.12 (google.golang.org/protobuf: types/known/fieldmaskpb, encoding/protojson)
# Guess: a field mask whose paths are fields of the message (fieldmaskpb.New checks that) can be sent as JSON.
# Behaviour: JSON has the paths in lowerCamelCase, and paths that do not come back from it unchanged cannot be
#   encoded. So there is no JSON for the mask of a field with a capital letter, such as the podIP of Kubernetes, or
#   with a digit after an underscore, such as ipv4_1: whoever names fields so learns of it at the first such update.
# Seen:
#   host_ip: valid, JSON "hostIp", binary ok
#   podIP: valid, JSON fails: google.protobuf.FieldMask.paths contains irreversible value "podIP", binary ok
#   ipv4_1: valid, JSON fails: google.protobuf.FieldMask.paths contains irreversible value "ipv4_1", binary ok
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

require google.golang.org/protobuf v1.36.12
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

func main() {
	status := &descriptorpb.DescriptorProto{Name: proto.String("Status")}
	names := []string{"host_ip", "podIP", "ipv4_1"}
	for i, name := range names {
		status.Field = append(status.Field, &descriptorpb.FieldDescriptorProto{
			Name: proto.String(name), Number: proto.Int32(int32(i + 1)),
			Type:  descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		})
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("status.proto"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{status},
	}, nil)
	if err != nil {
		panic(err)
	}
	message := dynamicpb.NewMessage(file.Messages().Get(0))
	for _, name := range names {
		mask, err := fieldmaskpb.New(message, name)
		if err != nil {
			panic(err)
		}
		text, err := protojson.Marshal(mask)
		said := string(text)
		if err != nil { // The library varies the space after "proto:" on purpose.
			_, why, _ := strings.Cut(err.Error(), "google.")
			said = "fails: google." + why
		}
		if _, err := proto.Marshal(mask); err != nil {
			panic(err)
		}
		fmt.Printf("%s: valid, JSON %s, binary ok\n", name, said)
	}
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
