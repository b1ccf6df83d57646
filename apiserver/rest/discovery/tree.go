package discovery

import (
	"slices"
	"strings"

	kubeversion "k8s.io/apimachinery/pkg/version"
)

type group struct {
	name     string
	versions []*version
}

type version struct {
	group     *group
	name      string
	resources []Resource
}

// arrange sorts resources into groups and versions. It keeps the order of groups and resources; the versions of a
// group come in the order in which Kubernetes prefers them: v2 before v1, and v1 before v1beta1.
func arrange(resources []Resource) []*group {
	var groups []*group
	byName := make(map[string]*group)
	byVersion := make(map[string]*version)
	for _, r := range resources {
		g := byName[r.Group]
		if g == nil {
			g = &group{name: r.Group}
			byName[r.Group] = g
			groups = append(groups, g)
		}
		id := r.Group + "/" + r.Version
		v := byVersion[id]
		if v == nil {
			v = &version{group: g, name: r.Version}
			byVersion[id] = v
			g.versions = append(g.versions, v)
		}
		v.resources = append(v.resources, r)
	}
	for _, g := range groups {
		slices.SortStableFunc(g.versions, func(a, b *version) int {
			return kubeversion.CompareKubeAwareVersionStrings(b.name, a.name)
		})
	}
	return groups
}

func (v *version) groupVersion() string {
	if v.group.name == "" {
		return v.name
	}
	return v.group.name + "/" + v.name
}

func (v *version) path() string {
	if v.group.name == "" {
		return "/api/" + v.name
	}
	return "/apis/" + v.groupVersion()
}

// subresource splits "pods/log"; sub is empty for a resource.
func (r Resource) subresource() (resource, sub string) {
	resource, sub, _ = strings.Cut(r.Name, "/")
	return resource, sub
}
