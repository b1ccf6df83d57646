package nodeagent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec"
	"monoplane.dev/internal/datadir"
)

// grantFile is the file in a pod's directory that says which resources the pod was granted last. It is there only
// once they were changed; before that the pod's status says enough. It is replaced as a whole, before anything is done
// about the grant.
const grantFile = "granted.json"

func (a *Agent) grantPath(uid string) string { return filepath.Join(a.cfg.PodsDir, uid, grantFile) }

// keepGrant writes down what p asks for. On a simulated machine the pod's status has to do.
func (a *Agent) keepGrant(p *corev1.Pod) error {
	if a.cfg.PodsDir == "" {
		return nil
	}
	path := a.grantPath(uidOf(p))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return datadir.Keep(path, datadir.Flushed, codec.AppendObject(nil, resourcesOnly(p)))
}

// keptGrant returns what keepGrant wrote down of the pod; nil when it has written nothing.
func (a *Agent) keptGrant(p *corev1.Pod) *corev1.Pod {
	if a.cfg.PodsDir == "" || p.GetStatus().GetStartTime() == nil {
		return nil // nothing is granted to a pod before it was admitted
	}
	text, err := os.ReadFile(a.grantPath(uidOf(p)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	kept := &corev1.Pod{}
	if err == nil {
		_, err = codec.DecodeObject(text, kept)
	}
	if err == nil && kept.GetMetadata().GetUid() != uidOf(p) {
		err = fmt.Errorf("it is of pod %q", kept.GetMetadata().GetUid())
	}
	if err != nil {
		a.cfg.Logger.Warn("it cannot be read what a pod was granted; its status is believed", "pod", name(p),
			"uid", uidOf(p), "error", err)
		return nil
	}
	return kept
}

// resourcesOnly returns a pod with nothing but the uid, the generation and the resources of p.
func resourcesOnly(p *corev1.Pod) *corev1.Pod {
	only := func(list []*corev1.Container) []*corev1.Container {
		var out []*corev1.Container
		for _, c := range list {
			out = append(out, &corev1.Container{Name: c.GetName(), Resources: c.GetResources()})
		}
		return out
	}
	return &corev1.Pod{Metadata: &metav1.ObjectMeta{
		Uid: uidOf(p), Generation: p.GetMetadata().GetGeneration(),
	}, Spec: &corev1.PodSpec{
		InitContainers: only(p.GetSpec().GetInitContainers()), Containers: only(p.GetSpec().GetContainers()),
		Resources: p.GetSpec().GetResources(),
	}}
}
