// Package controllers lists the controllers. Each has a package of its own, in which it declares itself; to add one,
// write that package and its line in All.
package controllers

import (
	"fmt"
	"slices"
	"strings"

	"monoplane.dev/controllers/apiendpoints"
	"monoplane.dev/controllers/clusterroleaggregation"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/controllers/cronjob"
	"monoplane.dev/controllers/csrcleaner"
	"monoplane.dev/controllers/csrsigning"
	"monoplane.dev/controllers/daemonset"
	"monoplane.dev/controllers/defaultroles"
	"monoplane.dev/controllers/defaultstorageclass"
	"monoplane.dev/controllers/deployment"
	"monoplane.dev/controllers/disruption"
	"monoplane.dev/controllers/endpoints"
	"monoplane.dev/controllers/endpointslice"
	"monoplane.dev/controllers/endpointslicemirroring"
	"monoplane.dev/controllers/ephemeralvolume"
	"monoplane.dev/controllers/garbagecollector"
	"monoplane.dev/controllers/ingress"
	"monoplane.dev/controllers/job"
	"monoplane.dev/controllers/localvolume"
	"monoplane.dev/controllers/namespace"
	"monoplane.dev/controllers/nodeipam"
	"monoplane.dev/controllers/nodelifecycle"
	"monoplane.dev/controllers/persistentvolume"
	"monoplane.dev/controllers/podautoscaler"
	"monoplane.dev/controllers/podgc"
	"monoplane.dev/controllers/replicaset"
	"monoplane.dev/controllers/resourcequota"
	"monoplane.dev/controllers/rootca"
	"monoplane.dev/controllers/serviceaccount"
	"monoplane.dev/controllers/serviceaccounttoken"
	"monoplane.dev/controllers/servicecidr"
	"monoplane.dev/controllers/statefulset"
	"monoplane.dev/controllers/tainteviction"
	"monoplane.dev/controllers/ttlafterfinished"
	"monoplane.dev/rules/rights"
)

// All returns all controllers, in the order in which they are started.
func All() []controller.Declaration {
	return []controller.Declaration{
		podgc.Declare(),
		namespace.Declare(),
		serviceaccount.Declare(),
		serviceaccounttoken.Declare(),
		persistentvolume.Declare(),
		localvolume.Declare(),
		defaultstorageclass.Declare(),
		rootca.Declare(),
		defaultroles.Declare(),
		clusterroleaggregation.Declare(),
		ephemeralvolume.Declare(),
		daemonset.Declare(),
		deployment.Declare(),
		replicaset.Declare(),
		replicaset.DeclareForReplicationControllers(),
		resourcequota.Declare(),
		statefulset.Declare(),
		job.Declare(),
		ttlafterfinished.Declare(),
		cronjob.Declare(),
		nodelifecycle.Declare(),
		nodeipam.Declare(),
		tainteviction.Declare(),
		disruption.Declare(),
		podautoscaler.Declare(),
		garbagecollector.Declare(),
		endpointslice.Declare(),
		apiendpoints.Declare(),
		endpoints.Declare(),
		endpointslicemirroring.Declare(),
		csrsigning.Declare(),
		csrcleaner.Declare(),
		ingress.Declare(),
		servicecidr.Declare(),
	}
}

// Election is the identity that elects the server whose controllers work, where several share an etcd.
const Election = "leader-election"

// NodeNetwork is the identity by which agents whose runtime has a network read Services and what leads to them.
const NodeNetwork = "nodenetwork"

// Chosen returns the controllers that the words of an operator leave: "*" are all, NAME is one, and -NAME is none of
// that name whatever else is said, as with --controllers of Kubernetes' controller manager. No words are all.
func Chosen(words []string) ([]controller.Declaration, error) {
	if len(words) == 0 {
		return All(), nil
	}
	var names []string
	chosen := slices.DeleteFunc(All(), func(d controller.Declaration) bool {
		names = append(names, d.Name)
		return slices.Contains(words, "-"+d.Name) || !slices.Contains(words, "*") && !slices.Contains(words, d.Name)
	})
	for _, word := range words {
		if word != "*" && !slices.Contains(names, strings.TrimPrefix(word, "-")) {
			slices.Sort(names)
			return nil, fmt.Errorf("there is no controller %q; those that there are: %s",
				strings.TrimPrefix(word, "-"), strings.Join(names, ", "))
		}
	}
	return chosen, nil
}

// Roles returns what each of them may do, and who feeds their shared caches, for the server.
func Roles() []rights.Role {
	roles := []rights.Role{controller.SharedRole(), {Name: Election}, {Name: NodeNetwork, Grants: []rights.Grant{
		{Verbs: rights.Read, Resources: "services endpointslices namespaces nodes networkpolicies pods"},
		{Verbs: "create", Resources: "services"},        // kube-dns
		{Verbs: "update", Resources: "services/status"}, // the addresses of load balancers
	}}}
	for _, c := range All() {
		roles = append(roles, rights.Role{Name: c.Name, Grants: c.Grants})
	}
	return roles
}
