package apiserver_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/warning"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

func newSecret(name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s
}

func (c client) secrets() corev1rpc.SecretsClient { return corev1rpc.NewSecretsClient(c.conn) }

func TestSecretsTakeTextAndKeepBytes(t *testing.T) {
	secrets := start(t).admin().secrets()
	s := newSecret("s", map[string]string{"a": "1", "b": "2"})
	s.StringData = map[string]string{"b": "3", "c": "4"}
	made := must(secrets.Create(ctx(t), &corev1rpc.CreateSecretRequest{Object: s}))(t)
	want := map[string][]byte{"a": []byte("1"), "b": []byte("3"), "c": []byte("4")}
	got := must(secrets.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "s"}))(t)
	for which, o := range map[string]*corev1.Secret{"answer": made, "stored": got} {
		if !maps.EqualFunc(o.Data, want, bytes.Equal) || o.StringData != nil || o.Type != "Opaque" {
			t.Errorf("%s: %v", which, o)
		}
	}
	patched := must(secrets.Patch(ctx(t), &metav1.PatchRequest{
		Namespace: "default", Name: "s", PatchType: "application/merge-patch+json",
		Patch: []byte(`{"stringData":{"a":"5"},"data":{"b":null}}`),
	}))(t)
	if want := map[string][]byte{"a": []byte("5"), "c": []byte("4")}; !maps.EqualFunc(patched.Data, want, bytes.Equal) ||
		patched.StringData != nil {
		t.Errorf("patched: %v", patched)
	}
	patched.StringData = map[string]string{"d": "6"}
	patched.Immutable = proto.Bool(true)
	frozen := must(secrets.Update(ctx(t), &corev1rpc.UpdateSecretRequest{Object: patched}))(t)
	if string(frozen.Data["d"]) != "6" || frozen.StringData != nil {
		t.Errorf("updated: %v", frozen)
	}
	for name, change := range map[string]func(*corev1.Secret){
		"data":       func(s *corev1.Secret) { s.Data["a"] = []byte("7") },
		"stringData": func(s *corev1.Secret) { s.StringData = map[string]string{"a": "7"} },
		"immutable":  func(s *corev1.Secret) { s.Immutable = nil },
		"type":       func(s *corev1.Secret) { s.Type = "example.com/other" },
	} {
		next := clone(frozen)
		change(next)
		_, err := secrets.Update(ctx(t), &corev1rpc.UpdateSecretRequest{Object: next})
		if !apierrors.Is(err, apierrors.Invalid) {
			t.Errorf("%s of an immutable secret: %v", name, err)
		}
	}
	labelled := clone(frozen)
	labelled.Metadata.Labels = map[string]string{"a": "b"}
	must(secrets.Update(ctx(t), &corev1rpc.UpdateSecretRequest{Object: labelled}))(t)
}

// A secret for a token says whose; the controller that fills such secrets in changes no others.
func TestSecretsForTokens(t *testing.T) {
	c := start(t)
	s := newSecret("s", map[string]string{"k": canary})
	s.Type = "kubernetes.io/service-account-token"
	_, err := c.admin().secrets().Create(ctx(t), &corev1rpc.CreateSecretRequest{Object: s})
	wants(t, err, apierrors.Invalid, "metadata.annotations[kubernetes.io/service-account.name]: Required value")
	s.Metadata.Annotations = map[string]string{"kubernetes.io/service-account.name": "default"}
	filler := c.controller("serviceaccount-token").secrets()
	for _, s := range []*corev1.Secret{s, newSecret("other", map[string]string{"k": canary})} {
		made := clone(must(c.admin().secrets().Create(ctx(t), &corev1rpc.CreateSecretRequest{Object: s}))(t))
		made.Data["token"] = []byte("t")
		_, err := filler.Update(ctx(t), &corev1rpc.UpdateSecretRequest{Object: made})
		if (err == nil) != (s.Metadata.Name == "s") || err != nil && !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("%s: %v", s.Metadata.Name, err)
		}
	}
	_, err = filler.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "s"})
	wants(t, err, apierrors.Forbidden, "")
}

