package host

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/oci/spec"
)

const (
	// checkpointName is the directory, below that of a container, in which its checkpoint is put together.
	checkpointName = "checkpoint"
	// checkpointTime is how long a checkpoint may take whose caller says nothing of that.
	checkpointTime = 2 * time.Minute
	// processName is where the helper has written the process as it was resolved against the image, in the bundle.
	processName = "process.json"
	criuName    = "criu"
)

// CheckpointContainer writes an archive of what the processes of a container are, and of the files that it has
// written, to a file that there is not yet; the container goes on running, whatever comes of it. With an error there
// is no file, and nothing else is left either.
func (r *Runtime) CheckpointContainer(
	ctx context.Context, req *runtimeapi.CheckpointContainerRequest,
) (*runtimeapi.CheckpointContainerResponse, error) {
	c, err := r.checkpointable(req)
	if err != nil {
		return nil, err
	}
	if exists(req.GetLocation()) {
		return nil, replacesNothing(req.GetLocation())
	}
	criu, err := exec.LookPath(r.criu)
	if err != nil {
		return nil, wrongState("checkpoints are made by CRIU, which this node lacks: %v; install it (Debian's package is "+
			"criu)", err)
	}
	if !c.checkpointing.TryLock() {
		return nil, wrongState("another checkpoint of container %s is being made", c.id)
	}
	defer c.checkpointing.Unlock()
	limit := seconds(req.GetTimeout())
	if limit == 0 {
		limit = checkpointTime
	}
	dir := filepath.Join(c.dir, checkpointName)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return nil, failed("the checkpoint of container %s: %v", c.id, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit+r.bounds.margin, errOverdue)
	defer cancel()
	err = r.dump(ctx, c, shimwire.CheckpointRequest{ContainerID: c.id, Dir: dir, Criu: criu, Timeout: int64(limit)})
	if err == nil {
		err = r.describe(c, dir)
	}
	if err == nil {
		err = writeArchive(ctx, dir, req.GetLocation())
	}
	if left := os.RemoveAll(dir); err == nil && left != nil {
		r.log.Warn("what a checkpoint was made of is left behind", "container", c.id, "error", left)
	}
	if err != nil {
		return nil, callError(err)
	}
	return &runtimeapi.CheckpointContainerResponse{}, nil
}

// checkpointable finds the container of a request, and refuses one of which there can be no checkpoint.
func (r *Runtime) checkpointable(req *runtimeapi.CheckpointContainerRequest) (*container, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c := r.containers[req.GetContainerId()]
	switch {
	case c == nil:
		return nil, notFound("container", req.GetContainerId())
	case !filepath.IsAbs(req.GetLocation()):
		return nil, badRequest("the location of a checkpoint must be an absolute path, not %q", req.GetLocation())
	case req.GetTimeout() < 0:
		return nil, badRequest("a checkpoint cannot have a timeout of %d seconds", req.GetTimeout())
	case c.rec.image == "":
		return nil, unimplemented("container %s runs on the machine's own files (image %q): there are checkpoints of "+
			"containers of images only", c.id, ImageName)
	case !isRoot():
		return nil, unimplemented("checkpoints are made by CRIU, which needs root, and monoplane runs as user %d",
			os.Geteuid())
	case c.state.Phase != shimwire.Running:
		return nil, wrongState("container %s is %s, and must be running for a checkpoint", c.id, c.stateLocked())
	case c.sb.version < shimwire.Checkpoints:
		return nil, wrongState("the pod was started by an older version of monoplane, whose shim knows no checkpoints: " +
			"delete the pod, and create it anew")
	}
	return c, nil
}

