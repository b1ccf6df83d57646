package histories

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	services  = core("services")
	endpoints = core("endpoints")
	parts     = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
)

// servicePorts are one or two ports that name those of containers, or number them.
func servicePorts(r *rand.Rand) []any {
	list := []any{fields{"name": "a", "port": int64(80), "protocol": "TCP", "targetPort": one(r, "http", int64(8080))}}
	if r.IntN(2) == 0 {
		list = append(list, fields{"name": "b", "port": int64(81), "protocol": one(r, "TCP", "UDP"),
			"targetPort": one(r, "dns", int64(53)), "appProtocol": one(r, nil, "http2")})
	}
	return list
}

func newService(r *rand.Rand, name string, spec fields) fields {
	full := fields{"ports": servicePorts(r)}
	for k, v := range spec {
		full[k] = v
	}
	return fields{"apiVersion": "v1", "kind": "Service",
		"metadata": fields{"name": name, "labels": fields{"of": name}}, "spec": full}
}

// serviceNames are of one with a cluster IP, one without and one without a selector.
var serviceNames = []string{"web", "headless", "custom"}

func serviceCalled(r *rand.Rand, name string) fields {
	switch name {
	case "web":
		return newService(r, name, fields{"selector": fields{"app": "w"}})
	case "headless":
		return newService(r, name, fields{"selector": fields{"app": "w"}, "clusterIP": "None"})
	default:
		return newService(r, name, fields{})
	}
}

// subsets are what somebody writes by hand into Endpoints.
func subsets(r *rand.Rand) []any {
	list := []any{}
	for i := range r.IntN(3) {
		s := fields{"ports": []any{fields{"name": fmt.Sprint("p", r.IntN(2)), "port": int64(80 + r.IntN(2)),
			"protocol": "TCP"}}}
		for _, field := range []string{"addresses", "notReadyAddresses"} {
			var addresses []any
			for j := range r.IntN(3) {
				addresses = append(addresses, fields{"ip": fmt.Sprintf("10.9.%d.%d", i, 1+j+10*len(field)),
					"hostname": one(r, nil, "h")})
			}
			if len(addresses) > 0 {
				s[field] = addresses
			}
		}
		if len(s) > 1 {
			list = append(list, s)
		}
	}
	return list
}

func (w *world) has(t *testing.T, resource schema.GroupVersionResource, name string) bool {
	t.Helper()
	for _, o := range w.list(t, resource) {
		if o.GetName() == name {
			return true
		}
	}
	return false
}

var servicesSteps = []step{
	{"a pod made", podMade}, {"a pod made", podMade}, {"a pod made", podMade},
	{"a pod reports", podReports}, {"a pod reports", podReports}, {"a pod reports", podReports},
	{"a pod ends", func(t *testing.T, r *rand.Rand, w *world) {
		// One that is ready: that another has ended Kubernetes' controllers see only when something else changes.
		for _, p := range w.some(t, r) {
			if condition(p.Object, "Ready") == "True" {
				w.report(t, p, fmt.Sprint(one(r, "Failed", "Succeeded")), ended(0))
				return
			}
		}
	}},
	podDeleted, letGo, relabelled,
	{"a service changed", func(t *testing.T, r *rand.Rand, w *world) {
		spec := fields{"ports": servicePorts(r), "publishNotReadyAddresses": r.IntN(2) == 0}
		name := serviceNames[r.IntN(2)]
		if r.IntN(4) == 0 {
			spec["selector"] = fields{"app": one(r, "w", "other")}
		}
		w.patch(t, services, name, fields{"spec": spec, "metadata": fields{"labels": fields{"more": one(r, nil, "x")}}})
	}},
	{"a service deleted or made", func(t *testing.T, r *rand.Rand, w *world) {
		name := serviceNames[r.IntN(3)]
		if w.has(t, services, name) {
			w.remove(t, services, name, v1.DeleteOptions{})
		} else {
			w.create(t, services, serviceCalled(r, name))
		}
	}},
	{"endpoints written by hand", endpointsByHand}, {"endpoints written by hand", endpointsByHand},
}

func podMade(t *testing.T, r *rand.Rand, w *world) {
	name := fmt.Sprint("p", r.IntN(6))
	if w.has(t, pods, name) {
		return
	}
	container := fields{"name": "c", "image": "image:1"}
	if r.IntN(4) > 0 {
		container["ports"] = []any{fields{"name": "http", "containerPort": one(r, int64(8080), int64(9090))},
			fields{"name": "dns", "containerPort": int64(5353), "protocol": one(r, "TCP", "UDP")}}
	}
	spec := fields{"nodeName": hand, "containers": []any{container}, "terminationGracePeriodSeconds": int64(1)}
	if r.IntN(2) == 0 {
		spec["hostname"], spec["subdomain"] = name, one(r, "headless", "elsewhere")
	}
	w.create(t, pods, fields{"apiVersion": "v1", "kind": "Pod",
		"metadata": fields{"name": name, "labels": fields{"app": one(r, "w", "w", "other")}}, "spec": spec})
}

// podReports gives a pod its address and says whether it is ready.
func podReports(t *testing.T, r *rand.Rand, w *world) {
	for _, p := range w.some(t, r) {
		status := isReady(r.IntN(3) > 0)
		ip := "10.1.0.1" + p.GetName()[1:]
		status["podIP"], status["podIPs"] = ip, []any{fields{"ip": ip}}
		w.report(t, p, "Running", status)
	}
}

func endpointsByHand(t *testing.T, r *rand.Rand, w *world) {
	labels := fields{"endpointslice.kubernetes.io/skip-mirror": one(r, nil, nil, nil, "true")}
	o := fields{"apiVersion": "v1", "kind": "Endpoints", "metadata": fields{"name": "custom", "labels": labels},
		"subsets": subsets(r)}
	switch {
	case !w.has(t, endpoints, "custom"):
		if labels["endpointslice.kubernetes.io/skip-mirror"] == nil {
			delete(o["metadata"].(fields), "labels")
		}
		w.create(t, endpoints, o)
	case r.IntN(4) == 0:
		w.remove(t, endpoints, "custom", v1.DeleteOptions{})
	default:
		w.patch(t, endpoints, "custom", fields{"metadata": fields{"labels": labels}, "subsets": o["subsets"]})
	}
}

func servicesKind() map[string]kind {
	return map[string]kind{"Service": {
		controllers: []string{"endpoint", "endpointslice", "endpointslicemirroring"},
		without:     slices.Concat(byHand, []string{"apiendpoints"}), nodes: -1, named: true,
		begin: func(t *testing.T, r *rand.Rand, w *world) {
			w.addHand(t)
			for _, name := range serviceNames {
				w.create(t, services, serviceCalled(r, name))
			}
		},
		steps: servicesSteps,
		shown: []shown{
			{resource: endpoints, named: true, paths: []string{"metadata.annotations", "metadata.labels", "subsets"}},
			{resource: parts, paths: []string{"metadata.annotations", "metadata.labels", "metadata.ownerReferences",
				"addressType", "ports", "endpoints"}},
		},
	}}
}
