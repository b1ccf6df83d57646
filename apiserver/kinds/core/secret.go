package core

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"maps"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/apiserver/kinds/define"
	"monoplane.dev/apiserver/registry"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/object"
	"monoplane.dev/rules/rights"
	"monoplane.dev/rules/tokensecret"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

// Types of secrets that have rules.
const (
	secretOpaque           = "Opaque"
	secretTLS              = "kubernetes.io/tls"
	secretDockerConfig     = "kubernetes.io/dockercfg"
	secretDockerConfigJSON = "kubernetes.io/dockerconfigjson"
	secretBasicAuth        = "kubernetes.io/basic-auth"
	secretSSHAuth          = "kubernetes.io/ssh-auth"
)

// Keys of the certificate and the private key in a secret of type secretTLS.
const (
	tlsCert = "tls.crt"
	tlsKey  = "tls.key"
)

// maxSecret is the most bytes that the values of a secret may have.
const maxSecret = 1 << 20

// Secret describes the kind. Administrators see what secrets hold, and so do agents of those that the pods of their
// node use; neither errors, warnings nor logs say anything of it.
func Secret(c define.Config) define.Definition {
	return define.Definition{Strategy: registry.Typed[*corev1.Secret]{
		Kind:     corev1.SecretKind,
		Sealed:   true,
		Default:  DefaultSecret,
		Validate: ValidateSecret,
		// That a certificate and a key do not belong together is allowed, as in Kubernetes. It is not said why: that would
		// speak of what the secret holds.
		Warn: func(next, _ *corev1.Secret) (w validation.Warnings) {
			if next.GetType() != secretTLS {
				return nil
			}
			if _, err := tls.X509KeyPair(next.GetData()[tlsCert], next.GetData()[tlsKey]); err != nil {
				w.Say("data: %s and %s are not a certificate and its private key", tlsCert, tlsKey)
			}
			return w
		},
		Show: func(ctx context.Context, s *corev1.Secret) *corev1.Secret { return showSecret(ctx, c.Rights, s) },
		Main: registry.TypedUpdateRules[*corev1.Secret]{
			Validate: ValidateSecretUpdate,
			Authorize: func(ctx context.Context, _ *registry.Update, next, live *corev1.Secret) error {
				return mayChange(ctx, c.Rights, next, live)
			},
		},
		Fields: map[string]func(*corev1.Secret) string{"type": (*corev1.Secret).GetType},
		Table: define.Columns[*corev1.Secret]{
			define.Text("Type", "What the data is for.", (*corev1.Secret).GetType),
			define.Any("Data", "Number of keys.", func(o *corev1.Secret) any { return int64(len(o.GetData())) }),
			define.Age[*corev1.Secret](),
		},
	}.Strategy()}
}

// DefaultSecret fills in a secret, and makes stringData part of data.
func DefaultSecret(s *corev1.Secret) {
	defaults.Message(&s.Metadata)
	defaults.Set(&s.Type, secretOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for k, text := range s.StringData {
		s.Data[k] = []byte(text)
	}
	s.StringData = nil
}

// showSecret shows everything to users who have the right to read secrets, and to agents, whom the authorizer lets ask
// only for what the pods of their node use. What serves Ingresses sees secrets with certificates and their keys, and
// what fills in secrets with tokens sees those. Other components that have a right to secrets, such as the controller
// that empties namespaces, see that there is one and what holds it. Annotations are data, too: kubectl apply keeps in
// one of them what it has applied.
func showSecret(ctx context.Context, z *auth.Authorizer, s *corev1.Secret) *corev1.Secret {
	id := auth.From(ctx)
	if id.Class == auth.Node || id.Class != auth.Anonymous && !id.Component() {
		return s
	}
	if s.GetType() == secretTLS && z.Shows(id, rights.ShowTLS) || s.GetType() == tokensecret.Type &&
		z.Shows(id, rights.ShowTokens) {
		return s
	}
	m := s.GetMetadata()
	return &corev1.Secret{Metadata: &metav1.ObjectMeta{
		Namespace: m.GetNamespace(), Name: m.GetName(), Uid: m.GetUid(),
		DeletionTimestamp: m.GetDeletionTimestamp(), Finalizers: m.GetFinalizers(),
		OwnerReferences: m.GetOwnerReferences(),
		Annotations:     map[string]string{object.PartOfRevision: m.GetResourceVersion()},
	}}
}

// mayChange refuses whoever fills in secrets with tokens the change of another.
func mayChange(ctx context.Context, z *auth.Authorizer, next, live *corev1.Secret) error {
	if next.GetType() == tokensecret.Type && live.GetType() == tokensecret.Type ||
		!z.Shows(auth.From(ctx), rights.ShowTokens) {
		return nil
	}
	return apierrors.NewForbidden(corev1.SecretKind, live.GetMetadata().GetName(), "it is not of type %s",
		tokensecret.Type)
}

// ValidateSecret checks a secret that is to be created. What it finds wrong it tells without repeating a value.
func ValidateSecret(s *corev1.Secret) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkSecret(f, s, nil)
	}
	return f.Causes()
}

