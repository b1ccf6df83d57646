package flowcontrol

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"

	flowcontrolv1 "monoplane.dev/api/flowcontrol/v1"
)

const (
	// usualPrecedence is that of schemas that name none; lastPrecedence is the highest number there may be.
	usualPrecedence = 1000
	lastPrecedence  = 10000

	byUser = "ByUser"

	kindGroup          = "Group"
	kindServiceAccount = "ServiceAccount"
	kindUser           = "User"
)

// FlowSchema describes the kind.
func FlowSchema(define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*flowcontrolv1.FlowSchema]{
		Kind:     flowcontrolv1.FlowSchemaKind,
		Spec:     func(o *flowcontrolv1.FlowSchema) proto.Message { return o.GetSpec() },
		Default:  DefaultFlowSchema,
		Validate: ValidateFlowSchema,
		Guards:   define.Warned[*flowcontrolv1.FlowSchema]("FlowSchemas" + nothing),
		Main:     registry.TypedUpdateRules[*flowcontrolv1.FlowSchema]{Validate: ValidateFlowSchemaUpdate},
		Subresources: map[string]registry.TypedUpdateRules[*flowcontrolv1.FlowSchema]{
			"status": {Keeps: registry.AllMetadata, Validate: ValidateFlowSchemaStatusUpdate},
		},
		Table: define.Columns[*flowcontrolv1.FlowSchema]{
			define.Text("PriorityLevel", "The level of the requests.", func(o *flowcontrolv1.FlowSchema) string {
				return o.GetSpec().GetPriorityLevelConfiguration().GetName()
			}),
			define.Any("MatchingPrecedence", "The lowest number counts.", func(o *flowcontrolv1.FlowSchema) any {
				return int64(o.GetSpec().GetMatchingPrecedence())
			}),
			define.Text("DistinguisherMethod", "How the requests are divided.", func(o *flowcontrolv1.FlowSchema) string {
				return define.OrNone(o.GetSpec().GetDistinguisherMethod().GetType())
			}),
			define.Age[*flowcontrolv1.FlowSchema](),
			define.Text("MissingPL", "Whether the level is missing.", missingLevel),
		},
	}.Strategy()}
}

// missingLevel is what the status says about the level of a schema.
func missingLevel(o *flowcontrolv1.FlowSchema) string {
	for _, c := range o.GetStatus().GetConditions() {
		if c.GetType() == "Dangling" {
			return c.GetStatus()
		}
	}
	return "?"
}

// DefaultFlowSchema fills in a schema; call it on create and update.
func DefaultFlowSchema(o *flowcontrolv1.FlowSchema) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
	defaults.Message(&o.Status)
	defaults.Message(&o.Spec.PriorityLevelConfiguration)
	defaultZero(&o.Spec.MatchingPrecedence, usualPrecedence)
}

// ValidateFlowSchema checks a schema that is to be created.
func ValidateFlowSchema(o *flowcontrolv1.FlowSchema) []apierrors.Cause { return wrongSchema(o, nil) }

// ValidateFlowSchemaUpdate checks that a change of a schema is allowed: all of its spec may change.
func ValidateFlowSchemaUpdate(new, old *flowcontrolv1.FlowSchema) []apierrors.Cause {
	return wrongSchema(new, old)
}

// ValidateFlowSchemaStatusUpdate checks a change of a schema's status.
func ValidateFlowSchemaStatusUpdate(new, old *flowcontrolv1.FlowSchema) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		checkConditions(f, f.Root("status").Child("conditions"), new.GetStatus().GetConditions())
	}
	return f.Causes()
}

func wrongSchema(o, old *flowcontrolv1.FlowSchema) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(o.GetMetadata(), old.GetMetadata(), false, validation.NameIsSubdomain)
		s, p := o.GetSpec(), f.Root("spec")
		checkSchema(f, p, o.GetMetadata().GetName(), s)
		if fixed := fixedSchema(o.GetMetadata().GetName()); fixed != nil && !validation.Equal(s, fixed) {
			mustBe(f, p, s, fmt.Sprintf("spec of '%s' must equal the fixed value",
				o.GetMetadata().GetName()))
		}
	}
	return f.Causes()
}

