package e2e_test

import (
	"regexp"
	"strings"
	"testing"
)

// The commands that a new user types, in the order of the README, on one pod.
// spec: CLI-2, CLI-3, OBJ-15, OBJ-9, OBJ-8, OBJ-13
func TestTour(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	hello := example(t, "hello.yaml")
	watched, _ := k.background(t, "get pods -w -v=6")
	watched.waitFor(t, `watch=true`) // its answer has begun

	k.tour(t, []step{
		{line: "apply -f " + hello, want: []string{`^pod/hello created$`}},
		{line: "wait --for=condition=Ready pod/hello --timeout=2m", want: []string{`^pod/hello condition met$`}},
		{line: "apply -f " + hello, want: []string{`^pod/hello unchanged$`}},
		{line: "get pods", want: []string{`^NAME +READY +STATUS +RESTARTS +AGE$`, `^hello +1/1 +Running +0 +[\dms]+$`}},
		{line: "get pods -o wide", want: []string{
			`^NAME +READY +STATUS +RESTARTS +AGE +IP +NODE +NOMINATED NODE +READINESS GATES$`,
			`^hello +1/1 +Running .*<none> +<none>$`,
		}},
		{line: "get pods -A", want: []string{`^NAMESPACE +NAME`, k.namespace + ` +hello +1/1`}},
		{line: "get pods --show-labels -l app=hello", want: []string{`app=hello`}},
		{line: "get pods -l app!=hello", want: []string{`^No resources found`}},
		{line: "get pods --field-selector status.phase=Running", want: []string{`^hello`}},
		{line: "get pods --sort-by=.metadata.name", want: []string{`^hello`}},
		{line: "get pod hello -o yaml", want: []string{
			`^apiVersion: v1$`, `^kind: Pod$`, `^  uid: [0-9a-f-]{36}$`, `^  phase: Running$`, `^    restartCount: 0$`,
			`^  qosClass: BestEffort$`, `^  terminationGracePeriodSeconds: 30$`,
		}},
		{line: "get pod hello -o json", want: []string{`"kind": "Pod"`, `"phase": "Running"`}},
		{line: "get pods -o name", want: []string{`^pod/hello$`}},
		{line: "get pods -o 'jsonpath={.items[*].status.containerStatuses[0].state.running.startedAt}'",
			want: []string{`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`}},
		{line: "get pods -o custom-columns=N:.metadata.name", want: []string{`^N$`, `^hello$`}},
		{line: "describe pod hello", want: []string{
			`^Name: +hello$`, `^Status: +Running$`, `Container ID: +host://`, `State: +Running`, `Ready: +True`,
			`Scheduled .*Successfully assigned ` + k.namespace + `/hello to `, `Started .*`,
		}},
		{line: "get events", want: []string{`^LAST SEEN +TYPE +REASON +OBJECT +MESSAGE$`, `Normal +Scheduled +pod/hello`}},
		{line: "events --for pod/hello", want: []string{`Normal +Scheduled +Pod/hello`, `Normal +Started`}},
		{line: "label pod hello tier=web", want: []string{`^pod/hello labeled$`}},
		{line: "label pod hello tier=db", want: []string{`overwrite`}, code: 1},
		{line: "annotate pod hello note=one", want: []string{`^pod/hello annotated$`}},
		{line: `patch pod hello --type=merge -p '{"metadata":{"labels":{"merge":"1"}}}'`,
			want: []string{`^pod/hello patched$`}},
		{line: `patch pod hello --type=json -p '[{"op":"add","path":"/metadata/labels/json","value":"1"}]'`,
			want: []string{`^pod/hello patched$`}},
		{line: `patch pod hello --type=strategic -p '{"metadata":{"labels":{"strategic":"1"}}}'`,
			want: []string{`^pod/hello patched$`}},
		{line: `patch pod hello -p '{"metadata":{"labels":{"strategic":"1"}}}'`,
			want: []string{`^pod/hello patched \(no change\)$`}},
		{line: `patch pod hello -p '{"spec":{"containers":[{"name":"main","workingDir":"/"}]}}'`, code: 1, want: []string{
			`The Pod "hello" is invalid: spec: Forbidden: pod updates may not change fields`,
		}},
		{line: "get pod hello --show-labels", want: []string{`app=hello,json=1,merge=1,strategic=1,tier=web`}},
		{line: "apply -f " + hello + " --dry-run=server", want: []string{`server dry run`}},
		{line: "run ghost --image=host --dry-run=server", want: []string{`^pod/ghost created \(server dry run\)$`}},
		{line: "delete pod hello --dry-run=server", want: []string{`^pod "hello" deleted.*\(server dry run\)$`}},
		{line: "get pods", want: []string{`^hello +1/1 +Running`}},
		{line: "get pod ghost", want: []string{`^Error from server \(NotFound\): pods "ghost" not found$`}, code: 1},
		{line: "logs hello --tail=1", want: []string{`^hello \d+ from hello\n$`}},
		{line: "logs hello --timestamps --tail=1",
			want: []string{`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z hello \d+ from hello$`}},
		{line: "logs hello --limit-bytes=3", want: []string{`^hel$`}},
		{line: "logs hello -c nope", want: []string{`container nope is not valid for pod hello`}, code: 1},
	})

	followed, followEnd := k.background(t, "logs -f hello")
	followed.waitFor(t, `hello 2 from hello`)
	waited, waitEnd := k.background(t, "wait --for=delete pod/hello --timeout=2m")
	// The process gets its TERM, says goodbye and exits: the grace of 30 s is an upper bound.
	k.tour(t, []step{{line: "delete pod hello", want: []string{`^pod "hello" deleted from ` + k.namespace +
		` namespace$`}}})
	<-followEnd
	<-waitEnd
	if !strings.Contains(followed.String(), "goodbye from hello") {
		t.Errorf("logs -f ends without the last words:\n%s", followed)
	}
	if strings.Contains(waited.String(), "rror") {
		t.Errorf("wait --for=delete: %s", waited)
	}
	watched.waitFor(t, `(?s)hello +0/1 +Pending .*hello +1/1 +Running .*hello +\d/1 +Terminating `)
	k.tour(t, []step{{line: "get pods", want: []string{`^No resources found in ` + k.namespace + ` namespace\.$`}}})
}

