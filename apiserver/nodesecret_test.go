package apiserver_test

import (
	"strings"
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// readings are the ways to read ConfigMaps and Secrets. A selector is metadata.name=NAME unless the way says
// otherwise; what is read comes as text.
var readings = map[string]func(by client, secret bool, namespace, name string, t *testing.T) (string, error){
	"get": func(by client, secret bool, namespace, name string, t *testing.T) (string, error) {
		req := &metav1.GetRequest{Namespace: namespace, Name: name}
		if secret {
			o, err := by.Secrets.Get(ctx(t), req)
			return o.String(), err
		}
		o, err := by.ConfigMaps.Get(ctx(t), req)
		return o.String(), err
	},
	"list": func(by client, secret bool, namespace, name string, t *testing.T) (string, error) {
		return list(by, secret, namespace, "metadata.name="+name, t)
	},
	"watch": func(by client, secret bool, namespace, name string, t *testing.T) (string, error) {
		return watch(by, secret, namespace, "metadata.name="+name, t)
	},
}

func list(by client, secret bool, namespace, selector string, t *testing.T) (string, error) {
	req := &metav1.ListRequest{Namespace: namespace, FieldSelector: selector}
	if secret {
		o, err := by.Secrets.List(ctx(t), req)
		return o.String(), err
	}
	o, err := by.ConfigMaps.List(ctx(t), req)
	return o.String(), err
}

func watch(by client, secret bool, namespace, selector string, t *testing.T) (string, error) {
	yes := true
	req := &metav1.WatchRequest{Namespace: namespace, FieldSelector: selector, SendInitialEvents: &yes,
		ResourceVersionMatch: "NotOlderThan", AllowWatchBookmarks: true}
	if secret {
		w, err := by.Secrets.Watch(ctx(t), req)
		if err != nil {
			return "", err
		}
		batch, err := w.Recv()
		return batch.String(), err
	}
	w, err := by.ConfigMaps.Watch(ctx(t), req)
	if err != nil {
		return "", err
	}
	batch, err := w.Recv()
	return batch.String(), err
}

// An agent reads the ConfigMaps and Secrets that the pods of its machine use, whole, and no others. Whether there are
// others it does not learn.
//
// spec: OBJ-15, NODE-7
func TestNodesReadTheContentOfTheirPods(t *testing.T) {
	c := start(t)
	for _, n := range []string{"n1", "n2"} {
		c.register(n)
	}
	for _, namespace := range []string{"default", "kube-system"} {
		for _, name := range []string{"mine", "others", "free"} {
			if name == "free" && namespace == "default" {
				continue
			}
			s := newSecret(name, map[string]string{"k": canary})
			s.Metadata.Namespace = namespace
			must(c.admin().Secrets.Create(ctx(t), &corev1rpc.CreateSecretRequest{Object: s}))(t)
			m := &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name},
				Data: map[string]string{"k": canary}}
			must(c.admin().ConfigMaps.Create(ctx(t), &corev1rpc.CreateConfigMapRequest{Object: m}))(t)
		}
	}
	for name, node := range map[string]string{"mine": "n1", "others": "n2"} {
		p := newPod("pod-" + name)
		p.Spec.ImagePullSecrets = []*corev1.LocalObjectReference{{Name: name}}
		if err := c.bind(c.createPod(p), node); err != nil {
			t.Fatal(err)
		}
		c.referTo(p.Metadata.Name, name)
	}
	agent, stolen := c.agent("n1"), c.as(agentUser("n1", "stolen"))
	refused := func(what, text string, err error) {
		t.Helper()
		if !apierrors.Is(err, apierrors.Forbidden) || strings.Contains(text, canary) {
			t.Errorf("%s: %q, %v; want Forbidden", what, text, err)
		}
	}
	for _, secret := range []bool{true, false} {
		kind := map[bool]string{true: "secrets", false: "configmaps"}[secret]
		for verb, read := range readings {
			text, err := read(agent, secret, "default", "mine", t)
			if err != nil || !strings.Contains(text, canary) {
				t.Errorf("%s %s of its pod: %q, %v", verb, kind, text, err)
			}
			said := map[string]string{}
			for _, name := range []string{"others", "free"} {
				text, err := read(agent, secret, "default", name, t)
				refused(verb+" "+kind+" "+name, text, err)
				said[name] = strings.ReplaceAll(err.Error(), name, "NAME")
			}
			if said["others"] != said["free"] {
				t.Errorf("%s %s tells what is there from what is not: %q, %q", verb, kind, said["others"], said["free"])
			}
			text, err = read(agent, secret, "kube-system", "mine", t)
			refused(verb+" "+kind+" in another namespace", text, err)
			text, err = read(agent, secret, "", "mine", t)
			if err == nil || strings.Contains(text, canary) {
				t.Errorf("%s %s in no namespace: %q, %v", verb, kind, text, err)
			}
			text, err = read(stolen, secret, "default", "mine", t)
			refused(verb+" "+kind+" for another machine of the same name", text, err)
		}
		for _, selector := range []string{
			"", "metadata.namespace=default", "metadata.name!=others", "metadata.name=", "metadata.name==others",
			"metadata.name=mine,metadata.name=others", "metadata.name=mine,metadata.name!=others", "x",
			"metadata.namespace=kube-system,metadata.name=mine", "type=Opaque", "metadata.name=mine,type=Opaque",
		} {
			text, err := list(agent, secret, "default", selector, t)
			refused("list "+kind+" "+selector, text, err)
			text, err = watch(agent, secret, "default", selector, t)
			refused("watch "+kind+" "+selector, text, err)
		}
	}
	got := must(agent.Secrets.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "mine"}))(t)
	if string(got.Data["k"]) != canary || got.Type != "Opaque" {
		t.Errorf("a Secret of its pod is not whole: %v", got)
	}
	for what, try := range map[string]func() error{
		"deletecollection": func() error {
			_, err := agent.Secrets.DeleteCollection(ctx(t), &metav1.DeleteCollectionRequest{Namespace: "default",
				FieldSelector: "metadata.name=mine"})
			return err
		},
		"delete": func() error {
			_, err := agent.Secrets.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "mine"})
			return err
		},
		"create": func() error {
			_, err := agent.Secrets.Create(ctx(t), &corev1rpc.CreateSecretRequest{Object: newSecret("new", nil)})
			return err
		},
		"update": func() error {
			_, err := agent.Secrets.Update(ctx(t), &corev1rpc.UpdateSecretRequest{Object: got})
			return err
		},
		"patch": func() error {
			_, err := agent.Secrets.Patch(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "mine",
				PatchType: "application/merge-patch+json", Patch: []byte(`{}`)})
			return err
		},
	} {
		if err := try(); !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A watch ends with the right to it: what an object became after the last pod was gone is not sent.
//
// spec: OBJ-15
func TestWatchesOfAgentsEndWithTheirPods(t *testing.T) {
	c := start(t)
	c.register("n1")
	s := must(c.admin().Secrets.Create(ctx(t), &corev1rpc.CreateSecretRequest{Object: newSecret("s", nil)}))(t)
	p := newPod("web")
	p.Spec.ImagePullSecrets = []*corev1.LocalObjectReference{{Name: "s"}}
	p = c.createPod(p)
	if err := c.bind(p, "n1"); err != nil {
		t.Fatal(err)
	}
	yes := true
	w := must(c.agent("n1").Secrets.Watch(ctx(t), &metav1.WatchRequest{Namespace: "default",
		FieldSelector: "metadata.name=s", SendInitialEvents: &yes, ResourceVersionMatch: "NotOlderThan"}))(t)
	if got := must(w.Recv())(t); len(got.Events) != 1 {
		t.Fatalf("got %v", got)
	}
	change := func(value string) {
		s = clone(s)
		s.Data = map[string][]byte{"k": []byte(value)}
		s = must(c.admin().Secrets.Update(ctx(t), &corev1rpc.UpdateSecretRequest{Object: s}))(t)
	}
	change("allowed")
	if got := must(w.Recv())(t); !strings.Contains(got.String(), "allowed") {
		t.Fatalf("got %v", got)
	}
	must(deletePod(t, c.admin(), p, ptr(int64(0)), true))(t)
	change(canary)
	if got, err := w.Recv(); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("got %v, %v; want Forbidden", got, err)
	}
}

