package host

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/rules/hostimage"
)

// imageOf drops what clients that normalise image names add to "host".
func imageOf(spec *runtimeapi.ImageSpec) string { return hostimage.Plain(spec.GetImage()) }

func noSuchImage(name string) error {
	return failed("image %q cannot be used: the host runtime knows only the image %q, the node's own filesystem; "+
		"for container images start monoplane with --runtime oci, or with --runtime-endpoint and the socket of containerd "+
		"or CRI-O", name, ImageName)
}

func hostImage() *runtimeapi.Image {
	return &runtimeapi.Image{Id: ImageName, RepoTags: []string{ImageName + ":latest"},
		Spec: &runtimeapi.ImageSpec{Image: ImageName}}
}

// ListImages implements CRI.
func (r *Runtime) ListImages(
	ctx context.Context, req *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	f := req.GetFilter().GetImage()
	out := &runtimeapi.ListImagesResponse{}
	if r.oci != nil && imageOf(f) != ImageName {
		var err error
		if out, err = r.oci.Service.ListImages(ctx, req); err != nil {
			return nil, err
		}
	}
	if name := imageOf(f); name == "" || name == ImageName {
		out.Images = append(out.Images, hostImage())
	}
	return out, nil
}

// ImageStatus implements CRI. An image that is absent is no error.
func (r *Runtime) ImageStatus(
	ctx context.Context, req *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	switch {
	case imageOf(req.GetImage()) == ImageName:
		return &runtimeapi.ImageStatusResponse{Image: hostImage()}, nil
	case r.oci == nil:
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return r.oci.Service.ImageStatus(ctx, req)
}

// PullImage implements CRI. There is nothing to pull for "host", from anywhere.
func (r *Runtime) PullImage(
	ctx context.Context, req *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	switch name := imageOf(req.GetImage()); {
	case name == ImageName:
		return &runtimeapi.PullImageResponse{ImageRef: ImageName}, nil
	case r.oci == nil:
		return nil, noSuchImage(name)
	}
	return r.oci.Service.PullImage(ctx, req)
}

// RemoveImage implements CRI. The image "host" cannot be removed; asking for it changes nothing.
func (r *Runtime) RemoveImage(
	ctx context.Context, req *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	if r.oci == nil || imageOf(req.GetImage()) == ImageName {
		return &runtimeapi.RemoveImageResponse{}, nil
	}
	return r.oci.Service.RemoveImage(ctx, req)
}

// ImageFsInfo implements CRI. The image "host" takes no room.
func (r *Runtime) ImageFsInfo(
	ctx context.Context, req *runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	if r.oci != nil {
		return r.oci.Service.ImageFsInfo(ctx, req)
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		Timestamp: now(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: r.dir},
		UsedBytes: &runtimeapi.UInt64Value{}, InodesUsed: &runtimeapi.UInt64Value{},
	}}}, nil
}
