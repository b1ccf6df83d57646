package apiserver_test

import (
	"strings"
	"testing"

	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
)

// An agent reads what the pods of its node refer to, and nothing else; whether there is anything else it does not
// learn.
//
// spec: OBJ-15, NODE-7
func TestNodesReadWhatTheirPodsNeed(t *testing.T) {
	c := start(t)
	for _, n := range []string{"n1", "n2"} {
		c.register(n)
	}
	for _, name := range []string{"mine", "others"} {
		must(c.admin().ConfigMaps.Create(ctx(t), &corev1rpc.CreateConfigMapRequest{
			Object: &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name}},
		}))(t)
		must(c.admin().ServiceAccounts.Create(ctx(t), &corev1rpc.CreateServiceAccountRequest{
			Object: &corev1.ServiceAccount{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name}},
		}))(t)
		must(c.admin().RuntimeClasses.Create(ctx(t), &nodev1rpc.CreateRuntimeClassRequest{Object: newRuntimeClass(name,
			"handler")}))(t)
		claim := newClaim(name)
		claim.Spec.VolumeName = "volume-" + name
		c.claim(claim)
		must(c.admin().PersistentVolumes.Create(ctx(t),
			&corev1rpc.CreatePersistentVolumeRequest{Object: newVolume("volume-" + name)}))(t)
	}
	for name, node := range map[string]string{"mine": "n1", "others": "n2"} {
		p := newPod("pod-" + name)
		p.Spec.ServiceAccountName, p.Spec.RuntimeClassName = name, ptr(name)
		p.Spec.Volumes = []*corev1.Volume{{Name: "v", VolumeSource: &corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}}}
		if err := c.bind(c.createPod(p), node); err != nil {
			t.Fatal(err)
		}
		// The server takes no pod that refers to a ConfigMap yet, but one may be stored.
		c.referTo(p.Metadata.Name, name)
	}
	agent := c.agent("n1")
	get := func(by client, what, name string) error {
		req := &metav1.GetRequest{Namespace: "default", Name: name}
		var err error
		switch what {
		case "configmaps":
			_, err = by.ConfigMaps.Get(ctx(t), req)
		case "serviceaccounts":
			_, err = by.ServiceAccounts.Get(ctx(t), req)
		case "persistentvolumeclaims":
			_, err = by.PersistentVolumeClaims.Get(ctx(t), req)
		case "runtimeclasses":
			_, err = by.RuntimeClasses.Get(ctx(t), &metav1.GetRequest{Name: name})
		case "persistentvolumes":
			_, err = by.PersistentVolumes.Get(ctx(t), &metav1.GetRequest{Name: "volume-" + name})
		}
		return err
	}
	for _, what := range []string{"configmaps", "serviceaccounts", "persistentvolumeclaims", "persistentvolumes",
		"runtimeclasses"} {
		if err := get(agent, what, "mine"); err != nil {
			t.Errorf("%s of its pod: %v", what, err)
		}
		for _, name := range []string{"others", "none"} {
			if err := get(agent, what, name); !apierrors.Is(err, apierrors.Forbidden) {
				t.Errorf("%s %s: %v, want Forbidden", what, name, err)
			}
		}
		if err := get(c.as(agentUser("n1", "stolen")), what, "mine"); !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("%s for another machine of the same name: %v", what, err)
		}
	}
	if _, err := agent.ConfigMaps.Get(ctx(t),
		&metav1.GetRequest{Namespace: "kube-system", Name: "mine"}); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("the same name in another namespace: %v", err)
	}
	if _, err := agent.ConfigMaps.List(ctx(t), &metav1.ListRequest{Namespace: "default"}); !apierrors.Is(err,
		apierrors.Forbidden) {
		t.Errorf("a list: %v", err)
	}
	if _, err := agent.PersistentVolumes.List(ctx(t), &metav1.ListRequest{}); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("a list of volumes: %v", err)
	}
}

