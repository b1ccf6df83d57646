package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// side is a server with the controllers that do the work that is measured: its own, or those of Kubernetes'
// controller manager in a process beside it.
type side struct {
	*process
	theirs *process // nil for the server's own
}

// startSide starts a server. The controllers named are Kubernetes'; none for all its own.
func startSide(ctx context.Context, e *env, theirs []string, args ...string) (*side, error) {
	dir, err := e.tempDir()
	if err != nil {
		return nil, err
	}
	if len(theirs) > 0 {
		args = append(args, "--controllers", "*,-"+strings.Join(theirs, ",-"))
	}
	p, err := startProcess(ctx, e, dir, args...)
	if err != nil || len(theirs) == 0 {
		return &side{process: p}, err
	}
	s, err := besideServer(ctx, e, p, theirs)
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return s, nil
}

// besideServer starts Kubernetes' controllers beside a server that runs; none named are all that there are.
func besideServer(ctx context.Context, e *env, p *process, theirs []string) (*side, error) {
	args := []string{"--kubeconfig", p.dir + "/kubeconfig"}
	if len(theirs) > 0 {
		args = append(args, "--controllers", strings.Join(theirs, ","))
	}
	cmd := exec.CommandContext(ctx, e.kubecontrollers, args...)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &side{process: p, theirs: &process{cmd: cmd, dir: p.dir}}, nil
}

// cpu returns the processor time that the server and the controllers have used.
func (s *side) cpu() (time.Duration, error) {
	used, err := s.process.cpu()
	if err != nil || s.theirs == nil {
		return used, err
	}
	more, err := s.theirs.cpu()
	return used + more, err
}

func (s *side) stop() error {
	var err error
	if s.theirs != nil {
		err = s.theirs.stop()
	}
	return errors.Join(err, s.process.stop())
}

// measure times what do does, until it returns.
func (s *side) measure(do func() error) (timing, error) {
	used, err := s.cpu()
	if err != nil {
		return timing{}, err
	}
	begin := time.Now()
	if err := do(); err != nil {
		return timing{}, err
	}
	took := time.Since(begin)
	after, err := s.cpu()
	return timing{took: took, cpu: after - used, text: fmt.Sprintf("%.2f s", took.Seconds())}, err
}

// timing is how long something took, of which the text tells more.
type timing struct {
	took, cpu time.Duration
	text      string
}

// report takes the timings of a side, by the names of their rows.
type report func(name string, t timing)

// beside runs a group of rows with Kubernetes' controllers in place of those named, where there are some to run, and
// then with the server's own, whose rows it prints beside what the others took.
func (e *env) beside(ctx context.Context, names []string, args []string,
	run func(context.Context, *side, report) error,
) error {
	once := func(theirs []string, note report) error {
		s, err := startSide(ctx, e, theirs, args...)
		if err != nil {
			return err
		}
		return errors.Join(run(ctx, s, note), s.stop())
	}
	theirs := map[string]timing{}
	if e.kubecontrollers != "" {
		if err := once(names, func(name string, t timing) { theirs[name] = t }); err != nil {
			return fmt.Errorf("with Kubernetes' controllers: %w", err)
		}
	}
	return once(nil, func(name string, t timing) {
		r := row{name: name, measured: t.text}
		if t.cpu > 0 {
			r.limit = fmt.Sprintf("%.1f s of processor time", t.cpu.Seconds())
		}
		if other, ok := theirs[name]; ok {
			r.limit, r.ratio = "Kubernetes' "+other.text, other.took.Seconds()/max(t.took.Seconds(), 1e-4)
			if other.cpu > 0 {
				r.cpu = t.cpu.Seconds() / other.cpu.Seconds()
			}
		}
		e.print(r)
	})
}

// findKubecontrollers returns path if there is a file, and says so when there is none.
func findKubecontrollers(path string) string {
	if _, err := os.Stat(path); err != nil {
		fmt.Printf("no times of Kubernetes' controllers: %v (make kubecontrollers builds it)\n\n", err)
		return ""
	}
	return path
}
