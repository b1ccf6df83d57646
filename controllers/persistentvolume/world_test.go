package persistentvolume_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	storagev1 "monoplane.dev/api/storage/v1"
	storagev1rpc "monoplane.dev/api/storage/v1/rpc"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/localvolume"
	"monoplane.dev/controllers/persistentvolume"
	"monoplane.dev/controllers/test/controllertest"
	"monoplane.dev/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is the controllers of volumes on a server in a bubble of virtual time.
type world struct {
	*testing.T
	server   *apitest.Server
	c        *client.Client
	registry *prometheus.Registry

	mu sync.Mutex
	// removed are the directories that agents were asked to remove, and refused is what they answer.
	removed []string
	refused error
}

func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: apitest.Start(t), registry: prometheus.NewRegistry()}
		w.c = w.server.Admin()
		w.server.Namespaces(t, "ns")
		defer w.start()()
		f(w)
	})
}

func (w *world) start() (stop func()) {
	w.Helper()
	shared := controller.NewShared(w.server.Controller(controller.SharedRole().Name), nil)
	c, err := persistentvolume.New(persistentvolume.Config{Client: w.server.Controller("persistentvolume"),
		Shared: shared, Registerer: w.registry, Directory: "/volumes"})
	w.must(err)
	ends, err := localvolume.New(localvolume.Config{Client: w.server.Controller("localvolume"),
		RemoveVolume: func(_ context.Context, node, volume string) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.removed = append(w.removed, node+" "+volume)
			return w.refused
		}})
	w.must(err)
	if c.Ready() == nil || ends.Ready() == nil {
		w.Error("ready before it ran")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- controllertest.Run(ctx, shared, c) }()
	go func() { done <- ends.Run(ctx) }()
	synctest.Wait()
	w.must(c.Ready())
	w.must(ends.Ready())
	return func() {
		cancel()
		for range 2 {
			if err := <-done; !errors.Is(err, context.Canceled) {
				w.Errorf("Run ended with %v", err)
			}
		}
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// newVolume reads words: size modes class, and what change does.
func newVolume(name, size, modes, class string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		Metadata: &metav1.ObjectMeta{Name: name, Finalizers: []string{"kubernetes.io/pv-protection"}},
		Spec: &corev1.PersistentVolumeSpec{
			Capacity: map[string]*metav1.Quantity{"storage": {String_: size}}, AccessModes: strings.Fields(long(modes)),
			StorageClassName:              class,
			PersistentVolumeReclaimPolicy: "Retain",
			PersistentVolumeSource: &corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/" +
				name}},
		},
	}
	for _, f := range change {
		f(v)
	}
	return v
}

func newClaim(
	name, size, modes, class string, change ...func(*corev1.PersistentVolumeClaim),
) *corev1.PersistentVolumeClaim {
	o := &corev1.PersistentVolumeClaim{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, Finalizers: []string{"kubernetes.io/pvc-protection"}},
		Spec: &corev1.PersistentVolumeClaimSpec{
			Resources:   &corev1.VolumeResourceRequirements{Requests: map[string]*metav1.Quantity{"storage": {String_: size}}},
			AccessModes: strings.Fields(long(modes)), StorageClassName: &class,
		},
	}
	for _, f := range change {
		f(o)
	}
	return o
}

// long turns "RWO,ROX" into the access modes' names.
func long(modes string) string {
	return strings.NewReplacer(
		"RWOP", "ReadWriteOncePod", "RWO", "ReadWriteOnce", "ROX", "ReadOnlyMany", "RWX", "ReadWriteMany", ",", " ",
	).Replace(modes)
}

func newClass(name, provisioner, mode string, change ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	o := &storagev1.StorageClass{Metadata: &metav1.ObjectMeta{Name: name}, Provisioner: provisioner,
		VolumeBindingMode: &mode}
	for _, f := range change {
		f(o)
	}
	return o
}

func (w *world) addVolume(v *corev1.PersistentVolume) {
	w.Helper()
	_, err := w.c.PersistentVolumes.Create(context.Background(), &corev1rpc.CreatePersistentVolumeRequest{Object: v})
	w.must(err)
}

func (w *world) addClaim(o *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	w.Helper()
	o, err := w.c.PersistentVolumeClaims.Create(context.Background(),
		&corev1rpc.CreatePersistentVolumeClaimRequest{Namespace: "ns", Object: o})
	w.must(err)
	return o
}

func (w *world) addClass(o *storagev1.StorageClass) {
	w.Helper()
	_, err := w.c.StorageClasses.Create(context.Background(), &storagev1rpc.CreateStorageClassRequest{Object: o})
	w.must(err)
}

