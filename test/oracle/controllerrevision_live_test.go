//go:build kubernetes

package oracle

import (
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/apps/validation"
)

func theirControllerRevision(t testing.TB, next, before []byte) verdict {
	var k, old appsv1.ControllerRevision
	if err := errors.Join(k.Unmarshal(next), old.Unmarshal(before)); err != nil {
		t.Fatal(err)
	}
	now, was := internal(t, &k, &apps.ControllerRevision{}), internal(t, &old, &apps.ControllerRevision{})
	return verdict{
		Created: theirFaults(validation.ValidateControllerRevisionCreate(now)),
		Updated: theirFaults(validation.ValidateControllerRevisionUpdate(now, was)),
	}
}
