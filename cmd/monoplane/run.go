package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"monoplane.dev"
)

// up runs a cluster until a signal, an administrator's stop or a failure ends it.
func up(ctx context.Context, cfg monoplane.Config, kept *notes, stdout io.Writer) error {
	signals, ignore := notify()
	defer ignore()
	tuning, tuned := context.WithCancel(ctx)
	defer tuned()
	var serving atomic.Pointer[monoplane.Cluster]
	var started sync.Once
	go tuneGC(tuning, func(ctx context.Context) {
		if c := serving.Load(); c != nil {
			started.Do(releaseProgram)
			_ = c.ReleaseMemory(ctx) // it stays where it is
		}
	})

	cfg.Locked, cfg.Emptied = kept.locked, kept.emptied
	began := time.Now()
	cluster, err := startUp(ctx, cfg, signals)
	if err != nil {
		if !errors.Is(err, errEarly) { // nothing runs
			err = errors.Join(err, kept.failed())
		}
		return err
	}
	serving.Store(cluster)
	r := running{
		cluster: cluster, cfg: cfg, signals: signals, stdout: stdout, goesDown: len(cfg.Machine.Shutdown) > 0,
	}
	if err := kept.started(); err != nil {
		cfg.Logger.Warn("if this server is killed, monoplane down does not know its settings", "error", err)
	}
	early := r.untilReady(ctx)
	switch {
	case errors.Is(early, monoplane.ErrNodeRefused):
		early = nil // it serves the API
		greetRefused(stdout, cluster)
		r.untilStopped(ctx)
	case early == nil:
		if err := kept.ready(); err != nil {
			cfg.Logger.Warn("another range may be taken at the next start", "error", err)
		}
		greet(stdout, cluster, cfg, time.Since(began))
		r.untilStopped(ctx)
	}
	return errors.Join(early, r.stop(ctx))
}

// notify returns where the signals arrive that end a command, until ignore is called. When whoever reads what the
// command says has ended, that is only an error of the write: it would be the process's end otherwise, in the middle
// of its work. The signal for that is taken and not ignored, which containers would inherit.
func notify() (signals chan os.Signal, ignore func()) {
	signals = make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	unheard := make(chan os.Signal, 1)
	signal.Notify(unheard, syscall.SIGPIPE)
	return signals, func() {
		signal.Stop(signals)
		signal.Stop(unheard)
	}
}

// emptyOut starts a cluster in order to stop the pods that an earlier one has left, and their network.
func emptyOut(ctx context.Context, cfg monoplane.Config, stdout io.Writer) error {
	signals, ignore := notify()
	defer ignore()
	cfg.Emptied = (&notes{cfg: &cfg}).emptied
	cluster, err := startUp(ctx, cfg, signals)
	if err != nil {
		return err
	}
	r := running{cluster: cluster, cfg: cfg, signals: signals, stdout: stdout}
	if err := cluster.Refused(); err != nil {
		return errors.Join(err, r.stop(ctx))
	}
	stopped := r.stopPods(ctx, leaveOnce)
	if err := r.stop(ctx); err != nil || stopped {
		return err
	}
	return monoplane.ErrLeft
}

// errEarly says that a start was cut short.
var errEarly = errors.New("stopped before it was ready")

// startUp starts a cluster. A signal gives up; so does a second one, or the end of the patience, when the start does
// not.
func startUp(ctx context.Context, cfg monoplane.Config, signals <-chan os.Signal) (*monoplane.Cluster, error) {
	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	type started struct {
		cluster *monoplane.Cluster
		err     error
	}
	result := make(chan started, 1)
	go func() {
		c, err := monoplane.Start(starting, cfg)
		result <- started{c, err}
	}()
	select {
	case s := <-result:
		return s.cluster, s.err
	case <-signals:
	}
	cancel()
	select {
	case s := <-result:
		if s.err != nil {
			return nil, errEarly
		}
		return nil, errors.Join(errEarly, s.cluster.Stop(context.WithoutCancel(ctx)))
	case <-signals:
	case <-time.After(stopPatience):
	}
	return nil, fmt.Errorf("%w, in the middle of something that does not end", errEarly)
}