// A Secret with which a volume is mounted, in whatever namespace, is read on the node of a pod that uses the volume. A
// claim that only names the volume of another gives no right.
//
// spec: OBJ-15
func TestNodesReadTheSecretsOfVolumes(t *testing.T) {
	c := start(t)
	for _, n := range []string{"n1", "n2"} {
		c.register(n)
	}
	for _, name := range []string{"stage", "attach"} {
		s := newSecret(name, map[string]string{"k": canary})
		s.Metadata.Namespace = "kube-system"
		must(c.admin().Secrets.Create(ctx(t), &corev1rpc.CreateSecretRequest{Object: s}))(t)
	}
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for _, name := range []string{"mine", "thief"} {
		claim := newClaim(name)
		claim.Spec.VolumeName = "volume"
		claims[name] = c.claim(claim)
	}
	v := newVolume("volume")
	of := claims["mine"].Metadata
	v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: of.Namespace, Name: of.Name, Uid: of.Uid}
	must(c.admin().PersistentVolumes.Create(ctx(t), &corev1rpc.CreatePersistentVolumeRequest{Object: v}))(t)
	c.change(store.Key{Kind: corev1.PersistentVolumeKind, Name: "volume"}, func(o object.Object) {
		in := func(name string) *corev1.SecretReference {
			return &corev1.SecretReference{Namespace: "kube-system", Name: name}
		}
		o.(*corev1.PersistentVolume).Spec.PersistentVolumeSource = &corev1.PersistentVolumeSource{
			Csi: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h", NodeStageSecretRef: in("stage"),
				ControllerPublishSecretRef: in("attach")}}
	})
	for name, node := range map[string]string{"mine": "n1", "thief": "n2"} {
		p := newPod("pod-" + name)
		p.Spec.Volumes = []*corev1.Volume{{Name: "v", VolumeSource: &corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}}}
		if err := c.bind(c.createPod(p), node); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		node, secret string
		allowed      bool
	}{{"n1", "stage", true}, {"n1", "attach", false}, {"n2", "stage", false}, {"n1", "none", false}} {
		_, err := c.agent(x.node).Secrets.Get(ctx(t), &metav1.GetRequest{Namespace: "kube-system", Name: x.secret})
		if x.allowed && err != nil || !x.allowed && !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("%s reads %s: %v, allowed is %t", x.node, x.secret, err, x.allowed)
		}
	}
}

