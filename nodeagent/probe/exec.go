package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/criconfig"
)

// execMargin is how much longer than its time-out a command is waited for: it is the runtime that ends it.
const execMargin = 10 * time.Second

func runExec(ctx context.Context, action *corev1.ExecAction, t Target, timeout time.Duration) (Result, string) {
	command := make([]string, len(action.GetCommand()))
	for i, word := range action.GetCommand() {
		command[i] = criconfig.Expand(word, t.constant)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+execMargin)
	defer cancel()
	output, code, err := t.Exec(ctx, command, timeout)
	switch {
	case err == nil && code == 0:
		return Success, ""
	case err == nil:
		return Failure, string(output[:min(len(output), maxBody)])
	case ctx.Err() != nil:
		return Unknown, fmt.Sprintf("the runtime has not ended %q, %s after its time-out: %v",
			strings.Join(command, " "), execMargin, err)
	case timedOut(err):
		return Failure, fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(command, " "), timeout)
	default:
		return Unknown, err.Error()
	}
}

// timedOut reports whether a command was ended because its time was over. That is a failure of the container, which
// Kubernetes before 1.20 overlooked.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}

// constant looks up a variable among those of the container whose value is written in the pod; a probe's command knows
// no others.
func (t Target) constant(name string) (value string, ok bool) {
	for _, v := range t.Container.GetEnv() {
		if v.GetName() == name {
			value, ok = v.GetValue(), true
		}
	}
	return value, ok
}
