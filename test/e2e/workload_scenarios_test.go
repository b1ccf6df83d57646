package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	scenarios "monoplane.dev/test/workloads"
)

// TestWorkloadScenarios plays scenarios of workloads with processes of this machine and the real kubectl; package
// workloads plays them in virtual time. Each step comes to what its timeline ends with, and the bounds hold all the
// time.
// spec: WORK-1, WORK-2, WORK-3, CLI-2
func TestWorkloadScenarios(t *testing.T) {
	t.Parallel()
	all, err := scenarios.All("host")
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, "--node-name", "n")
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			namespace := c.namespace(t)
			o := s.Observer()
			ctx, cancel := context.WithCancel(t.Context())
			listed, heard := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(heard)
				o.Run(ctx, c.client(t), namespace, func() { close(listed) })
			}()
			<-listed
			err := s.Follow(ctx, realWorld{t, c.kubectl(t, namespace)}, o, func(ask func() (bool, string)) error {
				return poll(patience, ask)
			})
			cancel()
			<-heard
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// realWorld is a namespace that one reaches by kubectl.
type realWorld struct {
	t       *testing.T
	kubectl *kubectl
}

// Kubectl implements scenarios.World.
func (w realWorld) Kubectl(_ context.Context, input string, args []string) error {
	if out, code := w.kubectl.run(w.t, input, args...); code != 0 {
		return fmt.Errorf("kubectl %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return nil
}

// Do implements scenarios.World.
func (realWorld) Do(context.Context, []string) error {
	return errors.New("this can be done with simulated nodes only")
}
