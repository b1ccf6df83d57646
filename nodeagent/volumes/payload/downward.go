package payload

import (
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/downward"
	"monoplane.dev/rules/resources"
)

// Node are facts of the node that a pod's files can tell.
type Node struct {
	// Allocatable is what pods of the node can have: what a container without a limit is limited by.
	Allocatable resources.List
}

// Downward returns files with fields of the pod and resources of its containers. spec: DOWN-1, DOWN-2
func Downward(p *corev1.Pod, items []*corev1.DownwardAPIVolumeFile, mode *int32, node Node) (Payload, error) {
	files := make(Payload, len(items))
	var wrong []error
	for _, item := range items {
		file := File{Mode: modeOf(item.Mode, modeOf(mode, defaultMode)), Data: []byte{}}
		var text string
		var err error
		switch {
		case item.GetFieldRef() != nil:
			text, err = downward.Field(p.GetMetadata(), item.GetFieldRef().GetFieldPath())
		case item.GetResourceFieldRef() != nil:
			text, err = resourceField(p, item.GetResourceFieldRef(), node)
		}
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		file.Data = []byte(text)
		files[clean(item.GetPath())] = file
	}
	if len(wrong) > 0 {
		return nil, join(wrong)
	}
	return files, nil
}

// resourceField returns a request or limit of a container that is named.
func resourceField(p *corev1.Pod, f *corev1.ResourceFieldSelector, node Node) (string, error) {
	c, err := downward.Container(p.GetSpec(), f.GetContainerName())
	if err != nil {
		return "", err
	}
	return downward.Amount(c, f, node.Allocatable)
}
