package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/test/containerd"
)

// aboveRaw is how many milliseconds a pod may take beyond what the runtime itself takes for the same requests.
const aboveRaw = 40

// benchContainerd measures the way from create to Running on a containerd of its own, beside what that takes for the
// same pod by itself.
func benchContainerd(ctx context.Context, e *env) (err error) {
	const name = "pod create to Running on containerd, one at a time"
	if err := containerd.Missing(); err != nil {
		fmt.Printf("%s: skipped, %v\n", name, err)
		return nil
	}
	dir, err := e.tempDir()
	if err != nil {
		return err
	}
	d, err := containerd.New(filepath.Join(dir, "containerd"), fmt.Sprintf("mp-bench-%d", os.Getpid()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.End()) }()
	starting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := d.Start(starting); err != nil {
		return err
	}
	conn, err := grpc.NewClient(d.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	p, err := startProcess(ctx, e, filepath.Join(dir, "data"), "--runtime-endpoint", d.Endpoint())
	if err != nil {
		return err
	}
	raw := &rawCRI{runtimeapi.NewRuntimeServiceClient(conn), dir}
	defer removeGroups()
	return errors.Join(besideRaw(ctx, e, p, raw, name), p.stop())
}

func besideRaw(ctx context.Context, e *env, p *process, raw *rawCRI, name string) (err error) {
	c, err := p.client(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	defer func() { err = errors.Join(err, removeAll(context.WithoutCancel(ctx), c)) }()
	watch, err := newRunWatch(ctx, c)
	if err != nil {
		return err
	}
	const warm = 2
	var ours, theirs []float64
	for i := range warm + e.size(40) {
		var of string
		var took, whole time.Duration
		turns := []func() error{
			func() (err error) {
				of, took, err = raw.run(ctx, i)
				return err
			},
			func() error {
				begin := time.Now()
				err := createReal(ctx, c, boxedPod(podName("box", i)))
				if err == nil {
					err = watch.until(i + 1)
				}
				whole = time.Since(begin)
				return err
			},
		}
		if i%2 > 0 { // what the first leaves to do is not always the same one's
			slices.Reverse(turns)
		}
		for _, turn := range turns {
			if err := turn(); err != nil {
				return err
			}
		}
		if i >= warm {
			ours, theirs = append(ours, whole.Seconds()*1e3), append(theirs, took.Seconds()*1e3)
		}
		if err := errors.Join(raw.remove(ctx, of), removeAll(ctx, c)); err != nil {
			return err
		}
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	for _, of := range []struct {
		name string
		at   int
	}{{"p50", len(ours) / 2}, {"p99", len(ours) * 99 / 100}} {
		got, limit := ours[of.at], theirs[of.at]
		e.print(row{name: name + ", " + of.name, measured: fmt.Sprintf("%.0f ms", got),
			limit: fmt.Sprintf("the same CRI calls %.0f ms", limit), ratio: limit / got,
			target: fmt.Sprintf("<= +%d ms", aboveRaw), met: got <= limit+aboveRaw})
	}
	return nil
}

// boxedPod is a pod as realPod, in a container of an image.
func boxedPod(name string) *corev1.Pod {
	o := realPod(name)
	c := o.Spec.Containers[0]
	c.Image, c.ImagePullPolicy, c.Command, c.Args = containerd.BoxImage, "IfNotPresent", []string{"/bin/sleep"},
		[]string{"1000000"}
	return o
}

// rawCRI asks a runtime for what an agent asks it, and for nothing else; its logs are below dir.
type rawCRI struct {
	runtime runtimeapi.RuntimeServiceClient
	dir     string
}

// requests returns what an agent sends for a pod like boxedPod, whose files are in a directory that exists. What takes
// the runtime time is all there: the cgroup of the pod, the default seccomp profile of the sandbox, and the mounts.
func (r *rawCRI) requests(uid, dir string) (*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig) {
	like := boxedPod(uid).Spec.Containers[0]
	var env []*runtimeapi.KeyValue
	for _, v := range like.GetEnv() {
		env = append(env, &runtimeapi.KeyValue{Key: v.GetName(), Value: []byte(v.GetValue())})
	}
	const least = 2 // a pod that requests nothing
	pod := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: uid, Uid: uid, Namespace: "default"},
		Hostname:     uid,
		LogDirectory: dir,
		DnsConfig:    &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: rawGroup(uid),
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}},
			Resources: &runtimeapi.LinuxContainerResources{CpuShares: least},
		},
	}
	container := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: like.GetImage()},
		Command: like.GetCommand(), Args: like.GetArgs(), Envs: env, LogPath: "main/0.log",
		Mounts: []*runtimeapi.Mount{
			{ContainerPath: "/var/run/secrets/kubernetes.io/serviceaccount", HostPath: filepath.Join(dir, "token"),
				Readonly: true},
			{ContainerPath: "/dev/termination-log", HostPath: filepath.Join(dir, "termination-log")},
			{ContainerPath: "/etc/hosts", HostPath: filepath.Join(dir, "etc-hosts"), SelinuxRelabel: true},
		},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{CpuShares: least, OomScoreAdj: 1000},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}},
		},
	}
	return pod, container
}

// rawGroups is the cgroup of all raw pods, rawGroup that of one, as deep as the agent's.
const rawGroups = "/monoplane-bench"

func rawGroup(uid string) string { return rawGroups + "/besteffort/" + uid }

// run runs a pod like boxedPod and returns its sandbox, and how long it took.
func (r *rawCRI) run(ctx context.Context, i int) (id string, took time.Duration, err error) {
	uid := fmt.Sprintf("raw-%d", i)
	dir := filepath.Join(r.dir, "raw", uid)
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "main"), 0o700), os.Mkdir(filepath.Join(dir, "token"), 0o700),
		os.WriteFile(filepath.Join(dir, "termination-log"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, "etc-hosts"), nil, 0o600)); err != nil {
		return "", 0, err
	}
	pod, container := r.requests(uid, dir)
	begin := time.Now()
	sandbox, err := r.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: pod})
	if err != nil {
		return "", 0, err
	}
	id = sandbox.GetPodSandboxId()
	made, err := r.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: id, SandboxConfig: pod, Config: container})
	if err != nil {
		return id, 0, err
	}
	_, err = r.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()})
	return id, time.Since(begin), err
}

// removeGroups removes what run has made of cgroups, once its pods are gone.
func removeGroups() {
	for _, below := range []string{rawGroup("*"), filepath.Dir(rawGroup("*")), rawGroups} {
		for _, mount := range []string{"", "/*"} { // the one hierarchy, or each of them
			dirs, _ := filepath.Glob("/sys/fs/cgroup" + mount + below) // the patterns are well-formed
			for _, dir := range dirs {
				_ = os.Remove(dir) // one that is in use, or gone, stays as it is
			}
		}
	}
}

// remove ends what run has started.
func (r *rawCRI) remove(ctx context.Context, id string) error {
	list, err := r.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{PodSandboxId: id}})
	for _, c := range list.GetContainers() {
		_, stop := r.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.GetId()})
		err = errors.Join(err, stop)
	}
	_, stop := r.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	_, remove := r.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return errors.Join(err, stop, remove)
}
