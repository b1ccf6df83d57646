package daemonset

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	appsv1 "monoplane.dev/api/apps/v1"
	appsv1rpc "monoplane.dev/api/apps/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client/record"
	"monoplane.dev/controllers/daemonset/plan"
	"monoplane.dev/controllers/internal/podcontrol"
	"monoplane.dev/rules/phase"
)

// How long nothing is tried again after pods could not be made; it doubles from the first to the second.
const (
	minPause = 100 * time.Millisecond
	maxPause = 30 * time.Second
)

// refusal is a failure to make pods.
type refusal struct {
	err error
	// generation is that of the DaemonSet whose pods could not be made. Another one is tried at once.
	generation int64
	until      time.Time
	pause      time.Duration
}

// step makes and deletes pods, removes revisions, and writes the status. It returns when there may be more to do.
func (c *Controller) step(
	ctx context.Context, d *appsv1.DaemonSet, m *memory, pods []*corev1.Pod, known revisions,
) (time.Duration, error) {
	now := time.Now()
	m.failed.Reset(d.GetStatus().GetObservedGeneration())
	hash := hashOf(known.newest)
	seen := plan.Look(d, c.nodes.List("", nil), pods, hash, now)
	next := seen.Manage(&m.failed)
	again := next.Wait
	if next.Idle() {
		next = seen.Roll()
	}
	for _, p := range next.Ended {
		c.sayEnded(d, p)
	}
	var failed error
	if len(next.Create) > 0 {
		var pause time.Duration
		pause, failed = c.create(ctx, d, m, next.Create, hash, now)
		if pause > 0 { // the delay is kept here, where other events do not cut it short
			again, failed = sooner(again, pause), nil
		}
	} else {
		m.refused = nil
	}
	failed = errors.Join(failed, c.control.DeleteAll(ctx, d, next.Remove))
	if failed == nil {
		failed = c.truncate(ctx, d, pods, known)
	}
	status := seen.Status()
	if known.collisions > status.GetCollisionCount() {
		status.CollisionCount = &known.collisions
	}
	if err := c.publish(ctx, d, m, status); err != nil {
		return 0, errors.Join(failed, err)
	}
	return sooner(again, seen.Next()), failed
}

// sooner returns the smaller one of two times to wait, of which 0 means for ever.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// sayEnded tells of a pod that has ended by itself.
func (c *Controller) sayEnded(d *appsv1.DaemonSet, p *corev1.Pod) {
	kind, reason, what := record.Normal, "SucceededDaemonPod", "has ended"
	if p.GetStatus().GetPhase() == phase.Failed {
		kind, reason, what = record.Warning, "FailedDaemonPod", "has failed"
	}
	m := p.GetMetadata()
	c.events.Event(d, kind, reason, "Deleting", fmt.Sprintf("Daemon pod %s/%s on node %s %s and is replaced",
		m.GetNamespace(), m.GetName(), p.GetSpec().GetNodeName(), what))
}

// create makes the pods of some nodes, unless that was refused just now. It returns after which time it is to be tried
// again.
func (c *Controller) create(
	ctx context.Context, d *appsv1.DaemonSet, m *memory, nodes []string, hash string, now time.Time,
) (again time.Duration, failed error) {
	generation := d.GetMetadata().GetGeneration()
	if r := m.refused; r != nil && r.generation == generation && now.Before(r.until) {
		return r.until.Sub(now), r.err
	}
	_, err := c.control.CreateAll(ctx, d, len(nodes), func(i int) *corev1.Pod {
		return podcontrol.FromTemplate(d, plan.Template(d, nodes[i], hash))
	})
	switch {
	case err == nil, apierrors.NamespaceGoes(err):
		m.refused = nil
		return 0, nil
	case ctx.Err() != nil:
		return 0, err
	}
	pause := minPause
	if m.refused != nil && m.refused.generation == generation {
		pause = min(2*m.refused.pause, maxPause)
	}
	m.refused = &refusal{err: err, generation: generation, until: now.Add(pause), pause: pause}
	c.logger.Warn("pods of a daemon set cannot be made", "daemonset", d.GetMetadata().GetName(),
		"namespace", d.GetMetadata().GetNamespace(), "error", err)
	return pause, err
}

// publish writes the status, unless it is there.
func (c *Controller) publish(ctx context.Context, d *appsv1.DaemonSet, m *memory, s *appsv1.DaemonSetStatus) error {
	if proto.Equal(s, d.GetStatus()) {
		return nil
	}
	next := d.Shallow()
	next.Status = s
	out, err := c.api.DaemonSets.UpdateStatus(ctx, &appsv1rpc.UpdateDaemonSetRequest{Object: next})
	if err != nil {
		return err
	}
	m.written = out.GetMetadata().GetResourceVersion()
	return nil
}
