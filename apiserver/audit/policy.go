package audit

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"monoplane.dev/apiserver/authn"
	"monoplane.dev/internal/strictyaml"
)

// Level is how much of a request is written.
type Level string

// The levels, each with more than the one before.
const (
	LevelNone            Level = "None"
	LevelMetadata        Level = "Metadata"
	LevelRequest         Level = "Request"
	LevelRequestResponse Level = "RequestResponse"
)

// Stage is how far a request has come.
type Stage string

// The stages. ResponseStarted is for what lasts: watches, logs, exec and the like.
const (
	StageRequestReceived  Stage = "RequestReceived"
	StageResponseStarted  Stage = "ResponseStarted"
	StageResponseComplete Stage = "ResponseComplete"
	StagePanic            Stage = "Panic"
)

var (
	levels = []Level{LevelNone, LevelMetadata, LevelRequest, LevelRequestResponse}
	stages = []Stage{StageRequestReceived, StageResponseStarted, StageResponseComplete, StagePanic}
)

const (
	apiVersion = "audit.k8s.io/v1"
	policyKind = "Policy"
)

// Policy says what is written of which requests. The first rule that fits decides; where none does, nothing is
// written. It does not change once it has been parsed.
type Policy struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Metadata is allowed and means nothing.
	Metadata yaml.Node `json:"metadata"`
	Rules    []Rule    `json:"rules"`
	// OmitStages are left out of all rules.
	OmitStages []Stage `json:"omitStages"`
	// OmitManagedFields leaves the managed fields out of all bodies, unless a rule says otherwise.
	OmitManagedFields bool `json:"omitManagedFields"`
}

// Rule is one rule. Every list that is not empty must have what the request has.
type Rule struct {
	Level      Level    `json:"level"`
	Users      []string `json:"users"`
	UserGroups []string `json:"userGroups"`
	Verbs      []string `json:"verbs"`
	// Resources and Namespaces are for requests about objects; the empty namespace is that of other objects.
	Resources  []Resources `json:"resources"`
	Namespaces []string    `json:"namespaces"`
	// NonResourceURLs are for the other requests; a last character * stands for any text.
	NonResourceURLs   []string `json:"nonResourceURLs"`
	OmitStages        []Stage  `json:"omitStages"`
	OmitManagedFields *bool    `json:"omitManagedFields"`
}

// Resources are resources of one API group, or of all ("*").
type Resources struct {
	Group string `json:"group"`
	// Resources are "pods", "pods/log", "pods/*", "*/scale" or "*"; none means all, with their subresources.
	Resources []string `json:"resources"`
	// ResourceNames are those of the objects; none means all.
	ResourceNames []string `json:"resourceNames"`
}

// Attributes are what a policy looks at.
type Attributes struct {
	// User is who really makes the request, nil when unknown.
	User *authn.User
	// Verb is that of Kubernetes, or the method of HTTP in small letters.
	Verb string
	// Objects says that the request is about objects; others have a Path only.
	Objects                               bool
	Group, Version, Resource, Subresource string
	Namespace, Name                       string
	Path                                  string
}

// Decision is what a policy wants of a request.
type Decision struct {
	Level             Level
	Omit              []Stage
	OmitManagedFields bool
}