// fixedSchema is what a schema with a name of Kubernetes' own has to say; nil for other names.
func fixedSchema(name string) *flowcontrolv1.FlowSchemaSpec {
	level := &flowcontrolv1.PriorityLevelConfigurationReference{Name: name}
	switch name {
	case exempt:
		return &flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: level, MatchingPrecedence: 1, Rules: everything("system:masters"),
		}
	case catchAll:
		return &flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: level, MatchingPrecedence: lastPrecedence,
			DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{Type: byUser},
			Rules:               everything("system:unauthenticated", "system:authenticated"),
		}
	default:
		return nil
	}
}

func checkSchema(f *validation.Faults, p *validation.Path, name string, s *flowcontrolv1.FlowSchemaSpec) {
	at, n := p.Child("matchingPrecedence"), s.GetMatchingPrecedence()
	if n <= 0 {
		f.InvalidValue(at, n, "must be a positive value")
	}
	if n > lastPrecedence {
		f.InvalidValue(at, n, fmt.Sprintf("must not be greater than %d", lastPrecedence))
	}
	if n == 1 && name != exempt {
		f.InvalidValue(at, n, "only the schema named 'exempt' may have matchingPrecedence 1")
	}
	if m := s.GetDistinguisherMethod(); m != nil {
		f.OneOf(p.Child("distinguisherMethod").Child("type"), m.GetType(), "ByNamespace", byUser)
	}
	at = p.Child("priorityLevelConfiguration").Child("name")
	if level := s.GetPriorityLevelConfiguration().GetName(); level != "" {
		f.Invalid(at, level, validation.NameIsSubdomain(level, false)...)
	} else {
		f.Required(at, "must reference a priority level")
	}
	for i, r := range s.GetRules() {
		checkRule(f, p.Child("rules").Index(i), r)
	}
}

func checkRule(f *validation.Faults, p *validation.Path, r *flowcontrolv1.PolicyRulesWithSubjects) {
	if len(r.GetSubjects()) == 0 {
		f.Required(p.Child("subjects"), "subjects must contain at least one value")
	}
	for i, s := range r.GetSubjects() {
		checkSubject(f, p.Child("subjects").Index(i), s)
	}
	if len(r.GetResourceRules()) == 0 && len(r.GetNonResourceRules()) == 0 {
		f.Required(p, "at least one of resourceRules and nonResourceRules has to be non-empty")
	}
	for i, r := range r.GetResourceRules() {
		checkResources(f, p.Child("resourceRules").Index(i), r)
	}
	for i, r := range r.GetNonResourceRules() {
		at := p.Child("nonResourceRules").Index(i)
		checkVerbs(f, at.Child("verbs"), r.GetVerbs())
		checkURLs(f, at.Child("nonResourceURLs"), r.GetNonResourceURLs())
	}
}

// checkSubject checks who is meant: what the kind says has to be there, and nothing else.
func checkSubject(f *validation.Faults, p *validation.Path, s *flowcontrolv1.Subject) {
	account, user, group := s.GetServiceAccount(), s.GetUser(), s.GetGroup()
	kinds := [...]struct {
		kind, field string
		given       bool
	}{
		{kindServiceAccount, "serviceAccount", account != nil},
		{kindUser, "user", user != nil},
		{kindGroup, "group", group != nil},
	}
	known := false
	for _, k := range kinds {
		known = known || k.kind == s.GetKind()
	}
	if !known {
		f.OneOf(p.Child("kind"), s.GetKind(), kindGroup, kindServiceAccount, kindUser)
		return
	}
	for _, k := range kinds {
		switch at := p.Child(k.field); {
		case k.kind != s.GetKind() && k.given:
			f.Forbidden(at, fmt.Sprintf("%s is forbidden when subject kind is not '%s'", k.field, k.kind))
		case k.kind == s.GetKind() && !k.given:
			f.Required(at, fmt.Sprintf("%s is required when subject kind is '%s'", k.field, k.kind))
		}
	}
	switch {
	case s.GetKind() == kindServiceAccount && account != nil:
		checkAccount(f, p.Child("serviceAccount"), account)
	case s.GetKind() == kindUser && user != nil && user.GetName() == "":
		f.Required(p.Child("user").Child("name"), "")
	case s.GetKind() == kindGroup && group != nil && group.GetName() == "":
		f.Required(p.Child("group").Child("name"), "")
	}
}

