package criconfig

import (
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/resolvconf"
	"monoplane.dev/rules/downward"
)

// Facts are what a pod cannot know by itself.
type Facts struct {
	// HostIPs and PodIPs are the addresses of the node and the pod, the primary ones first.
	HostIPs, PodIPs []string
	// NodeHostname is the node's own host name.
	NodeHostname string
	// Owner marks what is made as one agent's; empty for no mark.
	Owner string
	// CgroupParent is the cgroup below which pods run; empty leaves it to the runtime.
	CgroupParent string
	// Node is what holds for all pods of the node; nothing is known of it when it is nil.
	Node *Node
	// Resolver is how the node resolves names.
	Resolver resolvconf.Config
	// WithoutServices says that programs on the node's own network do not reach Services.
	WithoutServices bool
	// HostsFile is the pod's hosts file on the node; empty for none.
	HostsFile string
	// FirstID is the first of the ids of a pod that wants users of its own.
	FirstID uint32
	// ImageUser is who the container's image says that its processes are.
	ImageUser ImageUser
	// TargetID is the container whose processes an ephemeral container sees; empty for none.
	TargetID string
	// Content is what variables are made of besides the pod.
	Content Content
}

// environment is an ordered list of variables in which a later one of a name replaces an earlier.
//
// Invariant: the first is HOSTNAME. $(HOSTNAME) does not see it, as in Kubernetes, unless the pod has one of its own.
type environment struct {
	vars  []*runtimeapi.KeyValue
	index map[string]int
}

const hostnameVar = "HOSTNAME"

func newEnvironment(hostname string, size int) *environment {
	e := &environment{vars: make([]*runtimeapi.KeyValue, 0, 1+size), index: make(map[string]int, size)}
	e.vars = append(e.vars, &runtimeapi.KeyValue{Key: hostnameVar, Value: []byte(hostname)})
	return e
}

func (e *environment) set(name, v string) {
	i, ok := e.index[name]
	if ok || name == hostnameVar {
		e.index[name] = i
		e.vars[i].Value = []byte(v)
		return
	}
	e.index[name] = len(e.vars)
	e.vars = append(e.vars, &runtimeapi.KeyValue{Key: name, Value: []byte(v)})
}

func (e *environment) lookup(name string) (string, bool) {
	i, ok := e.index[name]
	if !ok {
		return "", false
	}
	return string(e.vars[i].Value), true
}

// env returns the container's environment: HOSTNAME and where the API and the Services are, then what envFrom brings,
// then env in order, each entry seeing what came before it. Errors are in Kubernetes' words, since users look for
// these.
// spec: CTR-7, DOWN-1
func env(p *corev1.Pod, c *corev1.Container, f Facts) (*environment, error) {
	e := newEnvironment(hostname(p, f), len(c.GetEnv()))
	if err := f.setServices(p, e); err != nil {
		return nil, err
	}
	from := &values{p: p, c: c, f: f}
	for _, source := range c.GetEnvFrom() {
		if err := from.all(source, e); err != nil {
			return nil, err
		}
	}
	for _, v := range c.GetEnv() {
		text, ok := Expand(v.GetValue(), e.lookup), true
		if v.GetValue() == "" && v.GetValueFrom() != nil {
			var err error
			if text, ok, err = from.one(v.GetValueFrom()); err != nil {
				return nil, err
			}
		}
		if ok {
			e.set(v.GetName(), text)
		}
	}
	return e, nil
}

// podField returns a field of the pod by its path. spec: DOWN-1
func podField(p *corev1.Pod, path string, f Facts) (string, error) {
	spec := p.GetSpec()
	switch path {
	case "spec.nodeName", "spec.host":
		return spec.GetNodeName(), nil
	case "spec.serviceAccountName":
		return spec.GetServiceAccountName(), nil
	case "status.hostIP":
		return first(f.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(f.HostIPs, ","), nil
	case "status.podIP":
		return first(f.PodIPs), nil
	case "status.podIPs":
		return strings.Join(f.PodIPs, ","), nil
	default:
		return downward.Field(p.GetMetadata(), path)
	}
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
