package networking

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	utilnet "k8s.io/utils/net"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/apiserver/warning"

	networkingv1 "monoplane.dev/api/networking/v1"
)

// classAnnotation named the class of an Ingress before there was a field.
const classAnnotation = "kubernetes.io/ingress.class"

// Ingress describes the kind.
func Ingress(c define.Config) define.Definition {
	const nothing = "nothing serves Ingresses here (monoplane up --ingress does): this one is kept for a controller " +
		"of yours"
	return define.Definition{Strategy: registry.Typed[*networkingv1.Ingress]{
		Kind:     networkingv1.IngressKind,
		Spec:     func(o *networkingv1.Ingress) proto.Message { return o.GetSpec() },
		Default:  DefaultIngress,
		Admit:    classes{c.Deps}.admit,
		Validate: ValidateIngress,
		Warn: func(next, live *networkingv1.Ingress) (w validation.Warnings) {
			_, old := next.GetMetadata().GetAnnotations()[classAnnotation]
			if live == nil && old && next.GetSpec().IngressClassName == nil {
				w.Say("annotation %q is deprecated, please use 'spec.ingressClassName' instead", classAnnotation)
			}
			return w
		},
		Guards: func(ctx context.Context, o *networkingv1.Ingress) ([]store.Guard, error) {
			if !c.Ingress {
				warning.Add(ctx, nothing)
			}
			return nil, nil
		},
		Main: registry.TypedUpdateRules[*networkingv1.Ingress]{Validate: ValidateIngressUpdate},
		Subresources: map[string]registry.TypedUpdateRules[*networkingv1.Ingress]{
			"status": {Validate: ValidateIngressStatusUpdate},
		},
		Table: define.Columns[*networkingv1.Ingress]{
			define.Text("Class", "Whose controller serves it.", func(o *networkingv1.Ingress) string {
				if o.GetSpec() == nil || o.Spec.IngressClassName == nil {
					return define.OrNone("")
				}
				return *o.Spec.IngressClassName
			}),
			define.Text("Hosts", "Hosts of the rules.", hosts),
			define.Text("Address", "Where requests arrive.", addresses),
			define.Text("Ports", "Ports at which requests arrive.", func(o *networkingv1.Ingress) string {
				if len(o.GetSpec().GetTls()) > 0 {
					return "80, 443"
				}
				return "80"
			}),
			define.Age[*networkingv1.Ingress](),
		},
	}.Strategy()}
}

// hosts are the first few hosts of the rules.
func hosts(o *networkingv1.Ingress) string {
	const most = 3
	rules := o.GetSpec().GetRules()
	var list []string
	more := false
	for _, r := range rules {
		more = more || len(list) == most
		if !more && r.GetHost() != "" {
			list = append(list, r.GetHost())
		}
	}
	switch {
	case len(list) == 0:
		return "*"
	case more:
		return fmt.Sprintf("%s + %d more...", strings.Join(list, ","), len(rules)-most)
	}
	return strings.Join(list, ",")
}

// addresses are where requests arrive.
func addresses(o *networkingv1.Ingress) string {
	var list []string
	for _, at := range o.GetStatus().GetLoadBalancer().GetIngress() {
		if at.GetIp() != "" {
			list = append(list, at.GetIp())
		} else if at.GetHostname() != "" {
			list = append(list, at.GetHostname())
		}
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ",")
}

// DefaultIngress fills in an Ingress; call it on create, on update and on a status update.
func DefaultIngress(o *networkingv1.Ingress) {
	defaults.Message(&o.Metadata)
	defaults.Message(&o.Spec)
	defaults.Message(&o.Status)
	defaults.Message(&o.Status.LoadBalancer)
}

// ValidateIngress checks an Ingress that is to be created.
func ValidateIngress(o *networkingv1.Ingress) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(o.GetMetadata(), nil, true, validation.NameIsSubdomain)
		checkIngress(f, f.Root("spec"), o.GetSpec(), nil)
		name, ok := o.GetMetadata().GetAnnotations()[classAnnotation]
		if s := o.GetSpec(); ok && s != nil && s.IngressClassName != nil && name != *s.IngressClassName {
			f.Invalid(f.Root("annotations").Child(classAnnotation), name, // the path is Kubernetes'
				"must match `ingressClassName` when both are specified")
		}
	}
	return f.Causes()
}

// ValidateIngressUpdate checks that a change of an Ingress is allowed: all of it may change.
func ValidateIngressUpdate(new, old *networkingv1.Ingress) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.CoreMeta(new.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
		checkIngress(f, f.Root("spec"), new.GetSpec(), old.GetSpec())
	}
	return f.Causes()
}

// ValidateIngressStatusUpdate checks a change of an Ingress' status.
func ValidateIngressStatusUpdate(new, old *networkingv1.Ingress) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		f.ObjectMetaUpdate(new.GetMetadata(), old.GetMetadata())
		var known []string
		for _, at := range old.GetStatus().GetLoadBalancer().GetIngress() {
			known = append(known, at.GetIp())
		}
		p := f.Root("status").Child("loadBalancer").Child("ingress")
		for i, at := range new.GetStatus().GetLoadBalancer().GetIngress() {
			if ip := at.GetIp(); ip != "" && !slices.Contains(known, ip) {
				f.IP(p.Index(i).Child("ip"), ip)
			}
			if name := at.GetHostname(); name != "" {
				f.Subdomain(p.Index(i).Child("hostname"), name)
				checkNoAddress(f, p.Index(i).Child("hostname"), name)
			}
		}
	}
	return f.Causes()
}

