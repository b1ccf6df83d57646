package apiserver

import (
	"strings"

	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/kinds"
	"monoplane.dev/object"

	adminv1rpc "monoplane.dev/api/admin/v1/rpc"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
	schedulingv1rpc "monoplane.dev/api/scheduling/v1/rpc"
)

// method is what a gRPC method means in terms of verbs and resources.
type method struct {
	attributes auth.Attributes
	// version is that of the API.
	version string
	// open methods need no authorization: health checks.
	open bool
	// operations count its calls, and code is that of the answers over REST.
	operations operations
	code       int
	// stream says that the answer is a stream.
	stream bool
}

// methods maps the full names of methods. A method that is not here is refused.
func methods(services []kinds.Service) map[string]*method {
	out := map[string]*method{
		adminv1rpc.Admin_Stop_FullMethodName:      {attributes: auth.Attributes{Verb: "stop", Resource: "server"}},
		adminv1rpc.Admin_StopNode_FullMethodName:  {attributes: auth.Attributes{Verb: "stop", Resource: "nodeagents"}},
		adminv1rpc.Admin_StartNode_FullMethodName: {attributes: auth.Attributes{Verb: "start", Resource: "nodeagents"}},
		adminv1rpc.Admin_Snapshot_FullMethodName:  {attributes: auth.Attributes{Verb: "snapshot", Resource: "server"}},
		adminv1rpc.Admin_RotateSecretsKey_FullMethodName: {
			attributes: auth.Attributes{Verb: "rotate", Resource: "secretskeys"},
		},
		nodev1rpc.NodeStreams_Listen_FullMethodName: {
			stream: true, attributes: auth.Attributes{Verb: "listen", Resource: "nodestreams"},
		},
		nodev1rpc.NodeStreams_Answer_FullMethodName: {
			stream: true, attributes: auth.Attributes{Verb: "answer", Resource: "nodestreams"},
		},

		schedulingv1rpc.SchedulerStreams_Listen_FullMethodName: {
			stream: true, attributes: auth.Attributes{Verb: "listen", Resource: "schedulerstreams"},
		},
		schedulingv1rpc.SchedulerStreams_Answer_FullMethodName: {
			stream: true, attributes: auth.Attributes{Verb: "answer", Resource: "schedulerstreams"},
		},
	}
	for _, svc := range services {
		d := descriptor(svc.Kind)
		for _, name := range svc.Methods() {
			verb, sub := verbOf(name)
			a := d
			a.Verb, a.Subresource = verb, sub
			out["/"+svc.Desc.ServiceName+"/"+name] = &method{attributes: a, version: svc.Kind.Version}
		}
		for _, d := range svc.Desc.Streams {
			out["/"+svc.Desc.ServiceName+"/"+d.StreamName].stream = true
		}
	}
	bind := &out[corev1rpc.Pods_Bind_FullMethodName].attributes
	bind.Verb, bind.Subresource = "create", "binding"
	evict := &out[corev1rpc.Pods_Evict_FullMethodName].attributes
	evict.Verb, evict.Subresource = "create", "eviction"
	log := &out[corev1rpc.Pods_Log_FullMethodName].attributes
	log.Verb, log.Subresource = "get", "log"
	for full, sub := range map[string]string{
		corev1rpc.Pods_Exec_FullMethodName: "exec", corev1rpc.Pods_Attach_FullMethodName: "attach",
		corev1rpc.Pods_PortForward_FullMethodName: "portforward",
	} {
		a := &out[full].attributes
		a.Verb, a.Subresource = "create", sub
	}
	for _, full := range []string{ // Of pods and services the method of the request decides (authorize).
		corev1rpc.Nodes_Proxy_FullMethodName, corev1rpc.Pods_Proxy_FullMethodName, corev1rpc.Services_Proxy_FullMethodName,
	} {
		a := &out[full].attributes
		a.Verb, a.Subresource = "get", "proxy"
	}
	token := &out[corev1rpc.ServiceAccounts_CreateToken_FullMethodName].attributes
	token.Verb, token.Subresource = "create", "token"
	return out
}

func descriptor(k *object.Kind) auth.Attributes {
	return auth.Attributes{Group: k.Group, Resource: k.Plural, Namespaced: k.Namespaced}
}

// verbOf reads a standard method's name: "Get", "UpdateStatus", "GetScale", "Finalize".
func verbOf(name string) (verb, subresource string) {
	switch name {
	case "Get", "List", "Watch", "Create", "Update", "Patch", "Delete", "DeleteCollection":
		return strings.ToLower(name), ""
	case "Finalize":
		return "update", "finalize"
	}
	for _, prefix := range []string{"Update", "Patch", "Get"} {
		if sub, ok := strings.CutPrefix(name, prefix); ok {
			return strings.ToLower(prefix), strings.ToLower(sub)
		}
	}
	return strings.ToLower(name), ""
}

// addMethods fills in what can be called.
func (s *Server) addMethods() {
	s.methods = methods(s.services)
	for _, m := range s.methods {
		m.meter(s.meter)
	}
	s.unknown = &method{attributes: auth.Attributes{Verb: "unknown"}}
	s.health = &method{open: true, attributes: auth.Attributes{Verb: "check", Resource: "grpc"}}
	s.reflection = &method{stream: true, attributes: auth.Attributes{Verb: "get", Path: auth.ReflectionPath}}
	for _, m := range []*method{s.unknown, s.health, s.reflection} {
		m.meter(s.meter)
	}
}

// lookup finds a method; ok is false for one that nobody may call.
func (s *Server) lookup(full string) (m *method, ok bool) {
	if m, ok = s.methods[full]; ok {
		return m, true
	}
	switch {
	case strings.HasPrefix(full, "/grpc.health.v1.Health/"):
		return s.health, true
	case strings.HasPrefix(full, "/grpc.reflection.v1"):
		return s.reflection, true
	}
	return s.unknown, false
}
