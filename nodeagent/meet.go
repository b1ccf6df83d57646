package nodeagent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/podstate"
)

// meetRuntime waits until the runtime answers and takes its name, its version, and what it expects of the agent.
func (a *Agent) meetRuntime(ctx context.Context) error {
	var v *runtimeapi.VersionResponse
	silent := trouble{what: "the container runtime does not answer", log: a.cfg.Logger}
	err := retry(ctx, runtimeRetryMost, func(try context.Context) (err error) {
		v, err = a.cfg.Runtime.Version(try, &runtimeapi.VersionRequest{})
		if ctx.Err() == nil {
			silent.tell(err)
		}
		return err
	})
	if err != nil {
		return err
	}
	a.host = &podstate.Host{Policy: a.cfg.Policy, IPs: a.addresses, Runtime: v.GetRuntimeName()}
	if info := a.cfg.Machine.Info; info != nil {
		info.ContainerRuntimeVersion = fmt.Sprintf("%s://%s", v.GetRuntimeName(), v.GetRuntimeVersion())
		info.KubeletVersion = a.cfg.Version
	}
	a.groups = a.findGroups(ctx)
	a.limitsPods = a.groups == nil && a.runtimeLimitsPods(ctx)
	a.criNode = a.nodeFacts()
	a.askRuntime(ctx)
	return ctx.Err()
}

// statusTimeout bounds questions to the runtime that must not hold up a heartbeat.
const statusTimeout = 3 * time.Second

// askRuntime asks the runtime whether it is ready, for the node's Ready condition. spec: NODE-1
func (a *Agent) askRuntime(ctx context.Context) {
	asked, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	got, err := a.cfg.Runtime.Status(asked, &runtimeapi.StatusRequest{})
	if ctx.Err() != nil {
		return
	}
	unready := missing(got.GetStatus())
	if err == nil {
		a.users.learn(got.GetRuntimeHandlers())
		a.learnFeatures(got)
	} else {
		a.ranges.forget(&a.mu) // it may have been restarted
		unready = "the container runtime does not answer: " + text(err)
	}
	a.mu.Lock()
	before, level := a.unready, slog.LevelWarn
	if unready == "" {
		unready = a.blindness()
	}
	a.unready = unready
	if !a.wasReady { // at the start that is no news: it waits for the ranges of its pods' addresses, say
		level = slog.LevelInfo
	}
	a.wasReady = a.wasReady || unready == ""
	a.mu.Unlock()
	switch {
	case (unready == "") == (before == ""): // what it lacks is in the node's condition
	case unready == "":
		a.cfg.Logger.Log(ctx, level, "the container runtime is ready again")
	default:
		a.cfg.Logger.Log(ctx, level, "the node is not ready", "reason", unready)
	}
}

// missing says what a runtime lacks by its own word; empty when it is ready.
func missing(s *runtimeapi.RuntimeStatus) string {
	var all []string
	for _, c := range s.GetConditions() {
		if required := c.GetType() == runtimeapi.RuntimeReady || c.GetType() == runtimeapi.NetworkReady; required &&
			!c.GetStatus() {
			all = append(all, fmt.Sprintf("%s=false (%s: %s)", c.GetType(), c.GetReason(), c.GetMessage()))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "the container runtime is not ready: " + strings.Join(all, ", ")
}
