package workloads_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"monoplane.dev"
	"monoplane.dev/test/workloads"
)

// namespace is where the objects of the scenarios are.
const namespace = "default"

var (
	rewrite = flag.Bool("rewrite", false, "write the timelines that are seen into the files of testdata")
	large   = flag.Bool("large", false, "play the large scenarios, too")
)

// TestFake plays all scenarios in virtual time.
//
// spec: WORK-1, WORK-2, WORK-3
func TestFake(t *testing.T) {
	all, err := workloads.All("fake")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if s.Large && !*large {
				t.Skip("it takes minutes; -large plays it")
			}
			synctest.Test(t, func(t *testing.T) { play(t, s) })
		})
	}
}

func play(t *testing.T, s *workloads.Scenario) {
	o := s.Observer()
	w := &world{nodes: s.Nodes, dir: t.TempDir(), machines: newMachines(), observer: o}
	if err := w.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen, differs, err := s.Play(t.Context(), w, o, synctest.Wait)
	if err := errors.Join(err, w.stop()); err != nil {
		t.Fatal(err)
	}
	if !*rewrite {
		if differs != nil {
			t.Error(differs)
		}
		return
	}
	file := filepath.Join("testdata", s.Name+".txt")
	if err := os.WriteFile(file, []byte(seen), 0o644); err != nil { //nolint:gosec // as git has it
		t.Fatal(err)
	}
}

// world is a cluster in this process, which may stop and start.
type world struct {
	nodes    int
	dir      string
	machines *machines
	observer *workloads.Observer

	cluster *monoplane.Cluster
	kubectl kubectl
	// hear is what the watches end by; heard is closed once they have.
	hear  context.CancelFunc
	heard chan struct{}
}

func (w *world) start(ctx context.Context) error {
	c, err := monoplane.Start(ctx, monoplane.Config{
		DataDir: w.dir, NodeName: "n", Nodes: w.nodes, Runtime: w.machines, UnsafeNoFsync: true,
	})
	if err != nil {
		return err
	}
	w.cluster = c
	if err := c.WaitReady(ctx); err != nil {
		return errors.Join(err, w.stop())
	}
	config := &rest.Config{Host: "monoplane", Transport: c.Transport(), QPS: -1}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return errors.Join(err, w.stop())
	}
	w.kubectl.client, err = dynamic.NewForConfig(config)
	if err != nil {
		return errors.Join(err, w.stop())
	}
	hearing, hear := context.WithCancel(ctx)
	listed, heard := make(chan struct{}), make(chan struct{})
	go func() {
		w.observer.Run(hearing, typed, namespace, func() { close(listed) })
		close(heard)
	}()
	<-listed
	w.hear, w.heard = hear, heard
	return nil
}

func (w *world) stop() error {
	if w.hear != nil {
		w.hear()
		<-w.heard
	}
	return w.cluster.Stop(context.Background())
}

// Kubectl implements workloads.World.
func (w *world) Kubectl(ctx context.Context, input string, args []string) error {
	return w.kubectl.run(ctx, input, args)
}

// Do implements workloads.World.
func (w *world) Do(ctx context.Context, step []string) error {
	switch step[0] {
	case "node":
		switch {
		case len(step) == 3 && step[1] == "stop":
			_, err := w.cluster.StopNode(ctx, step[2])
			return err
		case len(step) == 3 && step[1] == "start":
			_, err := w.cluster.StartNode(ctx, step[2])
			return err
		}
	case "load":
		if len(step) == 3 {
			return w.machines.load(step[1], step[2])
		}
	case "asleep":
		if len(step) == 2 {
			d, err := time.ParseDuration(step[1])
			return errors.Join(err, w.sleep(ctx, d))
		}
	case "awake":
		if len(step) == 5 {
			return w.awake(ctx, step[1], step[3], step[4])
		}
	}
	return fmt.Errorf("%v is nothing that can be done", step)
}

// sleep stops the server, and starts it when the time is over.
func (w *world) sleep(ctx context.Context, d time.Duration) error {
	if err := w.stop(); err != nil {
		return err
	}
	time.Sleep(d)
	return w.start(ctx)
}

// awake lets the server sleep but for the end of each of some periods.
func (w *world) awake(ctx context.Context, awake, every, times string) error {
	a, err := time.ParseDuration(awake)
	e, err2 := time.ParseDuration(every)
	n, err3 := strconv.Atoi(times)
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	begin := time.Now()
	for i := range n {
		if err := w.sleep(ctx, time.Until(begin.Add(time.Duration(i+1)*e-a))); err != nil {
			return err
		}
		time.Sleep(a)
	}
	return nil
}
