package nodeagent_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client/record"
)

// inRealWorld is inWorld with a machine that has a directory for pods, and with events.
func inRealWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	inWorld(t, func(w *world) {
		recorder := record.New(record.Config{Events: w.c.Events, Controller: "kubelet", Instance: nodeName})
		ctx, stop := context.WithCancel(w.t.Context())
		ended := make(chan error, 1)
		go func() { ended <- recorder.Run(ctx) }()
		defer func() { stop(); <-ended }()
		w.cfg.Simulated, w.cfg.Recorder, w.cfg.PodsDir = false, recorder, filepath.Join(t.TempDir(), "pods")
		f(w)
	})
}

// said reports whether there is a warning of the reason with the message.
func (w *world) said(reason, message string) bool {
	w.t.Helper()
	events, err := w.c.Events.List(w.t.Context(), &metav1.ListRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Reason == reason && e.Type == "Warning" && e.Message == message {
			return true
		}
	}
	return false
}

// mounted returns what pod a's container was given at a path.
func (w *world) mounted(path string) string {
	w.t.Helper()
	all, err := w.cfg.Runtime.ListContainers(w.t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil || len(all.GetContainers()) == 0 {
		w.t.Fatalf("containers %v, %v", all, err)
	}
	got, err := w.cfg.Runtime.ContainerStatus(w.t.Context(), &runtimeapi.ContainerStatusRequest{
		ContainerId: all.GetContainers()[0].GetId(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range got.GetStatus().GetMounts() {
		if m.GetContainerPath() == path {
			return m.GetHostPath()
		}
	}
	w.t.Fatalf("nothing is mounted at %s: %v", path, got.GetStatus().GetMounts())
	return ""
}

func (w *world) reads(path, want string) {
	w.t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		w.t.Errorf("%s has %q, %v, want %q", path, got, err, want)
	}
}

// with adds a volume that the container mounts at /NAME.
func with(v *corev1.Volume) podOption {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, v)
		c := p.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, &corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
}

func fromConfigMap(name, of string) *corev1.Volume {
	return &corev1.Volume{Name: name, VolumeSource: &corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: &corev1.LocalObjectReference{Name: of},
	}}}
}

func (w *world) createConfigMap(name, key, text string) {
	w.t.Helper()
	_, err := w.c.ConfigMaps.Create(w.t.Context(), &corev1rpc.CreateConfigMapRequest{Object: &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{key: text},
	}})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) updateConfigMap(name, key, text string) {
	w.t.Helper()
	_, err := w.c.ConfigMaps.Update(w.t.Context(), &corev1rpc.UpdateConfigMapRequest{Object: &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{key: text},
	}})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) home(p *corev1.Pod) string {
	return filepath.Join(w.cfg.PodsDir, p.GetMetadata().GetUid())
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// A pod whose volumes cannot be mounted is held before anything of it exists, says why, can be deleted, and runs as
// soon as what was missing is there.
// spec: VOL-1, SAFE-6
func TestPodWaitsForItsVolumes(t *testing.T) {
	inRealWorld(t, func(w *world) {
		w.start()
		a := w.create("a", with(fromConfigMap("x", "y")))
		w.create("b", with(fromConfigMap("x", "y")))
		w.settle()
		p := w.phase("a", "Pending")
		if got := p.GetStatus().GetContainerStatuses()[0].GetState().GetWaiting().GetReason(); got != "ContainerCreating" {
			w.t.Errorf("the container waits because of %q", got)
		}
		if !w.said("FailedMount", `MountVolume.SetUp failed for volume "x" : configmap "y" not found`) {
			w.t.Error("no event says why")
		}
		w.empty()
		w.delete("b", -1)
		w.settle()
		if w.get("b") != nil {
			w.t.Error("a pod that was held cannot be deleted")
		}
		w.createConfigMap("y", "k", "v")
		w.settle()
		w.phase("a", "Running")
		at := w.mounted("/x") + "/k"
		w.reads(at, "v")
		w.updateConfigMap("y", "k", "w")
		w.settle()
		w.reads(at, "w")
		w.delete("a", -1)
		w.settle()
		if w.get("a") != nil || !missing(w.home(a)) {
			w.t.Error("the pod or its directory is still there")
		}
	})
}

// A change reaches all pods of a node within two seconds.
func TestChangeReachesAHundredPods(t *testing.T) {
	inRealWorld(t, func(w *world) {
		w.start()
		w.createConfigMap("y", "k", "v")
		var homes []string
		for i := range 100 {
			homes = append(homes, w.home(w.create(fmt.Sprint("p", i), with(fromConfigMap("x", "y")))))
		}
		w.settle()
		w.settle()
		if n := w.runs(); n != 100 {
			w.t.Fatalf("%d containers run", n)
		}
		w.updateConfigMap("y", "k", "w")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for _, home := range homes {
			w.reads(filepath.Join(home, "volumes/kubernetes.io~configmap/x/k"), "w")
		}
	})
}

// On a simulated machine a pod with any volume runs; where the agent has no directory for pods, it waits.
func TestVolumesOfNoMachine(t *testing.T) {
	inRealWorld(t, func(w *world) {
		w.cfg.PodsDir = ""
		w.start()
		w.create("a", with(fromConfigMap("x", "y")))
		w.settle()
		w.phase("a", "Pending")
		if !w.said("FailedMount", "the agent has no directory for the volumes of pods: its PodsDir is not set") {
			w.t.Error("no event says why")
		}
	})
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", with(fromConfigMap("x", "y")))
		w.settle()
		w.phase("a", "Running")
	})
}

