package rest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
)

// certificateRequest returns a request for a certificate, as CertificateSigningRequests have it.
func certificateRequest(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// A write of a subresource changes of the metadata what it does in Kubernetes: nearly everywhere all that clients may
// write, and no more where a kind's strategy says so.
//
// spec: OBJ-5
func TestMetadataOfSubresources(t *testing.T) {
	const (
		template = `"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
		selector = `"selector":{"matchLabels":{"a":"b"}},`
		job      = `"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}`
		csr      = "certificates.k8s.io/v1/certificatesigningrequests"
		subject  = `{"kind":"User","user":{"name":"u"}}`
	)
	f := newFront(t)
	for _, tc := range []struct {
		kind, spec, subresource string
		keeps                   []string // nothing, unless it says so
	}{
		{"api/v1/namespaces", `{}`, "status", nil},
		{"api/v1/nodes", `{}`, "status", nil},
		{"api/v1/persistentvolumes", `{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],` +
			`"hostPath":{"path":"/x"}}`, "status", nil},
		{"api/v1/namespaces/default/persistentvolumeclaims", `{"accessModes":["ReadWriteOnce"],"resources":` +
			`{"requests":{"storage":"1Gi"}}}`, "status", nil},
		{"api/v1/namespaces/default/pods", `{"containers":[{"name":"c","image":"i"}]}`, "status",
			[]string{"ownerReferences"}},
		{"api/v1/namespaces/default/pods", `{"containers":[{"name":"c","image":"i"}]}`, "ephemeralcontainers",
			[]string{"labels", "annotations", "ownerReferences", "finalizers"}},
		{"api/v1/namespaces/default/pods", `{"containers":[{"name":"c","image":"i"}]}`, "resize",
			[]string{"labels", "annotations", "ownerReferences", "finalizers"}},
		{"api/v1/namespaces/default/replicationcontrollers", `{"selector":{"a":"b"},` + template + `}`, "status", nil},
		{"api/v1/namespaces/default/resourcequotas", `{"hard":{"pods":"1000"}}`, "status", nil},
		{"api/v1/namespaces/default/services", `{"ports":[{"port":1}]}`, "status", nil},
		{"apis/apps/v1/namespaces/default/daemonsets", `{` + selector + template + `}`, "status", nil},
		{"apis/apps/v1/namespaces/default/deployments", `{` + selector + template + `}`, "status", []string{"labels"}},
		{"apis/apps/v1/namespaces/default/replicasets", `{` + selector + template + `}`, "status", nil},
		{"apis/apps/v1/namespaces/default/statefulsets", `{` + selector + template + `}`, "status", nil},
		{"apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", `{"maxReplicas":1,"scaleTargetRef":` +
			`{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}`, "status", nil},
		{"apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", `{"maxReplicas":1,"scaleTargetRef":` +
			`{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}`, "status", nil},
		{"apis/batch/v1/namespaces/default/cronjobs", `{"schedule":"* * * * *","jobTemplate":{"spec":{` + job + `}}}`,
			"status", nil},
		{"apis/batch/v1/namespaces/default/jobs", `{` + job + `}`, "status", nil},
		{"apis/" + csr, `{"request":"REQUEST","signerName":"example.com/a","usages":["client auth"]}`, "status", nil},
		{"apis/" + csr, `{"request":"REQUEST","signerName":"example.com/a","usages":["client auth"]}`, "approval", nil},
		{"apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", `{"priorityLevelConfiguration":{"name":"exempt"},"rules":[` +
			`{"subjects":[` + subject + `],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}`, "status",
			[]string{"labels", "annotations", "ownerReferences", "finalizers"}},
		{"apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", `{"type":"Limited","limited":` +
			`{"limitResponse":{"type":"Reject"}}}`, "status",
			[]string{"labels", "annotations", "ownerReferences", "finalizers"}},
		{"apis/networking.k8s.io/v1/namespaces/default/ingresses", `{"defaultBackend":{"service":{"name":"s","port":` +
			`{"number":1}}}}`, "status", nil},
		{"apis/policy/v1/namespaces/default/poddisruptionbudgets", `{` + strings.TrimSuffix(selector, ",") + `}`,
			"status", nil},
	} {
		name := strings.ReplaceAll(tc.kind[strings.LastIndex(tc.kind, "/")+1:]+"-"+tc.subresource, "_", "")
		if strings.Contains(tc.kind, "autoscaling/v2") {
			name += "-v2"
		}
		spec := strings.ReplaceAll(tc.spec, "REQUEST", certificateRequest(t))
		f.want(f.do("POST", "/"+tc.kind, `{"metadata":{"name":"`+name+`","labels":{"first":"1"}},"spec":`+spec+`}`), 201)
		path := "/" + tc.kind + "/" + name
		before, _ := f.want(f.do("GET", path, ""), 200).object(t)["metadata"].(map[string]any)
		patch := func(doc string, code int) map[string]any {
			t.Helper()
			a := f.want(f.do("PATCH", path+"/"+tc.subresource, doc, "Content-Type", "application/merge-patch+json"), code)
			m, _ := a.object(t)["metadata"].(map[string]any)
			return m
		}
		got := patch(`{"metadata":{"labels":{"a":"b"},"annotations":{"a":"b"},"finalizers":["example.com/f"],`+
			`"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"n","uid":"u"}]}}`, 200)
		keeps := strings.Join(tc.keeps, " ")
		for part, mark := range map[string]string{"labels": "a:b", "annotations": "a:b", "finalizers": "example.com/f",
			"ownerReferences": "ConfigMap"} {
			had, has := strings.Contains(fmt.Sprint(before[part]), mark), strings.Contains(fmt.Sprint(got[part]), mark)
			if kept := !has; had || kept != strings.Contains(keeps, part) {
				t.Errorf("%s of %s: %s are %v after %v", tc.subresource, tc.kind, part, got[part], before[part])
			}
		}
		if len(tc.keeps) < 4 {
			patch(`{"metadata":{"annotations":{"not a name":"x"}}}`, 422)
			patch(`{"metadata":{"finalizers":["not a name"]}}`, 422)
			patch(`{"metadata":{"finalizers":null}}`, 200)
		}
	}
}
