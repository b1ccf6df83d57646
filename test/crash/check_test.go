package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
)

// observe looks again and again at what the server shows, and at the processes before and after that.
func (r *run) observe(ctx context.Context, c *client.Client) {
	for ; ctx.Err() == nil; pause(ctx, 100*time.Millisecond) {
		if _, err := r.look(ctx, c); err != nil {
			r.violated(err)
		}
	}
}

// look returns the pods that the server shows; a server that does not answer shows none, and breaks nothing.
func (r *run) look(ctx context.Context, c *client.Client) ([]*corev1.Pod, error) {
	before, err := workloads(r.dir)
	if err != nil {
		return nil, err
	}
	asked, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	list, err := c.Pods.List(asked, &metav1.ListRequest{Namespace: "default"})
	if err != nil {
		return nil, nil // the server may be stopped or dead
	}
	after, err := workloads(r.dir)
	if err != nil {
		return nil, err
	}
	pods := list.GetItems()
	return pods, errors.Join(r.history.see(pods), r.history.outlived(before, after, pods))
}

// verify checks what must hold after a restart.
func (r *run) verify(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, err := c.Pods.List(ctx, &metav1.ListRequest{Namespace: "default"})
	if err != nil {
		return err
	}
	number, _, err := readLedger(ctx, c)
	if err != nil {
		return err
	}
	return errors.Join(
		r.history.check(list.GetItems()), r.history.checkLedger(number), r.noStrangers(ctx, c), r.checkJournal(),
	)
}

// checkJournal judges the instances that have ended: they were in the journal before it was looked who runs, so that
// all that they have ever written is in it afterwards.
func (r *run) checkJournal() error {
	if err := r.judge.read(r.dir); err != nil {
		return err
	}
	ended := r.judge.instances()
	byUID, err := workloads(r.dir)
	if err != nil {
		return err
	}
	for _, running := range byUID {
		for _, p := range running {
			delete(ended, p)
		}
	}
	if err := r.judge.read(r.dir); err != nil {
		return err
	}
	return r.judge.check(ended)
}

// noStrangers waits until no process runs whose pod does not exist. A ready node has dealt with those that it
// found (NODE-2); a pod that was forced after that gets a short grace.
func (r *run) noStrangers(ctx context.Context, c *client.Client) error {
	return eventually(ctx, func() error {
		running, err := workloads(r.dir)
		if err != nil {
			return err
		}
		list, err := c.Pods.List(ctx, &metav1.ListRequest{Namespace: "default"})
		if err != nil {
			return err
		}
		for _, p := range list.GetItems() {
			delete(running, p.GetMetadata().GetUid())
		}
		for uid, procs := range running {
			name := r.history.of(uid).name
			return fmt.Errorf("processes %v run for pod %s (%s), which does not exist", procs, name, uid)
		}
		return nil
	})
}

// settle ends the faults that have an end and deletes all pods: every deletion must end then, and nothing may be left
// that runs, not even of what the test has stopped for ever.
//
// spec: DEL-13, SAFE-6
func (r *run) settle() error {
	r.heal()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	s, err := r.start(0)
	if err != nil {
		return err
	}
	c, err := dial(ctx, r.backing)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := r.verify(ctx, c); err != nil {
		return err
	}
	err = eventually(ctx, func() error {
		items, err := r.look(ctx, c)
		if err != nil {
			return err
		}
		for _, p := range items {
			if p.GetMetadata().GetDeletionTimestamp() == nil {
				r.history.change(p.GetMetadata().GetUid(), p.GetMetadata().GetName(), func(f *fate) { f.deleting = true })
			}
		}
		if _, err := c.Pods.DeleteCollection(ctx, &metav1.DeleteCollectionRequest{Namespace: "default"}); err != nil {
			return err
		}
		list, err := c.Pods.List(ctx, &metav1.ListRequest{Namespace: "default"})
		if err == nil && len(list.GetItems()) > 0 {
			first := list.GetItems()[0].GetMetadata().GetName()
			err = fmt.Errorf("%d deletions have not ended, the first of %s", len(list.GetItems()), first)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = eventually(ctx, func() error {
		running, err := workloads(r.dir)
		if err == nil && len(running) > 0 {
			err = fmt.Errorf("processes are left: %v", running)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = eventually(ctx, func() error {
		left, err := shims(r.dir)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("shims are left: %v", left)
		}
		return err
	})
	if err != nil {
		return err
	}
	s.kill()
	locks, err := filepath.Glob(filepath.Join(r.dir, "lock-*")) // nobody holds them any more
	for _, name := range locks {
		err = errors.Join(err, os.Remove(name))
	}
	return errors.Join(err, r.checkJournal(), r.violation())
}