// What volumes show of the pod follows the pod's object, and an agent that comes back finds what it has missed. It
// takes away what pods left that ended meanwhile.
// spec: DOWN-2, DEL-7
func TestVolumesFollowThePod(t *testing.T) {
	inRealWorld(t, func(w *world) {
		w.start()
		labels := &corev1.Volume{Name: "x", VolumeSource: &corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []*corev1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
			},
		}}}
		a := w.create("a", with(labels), edit(func(p *corev1.Pod) { p.Metadata.Labels = map[string]string{"k": "1"} }))
		w.settle()
		at := w.mounted("/x") + "/labels"
		w.reads(at, `k="1"`)
		relabel := func(text string) {
			p := w.get("a").Clone()
			p.Metadata.Labels = map[string]string{"k": text, "l": "w"}
			if _, err := w.c.Pods.Update(w.t.Context(), &corev1rpc.UpdatePodRequest{Object: p}); err != nil {
				w.t.Fatal(err)
			}
		}
		relabel("2")
		w.settle()
		w.reads(at, "k=\"2\"\nl=\"w\"")
		w.kill()
		relabel("3")
		orphan := filepath.Join(w.cfg.PodsDir, "orphan")
		if err := os.MkdirAll(filepath.Join(orphan, "volumes", "p", "v"), 0o755); err != nil {
			w.t.Fatal(err)
		}
		w.start()
		w.settle()
		w.reads(at, "k=\"3\"\nl=\"w\"")
		if !missing(orphan) {
			w.t.Error("what a pod left is still there")
		}
		if missing(w.home(a)) {
			w.t.Error("the running pod's directory is gone")
		}
		w.delete("a", 0)
		w.settle()
		if !missing(w.home(a)) {
			w.t.Error("the pod's directory is still there")
		}
	})
}

// The volumes of a pod that has ended go while its object stays.
func TestVolumesEndWithThePod(t *testing.T) {
	inRealWorld(t, func(w *world) {
		w.start()
		w.createConfigMap("y", "k", "v")
		a := w.create("a", with(fromConfigMap("x", "y")), restart("Never"), annotated("exit-after", "5s"))
		w.settle()
		if missing(w.home(a)) {
			w.t.Error("the running pod has no directory")
		}
		time.Sleep(5 * time.Second)
		w.settle()
		w.phase("a", "Succeeded")
		if !missing(w.home(a)) {
			w.t.Error("the directory of the pod that has ended is still there")
		}
		w.updateConfigMap("y", "k", "w")
		w.delete("a", -1)
		w.settle()
		if w.get("a") != nil || !missing(w.home(a)) {
			w.t.Error("the pod or its directory is still there")
		}
	})
}

// A pod whose volume has grown beyond its limit is evicted, and an event says why, unless the system depends on it.
//
// spec: VOL-1
func TestFullVolumeEvictsItsPod(t *testing.T) {
	const want = `Usage of EmptyDir volume "x" exceeds the limit "64Ki". `
	for class, phase := range map[string]string{"": "Failed", "system-node-critical": "Running"} {
		inRealWorld(t, func(w *world) {
			w.start()
			w.create("a", with(&corev1.Volume{Name: "x", VolumeSource: &corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &metav1.Quantity{String_: "64Ki"}}}}),
				func(p *corev1.Pod) { p.Spec.PriorityClassName = class })
			w.settle()
			dir := w.mounted("/x")
			fill := func(kilobytes int) {
				if err := os.WriteFile(dir+"/f", []byte(strings.Repeat("x", kilobytes<<10)), 0o600); err != nil {
					w.t.Fatal(err)
				}
			}
			fill(40)
			time.Sleep(15 * time.Second)
			w.phase("a", "Running")
			fill(80)
			time.Sleep(15 * time.Second)
			w.settle()
			p := w.phase("a", phase)
			if phase == "Failed" && (p.Status.Reason != "Evicted" || p.Status.Message != want) {
				w.t.Errorf("reason %q, message %q", p.Status.Reason, p.Status.Message)
			}
			if w.said("Evicted", want) != (phase == "Failed") {
				w.t.Errorf("events of a pod of class %q: %q", class, w.events())
			}
		})
	}
}
