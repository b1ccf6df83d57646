//go:build kubernetes

package oracle

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	podapi "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/api/v1/pod"
	k8sresource "k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/credentialprovider"
	pullsecrets "k8s.io/kubernetes/pkg/credentialprovider/secrets"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/pkg/kubelet/envvars"
	envutil "k8s.io/kubernetes/pkg/kubelet/util/env"
	"k8s.io/kubernetes/pkg/util/parsers"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

func theirEnvironment(_ testing.TB, k *v1.Pod, c *v1.Container) environment {
	all, err := reference(k, c)
	if err != nil {
		return environment{Wrong: err.Error()}
	}
	out, expand := environment{Variables: variables{}}, expansion.MappingFuncFor(all)
	for name, value := range all {
		out.Variables[name] = []byte(value)
	}
	for i, words := range [][]string{c.Command, c.Args} {
		for _, s := range words {
			out.Words[i] = append(out.Words[i], []byte(expansion.Expand(s, expand)))
		}
	}
	return out
}

// reference composes a container's environment of Kubernetes' own parts, in the order of its kubelet, whose function
// for that is not exported.
func reference(k *v1.Pod, c *v1.Container) (map[string]string, error) {
	env := map[string]string{}
	object := func(of map[string]map[string]string, kind, name string, optional *bool) (map[string]string, bool, error) {
		data, ok := of[name]
		if !ok && (optional == nil || !*optional) {
			return nil, false, fmt.Errorf("%s %q not found", kind, name)
		}
		return data, ok, nil
	}
	for _, f := range c.EnvFrom {
		var data map[string]string
		var err error
		switch {
		case f.ConfigMapRef != nil:
			data, _, err = object(configMaps, "configmap", f.ConfigMapRef.Name, f.ConfigMapRef.Optional)
		case f.SecretRef != nil:
			data, _, err = object(secrets, "secret", f.SecretRef.Name, f.SecretRef.Optional)
		}
		if err != nil {
			return nil, err
		}
		for key, v := range data {
			env[f.Prefix+key] = v
		}
	}
	expand := expansion.MappingFuncFor(env)
	for _, e := range c.Env {
		value := e.Value
		if from := e.ValueFrom; value != "" {
			value = expansion.Expand(value, expand)
		} else if from != nil {
			var err error
			ok := true
			switch {
			case from.FieldRef != nil:
				value, err = fieldpath.ExtractFieldPathAsString(k, from.FieldRef.FieldPath)
			case from.ResourceFieldRef != nil:
				value, err = amountOf(k, c, from.ResourceFieldRef)
			case from.ConfigMapKeyRef != nil:
				ref := from.ConfigMapKeyRef
				value, ok, err = entry(object, configMaps, "configmap", "ConfigMap", ref.Name, ref.Key, ref.Optional)
			case from.SecretKeyRef != nil:
				ref := from.SecretKeyRef
				value, ok, err = entry(object, secrets, "secret", "Secret", ref.Name, ref.Key, ref.Optional)
			}
			if err != nil {
				return nil, err
			}
			if !ok {
				continue
			}
		}
		env[e.Name] = value
	}
	return env, nil
}

func entry(
	object func(map[string]map[string]string, string, string, *bool) (map[string]string, bool, error),
	of map[string]map[string]string, kind, named, name, key string, optional *bool,
) (string, bool, error) {
	data, ok, err := object(of, kind, name, optional)
	if err != nil || !ok {
		return "", false, err
	}
	v, ok := data[key]
	if !ok && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("couldn't find key %v in %s %v/%v", key, named, "default", name)
	}
	return v, ok, nil
}

func amountOf(k *v1.Pod, c *v1.Container, s *v1.ResourceFieldSelector) (string, error) {
	allocatable := amounts("cpu", givable["cpu"], "memory", givable["memory"], "ephemeral-storage",
		givable["ephemeral-storage"])
	if k.Spec.Resources != nil {
		for _, name := range []v1.ResourceName{"cpu", "memory"} {
			if q, ok := k.Spec.Resources.Limits[name]; ok && !q.IsZero() {
				allocatable[name] = q
			}
		}
	}
	k, c = k.DeepCopy(), c.DeepCopy()
	for i := range k.Spec.Containers {
		k8sresource.MergeContainerResourceLimits(&k.Spec.Containers[i], allocatable)
	}
	k8sresource.MergeContainerResourceLimits(c, allocatable)
	if s.ContainerName == "" {
		return k8sresource.ExtractContainerResourceValue(s, c)
	}
	return k8sresource.ExtractResourceValueByContainerName(s, k, s.ContainerName)
}

func theirAnnouncedServices(_ testing.TB, all []*v1.Service) []v1.EnvVar {
	return envvars.FromServices(all)
}

func theirFileVariable(t testing.TB, text string) fileVariable {
	path := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	value, err := envutil.ParseEnv(path, "KEY")
	return fileVariable{value, err != nil}
}

// theirReferredObjects are the names of the ConfigMaps and Secrets that a pod refers to.
func theirReferredObjects(_ testing.TB, k *v1.Pod) map[string][]string {
	all := map[string][]string{}
	note := func(kind string) pod.Visitor {
		return func(name string) bool {
			if !slices.Contains(all[kind], name) {
				all[kind] = append(all[kind], name)
			}
			return true
		}
	}
	pod.VisitPodConfigmapNames(k, note("configmaps"))
	pod.VisitPodSecretNames(k, note("secrets"))
	for _, names := range all {
		slices.Sort(names)
	}
	return all
}

// theirFirstReferredObject is the kind of what a pod refers to first, empty for nothing.
func theirFirstReferredObject(t testing.TB, k *v1.Pod) string {
	_, kind, err := podapi.HasAPIObjectReference(internal(t, k, &core.Pod{}))
	if err != nil {
		t.Fatal(err)
	}
	return kind
}

func theirWrongPullSecret(_ testing.TB, s v1.Secret) bool {
	_, err := pullsecrets.MakeDockerKeyring([]v1.Secret{s}, credentialprovider.UnionDockerKeyring{})
	return err != nil
}

func theirPull(t testing.TB, all []v1.Secret, image string) (out pulled) {
	keyring, err := pullsecrets.MakeDockerKeyring(all, credentialprovider.UnionDockerKeyring{})
	if err != nil {
		t.Fatal(err)
	}
	if out.Repository, _, _, err = parsers.ParseImageName(image); err != nil {
		t.Fatal(err)
	}
	found, _ := keyring.Lookup(out.Repository)
	for _, c := range found {
		out.Credentials = append(out.Credentials, c.Username+":"+c.Password)
	}
	return out
}
