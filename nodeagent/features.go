package nodeagent

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
)

// learnFeatures takes what the runtime says that it can do, for the node's status. A runtime that says nothing of
// features leaves status.features out; of a handler whose features it does not tell they are false. What it has said
// stays while it does not answer.
//
// spec: NODE-1
func (a *Agent) learnFeatures(says *runtimeapi.StatusResponse) {
	handlers := make([]*corev1.NodeRuntimeHandler, 0, len(says.GetRuntimeHandlers()))
	for _, h := range says.GetRuntimeHandlers() {
		f := &corev1.NodeRuntimeHandlerFeatures{
			RecursiveReadOnlyMounts: proto.Bool(h.GetFeatures().GetRecursiveReadOnlyMounts()),
			UserNamespaces:          proto.Bool(h.GetFeatures().GetUserNamespaces()),
		}
		handlers = append(handlers, &corev1.NodeRuntimeHandler{Name: h.GetName(), Features: f})
	}
	// Runtimes keep them in maps: another order is no news.
	slices.SortFunc(handlers, func(x, y *corev1.NodeRuntimeHandler) int { return cmp.Compare(x.GetName(), y.GetName()) })
	var features *corev1.NodeFeatures
	if f := says.GetFeatures(); f != nil {
		features = &corev1.NodeFeatures{SupplementalGroupsPolicy: proto.Bool(f.GetSupplementalGroupsPolicy())}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handlers, a.features = handlers, features
}
