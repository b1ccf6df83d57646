//go:build rootonly

package cridiff_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// imageConfig is what an image says of its processes.
type imageConfig struct {
	User, WorkingDir, StopSignal string              `json:",omitempty"`
	Env, Entrypoint, Cmd         []string            `json:",omitempty"`
	Volumes                      map[string]struct{} `json:",omitempty"`
}

// insidePath is the program `inside` in every image.
const insidePath = "/inside"

var imageEnv = []string{"PATH=/bin:/usr/bin", "FROM_IMAGE=yes", "EMPTY=", "SPACES=a b  c"}

// plain is the image of all cases that are not about images.
const plain = "plain"

// allImages are the images, by the names that cases call them.
var allImages = map[string]imageConfig{
	plain:             {Env: imageEnv, Entrypoint: []string{insidePath}, WorkingDir: "/data"},
	"user-id":         {Entrypoint: []string{insidePath}, User: "1000"},
	"user-ids":        {Entrypoint: []string{insidePath}, User: "1000:1001"},
	"user-name":       {Entrypoint: []string{insidePath}, User: "web"},
	"user-group":      {Entrypoint: []string{insidePath}, User: "web:extra"},
	"user-gid":        {Entrypoint: []string{insidePath}, User: "web:77"},
	"user-known-id":   {Entrypoint: []string{insidePath}, User: "33"},
	"user-unknown":    {Entrypoint: []string{insidePath}, User: "somebody"},
	"group-unknown":   {Entrypoint: []string{insidePath}, User: "web:somebody"},
	"no-command":      {Env: imageEnv},
	"only-cmd":        {Cmd: []string{insidePath, "from", "cmd"}},
	"entry-and-cmd":   {Entrypoint: []string{insidePath, "from-entrypoint"}, Cmd: []string{"from-cmd"}},
	"no-path":         {Cmd: []string{insidePath}},
	"dir-missing":     {Entrypoint: []string{insidePath}, WorkingDir: "/not/there"},
	"dir-relative":    {Entrypoint: []string{insidePath}, WorkingDir: "data"},
	"dir-of-others":   {Entrypoint: []string{insidePath}, WorkingDir: "/data/secret", User: "1000"},
	"dir-missing-usr": {Entrypoint: []string{insidePath}, WorkingDir: "/not/there", User: "1000"},
	"stop-signal":     {Entrypoint: []string{insidePath}, StopSignal: "SIGUSR1"},
	"stop-number":     {Entrypoint: []string{insidePath}, StopSignal: "10"},
	"volume":          {Entrypoint: []string{insidePath}, Volumes: map[string]struct{}{"/data/volume": {}, "/new": {}}},
	"relative":        {Entrypoint: []string{"inside"}, Env: []string{"PATH=/bin:/"}},
	"not-executable":  {Entrypoint: []string{"/data/file"}},
	"is-directory":    {Entrypoint: []string{"/data"}},
	"env-odd":         {Entrypoint: []string{insidePath}, Env: []string{"PATH=/bin", "NOVALUE", "TWICE=1", "TWICE=2"}},
}

func imageName(name string) string { return "localhost/" + name + ":1" }

