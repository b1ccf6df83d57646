package discovery

type discoveryList struct {
	Kind       string           `json:"kind"`
	APIVersion string           `json:"apiVersion"`
	Metadata   struct{}         `json:"metadata"`
	Items      []discoveryGroup `json:"items"`
}

type discoveryGroup struct {
	Metadata discoveryMeta      `json:"metadata"`
	Versions []discoveryVersion `json:"versions"`
}

type discoveryMeta struct {
	Name string `json:"name,omitempty"`
}

type discoveryVersion struct {
	Version   string               `json:"version"`
	Resources []*discoveryResource `json:"resources"`
	Freshness string               `json:"freshness"`
}

type discoveryResource struct {
	Resource     string                 `json:"resource"`
	ResponseKind responseKind           `json:"responseKind"`
	Scope        string                 `json:"scope"`
	Singular     string                 `json:"singularResource"`
	Verbs        []string               `json:"verbs"`
	ShortNames   []string               `json:"shortNames,omitempty"`
	Categories   []string               `json:"categories,omitempty"`
	Subresources []discoverySubresource `json:"subresources,omitempty"`
}

type discoverySubresource struct {
	Subresource  string       `json:"subresource"`
	ResponseKind responseKind `json:"responseKind"`
	Verbs        []string     `json:"verbs"`
}

type responseKind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// aggregate describes everything below /api (the core group) or below /apis (all others).
func aggregate(tree []*group, core bool) discoveryList {
	list := discoveryList{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2", Items: []discoveryGroup{}}
	for _, g := range tree {
		if (g.name == "") != core {
			continue
		}
		out := discoveryGroup{Metadata: discoveryMeta{Name: g.name}}
		for _, v := range g.versions {
			out.Versions = append(out.Versions, discoveryVersion{
				Version: v.name, Resources: v.aggregate(), Freshness: "Current",
			})
		}
		list.Items = append(list.Items, out)
	}
	return list
}

// aggregate hangs each subresource below its resource. A subresource comes after its resource.
func (v *version) aggregate() []*discoveryResource {
	var list []*discoveryResource
	byName := make(map[string]*discoveryResource)
	for _, r := range v.resources {
		kind := responseKind{r.KindGroup, r.KindVersion, r.Kind}
		name, sub := r.subresource()
		if parent := byName[name]; sub != "" && parent != nil {
			parent.Subresources = append(parent.Subresources, discoverySubresource{sub, kind, r.Verbs})
			continue
		}
		scope := "Cluster"
		if r.Namespaced {
			scope = "Namespaced"
		}
		out := &discoveryResource{
			Resource: r.Name, ResponseKind: kind, Scope: scope, Singular: r.Singular, Verbs: r.Verbs,
			ShortNames: r.ShortNames, Categories: r.Categories,
		}
		byName[name] = out
		list = append(list, out)
	}
	return list
}
