package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkPod is the way of a pod through the runtime: sandbox, container, process 1 executed. The limit beside it is
// a bare fork and exec of the same program from this one. "Plain" needs a fork only; "view" has what the agent gives
// every pod, the last of it in /dev, which lacks it; "volumes" has two volumes besides, at paths that / and /etc lack.
func BenchmarkPod(b *testing.B) {
	b.Run("plain", func(b *testing.B) {
		benchmarkPod(b, func(sb *runtimeapi.PodSandboxConfig, _ *runtimeapi.ContainerConfig) { sb.Hostname = "" })
	})
	src := b.TempDir()
	file := filepath.Join(src, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		b.Fatal(err)
	}
	own := []*runtimeapi.Mount{mount(file, hostsPath), mount(file, defaultMessagePath)}
	for name, mounts := range map[string][]*runtimeapi.Mount{
		"view": own, "volumes": append(own, mount(src, "/monoplane-x"), mount(src, "/etc/monoplane/x")),
	} {
		b.Run(name, func(b *testing.B) {
			benchmarkPod(b, func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) {
				withSecurity(c, masked(), 0).Mounts = mounts
			})
		})
	}
}

func benchmarkPod(b *testing.B, change func(*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig)) {
	b.Helper()
	n := newNode(b)
	const program = "/bin/true"
	limit := timeOf(b, 50, func() {
		if err := exec.Command(program).Run(); err != nil {
			b.Fatal(err)
		}
	})
	var spent, run, create, start time.Duration
	var anon int64
	i := 0
	for b.Loop() {
		i++
		name := "bench" + strconv.Itoa(i)
		pod, first := sandboxConfig(n, name), containerConfig(name, program)
		change(pod, first)
		t0 := time.Now()
		sb, err := n.RunPodSandbox(b.Context(), &runtimeapi.RunPodSandboxRequest{Config: pod})
		if err != nil {
			b.Fatal(err)
		}
		t1 := time.Now()
		c, err := n.CreateContainer(b.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: sb.GetPodSandboxId(),
			Config: first})
		if err != nil {
			b.Fatal(err)
		}
		t2 := time.Now()
		if err := n.start(c.GetContainerId()); err != nil {
			b.Fatal(err)
		}
		t3 := time.Now()
		spent, run, create, start = spent+t3.Sub(t0), run+t1.Sub(t0), create+t2.Sub(t1), start+t3.Sub(t2)
		b.StopTimer()
		anon = rssAnon(b, n.shimPID(sb.GetPodSandboxId()))
		n.wait(c.GetContainerId())
		if _, err := n.RemovePodSandbox(b.Context(),
			&runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb.GetPodSandboxId()}); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	per := spent / time.Duration(i)
	b.ReportMetric(float64(per)/float64(limit), "x-fork+exec")
	b.ReportMetric(ms(limit), "ms-fork+exec")
	b.ReportMetric(ms(run/time.Duration(i)), "ms-sandbox")
	b.ReportMetric(ms(create/time.Duration(i)), "ms-create")
	b.ReportMetric(ms(start/time.Duration(i)), "ms-start")
	b.ReportMetric(float64(anon)/1024, "MB-shim-anon")
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func timeOf(b *testing.B, times int, f func()) time.Duration {
	b.Helper()
	begin := time.Now()
	for range times {
		f()
	}
	return time.Since(begin) / time.Duration(times)
}

// rssAnon is the anonymous memory of a process in KiB.
func rssAnon(t testing.TB, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "RssAnon:")
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
