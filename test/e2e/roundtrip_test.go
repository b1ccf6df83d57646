package e2e_test

import (
	"strings"
	"testing"
)

// Manifests that leave out what the server fills in, one for each kind that users write. ${NS} is the test's
// namespace. The pods wait for a node, and state their service account: Kubernetes too refuses to replace a pod by a
// manifest without the node or the account that it has got.
var roundTrips = map[string]string{
	"pod": `
apiVersion: v1
kind: Pod
metadata: {name: ${NS}, labels: {app: web, version: v1}}
spec:
  serviceAccountName: default
  nodeSelector: {nowhere: ""}
  tolerations: [{key: team, operator: Exists}]
  topologySpreadConstraints:
  - {topologyKey: kubernetes.io/hostname, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
  initContainers: [{name: first, image: host, command: ["true"]}]
  containers:
  - {name: main, image: nginx, ports: [{containerPort: 80}], resources: {limits: {cpu: "0.5", memory: 1024Ki}}, env: [{name: A, value: b}]}
`,
	"pod with a toleration of its own for a short absence": `
apiVersion: v1
kind: Pod
metadata: {name: ${NS}}
spec:
  serviceAccountName: default
  nodeSelector: {nowhere: ""}
  tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]
  containers: [{name: main, image: host, command: ["true"]}]
`,
	"pod with a class": `
apiVersion: v1
kind: Pod
metadata: {name: ${NS}, namespace: ${NS}}
spec:
  serviceAccountName: default
  nodeSelector: {nowhere: ""}
  priorityClassName: system-node-critical
  containers: [{name: main, image: host, command: ["true"]}]
`,
	"namespace": "apiVersion: v1\nkind: Namespace\nmetadata: {name: ${NS}-other, labels: {a: b}}\n",
	"configmap": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ${NS}}\ndata: {a: b}\n",
	"secret":    "apiVersion: v1\nkind: Secret\nmetadata: {name: ${NS}}\nstringData: {a: b}\n",
	"podtemplate": "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: ${NS}}\n" +
		"template: {spec: {containers: [{name: c, image: i}]}}\n",
	"serviceaccount": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: ${NS}}\n",
	"runtimeclass":   "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: ${NS}}\nhandler: h\n",
	"priorityclass":  "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: ${NS}}\nvalue: 5\n",
	"storageclass": "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: ${NS}}\n" +
		"provisioner: example.com/none\n",
	"persistentvolumeclaim": `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: ${NS}}
spec: {storageClassName: ${NS}, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1024Mi}}}
`,
	"persistentvolume": `
apiVersion: v1
kind: PersistentVolume
metadata: {name: ${NS}}
spec: {storageClassName: ${NS}-none, accessModes: [ReadWriteOnce], capacity: {storage: 1024Mi}, hostPath: {path: /mnt}}
`,
	"node":  "apiVersion: v1\nkind: Node\nmetadata: {name: ${NS}, labels: {a: b}}\nspec: {providerID: \"made://${NS}\"}\n",
	"lease": "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: ${NS}}\nspec: {holderIdentity: me}\n",
}

// What the server has filled in is not in the manifest that made an object, and never a reason to refuse it when it is
// applied again, or replaced: the defaults stay, or are put back.
// spec: OBJ-9, OBJ-10, CLI-2
func TestManifestsAreAppliedAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--runtime", "fake") // of its own, because a node is everybody's
	for name, manifest := range roundTrips {
		t.Run(name, func(t *testing.T) {
			ns := c.namespace(t)
			k := c.kubectl(t, ns)
			manifest := strings.ReplaceAll(manifest, "${NS}", ns)
			edited := strings.Replace(manifest, "metadata: {", "metadata: {annotations: {made: twice}, ", 1)
			const state = "get -f - -o " +
				"'jsonpath={.items[0].spec}{.items[0].metadata.finalizers}{.items[0].value}{.items[0].preemptionPolicy}{.items[0].provisioner}{.items[0].reclaimPolicy}" +
				"{.items[0].data}{.items[0].type}{.items[0].template}{.items[0].handler}'"
			const revision = "get -f - -o jsonpath={.items[0].metadata.resourceVersion}"
			k.tour(t, []step{{line: "apply -f -", stdin: manifest, want: []string{` created$`}}})
			made, code := k.run(t, manifest, words(state)...)
			if code != 0 {
				t.Fatalf("kubectl %s: %s", state, made)
			}
			k.tour(t, []step{{line: "label -f - by=hand", stdin: manifest, want: []string{` labeled$`}}})
			before, _ := k.run(t, manifest, words(revision)...)
			k.tour(t, []step{{line: "apply -f -", stdin: manifest, want: []string{` (unchanged|configured)$`}}})
			if after, _ := k.run(t, manifest, words(revision)...); after != before {
				t.Errorf("the same manifest changed it: resourceVersion %s, was %s", after, before)
			}
			k.tour(t, []step{
				{line: "apply -f -", stdin: edited, want: []string{` configured$`}},
				{line: "get -f - -o 'jsonpath={.items[0].metadata.annotations.made} {.items[0].metadata.labels.by}'",
					stdin: manifest, want: []string{`^twice hand$`}},
			})
			k.tour(t, []step{{line: "replace -f -", stdin: manifest, want: []string{` replaced$`}}})
			if now, _ := k.run(t, manifest, words(state)...); now != made || now == "" && name != "serviceaccount" {
				t.Errorf("what was filled in has changed:\n%s\nwas\n%s", now, made)
			}
			k.tour(t, []step{{line: "delete --wait=false -f -", stdin: manifest, want: []string{` deleted`}}})
		})
	}
}
