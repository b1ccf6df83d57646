package kinds

import (
	"testing"

	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"

	metav1 "monoplane.dev/api/meta/v1"
)

// served is how kube-apiserver serves a kind.
type served struct {
	// made says that an update makes what is not there (AllowCreateOnUpdate of the strategy), stated that an update must
	// state a revision (not AllowUnconditionalUpdate), shown that a deletion is answered with the object, whether or not
	// it is gone (ReturnDeletedObject of the store), and counted that a new object has a generation (PrepareForCreate).
	made, stated, shown, counted bool
}

// inKubernetes are read out of pkg/registry of Kubernetes 1.36.3.
var inKubernetes = map[string]served{
	"configmaps":             {},
	"endpoints":              {made: true},
	"events":                 {made: true},
	"limitranges":            {made: true},
	"namespaces":             {shown: true},
	"nodes":                  {},
	"persistentvolumeclaims": {shown: true},
	"persistentvolumes":      {shown: true},
	"pods":                   {shown: true, counted: true},
	"podtemplates":           {shown: true, counted: true},
	"replicationcontrollers": {counted: true},
	"resourcequotas":         {shown: true},
	"secrets":                {},
	"serviceaccounts":        {shown: true},
	"services":               {made: true, shown: true},

	"controllerrevisions.apps": {},
	"daemonsets.apps":          {counted: true},
	"deployments.apps":         {counted: true},
	"replicasets.apps":         {counted: true},
	"statefulsets.apps":        {counted: true},

	"horizontalpodautoscalers.autoscaling": {},

	"cronjobs.batch": {counted: true},
	"jobs.batch":     {counted: true},

	"certificatesigningrequests.certificates.k8s.io": {},

	"leases.coordination.k8s.io": {made: true, stated: true},

	"endpointslices.discovery.k8s.io": {counted: true},

	"events.events.k8s.io": {made: true},

	"flowschemas.flowcontrol.apiserver.k8s.io":                 {counted: true},
	"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": {counted: true},

	"ingressclasses.networking.k8s.io":  {counted: true},
	"ingresses.networking.k8s.io":       {counted: true},
	"ipaddresses.networking.k8s.io":     {},
	"networkpolicies.networking.k8s.io": {counted: true},
	"servicecidrs.networking.k8s.io":    {},

	"runtimeclasses.node.k8s.io": {made: true, stated: true},

	"poddisruptionbudgets.policy": {stated: true, counted: true},

	"clusterrolebindings.rbac.authorization.k8s.io": {made: true},
	"clusterroles.rbac.authorization.k8s.io":        {made: true},
	"rolebindings.rbac.authorization.k8s.io":        {made: true},
	"roles.rbac.authorization.k8s.io":               {made: true},

	"priorityclasses.scheduling.k8s.io": {counted: true},

	"storageclasses.storage.k8s.io": {shown: true},
}

// Every kind that is stored is made by updates, updated blindly and shown when it is deleted as by kube-apiserver.
func TestStrategies(t *testing.T) {
	for _, s := range All(define.Config{}) {
		stored, ok := s.Backend.(interface{ Strategy() *registry.Strategy })
		if !ok || s.Descriptor.Methods().ByName("Update") == nil {
			continue
		}
		of := stored.Strategy()
		is := served{made: of.CreateOnUpdate, stated: of.RequireRevision, counted: of.Spec != nil}
		is.shown = of.ReturnsDeleted || s.Descriptor.Methods().ByName("Delete").Output().FullName() !=
			(*metav1.Status)(nil).ProtoReflect().Descriptor().FullName()
		if o := of.Kind.New(); !is.counted {
			of.Default(o)
			is.counted = o.GetMetadata().GetGeneration() > 0
		}
		if want, ok := inKubernetes[s.Kind.Resource()]; !ok || is != want {
			t.Errorf("%s: %+v, Kubernetes %+v", s.Kind.Resource(), is, want)
		}
	}
}
