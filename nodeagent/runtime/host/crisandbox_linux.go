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
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// RunPodSandbox makes a sandbox and starts its shim. Asked again for metadata whose sandbox is ready, it returns that
// one; while one that is not ready has the metadata, it refuses.
func (r *Runtime) RunPodSandbox(
	ctx context.Context, req *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	config := req.GetConfig()
	if err := r.checkSandbox(config); err != nil {
		return nil, err
	}
	if h := req.GetRuntimeHandler(); h != "" {
		return nil, wrongState("no runtime handler %q is configured: the host runtime has none", h)
	}
	name := nameOf(config.GetMetadata())
	id, err := r.reserve(ctx, name)
	if id != "" || err != nil {
		return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, err
	}
	defer r.release(name)
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	sb := r.planSandbox(config, req.GetRuntimeHandler())
	claim, err := r.claim(ctx, sb)
	if err != nil {
		return nil, err
	}
	if claim != nil {
		defer claim.Close() // The shim's copy goes on holding it.
	}
	if err := r.makeSandbox(sb); err != nil {
		r.unclaimed(sb, claim)
		return nil, makingFailed("sandbox", err)
	}
	conn, ended, err := r.launch(ctx, sb, claim)
	if err != nil && ended {
		err = errors.Join(err, r.removeGroup(context.WithoutCancel(ctx), sb.rec.group),
			withdraw(filepath.Join(r.dir, podsDir), sb.id))
		r.unclaimed(sb, claim)
		return nil, failed("%v", err)
	}
	r.mu.Lock()
	r.sandboxes[sb.id] = sb
	sb.ending = err != nil
	if err == nil {
		r.publishLocked(sb, sb.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	}
	r.mu.Unlock()
	if err != nil {
		// A shim that cannot be killed holds its lock, so that it is neither forgotten nor taken for another one.
		r.start(func() { r.tend(sb) })
		return nil, failed("%v; its shim has not ended yet, and sandbox %s stays until it has", err, sb.id)
	}
	r.follow(sb, conn)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: sb.id}, nil
}

// unclaimed gives a claim back that was taken for nothing.
func (r *Runtime) unclaimed(sb *sandbox, claim *os.File) {
	if claim != nil {
		claim.Close()
		r.unclaim(sb)
	}
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
					return "", taken("sandbox %s of this pod and attempt exists and is not ready: remove it or use another attempt",
						sb.id)
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
			return "", callError(ctx.Err())
		}
	}
}

func (r *Runtime) release(name podName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.names[name])
	delete(r.names, name)
}

func (r *Runtime) planSandbox(config *runtimeapi.PodSandboxConfig, handler string) *sandbox {
	id, random := newID()
	return r.newSandbox(id, &sandboxRecord{
		config: proto.Clone(config).(*runtimeapi.PodSandboxConfig), createdAt: now(), bootID: r.bootID,
		marker: sys.NewMarker(random), group: r.cgroups.Pod(id), handler: handler,
		isolated: r.oci != nil,
	})
}

func (r *Runtime) makeSandbox(sb *sandbox) error {
	if dir := sb.rec.config.GetLogDirectory(); dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return publish(filepath.Join(r.dir, podsDir), sb.id, func(draft string) (err error) {
		if sb.rec.place, err = placeOf(draft); err != nil {
			return err
		}
		if err := os.Mkdir(filepath.Join(draft, shim.Containers), 0o700); err != nil {
			return err
		}
		if err := writeFiles(draft, sb.rec.config); err != nil {
			return err
		}
		return sb.rec.save(filepath.Join(draft, sandboxName))
	})
}

