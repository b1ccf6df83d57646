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

// aboveRaw is how many milliseconds a pod may take beyond what the runtime itself takes for it.
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
		of, took, err := raw.run(ctx, i)
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := createReal(ctx, c, boxedPod(podName("box", i))); err != nil {
			return err
		}
		if err := watch.until(i + 1); err != nil {
			return err
		}
		if i >= warm {
			ours, theirs = append(ours, time.Since(begin).Seconds()*1e3), append(theirs, took.Seconds()*1e3)
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

// run runs a pod like boxedPod and returns its sandbox, and how long it took.
func (r *rawCRI) run(ctx context.Context, i int) (id string, took time.Duration, err error) {
	uid := fmt.Sprintf("raw-%d", i)
	logs := filepath.Join(r.dir, "raw", uid)
	message := filepath.Join(logs, "termination-log")
	if err := errors.Join(os.MkdirAll(filepath.Join(logs, "main"), 0o700),
		os.WriteFile(message, nil, 0o600)); err != nil {
		return "", 0, err
	}
	like := boxedPod(uid).Spec.Containers[0]
	var env []*runtimeapi.KeyValue
	for _, v := range like.GetEnv() {
		env = append(env, &runtimeapi.KeyValue{Key: v.GetName(), Value: []byte(v.GetValue())})
	}
	pod := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: uid, Uid: uid, Namespace: "default"},
		Hostname:     uid,
		LogDirectory: logs,
		DnsConfig:    &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}},
		Linux:        &runtimeapi.LinuxPodSandboxConfig{},
	}
	begin := time.Now()
	sandbox, err := r.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: pod})
	if err != nil {
		return "", 0, err
	}
	id = sandbox.GetPodSandboxId()
	container, err := r.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: id, SandboxConfig: pod,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: like.GetImage()},
			Command: like.GetCommand(), Args: like.GetArgs(), Envs: env, LogPath: "main/0.log",
			Mounts: []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: message}},
			Linux:  &runtimeapi.LinuxContainerConfig{},
		},
	})
	if err != nil {
		return id, 0, err
	}
	_, err = r.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: container.GetContainerId()})
	return id, time.Since(begin), err
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
