package apiserver_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver"
	"monoplane.dev/apiserver/admission/security"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/warning"

	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

const standard = "pod-security.kubernetes.io/"

// label gives namespace default labels, and returns what the caller was warned of and refused with.
func (c *cluster) label(t *testing.T, pairs ...string) ([]string, error) {
	t.Helper()
	n := clone(must(c.admin().Namespaces.Get(ctx(t), &metav1.GetRequest{Name: "default"}))(t))
	for name := range n.Metadata.Labels {
		if strings.HasPrefix(name, standard) {
			delete(n.Metadata.Labels, name)
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		n.Metadata.Labels[standard+pairs[i]] = pairs[i+1]
	}
	return warned(func(header grpc.CallOption) error {
		return second(c.admin().Namespaces.Update(ctx(t), &corev1rpc.UpdateNamespaceRequest{Object: n}, header))
	})
}

// warned returns what f was warned of.
func warned(f func(grpc.CallOption) error) ([]string, error) {
	var header metadata.MD
	err := f(grpc.Header(&header))
	return header.Get(warning.MetadataKey), err
}

func privilegedPod(name string) *corev1.Pod {
	p := podOfImage(name, "nginx")
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: proto.Bool(true)}
	return p
}

const (
	violates = `violates PodSecurity "baseline:latest": privileged (container "main" must not set ` +
		`securityContext.privileged=true)`
)

// A namespace's labels count from the answer on. spec: OBJ-3
func TestPodSecurity(t *testing.T) {
	c := start(t, func(cfg *apiserver.Config) {
		cfg.PodSecurity = security.Config{Users: []string{"robot"}, RuntimeClasses: []string{"vm"}}
	})
	create := func(p *corev1.Pod) ([]string, error) {
		return warned(func(header grpc.CallOption) error {
			return second(c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p}, header))
		})
	}
	if texts, err := create(privilegedPod("before")); err != nil || len(texts) > 0 {
		t.Fatalf("without labels: %v, %v", texts, err)
	}
	_, err := c.label(t, "enforce", "basic", "warn-version", "1.2")
	if got := told(err); !apierrors.Is(err, apierrors.Invalid) || got != `Namespace "default" is invalid: [`+
		`metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "basic": must be one of `+
		`privileged, baseline, restricted, metadata.labels[pod-security.kubernetes.io/warn-version]: `+
		`Invalid value: "1.2": must be "latest" or "v1.x"]` {
		t.Errorf("labels that mean nothing: %v", err)
	}
	texts, err := c.label(t, "enforce", "baseline", "audit", "restricted")
	if err != nil || !slices.Equal(texts, []string{
		`existing pods in namespace "default" violate the new PodSecurity enforce level "baseline:latest"`,
		"before: privileged",
	}) {
		t.Errorf("the pods that are there: %q, %v", texts, err)
	}
	if _, err := create(privilegedPod("a")); told(err) != `pods "a" is forbidden: `+violates ||
		!apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("enforced: %v", err)
	}
	if texts, err := create(podOfImage("b", "nginx")); err != nil || len(texts) > 0 {
		t.Errorf("what keeps to it: %q, %v", texts, err)
	}
	if log := c.log.String(); !strings.Contains(log, `would violate PodSecurity \"restricted:latest\"`) {
		t.Errorf("nothing was noted: %s", log)
	}
	robot := c.as(&authn.User{Name: "robot", Groups: []string{authn.AdminsGroup}})
	if err := second(robot.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: privilegedPod("c")})); err != nil {
		t.Errorf("a user who is exempt: %v", err)
	}

	// Of a workload is warned, and only its pods are refused.
	d := newDeployment("web")
	d.Spec.Template.Spec = privilegedPod("").Spec
	texts, err = warned(func(header grpc.CallOption) error {
		return second(c.admin().Deployments.Create(ctx(t), &appsv1rpc.CreateDeploymentRequest{Object: d}, header))
	})
	if err != nil || !slices.Equal(texts, []string{"would " + strings.Replace(violates, "violates", "violate", 1)}) {
		t.Errorf("a template: %q, %v", texts, err)
	}
	if _, err := c.label(t); err != nil {
		t.Fatal(err)
	}
	if texts, err := create(privilegedPod("after")); err != nil || len(texts) > 0 {
		t.Errorf("without labels again: %v, %v", texts, err)
	}
}
