package oracle

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/volumes/atomicdir"
	"monoplane.dev/nodeagent/volumes/payload"
	"monoplane.dev/rules/resources"
)

// keys are names of keys and paths; some of them cannot be written.
var keys = []string{"a", "b", "a.txt", "d/a", "d/b", "d/e/f", "..", "../a", "..a", "a/", "./a", "d//a", "/a", "",
	"...", "d/..a", "d/../a"}

// turned is ours, of what can be turned.
func turned[T proto.Message](t *testing.T, from upstream, to T) T {
	t.Helper()
	out, err := ours(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func oneOf(r *rand.Rand, from []string) string { return from[r.IntN(len(from))] }

func someMode(r *rand.Rand) *int32 {
	if r.IntN(2) == 0 {
		return nil
	}
	return ptr(int32(r.IntN(0o1000)))
}

func someItems(r *rand.Rand) []v1.KeyToPath {
	var items []v1.KeyToPath
	for range r.IntN(4) {
		items = append(items, v1.KeyToPath{Key: oneOf(r, keys[:6]), Path: oneOf(r, keys), Mode: someMode(r)})
	}
	return items
}

func someData(r *rand.Rand) map[string][]byte {
	data := map[string][]byte{}
	for range r.IntN(5) {
		data[oneOf(r, keys[:6])] = []byte(oneOf(r, words))
	}
	return data
}

// samePayload compares the files that Kubernetes and Monoplane would write.
func samePayload(t *testing.T, what any, theirs written, files payload.Payload, err error) {
	t.Helper()
	if errorText(err) != theirs.Wrong {
		t.Fatalf("%+v\nKubernetes fails with %q\nMonoplane  fails with %v", what, theirs.Wrong, err)
	}
	if err != nil {
		return
	}
	same := maps.EqualFunc(theirs.Files, files, func(a, b payload.File) bool {
		return string(a.Data) == string(b.Data) && a.Mode == b.Mode
	})
	if !same {
		t.Fatalf("%+v\nKubernetes %v\nMonoplane  %v", what, theirs.Files, files)
	}
}

// written are the files of a volume, unless something is wrong with them.
type written struct {
	Files payload.Payload
	Wrong string
}

// spec: VOL-1
func TestPayloadsOfConfigMapsAndSecrets(t *testing.T) {
	r := random(t)
	for range *count {
		items, optional, mode := someItems(r), r.IntN(2) == 0, int32(r.IntN(0o1000))
		cm := &v1.ConfigMap{Data: map[string]string{}, BinaryData: someData(r)}
		for k, v := range someData(r) {
			cm.Data[k] = string(v)
		}
		of := turned(t, &v1.ConfigMapVolumeSource{Items: items, DefaultMode: &mode}, &corev1.ConfigMapVolumeSource{})
		theirs := ask[written](t, "files-of-configmaps", items, cm, mode, optional)
		files, err := payload.ConfigMap(turned(t, cm, &corev1.ConfigMap{}), of.Items, of.DefaultMode, optional)
		samePayload(t, items, theirs, files, err)

		s := &v1.Secret{Data: someData(r)}
		theirs = ask[written](t, "files-of-secrets", items, s, mode, optional)
		files, err = payload.Secret(turned(t, s, &corev1.Secret{}), of.Items, of.DefaultMode, optional)
		samePayload(t, items, theirs, files, err)
	}
}

// spec: DOWN-1, DOWN-2
func TestDownwardFiles(t *testing.T) {
	r := random(t)
	fields := []string{"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations",
		"metadata.labels['a']", "metadata.annotations['a/b']", "metadata.labels['none']", "spec.nodeName", "status.podIP",
		"metadata.name['a']", "metadata"}
	amountsOf := []string{"limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu", "requests.memory",
		"requests.ephemeral-storage", "limits.hugepages-2Mi", "requests.hugepages-2Mi", "limits.storage", "cpu"}
	divisors := []string{"0", "1", "1m", "1k", "1Ki", "1Mi", "1Gi"}
	node := amounts("cpu", "3500m", "memory", "7Gi", "ephemeral-storage", "99G", "hugepages-2Mi", "2Mi")
	var able resources.List
	for _, name := range slices.Sorted(maps.Keys(node)) {
		able = append(able, resources.Amount{Name: string(name), Quantity: node[name]})
	}
	for range *count {
		k := asking(r)
		k.Name, k.UID = oneOf(r, words), "u-1"
		k.Labels, k.Annotations = map[string]string{"a": oneOf(r, words)}, map[string]string{}
		for range r.IntN(4) {
			k.Annotations[oneOf(r, []string{"a/b", "z", "c", "B"})] = oneOf(r, words) + "\n\"" + oneOf(r, words)
		}
		var items []v1.DownwardAPIVolumeFile
		for range r.IntN(3) {
			item := v1.DownwardAPIVolumeFile{Path: oneOf(r, keys), Mode: someMode(r)}
			if r.IntN(2) == 0 {
				item.FieldRef = &v1.ObjectFieldSelector{FieldPath: oneOf(r, fields)}
			} else {
				name := "none"
				if all := slices.Concat(k.Spec.InitContainers, k.Spec.Containers); r.IntN(9) > 0 {
					name = all[r.IntN(len(all))].Name
				}
				item.ResourceFieldRef = &v1.ResourceFieldSelector{
					ContainerName: name, Resource: oneOf(r, amountsOf), Divisor: apiresource.MustParse(oneOf(r, divisors)),
				}
			}
			items = append(items, item)
		}
		mode := int32(r.IntN(0o1000))
		of := turned(t, &v1.DownwardAPIVolumeSource{Items: items, DefaultMode: &mode}, &corev1.DownwardAPIVolumeSource{})
		theirs := ask[written](t, "files-of-pods", k, items, mode, node)
		files, err := payload.Downward(ourPod(t, k), of.Items, of.DefaultMode, payload.Node{Allocatable: able})
		samePayload(t, items, theirs, files, err)
	}
}

// listed is what a directory holds after a write, and what was wrong with that.
type listed struct{ Listing, Wrong string }

// What a container sees of a volume after several writes is the same, byte for byte and link for link.
// spec: VOL-1
func TestWritesOfVolumes(t *testing.T) {
	r := random(t)
	for range min(*count, 300) {
		past, mine := &course{}, t.TempDir()
		for range 1 + r.IntN(4) {
			m := payload.Payload{}
			from := keys[1:6]
			if r.IntN(3) == 0 {
				from = keys[1:]
			}
			for range r.IntN(5) {
				path, data, mode := oneOf(r, from), []byte(oneOf(r, words)), int32(0o400|r.IntN(0o400))
				m[path] = payload.File{Data: data, Mode: mode}
			}
			if ambiguous(m) {
				continue
			}
			theirs := ask[listed](t, "writes-of-volumes", past, m)
			_, err := atomicdir.Write(mine, m, func() error { return nil })
			if errorText(err) != theirs.Wrong {
				t.Fatalf("%v\nKubernetes fails with %q\nMonoplane  fails with %v", m, theirs.Wrong, err)
			}
			if a, b := theirs.Listing, listing(t, mine); a != b {
				t.Fatalf("%v\nKubernetes writes\n%s\nMonoplane writes\n%s", m, a, b)
			}
		}
	}
}

// ambiguous reports whether paths are the same after all, or several are wrong: then the order of a map decides.
func ambiguous(files payload.Payload) bool {
	seen, bad := map[string]bool{}, 0
	for path := range files {
		short := filepath.Clean(path)
		if seen[short] {
			return true
		}
		seen[short] = true
		if path == "" || strings.HasPrefix(path, "/") || strings.Contains(path, "..") {
			bad++
		}
	}
	return bad > 1
}

// listing returns all that a directory holds, with the names of sets of files made equal.
func listing(t testing.TB, dir string) string {
	t.Helper()
	var out []string
	set, err := os.Readlink(filepath.Join(dir, "..data"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += " -> " + to
		case d.Type().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %q", data)
		}
		out = append(out, strings.TrimPrefix(path, dir)+" "+text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	text := strings.Join(out, "\n")
	if set != "" {
		text = strings.ReplaceAll(text, set, "SET")
	}
	return text
}
