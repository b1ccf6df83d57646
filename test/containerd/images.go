package containerd

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
)

// The images that a Daemon has. Both hold nothing but busybox.
const (
	// BoxImage sleeps if it is not told what to do.
	BoxImage = "localhost/box:1"
	// UserImage runs a script of its own as user 1000.
	UserImage = "localhost/user:1"
)

// applets are the programs in the images.
var applets = []string{"cat", "false", "head", "hostname", "httpd", "id", "ls", "pwd", "sh", "sleep", "wget"}

// entry is a file of an archive: a directory without data, a link, or a file.
type entry struct {
	name string
	mode int64
	link string
	data []byte
}

func pack(entries []entry) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data)), Typeflag: tar.TypeReg}
		switch {
		case e.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		case e.data == nil:
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), w.Close()
}

// writeImages writes an archive of the images, such as `docker save` makes.
func writeImages(path string) error {
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return err
	}
	files := []entry{{name: "bin/", mode: 0o755}, {name: "etc/", mode: 0o755}, {name: "tmp/", mode: 0o1777},
		{name: "bin/busybox", mode: 0o755, data: busybox}}
	for _, name := range applets {
		files = append(files, entry{name: "bin/" + name, mode: 0o777, link: "busybox"})
	}
	layer, err := pack(files)
	if err != nil {
		return err
	}
	type config struct {
		User, WorkingDir string
		Env, Cmd         []string
	}
	type manifest struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	archive := []entry{{name: "layer.tar", mode: 0o644, data: layer}}
	var list []manifest
	for name, c := range map[string]config{
		BoxImage: {Cmd: []string{"sleep", "2147483647"}},
		UserImage: {User: "1000:1000", WorkingDir: "/tmp", Cmd: []string{"sh", "-c",
			"id; pwd; echo last words >/dev/termination-log; exit 5"}},
	} {
		c.Env = []string{"PATH=/bin"}
		text, err := json.Marshal(map[string]any{
			"architecture": runtime.GOARCH, "os": "linux", "config": c,
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
		})
		if err != nil {
			return err
		}
		file := fmt.Sprintf("%x.json", sha256.Sum256(text))
		archive = append(archive, entry{name: file, mode: 0o644, data: text})
		list = append(list, manifest{Config: file, RepoTags: []string{name}, Layers: []string{"layer.tar"}})
	}
	index, err := json.Marshal(list)
	if err != nil {
		return err
	}
	data, err := pack(append(archive, entry{name: "manifest.json", mode: 0o644, data: index}))
	return errors.Join(err, os.WriteFile(path, data, 0o600))
}