func TestSecretsAreSelectedByType(t *testing.T) {
	secrets := start(t).admin().secrets()
	for i, kind := range []string{"", "Opaque", "example.com/x", "kubernetes.io/basic-auth"} {
		s := newSecret(fmt.Sprint("s", i), map[string]string{"username": "u"})
		s.Type = kind
		must(secrets.Create(ctx(t), &corev1rpc.CreateSecretRequest{Object: s}))(t)
	}
	for selector, want := range map[string][]string{"type=Opaque": {"s0", "s1"}, "type!=Opaque": {"s2", "s3"},
		"type=example.com/x": {"s2"}} {
		var names []string
		for _, s := range must(secrets.List(ctx(t), &metav1.ListRequest{FieldSelector: selector}))(t).Items {
			names = append(names, s.Metadata.Name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("%s: %v, want %v", selector, names, want)
		}
	}
	if _, err := secrets.List(ctx(t), &metav1.ListRequest{FieldSelector: "data=x"}); !apierrors.Is(err,
		apierrors.BadRequest) {
		t.Errorf("selected by data: %v", err)
	}
}

// Nobody but an administrator sees what a secret holds. The controller that empties namespaces sees that there is one,
// and may delete it.
func TestSecretsAreForAdministrators(t *testing.T) {
	c := start(t)
	c.register("n1")
	c.boundPod("web", "n1")
	s := newSecret("s", map[string]string{"k": canary})
	s.Metadata.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": canary}
	s.Metadata.Labels = map[string]string{"k": canary}
	s.Metadata.Finalizers = []string{"example.com/hold"}
	s.Metadata.OwnerReferences = []*metav1.OwnerReference{{ApiVersion: "v1", Kind: "Pod", Name: "web", Uid: "u"}}
	made := must(c.admin().secrets().Create(ctx(t), &corev1rpc.CreateSecretRequest{Object: s}))(t)
	who := map[string]client{"agent": c.agent("n1"), "scheduler": c.scheduler()}
	for _, name := range []string{"podgc", "namespace", "serviceaccount", "persistentvolume", "nodelifecycle"} {
		who[name] = c.controller(name)
	}
	for name, by := range who {
		secrets := by.secrets()
		attempts := map[string]func() (proto.Message, error){
			"get": func() (proto.Message, error) {
				return secrets.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "s"})
			},
			"watch": func() (proto.Message, error) {
				w, err := secrets.Watch(ctx(t), &metav1.WatchRequest{Namespace: "default"})
				if err != nil {
					return nil, err
				}
				return w.Recv()
			},
			"create": func() (proto.Message, error) {
				return secrets.Create(ctx(t), &corev1rpc.CreateSecretRequest{Object: newSecret("x", nil)})
			},
			"update": func() (proto.Message, error) {
				return secrets.Update(ctx(t), &corev1rpc.UpdateSecretRequest{Object: made})
			},
			"patch": func() (proto.Message, error) {
				return secrets.Patch(ctx(t), &metav1.PatchRequest{
					Namespace: "default", Name: "s", PatchType: "application/merge-patch+json", Patch: []byte(`{}`),
				})
			},
		}
		if name != "namespace" {
			attempts["list"] = func() (proto.Message, error) {
				return secrets.List(ctx(t),
					&metav1.ListRequest{Namespace: "default"})
			}
			attempts["delete"] = func() (proto.Message, error) {
				return secrets.Delete(ctx(t), &metav1.DeleteRequest{Namespace: "default", Name: "s"})
			}
			attempts["deletecollection"] = func() (proto.Message, error) {
				return secrets.DeleteCollection(ctx(t), &metav1.DeleteCollectionRequest{Namespace: "default"})
			}
		}
		for what, try := range attempts {
			if m, err := try(); !apierrors.Is(err, apierrors.Forbidden) {
				t.Errorf("%s may %s secrets: %v %v", name, what, m, err)
			}
		}
	}

	bare := func(what string, s *corev1.Secret) {
		t.Helper()
		m := s.GetMetadata()
		if m.GetName() != "s" || m.GetNamespace() != "default" || m.GetUid() != made.Metadata.Uid ||
			!slices.Equal(m.GetFinalizers(), made.Metadata.Finalizers) || len(m.GetOwnerReferences()) != 1 ||
			object.Revision(m) == "" {
			t.Errorf("%s lacks what is needed: %v", what, s)
		}
		if text := s.String(); strings.Contains(text, canary) || m.GetResourceVersion() != "" {
			t.Errorf("%s shows too much: %v", what, text)
		}
	}
	ns := c.controller("namespace").secrets()
	bare("a list", must(ns.List(ctx(t), &metav1.ListRequest{Namespace: "default"}))(t).Items[0])
	gc := c.controller("garbage-collector").secrets()
	bare("a look", must(gc.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "s"}))(t))
	bare("a patch", must(gc.Patch(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "s",
		PatchType: "application/merge-patch+json", Patch: []byte(`{"metadata":{"labels":{"n":"1"}}}`)}))(t))
	yes := true
	watch := must(gc.Watch(ctx(t), &metav1.WatchRequest{Namespace: "default", SendInitialEvents: &yes,
		ResourceVersionMatch: "NotOlderThan", AllowWatchBookmarks: true}))(t)
	events := must(watch.Recv())(t).GetEvents()
	bare("an event", events[0].GetObject())
	if b := events[1]; b.GetType() != "BOOKMARK" || b.GetObject().GetMetadata().GetResourceVersion() == "" {
		t.Errorf("a bookmark that marks nothing: %v", b)
	}
	deleted := must(ns.DeleteCollection(ctx(t), &metav1.DeleteCollectionRequest{Namespace: "default"}))(t).Items
	if len(deleted) != 1 || deleted[0].Metadata.DeletionTimestamp == nil {
		t.Fatalf("not deleted: %v", deleted)
	}
	bare("a deletion", deleted[0])
	held := must(c.admin().secrets().Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "s"}))(t)
	if string(held.Data["k"]) != canary {
		t.Errorf("what the controller was shown was stored: %v", held)
	}
}

