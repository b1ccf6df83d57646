package security

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	k8score "k8s.io/api/core/v1" //nolint:depguard // as in security.go
	k8smeta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"monoplane.dev/apiserver/registry"
	"monoplane.dev/rules/hostimage"

	appsv1 "monoplane.dev/api/apps/v1"
	corev1 "monoplane.dev/api/core/v1"
)

// forbidHostImage is the check that Kubernetes has not, since it has no such image: from level baseline on no
// container sees the files of its node.
func forbidHostImage() policy.Check {
	check := func(_ *k8smeta.ObjectMeta, spec *k8score.PodSpec) policy.CheckResult {
		var names []string
		note := func(c *k8score.Container) {
			if hostimage.Is(c.Image) {
				names = append(names, fmt.Sprintf("%q", c.Name))
			}
		}
		for i := range spec.InitContainers {
			note(&spec.InitContainers[i])
		}
		for i := range spec.Containers {
			note(&spec.Containers[i])
		}
		for i := range spec.EphemeralContainers {
			note((*k8score.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
		}
		if len(names) == 0 {
			return policy.CheckResult{Allowed: true}
		}
		word := "container"
		if len(names) > 1 {
			word = "containers"
		}
		return policy.CheckResult{ForbiddenReason: "host image", ForbiddenDetail: fmt.Sprintf(
			"%s %s must not have image %q", word, strings.Join(names, ", "), hostimage.Name)}
	}
	return policy.Check{ID: "hostImage", Level: api.LevelBaseline, Versions: []policy.VersionedCheck{
		{MinimumVersion: api.MajorMinorVersion(1, 0), CheckPod: check},
	}}
}

// mayUseHost refuses a write by which containers of image "host" come to be, or do something else than before, unless
// the caller has the right to that image. What the controllers make of a template was judged with the template.
func (s *Standards) mayUseHost(ctx context.Context, w registry.Write) error {
	if s.cfg.MayUseHost == nil || !hostAppears(w) {
		return nil
	}
	return s.cfg.MayUseHost(ctx, w.Next.GetMetadata().GetNamespace())
}

// hostAppears says whether a write has such containers, and the object did not have them.
func hostAppears(w registry.Write) bool {
	switch next := w.Next.(type) {
	case *corev1.Pod:
		live, _ := w.Live.(*corev1.Pod)
		had := map[string]bool{} // a container's command does not change
		eachImage(live.GetSpec(), func(name, image string) {
			had[name] = hostimage.Is(image)
		})
		appears := false
		eachImage(next.GetSpec(), func(name, image string) {
			appears = appears || hostimage.Is(image) && !had[name]
		})
		return appears
	case *appsv1.ControllerRevision: // its data does not change; controllers make pods of it again
		return w.Live == nil && namesHost(next.GetData().GetRaw())
	}
	if w.Subresource != "" {
		return false
	}
	_, spec := templateOf(w.Next)
	has := false
	eachImage(spec, func(_, image string) { has = has || hostimage.Is(image) })
	if !has || w.Live == nil {
		return has
	}
	_, before := templateOf(w.Live)
	return !proto.Equal(spec, before)
}

// eachImage calls f with each container of a pod, of all sorts.
func eachImage(spec *corev1.PodSpec, f func(name, image string)) {
	for _, c := range spec.GetInitContainers() {
		f(c.GetName(), c.GetImage())
	}
	for _, c := range spec.GetContainers() {
		f(c.GetName(), c.GetImage())
	}
	for _, c := range spec.GetEphemeralContainers() {
		f(c.GetEphemeralContainerCommon().GetName(), c.GetEphemeralContainerCommon().GetImage())
	}
}

// namesHost says whether a text in JSON has a field "image" that is the host's, wherever it is, and however often.
func namesHost(text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	for field := false; ; {
		token, err := d.Token()
		if err != nil {
			return false // no JSON is no state of a controller: it is refused
		}
		word, _ := token.(string)
		if field && hostimage.Is(word) {
			return true
		}
		field = strings.EqualFold(word, "image")
	}
}
