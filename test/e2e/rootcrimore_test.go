//go:build rootonly

package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/gc"
	"monoplane.dev/test/containerd"
)

// waits waits until the first container of a pod has waited for a reason, with a text in the message.
func (p pods) waits(t *testing.T, name, reason, text string) {
	t.Helper()
	p.until(t, name, reason+" "+text, func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) > 0 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == reason &&
			strings.Contains(s[0].State.Waiting.Message, text)
	})
}

// told waits until a pod has an event with a reason and a text in the message.
func (c onContainerd) told(t *testing.T, pod, reason, text string) {
	t.Helper()
	c.scenes(t, "default").told(t, pod, reason, regexp.QuoteMeta(text))
}

// told waits until a pod has an event with a reason and a message that matches.
func (p scenes) told(t *testing.T, pod, reason, message string) {
	t.Helper()
	want := regexp.MustCompile("(?s)^" + reason + " .*" + message)
	eventually(t, reason+" "+message, func() (bool, string) {
		all, err := onePod{p, pod}.Events(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(all, want.MatchString), strings.Join(all, "; ")
	})
}

// nodeName returns the name of the only node.
func (c *cluster) nodeName(t *testing.T) string {
	t.Helper()
	nodes, err := c.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 {
		t.Fatal(nodes, err)
	}
	return nodes.Items[0].Name
}

// Images of a registry with a password are for pods with the right one, their own or their service account's, also
// once they are on the node; what the registry does not have, and when it is asked at all, is as the policy says.
// spec: CTR-6
func (c onContainerd) pullCredentials(t *testing.T) {
	images, err := newRegistry()
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	guarded := reserve(t)
	locked := withPassword(images)
	if err := guarded.serve(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		locked(w, r)
	}); err != nil {
		t.Fatal(err)
	}
	client := c.client(t)
	for name, word := range map[string]string{"right-1": "right", "right-2": "right", "wrong": "wrong"} {
		secret, err := pullSecret(name, guarded.address(), word)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "puller"},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "right-1"}}}
	if _, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(), account,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := func(name, image string, policy corev1.PullPolicy, secret string) *corev1.Pod {
		p := boxed(name, politeBox)
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = guarded.address()+image, policy
		if secret != "" {
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: secret}}
		}
		return p
	}
	const box = "/box:1"
	byAccount := pod("pull-account", box, corev1.PullIfNotPresent, "")
	byAccount.Spec.ServiceAccountName = "puller"
	c.run(t, byAccount)

	before := asked.Load()
	c.run(t, pod("pull-present", box, corev1.PullIfNotPresent, "right-1"))
	c.run(t, pod("pull-never", box, corev1.PullNever, "right-2")) // another Secret with the same words
	c.create(t, pod("pull-never-without", box, corev1.PullNever, ""))
	c.waits(t, "pull-never-without", "ErrImageNeverPull", "is not present with pull policy of Never")
	if now := asked.Load(); now != before {
		t.Errorf("the registry was asked %d times for an image that is there", now-before)
	}
	c.run(t, pod("pull-always", box, corev1.PullAlways, "right-2"))
	if now := asked.Load(); now == before {
		t.Error("with the policy Always the registry was not asked")
	}
	c.create(t, pod("pull-without", box, corev1.PullIfNotPresent, ""))
	c.create(t, pod("pull-wrong", box, corev1.PullIfNotPresent, "wrong"))
	c.create(t, pod("pull-absent", "/absent:1", corev1.PullIfNotPresent, "right-1"))
	for name, why := range map[string]string{"pull-without": "401 Unauthorized", "pull-wrong": "401 Unauthorized",
		"pull-absent": "not found"} {
		c.told(t, name, "Failed", why)
		// Of the first attempt alone the reason is ErrImagePull.
		c.waits(t, name, "ImagePullBackOff", ": ErrImagePull: ")
	}
}

