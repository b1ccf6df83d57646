package host

import (
	"os"
	"path/filepath"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestImageSignal(t *testing.T) {
	t.Parallel()
	sameEverywhere(t, "it starts nothing")
	for text, want := range map[string]runtimeapi.Signal{
		"": 0, "SIGQUIT": runtimeapi.Signal_SIGQUIT, "quit": runtimeapi.Signal_SIGQUIT, "3": runtimeapi.Signal_SIGQUIT,
		"SIGRTMIN+3": runtimeapi.Signal_SIGRTMINPLUS3, "RTMAX-2": runtimeapi.Signal_SIGRTMAXMINUS2,
		"37": runtimeapi.Signal_SIGRTMINPLUS3, "SIGRTMIN": runtimeapi.Signal_SIGRTMIN, "6": runtimeapi.Signal_SIGABRT,
		"17": runtimeapi.Signal_SIGCHLD, "SIGNONE": 0, "0": 0, "65": 0, "-1": 0, "99999999999999999999": 0, "SIG": 0,
	} {
		got := imageSignal(text)
		if got == want {
			continue
		}
		is, _ := stopSignal(got)
		if meant, _ := stopSignal(want); is != meant || got == 0 || want == 0 {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}

// What a container writes to its layer is told, and grows with it.
func TestRootImageLayerIsMeasured(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	id := n.run(sb, ofImage(containerConfig("c", "/bin/sh", "-c",
		"head -c 3000000 /dev/zero >/data/new; touch /data/done; sleep 1000")))
	eventually(t, "what it has written is known", func() bool {
		got, err := n.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: id})
		if err != nil {
			t.Fatal(err)
		}
		w := &n.containers[id].written
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.at.IsZero() {
			w.at = w.at.Add(-usageAge) // So that nobody has to wait until it is too old.
		}
		layer := got.GetStats().GetWritableLayer()
		return layer.GetUsedBytes().GetValue() >= 3_000_000 && layer.GetInodesUsed().GetValue() >= 2
	})
}

// The image says by which signal its containers are to end, unless the pod does; the status tells which it is.
//
// spec: TERM-1, CTR-10
func TestRootImageStopSignal(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	ready := t.TempDir()
	for name, one := range map[string]struct {
		pod, want runtimeapi.Signal
		code      int32
	}{
		"image": {want: runtimeapi.Signal_SIGUSR1, code: 4},
		"pod":   {pod: runtimeapi.Signal_SIGUSR2, want: runtimeapi.Signal_SIGUSR2, code: 5},
	} {
		config := ofImage(containerConfig(name, "/bin/sh", "-c",
			"trap 'exit 3' TERM; trap 'exit 4' USR1; trap 'exit 5' USR2; touch /x/"+name+"; while :; do sleep 0.02; done"))
		config.Image.Image, config.StopSignal = signalImage, one.pod
		config.Mounts = []*runtimeapi.Mount{{HostPath: ready, ContainerPath: "/x"}}
		id := n.create(sb, config)
		if again := n.create(sb, config); again != id {
			t.Errorf("%s: asked again for the same it is another", name)
		}
		if err := n.start(id); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it runs", func() bool {
			_, err := os.Stat(filepath.Join(ready, name))
			return err == nil
		})
		n.reopen()
		if got := n.status(id).GetStopSignal(); got != one.want {
			t.Errorf("%s: the status says %v", name, got)
		}
		n.stop(id, 30)
		if st := n.status(id); st.GetExitCode() != one.code {
			t.Errorf("%s: %v", name, st)
		}
	}
}