// An agent makes no pod that refers to something: it could read whatever it wanted then. Nor does such a pod get an
// identity.
//
// spec: OBJ-15, STATIC-1
func TestMirrorPodsReferToNothing(t *testing.T) {
	c := start(t)
	c.register("n1")
	must(c.admin().Secrets.Create(ctx(t), &corev1rpc.CreateSecretRequest{Object: newSecret("s", nil)}))(t)
	node := must(c.admin().Nodes.Get(ctx(t), &metav1.GetRequest{Name: "n1"}))(t)
	yes := true
	owner := &metav1.OwnerReference{ApiVersion: "v1", Kind: "Node", Name: "n1", Uid: node.GetMetadata().GetUid(),
		Controller: &yes}
	mirror := func(name string, edit func(*corev1.PodSpec)) (*corev1.Pod, error) {
		p := newPod(name)
		p.Spec.NodeName = "n1"
		p.Metadata.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"}
		p.Metadata.OwnerReferences = []*metav1.OwnerReference{owner}
		edit(p.Spec)
		return c.agent("n1").Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p})
	}
	for what, edit := range map[string]func(*corev1.PodSpec){
		"secrets": func(s *corev1.PodSpec) {
			s.ImagePullSecrets = []*corev1.LocalObjectReference{{Name: "s"}}
		},
		"serviceaccounts": func(s *corev1.PodSpec) { s.ServiceAccountName = "default" },
		"persistentvolumeclaims": func(s *corev1.PodSpec) {
			s.Volumes = []*corev1.Volume{{Name: "v", VolumeSource: &corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		},
	} {
		if _, err := mirror("bad", edit); !apierrors.Is(err, apierrors.Forbidden) ||
			!strings.Contains(err.Error(), "may not create pods that refer to "+what) {
			t.Errorf("a mirror pod with %s: %v", what, err)
		}
	}
	if p := must(mirror("good", func(*corev1.PodSpec) {}))(t); p.Spec.ServiceAccountName != "" {
		t.Errorf("a mirror pod runs as %q", p.Spec.ServiceAccountName)
	}
	_, err := c.agent("n1").Secrets.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "s"})
	if !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("the agent reads what it named: %v", err)
	}
}
