//go:build kubernetes

package oracle

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/network/dns"
)

func theirResolver(t testing.TB, text string, k *v1.Pod) resolved {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	recorder := record.NewFakeRecorder(10)
	node := dns.NewConfigurer(recorder, &v1.ObjectReference{}, nil, nil, "cluster.local", path)
	c, err := node.GetPodDNS(t.Context(), k)
	if err != nil {
		return resolved{Wrong: true}
	}
	out := resolved{Servers: c.Servers, Searches: c.Searches, Options: slices.Sorted(slices.Values(c.Options))}
	for len(recorder.Events) > 0 {
		if e := <-recorder.Events; strings.Contains(e, "DNSConfigForming") {
			out.Warnings++
		}
	}
	return out
}

func theirMappedPorts(_ testing.TB, c v1.Container) (all []mappedPort) {
	for _, p := range container.MakePortMappings(klog.Background(), &c) {
		all = append(all, mappedPort{int32(p.ContainerPort), int32(p.HostPort), p.HostIP, string(p.Protocol)})
	}
	return all
}
