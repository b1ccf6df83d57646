package podautoscaler

import (
	"strings"

	"monoplane.dev/api/services"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/rules/rights"
)

// Declare describes the controller.
func Declare() controller.Declaration {
	return controller.Declaration{
		Name: "horizontal-pod-autoscaler",
		Grants: []rights.Grant{
			{Verbs: rights.Read, Resources: "horizontalpodautoscalers"},
			{Verbs: "update", Resources: "horizontalpodautoscalers/status"},
			{Verbs: "list", Resources: "pods"}, // of metrics.k8s.io
			{Verbs: "get patch", Resources: scalable()},
		},
		New: func(e controller.Env) (controller.Component, error) {
			return New(Config{Client: e.Client, Shared: e.Shared, Logger: e.Logger})
		},
	}
}

// scalable returns the subresource scale of every kind that has it.
func scalable() string {
	var all []string
	for _, svc := range services.All() {
		if svc.Descriptor.Methods().ByName("GetScale") != nil {
			all = append(all, svc.Kind.Plural+"/scale")
		}
	}
	return strings.Join(all, " ")
}
