package spec

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Whatever a configuration and an image say, there is a bundle or an error, the bundle can be written down, and no
// capability comes from nowhere.
func FuzzContainer(f *testing.F) {
	seed := asked(withMounts(&runtimeapi.Mount{HostPath: "/a", ContainerPath: "/b", ImageSubPath: "c"}))
	seed.Container.Command, seed.Container.Envs = []string{"x"}, []*runtimeapi.KeyValue{{Key: "A", Value: []byte("b")}}
	text, err := proto.Marshal(seed.Container)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, "e\x00f", "web:www", "rel", false, uint64(1<<41-1))
	f.Add([]byte{}, "", "", "", true, uint64(0))
	f.Fuzz(func(t *testing.T, text []byte, command, user, dir string, unified bool, own uint64) {
		in := Input{Sandbox: &runtimeapi.PodSandboxConfig{}, Container: &runtimeapi.ContainerConfig{}, Unified: unified,
			Shim: 1, Init: 2, Target: 3, Capabilities: own}
		if proto.Unmarshal(text, in.Container) != nil {
			return
		}
		in.Container.Devices = nil // They are looked up on the machine,
		if s := in.Container.GetLinux().GetSecurityContext(); s != nil {
			s.Privileged, s.Seccomp = false, nil // and so are those of the privileged, and profiles.
		}
		words := strings.Split(command, "\x00")
		in.Image = Image{Cmd: words, Env: words, User: user, WorkingDir: dir}
		b, err := Container(in)
		if err != nil {
			return
		}
		for _, name := range b.Spec.Process.Capabilities.Bounding {
			set, _, err := readCapabilities(strings.Fields(capabilityNames), []string{name})
			if err != nil || set&^own != 0 {
				t.Errorf("it has %s: %v", name, err)
			}
		}
		if b.Spec.Process.Cwd == "" || b.Spec.Process.Cwd[0] != '/' || len(b.Spec.Process.Args) == 0 {
			t.Errorf("%+v", b.Spec.Process)
		}
		for i := range b.Parts {
			if i >= len(b.Spec.Mounts) {
				t.Errorf("part %d of %d mounts", i, len(b.Spec.Mounts))
			}
		}
		if _, err := json.Marshal(b); err != nil {
			t.Error(err)
		}
	})
}
