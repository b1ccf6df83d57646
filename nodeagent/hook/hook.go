// Package hook runs a container's lifecycle hooks, postStart and preStop, once and to their end: a program in the
// container, an HTTP GET or a wait. What follows from a failure is decided elsewhere (podstate). spec: HOOK-1
//
//	err := hook.Run(ctx, container.GetLifecycle().GetPreStop(), probe.Target{PodIP: ip, Container: c, Exec: exec})
//
// A hook has no time-out of its own: it ends with its context, after which no connection of it is left. An HTTP hook
// has done its work as soon as the server answers, whatever the answer says. Errors are for the log of the node: they
// may hold what a server or a program answered, which is not for everybody who can read events.
package hook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/probe"
)

// maxOutput is how much of what a program has written is put into an error.
const maxOutput = 1 << 10

// Run runs a hook and returns when it is over.
func Run(ctx context.Context, h *corev1.LifecycleHandler, t probe.Target) error {
	switch {
	case h.GetExec() != nil:
		return runExec(ctx, h.GetExec(), t)
	case h.GetHttpGet() != nil:
		return runHTTP(ctx, h.GetHttpGet(), t)
	case h.GetSleep() != nil:
		return runSleep(ctx, h.GetSleep())
	case h.GetTcpSocket() != nil:
		return fmt.Errorf("a hook of container %q is of the kind tcpSocket, which is not run: expected exec, httpGet "+
			"or sleep", t.Container.GetName())
	default:
		return fmt.Errorf("a hook of container %q has no handler: expected exec, httpGet or sleep",
			t.Container.GetName())
	}
}

func runExec(ctx context.Context, action *corev1.ExecAction, t probe.Target) error {
	command := strings.Join(action.GetCommand(), " ")
	output, code, err := t.Exec(ctx, action.GetCommand(), 0)
	if err != nil {
		return fmt.Errorf("run %q: %w", command, err)
	}
	if code != 0 {
		return fmt.Errorf("command '%s' exited with %d: %s", command, code,
			strings.ToValidUTF8(string(output[:min(len(output), maxOutput)]), "\uFFFD"))
	}
	return nil
}

func runHTTP(ctx context.Context, action *corev1.HTTPGetAction, t probe.Target) error {
	request, err := probe.NewRequest(ctx, action, t, "lifecycle")
	if err != nil {
		return err
	}
	_, err = t.Send(request, 0)
	// Hooks with the scheme HTTPS were once sent as HTTP, so that there are servers which know no other; credentials
	// are not sent in the open.
	if errors.Is(err, http.ErrSchemeMismatch) {
		request = request.Clone(ctx)
		request.URL.Scheme = "http"
		request.Header.Del("Authorization")
		_, err = t.Send(request, 0)
	}
	return err
}

func runSleep(ctx context.Context, action *corev1.SleepAction) error {
	timer := time.NewTimer(time.Duration(action.GetSeconds()) * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("container terminated before sleep hook finished: %w", ctx.Err())
	}
}
