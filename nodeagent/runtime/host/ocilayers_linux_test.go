package host

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mostLayers are more than fit into the page of mount options that older system calls take, by their usual paths.
const mostLayers = 200

const layersImage = "example.com/layers:1"

// busyboxLayer is the one layer of the test's image.
func busyboxLayer(t testing.TB, program []byte) string {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(busyboxArchive(t, program))); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("the archive of busybox has no layer: %v", err)
		}
		if h.Name != "layer.tar" {
			continue
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}

// layersArchive has an image of so many layers above busybox, each of which overwrites a file of the one below it, and
// removes another.
func layersArchive(t *testing.T, program []byte) []byte {
	t.Helper()
	contents, headers := map[string]string{}, []tar.Header{{Name: "manifest.json"}, {Name: "config.json"}}
	contents["0.tar"] = busyboxLayer(t, program)
	for i := 1; i < mostLayers; i++ {
		own := []tar.Header{{Typeflag: tar.TypeDir, Name: "many", Mode: 0o755}, {Name: "many/top"},
			{Name: fmt.Sprint("many/", i)}}
		if i > 1 {
			own = append(own, tar.Header{Name: fmt.Sprint("many/.wh.", i-1)})
		}
		contents[fmt.Sprint(i, ".tar")] = string(archive(t, own, map[string]string{"many/top": fmt.Sprint(i, "\n")}))
	}
	var names, digests []string
	for i := range mostLayers {
		name := fmt.Sprint(i, ".tar")
		headers = append(headers, tar.Header{Name: name})
		names = append(names, name)
		digests = append(digests, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(contents[name]))))
	}
	for name, value := range map[string]any{
		"manifest.json": []any{map[string]any{"Config": "config.json", "RepoTags": []string{layersImage}, "Layers": names}},
		"config.json": map[string]any{"architecture": runtime.GOARCH, "os": "linux",
			"rootfs": map[string]any{"type": "layers", "diff_ids": digests}},
	} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		contents[name] = string(text)
	}
	return archive(t, headers, contents)
}

// An image of many layers runs, and shows what its uppermost layers say.
//
// spec: CTR-6
func TestRootImageOfManyLayers(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	program, err := os.ReadFile(busyboxPath)
	if err != nil {
		t.Fatal(err)
	}
	store := n.cfg.OCI.Images.(*testStore)
	if _, err := store.Load(t.Context(), bytes.NewReader(layersArchive(t, program))); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%d\n%[1]d\ntop\n", mostLayers-1)
	looks := victim("c", "/bin/sh", "-c", "cat /many/top; ls /many; echo mine >/many/new")
	looks.Image.Image = layersImage
	id := n.run(n.sandbox("pod"), looks)
	if st := n.wait(id); st.GetExitCode() != 0 || n.lines(id) != want {
		t.Errorf("it says %q, not %q: %v", n.lines(id), want, st)
	}
	if os.Geteuid() == 0 {
		users := usersFrom(firstTestID)
		as(users)(looks)
		id = n.run(n.userSandbox("own", users), looks)
		if st := n.wait(id); st.GetExitCode() != 0 || n.lines(id) != want {
			t.Errorf("with users of its own it says %q, not %q: %v", n.lines(id), want, st)
		}
	}
	n.removeAll()
	n.leftNoMounts()
}

// imageAbove makes an archive of an image of two layers, busybox and one of the headers and contents.
func imageAbove(t *testing.T, name string, headers []tar.Header, contents map[string]string) []byte {
	t.Helper()
	program, err := os.ReadFile(busyboxPath)
	if err != nil {
		t.Fatal(err)
	}
	base, own := busyboxLayer(t, program), string(archive(t, headers, contents))
	config := fmt.Sprintf(`{"architecture":%q,"os":"linux",`+
		`"rootfs":{"type":"layers","diff_ids":["sha256:%x","sha256:%x"]}}`, runtime.GOARCH, sha256.Sum256([]byte(base)),
		sha256.Sum256([]byte(own)))
	return archive(t, []tar.Header{{Name: "manifest.json"}, {Name: "config.json"}, {Name: "0.tar"}, {Name: "1.tar"}},
		map[string]string{"config.json": config, "0.tar": base, "1.tar": own,
			"manifest.json": `[{"Config":"config.json","RepoTags":["` + name + `"],"Layers":["0.tar","1.tar"]}]`})
}