func checkAccount(f *validation.Faults, p *validation.Path, s *flowcontrolv1.ServiceAccountSubject) {
	switch n := s.GetName(); n {
	case "":
		f.Required(p.Child("name"), "")
	case all:
	default:
		f.Invalid(p.Child("name"), n, validation.NameIsSubdomain(n, false)...)
	}
	if n := s.GetNamespace(); n != "" {
		f.Invalid(p.Child("namespace"), n, validation.NameIsLabel(n, false)...)
	} else {
		f.Required(p.Child("namespace"), "must specify namespace for service account")
	}
}

func checkResources(f *validation.Faults, p *validation.Path, r *flowcontrolv1.ResourcePolicyRule) {
	checkVerbs(f, p.Child("verbs"), r.GetVerbs())
	checkNames(f, p.Child("apiGroups"), r.GetApiGroups(), "resource rules must supply at least one api group",
		"api groups")
	checkNames(f, p.Child("resources"), r.GetResources(), "resource rules must supply at least one resource",
		"resources")
	at, list := p.Child("namespaces"), r.GetNamespaces()
	switch {
	case len(list) == 0 && r.GetClusterScope():
	case len(list) == 0 || slices.Contains(list, all):
		checkNames(f, at, list, "resource rules that are not cluster scoped must supply at least one namespace",
			"namespaces")
	default:
		for i, n := range list {
			for _, wrong := range validation.NameIsLabel(n, false) {
				f.Invalid(at.Index(i), n, "each member of this list must be '*' or a DNS-1123 label; "+wrong)
			}
		}
	}
}

// checkNames checks a list that has something in it, and "*" only alone.
func checkNames(f *validation.Faults, p *validation.Path, list []string, none, things string) {
	switch {
	case len(list) == 0:
		f.Required(p, none)
	case len(list) > 1 && slices.Contains(list, all):
		f.InvalidValue(p, list, "if '*' is present, must not specify other "+things)
	}
}

func checkVerbs(f *validation.Faults, p *validation.Path, list []string) {
	checkNames(f, p, list, "verbs must contain at least one value", "verbs")
	if slices.Contains(list, all) {
		return
	}
	supported := []string{
		"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch",
	}
	for _, verb := range list {
		if !slices.Contains(supported, verb) {
			f.Add(p, field.NotSupported(nil, list, supported))
			return
		}
	}
}

func checkURLs(f *validation.Faults, p *validation.Path, list []string) {
	checkNames(f, p, list, "nonResourceURLs must contain at least one value", "non-resource URLs")
	if slices.Contains(list, all) {
		return
	}
	for i, url := range list {
		f.Invalid(p.Index(i), url, wrongURL(url)...)
	}
}

// wrongURL says what is wrong with a path whose last part may be "*".
func wrongURL(path string) []string {
	stars := strings.Count(path, "*")
	switch {
	case path == "":
		return []string{"must not be empty"}
	case path == "/":
		return nil
	case path[0] != '/':
		return []string{"must start with slash"}
	case strings.Contains(path, " "):
		return []string{"must not contain white-space"}
	case strings.Contains(path, "//"):
		return []string{"must not contain double slash"}
	case stars > 1 || stars == 1 && !strings.HasSuffix(path, "/*"):
		return []string{"wildcard can only do suffix matching"}
	default:
		return nil
	}
}
