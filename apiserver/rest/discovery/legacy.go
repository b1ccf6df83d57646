package discovery

type apiVersions struct {
	Kind       string        `json:"kind"`
	Versions   []string      `json:"versions"`
	ServerCIDR []addressCIDR `json:"serverAddressByClientCIDRs"`
}

// addressCIDR tells clients at which address to find the server; the list is empty because the address that
// a client used to ask is the right one.
type addressCIDR struct{}

type apiGroup struct {
	Kind       string         `json:"kind,omitempty"`
	APIVersion string         `json:"apiVersion,omitempty"`
	Name       string         `json:"name"`
	Versions   []groupVersion `json:"versions"`
	Preferred  groupVersion   `json:"preferredVersion"`
}

type groupVersion struct {
	GroupVersion string `json:"groupVersion"`
	Version      string `json:"version"`
}

type apiGroupList struct {
	Kind       string     `json:"kind"`
	APIVersion string     `json:"apiVersion"`
	Groups     []apiGroup `json:"groups"`
}

type apiResourceList struct {
	Kind         string        `json:"kind"`
	APIVersion   string        `json:"apiVersion,omitempty"`
	GroupVersion string        `json:"groupVersion"`
	Resources    []apiResource `json:"resources"`
}

type apiResource struct {
	Name       string   `json:"name"`
	Singular   string   `json:"singularName"`
	Namespaced bool     `json:"namespaced"`
	Group      string   `json:"group,omitempty"`
	Version    string   `json:"version,omitempty"`
	Kind       string   `json:"kind"`
	Verbs      []string `json:"verbs"`
	ShortNames []string `json:"shortNames,omitempty"`
	Categories []string `json:"categories,omitempty"`
}

func coreVersions(tree []*group) apiVersions {
	list := apiVersions{Kind: "APIVersions", Versions: []string{}, ServerCIDR: []addressCIDR{}}
	for _, g := range tree {
		if g.name != "" {
			continue
		}
		for _, v := range g.versions {
			list.Versions = append(list.Versions, v.name)
		}
	}
	return list
}

func groupList(tree []*group) apiGroupList {
	list := apiGroupList{Kind: "APIGroupList", APIVersion: "v1", Groups: []apiGroup{}}
	for _, g := range tree {
		if g.name != "" {
			list.Groups = append(list.Groups, g.legacy(false))
		}
	}
	return list
}

// legacy describes a group, alone or as an element of a list, which has no kind of its own.
func (g *group) legacy(alone bool) apiGroup {
	out := apiGroup{Name: g.name}
	if alone {
		out.Kind, out.APIVersion = "APIGroup", "v1"
	}
	for _, v := range g.versions {
		out.Versions = append(out.Versions, groupVersion{v.groupVersion(), v.name})
	}
	out.Preferred = out.Versions[0]
	return out
}

func (v *version) legacy() apiResourceList {
	list := apiResourceList{Kind: "APIResourceList", GroupVersion: v.groupVersion()}
	if v.group.name != "" {
		list.APIVersion = "v1"
	}
	for _, r := range v.resources {
		out := apiResource{
			Name: r.Name, Singular: r.Singular, Namespaced: r.Namespaced, Kind: r.Kind, Verbs: r.Verbs,
			ShortNames: r.ShortNames, Categories: r.Categories,
		}
		if r.KindGroup != r.Group || r.KindVersion != r.Version {
			out.Group, out.Version = r.KindGroup, r.KindVersion
		}
		list.Resources = append(list.Resources, out)
	}
	return list
}
