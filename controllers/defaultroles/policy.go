package defaultroles

import (
	"strings"

	metav1 "monoplane.dev/api/meta/v1"
	rbacv1 "monoplane.dev/api/rbac/v1"
)

const (
	group = "rbac.authorization.k8s.io"
	// autoUpdate is the annotation of what is kept as it is here; "false" ends that.
	autoUpdate = "rbac.authorization.kubernetes.io/autoupdate"
	// aggregate begins the labels of the roles that others are put together from.
	aggregate = group + "/aggregate-to-"
)

const (
	read  = "get list watch"
	write = "create update patch delete deletecollection"
)

// on returns a rule on resources of API groups; "core" is the core group.
func on(verbs, groups, resources string) *rbacv1.PolicyRule {
	r := &rbacv1.PolicyRule{Verbs: strings.Fields(verbs), Resources: strings.Fields(resources)}
	for g := range strings.FieldsSeq(groups) {
		if g == "core" {
			g = ""
		}
		r.ApiGroups = append(r.ApiGroups, g)
	}
	return r
}

func named(r *rbacv1.PolicyRule, names ...string) *rbacv1.PolicyRule {
	r.ResourceNames = names
	return r
}

func paths(verbs, urls string) *rbacv1.PolicyRule {
	return &rbacv1.PolicyRule{Verbs: strings.Fields(verbs), NonResourceURLs: strings.Fields(urls)}
}

func meta(name string) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{autoUpdate: "true"},
		Labels: map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
	}
}

func role(name string, rules ...*rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{Metadata: meta(name), Rules: rules}
}

// into lets the role that aggregates under a name have the rules of r.
func into(name string, r *rbacv1.ClusterRole) *rbacv1.ClusterRole {
	r.Metadata.Labels[aggregate+name] = "true"
	return r
}

// aggregated returns a role with the rules of those whose labels say so.
func aggregated(name string) *rbacv1.ClusterRole {
	r := role(name)
	r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []*metav1.LabelSelector{
		{MatchLabels: map[string]string{aggregate + name: "true"}},
	}}
	return r
}

