// Command upstream runs specs of Kubernetes' own e2e.test, its conformance suite, against one fresh cluster with
// images on a network of its own, and compares those that do not pass with a kept list, which has a reason for each.
// A spec that fails without being listed fails it, and so does one that passes though it is listed. It runs as root;
// `make conformance-upstream` builds what it needs.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	r := run{}
	flag.StringVar(&r.bin, "bin", "../bin", "directory with monoplane, kubectl, and in upstream the suite's programs")
	flag.StringVar(&r.source, "source", "", "directory of the module k8s.io/kubernetes")
	flag.StringVar(&r.focus, "focus", `\[Conformance\]`, "regular expression for the specs that are run")
	flag.StringVar(&r.skip, "skip", "", "regular expression for the specs of those that are left out")
	flag.StringVar(&r.list, "list", "upstream/failing.txt", "file with the specs that do not pass, and why")
	flag.StringVar(&r.logs, "logs", "", "directory for report.json and the cluster's log (default: a new one)")
	flag.IntVar(&r.procs, "procs", 6, "specs that run beside each other")
	flag.DurationVar(&r.timeout, "timeout", 6*time.Hour, "time after which the suite is ended")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := r.do(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "upstream: %v\n", err)
		os.Exit(1)
	}
}

// run is a run of the suite.
type run struct {
	bin, source, focus, skip, list, logs string
	procs                                int
	timeout                              time.Duration

	dir     string // what is removed at the end
	network string // the name of the network namespace that stands for the machine's
}

