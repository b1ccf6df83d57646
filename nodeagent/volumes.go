package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/admission"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/eviction"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/nodeagent/tokens"
	"monoplane.dev/nodeagent/volumes"
	"monoplane.dev/rules/phase"
	"monoplane.dev/rules/resources"
)

// newVolumes returns what sees to the volumes of pods; nil on a simulated machine, where there is nothing to mount.
func (a *Agent) newVolumes() *volumes.Manager {
	if a.cfg.Simulated || a.cfg.PodsDir == "" {
		return nil
	}
	a.tokens = tokens.New(tokens.Config{Accounts: a.cfg.Client.ServiceAccounts, Logger: a.cfg.Logger})
	return volumes.New(volumes.Config{
		Dir: a.cfg.PodsDir, Objects: a.objects, Tokens: a.tokens, Logger: a.cfg.Logger,
		Allocatable: func() resources.List { return resources.ListOf(a.nodeNow().GetStatus().GetAllocatable()) },
		Due:         func(uid string) { a.refreshVolumes(uid) },
		RegistryDir: filepath.Join(filepath.Dir(a.cfg.PodsDir), "plugins_registry"),
		PluginsDir:  filepath.Join(filepath.Dir(a.cfg.PodsDir), "plugins"),
		Claims:      claims{a}, Node: a.nodeNow,
		LocalDir: a.cfg.VolumesDir, Remove: a.cfg.Remove,
		Give: a.cfg.Give, Measure: a.cfg.Measure,
		Kept: a.isKept,
		NotEnforced: func(p *corev1.Pod, message string) {
			a.cfg.Recorder.Event(p, record.Warning, "NotEnforced", "Starting", message)
		},
	})
}

// isKept reports whether a pod is never evicted.
func (a *Agent) isKept(p *corev1.Pod) bool {
	w := a.worker(uidOf(p))
	return admission.Critical(p, w != nil && w.static != nil)
}

// claims reads the claims of pods, and what they are bound to, from the API.
type claims struct{ a *Agent }

// Claim implements volumes.Claims.
func (c claims) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return c.a.cfg.Client.PersistentVolumeClaims.Get(ctx, &metav1.GetRequest{Namespace: namespace, Name: name})
}

// Volume implements volumes.Claims.
func (c claims) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return c.a.cfg.Client.PersistentVolumes.Get(ctx, &metav1.GetRequest{Name: name})
}

// setUpVolumes brings the pod's volumes to the node. A pod that has any is held until all of them are there, since to
// run it without its data could do harm.
func (j job) setUpVolumes(ctx context.Context) error {
	switch {
	case len(j.pod.GetSpec().GetVolumes()) == 0 || j.agent.cfg.Simulated:
		return nil
	case j.agent.volumes == nil:
		return errors.New("the agent has no directory for the volumes of pods: its PodsDir is not set")
	}
	return j.agent.volumes.SetUp(ctx, j.pod)
}

// mountVolumes adds what a container is given of the pod's volumes to its configuration.
func (j job) mountVolumes(
	ctx context.Context, c *corev1.Container, images map[string]*runtimeapi.ImageSpec, cfg *runtimeapi.ContainerConfig,
) error {
	if j.agent.volumes == nil {
		return nil
	}
	given, err := j.agent.volumes.Mounts(ctx, volumes.Starting{
		Pod: j.pod, Container: c, Images: images,
		Lookup: func(name string) (string, bool) {
			for _, v := range cfg.GetEnvs() {
				if v.GetKey() == name {
					return string(v.GetValue()), true
				}
			}
			return "", false
		},
		RecursiveReadOnly: func() bool { return j.makesReadOnly(ctx) },
		SubPaths:          func() bool { return j.opensSubPaths(ctx) },
	})
	if err != nil {
		return err
	}
	if refs := criconfig.VolumeImages(given.Mounts); refs != "" {
		cfg.Annotations[criconfig.AnnotationVolumeImages] = refs
	}
	cfg.Mounts = append(given.Mounts, cfg.Mounts...)
	cfg.Devices = append(given.Devices, cfg.Devices...)
	return nil
}

// limitStorage tells the runtime how much a container may write before its pod is evicted for it.
func (j job) limitStorage(c *corev1.Container, cfg *runtimeapi.ContainerConfig) {
	most, ok := eviction.ContainerStorageLimit(c)
	counts := slices.ContainsFunc(j.pod.GetSpec().GetContainers(), func(o *corev1.Container) bool {
		return o.GetName() == c.GetName()
	})
	if ok && counts && !j.agent.isKept(j.pod) {
		cfg.Annotations[criconfig.AnnotationStorageLimit] = strconv.FormatInt(most.Value(), 10)
	}
}

// makesReadOnly reports whether the runtime can make mounts read-only with all that is mounted below them.
func (j job) makesReadOnly(ctx context.Context) bool {
	handler, err := j.handler(ctx)
	if err != nil {
		return false
	}
	for _, h := range j.runtimeStatus(ctx).GetRuntimeHandlers() {
		if h.GetName() == handler {
			return h.GetFeatures().GetRecursiveReadOnlyMounts()
		}
	}
	return false
}

// opensSubPaths reports whether the runtime finds the way to a path below a mount's host path by itself.
func (j job) opensSubPaths(ctx context.Context) bool {
	return j.runtimeStatus(ctx).GetInfo()["opens_sub_paths"] == "host_path"
}

