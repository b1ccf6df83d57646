package fake

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// nameOf is the image's name, without a tag that clients add to it.
func nameOf(spec *runtimeapi.ImageSpec) string { return strings.TrimSuffix(spec.GetImage(), ":latest") }

// ImageStatus implements runtimeapi.ImageServiceServer: every image but those named "missing..." is there.
func (r *Runtime) ImageStatus(
	_ context.Context, req *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	name := nameOf(req.GetImage())
	if strings.HasPrefix(name, "missing") {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: name, Spec: req.GetImage()}}, nil
}

// PullImage implements runtimeapi.ImageServiceServer: it fails as the annotation pull-error of the pod says,
// and for images named "missing...".
func (r *Runtime) PullImage(
	_ context.Context, req *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	name := nameOf(req.GetImage())
	if err := r.fault("PullImage", name); err != nil {
		return nil, err
	}
	if text := req.GetSandboxConfig().GetAnnotations()[Prefix+"pull-error"]; text != "" {
		return nil, status.Error(codes.Unknown, text)
	}
	if strings.HasPrefix(name, "missing") {
		return nil, status.Errorf(codes.NotFound, "image %q does not exist", name)
	}
	return &runtimeapi.PullImageResponse{ImageRef: name}, nil
}

// ListImages implements runtimeapi.ImageServiceServer; nothing is stored.
func (r *Runtime) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{}, nil
}

// RemoveImage implements runtimeapi.ImageServiceServer; nothing is stored.
func (r *Runtime) RemoveImage(
	context.Context, *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo implements runtimeapi.ImageServiceServer; nothing is stored.
func (r *Runtime) ImageFsInfo(
	context.Context, *runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{}, nil
}