// What is mounted in a container is there also where the image has links that lead nowhere, as those of whole systems
// do: /etc/resolv.conf into /run, say, and /var/run to it.
//
// spec: CTR-6
func TestRootImageLinksAtMounts(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	const image = "example.com/links:1"
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	b := imageAbove(t, image, []tar.Header{
		link("etc/resolv.conf", "../run/systemd/resolve/stub-resolv.conf"), link("etc/hostname", "/run/hostname"),
		link("etc/hosts", "/run/hosts"), {Typeflag: tar.TypeDir, Name: "var", Mode: 0o755}, link("var/run", "/run"),
		link("var/lock", "../run/lock"), link("etc/mtab", "/proc/self/mounts"),
	}, nil)
	if _, err := n.cfg.OCI.Images.(*testStore).Load(t.Context(), bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	config := sandboxConfig(n, "pod")
	config.DnsConfig = &runtimeapi.DNSConfig{Servers: []string{"10.0.0.10"}}
	made, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"hosts": "127.0.0.1 hosts\n", "token": "secret\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, readOnly := range []bool{false, true} {
		c := victim(fmt.Sprint("c", readOnly), "/bin/sh", "-c",
			"cat /etc/resolv.conf /etc/hostname /etc/hosts /var/run/secrets/token; [ -c /dev/null ] && echo null")
		c.Image.Image = image
		c.Linux.SecurityContext.ReadonlyRootfs = readOnly
		c.Mounts = []*runtimeapi.Mount{{HostPath: filepath.Join(dir, "hosts"), ContainerPath: "/etc/hosts"},
			{HostPath: dir, ContainerPath: "/var/run/secrets", Readonly: true}}
		id := n.create(made.GetPodSandboxId(), c)
		if err := n.start(id); err != nil {
			t.Errorf("read-only %v: %v", readOnly, err)
			continue
		}
		const want = "nameserver 10.0.0.10\npod\n127.0.0.1 hosts\nsecret\nnull\n"
		if st := n.wait(id); st.GetExitCode() != 0 || n.lines(id) != want {
			t.Errorf("read-only %v: it says %q, not %q: %v", readOnly, n.lines(id), want, st)
		}
	}
	n.removeAll()
	n.leftNoMounts()
}

// What cannot be executed says why: the start does where that can be known before, and else the log of the container,
// as with runc. Programs of other platforms are such, and those whose interpreter or loader the image has not got.
//
// spec: CTR-4
func TestRootImageProgramsThatDoNotRun(t *testing.T) {
	t.Parallel()
	n := newNode(t, withImages(t))
	const image = "example.com/programs:1"
	b := imageAbove(t, image, []tar.Header{{Name: "foreign", Mode: 0o755}, {Name: "script", Mode: 0o755},
		{Name: "plain", Mode: 0o644}}, map[string]string{"foreign": "\x7fELF\x02\x02", "script": "#!/no/such/interpreter\n"})
	if _, err := n.cfg.OCI.Images.(*testStore).Load(t.Context(), bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	sb := n.sandbox("pod")
	for program, want := range map[string]struct{ start, log string }{
		"/foreign": {log: "exec /foreign: exec format error\n"},
		"/script":  {log: "exec /script: no such file or directory\n"},
		"/plain":   {start: `exec: "/plain": permission denied`},
		"/bin":     {start: `exec: "/bin": is a directory`},
		"/none":    {start: `stat /none: no such file or directory`},
		"none":     {start: `exec: "none": executable file not found in $PATH`},
	} {
		c := victim("c"+strings.ReplaceAll(program, "/", "-"), program)
		c.Image.Image = image
		id := n.create(sb, c)
		err := n.start(id)
		reason, code := "StartError", int32(128)
		if want.start == "" {
			reason, code = "Error", 255
			n.wait(id)
			if got := strings.TrimPrefix(n.logText(id), "stderr F "); err != nil || got != want.log {
				t.Errorf("%s: %v, and the log says %q; want %q", program, err, got, want.log)
			}
		} else if err == nil || !strings.HasSuffix(err.Error(), want.start) {
			t.Errorf("%s: %v; want %q", program, err, want.start)
		}
		if st := n.status(id); st.GetExitCode() != code || st.GetReason() != reason ||
			!strings.HasSuffix(st.GetMessage(), want.start) {
			t.Errorf("%s: %v", program, st)
		}
	}
	n.removeAll()
	n.leftNoMounts()
}