// ValidateSecretUpdate checks that a change of a secret is allowed; an immutable one keeps its data.
func ValidateSecretUpdate(new, old *corev1.Secret) []apierrors.Cause {
	f := &validation.Faults{}
	for f.Pass() {
		checkSecret(f, new, old)
		if new.GetType() != old.GetType() {
			f.Invalid(f.Root("type"), new.GetType(), validation.Immutable)
		}
		if !old.GetImmutable() {
			continue
		}
		const frozen = "field is immutable when `immutable` is set"
		if !new.GetImmutable() {
			f.Forbidden(f.Root("immutable"), frozen)
		}
		if !maps.EqualFunc(new.GetData(), old.GetData(), bytes.Equal) {
			f.Forbidden(f.Root("data"), frozen)
		}
	}
	return f.Causes()
}

func checkSecret(f *validation.Faults, s, old *corev1.Secret) {
	f.CoreMeta(s.GetMetadata(), old.GetMetadata(), true, validation.NameIsSubdomain)
	data, total := f.Root("data"), 0
	for _, k := range validation.Sorted(&validation.Few{}, s.GetData()) {
		f.Invalid(data.Key(k), k, utilvalidation.IsConfigMapKey(k)...)
		total += len(s.GetData()[k])
	}
	if total > maxSecret {
		f.TooLong(data, maxSecret)
	}
	has := func(key string) bool {
		_, ok := s.GetData()[key]
		return ok
	}
	need := func(key string) {
		if !has(key) {
			f.Required(data.Key(key), "")
		}
	}
	switch s.GetType() {
	case tokensecret.Type:
		if s.GetMetadata().GetAnnotations()[tokensecret.Account] == "" {
			f.Required(f.Root("metadata").Child("annotations").Key(tokensecret.Account), "")
		}
	case secretDockerConfig:
		checkDockerConfig(f, data, s, ".dockercfg")
	case secretDockerConfigJSON:
		checkDockerConfig(f, data, s, ".dockerconfigjson")
	case secretBasicAuth:
		if !has("username") && !has("password") {
			need("username")
			need("password")
		}
	case secretSSHAuth:
		if len(s.GetData()["ssh-privatekey"]) == 0 {
			f.Required(data.Key("ssh-privatekey"), "")
		}
	case secretTLS:
		need(tlsCert)
		need(tlsKey)
	}
}

// checkDockerConfig checks the credentials for registries below a key. What is wrong with the text is not said: a
// message of the decoder quotes from it.
func checkDockerConfig(f *validation.Faults, p *validation.Path, s *corev1.Secret, key string) {
	text, ok := s.GetData()[key]
	if !ok {
		f.Required(p.Key(key), "")
		return
	}
	var config map[string]any
	if json.Unmarshal(text, &config) != nil {
		f.Invalid(p.Key(key), "<secret contents redacted>", "must be a JSON object")
	}
}
