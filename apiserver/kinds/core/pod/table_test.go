package pod_test

import (
	"testing"
	"time"

	"monoplane.dev/apiserver/kinds/core/pod"
	"monoplane.dev/codec"
	"monoplane.dev/codec/value"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// cells fills the table for a pod given as JSON, two hours old.
func cells(t *testing.T, doc string) []any {
	t.Helper()
	p := &corev1.Pod{}
	if strict, err := codec.DecodeObject([]byte(doc), p); err != nil || len(strict) > 0 {
		t.Fatalf("%v %v", err, strict)
	}
	if p.Metadata == nil {
		p.Metadata = &metav1.ObjectMeta{}
	}
	p.Metadata.Name, p.Metadata.CreationTimestamp = "web", value.Time(now.Add(-2*time.Hour))
	return pod.Table{}.Cells(p, now)
}

// spec: CLI-3, INIT-1, LIFE-7
func TestStatusColumn(t *testing.T) {
	two := `"spec":{"containers":[{"name":"a"},{"name":"b"}]}`
	inits := `"spec":{"initContainers":[{"name":"i"},{"name":"j"}],"containers":[{"name":"a"}]}`
	sidecar := `"spec":{"initContainers":[{"name":"s","restartPolicy":"Always"},{"name":"j"}],` +
		`"containers":[{"name":"a"}]}`
	deleted := `"metadata":{"deletionTimestamp":"2026-03-01T12:00:30Z"}`
	running := `{"name":"a","ready":true,"state":{"running":{}}}`
	for _, c := range []struct {
		name, doc               string
		ready, status, restarts string
	}{
		{"new", `{` + two + `,"status":{"phase":"Pending"}}`, "0/2", "Pending", "0"},
		{"gated", `{` + two + `,"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False",` +
			`"reason":"SchedulingGated"}]}}`, "0/2", "SchedulingGated", "0"},
		{"creating", `{` + two + `,"status":{"phase":"Pending","containerStatuses":[{"name":"a",` +
			`"state":{"waiting":{"reason":"ContainerCreating"}}}]}}`, "0/2", "ContainerCreating", "0"},
		{"running", `{` + two + `,"status":{"phase":"Running","containerStatuses":[` + running +
			`,{"name":"b","ready":true,"state":{"running":{}}}]}}`, "2/2", "Running", "0"},
		{"restarted", `{` + two + `,"status":{"phase":"Running","containerStatuses":[{"name":"a","ready":true,` +
			`"restartCount":3,"state":{"running":{}},"lastState":{"terminated":{"finishedAt":"2026-03-01T11:55:00Z"}}}]}}`,
			"1/2", "Running", "3 (5m ago)"},
		{"crashing", `{` + two + `,"status":{"phase":"Running","containerStatuses":[{"name":"a","restartCount":1,` +
			`"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}}`, "0/2", "CrashLoopBackOff", "1"},
		{"the first container has the last word",
			`{` + two + `,"status":{"phase":"Running","containerStatuses":[{"name":"a",` +
				`"state":{"waiting":{"reason":"ErrImagePull"}}},{"name":"b","state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}}`,
			"0/2", "ErrImagePull", "0"},
		{"completed", `{` + two + `,"status":{"phase":"Succeeded","containerStatuses":[{"name":"a",` +
			`"state":{"terminated":{"reason":"Completed"}}}]}}`, "0/2", "Completed", "0"},
		{"half completed, ready", `{` + two +
			`,"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"a",` +
			`"state":{"terminated":{"reason":"Completed"}}},{"name":"b","ready":true,"state":{"running":{}}}]}}`, "1/2",
			"Running", "0"},
		{"half completed, not ready",
			`{` + two + `,"status":{"phase":"Running","containerStatuses":[{"name":"a",` +
				`"state":{"terminated":{"reason":"Completed"}}},{"name":"b","ready":true,"state":{"running":{}}}]}}`, "1/2",
			"NotReady", "0"},
		{"exit code", `{` + two + `,"status":{"phase":"Failed","containerStatuses":[{"name":"a",` +
			`"state":{"terminated":{"exitCode":3}}}]}}`, "0/2", "ExitCode:3", "0"},
		{"signal", `{` + two + `,"status":{"phase":"Failed","containerStatuses":[{"name":"a",` +
			`"state":{"terminated":{"signal":9,"exitCode":137}}}]}}`, "0/2", "Signal:9", "0"},
		{"error", `{` + two + `,"status":{"phase":"Failed","containerStatuses":[{"name":"a",` +
			`"state":{"terminated":{"reason":"Error","exitCode":1}}}]}}`, "0/2", "Error", "0"},
		{"evicted", `{` + two + `,"status":{"phase":"Failed","reason":"Evicted"}}`, "0/2", "Evicted", "0"},
		{"init", `{` + inits + `,"status":{"phase":"Pending","initContainerStatuses":[{"name":"i",` +
			`"state":{"terminated":{"exitCode":0}}},{"name":"j","state":{"running":{}}}]}}`, "0/1", "Init:1/2", "0"},
		{"init begins", `{` + inits +
			`,"status":{"phase":"Pending","initContainerStatuses":[{"name":"i",` +
			`"state":{"waiting":{"reason":"PodInitializing"}}}]}}`, "0/1", "Init:0/2", "0"},
		{"init error", `{` + inits +
			`,"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","restartCount":2,` +
			`"state":{"terminated":{"exitCode":1,"reason":"Error"}}}]}}`, "0/1", "Init:Error", "2"},
		{"init exit code", `{` + inits +
			`,"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","state":{"terminated":{"exitCode":4}}}]}}`,
			"0/1", "Init:ExitCode:4", "0"},
		{"init signal", `{` + inits +
			`,"status":{"phase":"Pending","initContainerStatuses":[{"name":"i","state":{"terminated":{"exitCode":137,` +
			`"signal":9}}}]}}`, "0/1", "Init:Signal:9", "0"},
		{"init crashing", `{` + inits +
			`,"status":{"phase":"Pending","initContainerStatuses":[{"name":"i",` +
			`"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}}`, "0/1", "Init:CrashLoopBackOff", "0"},
		{"init restarts are forgotten",
			`{` + inits + `,"status":{"phase":"Running","initContainerStatuses":[{"name":"i","restartCount":5,` +
				`"state":{"terminated":{"exitCode":0}}},{"name":"j","state":{"terminated":{"exitCode":0}}}],` +
				`"containerStatuses":[` + running + `]}}`, "1/1", "Running", "0"},
		{"sidecar", `{` + sidecar +
			`,"status":{"phase":"Running","initContainerStatuses":[{"name":"s","ready":true,"started":true,"restartCount":4,` +
			`"state":{"running":{}}},{"name":"j","state":{"terminated":{"exitCode":0}}}],"containerStatuses":[` + running +
			`]}}`, "2/2", "Running", "4"},
		{"terminating", `{` + deleted + `,` + two + `,"status":{"phase":"Running","containerStatuses":[` + running + `]}}`,
			"1/2", "Terminating", "0"},
		{"terminating, but ended", `{` + deleted + `,` + two + `,"status":{"phase":"Succeeded"}}`, "0/2", "Succeeded", "0"},
		{"lost", `{` + two + `,"status":{"phase":"Running","conditions":[{"type":"Ready","status":"False",` +
			`"reason":"NodeLost"}]}}`, "0/2", "NodeLost", "0"},
		{"lost and terminating", `{` + deleted + `,` + two + `,"status":{"phase":"Running","reason":"NodeLost"}}`, "0/2",
			"NodeLost", "0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := cells(t, c.doc)
			if got[0] != "web" || got[1] != c.ready || got[2] != c.status || got[3] != c.restarts || got[4] != "120m" {
				t.Errorf("got %q, want %s %s %s", got[:5], c.ready, c.status, c.restarts)
			}
		})
	}
}