// canary is what no error, warning or line of the log may hold.
const canary = "hunter2hunter2"

func TestSecretValuesAreNotRepeated(t *testing.T) {
	c := start(t)
	secrets := c.admin().secrets()
	keyPair := func(cert, key string) *corev1.Secret {
		s := newSecret("pair", map[string]string{"tls.crt": cert, "tls.key": key})
		s.Type = "kubernetes.io/tls"
		return s
	}
	odd := newSecret("odd", map[string]string{"a/b": canary, "big": canary + strings.Repeat("x", 1<<20)})
	odd.StringData = map[string]string{"no key": canary}
	docker := newSecret("docker", map[string]string{".dockercfg": canary})
	docker.Type = "kubernetes.io/dockercfg"
	docker2 := newSecret("docker2", map[string]string{".dockerconfigjson": `{"auths":` + canary})
	docker2.Type = "kubernetes.io/dockerconfigjson"
	must(secrets.Create(ctx(t), &corev1rpc.CreateSecretRequest{Object: newSecret("s",
		map[string]string{"k": canary})}))(t)

	said := map[string]string{}
	try := func(name string, f func(opts ...grpc.CallOption) error) {
		var header metadata.MD
		err := f(grpc.Header(&header))
		if err != nil {
			said[name] = apierrors.From(err).Status().String()
		}
		said[name] += fmt.Sprintf("%v %v", err, header)
		if err == nil && len(header.Get(warning.MetadataKey)) == 0 {
			t.Errorf("%s: nothing is wrong", name)
		}
	}
	for _, s := range []*corev1.Secret{odd, docker, docker2, keyPair(canary, canary),
		keyPair("-----BEGIN "+canary+"-----\n-----END "+canary+"-----", canary)} {
		try(s.Metadata.Name, func(opts ...grpc.CallOption) error {
			_, err := secrets.Create(ctx(t), &corev1rpc.CreateSecretRequest{Object: s}, opts...)
			return err
		})
	}
	for i, patch := range []struct{ kind, text string }{
		{"strategic-merge-patch", `{"data":{"$patch":"x","k":"` + canary + `"}}`},
		{"strategic-merge-patch", `{"data":{"k":"` + canary + `!"}}`},
		{"merge-patch", `{"data":["` + canary + `"]}`},
		{"merge-patch", `{"stringData":{"k":{"` + canary + `":1}}}`},
		{"merge-patch", `{"stringData":{"k":31415926535}}`},
		{"merge-patch", `{"data":{"k":31415926535}}`},
		{"merge-patch", `{"stringData":{"k":"` + canary + `"`},
		{"json-patch", `[{"op":"test","path":"/data/k","value":"` + canary + `"}]`},
		{"json-patch", `[{"op":"add","path":"/data/k/l","value":"` + canary + `"}]`},
	} {
		try(fmt.Sprint("patch ", i), func(opts ...grpc.CallOption) error {
			_, err := secrets.Patch(ctx(t), &metav1.PatchRequest{
				Namespace: "default", Name: "s", PatchType: "application/" + patch.kind + "+json", Patch: []byte(patch.text),
			}, opts...)
			return err
		})
	}
	for i, value := range []any{odd, map[string]*corev1.Secret{"s": odd}, odd.Data} {
		pods := c.overWire(c.api, &failing{fail: func(context.Context) error { panic(value) }})
		try(fmt.Sprint("panic ", i), func(opts ...grpc.CallOption) error {
			_, err := pods.Get(ctx(t), &metav1.GetRequest{}, opts...)
			return err
		})
	}
	said["log"] = c.log.String()
	if !strings.Contains(said["log"], "a value of type *corev1.Secret") {
		t.Errorf("the log does not say what panicked: %s", said["log"])
	}
	for name, text := range said {
		for _, secret := range []string{canary, "31415926535", "aHVudGVyMmh1bnRlcjI="} {
			if strings.Contains(text, secret) {
				t.Errorf("%s repeats a value: %s", name, text)
			}
		}
	}
}