func (w *world) addNode(name string) {
	w.Helper()
	_, err := w.c.Nodes.Create(context.Background(), &corev1rpc.CreateNodeRequest{Object: &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": "host-" + name}},
	}})
	w.must(err)
}

func (w *world) addPod(name, node, claim string) {
	w.Helper()
	_, err := w.c.Pods.Create(context.Background(), &corev1rpc.CreatePodRequest{Namespace: "ns", Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: &corev1.PodSpec{NodeName: node, Containers: []*corev1.Container{{Name: "main", Image: "host"}},
			Volumes: []*corev1.Volume{{Name: "v", VolumeSource: &corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}}},
	}})
	w.must(err)
}

// endPod ends a pod as the agent of its node does.
func (w *world) endPod(name, phase string) {
	w.Helper()
	p, err := w.c.Pods.Get(context.Background(), &metav1.GetRequest{Namespace: "ns", Name: name})
	w.must(err)
	p = object.Clone(p)
	p.Status = &corev1.PodStatus{Phase: phase}
	_, err = w.server.Agent(p.Spec.NodeName).Pods.UpdateStatus(context.Background(),
		&corev1rpc.UpdatePodRequest{Object: p})
	w.must(err)
}

// volume and claim return an object as it is when everything has settled; nil when it is gone.
func (w *world) volume(name string) *corev1.PersistentVolume {
	w.Helper()
	synctest.Wait()
	v, err := w.c.PersistentVolumes.Get(context.Background(), &metav1.GetRequest{Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil
	}
	w.must(err)
	return v
}

func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	w.Helper()
	synctest.Wait()
	o, err := w.c.PersistentVolumeClaims.Get(context.Background(), &metav1.GetRequest{Namespace: "ns", Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return nil
	}
	w.must(err)
	return o
}

func (w *world) setVolume(name string, change func(*corev1.PersistentVolume)) {
	w.Helper()
	v := object.Clone(w.volume(name))
	change(v)
	_, err := w.c.PersistentVolumes.Update(context.Background(), &corev1rpc.UpdatePersistentVolumeRequest{Object: v})
	w.must(err)
}

func (w *world) setClaim(name string, change func(*corev1.PersistentVolumeClaim)) {
	w.Helper()
	o := object.Clone(w.claim(name))
	change(o)
	_, err := w.c.PersistentVolumeClaims.Update(context.Background(),
		&corev1rpc.UpdatePersistentVolumeClaimRequest{Object: o})
	w.must(err)
}

func (w *world) deleteVolume(name string) {
	w.Helper()
	_, err := w.c.PersistentVolumes.Delete(context.Background(), &metav1.DeleteRequest{Name: name})
	w.must(err)
}

func (w *world) deleteClaim(name string) {
	w.Helper()
	_, err := w.c.PersistentVolumeClaims.Delete(context.Background(), &metav1.DeleteRequest{Namespace: "ns", Name: name})
	w.must(err)
}

// say puts a claim and its volume into a line: "Bound v: Bound".
func (w *world) say(claim string) string {
	w.Helper()
	o := w.claim(claim)
	if o == nil {
		return "gone"
	}
	text := o.GetStatus().GetPhase()
	if name := o.GetSpec().GetVolumeName(); name != "" {
		text += " " + name + ": " + w.phase(name)
	}
	return text
}

func (w *world) phase(volume string) string {
	w.Helper()
	v := w.volume(volume)
	if v == nil {
		return "gone"
	}
	return v.GetStatus().GetPhase()
}

func (w *world) wants(claim, want string) {
	w.Helper()
	if got := w.say(claim); got != want {
		w.Errorf("claim %s is %q, want %q", claim, got, want)
	}
}

func (w *world) wantsVolume(name, want string) {
	w.Helper()
	if got := w.phase(name); got != want {
		w.Errorf("volume %s is %q, want %q", name, got, want)
	}
}

// told says whether there was an event with that reason and message about the object.
func (w *world) told(name, reason, message string) {
	w.Helper()
	time.Sleep(11 * time.Second) // virtual: a series is written at most every 10 s
	synctest.Wait()
	l, err := w.c.Events.List(context.Background(), &metav1.ListRequest{})
	w.must(err)
	var all []string
	for _, e := range l.GetItems() {
		if e.GetInvolvedObject().GetName() == name {
			all = append(all, fmt.Sprintf("%s: %s", e.GetReason(), e.GetMessage()))
		}
	}
	if !slices.Contains(all, reason+": "+message) {
		w.Errorf("%s was not told %q of %s, but %q", name, message, reason, all)
	}
}
