package apiserver_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"monoplane.dev/apierrors"
	"monoplane.dev/codec"

	corev1 "monoplane.dev/api/core/v1"
)

// examples are pods in the shape of those that the documentation of Kubernetes publishes. That Kubernetes takes all of
// them is shown in test/oracle.
func examples(t *testing.T) []*corev1.Pod {
	t.Helper()
	file, err := os.ReadFile("testdata/pods.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []*corev1.Pod
	for i, doc := range bytes.Split(file, []byte("\n---\n")) {
		text, err := yaml.YAMLToJSONStrict(doc)
		if err != nil {
			t.Fatalf("example %d: %v", i, err)
		}
		p := &corev1.Pod{}
		problems, err := codec.DecodeObject(text, p)
		if err != nil || len(problems) > 0 {
			t.Fatalf("example %d: %v, %v", i, problems, err)
		}
		p.Metadata.Namespace = "default"
		all = append(all, p)
	}
	return all
}

// unserved are fields that may still be refused because nothing acts on them. It is an upper bound: what is served
// makes it shorter.
var unserved = map[string]bool{
	"livenessProbe": true, "readinessProbe": true, "startupProbe": true, "lifecycle": true, "restartPolicy": true,
	"envFrom": true, "configMapKeyRef": true, "secretKeyRef": true, "resourceFieldRef": true, "fileKeyRef": true,
	"emptyDir": true, "hostPath": true, "secret": true, "configMap": true, "downwardAPI": true, "projected": true,
	"csi": true, "image": true, "nfs": true,
	"runAsUser": true, "runAsGroup": true, "fsGroup": true, "supplementalGroups": true, "fsGroupChangePolicy": true,
	"runAsNonRoot": true, "allowPrivilegeEscalation": true, "capabilities": true, "readOnlyRootFilesystem": true,
	"seccompProfile": true, "appArmorProfile": true, "sysctls": true, "hostUsers": true, "stdin": true, "tty": true,
	"hostAliases": true, "subdomain": true, "setHostnameAsFQDN": true, "dnsConfig": true, "dnsPolicy": true,
	"resources": true,
}

// Every published pod is taken, or refused for a field that is not served yet and for nothing else. spec: OBJ-3, OBJ-4
func TestPublishedExamples(t *testing.T) {
	c := start(t)
	all := examples(t)
	taken := 0
	for _, p := range all {
		_, err := c.admin().Pods.Create(ctx(t), &corev1.CreatePodRequest{Object: p})
		if err == nil {
			taken++
			continue
		}
		if !apierrors.Is(err, apierrors.Invalid) {
			t.Errorf("%s: %v", p.Metadata.Name, err)
			continue
		}
		var fields []string
		for _, cause := range apierrors.From(err).Status().GetDetails().GetCauses() {
			field := cause.GetField()
			fields = append(fields, field)
			name := field[strings.LastIndexByte(field, '.')+1:]
			if !unserved[name] || !strings.Contains(cause.GetMessage(), "not supported by this version") {
				t.Errorf("%s: %s: %s", p.Metadata.Name, field, cause.GetMessage())
			}
		}
		t.Logf("%s: not yet: %s", p.Metadata.Name, strings.Join(fields, ", "))
	}
	t.Logf("%d of %d published examples are taken", taken, len(all))
	if len(all) != 48 || taken < 12 {
		t.Errorf("%d of %d", taken, len(all))
	}
}