// The README's example of a ConfigMap in a pod, and of a probe.
// spec: VOL-1, PROBE-3
func TestGreeting(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	file := example(t, "greeting.yaml")
	until := func(line, want string) {
		t.Helper()
		eventually(t, "kubectl "+line, func() (bool, string) {
			out, _ := k.run(t, "", words(line)...)
			return regexp.MustCompile("(?m)" + want).MatchString(out), out
		})
	}
	k.tour(t, []step{
		{line: "apply -f " + file, want: []string{`^configmap/greeting created$`, `^pod/greeter created$`}},
		{line: "wait --for=condition=Ready pod/greeter --timeout=2m"},
	})
	until("logs greeter --tail=1", `^Hello$`)
	k.tour(t, []step{{line: `patch configmap greeting -p '{"data": {"text": "Good evening"}}'`,
		want: []string{`^configmap/greeting patched$`}}})
	until("logs greeter --tail=1", `^Good evening$`)
	k.tour(t, []step{{line: `patch configmap greeting -p '{"data": {"health": "bad"}}'`}})
	// Of a back-off of a few seconds, after few restarts, a slow kubectl may see nothing: a later one will do.
	until("get pod greeter", `^greeter +0/1 +CrashLoopBackOff +[1-9]`)
	until("get events", `Warning +Unhealthy +pod/greeter +Liveness probe failed`)
	k.tour(t, []step{{line: "delete -f " + file, want: []string{`^pod "greeter" deleted`}}})
}