// runtimeStatus returns what the runtime says of itself; nothing when it does not answer.
func (j job) runtimeStatus(ctx context.Context) *runtimeapi.StatusResponse {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	says, err := j.agent.cfg.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return nil
	}
	return says
}

// takeVolumesDown takes away what the agent made for the pod but its logs.
func (j job) takeVolumesDown(ctx context.Context) error {
	if j.agent.volumes != nil {
		j.agent.tokens.Forget(uidOf(j.pod))
		err := j.agent.volumes.TearDown(ctx, uidOf(j.pod))
		if remove := j.agent.cfg.Remove; remove != nil && errors.Is(err, fs.ErrPermission) && j.homeDir() != "" {
			// Without root the agent mounts nothing there, so that this is what containers have written, and no more.
			if err = remove(ctx, filepath.Join(j.homeDir(), "volumes")); err == nil {
				err = j.agent.volumes.TearDown(ctx, uidOf(j.pod))
			}
		}
		return err
	}
	if dir := j.homeDir(); dir != "" {
		return os.RemoveAll(dir)
	}
	return nil
}

// endVolumes takes the volumes of a pod away that has ended for good, though its object stays: another pod may be
// waiting for what they hold. What cannot be taken away now is when the object goes. The caller holds the lock.
func (w *worker) endVolumes() {
	p := w.m.Pod()
	if w.volumesEnded || w.agent.volumes == nil || w.m.Life() != podstate.Stopped ||
		len(p.GetSpec().GetVolumes()) == 0 || !phase.Terminal(p) {
		return
	}
	w.volumesEnded = true
	j := w.job()
	w.agent.spawn(func(ctx context.Context) {
		if err := j.takeVolumesDown(ctx); err != nil {
			j.warn(ctx, "the volumes of a pod that has ended cannot be taken away", err)
		}
	})
}

// refreshVolumes brings the volumes of pods up to date with what they were written from.
func (a *Agent) refreshVolumes(uids ...string) {
	if a.volumes == nil {
		return
	}
	for _, uid := range uids {
		w := a.worker(uid)
		if w == nil {
			continue
		}
		var p *corev1.Pod
		w.look(func(m *podstate.StateMachine) {
			if !m.Empty() && len(m.Pod().GetSpec().GetVolumes()) > 0 {
				p = m.Pod()
			}
		})
		if p == nil {
			continue
		}
		a.spawn(func(ctx context.Context) {
			if err := a.volumes.Refresh(ctx, p); err != nil && ctx.Err() == nil {
				a.cfg.Recorder.Event(p, record.Warning, "FailedMount", "Running", err.Error())
			}
		})
	}
}

// refreshed reports whether a change of the pod's object changes what its volumes show.
func refreshed(was, now *corev1.Pod) bool {
	old, meta := was.GetMetadata(), now.GetMetadata()
	return len(now.GetSpec().GetVolumes()) > 0 && (!maps.Equal(old.GetLabels(), meta.GetLabels()) ||
		!maps.Equal(old.GetAnnotations(), meta.GetAnnotations()))
}

// comeBackToVolumes brings the volumes of all pods up to date, which may have missed changes while there was no agent,
// and takes away what pods have left that ended meanwhile.
func (a *Agent) comeBackToVolumes() {
	if a.volumes == nil {
		return
	}
	for _, w := range a.list() {
		a.refreshVolumes(w.uid)
	}
	entries, err := os.ReadDir(a.cfg.PodsDir)
	if err != nil {
		return // nothing was ever made there
	}
	for _, entry := range entries {
		uid := entry.Name()
		if !entry.IsDir() || a.worker(uid) != nil {
			continue
		}
		a.spawn(func(ctx context.Context) { a.takeOrphanDown(ctx, uid) })
	}
}

// takeOrphanDown takes away what a pod that is gone has left, for as long as it takes.
func (a *Agent) takeOrphanDown(ctx context.Context, uid string) {
	const most = 5 * time.Minute
	for wait := time.Second; a.worker(uid) == nil; wait = min(2*wait, most) {
		err := a.volumes.TearDown(ctx, uid)
		if err == nil || ctx.Err() != nil {
			return
		}
		a.cfg.Logger.Warn("what a pod that is gone had on the node cannot be removed", "uid", uid, "error", err)
		if !sleep(ctx, wait) {
			return
		}
	}
}

// limitInterval is the time between two looks at how much is in volumes with a limit.
const limitInterval = 10 * time.Second

// watchLimits evicts pods of which a volume on disk has grown beyond its limit.
func (a *Agent) watchLimits(ctx context.Context) error {
	unmeasured := trouble{what: "volumes with a limit cannot be measured as a whole", log: a.cfg.Logger}
	for sleep(ctx, limitInterval) {
		var failed []error
		for _, w := range a.list() {
			if p := w.pod(); volumes.Limited(p) && !admission.Critical(p, w.static != nil) {
				over, err := a.volumes.OverLimit(ctx, p)
				if over != "" {
					w.evict(p, podstate.Evict{Reason: eviction.Reason, Message: over, Grace: evictionGrace})
				}
				if err != nil {
					failed = append(failed, fmt.Errorf("pod %s: %w", name(p), err))
				}
			}
		}
		if ctx.Err() == nil {
			unmeasured.tell(errors.Join(failed...))
		}
	}
	return ctx.Err()
}

// evictionGrace is all the time that a pod has which has taken more than it may: a second, as Kubernetes gives.
const evictionGrace = time.Second
