//go:build linux

package nodeagent

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/runtime/fake"
	"monoplane.dev/nodeagent/runtime/host"
)

// speaker is a runtime of which only its word about itself is wanted.
type speaker struct {
	runtimeapi.RuntimeServiceClient

	status func(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error)
}

func (s speaker) Status(
	ctx context.Context, req *runtimeapi.StatusRequest, _ ...grpc.CallOption,
) (*runtimeapi.StatusResponse, error) {
	return s.status(ctx, req)
}

// What a runtime can do for the volumes of pods is what it says of itself: the host runtime opens sub paths, and makes
// mounts read-only with what is below.
//
// spec: VOL-1
func TestWhatRuntimesSayOfMounts(t *testing.T) {
	dir := t.TempDir()
	on, err := host.New(host.Config{Dir: filepath.Join(dir, "runtime"), ClaimDir: filepath.Join(dir, "claims"),
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer on.Close()
	for name, c := range map[string]struct {
		runtime speaker
		want    bool
	}{
		"host":  {speaker{status: on.Status}, true},
		"other": {speaker{status: fake.New(fake.Config{}).Status}, false},
	} {
		j := job{agent: &Agent{cfg: Config{Runtime: c.runtime}}, pod: &corev1.Pod{}}
		if got := j.opensSubPaths(t.Context()); got != c.want {
			t.Errorf("%s opens sub paths: %v", name, got)
		}
		if got := j.makesReadOnly(t.Context()); got != c.want {
			t.Errorf("%s makes mounts read-only with what is below: %v", name, got)
		}
	}
}
