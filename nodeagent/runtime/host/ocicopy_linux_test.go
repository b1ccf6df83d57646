package host

import (
	"fmt"
	"path/filepath"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Where overlayfs cannot be mounted, as on an overlay, a container has a copy of its image's files: it sees the same,
// and what it writes is its own, also with users of its own. Nothing of it is left.
//
// spec: CTR-6, USER-1
func TestRootImageCopied(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImagesIn(t, filepath.Join(onOverlay(t), "images")))
	sb := n.sandbox("pod")
	users := usersFrom(firstTestID)
	own := n.userSandbox("own", users)
	for i := range 4 {
		config, in := victim(fmt.Sprint("c", i), "sh", "-c", "cat /data/file; cat /data/new 2>/dev/null; "+
			"stat -c '%u:%g %a' /bin/busybox; echo mine >/data/new; rm /data/file; ls /data; ls -l /bin/sh | wc -l"), sb
		if i%2 == 1 {
			as(users)(config)
			in = own
		}
		id := n.run(in, config)
		st := n.wait(id)
		if got, want := n.lines(id), "from the image\n0:0 755\nnew\n1\n"; st.GetExitCode() != 0 || got != want {
			t.Errorf("container %d says %q, want %q; %v", i, got, want, st)
		}
		root := filepath.Join(n.images, "roots", id)
		if !exists(filepath.Join(root, "copy")) {
			t.Errorf("container %d has no copy", i)
		}
		if _, err := n.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Error(err)
		}
		if exists(root) {
			t.Errorf("%s is left", root)
		}
	}
	n.removeAll()
	n.leftNoMounts()
}
