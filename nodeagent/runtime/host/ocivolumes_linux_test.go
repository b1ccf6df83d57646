package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ofVolumes has a container run in the image with volumes.
func ofVolumes(config *runtimeapi.ContainerConfig) *runtimeapi.ContainerConfig {
	config = ofImage(config)
	config.Image.Image = volumeImage
	return config
}

// lines are what a container has written, without the log's words.
func (n *node) lines(id string) string {
	return strings.ReplaceAll(strings.ReplaceAll(n.logText(id), "stdout F ", ""), "stderr F ", "")
}

// What an image declares as a volume is a directory of each container's own, which can be written to where the root
// cannot, and has in the beginning what the image has there, as it is there. A mount of the pod's at such a place, and
// the kernel's files, go before it.
//
// spec: CTR-6, SEC-1
func TestRootImageVolumes(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	sb := n.sandbox("pod")
	asked := t.TempDir()
	if err := os.WriteFile(filepath.Join(asked, "text"), []byte("of the pod\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	web := "33:34"
	if os.Geteuid() != 0 {
		web = "0:0" // As all files of images are without root.
	}
	script := `cd /; stat -c '%a %u:%g %F' kept kept/below new/path deep/empty
stat -c '%a %u:%g %h %F' kept/file kept/hard kept/fifo kept/below/setuid
readlink kept/out; cat kept/file
echo more >>kept/file && cat kept/hard
touch new/path/x deep/empty/x link/y && ls kept/below new/path
touch deep/x 2>/dev/null || echo read-only
cat asked/text; grep -c Name proc/self/status
head -c 300000 /dev/zero >new/path/large
grep -c -e ' /kept ' -e ' /new/path ' -e ' /deep/empty ' -e ' /kept/below ' proc/self/mountinfo`
	want := `1751 ` + web + ` directory
711 0:0 directory
755 0:0 directory
755 0:0 directory
640 ` + web + ` 2 regular file
640 ` + web + ` 2 regular file
622 0:0 1 fifo
4755 0:0 1 regular file
../../etc/passwd
kept/file of the image
kept/file of the image
more
kept/below: setuid y
new/path: x
read-only
of the pod
1
4`
	var ids []string
	for i := range 2 { // The second finds nothing of the first one's.
		config := ofVolumes(containerConfig(fmt.Sprint("c", i), "/bin/sh", "-c", script))
		config.Linux.SecurityContext.ReadonlyRootfs = true
		config.Mounts = append(config.Mounts, &runtimeapi.Mount{HostPath: asked, ContainerPath: "/asked", Readonly: true})
		id := n.run(sb, config)
		if st := n.wait(id); st.GetExitCode() != 0 {
			t.Errorf("%v", st)
		}
		if got := strings.Join(strings.Fields(n.lines(id)), " "); got != strings.Join(strings.Fields(want), " ") {
			t.Errorf("it says\n%s\nand not\n%s", n.lines(id), want)
		}
		ids = append(ids, id)
	}
	usage, err := n.cfg.OCI.Images.RootUsage(t.Context(), ids[0])
	if err != nil || usage.Bytes < 300000 {
		t.Errorf("it has written %+v, %v", usage, err)
	}
	for _, id := range ids {
		if _, err := n.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Error(err)
		}
		if left := filepath.Join(n.images, "roots", id); exists(left) {
			t.Errorf("%s is left", left)
		}
	}
	n.removeAll()
	n.leftNoMounts()
}

// A volume declared at a file of the image fails the start with the reason, and leaves nothing.
//
// spec: CTR-6
func TestRootImageVolumeIsFile(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	config := ofImage(containerConfig("c", "true"))
	config.Image.Image = brokenImage
	id := n.create(n.sandbox("pod"), config)
	const want = `the volume "/data/file" that the image declares`
	if err := n.start(id); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the start says %v", err)
	}
	if st := n.status(id); st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 128 {
		t.Errorf("%v", st)
	}
	n.removeAll()
	n.leftNoMounts()
}

// In a pod with users of its own volumes belong to these.
//
// spec: CTR-6, USER-1
func TestRootUsersImageVolumes(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	users := usersFrom(firstTestID)
	sb := n.userSandbox("pod", users)
	config := ofVolumes(containerConfig("c", "/bin/sh", "-c",
		"stat -c '%a %u:%g' /kept /kept/file /new/path; cd /new/path; echo x >x; chown 33:34 x; stat -c %u:%g x"))
	as(users)(config)
	id := n.run(sb, config)
	n.wait(id)
	said(t, n.lines(id), "1751 33:34\n640 33:34\n755 0:0\n33:34")
	n.removeAll()
	n.leftNoMounts()
}
