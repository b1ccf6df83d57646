package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// stand is an image in place of one that e2e.test names (test/utils/image of Kubernetes), and cannot be pulled here.
// All have the tools of this machine that the specs' scripts call.
type stand struct {
	names      []string
	layers     []string
	entrypoint []string
	cmd        []string
	user       string
}

// waiting is a script that ends when it is asked to, which a process that ignores signals as the first one does not.
func waiting(command string) string {
	return fmt.Sprintf("trap 'kill $!; exit 0' TERM INT QUIT; %s & wait", command)
}

// stands are the images. Layer "tools" is in each, before its own.
var stands = []stand{
	{names: []string{"registry.k8s.io/e2e-test-images/agnhost:2.63.0", "registry.k8s.io/e2e-test-images/agnhost:2.55"},
		layers: []string{"agnhost"}, entrypoint: []string{"/agnhost"}, cmd: []string{"pause"}},
	{names: []string{"registry.k8s.io/e2e-test-images/kitten:1.8"},
		layers: []string{"agnhost", "kitten"}, entrypoint: []string{"/agnhost"}, cmd: []string{"test-webserver"}},
	{names: []string{"registry.k8s.io/e2e-test-images/nautilus:1.8"},
		layers: []string{"agnhost", "nautilus"}, entrypoint: []string{"/agnhost"}, cmd: []string{"test-webserver"}},
	{names: []string{"registry.k8s.io/e2e-test-images/busybox:1.37.0-1"}, cmd: []string{"sh"}},
	{names: []string{"registry.k8s.io/e2e-test-images/glibc-dns-testing:2.0.0"}, cmd: []string{"bash"}},
	{names: []string{"registry.k8s.io/e2e-test-images/nonroot:1.5"}, cmd: []string{"id"}, user: "1234"},
	{names: []string{"registry.k8s.io/e2e-test-images/nonewprivs:1.4"},
		layers: []string{"nonewprivs"}, cmd: []string{"nnp"}},
	{names: []string{"registry.k8s.io/pause:3.10.2"}, entrypoint: []string{"sh", "-c", waiting("sleep 2147483647")}},
	{names: []string{"registry.k8s.io/e2e-test-images/nginx:1.15-4", "registry.k8s.io/e2e-test-images/nginx:1.27-0"},
		layers: []string{"nginx"}, cmd: []string{"sh", "-c", waiting("httpd -f -p 80 -h /usr/share/nginx/html")}},
}

// programs are those of this machine that are in all images, by where they lie there. The links of busybox give way to
// them.
var programs = map[string]string{
	"/bin/bash":        "/bin/bash",
	"/usr/bin/curl":    "/usr/bin/curl",
	"/usr/bin/dig":     "/usr/bin/dig",
	"/usr/bin/getent":  "/usr/bin/getent",
	"/bin/nc":          "/bin/nc.openbsd",
	"/bin/busybox":     "/bin/busybox",
	"/usr/bin/timeout": "/usr/bin/timeout",
}

// layer is the files of a layer by their paths.
type layer map[string]*file

// file is a file, a link, or a directory where it is neither.
type file struct {
	mode int64
	link string
	from string // a file of this machine
	text string
}

// write writes the layer to a file and returns its digest. It is the same for the same files.
func (l layer) write(path string) (string, error) {
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	w := tar.NewWriter(io.MultiWriter(f, sum))
	names := make([]string, 0, len(l))
	for name := range l {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := l[name].write(w, strings.TrimPrefix(name, "/")); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	err = errors.Join(w.Close(), f.Close()) // The archive's end is part of the digest.
	return fmt.Sprintf("sha256:%x", sum.Sum(nil)), err
}

func (f *file) write(w *tar.Writer, name string) error {
	h := &tar.Header{Name: name, Mode: f.mode}
	text := []byte(f.text)
	switch {
	case strings.HasSuffix(name, "/"):
		h.Typeflag = tar.TypeDir
	case f.link != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
	case f.from != "":
		var err error
		if text, err = os.ReadFile(f.from); err != nil {
			return err
		}
	}
	h.Size = int64(len(text))
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(text)
	return err
}

// libraries returns the shared libraries of a program, and what loads them.
func libraries(program string) []string {
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil // It is linked statically.
	}
	var all []string
	for word := range strings.FieldsSeq(string(out)) {
		if filepath.IsAbs(word) {
			all = append(all, word)
		}
	}
	return all
}

