//go:build kubernetes

package oracle

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/apis/scheduling/validation"
	"k8s.io/kubernetes/plugin/pkg/admission/priority"
)

func theirPriorityClass(t testing.TB, k, old *schedulingv1.PriorityClass) verdict {
	now, was := internal(t, k, &scheduling.PriorityClass{}), internal(t, old, &scheduling.PriorityClass{})
	return verdict{
		Created: theirFaults(validation.ValidatePriorityClass(now)),
		Updated: theirFaults(validation.ValidatePriorityClassUpdate(now, was)),
	}
}

// theirPriority shows what the admission plugin of Kubernetes makes of a new pod.
func theirPriority(t testing.TB, k *v1.Pod, classes []*schedulingv1.PriorityClass) string {
	factory := informers.NewSharedInformerFactory(nil, 0)
	for _, c := range classes {
		if err := factory.Scheduling().V1().PriorityClasses().Informer().GetStore().Add(c); err != nil {
			t.Fatal(err)
		}
	}
	plugin := priority.NewPlugin()
	plugin.SetExternalKubeInformerFactory(factory)
	in := internal(t, k, &core.Pod{})
	if err := plugin.Admit(context.Background(), createdPod(in), nil); err != nil {
		return fmt.Sprint(apierrors.ReasonForError(err), " ", err)
	}
	out := external(t, in, &v1.Pod{})
	return fmt.Sprint(out.Spec.PriorityClassName, " ", *out.Spec.Priority, " ", *out.Spec.PreemptionPolicy)
}
