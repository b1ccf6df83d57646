//go:build kubernetes

package oracle

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/node"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	strategy "k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/plugin/pkg/admission/runtimeclass"
)

func theirRuntimeClass(t testing.TB, k, old *nodev1.RuntimeClass) verdict {
	now, was := internal(t, k, &node.RuntimeClass{}), internal(t, old, &node.RuntimeClass{})
	return verdict{
		Created: theirFaults(strategy.Strategy.Validate(context.Background(), now)),
		Updated: theirFaults(strategy.Strategy.ValidateUpdate(context.Background(), now, was)),
	}
}

func theirAdmissionByRuntimeClass(t testing.TB, class *nodev1.RuntimeClass, p *v1.Pod) admitted {
	in := internal(t, p, &core.Pod{})
	plugin := runtimeclass.NewRuntimeClass()
	client := fake.NewClientset(class)
	plugin.SetExternalKubeClientSet(client)
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin.SetExternalKubeInformerFactory(factory)
	if err := factory.Node().V1().RuntimeClasses().Informer().GetStore().Add(class); err != nil {
		t.Fatal(err)
	}
	err := plugin.Admit(context.Background(), createdPod(in), nil)
	if err == nil {
		err = plugin.Validate(context.Background(), createdPod(in), nil)
	}
	if err != nil {
		return admitted{Refused: err.Error()}
	}
	return admitted{Pod: external(t, in, &v1.Pod{})}
}
