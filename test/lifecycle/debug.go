package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// debugged is the step by which an ephemeral container joins a pod.
type debugged struct {
	name, target string
	args         []string
}

// parseDebug reads the step `debug NAME CONTAINER [WORDS,...]`.
func parseDebug(words []string) (debugged, error) {
	if len(words) < 3 {
		return debugged{}, errors.New("debug NAME CONTAINER [WORDS,...] was expected")
	}
	d := debugged{name: words[1], target: words[2]}
	if len(words) > 3 {
		for arg := range strings.SplitSeq(strings.Join(words[3:], " "), ",") {
			d.args = append(d.args, strings.TrimSpace(arg))
		}
	}
	return d, nil
}

// debug returns the patch that adds the ephemeral container of a step. It is like the container that it is to look at,
// as the API shows that: with its image, its program, and the way to the journal.
func debug(seen *History, words []string) ([]byte, error) {
	d, err := parseDebug(words)
	if err != nil {
		return nil, err
	}
	var spec corev1.PodSpec
	seen.ask(func() bool { spec = *seen.last().Spec.DeepCopy(); return true })
	i := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == d.target })
	if i < 0 {
		return nil, fmt.Errorf("the pod shows no container %s", d.target)
	}
	like := spec.Containers[i]
	for i := range like.Env {
		if like.Env[i].Name == "ACT_NAME" {
			like.Env[i].Value = d.name
		}
	}
	return json.Marshal(map[string]any{"spec": map[string]any{"ephemeralContainers": []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: d.name, Image: like.Image, Command: like.Command, Args: d.args, Env: like.Env,
			VolumeMounts: like.VolumeMounts,
		},
		TargetContainerName: d.target,
	}}}})
}
