package oracle

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	corev1 "monoplane.dev/api/core/v1"
	ourcore "monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/apiserver/validation"
)

// templateOf makes a template of a pod.
func templateOf(p *v1.Pod) *v1.PodTemplate {
	t := &v1.PodTemplate{ObjectMeta: meta("t"), Template: v1.PodTemplateSpec{Spec: p.Spec}}
	t.ResourceVersion = "1"
	t.Template.Labels, t.Template.Annotations = p.Labels, p.Annotations
	return t
}

// onTheNode is a pod on the network of its node, which leaves it to the server to say that its ports are the node's.
func onTheNode() *v1.Pod {
	p := minimal()
	p.Spec.HostNetwork = true
	p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 81}}
	return p
}

// madeTemplate has the template as it is stored, unless it is wrong.
type madeTemplate struct {
	verdict
	Object *v1.PodTemplate
}

// spec: OBJ-3, OBJ-4
func TestPodTemplatesAreJudgedAlike(t *testing.T) {
	// An update may set SELinuxChangePolicy to what Monoplane does not know, if it was set before.
	not := func(path string) bool { return !strings.HasSuffix(path, ".SELinuxChangePolicy") }
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		base := pick(r, []func() *v1.Pod{minimal, rich, rich, onTheNode})
		old, k := templateOf(base()), templateOf(base())
		what := append(alter(r, &k.ObjectMeta, r.IntN(2), nil), alter(r, &k.Template.Spec, r.IntN(4), not)...)
		what = append(what, alter(r, &k.Template.ObjectMeta, r.IntN(2), nil)...)
		theirs := ask[madeTemplate](t, "podtemplates", k, old)
		mine, err := ours(k, &corev1.PodTemplate{})
		if err != nil {
			t.Fatal(err)
		}
		before, err := ours(old, &corev1.PodTemplate{})
		if err != nil {
			t.Fatal(err)
		}
		ourcore.DefaultPodTemplate(mine)
		ourcore.DefaultPodTemplate(before)
		diff := compare(theirs.Created, ourFaults(ourcore.ValidatePodTemplate(mine)))
		if len(theirs.Created) == 0 {
			want, err := ours(theirs.Object, &corev1.PodTemplate{})
			if err != nil {
				t.Fatal(err)
			}
			if !validation.Equal(want.Template.Spec, mine.Template.Spec) {
				diff = append(diff, stored(t, want.Template.Spec, mine.Template.Spec)...)
			}
		}
		keep(mine.Metadata, before.Metadata)
		if report(t, append(what, "create"), diff) ||
			report(t, append(what, "update"), onlyMeta(compare(theirs.Updated,
				ourFaults(ourcore.ValidatePodTemplateUpdate(mine, before))))) {
			bad++
		}
	}
}