// ParsePolicy reads a policy strictly. file is its name in what is wrong. The error is of type strictyaml.Faults.
func ParsePolicy(file string, text []byte) (*Policy, error) {
	r, p := &strictyaml.Report{File: file}, &Policy{}
	if r.Document(text, policyKind, p) {
		if p.APIVersion != apiVersion {
			r.Add("apiVersion", "is %q, expected %s", p.APIVersion, apiVersion)
		}
		if p.Kind != policyKind {
			r.Add("kind", "is %q, expected %s", p.Kind, policyKind)
		}
		if len(p.Rules) == 0 {
			r.Add("rules", "has no rule, expected one at least; without a policy nothing is recorded")
		}
		checkStages(r, "omitStages", p.OmitStages)
		for i := range p.Rules {
			p.Rules[i].check(r, strictyaml.Index("rules", i))
		}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	for i := range p.Rules {
		p.Rules[i].OmitStages = append(slices.Clone(p.OmitStages), p.Rules[i].OmitStages...)
	}
	return p, nil
}

func (rule *Rule) check(r *strictyaml.Report, path string) {
	switch {
	case rule.Level == "":
		r.Add(path+".level", "is missing, expected one of %s", names(levels))
	case !slices.Contains(levels, rule.Level):
		r.Add(path+".level", "is %q, expected one of %s", rule.Level, names(levels))
	}
	checkStages(r, path+".omitStages", rule.OmitStages)
	for i, url := range rule.NonResourceURLs {
		at := strictyaml.Index(path+".nonResourceURLs", i)
		if url != "*" && !strings.HasPrefix(url, "/") {
			r.Add(at, "is %q, expected a path that begins with / or * alone", url)
		}
		if strings.Contains(strings.TrimSuffix(url, "*"), "*") {
			r.Add(at, "is %q, expected * only as the last character", url)
		}
	}
	if len(rule.NonResourceURLs) > 0 && (len(rule.Resources) > 0 || len(rule.Namespaces) > 0) {
		r.Add(path+".nonResourceURLs", "stand beside resources or namespaces, expected a rule for one of both")
	}
	for i, list := range rule.Resources {
		at := strictyaml.Index(path+".resources", i)
		if g := list.Group; g != "" && g != "*" && len(validation.IsDNS1123Subdomain(g)) > 0 {
			r.Add(at+".group", `is %q, expected a group without its version, such as "apps", "" for the core, or "*"`, g)
		}
		if len(list.ResourceNames) > 0 && len(list.Resources) == 0 {
			r.Add(at+".resourceNames", "stand without resources, expected a resource at least")
		}
	}
}

func checkStages(r *strictyaml.Report, path string, list []Stage) {
	for i, s := range list {
		if !slices.Contains(stages, s) {
			r.Add(strictyaml.Index(path, i), "is %q, expected one of %s", s, names(stages))
		}
	}
}

func names[T ~string](list []T) string {
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = string(v)
	}
	return strings.Join(words, ", ")
}

// Decide says what is written of a request.
func (p *Policy) Decide(a *Attributes) Decision {
	for i := range p.Rules {
		rule := &p.Rules[i]
		if !rule.fits(a) {
			continue
		}
		d := Decision{Level: rule.Level, Omit: rule.OmitStages, OmitManagedFields: p.OmitManagedFields}
		if rule.OmitManagedFields != nil {
			d.OmitManagedFields = *rule.OmitManagedFields
		}
		return d
	}
	return Decision{Level: LevelNone, Omit: p.OmitStages, OmitManagedFields: p.OmitManagedFields}
}

func (rule *Rule) fits(a *Attributes) bool {
	if len(rule.Users) > 0 && (a.User == nil || !slices.Contains(rule.Users, a.User.Name)) {
		return false
	}
	if len(rule.UserGroups) > 0 {
		in := func(g string) bool { return slices.Contains(rule.UserGroups, g) }
		if a.User == nil || !slices.ContainsFunc(a.User.Groups, in) {
			return false
		}
	}
	if len(rule.Verbs) > 0 && !slices.Contains(rule.Verbs, a.Verb) {
		return false
	}
	switch {
	case len(rule.Namespaces) > 0 || len(rule.Resources) > 0:
		return a.Objects && rule.fitsObject(a)
	case len(rule.NonResourceURLs) > 0:
		is := func(url string) bool { return fitsPath(url, a.Path) }
		return !a.Objects && slices.ContainsFunc(rule.NonResourceURLs, is)
	}
	return true
}

func fitsPath(url, path string) bool {
	begin, any := strings.CutSuffix(url, "*")
	return url == path || any && strings.HasPrefix(path, begin)
}

func (rule *Rule) fitsObject(a *Attributes) bool {
	if len(rule.Namespaces) > 0 && !slices.Contains(rule.Namespaces, a.Namespace) {
		return false
	}
	return len(rule.Resources) == 0 || slices.ContainsFunc(rule.Resources, func(list Resources) bool {
		return list.fits(a)
	})
}

func (list *Resources) fits(a *Attributes) bool {
	if list.Group != "*" && list.Group != a.Group {
		return false
	}
	if len(list.Resources) == 0 {
		return true
	}
	if len(list.ResourceNames) > 0 && !slices.Contains(list.ResourceNames, a.Name) {
		return false
	}
	return slices.ContainsFunc(list.Resources, func(pattern string) bool {
		if pattern == "*" {
			return true
		}
		resource, sub, has := strings.Cut(pattern, "/")
		switch {
		case !has:
			return resource == a.Resource && a.Subresource == ""
		case sub == "*" && resource == a.Resource: // the resource itself, too, as in Kubernetes
			return true
		default:
			return (resource == "*" || resource == a.Resource) && a.Subresource != "" && sub == a.Subresource
		}
	})
}
