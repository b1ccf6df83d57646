// Command bench prints Monoplane's speed table: every row beside a limit that was measured in the same run,
// because machines differ and are noisy. Judge by the ratios. `make bench` runs it; ARGS='-run create' runs
// some groups of rows, ARGS='-run schedule -rows plain' some rows of one, ARGS=-quick small ones.
//
// Limits: raw is transactions with as large values on the embedded etcd in-process; static is the same bytes
// served by a bare TLS and HTTP/2 handler; ceiling is TLS, JSON decoding and one etcd transaction, and nothing
// else. A limit has the client, the TLS and HTTP/2 settings, the fsync and the sizes of what it is compared
// with, and takes turns with it (see paired). Rows of controllers are beside what Kubernetes' own take in their place
// against the same server (test/oracle/kubecontrollers); there a ratio above 1 says that Monoplane's are faster.
// Column cpu is how many times the limit's processor time Monoplane takes, client included.
package main

import (
	// First, because the shims of the pods that run in this process are this program again.
	_ "monoplane.dev/nodeagent/runtime/host/shim"

	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"
)

// bench is one group of rows that share a set-up.
type bench struct {
	name string
	run  func(ctx context.Context, e *env) error
}

func benches() []bench {
	return []bench{
		{"start", benchStart},
		{"memory", benchMemory},
		{"create", benchCreate},
		{"apply", benchApply},
		{"read", benchRead},
		{"guarded", benchGuarded},
		{"watch", benchWatch},
		{"owners", benchOwners},
		{"schedule", benchSchedule},
		{"run", benchRun},
		{"streams", benchStreams},
		{"idle", benchIdle},
		{"containerd", benchContainerd},
		{"workloads", benchWorkloads},
		{"evictions", benchEvictions},
		{"images", benchImages},
		{"imagepods", benchImagePods},
		{"network", benchNetwork},
		{"names", benchNames},
	}
}

// groups returns the names of all groups.
func groups() []string {
	var names []string
	for _, b := range benches() {
		names = append(names, b.name)
	}
	return names
}

func main() {
	if os.Getenv(inNamespaceVariable) != "" {
		serveOrders()
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	only := flag.String("run", "",
		"run only the groups that match this expression: "+strings.Join(groups(), ", "))
	rows := flag.String("rows", "",
		"of the group schedule, only the kinds of pods that match this expression, such as preemption")
	quick := flag.Bool("quick", false, "small sizes, to see that everything works; the figures mean little")
	binary := flag.String("monoplane", "../bin/monoplane", "the binary to measure")
	kubecontrollers := flag.String("kubecontrollers", "../bin/kubecontrollers",
		"the program that runs Kubernetes' controllers, for the rows that are compared with them")
	profile := flag.String("cpuprofile", "",
		"write a processor profile of the groups that run in this process to this file")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	kinds, err := regexp.Compile(*rows)
	if err != nil {
		return fmt.Errorf("-rows: %w", err)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	dir, err := os.MkdirTemp("", "monoplane-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	e := &env{dir: dir, quick: *quick, binary: *binary, kinds: kinds}
	fmt.Printf("%s, %d CPUs, %s/%s, %s\n\n", processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
		time.Now().Format(time.DateOnly))
	e.kubecontrollers = findKubecontrollers(*kubecontrollers)
	e.header()
	for _, b := range benches() {
		if !pattern.MatchString(b.name) {
			continue
		}
		if err := b.run(ctx, e); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	return nil
}
