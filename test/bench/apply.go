package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"monoplane.dev/codec"
)

// benchApply measures server-side applies over REST beside merge patches of the same objects: what an apply takes more
// is the whole object, on the way and merged by its owners.
func benchApply(ctx context.Context, e *env) (err error) {
	c, err := startCluster(ctx, e, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	for _, clients := range []int{1, 16} {
		of, n := "1 client", e.size(100)
		if clients > 1 {
			of, n = fmt.Sprint(clients, " clients"), e.size(400)
		}
		for _, kind := range []struct {
			name    string
			changes bool
			share   float64
		}{{"unchanged", false, 0.3}, {"changed", true, 0.4}} {
			sides := make([]func(int) (float64, error), 2)
			for i, by := range []func(context.Context, *cluster, string, string) error{applyPod, patchPod} {
				prefix := fmt.Sprintf("%s-%d-%d", kind.name, clients, i)
				// Each client has an object of its own, so that nothing has to be done twice.
				_, err := drive(ctx, clients, clients, func(ctx context.Context, _, i int) error {
					return createApplied(ctx, c, podName(prefix, i))
				})
				if err != nil {
					return err
				}
				sides[i] = func(round int) (float64, error) {
					return drive(ctx, clients, n, func(ctx context.Context, client, i int) error {
						note := "begin"
						if kind.changes {
							note = fmt.Sprintf("%d-%d", round, i)
						}
						return by(ctx, c, podName(prefix, client), note)
					})
				}
			}
			p, err := paired(11, sides[0], sides[1])
			if err != nil {
				return err
			}
			e.atLeast(fmt.Sprintf("apply, %s, %s, REST", kind.name, of), p, "merge patch", kind.share)
		}
	}
	return nil
}

const applyType = "application/apply-patch+yaml"

// createApplied creates a pod by applying it.
func createApplied(ctx context.Context, c *cluster, name string) error {
	url := c.podsURL() + "/" + name + "?fieldManager=bench"
	_, err := callWith(ctx, c.http, http.MethodPatch, url, applyType, applied(name, "begin"), http.StatusCreated)
	return err
}

// applyPod applies a pod with a note.
func applyPod(ctx context.Context, c *cluster, name, note string) error {
	url := c.podsURL() + "/" + name + "?fieldManager=bench"
	_, err := callWith(ctx, c.http, http.MethodPatch, url, applyType, applied(name, note), http.StatusOK)
	return err
}

// applied is a pod with a note.
func applied(name, note string) []byte {
	p := pod(name, "none")
	p.Metadata.Annotations[changing] = note
	return codec.AppendObject(nil, p)
}

// patchPod changes the note of a pod.
func patchPod(ctx context.Context, c *cluster, name, note string) error {
	url := c.podsURL() + "/" + name + "?fieldManager=bench"
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, changing, note)
	_, err := callWith(ctx, c.http, http.MethodPatch, url, "application/merge-patch+json", []byte(body), http.StatusOK)
	return err
}

// changing is the annotation that a change changes.
const changing = "example.com/change"