// spec: CLI-2
func TestChangesFromFiles(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, c.namespace(t))
	k.tour(t, []step{
		{line: "create configmap settings --from-literal=color=red", want: []string{`^configmap/settings created$`}},
		{line: "create configmap settings --from-literal=color=red",
			want: []string{`^error: failed to create configmap: configmaps "settings" already exists$`}, code: 1},
		{line: "get configmap settings -o 'jsonpath={.data.color}'", want: []string{`^red$`}},
		{line: "create serviceaccount robot", want: []string{`^serviceaccount/robot created$`}},
		{line: "get cm,sa", want: []string{`^configmap/settings +1 `, `^serviceaccount/robot +[\dms]+`,
			`^serviceaccount/default `}},
	})
	manifest := k.ok(t, "get configmap settings -o yaml")
	k.tour(t, []step{
		{line: "replace -f -", stdin: strings.Replace(manifest, "red", "green", 1),
			want: []string{`^configmap/settings replaced$`}},
		{line: "replace -f -", stdin: strings.Replace(manifest, "red", "blue", 1), code: 1, want: []string{ // spec: OBJ-2
			`^Error from server \(Conflict\): .*the object has been modified`,
		}},
		{line: "get configmap settings -o 'jsonpath={.data.color}'", want: []string{`^green$`}},
	})
	editor := *k
	editor.env = append(editor.env, "KUBE_EDITOR=sed -i s/green/yellow/")
	editor.tour(t, []step{
		{line: "edit configmap settings", want: []string{`^configmap/settings edited$`}},
		{line: "get configmap settings -o 'jsonpath={.data.color}'", want: []string{`^yellow$`}},
		{line: "edit configmap settings", want: []string{`^Edit cancelled, no changes made\.$`}},
		{line: "diff -f -", stdin: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {color: pink}\n",
			code: 1, want: []string{
				`^-  color: yellow$`, `^\+  color: pink$`,
			}},
		{line: "delete cm/settings sa/robot", want: []string{`^configmap "settings" deleted`,
			`^serviceaccount "robot" deleted`}},
	})
}

// spec: CLI-2
func TestAboutTheServer(t *testing.T) {
	t.Parallel()
	c := shared(t)
	k := c.kubectl(t, "default")
	k.tour(t, []step{
		{line: "version", want: []string{`^Client Version: v1\.36`, `^Server Version: v1\.36\.3\+monoplane$`}},
		{line: "api-versions", want: []string{`^v1$`, `^coordination\.k8s\.io/v1$`, `^events\.k8s\.io/v1$`,
			`^scheduling\.k8s\.io/v1$`}},
		{line: "api-resources", want: []string{
			`^pods +po +v1 +true +Pod$`, `^nodes +no +v1 +false +Node$`, `^namespaces +ns +v1 +false +Namespace$`,
			`^configmaps +cm +v1 +true +ConfigMap$`, `^leases +coordination\.k8s\.io/v1 +true +Lease$`,
		}},
		{line: "api-resources --namespaced=false -o name", want: []string{`^namespaces$`, `^nodes$`,
			`^priorityclasses\.scheduling\.k8s\.io$`}},
		{line: "explain pod.spec", want: []string{`^FIELD: spec <PodSpec>$`, `terminationGracePeriodSeconds\s+<integer>`,
			`containers\s+<\[\]Container>`,
			`The containers; at least one\.`}},
		{line: "explain pod.spec.containers.command", want: []string{`FIELD: command <\[\]string>`,
			`Program and first arguments`}},
		{line: "explain pod --recursive", want: []string{`^      limits\s+<map\[string\]Quantity>$`}},
		{line: "get --raw /version", want: []string{`"gitVersion": "v1\.36\.3\+monoplane"`}},
		{line: "get --raw /readyz", want: []string{`^ok$`}},
		{line: "get --raw /api/v1/namespaces/default", want: []string{`"kind":"Namespace"`}},
		// spec: OBJ-14
		{line: "get ns", want: []string{`^default +Active`, `^kube-system +Active`, `^kube-public +Active`,
			`^kube-node-lease +Active`}},
		{line: "delete ns kube-node-lease default", code: 1, want: []string{ // spec: OBJ-14
			`namespaces "kube-node-lease" is forbidden: this namespace may not be deleted$`,
			`namespaces "default" is forbidden`,
		}},
		{line: "delete ns kube-public --dry-run=server", code: 1, want: []string{`namespaces "kube-public" is forbidden`}},
		{line: "delete --raw /api/v1/namespaces", code: 1, want: []string{`namespaces "default" is forbidden`}},
		{line: "get lease -n kube-node-lease", want: []string{`^NAME +HOLDER +AGE$`}}, // spec: NODE-1
		{line: "get widgets", want: []string{`^error: the server doesn't have a resource type "widgets"$`}, code: 1},
		{line: "auth whoami", want: []string{`^Username +monoplane:admin$`}},
		{line: "cluster-info", want: []string{`^Kubernetes control plane is running at https://127\.0\.0\.1:`}},
	})
}

