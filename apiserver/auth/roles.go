package auth

import "strings"

// grant gives verbs on resources. A resource is written as in URLs, with its subresource: "pods/status"; "*"
// stands for every resource of a namespace, without subresources.
type grant struct {
	verbs, resources string
}

// The paths of what is no resource.
const (
	// MetricsPath is that of the metrics.
	MetricsPath = "/metrics"
	// ReflectionPath stands for the description of the gRPC services.
	ReflectionPath = "/grpc.reflection"
)

const (
	read   = "get list watch"
	write  = "create update patch"
	modify = "update patch"
)

// roles says what each class may do; nothing else is allowed, except to Admin, who may do everything. What is
// marked (own) is narrowed further by owned, by the kinds' strategies, and by what the node's pods refer to. What is no
// resource is written as its path.
func roles() map[Class][]grant {
	everybody := []grant{{write, "events"}, {"get " + write, "leases"}, {read, "priorityclasses"}}
	with := func(gs ...grant) []grant { return append(gs, everybody...) }
	return map[Class][]grant{
		Monitoring: {{"get", MetricsPath + " " + ReflectionPath}},
		Node: with(
			grant{read + " create delete", "pods"}, // (own)
			grant{modify, "pods/status"},           // (own)
			grant{read + " " + write, "nodes"},     // (own)
			grant{modify, "nodes/status"},          // (own)
			grant{"get", "configmaps serviceaccounts persistentvolumes persistentvolumeclaims"}, // (own)
			grant{"listen answer", "nodestreams"},                                               // (own)
		),
		Scheduler: with(
			grant{read + " delete", "pods"},
			grant{modify, "pods/status"},
			grant{"create", "pods/binding"},
			grant{read, "nodes namespaces storageclasses"},
			grant{read + " " + modify, "persistentvolumes persistentvolumeclaims"},
			grant{"listen answer", "schedulerstreams"},
		),
		PodGC: with(
			grant{read + " delete", "pods"},
			grant{modify, "pods/status"},
			grant{read, "nodes"},
		),
		NamespaceController: with(
			grant{read + " delete deletecollection", "*"},
			grant{read + " create", "namespaces"}, // (own)
			grant{modify, "namespaces/status"},
			grant{"update", "namespaces/finalize"},
		),
		ServiceAccountController: with(
			grant{read, "namespaces"},
			grant{read + " create", "serviceaccounts"},
		),
		PersistentVolumeController: with(
			grant{read + " " + write + " delete", "persistentvolumes"},
			grant{read + " " + modify, "persistentvolumeclaims"},
			grant{modify, "persistentvolumes/status persistentvolumeclaims/status"},
			grant{read, "storageclasses pods nodes"},
		),
		Controller: with(
			grant{read, "* nodes namespaces persistentvolumes storageclasses"},
			grant{"delete", "pods"},
			grant{modify, "pods/status nodes/status"},
		),
	}
}

// table is roles in a form that is quick to ask.
type table map[Class]map[string]bool

func compile(roles map[Class][]grant) table {
	t := make(table, len(roles))
	for class, grants := range roles {
		t[class] = make(map[string]bool)
		for _, g := range grants {
			for verb := range strings.FieldsSeq(g.verbs) {
				for resource := range strings.FieldsSeq(g.resources) {
					t[class][verb+" "+resource] = true
				}
			}
		}
	}
	return t
}