func (r *run) do(ctx context.Context) (err error) {
	listed, err := readList(r.list)
	if err != nil {
		return err
	}
	if r.bin, err = filepath.Abs(r.bin); err != nil {
		return err
	}
	if r.logs == "" {
		if r.logs, err = os.MkdirTemp("", "mp-upstream-logs-"); err != nil {
			return err
		}
	}
	if r.dir, err = os.MkdirTemp("", "mp-upstream-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	remove, err := r.makeNetwork(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	registries, endRegistry, err := r.serveImages(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endRegistry()) }()
	end, err := r.up(registries)
	if err != nil {
		return err
	}
	suite := r.suite(ctx)
	if err := end(); err != nil {
		return err
	}
	results, err := readReport(filepath.Join(r.logs, "report.json"))
	if err != nil {
		return errors.Join(suite, err)
	}
	return compare(results, listed)
}

// command runs a command, whose output is in the error if it fails.
func command(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// makeNetwork makes a network namespace with an address that the node can have, and nothing beyond it.
func (r *run) makeNetwork(ctx context.Context) (remove func() error, err error) {
	r.network = fmt.Sprintf("mp-upstream-%d", os.Getpid())
	remove = func() error { return command(context.WithoutCancel(ctx), "ip", "netns", "del", r.network) }
	for _, line := range []string{
		"netns add " + r.network,
		"-n " + r.network + " link set lo up",
		"-n " + r.network + " link add up0 type veth peer name up1",
		"-n " + r.network + " addr add 192.0.2.1/24 dev up0",
		"-n " + r.network + " link set up0 up",
		"-n " + r.network + " link set up1 up",
		"-n " + r.network + " route add default via 192.0.2.2",
	} {
		if err := command(ctx, append([]string{"ip"}, strings.Fields(line)...)...); err != nil {
			if line != "netns add "+r.network {
				err = errors.Join(err, remove())
			}
			return nil, err
		}
	}
	return remove, nil
}

// inside returns a command that runs in the network, in a process group of its own: what ends it is its caller.
func (r *run) inside(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=/run/netns/" + r.network}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// up starts the cluster, which pulls its images as the file of registries says. end ends it and its pods.
func (r *run) up(registries string) (end func() error, err error) {
	log, err := os.Create(filepath.Join(r.logs, "cluster.log"))
	if err != nil {
		return nil, err
	}
	cmd := r.inside(context.Background(), filepath.Join(r.bin, "monoplane"), "up", "--data-dir", r.data(),
		"--image-dir", filepath.Join(r.dir, "images"), "--registry-config", registries, "--runtime", "oci",
		"--node-name", "node", "--unsafe-no-fsync")
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	end = func() error {
		err := cmd.Process.Signal(os.Interrupt)
		return errors.Join(err, cmd.Wait(), log.Close())
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "is ready") {
			go func() {
				for lines.Scan() {
				}
			}()
			return end, nil
		}
	}
	err = errors.Join(lines.Err(), end())
	return nil, fmt.Errorf("monoplane up ended before it was ready, see %s: %w", log.Name(), err)
}

func (r *run) data() string { return filepath.Join(r.dir, "data") }

// suite runs the specs. That some fail is no error that matters: the report says so.
func (r *run) suite(ctx context.Context) error {
	upstream := filepath.Join(r.bin, "upstream")
	ctx, cancel := context.WithTimeout(ctx, r.timeout+time.Minute)
	defer cancel()
	cmd := r.inside(ctx, filepath.Join(upstream, "ginkgo"), "run", "--procs", strconv.Itoa(r.procs), "--no-color",
		"--focus", r.focus, "--skip", r.skip, "--timeout", r.timeout.String(), "--output-dir", r.logs,
		"--json-report", "report.json",
		filepath.Join(upstream, "e2e.test"), "--", "--kubeconfig", filepath.Join(r.data(), "kubeconfig"),
		"--kubectl-path", filepath.Join(r.bin, "kubectl"), "--disable-log-dump", "--dump-logs-on-failure=false")
	cmd.Dir = r.dir
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	return cmd.Run()
}

// result is how a spec ended.
type result struct {
	state   string
	message string
	took    time.Duration
}

// readReport returns the specs that were run, or that skipped themselves, by name.
func readReport(path string) (map[string]result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts           []string
			LeafNodeType, LeafNodeText, State string
			RunTime                           time.Duration
			Failure                           struct{ Message string }
		}
	}
	if err := json.Unmarshal(text, &suites); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	results := map[string]result{}
	for _, s := range suites {
		for _, spec := range s.SpecReports {
			left := spec.State == "skipped" && spec.Failure.Message == ""
			if left || spec.State == "pending" || spec.LeafNodeType != "It" {
				continue
			}
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			results[name] = result{spec.State, spec.Failure.Message, spec.RunTime}
		}
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("no spec was run: %s", path)
	}
	return results, nil
}

// readList returns the specs of the list with the reason of each. A line that begins with # is the reason of those
// that follow.
func readList(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	listed, reason := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if because, ok := strings.CutPrefix(line, "#"); ok {
			reason = strings.TrimSpace(because)
			continue
		}
		if line == "" {
			continue
		}
		if _, twice := listed[line]; twice || reason == "" {
			return nil, fmt.Errorf("%s: %q is listed twice, or without a reason", path, line)
		}
		listed[line] = reason
	}
	return listed, nil
}

var whitespace = regexp.MustCompile(`\s+`)

// compare says what differs from the list, and how many specs passed.
func compare(results map[string]result, listed map[string]string) error {
	var unexpected, passed, known int
	for _, name := range slices.Sorted(maps.Keys(results)) {
		r := results[name]
		_, expected := listed[name]
		switch ok := r.state == "passed"; {
		case ok && expected:
			unexpected++
			passed++
			fmt.Printf("passed though listed: %s\n", name)
		case ok:
			passed++
		case expected:
			known++
		default:
			unexpected++
			message := whitespace.ReplaceAllString(r.message, " ")
			fmt.Printf("%s after %s, not listed: %s\n    %.600s\n", r.state, r.took.Round(time.Second), name, message)
		}
	}
	fmt.Printf("%d specs: %d passed, %d did not and are listed\n", len(results), passed, known)
	if unexpected > 0 {
		return fmt.Errorf("%d specs ended otherwise than the list says", unexpected)
	}
	return nil
}