// tools is the layer of all images.
func tools() (layer, error) {
	l := layer{
		"/tmp/":              {mode: 0o1777},
		"/var/run/":          {mode: 0o755},
		"/root/":             {mode: 0o700},
		"/etc/nsswitch.conf": {mode: 0o644, text: "hosts: files dns\n"},
		"/etc/passwd": {mode: 0o644, text: "root:x:0:0:root:/root:/bin/sh\n" +
			"user-defined-in-image:x:1000:1000::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"},
		"/etc/group": {mode: 0o644, text: "root:x:0:\nuser-defined-in-image:x:1000:\n" +
			"group-defined-in-image:x:50000:user-defined-in-image\nnogroup:x:65534:\n"},
	}
	applets, err := exec.Command("busybox", "--list").Output()
	if err != nil {
		return nil, err
	}
	for name := range strings.FieldsSeq(string(applets)) {
		l["/bin/"+name] = &file{mode: 0o777, link: "/bin/busybox"}
	}
	// The shell of busybox would run its own commands instead of the programs, and passes on no variable whose name is
	// none of its own.
	l["/bin/sh"] = &file{mode: 0o777, link: "bash"}
	for at, from := range programs {
		delete(l, "/bin/"+filepath.Base(at))
		l[at] = &file{mode: 0o755, from: from}
		for _, library := range libraries(from) {
			l[library] = &file{mode: 0o755, from: library}
		}
	}
	return l, nil
}

// layers returns all layers by name. built is where the programs of Kubernetes' images are, source the directory of
// their images.
func layers(built, source string) (map[string]layer, error) {
	t, err := tools()
	if err != nil {
		return nil, err
	}
	page := func(name string) layer {
		return layer{
			"/etc/os-release":   {mode: 0o644, text: "NAME=\"Alpine Linux\"\nID=alpine\n"}, // what these are made of
			"/data.json":        {mode: 0o644, from: filepath.Join(source, name, "html/data.json")},
			"/" + name + ".jpg": {mode: 0o644, from: filepath.Join(source, name, "html", name+".jpg")},
		}
	}
	return map[string]layer{
		"tools": t,
		"agnhost": {
			"/agnhost":       {mode: 0o755, from: filepath.Join(built, "agnhost")},
			"/agnhost-2":     {mode: 0o777, link: "agnhost"},
			"/uploads/":      {mode: 0o755},
			"/localhost.crt": {mode: 0o644, from: filepath.Join(source, "agnhost/porter/localhost.crt")},
			"/localhost.key": {mode: 0o644, from: filepath.Join(source, "agnhost/porter/localhost.key")},
		},
		"kitten":     page("kitten"),
		"nautilus":   page("nautilus"),
		"nonewprivs": {"/usr/local/bin/nnp": {mode: 0o6755, from: filepath.Join(built, "nonewprivs")}},
		"nginx": {"/usr/share/nginx/html/index.html": {mode: 0o644,
			text: "<!DOCTYPE html>\n<title>Welcome to nginx!</title>\n<h1>Welcome to nginx!</h1>\n"}},
	}, nil
}

// writeImages writes an archive of the images, such as `docker save` makes, to a file; dir is for what goes into it.
func writeImages(path, dir, built, source string) error {
	all, err := layers(built, source)
	if err != nil {
		return err
	}
	archive, digests := layer{}, map[string]string{}
	for name, l := range all {
		at := filepath.Join(dir, name+".tar")
		if digests[name], err = l.write(at); err != nil {
			return fmt.Errorf("layer %s: %w", name, err)
		}
		archive["/"+name+".tar"] = &file{mode: 0o644, from: at}
	}
	type manifest struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var list []manifest
	for _, s := range stands {
		m := manifest{RepoTags: s.names}
		var ids []string
		for _, name := range append([]string{"tools"}, s.layers...) {
			m.Layers, ids = append(m.Layers, name+".tar"), append(ids, digests[name])
		}
		config, err := json.Marshal(map[string]any{
			"architecture": runtime.GOARCH, "os": "linux",
			"config": map[string]any{"User": s.user, "Entrypoint": s.entrypoint, "Cmd": s.cmd,
				"Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
			"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
		})
		if err != nil {
			return err
		}
		m.Config = fmt.Sprintf("%x.json", sha256.Sum256(config))
		archive["/"+m.Config] = &file{mode: 0o644, text: string(config)}
		list = append(list, m)
	}
	index, err := json.Marshal(list)
	if err != nil {
		return err
	}
	archive["/manifest.json"] = &file{mode: 0o644, text: string(index)}
	_, err = archive.write(path)
	return err
}
