package criconfig

import (
	"fmt"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/resolvconf"
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
	// HostsFile is the pod's hosts file on the node; empty for none.
	HostsFile string
	// ImageUser is who the container's image says that its processes are.
	ImageUser ImageUser
	// TargetID is the container whose processes an ephemeral container sees; empty for none.
	TargetID string
}

// environment is an ordered list of variables in which a later one of a name replaces an earlier.
type environment struct {
	vars  []*runtimeapi.KeyValue
	index map[string]int
}

func (e *environment) set(name, v string) {
	if i, ok := e.index[name]; ok {
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

// env returns the container's environment: HOSTNAME, then env in order, each entry seeing those before it.
// spec: CTR-7, DOWN-1
func env(p *corev1.Pod, c *corev1.Container, f Facts) (*environment, error) {
	e := &environment{index: make(map[string]int, 1+len(c.GetEnv()))}
	if len(c.GetEnvFrom()) > 0 {
		return nil, fmt.Errorf("container %q: envFrom is not supported by this agent", c.GetName())
	}
	e.set("HOSTNAME", hostname(p, f))
	for _, v := range c.GetEnv() {
		text, err := envValue(p, v, f, e)
		if err != nil {
			return nil, fmt.Errorf("container %q: env %q: %w", c.GetName(), v.GetName(), err)
		}
		e.set(v.GetName(), text)
	}
	return e, nil
}

func envValue(p *corev1.Pod, v *corev1.EnvVar, f Facts, e *environment) (string, error) {
	from := v.GetValueFrom()
	switch {
	case from == nil:
		return Expand(v.GetValue(), e.lookup), nil
	case from.GetFieldRef() != nil:
		return podField(p, from.GetFieldRef().GetFieldPath(), f)
	default:
		return "", fmt.Errorf("this source of valueFrom is not supported by this agent")
	}
}

// podField returns a field of the pod by its path. spec: DOWN-1
func podField(p *corev1.Pod, path string, f Facts) (string, error) {
	meta, spec := p.GetMetadata(), p.GetSpec()
	if key, ok := subscript(path, "metadata.labels"); ok {
		return meta.GetLabels()[key], nil
	}
	if key, ok := subscript(path, "metadata.annotations"); ok {
		return meta.GetAnnotations()[key], nil
	}
	switch path {
	case "metadata.name":
		return meta.GetName(), nil
	case "metadata.namespace":
		return meta.GetNamespace(), nil
	case "metadata.uid":
		return meta.GetUid(), nil
	case "spec.nodeName":
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
		return "", fmt.Errorf("fieldPath %q is not a field that can be used", path)
	}
}

// subscript takes apart a path like metadata.labels['key'].
func subscript(path, of string) (key string, ok bool) {
	rest, ok := strings.CutPrefix(path, of+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
