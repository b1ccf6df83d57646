package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protoreflect"

	optionsv1 "monoplane.dev/api/options/v1"
)

// verbs are what a kind can be asked to do, in the order of the methods.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// served is a kind with a service of its own.
type served struct {
	*optionsv1.Kind
	message *protogen.Message
	file    *protogen.File
	// service is the name of the service, such as "Pods".
	service string
}

// servedKinds returns the kinds with a service: those with a plural, but for the bodies of other kinds' methods, such
// as Binding. They come in the order of group, version and kind.
func servedKinds(p *protogen.Plugin) ([]served, error) {
	var all []served
	bodies := make(map[*protogen.Message]bool)
	for _, file := range p.Files {
		for _, m := range file.Messages {
			k := kindOf(m)
			if k.GetPlural() == "" {
				continue
			}
			for _, v := range k.GetVerbs() {
				if !slices.Contains(verbs, v) {
					return nil, fmt.Errorf("%s: there is no verb %q", m.Desc.FullName(), v)
				}
			}
			for _, sub := range k.GetSubresources() {
				if body := messageOf(p, file, sub.GetBody()); body != nil {
					bodies[body] = true
				}
			}
			all = append(all, served{Kind: k, message: m, file: file, service: serviceName(k)})
		}
	}
	all = slices.DeleteFunc(all, func(s served) bool { return bodies[s.message] })
	slices.SortFunc(all, func(a, b served) int {
		return cmp.Or(strings.Compare(a.GetGroup(), b.GetGroup()), strings.Compare(a.GetVersion(), b.GetVersion()),
			strings.Compare(a.GetKind(), b.GetKind()))
	})
	return all, nil
}

// serviceName is the plural written as the kind is: "PriorityClasses" from "PriorityClass" and "priorityclasses". Of a
// kind whose plural is its own name, which its message has, it is that name and what it is: "EndpointsService".
func serviceName(k *optionsv1.Kind) string {
	lower, plural, n := strings.ToLower(k.GetKind()), k.GetPlural(), 0
	for n < min(len(lower), len(plural)) && lower[n] == plural[n] {
		n++
	}
	if plural == lower {
		return k.GetKind() + "Service"
	}
	return k.GetKind()[:n] + plural[n:]
}

// goName is the field of the Go client.
func (s served) goName() string { return cmp.Or(s.GetGoName(), s.service) }

// can says whether the kind can be asked for a verb.
func (s served) can(verb string) bool {
	return len(s.GetVerbs()) == 0 || slices.Contains(s.GetVerbs(), verb)
}

// hasStatus says whether the status is written on its own.
func (s served) hasStatus() bool {
	return slices.ContainsFunc(s.GetSubresources(),
		func(r *optionsv1.Subresource) bool { return r.GetName() == "status" })
}

// messageOf returns a message of the package of file, or of the package that stands before its name; nil when there is
// none of that name.
func messageOf(p *protogen.Plugin, file *protogen.File, name string) *protogen.Message {
	full := protoreflect.FullName(name)
	if full.Parent() == "" {
		full = file.Desc.Package().Append(full.Name())
	}
	for _, f := range p.Files {
		for _, m := range f.Messages {
			if m.Desc.FullName() == full {
				return m
			}
		}
	}
	return nil
}