func checkNoAddress(f *validation.Faults, p *validation.Path, name string) {
	if utilnet.ParseIPSloppy(name) != nil {
		f.Invalid(p, name, "must be a DNS name, not an IP address")
	}
}

func checkIngress(f *validation.Faults, p *validation.Path, s, old *networkingv1.IngressSpec) {
	if len(s.GetRules()) == 0 && s.GetDefaultBackend() == nil {
		f.InvalidValue(p, []string{}, "either `defaultBackend` or `rules` must be specified")
	}
	if s.GetDefaultBackend() != nil {
		checkBackend(f, p.Child("defaultBackend"), s.DefaultBackend)
	}
	// Rules of hosts with a wildcard were not looked into by old servers: who has a wrong one may keep such.
	unseen := slices.ContainsFunc(old.GetRules(), func(r *networkingv1.IngressRule) bool {
		return isWildcard(r.GetHost()) && isWrong(r)
	})
	for i, r := range s.GetRules() {
		at := p.Child("rules").Index(i)
		host := r.GetHost()
		if host != "" {
			checkNoAddress(f, at.Child("host"), host)
			checkHost(f, at.Child("host"), host)
		}
		if !unseen || !isWildcard(host) {
			checkPaths(f, at, r)
		}
	}
	// A name that was let through before is not judged anew.
	lenient := slices.ContainsFunc(old.GetTls(), func(t *networkingv1.IngressTLS) bool {
		return t.GetSecretName() != "" && len(validation.WrongSubdomain(t.GetSecretName())) > 0
	})
	for i, t := range s.GetTls() {
		at := p.Child("tls").Index(i)
		for j, host := range t.GetHosts() {
			checkHost(f, at.Child("hosts").Index(j), host)
		}
		if name := t.GetSecretName(); name != "" && !lenient {
			f.Subdomain(at.Child("secretName"), name)
		}
	}
	if s != nil && s.IngressClassName != nil {
		f.Subdomain(p.Child("ingressClassName"), *s.IngressClassName)
	}
}

// isWrong says whether the paths of a rule would be refused, by the older and stricter rule for names of services.
func isWrong(r *networkingv1.IngressRule) bool {
	f := &validation.Faults{}
	for f.Pass() {
		checkPaths(f, f.Root("rules"), r)
	}
	return len(f.Causes()) > 0 || slices.ContainsFunc(r.GetIngressRuleValue().GetHttp().GetPaths(),
		func(path *networkingv1.HTTPIngressPath) bool {
			s := path.GetBackend().GetService()
			return s != nil && len(utilvalidation.IsDNS1035Label(s.GetName())) > 0
		})
}

// checkPaths checks what a rule says about the paths of its host.
func checkPaths(f *validation.Faults, p *validation.Path, r *networkingv1.IngressRule) {
	http := r.GetIngressRuleValue().GetHttp()
	if http == nil {
		return
	}
	paths := p.Child("http").Child("paths")
	if len(http.GetPaths()) == 0 {
		f.Required(paths, "")
	}
	for i, path := range http.GetPaths() {
		checkPath(f, paths.Index(i), path)
	}
}

func isWildcard(host string) bool { return strings.Contains(host, "*") }

// checkHost checks a name, of which the first label may be "*".
func checkHost(f *validation.Faults, p *validation.Path, host string) {
	if isWildcard(host) {
		f.Invalid(p, host, utilvalidation.IsWildcardDNS1123Subdomain(host)...)
		return
	}
	f.Subdomain(p, host)
}

func checkPath(f *validation.Faults, p *validation.Path, path *networkingv1.HTTPIngressPath) {
	if path == nil || path.PathType == nil {
		f.Required(p.Child("pathType"), "pathType must be specified")
		return
	}
	at, text := p.Child("path"), path.GetPath()
	absolute := func() {
		if !strings.HasPrefix(text, "/") {
			f.Invalid(at, text, "must be an absolute path")
		}
	}
	switch *path.PathType {
	case "Exact", "Prefix":
		absolute()
		for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			if strings.Contains(text, part) {
				f.Invalid(at, text, "must not contain '"+part+"'")
			}
		}
		for _, end := range []string{"/..", "/."} {
			if strings.HasSuffix(text, end) {
				f.Invalid(at, text, "cannot end with '"+end+"'")
			}
		}
	case "ImplementationSpecific":
		if text != "" {
			absolute()
		}
	default:
		f.OneOf(p.Child("pathType"), *path.PathType, "Exact", "ImplementationSpecific", "Prefix")
	}
	checkBackend(f, p.Child("backend"), path.GetBackend())
}

func checkBackend(f *validation.Faults, p *validation.Path, b *networkingv1.IngressBackend) {
	switch {
	case b.GetResource() != nil && b.GetService() != nil:
		f.Invalid(p, "", "cannot set both resource and service backends")
	case b.GetResource() != nil:
		checkReference(f, p.Child("resource"), b.Resource.ApiGroup, b.Resource)
	case b.GetService() != nil:
		checkServiceBackend(f, p, b.Service)
	default:
		f.Invalid(p, "", "resource or service backend is required")
	}
}

func checkServiceBackend(f *validation.Faults, p *validation.Path, s *networkingv1.IngressServiceBackend) {
	at := p.Child("service")
	f.RequiredLabel(at.Child("name"), s.GetName())
	switch name, number := s.GetPort().GetName(), s.GetPort().GetNumber(); {
	case name != "" && number != 0:
		f.Invalid(p, "", "cannot set both port name & port number")
	case name != "":
		f.Invalid(at.Child("port").Child("name"), name, validation.WrongPortName(name)...)
	case number != 0:
		checkNumber(f, at.Child("port").Child("number"), number)
	default:
		f.Required(p, "port name or number is required")
	}
}