// A runtime class is run by its handler, its overhead is the pod's, and a handler that the runtime lacks is told.
// spec: QOS-1
func (c onContainerd) runtimeClass(t *testing.T) {
	classes := c.client(t).NodeV1().RuntimeClasses()
	for _, class := range []*nodev1.RuntimeClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Handler: containerd.OtherHandler, Overhead: &nodev1.Overhead{
			PodFixed: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("24Mi")}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "absent"}, Handler: "absent"},
	} {
		if _, err := classes.Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	other, absent := "other", "absent"
	p := boxed("class", politeBox)
	p.Spec.RuntimeClassName = &other
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("40Mi")}
	missing := boxed("class-absent", politeBox)
	missing.Spec.RuntimeClassName = &absent
	c.create(t, missing)
	p = c.run(t, p)
	c.told(t, "class-absent", "FailedCreatePodSandBox", `no runtime for "absent" is configured`)

	conn, err := grpc.NewClient(c.runtime.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	all, err := runtimeapi.NewRuntimeServiceClient(conn).ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(p.UID)}}})
	if err != nil || len(all.GetItems()) != 1 || all.GetItems()[0].GetRuntimeHandler() != containerd.OtherHandler {
		t.Errorf("its sandboxes: %v, %v", all, err)
	}
	limit, err := os.ReadFile("/sys/fs/cgroup/memory/monoplane/burstable/pod" + string(p.UID) + "/memory.limit_in_bytes")
	if errors.Is(err, fs.ErrNotExist) {
		limit, err = os.ReadFile("/sys/fs/cgroup/monoplane/burstable/pod" + string(p.UID) + "/memory.max")
	}
	if got := strings.TrimSpace(string(limit)); err != nil || got != fmt.Sprint(64<<20) {
		t.Errorf("the pod's limit of memory is %s, %v; want that of the container and the overhead", got, err)
	}
}

