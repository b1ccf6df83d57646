package host

import (
	"slices"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mostInPart is how many things a message of a list has that comes as a stream: with the annotations that some of them
// can have, as many as a message can carry (4 MiB; a pod's annotations take up to 256 KiB).
const mostInPart = 16

// inParts sends a list.
func inParts[T, M any](list []T, stream grpc.ServerStreamingServer[M], message func(part []T) *M) error {
	for part := range slices.Chunk(list, mostInPart) {
		if err := stream.Send(message(part)); err != nil {
			return err
		}
	}
	return nil
}

// StreamPodSandboxes implements CRI: ListPodSandbox in parts.
func (r *Runtime) StreamPodSandboxes(
	req *runtimeapi.StreamPodSandboxesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse],
) error {
	all, err := r.ListPodSandbox(stream.Context(), &runtimeapi.ListPodSandboxRequest{Filter: req.GetFilter()})
	if err != nil {
		return err
	}
	return inParts(all.GetItems(), stream, func(p []*runtimeapi.PodSandbox) *runtimeapi.StreamPodSandboxesResponse {
		return &runtimeapi.StreamPodSandboxesResponse{PodSandboxes: p}
	})
}

// StreamContainers implements CRI: ListContainers in parts.
func (r *Runtime) StreamContainers(
	req *runtimeapi.StreamContainersRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse],
) error {
	all, err := r.ListContainers(stream.Context(), &runtimeapi.ListContainersRequest{Filter: req.GetFilter()})
	if err != nil {
		return err
	}
	return inParts(all.GetContainers(), stream, func(p []*runtimeapi.Container) *runtimeapi.StreamContainersResponse {
		return &runtimeapi.StreamContainersResponse{Containers: p}
	})
}

// StreamContainerStats implements CRI: ListContainerStats in parts.
func (r *Runtime) StreamContainerStats(
	req *runtimeapi.StreamContainerStatsRequest,
	stream grpc.ServerStreamingServer[runtimeapi.StreamContainerStatsResponse],
) error {
	all, err := r.ListContainerStats(stream.Context(), &runtimeapi.ListContainerStatsRequest{Filter: req.GetFilter()})
	if err != nil {
		return err
	}
	return inParts(all.GetStats(), stream, func(p []*runtimeapi.ContainerStats) *runtimeapi.StreamContainerStatsResponse {
		return &runtimeapi.StreamContainerStatsResponse{ContainerStats: p}
	})
}

// StreamPodSandboxStats implements CRI: ListPodSandboxStats in parts.
func (r *Runtime) StreamPodSandboxStats(
	req *runtimeapi.StreamPodSandboxStatsRequest,
	stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxStatsResponse],
) error {
	all, err := r.ListPodSandboxStats(stream.Context(), &runtimeapi.ListPodSandboxStatsRequest{Filter: req.GetFilter()})
	if err != nil {
		return err
	}
	return inParts(all.GetStats(), stream,
		func(p []*runtimeapi.PodSandboxStats) *runtimeapi.StreamPodSandboxStatsResponse {
			return &runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: p}
		})
}

// StreamPodSandboxMetrics implements CRI: ListPodSandboxMetrics in parts.
func (r *Runtime) StreamPodSandboxMetrics(
	_ *runtimeapi.StreamPodSandboxMetricsRequest,
	stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxMetricsResponse],
) error {
	all, err := r.ListPodSandboxMetrics(stream.Context(), &runtimeapi.ListPodSandboxMetricsRequest{})
	if err != nil {
		return err
	}
	return inParts(all.GetPodMetrics(), stream,
		func(p []*runtimeapi.PodSandboxMetrics) *runtimeapi.StreamPodSandboxMetricsResponse {
			return &runtimeapi.StreamPodSandboxMetricsResponse{PodSandboxMetrics: p}
		})
}

// StreamImages implements CRI: ListImages in parts.
func (r *Runtime) StreamImages(
	req *runtimeapi.StreamImagesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamImagesResponse],
) error {
	all, err := r.ListImages(stream.Context(), &runtimeapi.ListImagesRequest{Filter: req.GetFilter()})
	if err != nil {
		return err
	}
	return inParts(all.GetImages(), stream, func(p []*runtimeapi.Image) *runtimeapi.StreamImagesResponse {
		return &runtimeapi.StreamImagesResponse{Images: p}
	})
}
