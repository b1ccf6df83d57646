package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/nodeagent/volumes"
	"monoplane.dev/rules/resources"
)

// track keeps it known which ConfigMaps and Secrets the pod uses: before anything of it is started, and until nothing
// of it will run again. Life is how far the pod had come before a step. The caller holds the lock.
func (w *worker) track(in podstate.Input, life podstate.Life) {
	if w.m.Life() >= podstate.Stopped {
		if life < podstate.Stopped {
			w.agent.objects.Forget(w.uid)
		}
		return
	}
	switch in.(type) {
	case podstate.Start, podstate.Changed:
		w.agent.objects.Track(w.agent.withoutIdleVolumes(w.m.Pod()))
	}
}

// withoutIdleVolumes returns the pod without the volumes that nobody mounts, those of a simulated machine: what they
// refer to need not be known.
func (a *Agent) withoutIdleVolumes(p *corev1.Pod) *corev1.Pod {
	if !a.cfg.Simulated || len(p.GetSpec().GetVolumes()) == 0 {
		return p
	}
	spec := p.Spec.Shallow()
	spec.Volumes = nil
	return &corev1.Pod{Metadata: p.Metadata, Spec: spec}
}

// contentChanged tells pods that something which they use has changed, or is there at last.
func (a *Agent) contentChanged(uids []string) {
	for _, uid := range uids {
		if w := a.worker(uid); w != nil {
			w.post(podstate.ContentChanged{})
		}
	}
	a.refreshVolumes(uids...)
}

// content returns where the variables of the pod's containers come from.
func (j job) content(ctx context.Context) criconfig.Content {
	namespace := j.pod.GetMetadata().GetNamespace()
	return criconfig.Content{
		ConfigMap: func(name string) (*corev1.ConfigMap, error) {
			return j.agent.objects.ConfigMap(ctx, namespace, name)
		},
		Secret:   func(name string) (*corev1.Secret, error) { return j.agent.objects.Secret(ctx, namespace, name) },
		File:     j.volumeFile,
		Services: func() ([]*corev1.Service, error) { return j.services(ctx) },
		Allocatable: func() resources.List {
			return resources.ListOf(j.agent.nodeNow().GetStatus().GetAllocatable())
		},
		API: j.agent.cfg.APIServer, APIService: j.agent.cfg.APIService,
	}
}

// services returns the Services of the pod's namespace as they are now. They are asked for when a container starts,
// and not kept: the server has them in memory, and a watch, or a copy, on each node would cost more than it saves.
// Those that were there when the pod was written last are among them.
//
// Static pods start without the API: they do without Services then, as in Kubernetes.
func (j job) services(ctx context.Context) ([]*corev1.Service, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	meta := j.pod.GetMetadata()
	req := &metav1.ListRequest{Namespace: meta.GetNamespace(), ResourceVersion: meta.GetResourceVersion()}
	if j.static != nil {
		req.ResourceVersion = "0" // what a static pod has is no revision of the store
	}
	list, err := j.agent.cfg.Client.Services.List(ctx, req)
	switch {
	case err == nil:
		return list.GetItems(), nil
	case j.static != nil:
		return nil, nil
	default:
		return nil, apierrors.From(err)
	}
}

// maxVariables is the most that a file of variables may hold.
const maxVariables = 1 << 20

// volumeFile reads a file of an emptyDir volume of the pod. Containers may have put anything there: links that lead
// out of the volume are not followed, and what is no file is not waited for.
func (j job) volumeFile(volume, path string) ([]byte, error) {
	if j.homeDir() == "" {
		return nil, fs.ErrNotExist
	}
	dir, err := os.OpenRoot(volumes.EmptyDir(j.homeDir(), volume))
	if err != nil {
		return nil, hidePath(err)
	}
	defer dir.Close()
	f, err := dir.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, hidePath(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q is not a regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxVariables+1))
	if err == nil && len(text) > maxVariables {
		err = fmt.Errorf("%q has more than %d bytes", path, maxVariables)
	}
	return text, hidePath(err)
}

// hidePath leaves out of an error where on the machine the file is: users know it by its path in the volume.
func hidePath(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