// Roles returns the default roles: those of Kubernetes that mean something here, with the same names and rules.
func Roles() []*rbacv1.ClusterRole {
	return []*rbacv1.ClusterRole{
		role("cluster-admin", on("*", "*", "*"), paths("*", "*")),
		role("system:discovery", paths("get", "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz "+
			"/version /version/")),
		role("system:monitoring", paths("get", "/metrics /metrics/slis /livez /readyz /healthz /livez/* /readyz/* "+
			"/healthz/* /flagz /statusz"), on("get", "core", "nodes/metrics")),
		role("system:basic-user",
			on("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
			on("create", "authentication.k8s.io", "selfsubjectreviews")),
		role("system:public-info-viewer", paths("get", "/healthz /livez /readyz /version /version/")),
		aggregated("admin"),
		into("admin", aggregated("edit")),
		into("edit", aggregated("view")),
		into("admin", role("system:aggregate-to-admin",
			on("create", "authorization.k8s.io", "localsubjectaccessreviews"),
			on(read+" "+write, group, "roles rolebindings"))),
		into("edit", role("system:aggregate-to-edit", editRules()...)),
		into("view", role("system:aggregate-to-view", viewRules()...)),
		role("system:auth-delegator",
			on("create", "authentication.k8s.io", "tokenreviews"),
			on("create", "authorization.k8s.io", "subjectaccessreviews")),
		role("system:service-account-issuer-discovery", paths("get", "/.well-known/openid-configuration "+
			"/.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/")),
		role("system:certificates.k8s.io:kube-apiserver-client-approver",
			named(on("approve", "certificates.k8s.io", "signers"), "kubernetes.io/kube-apiserver-client")),
		role("system:kubelet-api-admin",
			on(read, "core", "nodes"), on("proxy", "core", "nodes"),
			on("*", "core", "nodes/proxy nodes/metrics nodes/stats nodes/log"),
			on("*", "core", "nodes/pods nodes/healthz nodes/configz")),
		role("system:persistent-volume-provisioner",
			on(read+" create delete", "core", "persistentvolumes"),
			on(read+" update", "core", "persistentvolumeclaims"),
			on(read, "storage.k8s.io", "storageclasses"),
			on("watch", "core", "events"),
			on("create update patch", "core events.k8s.io", "events")),
	}
}

// metricsRole is the role by which metrics-server, whose API is served too, lets those who may view, edit or
// administer see what pods use.
func metricsRole() *rbacv1.ClusterRole {
	return into("admin", into("edit", into("view", role("system:aggregated-metrics-reader",
		on(read, "metrics.k8s.io", "pods nodes")))))
}

func viewRules() []*rbacv1.PolicyRule {
	return []*rbacv1.PolicyRule{
		on(read, "core", "pods replicationcontrollers replicationcontrollers/scale serviceaccounts services "+
			"services/status endpoints persistentvolumeclaims persistentvolumeclaims/status configmaps"),
		on(read, "core", "limitranges resourcequotas bindings pods/status resourcequotas/status namespaces/status "+
			"replicationcontrollers/status pods/log"),
		on(read, "core", "namespaces"),
		on(read, "core events.k8s.io", "events"),
		on(read, "discovery.k8s.io", "endpointslices"),
		on(read, "apps", "controllerrevisions statefulsets statefulsets/status statefulsets/scale daemonsets "+
			"daemonsets/status deployments deployments/status deployments/scale replicasets replicasets/status "+
			"replicasets/scale"),
		on(read, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
		on(read, "batch", "jobs cronjobs cronjobs/status jobs/status"),
		on(read, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
		on(read, "networking.k8s.io", "networkpolicies ingresses ingresses/status"),
	}
}

func editRules() []*rbacv1.PolicyRule {
	return []*rbacv1.PolicyRule{
		on(read, "core", "pods/attach pods/proxy pods/exec pods/portforward secrets services/proxy"),
		on("impersonate", "core", "serviceaccounts"),
		on(write, "core", "pods pods/attach pods/proxy pods/exec pods/portforward"),
		on("create", "core", "pods/eviction"),
		on(write, "core", "replicationcontrollers replicationcontrollers/scale serviceaccounts services services/proxy "+
			"persistentvolumeclaims configmaps secrets"),
		on("create", "core", "serviceaccounts/token"),
		on(write, "core events.k8s.io", "events"),
		on(write, "apps", "statefulsets statefulsets/scale daemonsets deployments deployments/scale "+
			"deployments/rollback replicasets replicasets/scale"),
		on(write, "autoscaling", "horizontalpodautoscalers"),
		on(write, "batch", "jobs cronjobs"),
		on(write, "policy", "poddisruptionbudgets"),
		on(write, "networking.k8s.io", "networkpolicies ingresses"),
		on(read+" "+write, "coordination.k8s.io", "leases"),
	}
}

// Bindings returns the default bindings.
func Bindings() []*rbacv1.ClusterRoleBinding {
	to := func(role string, groups ...string) *rbacv1.ClusterRoleBinding {
		b := &rbacv1.ClusterRoleBinding{
			Metadata: meta(role), RoleRef: &rbacv1.RoleRef{ApiGroup: group, Kind: "ClusterRole", Name: role},
		}
		for _, g := range groups {
			b.Subjects = append(b.Subjects, &rbacv1.Subject{ApiGroup: group, Kind: "Group", Name: g})
		}
		return b
	}
	return []*rbacv1.ClusterRoleBinding{
		to("cluster-admin", "system:masters"),
		to("system:monitoring", "system:monitoring"),
		to("system:discovery", "system:authenticated"),
		to("system:basic-user", "system:authenticated"),
		to("system:public-info-viewer", "system:authenticated", "system:unauthenticated"),
		to("system:service-account-issuer-discovery", "system:serviceaccounts"),
	}
}