// running is a cluster with the terminal that it was started in.
type running struct {
	cluster *monoplane.Cluster
	cfg     monoplane.Config
	signals <-chan os.Signal
	stdout  io.Writer
	// goesDown: SIGTERM means that the machine does.
	goesDown bool
}

// untilReady waits until the cluster is ready. A Ctrl-C before that stops the pods, as one after it does.
func (r running) untilReady(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slow := time.AfterFunc(patience, func() { explain(ctx, r.stdout, r.cluster) })
	defer slow.Stop()
	ready := make(chan error, 1)
	go func() { ready <- r.cluster.WaitReady(ctx) }()
	select {
	case err := <-ready:
		return err
	case sig := <-r.signals:
		if sig == os.Interrupt {
			slow.Stop()
			r.stopPods(ctx, leaveAgain)
		}
	case <-r.cluster.Stopping():
		slow.Stop()
		r.stopPods(ctx, leaveDown)
	}
	return errEarly
}

// untilStopped waits until somebody stops the cluster, and stops the pods if that was asked for.
func (r running) untilStopped(ctx context.Context) {
	select {
	case sig := <-r.signals:
		switch {
		case sig == os.Interrupt:
			r.stopPods(ctx, leaveAgain)
		case r.goesDown:
			r.shutDown(ctx)
		}
	case <-r.cluster.Stopping():
		r.stopPods(ctx, leaveDown)
	case <-r.cluster.Done():
		r.leave()
	}
}

// leave says what becomes of the pods of a server that ends without having stopped them all.
func (r running) leave() {
	fmt.Fprintln(r.stdout, "Leaving the pods running; the next start adopts them.")
}

// What follows the pods that are waited for.
const (
	leaveAgain = " (Ctrl-C again leaves them running)"
	leaveOnce  = " (Ctrl-C leaves them running)"
	leaveDown  = " (asked for by monoplane down; Ctrl-C leaves them running)"
)

// stopPods waits for the pods to stop, until a signal, and reports whether all have.
func (r running) stopPods(ctx context.Context, hint string) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-r.signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	progress := stopping{w: r.stdout, hint: hint, now: time.Now}
	err := r.cluster.StopPods(ctx, progress.show)
	if err != nil { // Stop returns the reason
		r.leave()
	}
	return err == nil
}

// shutDown ends the pods because the machine goes down, until a signal.
func (r running) shutDown(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-r.signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	fmt.Fprintln(r.stdout, "The machine goes down: ending the pods, the less important first.")
	if err := r.cluster.ShutDownNodes(ctx); err != nil {
		fmt.Fprintf(r.stdout, "Not all pods have ended: %v.\n", err)
	}
}

// stopPatience is how long the end of the server may take, beyond what it allows itself.
const stopPatience = time.Minute

// stop ends the cluster. What does not end is left behind: the process ends anyway, as in a crash, which loses
// nothing.
func (r running) stop(ctx context.Context) error {
	stopped := make(chan error, 1)
	go func() { stopped <- r.cluster.Stop(context.WithoutCancel(ctx)) }()
	select {
	case err := <-stopped:
		return err
	case <-time.After(stopPatience):
		return errors.New("the server did not end in time; nothing is lost")
	}
}

// patience is after how long a start that is not over explains itself.
const patience = 5 * time.Second

// explain says what a cluster that is not ready waits for, and how to look at it.
func explain(ctx context.Context, w io.Writer, c *monoplane.Cluster) {
	if why := c.Ready(ctx); why != nil {
		fmt.Fprintf(w, "Waiting: %v\n  The API is served already: export KUBECONFIG=%s\n", why, c.Kubeconfig())
	}
}
