package nodeagent_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// onFiles makes a pod mount an image by a policy, with Secrets for its pull.
func onFiles(image, policy string, secrets ...string) podOption {
	return edit(func(p *corev1.Pod) {
		p.Spec.Volumes = []*corev1.Volume{{Name: "files", VolumeSource: &corev1.VolumeSource{
			Image: &corev1.ImageVolumeSource{Reference: image, PullPolicy: policy}}}}
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "app:1", "IfNotPresent"
		p.Spec.Containers[0].VolumeMounts = []*corev1.VolumeMount{{Name: "files", MountPath: "/files", SubPath: "sub"},
			{Name: "files", MountPath: "/again"}}
		for _, name := range secrets {
			p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, &corev1.LocalObjectReference{Name: name})
		}
	})
}

const filesImage = "r.example.com/files:1"

// mountsFiles checks that a pod runs with the image.
func (w *world) mountsFiles(rt *watched, name string) {
	w.t.Helper()
	p := w.phase(name, "Running")
	rt.mu.Lock()
	made := rt.made[name]
	rt.mu.Unlock()
	of := &runtimeapi.ImageSpec{Image: filesImage, UserSpecifiedImage: filesImage}
	for i, want := range []*runtimeapi.Mount{
		{ContainerPath: "/files", Readonly: true, Image: of, ImageSubPath: "sub"},
		{ContainerPath: "/again", Readonly: true, Image: of},
	} {
		if !proto.Equal(made.GetMounts()[i], want) {
			w.t.Errorf("%s: mount %v, want %v", name, made.GetMounts()[i], want)
		}
	}
	if got := made.GetAnnotations()["monoplane.dev/volume-images"]; got != filesImage {
		w.t.Errorf("%s: the container is marked with the images %q", name, got)
	}
	for _, m := range p.GetStatus().GetContainerStatuses()[0].GetVolumeMounts() {
		if got := m.GetVolumeStatus().GetImage().GetImageRef(); got != filesImage {
			w.t.Errorf("%s: the status of the mount at %s names the image %q", name, m.GetMountPath(), got)
		}
	}
}

// The images that a container mounts are pulled by their policies and the pod's Secrets, as its own is, and once for
// several mounts.
//
// spec: CTR-6, VOL-1
func TestImagesOfVolumes(t *testing.T) {
	inPrivateWorld(t, func(w *world, rt *watched) {
		w.start()
		for _, c := range []struct {
			name, policy string
			secrets      []string
			pulls        []string
		}{
			{"present", "IfNotPresent", nil, nil},
			{"never", "Never", nil, nil},
			{"always", "Always", []string{"right"}, []string{"right:password"}},
			{"shares", "IfNotPresent", []string{"right"}, nil}, // it has the same credentials
		} {
			w.create(c.name, onFiles(filesImage, c.policy, c.secrets...))
			w.settle()
			w.mountsFiles(rt, c.name)
			w.pulls(rt, c.name, c.pulls...)
		}

		w.create("stranger", onFiles(filesImage, "Never")) // it has none
		w.create("missing", onFiles("missing:1", "Never"))
		w.create("nonsense", onFiles("Not A Name", "Always"))
		w.settle()
		for name, want := range map[string][2]string{
			"stranger": {"ErrImageNeverPull", `Container image "` + filesImage + `" is not present with pull policy of Never`},
			"missing":  {"ErrImageNeverPull", `Container image "missing:1" is not present with pull policy of Never`},
			"nonsense": {"InvalidImageName", `Failed to apply default image tag "Not A Name": couldn't parse image name ` +
				`"Not A Name": invalid reference format`},
		} {
			w.waitsFor(name, want[0], want[1])
		}
		w.pulls(rt, "none of the three is to be pulled")
	})
}

// A pull that fails is tried again with the back-off of containers' images, and told in the same words; when it
// succeeds the container starts. A container that does not mount the image is not held up.
//
// spec: CTR-6, VOL-1
func TestImageOfVolumeCannotBePulled(t *testing.T) {
	inPrivateWorld(t, func(w *world, rt *watched) {
		w.start()
		w.create("a", onFiles(filesImage, "Always", "wrong"), edit(func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, &corev1.Container{Name: "other", Image: "app:1"})
		}))
		w.settle()
		w.waitsFor("a", "ErrImagePull", "401")
		if other := w.get("a").GetStatus().GetContainerStatuses()[1]; other.GetState().GetRunning() == nil {
			t.Errorf("the other container: %v", other.GetState())
		}
		time.Sleep(15 * time.Second)
		w.settle()
		w.waitsFor("a", "ImagePullBackOff", `Back-off pulling image "`+filesImage+`": ErrImagePull: 401`)
		w.pulls(rt, "10 s later", "wrong:password", "wrong:password")
		list, err := w.c.Events.List(w.t.Context(), &metav1.ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var events []string
		for _, e := range list.Items {
			if path := e.GetInvolvedObject().GetFieldPath(); path != "spec.containers{other}" {
				events = append(events, path+" "+e.Reason+": "+e.Message)
			}
		}
		for _, want := range []string{
			` Pulling: Pulling image "` + filesImage + `"`, ` Failed: Failed to pull image "` + filesImage + `": 401`,
			`spec.containers{main} Failed: Error: ErrImagePull`,
			` BackOff: Back-off pulling image "` + filesImage + `"`,
			`spec.containers{main} Failed: Error: ImagePullBackOff`,
		} {
			if !slices.Contains(events, want) {
				t.Errorf("no event %q in %q", want, events)
			}
		}

		rt.mu.Lock()
		rt.answer = nil
		rt.mu.Unlock()
		time.Sleep(time.Minute)
		w.settle()
		w.mountsFiles(rt, "a")
	})
}

// A containerd that does not know images among mounts is not asked, and its version told, until there is another one.
//
// spec: VOL-1
func TestRuntimeWithoutImageVolumes(t *testing.T) {
	inPrivateWorld(t, func(w *world, rt *watched) {
		w.start()
		becomes := func(version string) {
			rt.mu.Lock()
			defer rt.mu.Unlock()
			rt.is = &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "containerd",
				RuntimeVersion: version, RuntimeApiVersion: "v1"}
		}
		rt.answer = func(*runtimeapi.AuthConfig) error { return errors.New("it is asked") }
		becomes("1.6.20~ds1")
		w.create("a", onFiles(filesImage, "IfNotPresent"))
		w.settle()
		w.waitsFor("a", "CreateContainerConfigError",
			`volume "files": containerd mounts images from version 2.1 on, and this is 1.6.20~ds1`)
		becomes("v2.0.5")
		time.Sleep(time.Minute)
		w.settle()
		w.waitsFor("a", "CreateContainerConfigError",
			`volume "files": containerd mounts images from version 2.1 on, and this is v2.0.5`)
		becomes("v2.1.0")
		time.Sleep(time.Minute)
		w.settle()
		w.mountsFiles(rt, "a")
		becomes("devel")
		w.create("b", onFiles(filesImage, "IfNotPresent"))
		w.settle()
		w.mountsFiles(rt, "b")
	})
}
