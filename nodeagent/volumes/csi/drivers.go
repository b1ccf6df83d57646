// Package csi speaks to the drivers of storage that run on a node: the node service of the Container Storage
// Interface, over the sockets that drivers announce in the directory of registrations, as they do to Kubernetes' node
// agent.
//
//	<registry>/<name>.sock     the registration service of a driver: its name and where its own socket is
//	SetUp:   NodeStageVolume (where the driver wants it), NodePublishVolume
//	Release: NodeUnpublishVolume, NodeUnstageVolume with the last pod of the node
//
// Drivers are looked for when a volume needs one: there is no state, and a driver that was replaced is found. Every
// call has an end. Nothing is attached by a controller: VolumeAttachments are not served.
package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Drivers finds drivers. Registry is the directory in which they announce themselves.
type Drivers struct{ Registry string }

// How long a driver may take: to say who it is, and to do something.
const (
	askTimeout  = 5 * time.Second
	workTimeout = 100 * time.Second
)

// Volume is what a driver is asked to make usable for a pod.
type Volume struct {
	// Driver is the driver's name, Handle its own name for the volume.
	Driver, Handle string
	// Staging is the directory for what pods of the node share, Target where the pod's volume is to be.
	Staging, Target string
	// ReadOnly, FSType, Options and Mode say how it is to be mounted.
	ReadOnly bool
	FSType   string
	Options  []string
	Mode     spec.VolumeCapability_AccessMode_Mode
	// Group is the group that is to own the files, for drivers that give them to it themselves; empty for none.
	Group string
	// Context holds the volume's attributes and who the pod is.
	Context map[string]string
	// StageSecrets and PublishSecrets are the credentials.
	StageSecrets, PublishSecrets map[string]string
	// Ephemeral: the volume is made for the pod, and there is nothing to stage.
	Ephemeral bool
}

// SetUp makes a volume usable at its Target, and reports whether the driver gives it to the Group. It can be called
// again. Found is called before the driver is asked to do anything: what it fails with, SetUp fails with.
func (d Drivers) SetUp(ctx context.Context, v Volume, found func() error) (given bool, err error) {
	err = d.with(ctx, v.Driver, func(ctx context.Context, node spec.NodeClient) error {
		if err := found(); err != nil {
			return err
		}
		mount := &spec.VolumeCapability_MountVolume{FsType: v.FSType, MountFlags: v.Options}
		how := &spec.VolumeCapability{
			AccessMode: &spec.VolumeCapability_AccessMode{Mode: v.Mode},
			AccessType: &spec.VolumeCapability_Mount{Mount: mount},
		}
		can, err := capabilities(ctx, node)
		if err != nil {
			return err
		}
		if given = v.Group != "" && can[spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP]; given {
			mount.VolumeMountGroup = v.Group
		}
		request := &spec.NodePublishVolumeRequest{
			VolumeId: v.Handle, TargetPath: v.Target, VolumeCapability: how, Readonly: v.ReadOnly, VolumeContext: v.Context,
			Secrets: v.PublishSecrets,
		}
		if can[spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] && !v.Ephemeral {
			request.StagingTargetPath = v.Staging
			if err := os.MkdirAll(v.Staging, 0o750); err != nil {
				return err
			}
			_, err := node.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{
				VolumeId: v.Handle, StagingTargetPath: v.Staging, VolumeCapability: how, VolumeContext: v.Context,
				Secrets: v.StageSecrets,
			})
			if err != nil {
				return said("NodeStageVolume", err)
			}
		}
		if err := os.MkdirAll(filepath.Dir(v.Target), 0o750); err != nil { // the driver makes the target itself
			return err
		}
		_, err = node.NodePublishVolume(ctx, request)
		return said("NodePublishVolume", err)
	})
	return given, err
}