// The node is shared, so what is done to it is undone, and no other test may need it meanwhile: this one has a
// cluster of its own.
// spec: CLI-2, NODE-1, NODE-5, NODE-6, SCHED-6
func TestNodeCommands(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--node-name", "alpha")
	k := c.kubectl(t, "default")
	k.tour(t, []step{
		{line: "get nodes", want: []string{`^NAME +STATUS +ROLES +AGE +VERSION$`, `^alpha +Ready +<none> +[\dms]+ +\S+$`}},
		{line: "get nodes -o wide", want: []string{`INTERNAL-IP`, `host://`}},
		{line: "describe node alpha", want: []string{
			`^Name: +alpha$`, `kubernetes.io/hostname=alpha`, `kubernetes.io/os=linux`, `^  Ready +True .*KubeletReady`,
			`^  HolderIdentity: +alpha$`, `^Allocatable:$`, `^  pods: +110$`, `^Unschedulable: +false$`,
		}},
		{line: "cordon alpha", want: []string{`^node/alpha cordoned$`}},
		{line: "get nodes", want: []string{`^alpha +Ready,SchedulingDisabled`}},
		{line: "run waits --image=host --command -- sleep 3600", want: []string{`^pod/waits created$`}},
	})
	k.until(t, "describe pod waits", `0/1 nodes are available: 1 node\(s\) were unschedulable`)
	k.tour(t, []step{
		{line: "get pods", want: []string{`^waits +0/1 +Pending`}},
		{line: "taint nodes alpha team=red:NoSchedule", want: []string{`^node/alpha tainted$`}},
		{line: "uncordon alpha", want: []string{`^node/alpha uncordoned$`}},
		{line: "describe node alpha", want: []string{`^Taints: +team=red:NoSchedule$`}},
	})
	k.until(t, "describe pod waits", `0/1 nodes are available: 1 node\(s\) had untolerated taint\(s\)`)
	k.tour(t, []step{
		{line: "taint nodes alpha team-", want: []string{`^node/alpha untainted$`}},
		{line: "taint nodes alpha team=red:NoExecute --dry-run=server", want: []string{
			`^node/alpha tainted$`,
		}},
		{line: "wait --for=condition=Ready pod/waits --timeout=2m", want: []string{`condition met`}},
		{line: "describe node alpha", want: []string{`default +waits`, `^Non-terminated Pods: +\(1 in total\)$`}},
		{line: "drain alpha --force --timeout=2m", want: []string{`^pod/waits evicted$`, `^node/alpha drained$`}},
	})
}

// spec: NS-1, OBJ-14, DEL-8
func TestNamespaceWithPods(t *testing.T) {
	t.Parallel()
	c := shared(t)
	b := newBox(t)
	k := c.kubectl(t, "e2e-doomed")
	k.tour(t, []step{
		{line: "create ns e2e-doomed", want: []string{`^namespace/e2e-doomed created$`}},
		{line: "create configmap c"},
	})
	p := c.pods(t, "e2e-doomed")
	p.run(t, withGrace(podOf("polite",
		b.sh(`trap 'echo bye >BOX/bye; exit 0' TERM; echo $$ >BOX/pid; while :; do sleep 0.1; done`)), 20))
	pid := b.pid(t, "pid")
	k.tour(t, []step{
		{line: "delete ns e2e-doomed", want: []string{`^namespace "e2e-doomed" deleted$`}},
		{line: "get ns e2e-doomed", want: []string{`NotFound`}, code: 1},
		{line: "create configmap c", want: []string{`namespaces "e2e-doomed" not found`}, code: 1},
	})
	if alive(pid) {
		t.Error("a process of the namespace still runs")
	}
	if b.read("bye") != "bye\n" {
		t.Error("the process was not stopped by TERM")
	}
}

// A second kubectl on the same cluster sees the table columns of a watch on one object.
func TestWatchOneObject(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	k := c.kubectl(t, ns)
	c.pods(t, ns).run(t, sleeper("one"))
	out, _ := k.background(t, "get pod one -w -o wide")
	out.waitFor(t, `one +1/1 +Running`)
	k.ok(t, "delete pod one")
	out.waitFor(t, `one +\d/1 +Terminating`)
	if n := len(regexp.MustCompile(`(?m)^NAME`).FindAllString(out.String(), -1)); n != 1 {
		t.Errorf("%d headers, want 1:\n%s", n, out)
	}
}
