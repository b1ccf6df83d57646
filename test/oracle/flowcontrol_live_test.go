//go:build kubernetes

package oracle

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/kubernetes/pkg/apis/flowcontrol"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/flowschema"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/prioritylevelconfiguration"
)

func theirFlowSchema(t testing.TB, k, old *flowcontrolv1.FlowSchema) filledVerdict {
	ctx := ofGroup("flowcontrol.apiserver.k8s.io")
	now, was := internal(t, k, &flowcontrol.FlowSchema{}), internal(t, old, &flowcontrol.FlowSchema{})
	plain := now.DeepCopy()
	plain.Status = flowcontrol.FlowSchemaStatus{}
	return filledVerdict{
		verdict: verdict{
			Created: theirFaults(flowschema.Strategy.Validate(ctx, plain)),
			Updated: theirFaults(flowschema.Strategy.ValidateUpdate(ctx, plain, was)),
			Status:  theirFaults(flowschema.StatusStrategy.ValidateUpdate(ctx, now, was)),
		},
		Filled: filled(t, k),
	}
}

func theirPriorityLevel(t testing.TB, k, old *flowcontrolv1.PriorityLevelConfiguration) filledVerdict {
	ctx := ofGroup("flowcontrol.apiserver.k8s.io")
	now := internal(t, k, &flowcontrol.PriorityLevelConfiguration{})
	was := internal(t, old, &flowcontrol.PriorityLevelConfiguration{})
	plain := now.DeepCopy()
	plain.Status = flowcontrol.PriorityLevelConfigurationStatus{}
	return filledVerdict{
		verdict: verdict{
			Created: theirFaults(prioritylevelconfiguration.Strategy.Validate(ctx, plain)),
			Updated: theirFaults(prioritylevelconfiguration.Strategy.ValidateUpdate(ctx, plain, was)),
			Status:  theirFaults(prioritylevelconfiguration.StatusStrategy.ValidateUpdate(ctx, now, was)),
		},
		Filled: filled(t, k),
	}
}