// Release takes a volume away from a pod, and from the node as well when the pod was the last that used it.
// Of what was never mounted a driver that is not there need not know.
func (d Drivers) Release(ctx context.Context, v Volume, last bool) error {
	err := d.with(ctx, v.Driver, func(ctx context.Context, node spec.NodeClient) error {
		_, err := node.NodeUnpublishVolume(ctx, &spec.NodeUnpublishVolumeRequest{
			VolumeId: v.Handle, TargetPath: v.Target,
		})
		if err != nil && status.Code(err) != codes.NotFound {
			return said("NodeUnpublishVolume", err)
		}
		if _, err := os.Lstat(v.Staging); v.Ephemeral || !last || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		_, err = node.NodeUnstageVolume(ctx, &spec.NodeUnstageVolumeRequest{
			VolumeId: v.Handle, StagingTargetPath: v.Staging,
		})
		if err != nil && status.Code(err) != codes.NotFound {
			return said("NodeUnstageVolume", err)
		}
		return nil
	})
	if errors.Is(err, errMissing) && v.unused(last) {
		return nil
	}
	return err
}

// unused reports whether no driver has mounted anything: it makes the target itself. Nothing can be removed where
// something is mounted, or lies.
func (v Volume) unused(last bool) bool {
	if _, err := os.Lstat(v.Target); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if v.Ephemeral || !last || v.Staging == "" {
		return true
	}
	err := os.Remove(v.Staging)
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

// errMissing means that no driver of that name answers.
var errMissing = errors.New("not found in the list of registered CSI drivers")

// capabilities returns what the driver can do.
func capabilities(ctx context.Context, node spec.NodeClient) (map[spec.NodeServiceCapability_RPC_Type]bool, error) {
	can, err := node.NodeGetCapabilities(ctx, &spec.NodeGetCapabilitiesRequest{})
	if err != nil {
		return nil, said("NodeGetCapabilities", err)
	}
	out := make(map[spec.NodeServiceCapability_RPC_Type]bool)
	for _, c := range can.GetCapabilities() {
		out[c.GetRpc().GetType()] = true
	}
	return out, nil
}

// said says which call failed; nil stays nil.
func said(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("rpc error from %s: code = %s: %s", call, status.Code(err), status.Convert(err).Message())
}

// with calls f with a connection to a driver.
func (d Drivers) with(ctx context.Context, name string, f func(context.Context, spec.NodeClient) error) error {
	endpoint, err := d.find(ctx, name)
	if err != nil {
		return err
	}
	conn, err := dial(endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	return f(ctx, spec.NewNodeClient(conn))
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// find returns the socket of a driver. Those that do not answer are passed over.
func (d Drivers) find(ctx context.Context, name string) (string, error) {
	missing := fmt.Errorf("driver name %s %w", name, errMissing)
	entries, err := os.ReadDir(d.Registry)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, entry := range entries {
		if entry.Type() != fs.ModeSocket || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		endpoint, err := d.ask(ctx, filepath.Join(d.Registry, entry.Name()), name)
		if err != nil {
			missing = fmt.Errorf("%w (%s does not answer: %s)", missing, entry.Name(), status.Convert(err).Message())
			continue
		}
		if endpoint != "" {
			return endpoint, nil
		}
	}
	return "", missing
}

// ask returns where the driver behind a registration is; empty when it is another.
func (d Drivers) ask(ctx context.Context, socket, name string) (string, error) {
	conn, err := dial(socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	client := registration.NewRegistrationClient(conn)
	info, err := client.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil || info.GetType() != registration.CSIPlugin || info.GetName() != name {
		return "", err
	}
	supported := false
	for _, v := range info.GetSupportedVersions() {
		supported = supported || strings.HasPrefix(strings.TrimPrefix(v, "v"), "1.")
	}
	told := &registration.RegistrationStatus{PluginRegistered: supported}
	if !supported {
		told.Error = "this agent speaks version 1 of the interface"
	}
	if _, err := client.NotifyRegistrationStatus(ctx, told); err != nil {
		return "", err
	}
	if !supported {
		return "", fmt.Errorf("the driver speaks versions %q, and none of 1.x", info.GetSupportedVersions())
	}
	endpoint := info.GetEndpoint()
	if endpoint == "" {
		endpoint = socket
	}
	return strings.TrimPrefix(endpoint, "unix://"), nil
}
