// Package cri serves CRI's ImageService from a store of images. The runtime that runs containers of these images
// embeds it.
//
// Images are known by the digests of their configurations; any name of an image stands for it. Errors have the codes
// by which CRI tells kinds apart: NotFound for an image that the registry does not have, Unauthenticated for
// credentials that it does not accept, ResourceExhausted for a full disk. A registry that does not answer is the word
// RegistryUnavailable at the beginning of the message, from which the agent makes the reason why a container waits.
package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/images"
	"monoplane.dev/nodeagent/images/registry"
	"monoplane.dev/nodeagent/images/unpack"
)

// Service implements runtimeapi.ImageServiceServer.
type Service struct {
	runtimeapi.UnimplementedImageServiceServer

	store *images.Store
	now   func() time.Time
}

// New returns a service for a store, which stays the caller's to close. Now is the clock; time.Now if nil.
func New(store *images.Store, now func() time.Time) *Service {
	if now == nil {
		now = time.Now
	}
	return &Service{store: store, now: now}
}

// ListImages implements CRI.
func (s *Service) ListImages(
	_ context.Context, req *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	if name := req.GetFilter().GetImage().GetImage(); name != "" {
		img, err := s.store.Image(name)
		if errors.Is(err, images.ErrNotFound) {
			return &runtimeapi.ListImagesResponse{}, nil
		}
		if err != nil {
			return nil, failed(err)
		}
		return &runtimeapi.ListImagesResponse{Images: []*runtimeapi.Image{imageOf(img)}}, nil
	}
	all, err := s.store.List()
	if err != nil {
		return nil, failed(err)
	}
	out := &runtimeapi.ListImagesResponse{}
	for _, img := range all {
		out.Images = append(out.Images, imageOf(img))
	}
	return out, nil
}

// ImageStatus implements CRI. An image that is not there is no error.
func (s *Service) ImageStatus(
	_ context.Context, req *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	img, err := s.store.Image(req.GetImage().GetImage())
	if errors.Is(err, images.ErrNotFound) {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	if err != nil {
		return nil, failed(err)
	}
	out := &runtimeapi.ImageStatusResponse{Image: imageOf(img)}
	if !req.GetVerbose() {
		return out, nil
	}
	spec, err := s.store.RawConfig(img.ID)
	if err != nil {
		return nil, failed(err)
	}
	info, err := json.Marshal(struct {
		ImageSpec json.RawMessage `json:"imageSpec"`
		Layers    []string        `json:"layers"`
	}{spec, img.Layers})
	if err != nil {
		return nil, failed(err)
	}
	out.Info = map[string]string{"info": string(info)}
	return out, nil
}

// PullImage implements CRI. It returns the image's id.
func (s *Service) PullImage(
	ctx context.Context, req *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	var auth *registry.Auth
	if a := req.GetAuth(); a != nil {
		auth = &registry.Auth{
			Username: a.GetUsername(), Password: a.GetPassword(), Auth: a.GetAuth(),
			IdentityToken: a.GetIdentityToken(), RegistryToken: a.GetRegistryToken(),
		}
	}
	img, err := s.store.Pull(ctx, req.GetImage().GetImage(), images.PullOptions{Auth: auth})
	if err != nil {
		return nil, failed(err)
	}
	return &runtimeapi.PullImageResponse{ImageRef: img.ID}, nil
}

// RemoveImage implements CRI: the image goes with all its names. It is no error if it is not there. One of which a
// container is made stays: FailedPrecondition.
func (s *Service) RemoveImage(
	ctx context.Context, req *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	img, err := s.store.Image(req.GetImage().GetImage())
	if err == nil {
		err = s.store.Remove(ctx, img.ID)
	}
	if err != nil && !errors.Is(err, images.ErrNotFound) {
		return nil, failed(err)
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo implements CRI. Images and what containers write are on one file system.
func (s *Service) ImageFsInfo(
	ctx context.Context, _ *runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	used, err := s.store.Usage(ctx)
	if err != nil {
		return nil, failed(err)
	}
	all := []*runtimeapi.FilesystemUsage{{
		Timestamp: s.now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: s.store.Dir()},
		UsedBytes:  &runtimeapi.UInt64Value{Value: uint64(used.Bytes)},
		InodesUsed: &runtimeapi.UInt64Value{Value: uint64(used.Inodes)},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: all, ContainerFilesystems: all}, nil
}

func imageOf(img images.Image) *runtimeapi.Image {
	out := &runtimeapi.Image{
		Id: img.ID, RepoTags: img.Tags, RepoDigests: img.Digests, Size: uint64(max(1, img.Size)),
		Pinned: img.Pinned || img.Loaded(), // Who makes room is to leave what nobody can pull again.
		Spec:   &runtimeapi.ImageSpec{Image: img.ID},
	}
	user, _, _ := strings.Cut(img.Config.User, ":")
	if uid, err := strconv.ParseInt(user, 10, 64); err == nil {
		out.Uid = &runtimeapi.Int64Value{Value: uid}
	} else {
		out.Username = user
	}
	return out
}

// failed gives an error the code by which CRI knows its kind. The registry's word on access counts before its word
// on whether there is something: many do not tell.
func failed(err error) error {
	code, message := codes.Unknown, err.Error()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, registry.ErrUnauthorized):
		code = codes.Unauthenticated
		message = "pull access denied, repository does not exist or may require authorization: " + message
	case errors.Is(err, images.ErrNotFound), errors.Is(err, registry.ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, registry.ErrUnavailable), errors.Is(err, registry.ErrTooManyRequests):
		message = fmt.Sprintf("RegistryUnavailable: %s", message)
	case errors.Is(err, images.ErrInvalid), errors.Is(err, registry.ErrWrong), errors.Is(err, registry.ErrRefused):
		code = codes.InvalidArgument
	case errors.Is(err, images.ErrInUse):
		code = codes.FailedPrecondition
	case errors.Is(err, unpack.ErrNoRoom):
		code = codes.ResourceExhausted
	}
	return status.Error(code, message)
}
