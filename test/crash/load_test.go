package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
)

// podNames are the pods that come and go. What is before the dash says how their processes behave:
//
//	polite        ends at the stop signal
//	stubborn      ignores it
//	forced        polite; deleted by force
//	crashy        ends by itself and is restarted, after a back-off
//	pair          polite; has two containers
//	deadline      stubborn; its activeDeadlineSeconds stop it
//	parent        stops its own parent, the shim, and is polite
//	parentforced  as parent; deleted by force
func podNames(kinds []kind) []string {
	names := []string{
		"polite-a", "polite-b", "stubborn-a", "stubborn-b", "forced-a", "forced-b",
		"crashy-a", "crashy-b", "pair-a", "deadline-a",
	}
	for _, k := range kinds {
		if k == stopParent {
			names = append(names, "parent-a", "parentforced-a")
		}
	}
	return names
}

// stay is out of how many looks at a pod one deletes it.
func stay(name string) int {
	switch behaviour(name) {
	case "crashy", "parent", "parentforced":
		return 60 // long enough for restarts and back-offs
	}
	return 4
}

const ledgerName = "ledger"

// load begins to create and delete pods, and to count in a ConfigMap, from several clients at once. The returned
// function waits until they have noticed the end of ctx or of the server.
func (r *run) load(ctx context.Context, c *client.Client, rng *rand.Rand) (wait func()) {
	var wg sync.WaitGroup
	again := func(step func() error) func() {
		return func() {
			for ctx.Err() == nil {
				err := step()
				if apierrors.Is(err, apierrors.ServiceUnavailable) && r.current().ended() {
					return // the crash
				}
				if err != nil {
					pause(ctx, 10*time.Millisecond)
				}
			}
		}
	}
	for i, name := range podNames(r.planner.kinds) {
		own := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		wg.Go(again(func() error { return r.step(ctx, c, own, name) }))
	}
	wg.Go(again(func() error { return r.count(ctx, c) }))
	return wg.Wait
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// step creates the pod of a name, or deletes it in one of several ways. Errors are for the caller to judge: what
// was acknowledged is in the history.
func (r *run) step(ctx context.Context, c *client.Client, rng *rand.Rand, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	p, err := c.Pods.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: name})
	if apierrors.Is(err, apierrors.NotFound) {
		return r.create(ctx, c, name)
	}
	if err != nil {
		return err
	}
	if p.GetMetadata().GetDeletionTimestamp() != nil || rng.IntN(stay(name)) > 0 {
		pause(ctx, time.Duration(rng.IntN(200))*time.Millisecond) // let it live for a while
		return nil
	}
	return r.remove(ctx, c, p)
}

func (r *run) create(ctx context.Context, c *client.Client, name string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	seconds := int64(4) // enough for those that are polite, and no long wait for those that cannot be
	if ignoresStop(name) {
		seconds = int64(grace.Seconds())
	}
	spec := &corev1.PodSpec{TerminationGracePeriodSeconds: &seconds}
	containers := []string{"main"}
	uidOf := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}
	switch behaviour(name) {
	case "pair":
		containers = append(containers, "side")
	case "deadline":
		spec.ActiveDeadlineSeconds = new(int64(2))
		spec.RestartPolicy = "Never"
	}
	for _, container := range containers {
		spec.Containers = append(spec.Containers, &corev1.Container{
			Name: container, Image: "host", Command: []string{exe},
			Env: []*corev1.EnvVar{
				{Name: envDir, Value: r.dir}, {Name: envName, Value: name}, {Name: envContainer, Value: container},
				{Name: envUID, ValueFrom: uidOf},
			},
		})
	}
	p, err := c.Pods.Create(ctx, &corev1rpc.CreatePodRequest{Namespace: "default", Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: spec,
	}})
	if err != nil {
		return err
	}
	r.history.created(p)
	return nil
}

func (r *run) remove(ctx context.Context, c *client.Client, p *corev1.Pod) error {
	uid, name := p.GetMetadata().GetUid(), p.GetMetadata().GetName()
	req := &metav1.DeleteRequest{
		Namespace: "default", Name: name,
		Options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: &uid}},
	}
	if forced(name) {
		req.GracePeriodSeconds = new(int64(0))
	}
	r.history.change(uid, name, func(f *fate) { f.deleting, f.forced = true, forced(name) })
	_, err := c.Pods.Delete(ctx, req)
	if err == nil {
		r.history.change(uid, name, func(f *fate) { f.deleted = true })
	}
	return err
}

// forceAll deletes the forced pods just before a crash, so that nobody is left who knows them: their processes are
// found by the next agent.
func (r *run) forceAll(ctx context.Context, c *client.Client) {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // the server may be stopped
	defer cancel()
	for _, name := range podNames(r.planner.kinds) {
		if !forced(name) {
			continue
		}
		if p, err := c.Pods.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: name}); err == nil {
			_ = r.remove(ctx, c, p) // as in step
		}
	}
}

// count writes the next number into the ledger.
func (r *run) count(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	defer pause(ctx, 20*time.Millisecond)
	number, old, err := readLedger(ctx, c)
	if err != nil {
		return err
	}
	data := map[string]string{"number": strconv.Itoa(number + 1)}
	if old == nil {
		_, err = c.ConfigMaps.Create(ctx, &corev1rpc.CreateConfigMapRequest{Namespace: "default", Object: &corev1.ConfigMap{
			Metadata: &metav1.ObjectMeta{Name: ledgerName, Namespace: "default"}, Data: data,
		}})
	} else {
		_, err = c.ConfigMaps.Update(ctx, &corev1rpc.UpdateConfigMapRequest{
			Namespace: "default", Name: ledgerName, Object: &corev1.ConfigMap{Metadata: old.GetMetadata(), Data: data},
		})
	}
	if err == nil {
		r.history.wrote(number + 1)
	}
	return err
}

func readLedger(ctx context.Context, c *client.Client) (int, *corev1.ConfigMap, error) {
	m, err := c.ConfigMaps.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: ledgerName})
	if apierrors.Is(err, apierrors.NotFound) {
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, err
	}
	number, err := strconv.Atoi(m.GetData()["number"])
	if err != nil {
		return 0, nil, fmt.Errorf("the ledger: %w", err)
	}
	return number, m, nil
}
