package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// The README's gRPC calls, word for word, as grpcurl makes them: JSON to messages by the description of the service.
// spec: OBJ-15
func TestReadmeOverGRPC(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns, conn := c.namespace(t), c.dial(t).Conn()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	service := regexp.MustCompile(`-d "\$2" \S+ (\S+)/\$1`).FindSubmatch(text)
	if service == nil {
		t.Fatal("the README does not define the command `pods`")
	}
	var called []string
	for _, m := range regexp.MustCompile(`(?m)^\$ pods (\w+) '([^']+)'`).FindAllSubmatch(text, -1) {
		method := string(m[1])
		called = append(called, method)
		request := strings.ReplaceAll(string(m[2]), `"default"`, `"`+ns+`"`)
		answer, err := call(t, conn, string(service[1]), method, request)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		if !strings.Contains(answer, `"hi"`) {
			t.Errorf("%s answers %s", method, answer)
		}
	}
	if !slices.Equal(called, []string{"Create", "Get", "Watch", "Delete"}) {
		t.Errorf("the README calls %v", called)
	}
}

// call makes one call and returns the first answer as JSON.
func call(t *testing.T, conn grpc.ClientConnInterface, service, method, request string) (string, error) {
	t.Helper()
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		t.Fatal(err)
	}
	m := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(method))
	if m == nil {
		t.Fatalf("%s has no method %s", service, method)
	}
	message := func(d protoreflect.MessageDescriptor) proto.Message {
		t.Helper()
		kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
		if err != nil {
			t.Fatal(err)
		}
		return kind.New().Interface()
	}
	in, out := message(m.Input()), message(m.Output())
	if err := protojson.Unmarshal([]byte(request), in); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+service+"/"+method)
	if err != nil {
		return "", err
	}
	if err := stream.SendMsg(in); err != nil {
		return "", err
	}
	if err := stream.CloseSend(); err != nil {
		return "", err
	}
	if err := stream.RecvMsg(out); err != nil {
		return "", err
	}
	answer, err := protojson.Marshal(out)
	return string(answer), err
}
