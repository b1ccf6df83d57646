package host

import (
	"context"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageOf drops what clients that normalise image names add to "host".
func imageOf(spec *runtimeapi.ImageSpec) string {
	name := spec.GetImage()
	name = strings.TrimPrefix(name, "docker.io/library/")
	return strings.TrimSuffix(name, ":latest")
}

func noSuchImage(name string) error {
	return failed("image %q cannot be used: the host runtime knows only the image %q, the node's own filesystem; "+
		"for container images start monoplane with --runtime-endpoint and the socket of containerd or CRI-O", name,
		ImageName)
}

func hostImage() *runtimeapi.Image {
	return &runtimeapi.Image{Id: ImageName, RepoTags: []string{ImageName + ":latest"},
		Spec: &runtimeapi.ImageSpec{Image: ImageName}}
}

// ListImages implements CRI.
func (r *Runtime) ListImages(
	_ context.Context, req *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	f := req.GetFilter().GetImage()
	if f.GetImage() != "" && imageOf(f) == ImageName {
		return &runtimeapi.ListImagesResponse{Images: []*runtimeapi.Image{hostImage()}}, nil
	}
	list, err := r.listImages(f.GetImage())
	if err != nil {
		return nil, err
	}
	if f.GetImage() == "" {
		list = append(list, hostImage())
	}
	return &runtimeapi.ListImagesResponse{Images: list}, nil
}

// ImageStatus implements CRI. Images other than "host" are absent, which is no error.
func (r *Runtime) ImageStatus(
	_ context.Context, req *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	if imageOf(req.GetImage()) != ImageName {
		return r.imageStatus(req.GetImage().GetImage())
	}
	return &runtimeapi.ImageStatusResponse{Image: hostImage()}, nil
}

// PullImage implements CRI. There is nothing to pull for "host", from anywhere.
func (r *Runtime) PullImage(
	ctx context.Context, req *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	if name := imageOf(req.GetImage()); name != ImageName {
		if r.oci == nil {
			return nil, noSuchImage(name)
		}
		return r.pull(ctx, req)
	}
	return &runtimeapi.PullImageResponse{ImageRef: ImageName}, nil
}

// RemoveImage implements CRI. The image "host" cannot be removed; asking for it changes nothing.
func (r *Runtime) RemoveImage(
	ctx context.Context, req *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	if r.oci != nil && imageOf(req.GetImage()) != ImageName {
		return r.removeImage(ctx, req.GetImage().GetImage())
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo implements CRI. The image "host" takes no room.
func (r *Runtime) ImageFsInfo(
	ctx context.Context, _ *runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	used, err := r.imageUsage(ctx)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		Timestamp: now(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: r.dir},
		UsedBytes:  &runtimeapi.UInt64Value{Value: uint64(used.Bytes)},
		InodesUsed: &runtimeapi.UInt64Value{Value: uint64(used.Inodes)},
	}}}, nil
}