// StopPodSandbox kills whatever runs in the sandbox, ends its shim, and gives back its addresses and what its
// containers have written: none of them can be started again. It returns when nothing is left, or after StopMargin
// with an error that names what is: then the runtime goes on by itself. Stopping what does not exist or is stopped is
// no error.
//
// spec: SAFE-6, NET-1
func (r *Runtime) StopPodSandbox(
	ctx context.Context, req *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	r.mu.RLock()
	sb := r.sandboxes[req.GetPodSandboxId()]
	r.mu.RUnlock()
	if sb == nil {
		return &runtimeapi.StopPodSandboxResponse{}, nil
	}
	if err := r.stopSandbox(ctx, sb); err != nil {
		return nil, err
	}
	r.disconnect(ctx, sb)
	r.releaseRoots(ctx, sb)
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (r *Runtime) stopSandbox(ctx context.Context, sb *sandbox) error {
	if sb.isGone() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.bounds.margin, errOverdue)
	defer cancel()
	r.mu.Lock()
	sb.ending = true
	// A shim that answers and is busy killing is let work; its sandbox is ended without it all the same in the end.
	patience := r.bounds.margin / 2
	time.AfterFunc(patience, func() {
		r.start(func() {
			if sb.rec.damaged || sb.isGone() {
				return
			}
			if !r.alive(sb, patience/4) || !r.report(sb, r.livesOf(sb)) {
				r.condemn(sb, true)
			}
		})
	})
	r.mu.Unlock()
	err := r.askToEnd(ctx, sb)
	if err != nil && errors.Is(context.Cause(ctx), errOverdue) {
		return r.stuck(sb)
	}
	return callError(err)
}

// livesOf lists what lives in a sandbox besides its shim.
func (r *Runtime) livesOf(sb *sandbox) []sys.Proc {
	r.mu.RLock()
	list := sb.listLocked()
	r.mu.RUnlock()
	all, _ := r.leftovers(sb, list) // For the eyes of people.
	return slices.DeleteFunc(all, func(p sys.Proc) bool { return p.PID == sb.shim.PID })
}

func (r *Runtime) askToEnd(ctx context.Context, sb *sandbox) error {
	if sb.rec.damaged {
		select { // discard ends it.
		case <-sb.gone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for !sb.isGone() {
		conn, err := r.shimOf(ctx, sb)
		if err != nil {
			return err
		}
		if conn == nil {
			break
		}
		if _, err = conn.call(ctx, shimwire.Shutdown, nil); err != nil && !errors.Is(err, errConnLost) {
			return err
		}
		select { // The shim has exited, or this connection is not the one to wait for.
		case <-conn.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// RemovePodSandbox stops the sandbox if needed and removes it with its containers. Removing what does not exist is no
// error.
func (r *Runtime) RemovePodSandbox(
	ctx context.Context, req *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	r.mu.RLock()
	sb := r.sandboxes[req.GetPodSandboxId()]
	r.mu.RUnlock()
	if sb == nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	if err := r.stopSandbox(ctx, sb); err != nil {
		return nil, err
	}
	if err := r.leave(ctx, sb); err != nil {
		return nil, err
	}
	var err error
	if sb.rec.bootID == r.bootID { // Others have gone with their boot.
		err = r.removeGroup(ctx, sb.rec.group)
	}
	if err != nil {
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
	for _, id := range append(removed, sb.id) {
		r.publishLocked(sb, id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	r.mu.Unlock()
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// removeGroup removes what cgroups are left of a sandbox whose processes have ended. The kernel may call a group busy
// for a moment after its last process has gone.
func (r *Runtime) removeGroup(ctx context.Context, group sys.Cgroup) error {
	var pause sys.Pause
	for deadline := time.Now().Add(r.bounds.lock); ; pause.Wait() {
		err := group.Remove()
		if err == nil {
			_ = r.cgroups.Reserve() // too much does no harm, and the next pod says what is wrong
		}
		if err == nil || !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
	}
}

// PodSandboxStatus implements CRI. A host pod has the node's network, so there is no address of its own to report.
func (r *Runtime) PodSandboxStatus(
	_ context.Context, req *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	sb := r.sandboxes[req.GetPodSandboxId()]
	if sb == nil {
		return nil, notFound("sandbox", req.GetPodSandboxId())
	}
	resp := &runtimeapi.PodSandboxStatusResponse{Status: sb.statusLocked(), Timestamp: now()}
	if sb.trouble != "" {
		resp.Info = map[string]string{"left": sb.trouble}
	}
	for _, c := range sb.listLocked() {
		resp.ContainersStatuses = append(resp.ContainersStatuses, c.statusLocked())
	}
	return resp, nil
}

// ListPodSandbox implements CRI.
func (r *Runtime) ListPodSandbox(
	_ context.Context, req *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
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
