package e2e_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const storageManifest = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce, ReadWriteMany]
  storageClassName: local
  hostPath: {path: /there/is/none, type: Directory}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 500Mi}}
`

const claimingPod = `
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]
  containers: [{name: main, image: host, command: [sleep, "3600"], volumeMounts: [{name: v, mountPath: /data}]}]
`

// The kinds of storage, as a user meets them; and a pod that must not run without its volume.
// spec: CLI-2, CLI-3, OBJ-3
func TestStorage(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := c.kubectl(t, c.namespace(t))
	k.tour(t, []step{
		{line: "apply -f -", stdin: storageManifest, want: []string{
			`^storageclass.storage.k8s.io/local created$`, `^persistentvolume/disk created$`,
			`^persistentvolumeclaim/data created$`,
		}},
		{line: "apply -f -", stdin: storageManifest, want: []string{`^storageclass.storage.k8s.io/local unchanged$`,
			`^persistentvolume/disk unchanged$`, `^persistentvolumeclaim/data unchanged$`}},
		{line: "get sc", want: []string{
			`^NAME +PROVISIONER +RECLAIMPOLICY +VOLUMEBINDINGMODE +ALLOWVOLUMEEXPANSION +AGE$`,
			`^local \(default\) +kubernetes.io/no-provisioner +Delete +WaitForFirstConsumer +false +[\dms]+$`,
		}},
		{line: "get pv", want: []string{
			`^NAME +CAPACITY +ACCESS MODES +RECLAIM POLICY +STATUS +CLAIM +STORAGECLASS +VOLUMEATTRIBUTESCLASS +REASON +AGE$`,
			`^disk +1Gi +RWO,RWX +Retain +(Pending|Available) +local +<unset> +[\dms]+$`,
		}},
		{line: "get pvc -o wide", want: []string{
			`^NAME +STATUS +VOLUME +CAPACITY +ACCESS MODES +STORAGECLASS +VOLUMEATTRIBUTESCLASS +AGE +VOLUMEMODE$`,
			`^data +Pending +local +<unset> +[\dms]+ +Filesystem$`,
		}},
		{line: "describe sc local", want: []string{`^IsDefaultClass: +Yes$`, `^VolumeBindingMode: +WaitForFirstConsumer$`}},
		{line: "describe pv disk", want: []string{`^Finalizers: +\[kubernetes.io/pv-protection\]$`,
			`^Access Modes: +RWO,RWX$`, `Path: +/there/is/none`}},
		{line: "describe pvc data", want: []string{`^StorageClass: +local$`,
			`^Finalizers: +\[kubernetes.io/pvc-protection\]$`, `^Status: +Pending$`}},
		{line: "explain pv.spec.local", want: []string{`needs nodeAffinity`}},
		{line: `patch pvc data -p '{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}'`, code: 1, want: []string{
			`spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for ` +
				`bound claims`,
		}},
		{line: "apply -f -", stdin: claimingPod, want: []string{`^pod/user created$`}},
	})
	k.until(t, "describe pod user", `FailedMount.*"v" : hostPath type check failed: /there/is/none is not a `+
		`directory`)
	k.until(t, "get pvc data", `(?m)^data +Bound +disk +1Gi +RWO,RWX +local `)
	k.until(t, "get pv disk", `(?m)^disk +1Gi +RWO,RWX +Retain +Bound +[^ ]*/data +local `)
	k.until(t, "get pod user", `(?m)^user +0/1 +ContainerCreating `)
	k.tour(t, []step{{line: "delete pod user", want: []string{`^pod "user" deleted`}}})
}

const unclassedManifest = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: own}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Mi}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: keeper}
spec:
  selector: {matchLabels: {app: keeper}}
  strategy: {type: Recreate}
  template:
    metadata: {labels: {app: keeper}}
    spec:
      terminationGracePeriodSeconds: 1
      volumes: [{name: v, persistentVolumeClaim: {claimName: own}}]
      containers:
      - {name: main, image: host, command: [sleep, "3600"], volumeMounts: [{name: v, mountPath: /data}]}
`

// A claim that names no class becomes a directory of its pod's node, below the data directory. What is in it is there
// for the next pod, and goes with the claim.
func TestClaimWithoutClass(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := c.kubectl(t, c.namespace(t))
	k.tour(t, []step{
		{line: "get sc", want: []string{
			`^standard \(default\) +monoplane.dev/local +Delete +WaitForFirstConsumer +false +[\dms]+$`}},
		{line: "apply -f -", stdin: unclassedManifest, want: []string{`^persistentvolumeclaim/own created$`}},
		{line: "rollout status deployment/keeper --timeout=2m", want: []string{`successfully rolled out`}},
	})
	k.until(t, "get pvc own", `(?m)^own +Bound +pvc-[-0-9a-f]+ +1Mi +RWO +standard `)
	volume := strings.TrimSpace(k.ok(t, "get pvc own -o jsonpath={.spec.volumeName}"))
	path := strings.TrimSpace(k.ok(t, "get pv "+volume+" -o jsonpath={.spec.local.path}"))
	if !strings.HasPrefix(path, c.dir+"/") || filepath.Base(path) != volume {
		t.Errorf("volume %s is at %s", volume, path)
	}
	if err := os.WriteFile(filepath.Join(path, "kept"), []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	k.tour(t, []step{
		{line: "rollout restart deployment/keeper", want: []string{`restarted`}},
		{line: "rollout status deployment/keeper --timeout=2m", want: []string{`successfully rolled out`}},
	})
	if data, err := os.ReadFile(filepath.Join(path, "kept")); err != nil || string(data) != "data" {
		t.Errorf("the next pod finds %q, %v", data, err)
	}
	k.tour(t, []step{
		{line: "delete deployment/keeper pvc/own", want: []string{`^persistentvolumeclaim "own" deleted`}},
		{line: "wait --for=delete pv/" + volume + " --timeout=2m"},
	})
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}
