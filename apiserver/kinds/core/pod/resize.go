package pod

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/resource"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/object"
	"monoplane.dev/rules/resources"

	corev1 "monoplane.dev/api/core/v1"
)

// authorizeResize refuses a resize that the pod's node can never have room for, or does not know how to do, as the
// admission PodResizeValidator of Kubernetes does. What is wrong with the resize itself is for validation to say.
func (p *Pods) authorizeResize(ctx context.Context, _ *registry.Update, next, live *corev1.Pod) error {
	name := next.GetSpec().GetNodeName()
	if name == "" || proto.Equal(next.GetSpec(), live.GetSpec()) || len(ValidateResize(next, live)) > 0 {
		return nil
	}
	forbidden := func(format string, args ...any) *apierrors.Error {
		return apierrors.NewForbidden(corev1.PodKind, live.GetMetadata().GetName(), format, args...)
	}
	o, err := p.deps.Store.Get(ctx, nodeKeyOf(name), "")
	if apierrors.Is(err, apierrors.NotFound) {
		return forbidden("node %q not found", name)
	}
	if err != nil {
		return err
	}
	node := o.(*corev1.Node)
	if system := node.GetMetadata().GetLabels()["kubernetes.io/os"]; system != "" && system != "linux" {
		return forbidden("pod resize is only supported on linux nodes, node %q is %q", name, system).
			WithCause(apierrors.Cause{Type: "UnsupportedPlatform"})
	}
	if short := short(resources.Requests(next.GetSpec()), node.GetStatus()); short != "" {
		return forbidden("node didn't have enough allocatable resources: %s", short).
			WithCause(apierrors.Cause{Type: "NodeCapacity"})
	}
	return nil
}

// short says which requests are larger than all that a node has for pods.
func short(requests resources.List, has *corev1.NodeStatus) string {
	var texts []string
	for _, r := range []struct {
		name  string
		count func(*resource.Quantity) int64
	}{{"cpu", (*resource.Quantity).MilliValue}, {"memory", (*resource.Quantity).Value}} {
		asked, _ := requests.Get(r.name)
		// An amount that cannot be read is none, and there is none that is not valid.
		allocatable, _ := resource.ParseQuantity(has.GetAllocatable()[r.name].GetString_())
		if asked.Cmp(allocatable) > 0 {
			texts = append(texts, fmt.Sprintf("%s, requested: %d, allocatable: %d", r.name, r.count(&asked),
				r.count(&allocatable)))
		}
	}
	return strings.Join(texts, "; ")
}

// applyResize: a resize changes what the containers, and the pod as a whole, ask for and nothing else (OBJ-10).
// Containers that are other ones than before are kept as they are asked for, so that validation can say what is wrong.
func applyResize(asked, live *corev1.Pod) *corev1.Pod {
	next := &corev1.Pod{Metadata: object.Clone(asked.GetMetadata()), Spec: object.Clone(asked.GetSpec())}
	Default(next)
	next.Status = live.Status
	was := live.GetSpec()
	if len(next.Spec.Containers) != len(was.GetContainers()) ||
		len(next.Spec.InitContainers) != len(was.GetInitContainers()) {
		return next
	}
	spec := was.Shallow()
	spec.Containers = resized(next.Spec.Containers, was.GetContainers())
	spec.InitContainers = resized(next.Spec.InitContainers, was.GetInitContainers())
	spec.Resources = next.Spec.Resources
	next.Spec = spec
	return next
}

// resized returns the containers with the resources that are asked for, as many as there were.
func resized(asked, was []*corev1.Container) []*corev1.Container {
	next := make([]*corev1.Container, len(was))
	for i, c := range was {
		if asked[i].GetName() != c.GetName() {
			return asked
		}
		next[i] = c.Shallow()
		next[i].Resources, next[i].ResizePolicy = asked[i].GetResources(), asked[i].GetResizePolicy()
	}
	return next
}