func TestKeyPairsThatAreNoneAreWarnedOf(t *testing.T) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	cert := must(x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)},
		&x509.Certificate{SerialNumber: big.NewInt(1)}, key.Public(), key))(t)
	good := newSecret("pair", map[string]string{
		"tls.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})),
		"tls.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY",
			Bytes: must(x509.MarshalPKCS8PrivateKey(key))(t)})),
	})
	good.Type = "kubernetes.io/tls"
	secrets := start(t).admin().secrets()
	warnings := func(f func(context.Context, ...grpc.CallOption) error) []string {
		t.Helper()
		var header metadata.MD
		if err := f(ctx(t), grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
		return header.Get(warning.MetadataKey)
	}
	if w := warnings(func(ctx context.Context, opts ...grpc.CallOption) error {
		_, err := secrets.Create(ctx, &corev1rpc.CreateSecretRequest{Object: good}, opts...)
		return err
	}); len(w) != 0 {
		t.Errorf("a good pair: %q", w)
	}
	bad := clone(good)
	bad.Data["tls.key"] = []byte("x")
	if w := warnings(func(ctx context.Context, opts ...grpc.CallOption) error {
		_, err := secrets.Update(ctx, &corev1rpc.UpdateSecretRequest{Object: bad}, opts...)
		return err
	}); len(w) != 1 || !strings.Contains(w[0], "tls.crt and tls.key are not a certificate and its private key") {
		t.Errorf("a bad pair: %q", w)
	}
}

// What serves Ingresses sees what Secrets with certificates hold, and of others that they are there; no other
// controller sees either. spec: OBJ-15
func TestSecretsWithCertificatesAreForIngresses(t *testing.T) {
	c := start(t)
	certificate := newSecret("certificate", map[string]string{"tls.crt": canary, "tls.key": canary})
	certificate.Type = "kubernetes.io/tls"
	token := newSecret("token", map[string]string{"token": canary})
	token.Type = "kubernetes.io/service-account-token"
	token.Metadata.Annotations = map[string]string{"kubernetes.io/service-account.name": "default"}
	for _, s := range []*corev1.Secret{certificate, token, newSecret("other", map[string]string{"k": canary})} {
		must(c.admin().secrets().Create(ctx(t), &corev1rpc.CreateSecretRequest{Object: s}))(t)
	}
	for controller, sees := range map[string]string{"ingress": "certificate", "serviceaccount-token": "token",
		"garbage-collector": "", "namespace": ""} {
		secrets := c.controller(controller).secrets()
		list := must(secrets.List(ctx(t), &metav1.ListRequest{Namespace: "default"}))(t)
		if len(list.Items) != 3 {
			t.Errorf("%s sees %d", controller, len(list.Items))
		}
		for _, s := range list.Items {
			if shown := strings.Contains(s.String(), canary) || len(s.GetData()) > 0; shown != (s.Metadata.Name == sees) {
				t.Errorf("%s is shown what %s holds: %t", controller, s.Metadata.Name, shown)
			}
		}
	}
	_, err := c.controller("ingress").secrets().Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: "certificate"})
	wants(t, err, apierrors.Forbidden, "")
}