// An agent lists the Services of a namespace, for the variables of its pods' containers, and has no other right to
// them.
//
// spec: OBJ-15, LIFE-8
func TestNodesListServices(t *testing.T) {
	c := start(t)
	c.register("n1")
	agent := c.agent("n1")
	if _, err := agent.Services.List(ctx(t), &metav1.ListRequest{Namespace: "default"}); err != nil {
		t.Error(err)
	}
	_, err := agent.Services.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "kubernetes"})
	if !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("get: %v, want Forbidden", err)
	}
	_, err = agent.Services.Create(ctx(t),
		&corev1rpc.CreateServiceRequest{Namespace: "default", Object: &corev1.Service{}})
	if !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("create: %v, want Forbidden", err)
	}
	if _, err := agent.Endpoints.List(ctx(t), &metav1.ListRequest{Namespace: "default"}); !apierrors.Is(err,
		apierrors.Forbidden) {
		t.Errorf("a list of endpoints: %v, want Forbidden", err)
	}
}

// Metrics and reflection are for administrators and for monitoring.
//
// spec: OBJ-15
func TestMonitoring(t *testing.T) {
	c := start(t)
	// One that does nothing; the interceptors judge the call before it.
	reflectionpb.RegisterServerReflectionServer(c.server, reflectionpb.UnimplementedServerReflectionServer{})
	monitoring := &authn.User{Name: "prometheus", Groups: []string{authn.MonitoringGroup}}
	for _, x := range []struct {
		name string
		user *authn.User
		want apierrors.Reason
	}{
		{"nobody", nil, apierrors.Unauthorized},
		{"admin", adminUser(), ""},
		{"monitoring", monitoring, ""},
		{"somebody", &authn.User{Name: "jane"}, apierrors.Forbidden},
		{"an agent", agentUser("n1", "k"), apierrors.Forbidden},
		{"an agent in the group", &authn.User{Name: "system:node:n1",
			Groups: []string{authn.NodesGroup, authn.MonitoringGroup}}, apierrors.Forbidden},
		{"a controller", &authn.User{Name: authn.ControllerPrefix + "podgc"}, apierrors.Forbidden},
		{"the scheduler", &authn.User{Name: authn.SchedulerName}, apierrors.Forbidden},
	} {
		as := authn.WithUser(ctx(t), x.user)
		err := c.api.AuthorizePath(as, "get", "/metrics")
		if x.want == "" && err != nil || x.want != "" && !apierrors.Is(err, x.want) {
			t.Errorf("metrics for %s: %v, want %q", x.name, err, x.want)
		}
		if x.want == apierrors.Forbidden && !strings.Contains(err.Error(), `cannot get path "/metrics"`) {
			t.Errorf("metrics for %s: %v", x.name, err)
		}
		stream, err := reflectionpb.NewServerReflectionClient(c.as(x.user).conn).ServerReflectionInfo(ctx(t))
		if err == nil {
			_, err = stream.Recv()
		}
		if x.want == "" && !apierrors.Is(err, apierrors.MethodNotAllowed) || x.want != "" && !apierrors.Is(err, x.want) {
			t.Errorf("reflection for %s: %v, want %q", x.name, err, x.want)
		}
	}
	for _, verb := range []string{"post", "delete", ""} {
		if err := c.api.AuthorizePath(authn.WithUser(ctx(t), monitoring), verb, "/metrics"); !apierrors.Is(err,
			apierrors.Forbidden) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if _, err := c.as(monitoring).Pods.List(ctx(t), &metav1.ListRequest{}); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("monitoring lists pods: %v", err)
	}
}

// referTo stores a pod with a variable that comes from a ConfigMap.
func (c *cluster) referTo(pod, configMap string) {
	c.t.Helper()
	c.change(store.Key{Kind: corev1.PodKind, Namespace: "default", Name: pod}, func(o object.Object) {
		o.(*corev1.Pod).Spec.Containers[0].Env = []*corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: &corev1.LocalObjectReference{Name: configMap},
				Key: "a"},
		}}}
	})
}

// change stores an object with something that the server does not take from clients.
func (c *cluster) change(key store.Key, edit func(object.Object)) {
	c.t.Helper()
	must(c.store.Mutate(ctx(c.t), key, func(live object.Object) (*store.Txn, error) {
		next := object.Clone(live)
		edit(next)
		return &store.Txn{Ops: []store.Op{{Key: key, Object: next}}}, nil
	}))(c.t)
}
