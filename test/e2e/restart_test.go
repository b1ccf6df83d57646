package e2e_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// spec: LIFE-1, LIFE-10, CTR-1, CTR-2, CTR-4, CLI-3
func TestExitCodes(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	p, k := c.pods(t, ns), c.kubectl(t, ns)
	cases := []struct {
		name, script string
		phase        corev1.PodPhase
		code, signal int32
		reason       string
		column       string
	}{
		{"ends-well", "exit 0", corev1.PodSucceeded, 0, 0, "Completed", "Completed"},
		{"ends-badly", "exit 7", corev1.PodFailed, 7, 0, "Error", "Error"},
		{"is-killed", "kill -KILL $$", corev1.PodFailed, 137, 9, "Error", "Error"},
	}
	for _, tc := range cases {
		p.create(t, podOf(tc.name, tc.script))
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			pod := p.untilPhase(t, tc.name, tc.phase)
			ended := pod.Status.ContainerStatuses[0].State.Terminated
			if ended == nil || ended.ExitCode != tc.code || ended.Reason != tc.reason || ended.StartedAt.IsZero() ||
				ended.FinishedAt.IsZero() {
				t.Errorf("terminated: %+v, want code %d, reason %s", ended, tc.code, tc.reason)
			}
			k.tour(t, []step{
				{line: "get pod " + tc.name, want: []string{tc.name + ` +0/1 +` + tc.column + ` +0 `}},
				// spec: DEL-3
				{line: "delete pod " + tc.name + " --wait=false"},
				{line: "get pod " + tc.name, want: []string{`NotFound`}, code: 1},
			})
		})
	}
}

// spec: CTR-2, CTR-3, CTR-8, CLI-3
func TestRestarts(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	p, k := c.pods(t, ns), c.kubectl(t, ns)
	once := func(t *testing.T, name, then string) (*corev1.Pod, box) {
		b := newBox(t)
		return podOf(name, b.sh(`if [ -e BOX/been ]; then echo second; `+then+`; fi; touch BOX/been; echo first; exit 3`)), b
	}
	always, _ := once(t, "always", "exec sleep 3600")
	p.create(t, withRestart(always, corev1.RestartPolicyAlways))
	onFailure, _ := once(t, "on-failure", "exit 0")
	p.create(t, withRestart(onFailure, corev1.RestartPolicyOnFailure))
	p.create(t, withRestart(podOf("loops", "echo again; exit 1"), corev1.RestartPolicyAlways))

	pod := p.until(t, "always", "runs again", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount == 1 &&
			p.Status.ContainerStatuses[0].State.Running != nil
	})
	if last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 3 ||
		last.Reason != "Error" {
		t.Errorf("last state: %+v, want exit code 3", last)
	}
	k.until(t, "logs always", `^second\n$`)
	k.tour(t, []step{
		{line: "logs always --previous", want: []string{`\Afirst\n\z`}},
		{line: "get pod always", want: []string{`^always +1/1 +Running +1 \(\d+s ago\)`}},
	})

	p.untilPhase(t, "on-failure", corev1.PodSucceeded)
	k.tour(t, []step{{line: "get pod on-failure", want: []string{`^on-failure +0/1 +Completed +1`}}})

	// Between its back-offs it runs for a moment, and a machine can be slow enough for one to end in the middle of this.
	k.until(t, "get pod loops", `(?m)^loops +0/1 +CrashLoopBackOff +\d+ \(\d+s ago\)`)
	k.until(t, "describe pod loops", `Reason: +CrashLoopBackOff`)
	k.until(t, "describe pod loops", `Warning +BackOff .*[Bb]ack-off`)
	k.until(t, "logs loops", `^again\n$`)
}

// What cannot be started says why, in the status and in an event.
// spec: CTR-4
func TestCannotStart(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	p, k := c.pods(t, ns), c.kubectl(t, ns)
	missing := podOf("missing", "")
	missing.Spec.Containers[0].Command = []string{"/does/not/exist"}
	p.create(t, missing)
	image := podOf("image", "")
	image.Spec.Containers[0].Image = "nginx:1"
	p.create(t, image)

	pod := p.untilPhase(t, "missing", corev1.PodFailed)
	ended := pod.Status.ContainerStatuses[0].State.Terminated
	if ended == nil || ended.ExitCode == 0 || !strings.Contains(ended.Message, `"/does/not/exist" does not exist`) {
		t.Errorf("terminated: %+v", ended)
	}
	p.until(t, "image", "is refused", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && strings.Contains(s[0].State.Waiting.Message, "host")
	})
	// Events may come after the status.
	k.until(t, "describe pod missing", `Warning +Failed .*command "/does/not/exist" does not exist`)
	k.until(t, "describe pod image", `Warning +Failed .*image "nginx:1" .*only the image "host"`)
	k.tour(t, []step{
		{line: "get pod missing", want: []string{`StartError`}},
		{line: "get pod image", want: []string{`^image +0/1 +(ErrImagePull|ImagePullBackOff) +0 `}},
		{line: "logs image", want: []string{`container "main" in pod "image" is waiting to start`}, code: 1},
		{line: "delete pod image missing"},
	})
}

// spec: CTR-7, CTR-8
func TestEnvironmentAndTwoContainers(t *testing.T) {
	t.Parallel()
	c := shared(t)
	ns := c.namespace(t)
	p, k := c.pods(t, ns), c.kubectl(t, ns)
	pod := podOf("two", `echo "color is $COLOR, I am $HOSTNAME"; pwd; exit 0`)
	pod.Spec.Containers[0].WorkingDir = "/usr"
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "BASE", Value: "dark"}, {Name: "COLOR", Value: "$(BASE) red"}}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
		Name: "side", Image: "host", Command: []string{"/bin/sh", "-c"},
		Args: []string{"echo from side; echo to stderr >&2"},
	})
	p.create(t, pod)
	p.untilPhase(t, "two", corev1.PodSucceeded)
	k.tour(t, []step{
		{line: "logs two -c main", want: []string{`^color is dark red, I am two$`, `^/usr$`}},
		{line: "logs two -c side", want: []string{`^from side$`, `^to stderr$`}},
		{line: "logs two --all-containers --prefix", want: []string{`^\[pod/two/main\] color`,
			`^\[pod/two/side\] from side$`}},
		{line: "get pod two", want: []string{`^two +0/2 +Completed`}},
	})
}
