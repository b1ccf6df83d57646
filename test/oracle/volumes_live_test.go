//go:build kubernetes

package oracle

import (
	"io"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/klog/v2"
	podresource "k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/secret"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"

	"monoplane.dev/nodeagent/volumes/payload"
)

// quiet drops what Kubernetes' code logs of what it refuses.
func quiet() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
}

func writtenFiles(files map[string]volumeutil.FileProjection, err error) written {
	if err != nil {
		return written{Wrong: err.Error()}
	}
	out := written{Files: payload.Payload{}}
	for path, f := range files {
		out.Files[path] = payload.File{Data: f.Data, Mode: f.Mode}
	}
	return out
}

func theirFilesOfConfigMap(_ testing.TB, items []v1.KeyToPath, cm *v1.ConfigMap, mode int32, optional bool) written {
	quiet()
	return writtenFiles(configmap.MakePayload(items, cm, &mode, optional))
}

func theirFilesOfSecret(_ testing.TB, items []v1.KeyToPath, s *v1.Secret, mode int32, optional bool) written {
	quiet()
	return writtenFiles(secret.MakePayload(items, s, &mode, optional))
}

// theirFilesOfPod puts together what Kubernetes' node agent does; its own function needs a whole node agent.
func theirFilesOfPod(
	_ testing.TB, p *v1.Pod, items []v1.DownwardAPIVolumeFile, mode int32, node v1.ResourceList,
) written {
	quiet()
	files := map[string]volumeutil.FileProjection{}
	var wrong []error
	for _, item := range items {
		file := volumeutil.FileProjection{Mode: mode}
		if item.Mode != nil {
			file.Mode = *item.Mode
		}
		var text string
		var err error
		if f := item.FieldRef; f != nil {
			text, err = fieldpath.ExtractFieldPathAsString(p, f.FieldPath)
		} else if f := item.ResourceFieldRef; f != nil {
			text, err = podresource.ExtractResourceValueByContainerNameAndNodeAllocatable(f, p, f.ContainerName, node)
		}
		if err != nil {
			wrong = append(wrong, err)
		}
		file.Data = []byte(text)
		files[filepath.Clean(item.Path)] = file
	}
	return writtenFiles(files, utilerrors.NewAggregate(wrong))
}

// theirWrite writes a volume whose writes were all asked for in the same course.
func theirWrite(t testing.TB, past *course, files payload.Payload) listed {
	quiet()
	if past.theirs == nil {
		past.theirs = t.TempDir()
	}
	dir := past.theirs.(string)
	writer, err := volumeutil.NewAtomicWriter(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]volumeutil.FileProjection{}
	for path, f := range files {
		all[path] = volumeutil.FileProjection{Data: f.Data, Mode: f.Mode}
	}
	err = writer.Write(all, nil)
	return listed{listing(t, dir), errorText(err)}
}
