//go:build kubernetes

package oracle

import (
	"context"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/plugin/pkg/admission/serviceaccount"
)

func theirAdmissionByServiceAccount(t testing.TB, account *v1.ServiceAccount, p *v1.Pod) admitted {
	in := internal(t, p, &core.Pod{})
	plugin := serviceaccount.NewServiceAccount()
	plugin.MountServiceAccountToken = true
	client := fake.NewClientset(account)
	plugin.SetExternalKubeClientSet(client)
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin.SetExternalKubeInformerFactory(factory)
	if err := factory.Core().V1().ServiceAccounts().Informer().GetStore().Add(account); err != nil {
		t.Fatal(err)
	}
	if err := plugin.Admit(context.Background(), createdPod(in), nil); err != nil {
		return admitted{Refused: err.Error()}
	}
	out := external(t, in, &v1.Pod{})
	sameName(out)
	return admitted{Pod: out}
}

// sameName gives the volume that Kubernetes has added the name that it has here, where it is the same in all pods.
func sameName(p *v1.Pod) {
	const prefix, name = "kube-api-access-", "kube-api-access-token"
	last := len(p.Spec.Volumes) - 1
	if last < 0 || len(p.Spec.Volumes[last].Name) != len(name) || !strings.HasPrefix(p.Spec.Volumes[last].Name, prefix) {
		return
	}
	was := p.Spec.Volumes[last].Name
	p.Spec.Volumes[last].Name = name
	for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			for j := range containers[i].VolumeMounts {
				if m := &containers[i].VolumeMounts[j]; m.Name == was {
					m.Name = name
				}
			}
		}
	}
}