// layers make two layers: what is there, and what the second one changes of it.
func layers() (first, second []byte, err error) {
	inside, err := buildInside()
	if err != nil {
		return nil, nil, err
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return nil, nil, err
	}
	dir := func(name string, mode int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}
	}
	var base, over bytes.Buffer
	w := tar.NewWriter(&base)
	file := func(name string, mode int64, text string, change ...func(*tar.Header)) {
		h := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(text))}
		for _, f := range change {
			f(&h)
		}
		if err == nil {
			err = w.WriteHeader(&h)
		}
		if err == nil {
			_, err = w.Write([]byte(text))
		}
	}
	owner := func(uid, gid int) func(*tar.Header) { return func(h *tar.Header) { h.Uid, h.Gid = uid, gid } }
	head := func(h tar.Header) {
		if err == nil {
			err = w.WriteHeader(&h)
		}
	}
	for _, d := range []tar.Header{dir("bin/", 0o755), dir("etc/", 0o755), dir("tmp/", 0o1777), dir("data/", 0o755),
		dir("data/secret/", 0o700), dir("data/old/", 0o755), dir("data/gone/", 0o755), dir("data/volume/", 0o751)} {
		head(d)
	}
	file("inside", 0o755, string(inside))
	file("bin/busybox", 0o755, string(busybox))
	for _, applet := range []string{"cat", "dd", "echo", "false", "grep", "head", "id", "kill", "ls", "mkdir",
		"printf", "pwd", "sh", "sleep", "stat", "touch", "true", "wc", "yes"} {
		head(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox"})
	}
	file("etc/passwd", 0o644, "root:x:0:0::/root:/bin/sh\nweb:x:33:34::/data:/bin/sh\nother:x:1000:1002::/:/bin/sh\n")
	file("etc/group", 0o644, "root:x:0:\nweb:x:34:\nextra:x:77:web\nmore:x:78:web,other\n")
	file("data/file", 0o640, "from the image\n", owner(33, 34))
	file("data/setuid", 0o6755, "s\n", owner(1000, 77))
	file("data/attributes", 0o644, "x\n", func(h *tar.Header) {
		h.PAXRecords = map[string]string{"SCHILY.xattr.user.note": "hello",
			"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x04" + strings.Repeat("\x00", 14)}
	})
	for _, name := range []string{"data/closed/", "data/sticky/"} {
		h := dir(name, 0o1771)
		h.Uid, h.Gid, h.ModTime = 33, 34, time.Unix(1e9, 0)
		head(h)
	}
	file("data/old/hidden", 0o644, "not seen\n")
	file("data/gone/hidden", 0o644, "not seen\n")
	file("data/changed", 0o600, "before\n")
	file("data/volume/kept", 0o644, "of the volume\n", owner(33, 34))
	head(tar.Header{Typeflag: tar.TypeLink, Name: "data/hard", Linkname: "data/file", Mode: 0o640, Uid: 33, Gid: 34})
	head(tar.Header{Typeflag: tar.TypeSymlink, Name: "data/link", Linkname: "../etc/passwd"})
	head(tar.Header{Typeflag: tar.TypeFifo, Name: "data/fifo", Mode: 0o622})
	head(tar.Header{Typeflag: tar.TypeChar, Name: "data/null", Mode: 0o666, Devmajor: 1, Devminor: 3})
	if err = errorsJoin(err, w.Close()); err != nil {
		return nil, nil, err
	}
	w = tar.NewWriter(&over)
	head(dir("data/", 0o755))
	head(dir("data/old/", 0o711))
	file("data/old/.wh..wh..opq", 0o644, "")
	file("data/old/fresh", 0o644, "fresh\n")
	file("data/.wh.gone", 0o644, "")
	// Files in directories for which this layer has no entry.
	for _, name := range []string{"data/closed/new", "data/sticky/below/new", "data/fresh/below/new"} {
		file(name, 0o644, "new\n")
	}
	file("data/changed", 0o644, "after\n", owner(1, 2))
	return base.Bytes(), over.Bytes(), errorsJoin(err, w.Close())
}

func errorsJoin(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// buildInside builds the program for images.
func buildInside() ([]byte, error) {
	dir, err := os.MkdirTemp("", "cridiff-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "inside")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "./inside") //nolint:gosec // our own directory
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, out)
	}
	return os.ReadFile(path)
}

// writeImages writes an archive of all images, such as `docker save` makes.
func writeImages(path string) error {
	first, second, err := layers()
	if err != nil {
		return err
	}
	type manifest struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	files := map[string][]byte{"first.tar": first, "second.tar": second}
	var list []manifest
	for name, c := range allImages {
		text, err := json.Marshal(map[string]any{
			"architecture": runtime.GOARCH, "os": "linux", "config": c,
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(first), digest(second)}},
		})
		if err != nil {
			return err
		}
		file := strings.TrimPrefix(digest(text), "sha256:") + ".json"
		files[file] = text
		list = append(list, manifest{Config: file, RepoTags: []string{imageName(name)},
			Layers: []string{"first.tar", "second.tar"}})
	}
	if files["manifest.json"], err = json.Marshal(list); err != nil {
		return err
	}
	out, err := os.Create(path) //nolint:gosec // our own file
	if err != nil {
		return err
	}
	defer out.Close()
	w := tar.NewWriter(out)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return w.Close()
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }
