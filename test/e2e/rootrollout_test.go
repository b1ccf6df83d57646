//go:build rootonly

package e2e_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestRootRollout replaces the pods of a Deployment of an image while clients in a pod use its Service by the cluster
// IP, and clients elsewhere by the node port: no connection fails. A Service whose only pod terminates, and still is
// ready, serves on.
//
// spec: WORK-5, WORK-4, NET-1
func TestRootRollout(t *testing.T) {
	t.Parallel()
	rootAndUser(t, func(t *testing.T, m *machine) {
		far := m.outside(t)
		u := m.imageCluster(t)
		u.begin(t)
		k := u.kubectl(t)
		u.apply(t, rolloutManifest)
		k.ok(t, "rollout status deployment/web --timeout=2m")
		k.ok(t, "wait --for=condition=Ready pod/client pod/last --timeout=2m")
		client := u.podNetwork(t, "client")
		pods := func() []string {
			return strings.Fields(k.ok(t, "get pods -l app=web -o jsonpath={.items[*].metadata.name}"))
		}
		inside := newCaller(t, client, k.ok(t, "get service web -o jsonpath={.spec.clusterIP}")+":80")
		outside := newCaller(t, far.network(),
			"192.0.2.1:"+k.ok(t, "get service web -o jsonpath={.spec.ports[0].nodePort}"))
		before := pods()
		inside.untilAnswered(t, before)
		outside.untilAnswered(t, before)
		k.ok(t, "rollout restart deployment/web")
		k.ok(t, "rollout status deployment/web --timeout=2m")
		var after []string
		eventually(t, "the pods of before are gone", func() (bool, string) {
			after = pods()
			kept := slices.ContainsFunc(after, func(pod string) bool { return slices.Contains(before, pod) })
			return len(after) == 2 && !kept, fmt.Sprint(after)
		})
		inside.untilAnswered(t, after)
		outside.untilAnswered(t, after)
		inside.end()
		outside.end()

		const endpoint = "get endpointslices -l kubernetes.io/service-name=last -o " +
			"jsonpath={range.items[*].endpoints[*].conditions}{.ready}/{.serving}/{.terminating}{end}"
		k.until(t, endpoint, "^true/true/false$")
		inside = newCaller(t, client, k.ok(t, "get service last -o jsonpath={.spec.clusterIP}")+":80")
		outside = newCaller(t, far.network(),
			"192.0.2.1:"+k.ok(t, "get service last -o jsonpath={.spec.ports[0].nodePort}"))
		k.ok(t, "delete pod last --wait=false")
		k.until(t, endpoint, "^false/true/true$")
		for _, c := range []*caller{inside, outside} {
			answered := c.count.Load()
			eventually(t, "a pod that terminates serves on", func() (bool, string) {
				return t.Failed() || c.count.Load() > answered+50, ""
			})
			c.end()
		}
		k.ok(t, "exec last -- sh -c '>/tmp/end'")
		k.ok(t, "wait --for=delete pod/last --timeout=2m")
		u.down(t)
	})
}

// caller connects to an address again and again, and fails the test when it is not answered.
type caller struct {
	count atomic.Int64
	end   func()

	mu   sync.Mutex
	said map[string]bool // whatever has been answered
}

func newCaller(t *testing.T, network, address string) *caller {
	t.Helper()
	var stop atomic.Bool
	var done sync.WaitGroup
	c := &caller{said: map[string]bool{}, end: func() { stop.Store(true); done.Wait() }}
	t.Cleanup(c.end)
	done.Go(func() {
		_, err := inNetwork(network, func() (struct{}, error) {
			for !stop.Load() {
				text, err := ask(address, 20*time.Second)
				if err == nil && text == "" {
					err = fmt.Errorf("nothing is said")
				}
				if err != nil {
					return struct{}{}, err
				}
				c.mu.Lock()
				c.said[strings.TrimSpace(text)] = true
				c.mu.Unlock()
				c.count.Add(1)
			}
			return struct{}{}, nil
		})
		if err != nil {
			t.Errorf("%s, after %d answers: %v", address, c.count.Load(), err)
		}
	})
	return c
}

// untilAnswered waits until each of the pods has answered, or a connection has failed.
func (c *caller) untilAnswered(t *testing.T, pods []string) {
	t.Helper()
	eventually(t, "answers of "+strings.Join(pods, " and "), func() (bool, string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		all := !slices.ContainsFunc(pods, func(pod string) bool { return !c.said[pod] })
		return all || t.Failed(), fmt.Sprint(slices.Collect(maps.Keys(c.said)))
	})
}

const rolloutManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 30
      containers:
      - name: web
        image: localhost/box:1
        # It serves on while clients learn that it is to end.
        command: [sh, -c, 'trap "sleep 5; exit" TERM; nc -ll -p 8080 -e hostname & wait']
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: last, labels: {app: last}}
spec:
  terminationGracePeriodSeconds: 120
  containers:
  - name: last
    image: localhost/box:1
    command: [sh, -c, 'trap : TERM; nc -ll -p 8080 -e hostname & until test -f /tmp/end; do sleep 0.2; done']
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: last}
spec:
  type: NodePort
  selector: {app: last}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: client, image: 'localhost/box:1'}]
`
