package openapi

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	optionsv1 "monoplane.dev/api/options/v1"
)

// The names of schemas are those that Kubernetes gives them, since there are tools that know some of them by heart:
// that of a Quantity, or of an object's metadata.
const (
	ownNames  = "dev.monoplane."
	apiNames  = "io.k8s.api."
	metaNames = "io.k8s.apimachinery.pkg.apis.meta.v1."
)

// packages are where messages are in Kubernetes that are neither in its package api nor in that of metadata.
var packages = map[protoreflect.FullName]string{
	"monoplane.meta.v1.Quantity":     "io.k8s.apimachinery.pkg.api.resource.",
	"monoplane.meta.v1.IntOrString":  "io.k8s.apimachinery.pkg.util.intstr.",
	"monoplane.meta.v1.RawExtension": "io.k8s.apimachinery.pkg.runtime.",
	"monoplane.metrics.v1beta1":      "io.k8s.metrics.pkg.apis.metrics.v1beta1.",
	"monoplane.meta.v1":              metaNames,
}

// schemaName is the name of the schema of a message.
func schemaName(d protoreflect.MessageDescriptor) string {
	name := string(d.Name())
	if prefix, ok := packages[d.FullName()]; ok {
		return prefix + name
	}
	pkg := d.ParentFile().Package()
	if prefix, ok := packages[pkg]; ok {
		return prefix + name
	}
	rest := strings.TrimPrefix(string(pkg), "monoplane.") + "." + name
	if own(d.ParentFile()) {
		return ownNames + rest
	}
	return apiNames + rest
}

// own says whether a file is about kinds of which Kubernetes knows nothing.
func own(file protoreflect.FileDescriptor) bool {
	messages := file.Messages()
	for i := range messages.Len() {
		k, _ := proto.GetExtension(messages.Get(i).Options(), optionsv1.E_Kind).(*optionsv1.Kind)
		if strings.HasSuffix(k.GetGroup(), ".monoplane.dev") {
			return true
		}
	}
	return false
}

// operationID is the name that Kubernetes gives to an operation, such as "readCoreV1NamespacedPodStatus".
func (o Operation) operationID() string {
	var version, scope, scopeAfter string
	parts := strings.Split(strings.TrimPrefix(o.Prefix, "/"), "/")
	if len(parts) == 2 {
		version = "Core" + title(parts[1])
	} else {
		for part := range strings.SplitSeq(strings.TrimSuffix(parts[1], ".k8s.io"), ".") {
			version += title(part)
		}
		version += title(parts[2])
	}
	switch {
	case strings.Contains(o.Path, "/namespaces/{namespace}/"):
		scope = "Namespaced"
	case o.Resource.Namespaced && (o.Verb == "list" || o.Verb == "watch"):
		scopeAfter = "ForAllNamespaces"
	}
	kind := o.Resource.Kind
	switch {
	case o.Connects:
		id := "connect" + version + title(strings.ToLower(o.Method)) + scope + kind + title(o.Subresource)
		if strings.HasSuffix(o.Path, "/{path}") {
			id += "WithPath"
		}
		return id
	case o.Verb == "get":
		return "read" + version + scope + kind + title(o.Subresource)
	case o.Verb == "update":
		return "replace" + version + scope + kind + title(o.Subresource)
	case o.Verb == "deletecollection":
		return "delete" + version + "Collection" + scope + kind
	case o.Verb == "watch":
		return "watch" + version + scope + kind + "List" + scopeAfter
	default:
		return o.Verb + version + scope + kind + title(o.Subresource) + scopeAfter
	}
}

func title(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