func TestWideColumns(t *testing.T) {
	got := cells(t, `{"spec":{"nodeName":"n1","readinessGates":[{"conditionType":"a"},{"conditionType":"b"}]},
		"status":{"podIPs":[{"ip":"10.0.0.1"}],"nominatedNodeName":"n2","conditions":[{"type":"a","status":"True"}]}}`)
	for i, want := range []string{"10.0.0.1", "n1", "n2", "1/2"} {
		if got[5+i] != want {
			t.Errorf("column %d: %v, want %s", 5+i, got[5+i], want)
		}
	}
	for i, want := range cells(t, `{}`)[5:] {
		if want != "<none>" {
			t.Errorf("empty column %d: %v", i, want)
		}
	}
	if columns := (pod.Table{}).Columns(); len(columns) != len(got) || columns[0].Format != "name" {
		t.Errorf("columns %v", columns)
	}
}

// A pod without anything, nil parts included, must not end the server.
func TestTableOfNothing(t *testing.T) {
	for _, p := range []*corev1.Pod{{}, {Status: &corev1.PodStatus{
		Conditions: []*corev1.PodCondition{nil}, ContainerStatuses: []*corev1.ContainerStatus{nil},
		InitContainerStatuses: []*corev1.ContainerStatus{nil},
	}, Spec: &corev1.PodSpec{InitContainers: []*corev1.Container{nil}, Containers: []*corev1.Container{nil}}}} {
		if n := len((pod.Table{}).Cells(p, now)); n != 9 {
			t.Errorf("%d cells", n)
		}
	}
}
