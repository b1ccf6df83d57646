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

// The images that a Daemon has. They hold nothing but busybox.
const (
	// BoxImage sleeps if it is not told what to do.
	BoxImage = "localhost/box:1"
	// UserImage runs a script of its own as user 1000.
	UserImage = "localhost/user:1"
	// NobodyImage names a user whom it does not know.
	NobodyImage = "localhost/nobody:1"
	// SpareImage is one that no test runs.
	SpareImage = "localhost/spare:1"
)

// applets are the programs in the images.
var applets = []string{
	"cat", "false", "head", "hostname", "httpd", "id", "ls", "pwd", "sh", "sleep", "tar", "wc", "wget",
}

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

// boxLayer returns the files of all images.
func boxLayer() ([]byte, error) {
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return nil, err
	}
	files := []entry{{name: "bin/", mode: 0o755}, {name: "etc/", mode: 0o755}, {name: "tmp/", mode: 0o1777},
		{name: "bin/busybox", mode: 0o755, data: busybox}}
	for _, name := range applets {
		files = append(files, entry{name: "bin/" + name, mode: 0o777, link: "busybox"})
	}
	return pack(files)
}

// imageConfig is what an image says of its processes.
type imageConfig struct {
	User, WorkingDir string
	Env, Cmd         []string
}

// boxConfig returns the configuration of an image of one layer.
func boxConfig(layer []byte, c imageConfig) ([]byte, error) {
	c.Env = []string{"PATH=/bin"}
	return json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": c,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
}

// Box returns the one layer of an image like BoxImage, and its configuration, for a registry to serve. It is another
// image than BoxImage: what is one image by its content has its credentials from wherever it was pulled first.
func Box() (layer, config []byte, err error) {
	if layer, err = boxLayer(); err != nil {
		return nil, nil, err
	}
	config, err = boxConfig(layer, imageConfig{Cmd: []string{"sleep", "2147483646"}})
	return layer, config, err
}

// Nginx returns the same of an image that does what nginx does for somebody who tries it: it serves a page on port 80,
// as a user of its own.
func Nginx() (layer, config []byte, err error) {
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return nil, nil, err
	}
	files := []entry{{name: "bin/", mode: 0o755}, {name: "tmp/", mode: 0o1777}, {name: "www/", mode: 0o755},
		{name: "bin/busybox", mode: 0o755, data: busybox},
		{name: "www/index.html", mode: 0o644, data: []byte("<title>Welcome to nginx!</title>\n")}}
	for _, name := range applets {
		files = append(files, entry{name: "bin/" + name, mode: 0o777, link: "busybox"})
	}
	if layer, err = pack(files); err != nil {
		return nil, nil, err
	}
	serve := []string{"httpd", "-f", "-vv", "-p", "80", "-u", "101:101", "-h", "/www"}
	config, err = boxConfig(layer, imageConfig{Cmd: serve})
	return layer, config, err
}

// Bare returns the same of an image that has no shell: it can only sleep.
func Bare() (layer, config []byte, err error) {
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return nil, nil, err
	}
	layer, err = pack([]entry{{name: "bin/", mode: 0o755}, {name: "bin/sleep", mode: 0o755, data: busybox}})
	if err != nil {
		return nil, nil, err
	}
	config, err = boxConfig(layer, imageConfig{Cmd: []string{"sleep", "2147483647"}})
	return layer, config, err
}

// WriteImages writes an archive of the images, such as `docker save` makes.
func WriteImages(path string) error {
	layer, err := boxLayer()
	if err != nil {
		return err
	}
	type manifest struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	archive := []entry{{name: "layer.tar", mode: 0o644, data: layer}}
	var list []manifest
	for name, c := range map[string]imageConfig{
		BoxImage:    {Cmd: []string{"sleep", "2147483647"}},
		SpareImage:  {Cmd: []string{"sleep", "2147483645"}},
		NobodyImage: {Cmd: []string{"sleep", "2147483647"}, User: "somebody"},
		UserImage: {User: "1000:1000", WorkingDir: "/tmp", Cmd: []string{"sh", "-c",
			"id; pwd; echo last words >/dev/termination-log; exit 5"}},
	} {
		text, err := boxConfig(layer, c)
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
