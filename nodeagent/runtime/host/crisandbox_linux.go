package host

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/sys"
	"monoplane.dev/nodeagent/runtime/host/wire"
)

// RunPodSandbox makes a sandbox and starts its shim. Asked again for metadata whose sandbox is ready, it returns that
// one; while one that is not ready has the metadata, it refuses.
func (r *Runtime) RunPodSandbox(ctx context.Context, req *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	config := req.GetConfig()
	if err := checkSandbox(config); err != nil {
		return nil, err
	}
	name := nameOf(config.GetMetadata())
	id, err := r.reserve(ctx, name)
	if id != "" || err != nil {
		return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, err
	}
	defer r.release(name)
	sb, err := r.makeSandbox(config, req.GetRuntimeHandler())
	if err != nil {
		return nil, failed("cannot make the sandbox: %v", err)
	}
	conn, err := r.launch(ctx, sb)
	if err != nil {
		return nil, failed("%v", errors.Join(err, sb.rec.group.Remove(), withdraw(filepath.Join(r.dir, podsDir), sb.id)))
	}
	r.mu.Lock()
	r.sandboxes[sb.id] = sb
	r.mu.Unlock()
	r.follow(sb, conn)
	r.publish(sb, sb.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: sb.id}, nil
}

// reserve keeps others from making a sandbox of the same name until release. It returns the ID of one that is ready.
func (r *Runtime) reserve(ctx context.Context, name podName) (id string, err error) {
	for {
		r.mu.Lock()
		busy := r.names[name]
		if busy == nil {
			defer r.mu.Unlock()
			for _, sb := range r.sandboxes {
				if nameOf(sb.rec.config.GetMetadata()) != name {
					continue
				}
				if !sb.readyLocked() {
					return "", taken("sandbox %s of this pod and attempt exists and is not ready: remove it or use another attempt", sb.id)
				}
				return sb.id, nil
			}
			r.names[name] = make(chan struct{})
			return "", nil
		}
		r.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func (r *Runtime) release(name podName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.names[name])
	delete(r.names, name)
}

func (r *Runtime) makeSandbox(config *runtimeapi.PodSandboxConfig, handler string) (*sandbox, error) {
	id, random := newID()
	rec := &sandboxRecord{
		config: proto.Clone(config).(*runtimeapi.PodSandboxConfig), createdAt: now(), bootID: r.bootID,
		marker: sys.NewMarker(random), group: r.cgroups.Pod(id), handler: handler,
	}
	sb := r.newSandbox(id, rec)
	if dir := config.GetLogDirectory(); dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	return sb, publish(filepath.Join(r.dir, podsDir), id, func(draft string) error {
		if err := os.Mkdir(filepath.Join(draft, shim.Containers), 0o700); err != nil {
			return err
		}
		return rec.save(filepath.Join(draft, sandboxName))
	})
}

// StopPodSandbox kills whatever runs in the sandbox and ends its shim. It returns when nothing is left. Stopping what
// does not exist or is stopped is no error.
func (r *Runtime) StopPodSandbox(ctx context.Context, req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	r.mu.RLock()
	sb := r.sandboxes[req.GetPodSandboxId()]
	r.mu.RUnlock()
	if sb == nil {
		return &runtimeapi.StopPodSandboxResponse{}, nil
	}
	if err := r.stopSandbox(ctx, sb); err != nil {
		return nil, err
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (r *Runtime) stopSandbox(ctx context.Context, sb *sandbox) error {
	for !sb.isGone() {
		conn, err := r.answering(ctx, sb)
		if err != nil {
			return err
		}
		if conn == nil {
			break
		}
		r.mu.Lock()
		sb.ending = true
		r.mu.Unlock()
		if _, err = conn.call(ctx, wire.Shutdown, nil); err == nil {
			r.mu.Lock()
			sb.orderly = true
			r.mu.Unlock()
		} else if !errors.Is(err, errConnLost) {
			return err
		}
		select { // The shim has exited, or this connection is not the one to wait for.
		case <-conn.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case <-sb.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.closing.Done():
		return unavailable("the runtime is closing")
	}
}

// answering returns a connection whose shim has just answered; nil when the sandbox is gone. A shim that does not
// answer in time is killed: the only use of this is to end it.
func (r *Runtime) answering(ctx context.Context, sb *sandbox) (*shimConn, error) {
	patient, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	conn, err := r.shimOf(patient, sb)
	if err == nil && conn == nil {
		return nil, nil
	}
	if err == nil {
		if _, err = conn.hello(patient, wire.Hello, nil); err == nil || errors.Is(err, errConnLost) {
			return conn, nil
		}
	}
	if ctx.Err() == nil && r.closing.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		r.endShim(sb)
		return r.shimOf(ctx, sb)
	}
	return nil, err
}

// RemovePodSandbox stops the sandbox if needed and removes it with its containers. Removing what does not exist is no
// error.
func (r *Runtime) RemovePodSandbox(ctx context.Context, req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	r.mu.RLock()
	sb := r.sandboxes[req.GetPodSandboxId()]
	r.mu.RUnlock()
	if sb == nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	if err := r.stopSandbox(ctx, sb); err != nil {
		return nil, err
	}
	if err := r.removeGroup(ctx, sb); err != nil {
		return nil, failed("cannot remove the sandbox's cgroup: %v", err)
	}
	if err := withdraw(filepath.Join(r.dir, podsDir), sb.id); err != nil {
		return nil, failed("cannot remove the sandbox: %v", err)
	}
	r.mu.Lock()
	var removed []string
	for _, c := range sb.listLocked() {
		removed = append(removed, c.id)
		r.dropLocked(c)
	}
	delete(r.sandboxes, sb.id)
	r.mu.Unlock()
	for _, id := range append(removed, sb.id) {
		r.publish(sb, id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// removeGroup removes what cgroups are left of a sandbox of this boot. The kernel may call a group busy for a moment
// after its last process has gone.
func (r *Runtime) removeGroup(ctx context.Context, sb *sandbox) error {
	if sb.rec.bootID != r.bootID {
		return nil
	}
	var pause sys.Pause
	for deadline := time.Now().Add(lockTime); ; pause.Wait() {
		err := sb.rec.group.Remove()
		if err == nil || !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
	}
}

// PodSandboxStatus implements CRI. A host pod has the node's network, so there is no address of its own to report.
func (r *Runtime) PodSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	sb := r.sandboxes[req.GetPodSandboxId()]
	if sb == nil {
		return nil, notFound("sandbox", req.GetPodSandboxId())
	}
	resp := &runtimeapi.PodSandboxStatusResponse{Status: sb.statusLocked(), Timestamp: now()}
	for _, c := range sb.listLocked() {
		resp.ContainersStatuses = append(resp.ContainersStatuses, c.statusLocked())
	}
	return resp, nil
}

// ListPodSandbox implements CRI.
func (r *Runtime) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	f := req.GetFilter()
	resp := &runtimeapi.ListPodSandboxResponse{}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, sb := range r.sandboxes {
		if f.GetId() != "" && f.GetId() != sb.id ||
			f.GetState() != nil && f.GetState().GetState() != sb.stateLocked() ||
			!labelsMatch(sb.rec.config.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		st := sb.statusLocked()
		resp.Items = append(resp.Items, &runtimeapi.PodSandbox{
			Id: sb.id, Metadata: st.GetMetadata(), State: st.GetState(), CreatedAt: st.GetCreatedAt(),
			Labels: st.GetLabels(), Annotations: st.GetAnnotations(), RuntimeHandler: sb.rec.handler,
		})
	}
	slices.SortFunc(resp.Items, func(a, b *runtimeapi.PodSandbox) int { // Newest first, as kubelets expect.
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.Id, b.Id))
	})
	return resp, nil
}
