package host

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/images"
	"monoplane.dev/nodeagent/images/registry"
)

// listImages lists the images of the store, or the one of a name.
func (r *Runtime) listImages(name string) ([]*runtimeapi.Image, error) {
	if r.oci == nil {
		return nil, nil
	}
	if name != "" {
		image, err := r.oci.Images.Image(name)
		if errors.Is(err, images.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, imageError(err)
		}
		return []*runtimeapi.Image{criImage(image)}, nil
	}
	all, err := r.oci.Images.List()
	if err != nil {
		return nil, imageError(err)
	}
	var out []*runtimeapi.Image
	for _, i := range all {
		out = append(out, criImage(i))
	}
	return out, nil
}

// imageStatus finds an image; none is no error.
func (r *Runtime) imageStatus(name string) (*runtimeapi.ImageStatusResponse, error) {
	list, err := r.listImages(name)
	if err != nil || len(list) == 0 || name == "" {
		return &runtimeapi.ImageStatusResponse{}, err
	}
	return &runtimeapi.ImageStatusResponse{Image: list[0]}, nil
}

func criImage(i images.Image) *runtimeapi.Image {
	out := &runtimeapi.Image{Id: i.ID, RepoTags: i.Tags, RepoDigests: i.Digests, Size: uint64(i.Size), Pinned: i.Pinned,
		Spec: &runtimeapi.ImageSpec{Image: i.ID}}
	name, _, _ := strings.Cut(i.Config.User, ":")
	switch uid, err := strconv.ParseInt(name, 10, 64); {
	case name == "":
		out.Uid = &runtimeapi.Int64Value{}
	case err == nil:
		out.Uid = &runtimeapi.Int64Value{Value: uid}
	default:
		out.Username = name
	}
	return out
}

// pull gets an image from its registry.
func (r *Runtime) pull(
	ctx context.Context, req *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	var options images.PullOptions
	if a := req.GetAuth(); a != nil {
		options.Auth = &registry.Auth{Username: a.GetUsername(), Password: a.GetPassword(), Auth: a.GetAuth(),
			IdentityToken: a.GetIdentityToken(), RegistryToken: a.GetRegistryToken()}
	}
	image, err := r.oci.Images.Pull(ctx, req.GetImage().GetImage(), options)
	if err != nil {
		return nil, imageError(err)
	}
	return &runtimeapi.PullImageResponse{ImageRef: image.ID}, nil
}

// removeImage removes an image. One that is not there is no error.
func (r *Runtime) removeImage(ctx context.Context, name string) (*runtimeapi.RemoveImageResponse, error) {
	err := r.oci.Images.Remove(ctx, name)
	if err != nil && !errors.Is(err, images.ErrNotFound) {
		return nil, imageError(err)
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

func (r *Runtime) imageUsage(ctx context.Context) (images.Usage, error) {
	if r.oci == nil {
		return images.Usage{}, nil
	}
	used, err := r.oci.Images.Usage(ctx)
	return used, imageError(err)
}

// imageError gives an error of the store its code.
func imageError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, images.ErrNotFound):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, images.ErrInvalid):
		return badRequest("%v", err)
	case errors.Is(err, images.ErrInUse):
		return wrongState("%v", err)
	}
	return failed("%v", err)
}
