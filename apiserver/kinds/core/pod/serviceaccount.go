package pod

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/store"
	"monoplane.dev/object"
	"monoplane.dev/rules/staticpod"

	corev1 "monoplane.dev/api/core/v1"
)

// annotationSecrets on a service account says that its pods may refer to its own secrets only.
const annotationSecrets = "kubernetes.io/enforce-mountable-secrets"

// The default account of a new namespace is looked for so often, at this interval: a controller makes it.
const (
	accountLooks    = 10
	accountInterval = 100 * time.Millisecond
)

// account gives a new pod what its service account says, which must be there.
func (p *Pods) account(ctx context.Context, o *corev1.Pod) error {
	if staticpod.IsMirror(o.Metadata) {
		return nil // it refers to none
	}
	account, err := p.accountOf(ctx, o)
	if account == nil || err != nil {
		return err
	}
	return ApplyServiceAccount(o, account)
}

// accountOf returns the service account of a new pod. It is looked up in the cache, as creating pods is the most
// frequent thing that a server does. There is neither an account nor an error when the namespace is being deleted,
// which refuses the pod by itself.
func (p *Pods) accountOf(ctx context.Context, o *corev1.Pod) (*corev1.ServiceAccount, error) {
	namespace, name := o.Metadata.GetNamespace(), o.Spec.ServiceAccountName
	key := store.Key{Kind: corev1.ServiceAccountKind, Namespace: namespace, Name: name}
	found, err := p.deps.Store.Get(ctx, key, "0")
	for look := 1; apierrors.Is(err, apierrors.NotFound); look++ {
		// The cache may be behind.
		if found, err = p.deps.Store.Get(ctx, key, ""); !apierrors.Is(err, apierrors.NotFound) {
			break
		}
		ns, nsErr := p.deps.Store.Get(ctx, store.Key{Kind: corev1.NamespaceKind, Name: namespace}, "")
		switch {
		case nsErr != nil:
			return nil, nsErr
		case ns.GetMetadata().GetDeletionTimestamp() != nil:
			return nil, nil
		case name != serviceAccount || look == accountLooks:
			return nil, refusedByAccount(o, "error looking up service account %s/%s: serviceaccount %q not found",
				namespace, name, name)
		}
		select {
		case <-time.After(accountInterval):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	account, ok := found.(*corev1.ServiceAccount)
	if !ok {
		return nil, fmt.Errorf("the store has a %T for a service account", found)
	}
	return account, nil
}

// ApplyServiceAccount carries over to a pod what its service account says: whether it gets a token, and with which
// secrets its images are pulled. It refuses a pod that refers to secrets which the account keeps from it.
func ApplyServiceAccount(o *corev1.Pod, account *corev1.ServiceAccount) error {
	s := o.Spec
	if automounts(s, account) {
		mountAccess(s)
	}
	if len(s.ImagePullSecrets) == 0 {
		for _, secret := range account.GetImagePullSecrets() {
			s.ImagePullSecrets = append(s.ImagePullSecrets, object.Clone(secret))
		}
	}
	if only, _ := strconv.ParseBool(account.GetMetadata().GetAnnotations()[annotationSecrets]); only {
		return checkSecrets(o, account)
	}
	return nil
}

// checkSecrets refuses a pod that refers to a secret which its service account does not have.
func checkSecrets(o *corev1.Pod, account *corev1.ServiceAccount) error {
	has := func(name string) bool {
		return slices.ContainsFunc(account.GetSecrets(), func(r *corev1.ObjectReference) bool { return r.GetName() == name })
	}
	refuse := func(what, secret string) error {
		return refusedByAccount(o, "%s secret.secretName=%q is not allowed because service account %s does not reference "+
			"that secret", what, secret, account.GetMetadata().GetName())
	}
	s := o.Spec
	for _, v := range s.Volumes {
		if secret := v.GetVolumeSource().GetSecret(); secret != nil && !has(secret.GetSecretName()) {
			return refuse("volume with", secret.GetSecretName())
		}
	}
	for i, c := range slices.Concat(s.InitContainers, s.Containers) {
		which := "container " + c.GetName()
		if i < len(s.InitContainers) {
			which = "init " + which
		}
		for _, e := range c.GetEnv() {
			if ref := e.GetValueFrom().GetSecretKeyRef(); ref != nil && !has(ref.GetLocalObjectReference().GetName()) {
				return refuse(which+" with envVar "+e.GetName()+" referencing", ref.GetLocalObjectReference().GetName())
			}
		}
		for _, f := range c.GetEnvFrom() {
			if ref := f.GetSecretRef(); ref != nil && !has(ref.GetLocalObjectReference().GetName()) {
				return refuse(which+" with envFrom referencing", ref.GetLocalObjectReference().GetName())
			}
		}
	}
	for i, ref := range s.ImagePullSecrets {
		same := func(r *corev1.LocalObjectReference) bool { return r.GetName() == ref.GetName() }
		if !slices.ContainsFunc(account.GetImagePullSecrets(), same) {
			return refusedByAccount(o, "imagePullSecrets[%d].name=%q is not allowed because service account %s does not "+
				"reference that imagePullSecret", i, ref.GetName(), account.GetMetadata().GetName())
		}
	}
	return nil
}

func refusedByAccount(o *corev1.Pod, format string, args ...any) error {
	return apierrors.NewForbidden(corev1.PodKind, o.GetMetadata().GetName(), format, args...)
}