// Seccomp profiles are those that the pod names. AppArmor is refused by name where the kernel lacks it, and so are
// users of their own and volumes of images where the runtime does.
// spec: SEC-1, USER-1
func (c onContainerd) profiles(t *testing.T) {
	const shows = `mkdir /tmp/made 2>/dev/null && echo made; while read k v; do echo $k $v; done </proc/self/status`
	dir := filepath.Join(c.dir, "nodes", c.nodeName(t), "seccomp")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "no-mkdir.json"), []byte(`{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
		{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	local := "no-mkdir.json"
	for name, tc := range map[string]struct {
		profile *corev1.SeccompProfile
		lines   []string
	}{
		"seccomp-none":    {nil, []string{"made", "Seccomp: 0"}},
		"seccomp-runtime": {&corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}, []string{"made", "Seccomp: 2"}},
		"seccomp-local": {&corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &local},
			[]string{"Seccomp: 2"}},
	} {
		p := boxed(name, shows)
		p.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: tc.profile}
		c.create(t, p)
		c.untilPhase(t, name, corev1.PodSucceeded)
		log := c.logs(t, name)
		has(t, log, tc.lines...)
		if made := strings.HasPrefix(log, "made\n"); made != (name != "seccomp-local") {
			t.Errorf("%s: made %t", name, made)
		}
	}
	if _, err := os.Stat("/sys/kernel/security/apparmor"); errors.Is(err, fs.ErrNotExist) {
		p := boxed("apparmor", politeBox)
		p.Spec.SecurityContext = &corev1.PodSecurityContext{
			AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}}
		c.create(t, p)
		c.waits(t, "apparmor", "CreateContainerError", "apparmor")
	}
	if strings.HasPrefix(c.runtime.version(t), "containerd://1.") {
		no := false
		users := boxed("users", politeBox)
		users.Spec.HostUsers = &no
		c.create(t, users)
		c.told(t, "users", "FailedCreatePodSandBox", "the runtime does not support user namespaces")
		volume := boxed("image-volume", politeBox)
		volume.Spec.Volumes = []corev1.Volume{{Name: "image", VolumeSource: corev1.VolumeSource{
			Image: &corev1.ImageVolumeSource{Reference: containerd.BoxImage, PullPolicy: corev1.PullNever}}}}
		volume.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "image", MountPath: "/image"}}
		c.create(t, volume)
		c.waits(t, "image-volume", "CreateContainerConfigError",
			"containerd mounts images from version 2.1 on, and this is 1.")
	}
}

// A privileged container has the machine's devices and all capabilities; another has the namespaces of the machine
// that it asks for, and the one device that it mounts. spec: SEC-1, VOL-1
func (c onContainerd) machineParts(t *testing.T) {
	p := boxed("privileged", `ls /dev; while read k v; do echo $k $v; done </proc/self/status`)
	yes := true
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes}
	c.create(t, p)
	c.untilPhase(t, p.Name, corev1.PodSucceeded)
	own, err := os.ReadFile("/proc/1/status")
	if err != nil {
		t.Fatal(err)
	}
	all := ""
	for line := range strings.Lines(string(own)) {
		if caps, is := strings.CutPrefix(line, "CapBnd:"); is {
			all = "CapEff: " + strings.TrimSpace(caps)
		}
	}
	has(t, c.logs(t, p.Name), "kmsg", all)

	p = boxed("parts", `echo $$; head -c 4 /seen/device | { read -r x; echo got ${#x}; }; ls /dev/kmsg || echo no kmsg`)
	p.Spec.HostPID, p.Spec.HostIPC = true, true
	device := corev1.HostPathCharDev
	p.Spec.Volumes = []corev1.Volume{{Name: "device", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/dev/zero", Type: &device}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "device", MountPath: "/seen/device"}}
	c.create(t, p)
	c.untilPhase(t, p.Name, corev1.PodSucceeded)
	log := c.logs(t, p.Name)
	has(t, log, "no kmsg")
	if strings.HasPrefix(log, "1\n") {
		t.Errorf("it is the first process, as in a namespace of its own: %s", log)
	}
}

// A log is rotated while its container runs: the runtime opens it anew, and what is said from then on is in the new
// one.
// spec: CTR-8
func (c onContainerd) rotation(t *testing.T) {
	p := c.run(t, boxed("rotates",
		`n=0; while [ $n -lt 11000 ]; do n=$((n+1)); echo $n `+strings.Repeat("x", 1000)+`; done
		echo full; while :; do echo after; sleep 0.1; done`))
	dir := filepath.Join(c.dir, "nodes", c.nodeName(t), "logs", "default_rotates_"+string(p.UID), "main")
	eventually(t, "two files, the newer with what is said now", func() (bool, string) {
		files, err := filepath.Glob(filepath.Join(dir, "0.log*"))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := os.ReadFile(filepath.Join(dir, "0.log")) // It may be between two names.
		return len(files) == 2 && len(text) < 1<<20 && bytes.HasSuffix(bytes.TrimSpace(text), []byte("stdout F after")),
			fmt.Sprintf("%v, %d bytes", files, len(text))
	})
	lines := int64(1)
	log, err := c.GetLogs("rotates", &corev1.PodLogOptions{TailLines: &lines}).DoRaw(t.Context())
	if err != nil || string(log) != "after\n" {
		t.Errorf("its log ends with %.40q, %v", log, err)
	}
}

// What containers use is told as containerd measures it. spec: NODE-1
func (c onContainerd) stats(t *testing.T) {
	p := c.run(t, boxed("measured", countsBox))
	path := "/api/v1/nodes/" + c.nodeName(t) + "/proxy/stats/summary"
	eventually(t, "processors, memory and files of the container", func() (bool, string) {
		text, err := c.client(t).CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		if err != nil {
			return false, err.Error()
		}
		var summary struct {
			Pods []struct {
				PodRef     struct{ UID string }
				Containers []struct {
					Name   string
					CPU    struct{ UsageNanoCores *uint64 }
					Memory struct{ WorkingSetBytes *uint64 }
					Rootfs struct{ UsedBytes *uint64 }
				}
			}
		}
		if err := json.Unmarshal(text, &summary); err != nil {
			t.Fatal(err)
		}
		for _, of := range summary.Pods {
			for _, used := range of.Containers {
				if of.PodRef.UID == string(p.UID) && used.Name == "main" && used.CPU.UsageNanoCores != nil &&
					*used.CPU.UsageNanoCores > 0 && used.Memory.WorkingSetBytes != nil &&
					*used.Memory.WorkingSetBytes > 0 && used.Rootfs.UsedBytes != nil {
					return true, ""
				}
			}
		}
		return false, string(text)
	})
	c.delete(t, p.Name, -1)
}

// Of the dead containers of a pod that runs, and runs again, only the newest stays. spec: CTR-2
func (c onContainerd) deadContainers(t *testing.T) {
	p := withRestart(boxed("often", `echo run; sleep 0.2; exit 1`), corev1.RestartPolicyAlways)
	c.create(t, p)
	c.until(t, p.Name, "third run is over", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].RestartCount == 2 && s[0].State.Waiting != nil
	})
	eventually(t, "sandbox and two containers", func() (bool, string) {
		out, err := c.runtime.Ctr("containers", "ls", "--quiet", `labels."io.kubernetes.pod.name"==often`)
		return err == nil && len(strings.Fields(out)) <= 3, out
	})
	c.delete(t, p.Name, 0)
}

// Of the images of a containerd, those that no container uses can go, and neither that of the sandboxes' first program
// nor one in use is among them; one that goes is gone. spec: CTR-6
func (c onContainerd) imageCollection(t *testing.T) {
	c.run(t, boxed("uses", politeBox))
	conn, err := grpc.NewClient(c.runtime.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	images, runtime := runtimeapi.NewImageServiceClient(conn), runtimeapi.NewRuntimeServiceClient(conn)
	id := func(name string) string {
		got, err := images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{
			Image: &runtimeapi.ImageSpec{Image: name}})
		if err != nil {
			t.Fatal(err)
		}
		return got.GetImage().GetId()
	}
	spare, used := id(containerd.SpareImage), id(containerd.BoxImage)
	if spare == "" || used == "" {
		t.Fatalf("ids of images: %q, %q", spare, used)
	}
	all, err := images.ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	containers, err := runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var seen gc.Images
	began := time.Now()
	seen.Observe(began, all.GetImages(), containers.GetContainers())
	policy := gc.Policy{}.Complete()
	var unused []string
	note := func(id string) (int64, error) {
		unused = append(unused, id)
		return 0, nil
	}
	if seen.Collect(began, policy, -1, note); len(unused) > 0 {
		t.Errorf("too young to go: %v", unused)
	}
	seen.Collect(began.Add(policy.MinAge), policy, -1, note)
	if !slices.Contains(unused, spare) || slices.Contains(unused, used) {
		t.Errorf("unused are %v; %s should be among them, and %s not", unused, spare, used)
	}
	if _, err := images.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{
		Image: &runtimeapi.ImageSpec{Image: spare}}); err != nil {
		t.Fatal(err)
	}
	if left := id(containerd.SpareImage); left != "" {
		t.Errorf("it was removed and is still there, as %s", left)
	}
	info, err := images.ImageFsInfo(t.Context(), &runtimeapi.ImageFsInfoRequest{})
	if all := info.GetImageFilesystems(); err != nil || len(all) == 0 || all[0].GetFsId().GetMountpoint() == "" {
		t.Errorf("where images are: %v, %v", info, err)
	}
}

// version returns the name and version of the runtime as nodes tell it.
func (c *daemon) version(t *testing.T) string {
	t.Helper()
	conn, err := grpc.NewClient(c.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	v, err := runtimeapi.NewRuntimeServiceClient(conn).Version(t.Context(), &runtimeapi.VersionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return v.GetRuntimeName() + "://" + v.GetRuntimeVersion()
}
