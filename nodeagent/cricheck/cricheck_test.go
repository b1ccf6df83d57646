package cricheck_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/cricheck"
)

// says is a runtime that answers what it is told to.
type says struct {
	runtimeapi.RuntimeServiceClient
	runtimeapi.ImageServiceClient

	version    *runtimeapi.VersionResponse
	status     *runtimeapi.StatusResponse
	containers []*runtimeapi.Container
	container  *runtimeapi.ContainerStatusResponse
	box        *runtimeapi.PodSandboxStatusResponse
}

func (s says) Version(
	context.Context, *runtimeapi.VersionRequest, ...grpc.CallOption,
) (*runtimeapi.VersionResponse, error) {
	return s.version, nil
}

func (s says) Status(
	context.Context, *runtimeapi.StatusRequest, ...grpc.CallOption,
) (*runtimeapi.StatusResponse, error) {
	return s.status, nil
}

func (s says) ListContainers(
	context.Context, *runtimeapi.ListContainersRequest, ...grpc.CallOption,
) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: s.containers}, nil
}

func (s says) ContainerStatus(
	context.Context, *runtimeapi.ContainerStatusRequest, ...grpc.CallOption,
) (*runtimeapi.ContainerStatusResponse, error) {
	return s.container, nil
}

func (s says) PodSandboxStatus(
	context.Context, *runtimeapi.PodSandboxStatusRequest, ...grpc.CallOption,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	return s.box, nil
}

func (s says) RunPodSandbox(
	context.Context, *runtimeapi.RunPodSandboxRequest, ...grpc.CallOption,
) (*runtimeapi.RunPodSandboxResponse, error) {
	return &runtimeapi.RunPodSandboxResponse{}, nil
}

func (s says) CreateContainer(
	context.Context, *runtimeapi.CreateContainerRequest, ...grpc.CallOption,
) (*runtimeapi.CreateContainerResponse, error) {
	return &runtimeapi.CreateContainerResponse{}, nil
}

func (s says) PullImage(
	context.Context, *runtimeapi.PullImageRequest, ...grpc.CallOption,
) (*runtimeapi.PullImageResponse, error) {
	return &runtimeapi.PullImageResponse{}, nil
}

// What says nothing, or speaks of something else, is an error; the truth passes.
func TestAnswers(t *testing.T) {
	version := &runtimeapi.VersionResponse{Version: "0", RuntimeName: "r", RuntimeVersion: "1", RuntimeApiVersion: "v1"}
	ready := &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady}, {Type: runtimeapi.NetworkReady}}}}
	half := &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{
		Conditions: ready.GetStatus().GetConditions()[:1]}}
	for _, c := range []struct {
		name  string
		says  says
		wrong string
		ask   func(runtimeapi.RuntimeServiceClient, runtimeapi.ImageServiceClient) error
	}{
		{"a version", says{version: version}, "", askVersion},
		{"no version", says{version: &runtimeapi.VersionResponse{RuntimeName: "r"}}, "its version lacks some of",
			askVersion},
		{"its conditions", says{status: ready}, "", askStatus},
		{"no status", says{}, "its status lacks the condition ", askStatus},
		{"one condition", says{status: half}, "its status lacks the condition NetworkReady", askStatus},
		{"a list", says{containers: []*runtimeapi.Container{{Id: "a"}, {Id: "b"}}}, "", askList},
		{"one twice", says{containers: []*runtimeapi.Container{{Id: "a"}, {Id: "a"}}},
			`its list of containers has "a" twice`, askList},
		{"no id", says{containers: []*runtimeapi.Container{{}}}, "its list of containers has one without an id", askList},
		{"a container", says{container: &runtimeapi.ContainerStatusResponse{
			Status: &runtimeapi.ContainerStatus{Id: "a"}}}, "", askContainer},
		{"no container", says{}, `asked for container "a", it has answered with the status of ""`, askContainer},
		{"another sandbox", says{box: &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Id: "b"}}},
			`asked for sandbox "a", it has answered with the status of "b"`,
			func(r runtimeapi.RuntimeServiceClient, _ runtimeapi.ImageServiceClient) error {
				_, err := r.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: "a"})
				return err
			}},
		{"a sandbox without an id", says{}, "a sandbox was made and has no id",
			func(r runtimeapi.RuntimeServiceClient, _ runtimeapi.ImageServiceClient) error {
				_, err := r.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{})
				return err
			}},
		{"a container without an id", says{}, "a container was made and has no id",
			func(r runtimeapi.RuntimeServiceClient, _ runtimeapi.ImageServiceClient) error {
				_, err := r.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{})
				return err
			}},
		{"an image without a name", says{}, `image "i" was pulled and has no name`,
			func(_ runtimeapi.RuntimeServiceClient, i runtimeapi.ImageServiceClient) error {
				_, err := i.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "i"}})
				return err
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.ask(cricheck.Runtime(c.says), cricheck.Images(c.says))
			if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%v, want %q", err, c.wrong)
			}
		})
	}
}

func askVersion(r runtimeapi.RuntimeServiceClient, _ runtimeapi.ImageServiceClient) error {
	_, err := r.Version(context.Background(), &runtimeapi.VersionRequest{})
	return err
}

func askStatus(r runtimeapi.RuntimeServiceClient, _ runtimeapi.ImageServiceClient) error {
	_, err := r.Status(context.Background(), &runtimeapi.StatusRequest{})
	return err
}

func askList(r runtimeapi.RuntimeServiceClient, _ runtimeapi.ImageServiceClient) error {
	_, err := r.ListContainers(context.Background(), &runtimeapi.ListContainersRequest{})
	return err
}

func askContainer(r runtimeapi.RuntimeServiceClient, _ runtimeapi.ImageServiceClient) error {
	_, err := r.ContainerStatus(context.Background(), &runtimeapi.ContainerStatusRequest{ContainerId: "a"})
	return err
}