// dump has the shim write what the processes are. When this process dies, or the caller goes away, the shim learns it
// by the connection, and ends what it has begun; that it has, it tells by closing the descriptor that it was given.
func (r *Runtime) dump(ctx context.Context, c *container, req shimwire.CheckpointRequest) error {
	u, err := callShim(ctx, c.sb.dir)
	if err != nil {
		return unavailable("the shim cannot be reached: %v", err)
	}
	over, theirs, err := os.Pipe()
	if err != nil {
		u.Close()
		return err
	}
	defer over.Close()
	conn := newShimConn(u, r.bounds.send)
	go conn.read(func(shimwire.Container) {})
	b, err := conn.call(ctx, shimwire.Checkpoint, req.Encode(), int(theirs.Fd()))
	conn.conn.Close()
	<-conn.done
	theirs.Close()
	_ = over.SetReadDeadline(time.Now().Add(r.bounds.margin))
	_, _ = over.Read(make([]byte, 1))
	var reply shimwire.ExecReply
	if err == nil {
		err = reply.Decode(b)
	}
	switch {
	case err != nil:
		return err
	case reply.TimedOut:
		return timedOut("the checkpoint of container %s has taken longer than %v, and was given up; the container runs on",
			c.id, time.Duration(req.Timeout))
	case reply.Error != "":
		return wrongState("there is no checkpoint of container %s: %s", c.id, reply.Error)
	}
	return nil
}

// checkpointConfig is config.dump, as tools that read checkpoints know it.
type checkpointConfig struct {
	ID           string    `json:"id"`
	Name         string    `json:"name"`
	Image        string    `json:"rootfsImage,omitempty"`
	ImageRef     string    `json:"rootfsImageRef,omitempty"`
	ImageName    string    `json:"rootfsImageName,omitempty"`
	Runtime      string    `json:"runtime,omitempty"`
	Created      time.Time `json:"createdTime"`
	Checkpointed time.Time `json:"checkpointedTime"`
}

// describe writes beside the images of CRIU what the container is.
func (r *Runtime) describe(c *container, dir string) error {
	var b spec.Bundle
	if err := readJSON(filepath.Join(c.bundleDir(), spec.File), &b); err != nil {
		return err
	}
	b.Spec.Process = new(specs.Process)
	if err := readJSON(filepath.Join(c.bundleDir(), processName), b.Spec.Process); err != nil {
		return err
	}
	r.mu.RLock()
	st := c.statusLocked()
	r.mu.RUnlock()
	config := checkpointConfig{ID: c.id, Name: st.GetMetadata().GetName(), Image: st.GetImage().GetImage(),
		ImageRef: st.GetImageRef(), ImageName: st.GetImage().GetImage(), Runtime: r.name(),
		Created: time.Unix(0, st.GetCreatedAt()), Checkpointed: time.Now()}
	for name, what := range map[string]any{"config.dump": config, "spec.dump": b.Spec, "status.dump": st} {
		text, err := json.Marshal(what)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func readJSON(name string, into any) error {
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	return err
}

// writeArchive writes a directory to a new file, which has no name before it is on the disk, so that nothing is left
// of it when this process dies.
func writeArchive(ctx context.Context, dir, location string) error {
	parent := filepath.Dir(location)
	fd, err := unix.Open(parent, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return wrongState("a file for the checkpoint cannot be made in %s: %v", parent, err)
	}
	f := os.NewFile(uintptr(fd), location)
	defer f.Close()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		return addToArchive(ctx, w, dir, name, entry)
	})
	err = errors.Join(err, w.Close())
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("the checkpoint cannot be written to %s: %w", location, err)
	}
	err = unix.Linkat(unix.AT_FDCWD, procPath(f), unix.AT_FDCWD, location, unix.AT_SYMLINK_FOLLOW)
	if errors.Is(err, unix.EEXIST) {
		return replacesNothing(location)
	}
	if err == nil {
		err = syncDirectory(parent)
	}
	if err != nil {
		return fmt.Errorf("the checkpoint cannot be named %s: %w", location, err)
	}
	return nil
}

func replacesNothing(location string) error {
	return taken("%s exists, and a checkpoint replaces nothing", location)
}

func addToArchive(ctx context.Context, w *tar.Writer, dir, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	h, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return err
	}
	if h.Name, err = filepath.Rel(dir, name); err != nil {
		return err
	}
	if info.IsDir() {
		h.Name += "/"
	}
	if err := w.WriteHeader(h); err != nil || info.IsDir() {
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(w, patient{ctx, f}, h.Size)
	return err
}

// patient reads for as long as somebody waits for it.
type patient struct {
	ctx context.Context
	r   io.Reader
}

func (u patient) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, u.ctx.Err()
	}
	return u.r.Read(b)
}

func syncDirectory(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
