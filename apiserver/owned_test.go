package apiserver_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/authn"
	"monoplane.dev/client/inproc"
	"monoplane.dev/object"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
)

// What a client creates is copied, unless it belongs to the server anyway.
func TestCreateCopiesWhatItDoesNotOwn(t *testing.T) {
	c := start(t)
	owned := corev1rpc.NewPodsClient(c.server.Conn(inproc.WithContext(func(ctx context.Context) context.Context {
		return object.WithOwned(authn.WithUser(ctx, adminUser()))
	})))
	for name, tc := range map[string]struct {
		pods     corev1rpc.PodsClient
		generate bool
		same     bool
	}{
		"shared":    {c.admin().Pods, false, false},
		"owned":     {owned, false, true},
		"generated": {owned, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			sent := newPod("pod-" + name)
			if tc.generate {
				sent.Metadata.Name, sent.Metadata.GenerateName = "", "pod-"
			}
			before := proto.CloneOf(sent)
			created := must(tc.pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: sent}))(t)
			stored := must(c.getPod(created.Metadata.Name))(t)
			if same := stored.Metadata == sent.Metadata; same != tc.same {
				t.Errorf("stored as it was sent: %v, want %v", same, tc.same)
			}
			if !tc.same && !proto.Equal(sent, before) {
				t.Errorf("the sent pod has become %v", sent)
			}
		})
	}
}
