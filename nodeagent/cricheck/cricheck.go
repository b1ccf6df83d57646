// Package cricheck stands between the node agent and its runtime and turns answers that say nothing, or speak of
// something else than what was asked for, into errors. An error is tried again; such an answer, taken at its word,
// would mean that a container is gone that runs, and another would be started in its place.
//
// It guarantees that an answer without an error has the fields without which CRI has no meaning: ids, the conditions
// of the runtime, the names and versions by which it is known; and that a status is of what was asked for. It does not
// judge what they say: a runtime that tells a consistent lie is believed, as there is nobody else to ask.
package cricheck

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// nonsense is the error of an answer that cannot be used.
func nonsense(format string, args ...any) error {
	return status.Errorf(codes.Internal, "the container runtime's answer makes no sense: "+format, args...)
}

// Runtime returns a client that checks the answers of another.
func Runtime(c runtimeapi.RuntimeServiceClient) runtimeapi.RuntimeServiceClient { return runtime{c} }

// Images returns a client that checks the answers of another.
func Images(c runtimeapi.ImageServiceClient) runtimeapi.ImageServiceClient { return images{c} }

type runtime struct {
	runtimeapi.RuntimeServiceClient
}

// Version implements runtimeapi.RuntimeServiceClient.
func (r runtime) Version(
	ctx context.Context, req *runtimeapi.VersionRequest, opts ...grpc.CallOption,
) (*runtimeapi.VersionResponse, error) {
	v, err := r.RuntimeServiceClient.Version(ctx, req, opts...)
	if err == nil && (v.GetVersion() == "" || v.GetRuntimeName() == "" || v.GetRuntimeVersion() == "" ||
		v.GetRuntimeApiVersion() == "") {
		err = nonsense("its version lacks some of version, name, version of the runtime, version of the API: %v", v)
	}
	return v, err
}

// Status implements runtimeapi.RuntimeServiceClient.
func (r runtime) Status(
	ctx context.Context, req *runtimeapi.StatusRequest, opts ...grpc.CallOption,
) (*runtimeapi.StatusResponse, error) {
	got, err := r.RuntimeServiceClient.Status(ctx, req, opts...)
	if err != nil {
		return got, err
	}
	lacks := map[string]bool{runtimeapi.RuntimeReady: true, runtimeapi.NetworkReady: true}
	for _, c := range got.GetStatus().GetConditions() {
		delete(lacks, c.GetType())
	}
	for kind := range lacks {
		return got, nonsense("its status lacks the condition %s", kind)
	}
	return got, nil
}

// RunPodSandbox implements runtimeapi.RuntimeServiceClient.
func (r runtime) RunPodSandbox(
	ctx context.Context, req *runtimeapi.RunPodSandboxRequest, opts ...grpc.CallOption,
) (*runtimeapi.RunPodSandboxResponse, error) {
	got, err := r.RuntimeServiceClient.RunPodSandbox(ctx, req, opts...)
	if err == nil && got.GetPodSandboxId() == "" {
		err = nonsense("a sandbox was made and has no id")
	}
	return got, err
}

// PodSandboxStatus implements runtimeapi.RuntimeServiceClient.
func (r runtime) PodSandboxStatus(
	ctx context.Context, req *runtimeapi.PodSandboxStatusRequest, opts ...grpc.CallOption,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	got, err := r.RuntimeServiceClient.PodSandboxStatus(ctx, req, opts...)
	if id := got.GetStatus().GetId(); err == nil && id != req.GetPodSandboxId() {
		err = nonsense("asked for sandbox %q, it has answered with the status of %q", req.GetPodSandboxId(), id)
	}
	return got, err
}

// ListPodSandbox implements runtimeapi.RuntimeServiceClient.
func (r runtime) ListPodSandbox(
	ctx context.Context, req *runtimeapi.ListPodSandboxRequest, opts ...grpc.CallOption,
) (*runtimeapi.ListPodSandboxResponse, error) {
	got, err := r.RuntimeServiceClient.ListPodSandbox(ctx, req, opts...)
	if err == nil {
		err = distinct("sandboxes", got.GetItems())
	}
	return got, err
}

// CreateContainer implements runtimeapi.RuntimeServiceClient.
func (r runtime) CreateContainer(
	ctx context.Context, req *runtimeapi.CreateContainerRequest, opts ...grpc.CallOption,
) (*runtimeapi.CreateContainerResponse, error) {
	got, err := r.RuntimeServiceClient.CreateContainer(ctx, req, opts...)
	if err == nil && got.GetContainerId() == "" {
		err = nonsense("a container was made and has no id")
	}
	return got, err
}

// ContainerStatus implements runtimeapi.RuntimeServiceClient.
func (r runtime) ContainerStatus(
	ctx context.Context, req *runtimeapi.ContainerStatusRequest, opts ...grpc.CallOption,
) (*runtimeapi.ContainerStatusResponse, error) {
	got, err := r.RuntimeServiceClient.ContainerStatus(ctx, req, opts...)
	if id := got.GetStatus().GetId(); err == nil && id != req.GetContainerId() {
		err = nonsense("asked for container %q, it has answered with the status of %q", req.GetContainerId(), id)
	}
	return got, err
}

// ListContainers implements runtimeapi.RuntimeServiceClient.
func (r runtime) ListContainers(
	ctx context.Context, req *runtimeapi.ListContainersRequest, opts ...grpc.CallOption,
) (*runtimeapi.ListContainersResponse, error) {
	got, err := r.RuntimeServiceClient.ListContainers(ctx, req, opts...)
	if err == nil {
		err = distinct("containers", got.GetContainers())
	}
	return got, err
}

// distinct checks that the things of a list have ids, each its own.
func distinct[T interface{ GetId() string }](what string, list []T) error {
	seen := make(map[string]struct{}, len(list))
	for _, x := range list {
		id := x.GetId()
		if _, twice := seen[id]; twice {
			return nonsense("its list of %s has %q twice", what, id)
		}
		if id == "" {
			return nonsense("its list of %s has one without an id", what)
		}
		seen[id] = struct{}{}
	}
	return nil
}

type images struct{ runtimeapi.ImageServiceClient }

// PullImage implements runtimeapi.ImageServiceClient.
func (i images) PullImage(
	ctx context.Context, req *runtimeapi.PullImageRequest, opts ...grpc.CallOption,
) (*runtimeapi.PullImageResponse, error) {
	got, err := i.ImageServiceClient.PullImage(ctx, req, opts...)
	if err == nil && got.GetImageRef() == "" {
		err = nonsense("image %q was pulled and has no name", req.GetImage().GetImage())
	}
	return got, err
}
